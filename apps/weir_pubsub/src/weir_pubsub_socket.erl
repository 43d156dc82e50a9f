%% @doc Sockets that subscribe: messages are framed once for all sockets of a channel with the same framing, and written natively.
%%
%% This is what transports stand on. A socket that is slower than its channel allows is closed where the policy is `disconnect': its client
%% comes back with the id of the last message that it got. Otherwise it leaves for a while, see {@link rejoin/3}. Sockets must be
%% Weir's, and not under TLS.
-module(weir_pubsub_socket).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([subscribe/4]).
-export([next/3]).
-export([pace/3]).
-export([taken/3]).
-export([next_at_once/2]).
-export([rejoin/3]).
-export([unsubscribe/2]).
-export([ended/3]).

-type options() :: #{from => weir_pubsub:from(), tag => term(), head => iodata(), info => term()}.
%% `from' (`new') and `info' (`undefined') as of {@link weir_pubsub:subscribe/2}. `head' (`<<>>') is written before all messages. `tag'
%% is what the messages about the subscription begin with: {@type tag()} unless given. With `{weir_reactor, Socket, Reference}' they are
%% `{{weir_reactor, Socket}, Reference, Channel, What}', and for that connection of the calling reactor.

-type tag() :: {weir_pubsub, weir_tcp:socket()}.

-type left() :: {weir_group:group(), Mark :: non_neg_integer()}.

-export_type([options/0, tag/0, left/0]).

%% @doc Subscribes a socket, from the process that serves it: when that ends the subscription does. Does not wait. The caller gets
%% <ul>
%% <li>`{Tag, Channel, {answer, {ok, Position}}}': the socket is a member, and its messages are behind that position. `{Tag, Channel,
%%   {answer, {error, Reason}}}': it is not. Reasons are those of {@link weir_pubsub:subscribe/2}; `closed' and `enotconn' for the
%%   socket; `no_native_part'</li>
%% <li>`{Tag, Channel, {closed, deleted}}' when the channel was deleted and everything before is written or waits for the socket;
%%   `{closed, unavailable}' when its shard was killed. The socket stays open</li>
%% </ul>
%% There is no answer if the shard is killed before.
-spec subscribe(weir_pubsub:channel(), weir_tcp:socket(), weir_pubsub_framing:framing(), options()) ->
    ok | {error, weir_pubsub:unavailable()}.
subscribe(Channel, Socket, {Module, _} = Framing, Options) when is_atom(Module) ->
    #{from := From, tag := Tag, head := Head, info := Info} =
        maps:merge(#{from => new, tag => {weir_pubsub, Socket}, head => <<>>, info => undefined}, Options),
    Subscriber = #subscriber{
        name = Channel,
        pid = self(),
        tag = Tag,
        socket = Socket,
        framing = Framing,
        info = Info,
        since = erlang:monotonic_time(millisecond)
    },
    weir_pubsub_shards:send(Channel, {subscribe, Channel, socket, Subscriber, {From, Head}}, Tag).

%% @doc Has the calling process sent the next message behind a position, and no more until it ends the subscription: what a long poll
%% waits for. Does not wait. The messages are those of {@link weir_pubsub:subscribe/2}, and the answer, which comes only if it is an
%% error, as of {@link subscribe/4}.
-spec next(weir_pubsub:channel(), weir_pubsub:from(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
next(Channel, From, Tag) ->
    weir_pubsub_shards:send_unless_ok(Channel, paced(Channel, Tag, #{from => From, window => 1}), Tag).

%% @doc Has the calling process sent the messages behind a position, so many at a time: what a connection does that writes by itself. More
%% come when it says that it has {@link taken/3} them. Does not wait. The messages are those of {@link weir_pubsub:subscribe/2}, and the
%% answer as of {@link subscribe/4}.
-spec pace(weir_pubsub:channel(), Tag :: term(), Options) -> ok | {error, weir_pubsub:unavailable()} when
    Options :: #{from := weir_pubsub:from(), window := pos_integer(), info => term()}.
pace(Channel, Tag, Options) -> weir_pubsub_shards:send(Channel, paced(Channel, Tag, Options), Tag).

paced(Channel, Tag, #{from := From, window := Window} = Options) ->
    Subscriber = #subscriber{
        name = Channel,
        pid = self(),
        tag = Tag,
        window = Window,
        info = maps:get(info, Options, undefined),
        since = erlang:monotonic_time(millisecond)
    },
    {subscribe, Channel, paced, Subscriber, {From, []}}.

%% @doc So many messages have been dealt with. Does not wait.
-spec taken(weir_pubsub:channel(), Tag :: term(), pos_integer()) -> ok | {error, weir_pubsub:unavailable()}.
taken(Channel, Tag, Count) -> weir_pubsub_shards:cast(Channel, {taken, Channel, {self(), Tag}, Count}).

%% @private
%% @doc The next message behind a position, if there is one already and nobody is at work in the shard of the channel; then nobody
%% subscribes. Where subscriptions are told to another channel, it is a subscription nevertheless. Only for reactors.
-spec next_at_once(weir_pubsub:channel(), weir_pubsub:from()) ->
    {ok, weir_pubsub:message(), none | weir_pubsub:missed()} | none | {error, weir_pubsub:unavailable()}.
next_at_once(Name, From) ->
    Next = fun(Shard) ->
        case weir_pubsub_registry:find(Name, Shard) of
            {ok, Channel, #policy{events = none} = Policy} -> next(From, Channel, Policy, Shard);
            _ -> none
        end
    end,
    case weir_pubsub_shards:claimed(Name, Next) of
        busy -> none;
        Result -> Result
    end.

%% The broker knows whether that is an earlier life of the channel or a later one.
next({Other, _}, #channel{epoch = Epoch}, _Policy, #shard{broker = redis}) when is_integer(Other), Other =/= Epoch ->
    none;
next(From, Channel, Policy, #shard{messages = Messages} = Shard) ->
    {Position, Missed} = weir_pubsub_history:position(From, Channel),
    case weir_pubsub_history:read(Messages, Channel, Position, {1, none}) of
        {Position, [Message]} ->
            case weir_pubsub_subscription:admits(Channel, Policy, Shard) of
                true ->
                    Now = erlang:monotonic_time(millisecond),
                    _ = weir_pubsub_registry:save(Channel#channel{used = Now, requested = Now}, Policy, Shard),
                    ok = weir_pubsub_counters:add(delivered, 1),
                    ok = weir_pubsub_counters:add(gaps, case Missed of none -> 0; _ -> 1 end),
                    {ok, Message, Missed};
                false ->
                    none
            end;
        _ ->
            none
    end.

%% @doc Has a slow socket go on. Its process got `{weir_group, left, Socket, Group, Mark}', or as the callback of a reactor
%% `{{weir_reactor, Socket}, left, Group, Mark}': as much waits for the socket as may. When that is written, see {@link
%% weir:notify_writable/1}, this has it sent what has come since, and a gap in place of what is not kept any more. Does not wait.
-spec rejoin(weir_pubsub:channel(), Tag :: term(), left()) -> ok | {error, weir_pubsub:unavailable()}.
rejoin(Channel, Tag, Left) ->
    weir_pubsub_shards:cast(Channel, {rejoin, Channel, {self(), Tag}, Left}).

%% @doc Ends a subscription by its tag, also that of a socket that is closed. Does not wait.
-spec unsubscribe(weir_pubsub:channel(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
unsubscribe(Channel, Tag) ->
    weir_pubsub_shards:cast(Channel, {unsubscribe, Channel, {self(), Tag}}).

%% @private
%% @doc The same for a connection that has ended; counts it if that was because it lagged behind.
-spec ended(Reason :: term(), weir_pubsub:channel(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
ended(slow, Channel, Tag) ->
    ok = weir_pubsub_counters:add(slow, 1),
    unsubscribe(Channel, Tag);
ended(_Reason, Channel, Tag) ->
    unsubscribe(Channel, Tag).
