%% @doc Permissions by token: the claim `weir' of a token grants rights in channels.
%%
%% ```
%% {"exp": 1795400000, "weir": {"publish": ["chat/*"], "subscribe": ["chat/*", "news"]}}
%% '''
%%
%% The rights are `publish' (which includes delete), `subscribe', `history' and `presence' (reports on a channel).
%% Each has a list of patterns, see {@link weir_pubsub_policies}. A right that is not granted is refused.
-module(weir_pubsub_access).

-export([by_token/3]).
-export([may/3]).
-export([is_local/1]).
-export([all/1]).
-export([wait/1]).
-export([is_origin/2]).

-export_type([right/0, verdict/0]).

-type right() :: publish | subscribe | history | presence.

-type verdict() :: boolean() | {wait, fun(() -> boolean())}.
%% Whether a client may do something, or a fun that decides it. The fun may wait: a process of the request calls it.
%% If it fails, the answer is no.

%% @doc Returns a fun for the options of {@link weir_pubsub_http:routes/1}. The token is in a field
%% `Authorization: Bearer TOKEN', or in the query, as `access_token', for clients that cannot set fields (the
%% `EventSource' of browsers). Access logs show the query.
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
            case weir_http_value:lower(Scheme) of
                <<"bearer">> -> weir_http_value:trim(Token);
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
                fun(Pattern) ->
                    is_binary(Pattern) andalso weir_pubsub_pattern:fits(Channel, weir_pubsub_pattern:new(Pattern))
                end,
                Patterns
            );
        _ ->
            false
    end;
may(_Right, _Channel, _Claims) ->
    false.

%% @doc Whether a request is from this machine and not from a web page. Requests of pages in a local browser are from
%% this machine, too, and have a field `Origin'.
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

%% @doc Whether a request is from no web page, or from a page of one of these origins. Without a field `Origin' it is
%% not from a browser, or from a page of the same site.
-spec is_origin(weir_http_request:request(), any | [binary()]) -> boolean().
is_origin(_Request, any) ->
    true;
is_origin(Request, Origins) ->
    case weir_http_request:field(<<"origin">>, Request) of
        undefined -> true;
        Origin -> lists:member(Origin, Origins)
    end.

%% @doc Combines several verdicts: whether all are true. If one is false, nothing is waited for.
-spec all([fun(() -> verdict())]) -> verdict().
all(Questions) -> all(Questions, []).

all([Question | Questions], Waiting) ->
    case Question() of
        true -> all(Questions, Waiting);
        false -> false;
        {wait, Wait} -> all(Questions, [Wait | Waiting])
    end;
all([], []) ->
    true;
all([], Waiting) ->
    {wait, fun() -> lists:all(fun(Wait) -> Wait() end, Waiting) end}.

%% @doc Returns the decision, in a process that may wait for it.
-spec wait(verdict()) -> boolean().
wait({wait, Wait}) ->
    try
        true =:= Wait()
    catch
        Class:Reason:Stack ->
            What = "a fun that decides who may use channels failed",
            ok = weir_reports:log(error, #{what => What, reason => {Class, Reason}, stacktrace => Stack}),
            false
    end;
wait(IsAllowed) ->
    IsAllowed.
