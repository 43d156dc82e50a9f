%% @doc Sockets that subscribe: a message is framed once for all sockets of a channel with the same framing, and
%% written natively.
%%
%% Transports are built on this. A socket that is slower than its channel allows is closed if the policy is
%% `disconnect', and its client reconnects with the id of the last message that it got. Otherwise it leaves for a
%% while, see {@link rejoin/3}. Sockets must be Weir's, without TLS.
-module(weir_pubsub_socket).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([subscribe/4]).
-export([next/4]).
-export([wait/5]).
-export([stop_waiting/2]).
-export([pace/3]).
-export([taken/3]).
-export([next_at_once/3]).
-export([seems_latest/2]).
-export([is_latest/2]).
-export([rejoin/3]).
-export([unsubscribe/2]).
-export([ended/3]).

-type options() :: #{from => weir_pubsub:from(), tag => term(), head => iodata(), info => term()}.
%% `from' (`new') and `info' (`undefined') are those of {@link weir_pubsub:subscribe/2}. `head' (`<<>>') is written
%% before all messages. `tag' is the first element of messages about the subscription, by default {@type tag()}. With
%% `{weir_reactor, Socket, Reference}' they are `{{weir_reactor, Socket}, Reference, Channel, What}', and are
%% delivered to that connection of the calling reactor.

-type tag() :: {weir_pubsub, weir_tcp:socket()}.

-type left() :: {weir_group:group(), Mark :: non_neg_integer()}.

-record(waiting, {shard :: pid(), row :: weir_pubsub_subscribers:subscriber()}).

-opaque waiting() :: #waiting{}.
%% A poll that waits in a crowd.

-export_type([options/0, tag/0, left/0, waiting/0]).

%% @doc Subscribes a socket. The caller is the process that serves it, and the subscription ends with that. Does not
%% wait. The caller gets
%% <ul>
%% <li>`{Tag, Channel, {answer, {ok, Position}}}': the socket is a member, and its messages begin after that position.
%%   `{Tag, Channel, {answer, {error, Reason}}}': it is not. Reasons are those of {@link weir_pubsub:subscribe/2};
%%   `closed' and `enotconn' for the socket; `full' if messages of an earlier subscription to the channel are still in
%%   its queue; `no_native_part'</li>
%% <li>`{Tag, Channel, {closed, deleted}}' when the channel was deleted and everything before is written or in the
%%   queue of the socket; `{closed, unavailable}' when its shard was killed. The socket stays open</li>
%% </ul>
%% If the shard is killed first, the answer is `{error, unavailable}'.
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

%% @doc Sends the calling process the next message after a position, and no more until it ends the subscription: for
%% long polls. Does not wait. The messages are those of {@link weir_pubsub:subscribe/2}. An answer comes only if it is
%% an error, as of {@link subscribe/4}. With a framing, later polls can wait together (`wait/5').
-spec next(weir_pubsub:channel(), weir_pubsub:from(), weir_pubsub_framing:framing() | none, Tag :: term()) ->
    ok | {error, weir_pubsub:unavailable()}.
next(Channel, From, Framing, Tag) ->
    weir_pubsub_shards:send_unless_ok(Channel, paced(Channel, Tag, Framing, #{from => From, window => 1}), Tag).

%% @private
%% @doc Adds a connection to those that wait for the next message after a position. The message is written in that
%% framing. `Join' makes the connection a member of a group for one message. `none': the poll has to call
%% {@link next/4}, because it would wait alone, begins at another position, or the claim on the shard is taken. When
%% its request is over, it has to call {@link stop_waiting/2}. It may also get messages as of {@link next/4}; one with
%% a message of the channel answers its request. Only for reactors.
-spec wait(weir_pubsub:channel(), weir_pubsub:from(), weir_pubsub_framing:framing(), Tag :: term(), Join) ->
    {ok, waiting()} | none | {error, weir_pubsub:unavailable()}
when
    Join :: fun((weir_group:group()) -> ok | {error, term()}).
wait(Name, From, Framing, Tag, Join) ->
    Wait = fun(Shard) ->
        case {weir_pubsub_registry:find(Name, Shard), whereis(weir_pubsub_shards:name(Shard#shard.index))} of
            {{ok, Channel, #policy{events = none} = Policy}, Pid} when is_pid(Pid) ->
                ok = watched(Pid, Name, Shard),
                case
                    weir_pubsub_subscription:wait(
                        subscriber(Name, Tag, Framing, 1), From, Join, {Channel, Policy}, Shard
                    )
                of
                    {ok, Row} -> {ok, #waiting{shard = Pid, row = Row}};
                    none -> none
                end;
            _ ->
                none
        end
    end,
    case weir_pubsub_shards:claimed(Name, Wait) of
        busy -> none;
        Result -> Result
    end.

%% The shard removes the polls of a reactor that is killed.
watched(Pid, Name, #shard{index = Index}) ->
    case get({?MODULE, Index}) of
        Pid ->
            ok;
        _ ->
            _ = put({?MODULE, Index}, Pid),
            _ = weir_pubsub_shards:cast(Name, {watch, self()}),
            ok
    end.

%% @private
%% @doc Ends the wait of a poll whose request is over. `answered': it has had its message, or its channel is gone.
-spec stop_waiting(answered | unanswered, waiting()) -> ok.
stop_waiting(How, #waiting{shard = Pid, row = #subscriber{name = Name, tag = Tag} = Row}) ->
    case weir_pubsub_shards:of_channel(Name) of
        {ok, #shard{index = Index, subscribers = Subscribers}} ->
            try
                weir_pubsub_subscribers:forget(Subscribers, Row)
            catch
                %% The application has stopped.
                error:badarg -> ok
            end,
            %% Otherwise another shard has taken the poll over, as a subscription.
            case whereis(weir_pubsub_shards:name(Index)) of
                Pid when How =:= answered -> ok;
                Pid -> not_answered(Row);
                _ -> _ = unsubscribe(Name, Tag), ok
            end;
        {error, _} ->
            ok
    end.

not_answered(#subscriber{name = Name} = Row) ->
    case weir_pubsub_shards:claimed(Name, fun(Shard) -> weir_pubsub_subscription:stop_waiting(Row, Shard) end) of
        busy -> _ = weir_pubsub_shards:cast(Name, {stop_waiting, Name, Row}), ok;
        _ -> ok
    end.

%% @doc Sends the calling process the messages after a position, a window at a time: for connections that write them
%% themselves. More come after {@link taken/3}. Does not wait. The messages are those of
%% {@link weir_pubsub:subscribe/2}, and the answer is that of {@link subscribe/4}.
-spec pace(weir_pubsub:channel(), Tag :: term(), Options) -> ok | {error, weir_pubsub:unavailable()} when
    Options :: #{from := weir_pubsub:from(), window := pos_integer(), info => term()}.
pace(Channel, Tag, Options) -> weir_pubsub_shards:send(Channel, paced(Channel, Tag, none, Options), Tag).

paced(Channel, Tag, Framing, #{from := From, window := Window} = Options) ->
    Subscriber = subscriber(Channel, Tag, Framing, Window),
    {subscribe, Channel, paced, Subscriber#subscriber{info = maps:get(info, Options, undefined)}, {From, []}}.

subscriber(Channel, Tag, Framing, Window) ->
    #subscriber{
        name = Channel,
        pid = self(),
        tag = Tag,
        window = Window,
        framing = Framing,
        since = erlang:monotonic_time(millisecond)
    }.

%% @doc Confirms `Count' messages. Does not wait.
-spec taken(weir_pubsub:channel(), Tag :: term(), pos_integer()) -> ok | {error, weir_pubsub:unavailable()}.
taken(Channel, Tag, Count) -> weir_pubsub_shards:cast(Channel, {taken, Channel, {self(), Tag}, Count}).

%% @private
%% @doc Returns the next messages after a position, limited in number and bytes, if there are any and the claim on the
%% shard of the channel is free. Then no subscription is needed. A single message may have any size. `none': the poll
%% has to subscribe, also if the policy of the channel has `events'. `others_wait': there is no message, and maybe the
%% poll can {@link wait/5}. Only for reactors.
-spec next_at_once(weir_pubsub:channel(), weir_pubsub:from(), {Count :: pos_integer(), Bytes :: pos_integer()}) ->
    {ok, [weir_pubsub:message(), ...], none | weir_pubsub:missed()}
    | others_wait
    | none
    | {error, weir_pubsub:unavailable()}.
next_at_once(Name, From, Most) ->
    Next = fun(Shard) ->
        case weir_pubsub_registry:find(Name, Shard) of
            {ok, Channel, #policy{events = none} = Policy} -> read_next({From, Most}, Channel, Policy, Shard);
            _ -> none
        end
    end,
    case weir_pubsub_shards:claimed(Name, Next) of
        %% A moment later the claim is free.
        busy -> others_wait;
        Result -> Result
    end.

%% Only the broker knows whether that is an earlier life of the channel or a later one.
read_next({{Other, _}, _Most}, #channel{epoch = Epoch}, _Policy, #shard{broker = redis}) when
    is_integer(Other), Other =/= Epoch
->
    none;
read_next({From, {Count, Bytes}}, Channel, Policy, #shard{messages = Messages} = Shard) ->
    {Position, Missed} = weir_pubsub_history:position(From, Channel),
    case weir_pubsub_history:read(Messages, Channel, Position, {Count, none}) of
        {Position, [_ | _] = Read} ->
            case weir_pubsub_subscription:admits(Channel, Policy, Shard) of
                true ->
                    Now = erlang:monotonic_time(millisecond),
                    _ = weir_pubsub_registry:save(Channel#channel{used = Now, requested = Now}, Policy, Shard),
                    Next = weir_pubsub_history:of_bytes(Read, Bytes),
                    ok = weir_pubsub_counters:add(delivered, length(Next)),
                    Missed =:= none orelse weir_pubsub_observation:gap(Channel#channel.name, Missed),
                    {ok, Next, Missed};
                false ->
                    none
            end;
        _ when Channel#channel.crowds =/= [] ->
            others_wait;
        _ ->
            none
    end.

%% @private
%% @doc Whether there was no message after a position a moment ago. Reads without the claim, at a fraction of the
%% cost. The caller checks again with the claim, by {@link wait/5} or {@link next/4}.
-spec seems_latest(weir_pubsub:channel(), weir_pubsub:from()) -> boolean().
seems_latest(Name, {Epoch, Number}) when is_integer(Epoch) ->
    case weir_pubsub_shards:of_channel(Name) of
        {ok, #shard{channels = Channels}} ->
            try
                ets:lookup_element(Channels, Name, #channel.last) =:= Number
            catch
                %% There is no such channel, or no shard.
                error:badarg -> false
            end;
        {error, _} ->
            false
    end;
seems_latest(_Name, _From) ->
    false.

%% @private
%% @doc Whether that was the last message of the current life of the channel a moment ago. Reads without the claim.
-spec is_latest(weir_pubsub:channel(), weir_pubsub_id:id()) -> boolean().
is_latest(Name, {Epoch, _} = Id) ->
    seems_latest(Name, Id) andalso
        case weir_pubsub_shards:of_channel(Name) of
            {ok, #shard{channels = Channels}} ->
                try
                    ets:lookup_element(Channels, Name, #channel.epoch) =:= Epoch
                catch
                    error:badarg -> false
                end;
            {error, _} ->
                false
        end.

%% @doc Lets a slow socket continue. Its process has got `{weir_group, left, Socket, Group, Mark}', or as the callback
%% of a reactor `{{weir_reactor, Socket}, left, Group, Mark}': the queue of the socket was full. When the queue is
%% written, see {@link weir:notify_writable/1}, this call sends the socket what was published since, and a gap for
%% messages that are no longer kept. Does not wait. If the queue is not all written yet, the process gets that message
%% again.
-spec rejoin(weir_pubsub:channel(), Tag :: term(), left()) -> ok | {error, weir_pubsub:unavailable()}.
rejoin(Channel, Tag, Left) ->
    weir_pubsub_shards:cast(Channel, {rejoin, Channel, {self(), Tag}, Left}).

%% @doc Ends a subscription by its tag, also that of a socket that is closed. Does not wait.
-spec unsubscribe(weir_pubsub:channel(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
unsubscribe(Channel, Tag) ->
    weir_pubsub_shards:cast(Channel, {unsubscribe, Channel, {self(), Tag}}).

%% @private
%% @doc Same as {@link unsubscribe/2}, for a connection that has ended. Counts it if it ended because it lagged
%% behind.
-spec ended(Reason :: term(), weir_pubsub:channel(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
ended(slow, Channel, Tag) ->
    ok = weir_pubsub_observation:slow([Channel]),
    unsubscribe(Channel, Tag);
ended(_Reason, Channel, Tag) ->
    unsubscribe(Channel, Tag).
