%% @doc Who may do what, by tokens: what their claim `weir' grants for which channels.
%%
%% ```
%% {"exp": 1795400000, "weir": {"publish": ["chat/*"], "subscribe": ["chat/*", "news"]}}
%% '''
%%
%% The rights are `publish' (and delete), `subscribe', `history' and `presence' (what is told about a channel); each has a list of patterns, see
%% {@link weir_pubsub_policies}. What is not granted is refused.
-module(weir_pubsub_access).

-export([by_token/3]).
-export([may/3]).
-export([is_local/1]).
-export([is_origin/2]).

-export_type([right/0]).

-type right() :: publish | subscribe | history | presence.

%% @doc A fun for the options of {@link weir_pubsub_http:routes/1}. The token is in a field `Authorization: Bearer TOKEN', or in the query, as
%% `access_token', for clients that cannot set fields (the `EventSource' of browsers). A token in the query is seen in access logs.
-spec by_token(right(), weir_pubsub_keys:name(), weir_pubsub_token:options()) ->
    fun((weir_http_request:request(), weir_pubsub:channel()) -> boolean()).
by_token(Right, Keys, Options) ->
    fun(Request, Channel) ->
        case token(Request) of
            none ->
                false;
            Token ->
                case weir_pubsub_token:verify(Token, Keys, Options) of
                    {ok, Claims} -> may(Right, Channel, Claims);
                    {error, _} -> false
                end
        end
    end.

token(Request) ->
    case weir_http_request:field(<<"authorization">>, Request, <<>>) of
        <<Scheme:6/binary, " ", Token/binary>> ->
            case string:lowercase(Scheme) of
                <<"bearer">> -> string:trim(Token);
                _ -> none
            end;
        _ ->
            case lists:keyfind(<<"access_token">>, 1, weir_http_request:query_pairs(Request)) of
                {_, Token} -> Token;
                false -> none
            end
    end.

%% @doc Whether claims grant a right in a channel.
-spec may(right(), weir_pubsub:channel(), weir_pubsub_token:claims()) -> boolean().
may(Right, Channel, #{<<"weir">> := Grants}) when is_map(Grants) ->
    case maps:get(atom_to_binary(Right), Grants, []) of
        Patterns when is_list(Patterns) ->
            lists:any(
                fun(Pattern) -> is_binary(Pattern) andalso weir_pubsub_pattern:fits(Channel, weir_pubsub_pattern:new(Pattern)) end,
                Patterns
            );
        _ ->
            false
    end;
may(_Right, _Channel, _Claims) ->
    false.

%% @doc Whether a request is from this machine and from no page that a browser shows: those come from this machine, too, and have a field
%% `Origin'.
-spec is_local(weir_http_request:request()) -> boolean().
is_local(Request) ->
    weir_http_request:field(<<"origin">>, Request) =:= undefined andalso
        case weir_http_request:peer(Request) of
            {ok, {{127, _, _, _}, _}} -> true;
            {ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}} -> true;
            {ok, {{0, 0, 0, 0, 0, 16#FFFF, 16#7F00, _}, _}} -> true;
            {ok, {local, _}} -> true;
            _ -> false
        end.

%% @doc Whether a request comes from no page, or from one of these sites. Who says no `Origin' is no browser, or a page of the same site.
-spec is_origin(weir_http_request:request(), any | [binary()]) -> boolean().
is_origin(_Request, any) ->
    true;
is_origin(Request, Origins) ->
    case weir_http_request:field(<<"origin">>, Request) of
        undefined -> true;
        Origin -> lists:member(Origin, Origins)
    end.
