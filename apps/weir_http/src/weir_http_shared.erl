%% @private
%% @doc One copy of what connections of a reactor have in common: settings that are made of a handler's options are equal for most, and
%% each connection would keep its own.
-module(weir_http_shared).

-export([term/2]).

%% @doc A term, or an equal one that the calling process was given last for the same purpose.
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
