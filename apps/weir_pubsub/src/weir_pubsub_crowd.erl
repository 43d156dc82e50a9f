%% @private
%% @doc Long polls that wait together for the next message of a channel. The response is made once for all polls with the same framing, and
%% the engine writes it, to a group for one message.
%%
%% A group belongs to the shard. A poll joins it in its reactor, under the claim on the shard, and has a row in the table that outlives
%% shards, with the number of the last message then. As long as that is the last message the poll is counted in the channel; it is
%% counted no more when the next one is broadcast. Its reactor takes the row out when the request is over. So a broadcast costs the
%% same for any number of polls.
-module(weir_pubsub_crowd).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([gather/2]).
-export([join/3]).
-export([leave/2]).
-export([waiting/1]).
-export([take/2]).
-export([give/4]).
-export([disband/2]).

-export_type([crowd/0]).

-record(crowd, {
    framing :: weir_pubsub_framing:framing(),
    group :: weir_group:group(),
    %% Polls that are counted.
    waiting = 0 :: non_neg_integer()
}).

-opaque crowd() :: #crowd{}.

%% So many processes wait before there is a group: for a few it costs more than it saves, and the engine has a bounded number of groups.
-define(FEW, 8).

%% Clients may think of as many framings as they like: there is a crowd for so many.
-define(MOST_FRAMINGS, 4).

%% Broadcasts on their way to one group.
-define(BACKLOG, 256).

