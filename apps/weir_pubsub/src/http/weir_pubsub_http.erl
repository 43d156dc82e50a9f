%% @doc Channels over HTTP, as Nchan serves them: routes for a listener of `weir_http'.
%%
%% ```
%% {ok, _} = weir_http:start_listener(push, #{port => 8080}, weir_pubsub_http:routes(#{})).
%% '''
%%
%% <table>
%% <tr><td>`/sub/ID'</td><td>GET subscribes: with a WebSocket if it is a handshake, with an event stream if `Accept'
%% is `text/event-stream', in chunks if `TE' is `chunked', in parts if `Accept' is `multipart/mixed', otherwise with a
%% long poll</td></tr>
%% <tr><td>`/pub/ID'</td><td>GET reports on the channel, or is the handshake of a WebSocket whose messages are
%% published and answered; POST and PUT publish, DELETE deletes</td></tr>
%% <tr><td>`/pubsub/ID'</td><td>GET subscribes, the other methods are those of `/pub/ID'</td></tr>
%% </table>
%% ID is a channel, or up to 255 channels separated by commas: a message is published to all of them, a subscriber
%% gets the messages of all. A request that is not permitted gets 403. OPTIONS returns the allowed methods. The guide
%% lists the differences to Nchan.
-module(weir_pubsub_http).
-behaviour(weir_http_direct).

-export([routes/1]).
-export([transport/1]).
-export([transports/0]).
-export([handle/2]).

-export_type([options/0, transport/0]).

-type transport() :: websocket | stream | chunked | multipart | poll.
%% `poll' is any GET that asks for no other transport, see the option `plain'.

-type options() :: #{
    publishers =>
        local | any | fun((weir_http_request:request(), weir_pubsub:channel()) -> weir_pubsub_access:verdict()),
    subscribers => any | fun((weir_http_request:request(), weir_pubsub:channel()) -> weir_pubsub_access:verdict()),
    origins => any | [binary()],
    poll_timeout => timeout(),
    stream_timeout => timeout(),
    deflate => boolean() | weir_http_websocket_deflate:options(),
    plain => long_poll | interval_poll | raw,
    poll_answer => one | multipart | raw,
    max_body => pos_integer()
}.
%% <dl>
%% <dt>`publishers' (`local')</dt><dd>who may publish, delete, and get reports on channels. `local': clients on this
%%   machine whose request is not from a web page (it has no field `Origin'). A fun decides itself. It runs in the
%%   reactor and must not block, but may return `{wait, Fun}': then a process of the request calls Fun, which returns
%%   the decision</dd>
%% <dt>`subscribers' (`any')</dt><dd>who may subscribe</dd>
%% <dt>`origins' (`any')</dt><dd>the origins whose pages may send requests, as browsers send them:
%%   `<<"https://example.org">>'. Requests of other pages get 403, which those pages cannot read. Pages of these
%%   origins can read every response, also a refusal</dd>
%% <dt>`poll_timeout' (`infinity')</dt><dd>milliseconds after which a long poll without a message gets 408</dd>
%% <dt>`stream_timeout' (`infinity')</dt><dd>milliseconds without a message after which a stream or a WebSocket ends,
%%   with 408</dd>
%% <dt>`deflate' (`false')</dt><dd>whether messages are compressed for WebSockets that offer it, each once for all of
%%   them. Options are those of {@link weir_http_websocket}, without `context'</dd>
%% <dt>`plain' (`long_poll')</dt><dd>the response to a GET that asks for no transport. `interval_poll': the next
%%   message, or 304 at once if there is none. `raw': all messages, each followed by a line feed</dd>
%% <dt>`poll_answer' (`one')</dt><dd>the response to a long poll for which several messages are there. `one': the
%%   first of them. `multipart': up to 256 of them with 64 KiB together, as parts of `multipart/mixed'. `raw': as
%%   many, each followed by a line feed. A single message is sent as it is. A client gets `multipart' on any route if
%%   it asks with `?poll_answer=multipart'</dd>
%% <dt>`max_body' (1000000)</dt><dd>the maximum size of a message in bytes: a larger one gets 413, or ends a WebSocket
%%   with 1009</dd>
%% </dl>

-define(DEFAULTS, #{
    publishers => local,
    subscribers => any,
    origins => any,
    poll_timeout => infinity,
    stream_timeout => infinity,
    deflate => false,
    plain => long_poll,
    poll_answer => one,
    max_body => 1000000
}).

%% In one request at most, as with Nchan.
-define(MOST_CHANNELS, 255).

-define(METHODS, [<<"GET">>, <<"POST">>, <<"PUT">>, <<"DELETE">>, <<"PATCH">>, <<"OPTIONS">>]).

%% @doc Returns the routes. Fails with `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec routes(options()) -> [weir_http_routes:route()].
routes(Options) ->
    case weir_checked_options:check(Options, maps:keys(?DEFAULTS), fun allowed/2) of
        ok -> ok;
        {error, Bad} -> error(Bad)
    end,
    #{max_body := MaxBody} = Set = maps:merge(?DEFAULTS, Options),
    [
        {Path, ?MODULE, {Role, Set}, #{methods => ?METHODS, max_body => MaxBody}}
     || {Path, Role} <- [{"/sub/:channel", sub}, {"/pub/:channel", pub}, {"/pubsub/:channel", pubsub}]
    ].

allowed(publishers, Who) ->
    lists:member(Who, [local, any]) orelse is_function(Who, 2) orelse "local, any, or a fun of two arguments";
allowed(subscribers, Who) ->
    Who =:= any orelse is_function(Who, 2) orelse "any, or a fun of two arguments";
allowed(origins, Origins) ->
    Origins =:= any orelse (is_list(Origins) andalso lists:all(fun is_binary/1, Origins)) orelse
        "any, or a list of origins";
allowed(Name, Time) when Name =:= poll_timeout; Name =:= stream_timeout ->
    Time =:= infinity orelse (is_integer(Time) andalso Time > 0) orelse "milliseconds from 1 on, or infinity";
allowed(plain, Plain) ->
    lists:member(Plain, [long_poll, interval_poll, raw]) orelse "long_poll, interval_poll or raw";
allowed(poll_answer, Answer) ->
    lists:member(Answer, [one, multipart, raw]) orelse "one, multipart or raw";
allowed(deflate, #{context := true}) ->
    "true, false, or options without context";
allowed(deflate, Deflate) ->
    element(1, weir_http_websocket_deflate:offer(Deflate)) =:= ok orelse "true, false, or options without context";
allowed(max_body, Bytes) ->
    (is_integer(Bytes) andalso Bytes > 0) orelse "bytes from 1 on".

%% @private
-spec handle(weir_http_request:request(), {pub | sub | pubsub, options()}) -> weir_http_direct:result().
handle(Request, {Role, #{origins := Origins} = Options}) ->
    case weir_pubsub_access:is_origin(Request, Origins) of
        true -> asked(Request, Role, Options);
        false -> {reply, 403, [], <<>>}
    end.

asked(Request, Role, Options) ->
    Channels = channels(weir_http_request:binding(channel, Request)),
    Action = action(weir_http_request:method(Request), Role, Request),
    IsRight = length(Channels) =< ?MOST_CHANNELS andalso lists:all(fun weir_pubsub_shards:is_channel/1, Channels),
    case IsRight andalso may_all(Action, Request, Channels, Options) of
        true -> allowed_to(Action, Channels, Request, Role, Options);
        false -> refused(Request);
        {wait, _} = Verdict -> {process, fun(Own) -> waited(Verdict, Action, Channels, Own, Role, Options) end}
    end.

%% Mostly there is one channel, and a match costs less than a split.
channels(Text) ->
    case binary:match(Text, <<",">>) of
        nomatch -> [Text];
        _ -> binary:split(Text, <<",">>, [global])
    end.

refused(Request) -> {reply, 403, weir_pubsub_http_fields:origin(Request), <<>>}.

%% Whether a WebSocket may also publish is decided separately.
allowed_to(subscribe, Channels, Request, pubsub, Options) ->
    case transport(Request) =:= websocket andalso may_all(publish, Request, Channels, Options) of
        {wait, _} = Verdict ->
            {process, fun(Own) ->
                act(subscribe, Channels, Own, {pubsub, weir_pubsub_access:wait(Verdict)}, Options)
            end};
        MayPublish ->
            act(subscribe, Channels, Request, {pubsub, MayPublish}, Options)
    end;
allowed_to(Action, Channels, Request, Role, Options) ->
    act(Action, Channels, Request, {Role, false}, Options).

%% Runs in a process, which cannot publish or poll in the tables of a shard as a reactor can, and asks the shard
%% instead.
waited(Verdict, Action, Channels, Request, Role, Options) ->
    case weir_pubsub_access:wait(Verdict) of
        true when Action =:= publish -> weir_pubsub_http_ask:publish_later(Channels, Request);
        true when Action =:= subscribe, Role =:= pubsub ->
            MayPublish =
                transport(Request) =:= websocket andalso
                    weir_pubsub_access:wait(may_all(publish, Request, Channels, Options)),
            act(Action, Channels, Request, {pubsub, MayPublish}, Options#{poll => later});
        true ->
            act(Action, Channels, Request, {Role, false}, Options#{poll => later});
        false ->
            refused(Request)
    end.

may_all(Action, Request, Channels, Options) ->
    weir_pubsub_access:all([fun() -> may(Action, Request, Channel, Options) end || Channel <- Channels]).

action(Get, Role, Request) when Get =:= <<"GET">>; Get =:= <<"HEAD">> ->
    case Role =:= pub andalso transport(Request) of
        false -> subscribe;
        websocket -> publish_by_websocket;
        _ -> tell
    end;
action(Method, Role, _Request) -> action(Method, Role).

action(<<"OPTIONS">>, _Role) -> options;
action(Method, Role) when Role =/= sub, Method =:= <<"POST">>; Role =/= sub, Method =:= <<"PUT">> -> publish;
action(<<"DELETE">>, Role) when Role =/= sub -> delete;
action(_Method, _Role) -> nothing.

may(nothing, _Request, _Channel, _Options) -> false;
may(options, _Request, _Channel, _Options) -> true;
may(subscribe, _Request, _Channel, #{subscribers := any}) -> true;
may(subscribe, Request, Channel, #{subscribers := May}) -> May(Request, Channel);
may(_Publish, _Request, _Channel, #{publishers := any}) -> true;
may(_Publish, Request, _Channel, #{publishers := local}) -> weir_pubsub_access:is_local(Request);
may(_Publish, Request, Channel, #{publishers := May}) -> May(Request, Channel).

act(options, _Channels, Request, {Role, _}, _Options) ->
    {reply, 200, weir_pubsub_http_fields:options(Request, Role), <<>>};
act(tell, [_, _ | _], Request, _Role, _Options) ->
    weir_pubsub_http_fields:refusal(no_channel, Request);
act(tell, [Channel], Request, _Role, _Options) ->
    case weir_pubsub:info(Channel) of
        {ok, Info} ->
            {Fields, Body} = weir_pubsub_http_report:channel(Info, Request),
            {reply, 200, Fields ++ weir_pubsub_http_fields:origin(Request), Body};
        {error, Reason} ->
            weir_pubsub_http_fields:refusal(Reason, Request)
    end;
act(publish_by_websocket, Channels, Request, _Role, Options) ->
    weir_pubsub_http_publisher:new(Channels, Request, Options);
act(publish, Channels, Request, _Role, _Options) ->
    weir_pubsub_http_ask:publish(Channels, Request);
act(delete, Channels, Request, _Role, _Options) ->
    weir_pubsub_http_ask:delete(Channels, Request);
act(subscribe, Channels, Request, Role, Options) ->
    case weir_pubsub_http_from:positions(length(Channels), Request) of
        {ok, Froms} ->
            subscribe(transport(Request), Channels, Froms, Request, {Role, Options});
        {error, tag} ->
            Fields = [{<<"content-type">>, <<"text/plain">>} | weir_pubsub_http_fields:origin(Request)],
            {reply, 400, Fields, <<"Message ID invalid">>};
        {error, count} ->
            {reply, 400, weir_pubsub_http_fields:origin(Request), <<>>}
    end.

subscribe(websocket, Channels, Froms, Request, {{_Role, MayPublish}, Options}) ->
    weir_pubsub_http_websocket:new(Channels, Froms, MayPublish, {Request, Options});
subscribe(stream, Channels, Froms, Request, {_Role, #{stream_timeout := Timeout}}) ->
    weir_pubsub_http_stream:new(Channels, Froms, Timeout, Request);
subscribe(Bytes, Channels, Froms, Request, {_Role, #{stream_timeout := Timeout}}) when
    Bytes =:= chunked; Bytes =:= multipart
->
    weir_pubsub_http_bytes:new(Bytes, Channels, Froms, Timeout, Request);
subscribe(poll, Channels, Froms, Request, {_Role, #{plain := raw, stream_timeout := Timeout}}) ->
    weir_pubsub_http_bytes:new(raw, Channels, Froms, Timeout, Request);
subscribe(poll, Channels, Froms, Request, {_Role, #{plain := interval_poll}}) ->
    weir_pubsub_http_poll:now(Channels, Froms, Request);
subscribe(poll, Channels, Froms, Request, {_Role, #{poll_timeout := Timeout, poll_answer := Answer} = Options}) ->
    Settings = {Timeout, weir_pubsub_http_messages:form(Request, Answer)},
    case Options of
        #{poll := later} -> weir_pubsub_http_poll:later(Channels, Froms, Settings, Request);
        #{} -> weir_pubsub_http_poll:new(Channels, Froms, Settings, Request)
    end.

%% @doc Returns the transport that a request asks for.
-spec transport(weir_http_request:request()) -> transport().
transport(Request) ->
    case has(<<"websocket">>, words(<<"upgrade">>, Request)) of
        true -> websocket;
        false -> without_upgrade(words(<<"accept">>, Request), Request)
    end.

without_upgrade(Accept, Request) ->
    case has(<<"text/event-stream">>, Accept) of
        true ->
            stream;
        false ->
            case has(<<"chunked">>, words(<<"te">>, Request)) of
                true -> chunked;
                false -> case has(<<"multipart/mixed">>, Accept) of true -> multipart; false -> poll end
            end
    end.

has(_Word, undefined) -> false;
has(Word, Words) -> binary:match(Words, Word) =/= nomatch.

words(Field, Request) ->
    case weir_http_request:field(Field, Request) of
        undefined -> undefined;
        Value -> weir_http_value:lower(Value)
    end.

%% @doc Returns all transports.
-spec transports() -> [transport(), ...].
transports() -> [websocket, stream, chunked, multipart, poll].
