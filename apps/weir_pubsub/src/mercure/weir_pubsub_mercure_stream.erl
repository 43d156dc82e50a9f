%% @private
%% @doc An event stream of Mercure: the updates of the hub that a subscriber has asked for and may get.
%%
%% All updates are in one channel, in one order. Subscribers with the same selectors and the same rights are one
%% audience, for which an update is matched and framed once.
-module(weir_pubsub_mercure_stream).
-behaviour(weir_http_events).
-behaviour(weir_pubsub_framing).

-export([new/4]).
-export([id/1]).
-export([open/2]).
-export([info/2]).
-export([written/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-type selectors() :: [weir_pubsub_mercure_topics:selector()].

-record(stream, {
    subscription :: weir_pubsub_http_subscription:subscription(),
    framing :: weir_pubsub_framing:framing(),
    socket :: weir_tcp:socket() | ssl:sslsocket(),
    expires_in :: timeout(),
    %% What to announce when it begins; then the name under which it was announced.
    tell :: tell() | {told, weir_pubsub_mercure_subscriptions:subscriber()}
}).

-type tell() :: nothing | {Selectors :: [binary()], weir_pubsub_mercure_subscriptions:payload()}.

%% Longest time of the timer, ten years in milliseconds: a token may name any number as its end, and a timer may not.
-define(LONGEST_MS, 315_576_000_000).

%% @doc Returns the result for the listener: a stream of the updates that `Wanted' selects, without private ones that
%% `Granted' does not.
-spec new(
    {Wanted :: selectors(), Granted :: selectors()}, {weir_pubsub:channel(), weir_pubsub:from()}, Http, Options
) ->
    weir_http_direct:result()
when
    Http :: weir_http_request:request(), Options :: #{expires_in := timeout(), tell := tell()}.
new(Selectors, {Channel, From}, Http, #{expires_in := ExpiresIn, tell := Tell}) ->
    Stream = #stream{
        subscription = weir_pubsub_http_subscription:new([Channel], [From], infinity, Http),
        framing = {?MODULE, Selectors},
        socket = weir_http_request:socket(Http),
        expires_in = ExpiresIn,
        tell = Tell
    },
    {events, ?MODULE, Stream, #{heartbeat => 40000, fields => fields(Channel, From, Http)}}.

fields(Channel, From, Http) ->
    Fields = [
        {<<"content-type">>, <<"text/event-stream">>},
        {<<"cache-control">>, <<"private, no-cache, no-store, must-revalidate, max-age=0">>},
        {<<"x-accel-buffering">>, <<"no">>}
        | weir_pubsub_http_fields:origin(Http)
    ],
    case From of
        new -> Fields;
        _ -> [{<<"last-event-id">>, before(Channel, From)} | Fields]
    end.

%% The id of the update after which the first that is sent comes. A client that gets its own id back has missed
%% nothing.
before(Channel, From) ->
    case weir_pubsub_inspection:history(Channel, From, 1) of
        {ok, #{position := {_, Number} = Position}} when Number > 0 -> id(Position);
        _ -> <<"earliest">>
    end.

%% @doc Returns the id of an update as clients see it: a reference relative to the hub.
-spec id(weir_pubsub_framing:place()) -> binary().
id(Id) -> <<"#", (weir_pubsub_id:to_text(Id))/binary>>.

-spec open(weir_http_events:stream(), #stream{}) -> weir_http_events:result().
open(Socket, #stream{subscription = Subscription, framing = Framing, expires_in = ExpiresIn} = Stream) ->
    ok = wake(Stream, ExpiresIn),
    result(
        weir_pubsub_http_subscription:open(Socket, Framing, weir_http_events:frame(#{comment => <<>>}), Subscription),
        Stream
    ).

wake(_Stream, infinity) ->
    ok;
wake(#stream{socket = Socket}, Milliseconds) ->
    _ = erlang:send_after(min(?LONGEST_MS, Milliseconds), self(), {{weir_reactor, Socket}, expired}),
    ok.

-spec info(term(), #stream{}) -> weir_http_events:result().
info({_, expired}, Stream) ->
    {close, Stream};
info({_, _Reference, _Channel, {answer, {ok, _}}} = Begun, #stream{tell = {[_ | _] = Selectors, Payload}} = Stream) ->
    info(Begun, Stream#stream{tell = {told, weir_pubsub_mercure_subscriptions:begun(Selectors, Payload)}});
info(Message, #stream{subscription = Subscription, framing = Framing} = Stream) ->
    result(weir_pubsub_http_subscription:info(Message, Framing, Subscription), Stream).

result({ok, Next}, Stream) -> {ok, Stream#stream{subscription = Next}};
result({send, Bytes, Next}, Stream) -> {send, {framed, Bytes}, Stream#stream{subscription = Next}};
result({over, _Reason}, Stream) -> {close, Stream}.

-spec written(weir_http_events:stream(), #stream{}) -> weir_http_events:result().
written(_Socket, #stream{subscription = Subscription} = Stream) ->
    {ok, Stream#stream{subscription = weir_pubsub_http_subscription:written(Subscription)}}.

-spec closed(weir_http_events:reason(), #stream{}) -> term().
closed(Reason, #stream{subscription = Subscription, tell = Tell}) ->
    _ = case Tell of {told, Subscriber} -> weir_pubsub_mercure_subscriptions:ended(Subscriber); _ -> ok end,
    weir_pubsub_http_subscription:closed(Reason, Subscription).

%% Framing -----------------------------------------------------------------------------

%% @doc Returns an event if the subscriber has asked for the update and may get it; otherwise no bytes.
-spec message({Wanted :: selectors(), Granted :: selectors()}, weir_pubsub:channel(), weir_pubsub_framing:message()) ->
    binary().
message({Wanted, Granted}, _Channel, {message, Id, Data, #{mercure := {Topics, IsPrivate, Retry}} = Meta}) ->
    case fits(Topics, Wanted) andalso (not IsPrivate orelse fits(Topics, Granted)) of
        true ->
            Event = #{id => id(Id), data => Data},
            Named = case Meta of #{event := Name} -> Event#{event => Name}; #{} -> Event end,
            weir_http_events:frame(case Retry of none -> Named; _ -> Named#{retry => Retry} end);
        false ->
            <<>>
    end;
message(_Selectors, _Channel, _Message) ->
    <<>>.

fits(Topics, Selectors) ->
    lists:any(
        fun(Topic) -> lists:any(fun(Selector) -> weir_pubsub_mercure_topics:fits(Topic, Selector) end, Selectors) end,
        Topics
    ).

%% @doc Returns a comment: clients of Mercure know no event for a gap. How many of the missing updates it had asked
%% for is unknown.
-spec gap(term(), weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_framing:place()) -> binary().
gap(_Selectors, _Channel, _Missed, _Position) -> weir_http_events:frame(#{comment => <<"gap">>}).
