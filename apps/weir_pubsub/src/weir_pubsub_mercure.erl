%% @doc A hub of Mercure, as version 0.x of its protocol has it: the route `/.well-known/mercure' for a listener of `weir_http'.
%%
%% ```
%% ok = weir_pubsub_keys:load(hub, [{secret, "secret"}]),
%% {ok, _} = weir_http:start_listener(hub, #{port => 3000}, weir_pubsub_mercure:routes(#{keys => hub})).
%% '''
%%
%% GET subscribes to `topic' (several), POST publishes a form with `topic' (several), `data', `private', `type' and `retry'. Tokens have the
%% claim `mercure' with `publish' and `subscribe'. The updates of a node are in one channel, with one order. Differences to the hub of the
%% Mercure project are in the guide.
-module(weir_pubsub_mercure).
-behaviour(weir_http_direct).
-behaviour(weir_http_held).

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
    max_body => pos_integer()
}.
%% <dl>
%% <dt>`keys'</dt><dd>what tokens are checked with, of publishers and of subscribers</dd>
%% <dt>`tokens' (`#{}')</dt><dd>how, see {@link weir_pubsub_token:verify/3}</dd>
%% <dt>`anonymous' (`true')</dt><dd>whether clients without a token may subscribe; they get no private updates</dd>
%% <dt>`origins' (`any')</dt><dd>of which sites pages may come. Only with a list may pages publish by a cookie</dd>
%% <dt>`cookie' (`<<"mercureAuthorization">>')</dt><dd>the name of the cookie with a token</dd>
%% <dt>`max_body' (1000000)</dt><dd>bytes of a request to publish</dd>
%% </dl>

-define(DEFAULTS, #{tokens => #{}, anonymous => true, origins => any, cookie => <<"mercureAuthorization">>, max_body => 1000000}).

-define(PATH, "/.well-known/mercure").

%% No client can name it: see weir_pubsub_shards:is_channel/1.
-define(CHANNEL, <<0, "mercure">>).

%% Topics of an update, and selectors of a subscriber.
-define(MOST_TOPICS, 100).
-define(LONGEST_TOPIC, 2048).

%% How long a request waits for the shard, in milliseconds.
-define(PATIENCE_MS, 5000).

-record(publish, {meta :: weir_pubsub:meta(), data :: binary(), http :: weir_http_request:request(), reference :: reference()}).

%% @doc The route. Fails with `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec routes(options()) -> [weir_http_routes:route()].
routes(Options) ->
    case weir_checked_options:check(Options, [keys | maps:keys(?DEFAULTS)], fun allowed/2) of
        ok -> ok;
        {error, Bad} -> error(Bad)
    end,
    is_map_key(keys, Options) orelse error({bad_option, keys, none, "the name of keys that are loaded"}),
    #{max_body := MaxBody} = Set = maps:merge(?DEFAULTS, Options),
    [{?PATH, ?MODULE, Set, #{methods => [<<"GET">>, <<"POST">>, <<"OPTIONS">>], max_body => MaxBody}}].

allowed(keys, _Name) -> true;
allowed(tokens, Tokens) -> is_map(Tokens) orelse "a map of options of tokens";
allowed(anonymous, IsAnonymous) -> is_boolean(IsAnonymous) orelse "true or false";
allowed(origins, Origins) -> Origins =:= any orelse (is_list(Origins) andalso lists:all(fun is_binary/1, Origins)) orelse "any, or a list of origins";
allowed(cookie, Name) -> (is_binary(Name) andalso Name =/= <<>>) orelse "the name of a cookie";
allowed(max_body, Bytes) -> (is_integer(Bytes) andalso Bytes > 0) orelse "bytes from 1 on".

%% @doc The channel that has the updates: how many are kept is said by its policy.
-spec channel() -> weir_pubsub:channel().
channel() -> ?CHANNEL.

%% @private
-spec handle(weir_http_request:request(), options()) -> weir_http_direct:result().
handle(Request, #{origins := Origins} = Options) ->
    case weir_pubsub_access:is_origin(Request, Origins) of
        true -> asked(weir_http_request:method(Request), Request, Options);
        false -> {reply, 403, [], <<>>}
    end.

asked(<<"OPTIONS">>, Request, _Options) ->
    Cors =
        case weir_pubsub_http_fields:origin(Request) of
            [] ->
                [];
            Fields ->
                [
                    {<<"access-control-allow-methods">>, <<"GET, POST">>},
                    {<<"access-control-allow-headers">>, <<"Authorization, Cache-Control, Content-Type, Last-Event-ID">>}
                    | Fields
                ]
        end,
    {reply, 200, [{<<"allow">>, <<"GET, POST, OPTIONS">>} | Cors], <<>>};
asked(<<"GET">>, Request, #{anonymous := IsAnonymous} = Options) ->
    case weir_pubsub_mercure_access:claims(Request, Options) of
        {ok, Claims} -> subscribe(Request, Claims);
        none when IsAnonymous -> subscribe(Request, #{});
        _ -> refused(401, <<"Unauthorized">>, Request)
    end;
asked(<<"POST">>, Request, Options) ->
    case weir_pubsub_mercure_access:claims(Request, Options) of
        {ok, Claims} -> publish(Request, Claims);
        _ -> refused(401, <<"Unauthorized">>, Request)
    end.

refused(Status, Text, Request) ->
    Challenge = [{<<"www-authenticate">>, <<"Bearer">>} || Status =:= 401],
    {reply, Status, Challenge ++ text(Request), [Text, $\n]}.

text(Request) -> [{<<"content-type">>, <<"text/plain; charset=utf-8">>} | weir_pubsub_http_fields:origin(Request)].

%% Subscribing ---------------------------------------------------------------------------

subscribe(Request, Claims) ->
    Pairs = weir_http_request:query_pairs(Request),
    case topics(Pairs) of
        {ok, Topics} ->
            Wanted = lists:usort([weir_pubsub_mercure_topics:new(binary:copy(Topic)) || Topic <- Topics]),
            Granted = weir_pubsub_mercure_access:subscribes(Claims),
            ExpiresIn = weir_pubsub_mercure_access:expires_in(Claims),
            weir_pubsub_mercure_stream:new({Wanted, Granted}, {?CHANNEL, from(Request, Pairs)}, ExpiresIn, Request);
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
    Topic =/= <<>> andalso byte_size(Topic) =< ?LONGEST_TOPIC andalso unicode:characters_to_binary(Topic) =:= Topic andalso
        [] =:= [Byte || <<Byte>> <= Topic, Byte < 32 orelse Byte =:= 127].

%% An id that is none of ours is taken for one that is forgotten, as by other hubs: all that is kept comes.
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
        error -> refused(400, <<"A form is needed: application/x-www-form-urlencoded.">>, Request)
    end.

checked({error, Text}, _Pairs, Request, _Claims) ->
    refused(400, Text, Request);
checked({ok, Topics}, Pairs, Request, Claims) ->
    Type = proplists:get_value(<<"type">>, Pairs, <<>>),
    Retry = retry(proplists:get_value(<<"retry">>, Pairs, <<>>)),
    IsReserved = lists:any(fun(Topic) -> binary:match(Topic, <<?PATH>>) =/= nomatch end, Topics),
    MayPublish = weir_pubsub_mercure_access:may_publish(Topics, Claims),
    case {MayPublish, is_line(Type), Retry} of
        {false, _, _} -> refused(403, <<"Forbidden">>, Request);
        _ when IsReserved -> refused(403, <<"The hub's own topics are for the hub.">>, Request);
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

%% At once, if nobody is at work in the shard.
published(Data, Meta, Http) ->
    case not weir_http_request:is_tls(Http) andalso weir_pubsub_publication:in_reactor(?CHANNEL, Data, Meta) of
        NotAtOnce when NotAtOnce =:= busy; NotAtOnce =:= false ->
            State = #publish{meta = Meta, data = Data, http = Http, reference = make_ref()},
            {hold, ?MODULE, State, #{timeout => ?PATIENCE_MS, otherwise => weir_pubsub_http_fields:refusal(unavailable, Http)}};
        Answer ->
            answer(Answer, Http)
    end.

%% @private
-spec open(weir_http_held:held(), #publish{}) -> weir_http_held:result().
open(_Held, #publish{meta = Meta, data = Data, http = Http, reference = Reference} = State) ->
    Tag = {weir_reactor, weir_http_request:socket(Http), Reference},
    case weir_pubsub_shards:send(?CHANNEL, {publish, ?CHANNEL, Data, Meta}, Tag) of
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
