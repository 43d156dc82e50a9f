%% @private
%% @doc Shares equal terms between the connections of a reactor. Most handlers use the same options for all
%% connections; without sharing, each connection would keep its own copy of the settings.
-module(weir_http_shared).

-export([term/2]).

%% @doc Returns the last term of the calling process for the same purpose if it is equal; otherwise remembers and
%% returns Term.
-spec term(Purpose :: atom(), Term) -> Term.
term(Purpose, Term) ->
    Key = {?MODULE, Purpose},
    case get(Key) of
        Same when Same =:= Term ->
            Same;
        _ ->
            _ = put(Key, Term),
            Term
    end.
