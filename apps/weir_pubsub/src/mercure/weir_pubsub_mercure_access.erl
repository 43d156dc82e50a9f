%% @private
%% @doc What clients of Mercure may do: the claim `mercure' of a token, which is in the field `Authorization', in the
%% query or in a cookie.
-module(weir_pubsub_mercure_access).

-export([claims/2]).
-export([may_publish/2]).
-export([subscribes/1]).
-export([may_receive/2]).
-export([payload/1]).
-export([expires_in/2]).

%% Seconds. A later expiry counts as none: it may be a float that is too large to convert to milliseconds.
-define(NEVER, 1 bsl 50).

-type options() :: #{
    keys := weir_pubsub_keys:name(),
    tokens := weir_pubsub_token:options(),
    cookie := binary(),
    origins := any | [binary()],
    _ => _
}.

%% @doc Returns the claims of a request's token, or `none' if it has no token. A browser sends a cookie with requests
%% of any page, so a cookie permits publishing only if the page is of a listed origin.
-spec claims(weir_http_request:request(), options()) -> {ok, weir_pubsub_token:claims()} | none | {error, term()}.
claims(Request, #{keys := Keys, tokens := Options} = Mercure) ->
    case token(Request, Mercure) of
        {ok, Token} -> weir_pubsub_token:verify(Token, Keys, Options);
        Other -> Other
    end.

token(Request, #{cookie := Cookie, origins := Origins}) ->
    case weir_http_request:field(<<"authorization">>, Request) of
        <<Scheme:6/binary, " ", Token/binary>> ->
            case weir_http_value:lower(Scheme) of
                <<"bearer">> -> {ok, weir_http_value:trim(Token)};
                _ -> {error, malformed}
            end;
        undefined ->
            case lists:keyfind(<<"authorization">>, 1, weir_http_request:query_pairs(Request)) of
                {_, Token} -> {ok, Token};
                false -> cookie(lists:keyfind(Cookie, 1, weir_http_request:cookies(Request)), Request, Origins)
            end;
        _ ->
            {error, malformed}
    end.

cookie(false, _Request, _Origins) ->
    none;
cookie({_, Token}, Request, Origins) ->
    IsNamed = is_list(Origins) andalso lists:member(weir_http_request:field(<<"origin">>, Request), Origins),
    case weir_http_request:method(Request) of
        <<"POST">> when not IsNamed -> {error, origin};
        _ -> {ok, Token}
    end.

%% @doc Whether the claims permit publishing to all of these topics.
-spec may_publish([binary()], weir_pubsub_token:claims()) -> boolean().
may_publish(Topics, Claims) ->
    Selectors = selectors(<<"publish">>, Claims),
    lists:all(
        fun(Topic) -> lists:any(fun(Selector) -> weir_pubsub_mercure_topics:fits(Topic, Selector) end, Selectors) end,
        Topics
    ).

%% @doc Returns the selectors of topics whose private updates may be received.
-spec subscribes(weir_pubsub_token:claims()) -> [weir_pubsub_mercure_topics:selector()].
subscribes(Claims) -> selectors(<<"subscribe">>, Claims).

%% @doc Whether private updates of this topic may be received.
-spec may_receive(binary(), weir_pubsub_token:claims()) -> boolean().
may_receive(Topic, Claims) ->
    lists:any(fun(Selector) -> weir_pubsub_mercure_topics:fits(Topic, Selector) end, subscribes(Claims)).

selectors(Right, Claims) ->
    case mercure(Claims) of
        #{Right := Texts} when is_list(Texts) ->
            lists:usort([weir_pubsub_mercure_topics:new(Text) || Text <- Texts, is_binary(Text)]);
        _ ->
            []
    end.

mercure(Claims) -> maps:get(<<"https://mercure.rocks/">>, Claims, maps:get(<<"mercure">>, Claims, none)).

%% @doc Returns the payload of a token, which other clients see as part of the subscription.
-spec payload(weir_pubsub_token:claims()) -> weir_pubsub_mercure_subscriptions:payload().
payload(Claims) ->
    case mercure(Claims) of
        #{<<"payload">> := Payload} when Payload =/= null -> {some, Payload};
        _ -> none
    end.

%% @doc Returns the milliseconds until a token is refused.
-spec expires_in(weir_pubsub_token:claims(), weir_pubsub_token:options()) -> timeout().
expires_in(#{<<"exp">> := End}, Options) when is_number(End), End < ?NEVER ->
    max(0, round(1000 * (End + maps:get(leeway, Options, 0))) - os:system_time(millisecond));
expires_in(_Claims, _Options) ->
    infinity.