%% @doc Makes a group for those who come next with that framing, if it is worth it. Only for the shard, which owns the group.
-spec gather(weir_pubsub_framing:framing(), #channel{}) -> #channel{}.
gather(_Framing, #channel{processes = Processes} = Channel) when Processes < ?FEW ->
    Channel;
gather(Framing, #channel{crowds = Crowds} = Channel) ->
    case {lists:keymember(Framing, #crowd.framing, Crowds), room(Crowds)} of
        {false, {ok, Others}} ->
            %% Answers that a client does not read cannot be left out: its connection is closed.
            case weir_group:new(#{policy => disconnect, backlog => ?BACKLOG}) of
                {ok, Group} -> Channel#channel{crowds = [#crowd{framing = Framing, group = Group} | Others]};
                {error, _} -> Channel#channel{crowds = Others}
            end;
        _ ->
            Channel
    end.

room(Crowds) when length(Crowds) < ?MOST_FRAMINGS ->
    {ok, Crowds};
room(Crowds) ->
    case [Crowd || Crowd <- Crowds, is_idle(Crowd)] of
        [#crowd{group = Group} = Idle | _] ->
            ok = weir_group:delete(Group),
            {ok, lists:delete(Idle, Crowds)};
        [] ->
            none
    end.

%% @doc Adds one, which `Join' has join the group. Fails if there is no crowd with that framing.
-spec join(weir_pubsub_framing:framing(), fun((weir_group:group()) -> ok | {error, term()}), #channel{}) -> {ok, #channel{}} | none.
join(Framing, Join, #channel{processes = Processes, crowds = Crowds} = Channel) ->
    case lists:keytake(Framing, #crowd.framing, Crowds) of
        {value, #crowd{group = Group, waiting = Waiting} = Crowd, Others} ->
            case Join(Group) of
                ok -> {ok, Channel#channel{processes = Processes + 1, crowds = [Crowd#crowd{waiting = Waiting + 1} | Others]}};
                {error, _} -> none
            end;
        false ->
            none
    end.

%% @doc One that was counted has gone. With the last one the group goes: there are as many channels in which nobody waits as there
%% have been, and a bounded number of groups.
-spec leave(weir_pubsub_framing:framing(), #channel{}) -> #channel{}.
leave(Framing, #channel{processes = Processes, crowds = Crowds} = Channel) ->
    {value, #crowd{waiting = Waiting} = Crowd, Others} = lists:keytake(Framing, #crowd.framing, Crowds),
    Left = Crowd#crowd{waiting = Waiting - 1},
    case is_idle(Left) of
        true ->
            ok = weir_group:delete(Left#crowd.group),
            Channel#channel{processes = Processes - 1, crowds = Others};
        false ->
            Channel#channel{processes = Processes - 1, crowds = [Left | Others]}
    end.

%% Nobody is in it, nor is anything on its way to somebody who was.
is_idle(#crowd{group = Group, waiting = Waiting}) -> Waiting =:= 0 andalso weir_group:size(Group) =:= 0.

%% @doc How many are counted.
-spec waiting([crowd()]) -> non_neg_integer().
waiting(Crowds) -> lists:sum([Waiting || #crowd{waiting = Waiting} <- Crowds]).

%% @doc Counts those no more that wait for the latest message of a channel, which are to be given it.
-spec take(#channel{}, #shard{}) -> {Waiting :: [crowd()], #channel{}}.
take(#channel{crowds = []} = Channel, _Shard) ->
    {[], Channel};
take(#channel{crowds = Crowds, processes = Processes, group = Group} = Channel, #shard{index = Index}) ->
    case waiting(Crowds) of
        0 ->
            {[], Channel};
        Waiting ->
            ok = weir_pubsub_limits:give_back(Index, Group, subscribers, Waiting),
            ok = weir_pubsub_counters:add(delivered, Waiting),
            ok = weir_pubsub_counters:add(unsubscribed, Waiting),
            Taken = [Crowd || #crowd{waiting = Count} = Crowd <- Crowds, Count > 0],
            {Taken, Channel#channel{processes = Processes - Waiting, crowds = [Crowd#crowd{waiting = 0} || Crowd <- Crowds]}}
    end.

%% @doc Gives the latest message of a channel to all who were taken out.
-spec give([crowd()], #channel{}, weir_pubsub:message(), #shard{}) -> #channel{}.
give(Taken, Channel, Message, Shard) -> lists:foldl(fun(Crowd, Before) -> given(Crowd, Before, Message, Shard) end, Channel, Taken).

given(#crowd{framing = Framing, group = Group}, #channel{name = Name, epoch = Epoch, crowds = Crowds} = Channel, Message, Shard) ->
    case broadcast(Group, weir_pubsub_framing:message(Framing, Name, Message)) of
        {ok, _} ->
            Channel;
        {error, _} ->
            %% Too large for a group, or too many broadcasts are on their way. What is on its way is lost, too.
            ok = weir_group:delete(Group),
            Rows = weir_pubsub_subscribers:of_channel(Shard#shard.subscribers, Epoch, poll),
            ok = tell_each([Row || #subscriber{framing = Of} = Row <- Rows, Of =:= Framing], Channel, Message, Shard),
            Channel#channel{crowds = lists:keydelete(Framing, #crowd.framing, Crowds)}
    end.

%% A framing that has failed.
broadcast(_Group, <<>>) -> {error, no_frame};
broadcast(Group, Bytes) -> weir_group:broadcast(Group, Bytes).

%% Who has had its message already does not listen any more: the reference in its tag is that of its request.
tell_each(Rows, Channel, Latest, Shard) ->
    lists:foreach(
        fun(#subscriber{pid = Pid, tag = Tag, name = Name} = Row) ->
            Pid ! weir_pubsub_subscribers:message(Tag, Name, next(Row, Channel, Latest, Shard))
        end,
        Rows
    ).

next(#subscriber{position = Position}, #channel{last = Last}, {message, {_, Last}, _, _} = Latest, _Shard) when Position =:= Last - 1 ->
    Latest;
next(#subscriber{position = Last}, #channel{last = Last}, Latest, _Shard) ->
    Latest;
next(#subscriber{position = Position}, Channel, _Latest, #shard{messages = Messages}) ->
    case weir_pubsub_history:read(Messages, Channel, Position, {1, none}) of
        {Position, [Message]} -> Message;
        _ -> {closed, unavailable}
    end.

%% @doc Ends all of a channel that is about to be removed, before its messages are: who waits is told, and who has not got a message yet
%% that was broadcast gets it.
-spec disband(#channel{}, #shard{}) -> ok.
disband(#channel{crowds = []}, _Shard) ->
    ok;
disband(#channel{epoch = Epoch, crowds = Crowds} = Channel, #shard{subscribers = Subscribers} = Shard) ->
    lists:foreach(fun(#crowd{group = Group}) -> weir_group:delete(Group) end, Crowds),
    tell_each(weir_pubsub_subscribers:of_channel(Subscribers, Epoch, poll), Channel, {closed, deleted}, Shard).
