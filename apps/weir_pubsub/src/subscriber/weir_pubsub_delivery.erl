%% @private
%% @doc Delivers messages to the subscribers of a channel.
-module(weir_pubsub_delivery).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([deliver/4]).
-export([catch_up/2]).
-export([begin_again/4]).
-export([advance/4]).
-export([gap/3]).
-export([tell/2]).
-export([left_again/4]).

%% @doc Gives the latest message of a channel to all subscribers, and to the crowds that were taken. Returns the paced
%% subscribers that lag further behind than their policy allows.
-spec deliver(#channel{}, #policy{}, {[weir_pubsub_poll_group:crowd()], weir_pubsub:message()}, #shard{}) ->
    {#channel{}, Lagging :: [weir_pubsub_subscribers:subscriber()]}.
deliver(#channel{processes = 0, sockets = 0} = Channel, _Policy, {[], _Message}, _Shard) ->
    {Channel, []};
deliver(Before, Policy, {Crowds, Message}, Shard) ->
    Channel = weir_pubsub_poll_group:give(Crowds, Before, Message, Shard),
    #channel{name = Name, epoch = Epoch, processes = Processes, sockets = Sockets, audiences = Audiences} = Channel,
    Lagging =
        case Processes of
            0 ->
                [];
            _ ->
                ok = weir_pubsub_subscribers:tell(Shard#shard.subscribers, Epoch, Name, Message),
                Paced = weir_pubsub_subscribers:of_channel(Shard#shard.subscribers, Epoch, paced),
                ok = weir_pubsub_counters:add(delivered, Processes - length(Paced)),
                [Subscriber || Subscriber <- Paced, not next(Subscriber, Message, {Channel, Policy}, Shard)]
        end,
    ok = weir_pubsub_counters:add(broadcast, Sockets),
    {
        Channel#channel{
            audiences = [weir_pubsub_stream_group:send(Audience, Channel, Message) || Audience <- Audiences]
        },
        Lagging
    }.

%% A subscriber that has all earlier messages gets it directly, even if the history does not keep it.
next(
    #subscriber{credit = Credit, position = Position} = Subscriber, {message, {_, Number}, _, _} = Message, _, Shard
) when
    Credit > 0, Position =:= Number - 1
->
    tell(Subscriber, Message),
    ok = weir_pubsub_counters:add(delivered, 1),
    ok = weir_pubsub_subscribers:update(Shard#shard.subscribers, Subscriber, Number, Credit - 1),
    true;
next(Subscriber, _Message, {Channel, Policy}, Shard) ->
    advance(Subscriber, Channel, Policy, Shard).

%% @doc Lets the audiences that are behind catch up.
-spec catch_up(#channel{}, #shard{}) -> #channel{}.
catch_up(#channel{audiences = Audiences} = Channel, #shard{messages = Messages}) ->
    Channel#channel{
        audiences = [weir_pubsub_stream_group:catch_up(Audience, Channel, Messages) || Audience <- Audiences]
    }.

%% @doc Handles a channel whose messages were replaced: all subscribers get a gap up to a number, and the messages
%% after it.
-spec begin_again(#channel{}, #policy{}, {From :: non_neg_integer(), weir_pubsub:missed()}, #shard{}) -> #channel{}.
begin_again(#channel{epoch = Epoch, first = First, audiences = Audiences} = Channel, Policy, {From, Missed}, Shard) ->
    #shard{subscribers = Subscribers, messages = Table} = Shard,
    %% A limit of this node may have dropped some of them.
    Behind = max(From, First - 1),
    Missing =
        case Missed of
            unknown -> unknown;
            _ -> Missed + Behind - From
        end,
    Position = {Epoch, Behind},
    Messages = weir_pubsub_history:after_position(Table, Channel, Behind),
    lists:foreach(
        fun(Subscriber) ->
            ok = gap(Subscriber, Missing, Position),
            ok = weir_pubsub_counters:add(delivered, length(Messages)),
            lists:foreach(fun(Message) -> tell(Subscriber, Message) end, Messages)
        end,
        weir_pubsub_subscribers:of_channel(Subscribers, Epoch, process)
    ),
    lists:foreach(
        fun(#subscriber{credit = Credit} = Subscriber) ->
            ok = gap(Subscriber, Missing, Position),
            ok = weir_pubsub_subscribers:update(Subscribers, Subscriber, Behind, Credit),
            advance(Subscriber#subscriber{position = Behind}, Channel, Policy, Shard)
        end,
        weir_pubsub_subscribers:of_channel(Subscribers, Epoch, paced)
    ),
    Channel#channel{
        audiences = [
            weir_pubsub_stream_group:begin_again(Audience, Channel, {Missing, Position}, Messages)
         || Audience <- Audiences
        ]
    }.

%% @doc Sends a paced subscriber the messages that it has credit for. Returns false if it has to be disconnected: it
%% has no credit, and the history has dropped messages that it has not got. A long poll without credit has had its
%% message; the shard that was killed before it was over did not see its end.
-spec advance(weir_pubsub_subscribers:subscriber(), #channel{}, #policy{}, #shard{}) -> boolean().
advance(
    #subscriber{credit = Credit, position = Position, framing = Framing},
    #channel{first = First},
    #policy{slow = Slow},
    _
) when
    Credit =< 0
->
    (Slow =:= drop_oldest andalso Framing =:= none) orelse Position >= First - 1;
advance(#subscriber{position = Last}, #channel{last = Last}, _Policy, _Shard) ->
    true;
advance(
    #subscriber{position = Position, credit = Credit} = Subscriber, #channel{epoch = Epoch} = Channel, _Policy, Shard
) ->
    #shard{messages = Messages, subscribers = Subscribers} = Shard,
    Begin =
        case weir_pubsub_history:position({Epoch, Position}, Channel) of
            {Position, none} ->
                Position;
            {Later, Missed} ->
                gap(Subscriber, Missed, {Epoch, Later}),
                Later
        end,
    {Begin, Read} = weir_pubsub_history:read(Messages, Channel, Begin, {Credit, none}),
    lists:foreach(fun(Message) -> tell(Subscriber, Message) end, Read),
    Count = length(Read),
    ok = weir_pubsub_counters:add(delivered, Count),
    weir_pubsub_subscribers:update(Subscribers, Subscriber, Begin + Count, Credit - Count),
    true.

%% @doc Sends a gap to a process.
-spec gap(weir_pubsub_subscribers:subscriber(), weir_pubsub:missed(), weir_pubsub_id:id()) -> ok.
gap(#subscriber{name = Name} = Subscriber, Missed, Position) ->
    ok = weir_pubsub_observation:gap(Name, Missed),
    tell(Subscriber, {gap, Missed, Position}).

%% @doc Sends something to the process of a subscriber.
-spec tell(weir_pubsub_subscribers:subscriber(), term()) -> ok.
tell(#subscriber{pid = Pid, tag = Tag, name = Name}, What) ->
    Pid ! weir_pubsub_subscribers:message(Tag, Name, What),
    ok.

%% @doc Repeats to the process of a socket that the socket has left its group because it was slow: too much is still
%% to be written.
-spec left_again(pid(), Tag :: term(), weir_tcp:socket(), weir_pubsub_socket:left()) -> ok.
left_again(Pid, Tag, Socket, {Group, Mark}) ->
    Pid !
        case weir_pubsub_subscribers:is_of_reactor(Tag) of
            true -> {{weir_reactor, Socket}, left, Group, Mark};
            false -> {weir_group, left, Socket, Group, Mark}
        end,
    ok.
