%% @doc A hub for version 0.x of the Mercure protocol: the route `/.well-known/mercure' for a listener of `weir_http'.
%%
%% ```
%% ok = weir_pubsub_keys:load(hub, [{secret, "secret"}]),
%% {ok, _} = weir_http:start_listener(hub, #{port => 3000}, weir_pubsub_mercure:routes(#{keys => hub})).
%% '''
%%
%% GET subscribes to one or more `topic'. POST publishes a form with one or more `topic', and with `data', `private',
%% `type' and `retry'. Tokens have the claim `mercure' with `publish' and `subscribe'. The updates of a node are in
%% one channel, in one order. The guide lists the differences to the hub of the Mercure project.
%%
%% With the option `subscriptions' the hub publishes an update when a subscription begins or ends, and reports the
%% active subscriptions at `/.well-known/mercure/subscriptions', `.../TOPIC' and `.../TOPIC/SUBSCRIBER'.
-module(weir_pubsub_mercure).
-behaviour(weir_http_direct).
-behaviour(weir_http_held).

-include("weir_pubsub_mercure.hrl").

-export([routes/1]).
-export([channel/0]).

-export([handle/2]).
-export([open/2]).
-export([info/2]).

-export_type([options/0]).

-type options() :: #{
    keys := weir_pubsub_keys:name(),
    tokens => weir_pubsub_token:options(),
    anonymous => boolean(),
    origins => any | [binary()],
    cookie => binary(),
    subscriptions => boolean(),
    max_body => pos_integer()
}.
%% <dl>
%% <dt>`keys'</dt><dd>the keys that verify the tokens of publishers and subscribers</dd>
%% <dt>`tokens' (`#{}')</dt><dd>how tokens are verified, see {@link weir_pubsub_token:verify/3}</dd>
%% <dt>`anonymous' (`true')</dt><dd>whether clients without a token may subscribe; they get no private updates</dd>
%% <dt>`origins' (`any')</dt><dd>the origins whose pages may send requests. Pages may publish with a cookie only if
%%   this is a list</dd>
%% <dt>`cookie' (`<<"mercureAuthorization">>')</dt><dd>the name of the cookie with a token</dd>
%% <dt>`subscriptions' (`false')</dt><dd>whether active subscriptions are published and reported, to clients whose
%%   token lets them `subscribe' to the path of the subscription, such as
%%   `/.well-known/mercure/subscriptions{/topic}{/subscriber}'. Each selector of each subscriber causes an update when
%%   it begins and when it ends</dd>
%% <dt>`max_body' (1000000)</dt><dd>the maximum size of a request to publish, in bytes</dd>
%% </dl>

-define(DEFAULTS, #{
    tokens => #{},
    anonymous => true,
    origins => any,
    cookie => <<"mercureAuthorization">>,
    subscriptions => false,
    max_body => 1000000
}).

%% Topics of an update, and selectors of a subscriber, at most; and the bytes of each.
-define(MOST_TOPICS, 100).
-define(LONGEST_TOPIC, 2048).

%% How long a request waits for the shard, in milliseconds.
-define(PATIENCE_MS, 5000).

-record(publish, {
    meta :: weir_pubsub:meta(), data :: binary(), http :: weir_http_request:request(), reference :: reference()
}).

%% @doc Returns the routes. Fails with `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec routes(options()) -> [weir_http_routes:route()].
routes(Options) ->
    case weir_checked_options:check(Options, [keys | maps:keys(?DEFAULTS)], fun allowed/2) of
        ok -> ok;
        {error, Bad} -> error(Bad)
    end,
    is_map_key(keys, Options) orelse error({bad_option, keys, none, "the name of keys that are loaded"}),
    #{max_body := MaxBody, subscriptions := IsTold} = Set = maps:merge(?DEFAULTS, Options),
    Told = [
        {Path, ?MODULE, {subscriptions, Set}, #{methods => [<<"GET">>, <<"OPTIONS">>]}}
     || IsTold, Path <- weir_pubsub_mercure_api:paths()
    ],
    [
        {?HUB_PATH, ?MODULE, {hub, Set}, #{methods => [<<"GET">>, <<"POST">>, <<"OPTIONS">>], max_body => MaxBody}}
        | Told
    ].

allowed(keys, _Name) ->
    true;
allowed(tokens, Tokens) ->
    is_map(Tokens) orelse "a map of options of tokens";
allowed(anonymous, IsAnonymous) ->
    is_boolean(IsAnonymous) orelse "true or false";
allowed(origins, Origins) ->
    Origins =:= any orelse (is_list(Origins) andalso lists:all(fun is_binary/1, Origins)) orelse
        "any, or a list of origins";
allowed(subscriptions, IsTold) ->
    is_boolean(IsTold) orelse "true or false";
allowed(cookie, Name) ->
    weir_http_cookie:is_name(Name) orelse "the name of a cookie: letters, digits and !#$%&'*+-.^_`|~";
allowed(max_body, Bytes) ->
    (is_integer(Bytes) andalso Bytes > 0) orelse "bytes from 1 on".

%% @doc Returns the channel that has the updates. Its policy sets how many are kept.
-spec channel() -> weir_pubsub:channel().
channel() -> ?HUB_CHANNEL.

%% @private
-spec handle(weir_http_request:request(), {hub | subscriptions, options()}) -> weir_http_direct:result().
handle(Request, {What, #{origins := Origins} = Options}) ->
    case weir_pubsub_access:is_origin(Request, Origins) of
        true -> asked(weir_http_request:method(Request), What, Request, Options);
        false -> {reply, 403, [], <<>>}
    end.

asked(<<"OPTIONS">>, What, Request, _Options) ->
    Methods =
        case What of
            hub -> <<"GET, POST">>;
            subscriptions -> <<"GET">>
        end,
    Cors =
        case weir_pubsub_http_fields:origin(Request) of
            [] ->
                [];
            Fields ->
                [
                    {<<"access-control-allow-methods">>, Methods},
                    {<<"access-control-allow-headers">>,
                        <<"Authorization, Cache-Control, Content-Type, Last-Event-ID">>}
                    | Fields
                ]
        end,
    {reply, 200, [{<<"allow">>, <<Methods/binary, ", OPTIONS">>} | Cors], <<>>};
asked(<<"POST">>, hub, Request, Options) ->
    case weir_pubsub_mercure_access:claims(Request, Options) of
        {ok, Claims} -> publish(Request, Claims);
        _ -> refused(401, <<"Unauthorized">>, Request)
    end;
asked(_GetOrHead, hub, Request, #{anonymous := IsAnonymous} = Options) ->
    case weir_pubsub_mercure_access:claims(Request, Options) of
        {ok, Claims} -> subscribe(Request, Claims, Options);
        none when IsAnonymous -> subscribe(Request, #{}, Options);
        _ -> refused(401, <<"Unauthorized">>, Request)
    end;
asked(_GetOrHead, subscriptions, Request, Options) ->
    case weir_pubsub_mercure_access:claims(Request, Options) of
        {ok, Claims} ->
            case weir_pubsub_mercure_access:may_receive(weir_pubsub_mercure_api:id(Request), Claims) of
                %% There may be many, and a reactor must not wait.
                true -> {process, fun tell/1};
                false -> refused(403, <<"Forbidden">>, Request)
            end;
        _ ->
            refused(401, <<"Unauthorized">>, Request)
    end.

tell(Request) ->
    Latest = weir_pubsub_mercure_api:latest(),
    Tag = <<$", Latest/binary, $">>,
    Fields = [
        {<<"etag">>, Tag},
        {<<"cache-control">>, <<"private, no-cache">>},
        {<<"link">>, <<"<" ?HUB_PATH ">; rel=\"mercure\"">>}
        | weir_pubsub_http_fields:origin(Request)
    ],
    %% The protocol has the tag without quotes.
    case lists:member(weir_http_request:field(<<"if-none-match">>, Request), [Tag, Latest]) of
        true ->
            {reply, 304, Fields, <<>>};
        false ->
            case weir_pubsub_mercure_api:document(Request, Latest) of
                {ok, Document} -> {reply, 200, [{<<"content-type">>, <<"application/ld+json">>} | Fields], Document};
                none -> refused(404, <<"Not Found">>, Request)
            end
    end.

refused(Status, Text, Request) ->
    Challenge = [{<<"www-authenticate">>, <<"Bearer">>} || Status =:= 401],
    {reply, Status, Challenge ++ text(Request), [Text, $\n]}.

text(Request) -> [{<<"content-type">>, <<"text/plain; charset=utf-8">>} | weir_pubsub_http_fields:origin(Request)].

%% Subscribing ---------------------------------------------------------------------------

subscribe(Request, Claims, #{subscriptions := IsTold, tokens := Tokens}) ->
    Pairs = weir_http_request:query_pairs(Request),
    case topics(Pairs) of
        {ok, Topics} ->
            Copies = lists:usort([binary:copy(Topic) || Topic <- Topics]),
            Wanted = lists:usort([weir_pubsub_mercure_topics:new(Topic) || Topic <- Copies]),
            Granted = weir_pubsub_mercure_access:subscribes(Claims),
            weir_pubsub_mercure_stream:new({Wanted, Granted}, {?HUB_CHANNEL, from(Request, Pairs)}, Request, #{
                expires_in => weir_pubsub_mercure_access:expires_in(Claims, Tokens),
                tell =>
                    case IsTold of
                        true -> {Copies, weir_pubsub_mercure_access:payload(Claims)};
                        false -> nothing
                    end
            });
        {error, Text} ->
            refused(400, Text, Request)
    end.

topics(Pairs) ->
    Topics = [Topic || {<<"topic">>, Topic} <- Pairs],
    case length(Topics) of
        0 ->
            {error, <<"Missing \"topic\" parameter.">>};
        Count when Count > ?MOST_TOPICS ->
            {error, <<"Too many topics.">>};
        _ ->
            case lists:all(fun is_topic/1, Topics) of
                true -> {ok, Topics};
                false -> {error, <<"A topic is text of 1 to 2048 bytes without control characters.">>}
            end
    end.

is_topic(Topic) ->
    Topic =/= <<>> andalso byte_size(Topic) =< ?LONGEST_TOPIC andalso
        unicode:characters_to_binary(Topic) =:= Topic andalso
        [] =:= [Byte || <<Byte>> <= Topic, Byte < 32 orelse Byte =:= 127].

%% An id that is not one of ours is treated as one that is forgotten, as by other hubs: all updates that are kept are
%% sent.
from(Request, Pairs) ->
    Said =
        case weir_http_request:field(<<"last-event-id">>, Request, <<>>) of
            <<>> -> proplists:get_value(<<"lastEventID">>, Pairs, <<>>);
            Field -> Field
        end,
    case Said of
        <<>> -> new;
        <<"#", Text/binary>> ->
            case weir_pubsub_id:from_text(Text) of
                {ok, Id} -> Id;
                error -> oldest
            end;
        _ -> oldest
    end.

%% Publishing ------------------------------------------------------------------------------

publish(Request, Claims) ->
    case weir_http_request:form(Request) of
        {ok, Pairs} -> checked(topics(Pairs), Pairs, Request, Claims);
        error -> refused(400, <<"The body must be a form: application/x-www-form-urlencoded.">>, Request)
    end.

checked({error, Text}, _Pairs, Request, _Claims) ->
    refused(400, Text, Request);
checked({ok, Topics}, Pairs, Request, Claims) ->
    Type = proplists:get_value(<<"type">>, Pairs, <<>>),
    Retry = retry(proplists:get_value(<<"retry">>, Pairs, <<>>)),
    IsReserved = lists:any(fun(Topic) -> binary:match(Topic, <<?HUB_PATH>>) =/= nomatch end, Topics),
    MayPublish = weir_pubsub_mercure_access:may_publish(Topics, Claims),
    case {MayPublish, is_line(Type), Retry} of
        {false, _, _} -> refused(403, <<"Forbidden">>, Request);
        _ when IsReserved -> refused(403, <<"Only the hub may publish to its own topics.">>, Request);
        {true, false, _} -> refused(400, <<"Invalid \"type\" parameter.">>, Request);
        {true, true, error} -> refused(400, <<"Invalid \"retry\" parameter.">>, Request);
        {true, true, {ok, Time}} ->
            IsPrivate = lists:keymember(<<"private">>, 1, Pairs),
            Own = #{mercure => {[binary:copy(Topic) || Topic <- Topics], IsPrivate, Time}},
            Meta = case Type of <<>> -> Own; _ -> Own#{event => binary:copy(Type)} end,
            published(proplists:get_value(<<"data">>, Pairs, <<>>), Meta, Request)
    end.

is_line(Text) -> binary:match(Text, [<<"\r">>, <<"\n">>, <<0>>]) =:= nomatch.

retry(<<>>) -> {ok, none};
retry(Text) when byte_size(Text) < 10 ->
    case [Byte || <<Byte>> <= Text, Byte < $0 orelse Byte > $9] of
        [] -> {ok, binary_to_integer(Text)};
        _ -> error
    end;
retry(_Text) -> error.

%% In the reactor, if the claim on the shard is free.
published(Data, Meta, Http) ->
    case not weir_http_request:is_tls(Http) andalso weir_pubsub_publication:in_reactor(?HUB_CHANNEL, Data, Meta) of
        NotAtOnce when NotAtOnce =:= busy; NotAtOnce =:= false ->
            State = #publish{meta = Meta, data = Data, http = Http, reference = make_ref()},
            {hold, ?MODULE, State, #{
                timeout => ?PATIENCE_MS, otherwise => weir_pubsub_http_fields:refusal(unavailable, Http)
            }};
        Answer ->
            answer(Answer, Http)
    end.

%% @private
-spec open(weir_http_held:held(), #publish{}) -> weir_http_held:result().
open(_Held, #publish{meta = Meta, data = Data, http = Http, reference = Reference} = State) ->
    Tag = {weir_reactor, weir_http_request:socket(Http), Reference},
    case weir_pubsub_shards:send(?HUB_CHANNEL, {publish, ?HUB_CHANNEL, Data, Meta}, Tag) of
        ok -> {ok, State};
        {error, Reason} -> weir_pubsub_http_fields:refusal(Reason, Http)
    end.

%% @private
-spec info(term(), #publish{}) -> weir_http_held:result().
info({_, Reference, _Channel, {answer, Answer}}, #publish{reference = Reference, http = Http}) -> answer(Answer, Http);
info(_Earlier, State) -> {ok, State}.

answer({ok, #{id := Id}}, Http) ->
    {reply, 200, text(Http), weir_pubsub_mercure_stream:id(Id)};
answer({error, Reason}, Http) ->
    weir_pubsub_http_fields:refusal(Reason, Http).
