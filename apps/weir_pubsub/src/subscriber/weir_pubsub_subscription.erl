%% @private
%% @doc The begin and the end of subscriptions.
-module(weir_pubsub_subscription).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([subscribe/5]).
-export([admits/3]).
-export([wait/5]).
-export([stop_waiting/2]).
-export([unsubscribe/3]).
-export([taken/4]).
-export([rejoin/4]).
-export([watch_reactor/2]).
-export([left/2]).
-export([end_all/3]).
-export([take_over/2]).

%% @doc Adds a subscriber, and gives it the messages that it has missed. If it subscribes already, the subscription
%% starts over.
-spec subscribe(
    weir_pubsub:channel(), weir_pubsub_subscribers:kind(), weir_pubsub_subscribers:subscriber(), Begin, #shard{}
) ->
    {{ok, weir_pubsub_id:id()} | {error, term()}, #shard{}}
when
    Begin :: {weir_pubsub:from(), Head :: iodata()}.
subscribe(Name, Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber, Begin, Shard) ->
    {_, Before} = unsubscribe(Name, {Pid, Tag}, Shard),
    case weir_pubsub_registry:open(Name, Before) of
        {ok, Channel, Policy} ->
            case admit(Channel, Policy, Before) of
                ok ->
                    begin_at(
                        Kind, Subscriber#subscriber{name = Channel#channel.name}, Begin, {Channel, Policy}, Before
                    );
                {error, Reason} ->
                    refused(Channel, Reason, Before)
            end;
        {error, Reason} ->
            ok = weir_pubsub_observation:refused(Name, Reason),
            {{error, Reason}, Before}
    end.

refused(#channel{name = Name} = Channel, Reason, Shard) ->
    ok = weir_pubsub_observation:refused(Name, Reason),
    ok = weir_pubsub_registry:abandon(Channel, Shard),
    {{error, Reason}, Shard}.

admit(#channel{group = Group} = Channel, Policy, #shard{index = Index}) ->
    case room(Channel, Policy) of
        ok -> weir_pubsub_limits:take(Index, Group, subscribers, 1);
        {error, _} = Error -> Error
    end.

room(#channel{processes = Processes, sockets = Sockets}, #policy{max_subscribers = Most}) when
    is_integer(Most), Processes + Sockets >= Most
->
    {error, {limit, subscribers, channel, Most}};
room(_Channel, _Policy) ->
    ok.

%% @doc Whether there is room for one more.
-spec admits(#channel{}, #policy{}, #shard{}) -> boolean().
admits(#channel{group = Group} = Channel, Policy, #shard{index = Index}) ->
    room(Channel, Policy) =:= ok andalso weir_pubsub_limits:admits(Index, Group, subscribers).

%% @doc Adds a poll to a crowd, where it waits for the next message. Runs in its reactor, which has the claim. `none':
%% the poll has to subscribe instead.
-spec wait(weir_pubsub_subscribers:subscriber(), weir_pubsub:from(), Join, {#channel{}, #policy{}}, #shard{}) ->
    {ok, Row} | none
when
    Join :: fun((weir_group:group()) -> ok | {error, term()}), Row :: weir_pubsub_subscribers:subscriber().
wait(
    #subscriber{framing = Framing} = Subscriber,
    From,
    Join,
    {Channel, Policy},
    #shard{index = Index, subscribers = Subscribers} = Shard
) ->
    #channel{name = Name, epoch = Epoch, group = Group, last = Last} = Channel,
    case weir_pubsub_history:position(From, Channel) =:= {Last, none} andalso admit(Channel, Policy, Shard) of
        ok ->
            case weir_pubsub_poll_group:join(Framing, Join, Channel) of
                {ok, Joined} ->
                    Now = erlang:monotonic_time(millisecond),
                    _ = weir_pubsub_registry:save(Joined#channel{used = Now, requested = Now}, Policy, Shard),
                    ok = weir_pubsub_counters:add(subscribed, 1),
                    %% Insert the row last: if the shard is dead, its tables are gone, and nothing is left for the
                    %% next shard.
                    {ok,
                        weir_pubsub_subscribers:wait(Subscribers, Epoch, Subscriber#subscriber{
                            name = Name, position = Last
                        })};
                none ->
                    ok = weir_pubsub_limits:give_back(Index, Group, subscribers, 1),
                    none
            end;
        _ ->
            none
    end.

%% @doc Handles the end of a poll that waited in a crowd; its row is already deleted. If it has not had its message,
%% it is no longer counted.
-spec stop_waiting(weir_pubsub_subscribers:subscriber(), #shard{}) -> ok.
stop_waiting(
    #subscriber{key = Key, name = Name, framing = Framing, position = Position}, #shard{index = Index} = Shard
) ->
    Epoch = element(1, Key),
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, #channel{epoch = Epoch, last = Position, group = Group} = Channel, Policy} ->
            ok = weir_pubsub_limits:give_back(Index, Group, subscribers, 1),
            ok = weir_pubsub_counters:add(unsubscribed, 1),
            Left = weir_pubsub_poll_group:leave(Framing, Channel),
            _ = weir_pubsub_registry:save(Left#channel{used = erlang:monotonic_time(millisecond)}, Policy, Shard),
            ok;
        _ ->
            ok
    end.

begin_at(Kind, Subscriber, {From, Head}, {Channel, Policy}, Shard) ->
    #channel{epoch = Epoch, group = Group} = Channel,
    {Position, Missed} = weir_pubsub_history:position(From, Channel),
    case enter(Kind, Subscriber, {Position, Missed, Head}, {Channel, Policy}, Shard) of
        {ok, Begins, Entered} ->
            Now = erlang:monotonic_time(millisecond),
            Kept = Entered#channel{used = Now, requested = Now},
            ok = weir_pubsub_counters:add(subscribed, 1),
            Saved = weir_pubsub_registry:save(Kept, Policy, Shard),
            ok = give_missed(Kind, Subscriber, {Begins, Missed}, {Saved, Policy}, Shard),
            ok = weir_pubsub_events:subscribed(Policy, Saved),
            {{ok, {Epoch, Begins}}, watch(Subscriber, Shard)};
        {error, Reason} ->
            ok = weir_pubsub_limits:give_back(Shard#shard.index, Group, subscribers, 1),
            refused(Channel, Reason, Shard)
    end.

enter(socket, #subscriber{socket = Socket, framing = Framing} = Subscriber, Begin, {Channel, Policy}, Shard) ->
    #shard{subscribers = Subscribers, messages = Messages} = Shard,
    #channel{epoch = Epoch, sockets = Sockets, audiences = Audiences} = Channel,
    case audience(Framing, Audiences, Policy) of
        {ok, Audience, Others} ->
            case weir_pubsub_stream_group:join(Audience, Socket, Begin, {Channel, Messages}) of
                {ok, Position, Joined} ->
                    Member = Subscriber#subscriber{framing = none, group = weir_pubsub_stream_group:group(Audience)},
                    ok = weir_pubsub_subscribers:add(Subscribers, Epoch, socket, Member),
                    {ok, Position, Channel#channel{sockets = Sockets + 1, audiences = [Joined | Others]}};
                {error, _} = Error ->
                    ok = weir_pubsub_stream_group:delete_empty(Audience),
                    Error
            end;
        {error, _} = Error ->
            Error
    end;
enter(Kind, Subscriber, {Position, _Missed, _Head}, {Channel, Policy}, #shard{subscribers = Subscribers} = Shard) ->
    #channel{epoch = Epoch, processes = Processes} = Channel,
    Added = Subscriber#subscriber{position = Position, credit = credit(Subscriber)},
    ok = weir_pubsub_subscribers:add(Subscribers, Epoch, Kind, Added),
    {ok, Position, gather(Subscriber, Policy, Channel#channel{processes = Processes + 1}, Shard)}.

%% A socket got them when it joined its audience.
give_missed(socket, _Subscriber, _Missed, _Channel, _Shard) ->
    ok;
give_missed(Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber, {Position, Missed}, {Channel, Policy}, Shard) ->
    #shard{subscribers = Subscribers, messages = Messages} = Shard,
    #channel{epoch = Epoch} = Channel,
    Missed =:= none orelse weir_pubsub_delivery:gap(Subscriber, Missed, {Epoch, Position}),
    case Kind of
        paced ->
            {paced, Row} = weir_pubsub_subscribers:find(Subscribers, Epoch, Pid, Tag),
            _ = weir_pubsub_delivery:advance(Row, Channel, Policy, Shard),
            ok;
        process ->
            Behind = weir_pubsub_history:after_position(Messages, Channel, Position),
            ok = weir_pubsub_counters:add(delivered, length(Behind)),
            lists:foreach(fun(Message) -> weir_pubsub_delivery:tell(Subscriber, Message) end, Behind)
    end.

%% Later polls with the same framing can wait in a crowd.
gather(#subscriber{framing = Framing}, #policy{events = none}, Channel, #shard{broker = memory}) when
    Framing =/= none
->
    weir_pubsub_poll_group:gather(Framing, Channel);
gather(_Subscriber, _Policy, Channel, _Shard) ->
    Channel.

credit(#subscriber{window = infinity}) -> 0;
credit(#subscriber{window = Window}) -> Window.

audience(Framing, Audiences, Policy) ->
    case with_framing(Framing, Audiences) of
        {[Audience], Others} ->
            {ok, Audience, Others};
        {[], Others} ->
            case weir_pubsub_stream_group:new(Framing, Policy) of
                {ok, Audience} -> {ok, Audience, Others};
                {error, _} = Error -> Error
            end
    end.

with_framing(Framing, Audiences) ->
    lists:partition(fun(Audience) -> weir_pubsub_stream_group:framing(Audience) =:= Framing end, Audiences).

watch(#subscriber{pid = Pid, tag = Tag}, #shard{monitors = Monitors} = Shard) ->
    case weir_pubsub_subscribers:is_of_reactor(Tag) of
        true ->
            watch_reactor(Pid, Shard);
        false ->
            Entry =
                case Monitors of
                    #{Pid := {Monitor, Count}} -> {Monitor, Count + 1};
                    #{} -> {monitor(process, Pid), 1}
                end,
            Shard#shard{monitors = Monitors#{Pid => Entry}}
    end.

unwatch(#subscriber{pid = Pid, tag = Tag}, #shard{monitors = Monitors} = Shard) ->
    case not weir_pubsub_subscribers:is_of_reactor(Tag) andalso Monitors of
        #{Pid := {Monitor, 1}} ->
            true = demonitor(Monitor, [flush]),
            Shard#shard{monitors = maps:remove(Pid, Monitors)};
        #{Pid := {Monitor, Count}} ->
            Shard#shard{monitors = Monitors#{Pid := {Monitor, Count - 1}}};
        _ ->
            Shard
    end.

%% @doc Monitors a reactor until it dies, also while it has no subscriptions: there are few reactors, and most have
%% one again soon.
-spec watch_reactor(pid(), #shard{}) -> #shard{}.
watch_reactor(Reactor, #shard{reactors = Reactors} = Shard) when is_map_key(Reactor, Reactors) -> Shard;
watch_reactor(Reactor, #shard{reactors = Reactors} = Shard) ->
    Shard#shard{reactors = Reactors#{Reactor => monitor(process, Reactor)}}.

%% @doc Ends a subscription.
-spec unsubscribe(weir_pubsub:channel(), {pid(), Tag :: term()}, #shard{}) -> {ok | {error, not_subscribed}, #shard{}}.
unsubscribe(Name, {Pid, Tag}, #shard{channels = Channels, subscribers = Subscribers} = Shard) ->
    case ets:lookup(Channels, Name) of
        [#channel{epoch = Epoch}] ->
            case weir_pubsub_subscribers:find(Subscribers, Epoch, Pid, Tag) of
                {Kind, Subscriber} -> {ok, unwatch(Subscriber, remove(Kind, Subscriber, Shard))};
                none -> {{error, not_subscribed}, Shard}
            end;
        [] ->
            {{error, not_subscribed}, Shard}
    end.

remove(Kind, #subscriber{name = Name, pid = Pid, tag = Tag, socket = Socket, group = Audience}, Shard) ->
    #shard{index = Index, subscribers = Subscribers} = Shard,
    {ok, #channel{epoch = Epoch, group = Group} = Channel, Policy} = weir_pubsub_registry:find(Name, Shard),
    ok = weir_pubsub_subscribers:remove(Subscribers, Epoch, Kind, {Pid, Tag}),
    ok = weir_pubsub_limits:give_back(Index, Group, subscribers, 1),
    ok = weir_pubsub_counters:add(unsubscribed, 1),
    Left = (left_by(Kind, Channel, {Audience, Socket}))#channel{used = erlang:monotonic_time(millisecond)},
    Saved = weir_pubsub_registry:save(Left, Policy, Shard),
    ok = weir_pubsub_events:unsubscribed(Policy, Saved),
    Shard.

left_by(socket, #channel{sockets = Sockets, audiences = Audiences} = Channel, {Group, Socket}) ->
    {[Audience], Others} = lists:partition(
        fun(Audience) -> weir_pubsub_stream_group:group(Audience) =:= Group end, Audiences
    ),
    Left =
        case weir_pubsub_stream_group:leave(Audience, Socket) of
            {ok, Smaller} -> [Smaller | Others];
            none -> Others
        end,
    Channel#channel{sockets = Sockets - 1, audiences = Left};
left_by(_Process, #channel{processes = Processes} = Channel, _Member) ->
    Channel#channel{processes = Processes - 1}.

%% @doc Adds to the credit of a paced subscriber, which has confirmed `Count' messages.
-spec taken(weir_pubsub:channel(), {pid(), Tag :: term()}, pos_integer(), #shard{}) -> #shard{}.
taken(Name, {Pid, Tag}, Count, #shard{subscribers = Subscribers} = Shard) ->
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, #channel{epoch = Epoch} = Channel, Policy} ->
            Saved = weir_pubsub_registry:save(Channel, Policy, Shard),
            case weir_pubsub_subscribers:find(Subscribers, Epoch, Pid, Tag) of
                {paced, #subscriber{credit = Credit, window = Window, position = Position} = Subscriber} ->
                    %% It may confirm messages that it got from a shard that was killed.
                    More = min(Window, Credit + Count),
                    ok = weir_pubsub_subscribers:update(Subscribers, Subscriber, Position, More),
                    _ = weir_pubsub_delivery:advance(Subscriber#subscriber{credit = More}, Saved, Policy, Shard),
                    Shard;
                _ ->
                    Shard
            end;
        none ->
            Shard
    end.

%% @doc Brings a socket back into the audience that it left because it was slow; its queue is written by now. It
%% continues after the message of that mark. Nothing happens if its channel has been replaced by another one.
-spec rejoin(
    weir_pubsub:channel(), {pid(), Tag :: term()}, {weir_group:group(), Mark :: non_neg_integer()}, #shard{}
) ->
    #shard{}.
rejoin(Name, {Pid, Tag}, {Group, Mark}, #shard{subscribers = Subscribers, messages = Messages} = Shard) ->
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, #channel{epoch = Epoch, audiences = Audiences} = Channel, Policy} ->
            Saved = weir_pubsub_registry:save(Channel, Policy, Shard),
            Audience = [A || A <- Audiences, weir_pubsub_stream_group:group(A) =:= Group],
            case {Audience, weir_pubsub_subscribers:find(Subscribers, Epoch, Pid, Tag)} of
                {[One], {socket, #subscriber{socket = Socket}}} ->
                    {Position, Missed} = weir_pubsub_stream_group:left_at(Mark, Saved),
                    case weir_pubsub_stream_group:come_back(One, Socket, {Position, Missed, <<>>}, {Saved, Messages}) of
                        {ok, _} -> ok = weir_pubsub_counters:add(lagged, 1);
                        {error, full} -> ok = weir_pubsub_delivery:left_again(Pid, Tag, Socket, {Group, Mark});
                        %% If the socket has closed, the engine notifies its process.
                        {error, _} -> ok
                    end,
                    Shard;
                _ ->
                    Shard
            end;
        none ->
            Shard
    end.

%% @doc Ends the subscriptions of a process that died.
-spec left(pid(), #shard{}) -> #shard{}.
left(Pid, #shard{subscribers = Subscribers, monitors = Monitors, reactors = Reactors} = Shard) ->
    OfConnections =
        case is_map_key(Pid, Reactors) of
            true ->
                ok = polls_left(Pid, Shard),
                weir_pubsub_subscribers:of_reactor(Subscribers, Pid);
            false ->
                []
        end,
    Own = weir_pubsub_subscribers:of_process(Subscribers, Pid),
    lists:foreach(fun({Kind, Subscriber}) -> remove(Kind, Subscriber, Shard) end, OfConnections ++ Own),
    Shard#shard{monitors = maps:remove(Pid, Monitors), reactors = maps:remove(Pid, Reactors)}.

polls_left(Reactor, #shard{subscribers = Subscribers} = Shard) ->
    lists:foreach(
        fun(Row) ->
            ok = weir_pubsub_subscribers:forget(Subscribers, Row),
            stop_waiting(Row, Shard)
        end,
        weir_pubsub_subscribers:polls_of(Subscribers, Reactor)
    ).

%% @doc Ends the subscriptions of a channel that is about to be removed. The channel itself is not changed.
%% Subscribing processes are notified. Returns the sockets, which are notified later, as crowds are.
-spec end_all(#channel{}, Reason :: atom(), #shard{}) -> {Sockets :: [weir_pubsub_subscribers:subscriber()], #shard{}}.
end_all(
    #channel{epoch = Epoch, group = Group, crowds = Crowds},
    Reason,
    #shard{index = Index, subscribers = Subscribers} = Shard
) ->
    All = [
        {Kind, Subscriber}
     || Kind <- [process, paced, socket], Subscriber <- weir_pubsub_subscribers:of_channel(Subscribers, Epoch, Kind)
    ],
    Count = length(All) + weir_pubsub_poll_group:waiting(Crowds),
    ok = weir_pubsub_limits:give_back(Index, Group, subscribers, Count),
    ok = weir_pubsub_counters:add(unsubscribed, Count),
    Next = lists:foldl(
        fun({Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber}, Before) ->
            ok = weir_pubsub_subscribers:remove(Subscribers, Epoch, Kind, {Pid, Tag}),
            Kind =:= socket orelse weir_pubsub_delivery:tell(Subscriber, {closed, Reason}),
            unwatch(Subscriber, Before)
        end,
        Shard,
        All
    ),
    {[Subscriber || {socket, Subscriber} <- All], Next}.

%% @doc Takes over the subscribers of a shard that was killed. It is unknown which messages they got. Requests made
%% before `Begun' may have been lost with the shard: they are answered with `{error, unavailable}', and subscriptions
%% among them are not taken over.
-spec take_over(Begun :: weir_pubsub_requests:key(), #shard{}) -> #shard{}.
take_over(Begun, #shard{index = Index, subscribers = Subscribers, requests = Requests, starts = Starts} = Shard) ->
    Left = weir_pubsub_subscribers:all(Subscribers),
    Lost = weir_pubsub_requests:before(Requests, Begun),
    Refused = maps:from_list([{{Pid, Tag}, []} || {_, {Pid, Tag, _}} <- Lost]),
    atomics:add_get(Starts, 1, 1) =:= 1 orelse weir_pubsub_observation:restarted(Index, length(Left), length(Lost)),
    %% Subscribers that are taken over are counted as subscribed once more below. Most polls have had their message
    %% and were counted then.
    ok = weir_pubsub_counters:add(unsubscribed, length([Kind || {Kind, _} <- Left, Kind =/= poll])),
    Taken = lists:foldl(
        fun({Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber}, Before) ->
            Next = case Refused of #{{Pid, Tag} := _} -> Before; #{} -> take_over(Kind, Subscriber, Before) end,
            %% Not before: if this shard is killed too, the next one must find the old row, the new one, or both.
            ok = weir_pubsub_subscribers:forget(Subscribers, Subscriber),
            Next
        end,
        Shard,
        Left
    ),
    lists:foreach(fun({Key, _}) -> weir_pubsub_requests:answer(Requests, {ask, Key}, {error, unavailable}) end, Lost),
    Taken.

take_over(socket, Subscriber, Shard) ->
    ok = weir_pubsub_delivery:tell(Subscriber, {closed, unavailable}),
    Shard;
take_over(poll, Subscriber, Shard) ->
    take_over(paced, Subscriber, Shard);
take_over(Kind, #subscriber{name = Name} = Subscriber, Shard) ->
    %% No current channel has that epoch, so the subscriber gets a gap.
    case subscribe(Name, Kind, Subscriber, {{1, 0}, []}, Shard) of
        {{ok, _}, Next} ->
            Next;
        {{error, _}, Next} ->
            ok = weir_pubsub_delivery:tell(Subscriber, {closed, unavailable}),
            Next
    end.
