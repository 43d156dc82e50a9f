%% @private
%% @doc Long polls that wait together for the next message of a channel. The response is framed once for all polls
%% with the same framing, and the engine writes it to a group whose members are there for one message.
%%
%% A group belongs to the shard. A poll joins it in its reactor, under the claim on the shard, and inserts a row, with
%% the number of the last message, into the table of polls, which outlives the shard. The poll is counted in the
%% channel until the next message is broadcast. Its reactor deletes the row when the request is over. So a broadcast
%% costs the shard the same for any number of polls.
-module(weir_pubsub_poll_group).

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
    %% Polls that are counted in the channel.
    waiting = 0 :: non_neg_integer()
}).

-opaque crowd() :: #crowd{}.

%% A group is created when this many processes wait: for fewer it costs more than it saves, and the engine has a
%% bounded number of groups.
-define(FEW, 8).

%% Crowds of one channel at most: clients can choose any number of framings.
-define(MOST_FRAMINGS, 4).

%% Broadcasts to one group that are not finished, at most.
-define(BACKLOG, 256).

%% @doc Creates a group for later polls with that framing, if it is worth it. Only for the shard, which owns the
%% group.
-spec gather(weir_pubsub_framing:framing(), #channel{}) -> #channel{}.
gather(_Framing, #channel{processes = Processes} = Channel) when Processes < ?FEW ->
    Channel;
gather(Framing, #channel{crowds = Crowds} = Channel) ->
    case {lists:keymember(Framing, #crowd.framing, Crowds), room(Crowds)} of
        {false, {ok, Others}} ->
            %% A response cannot be dropped: a connection whose client does not read it is closed.
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

%% @doc Adds a poll, whose connection `Join' makes a member of the group. Returns `none' if there is no crowd with
%% that framing, or if the connection cannot join.
-spec join(weir_pubsub_framing:framing(), fun((weir_group:group()) -> ok | {error, term()}), #channel{}) ->
    {ok, #channel{}} | none.
join(Framing, Join, #channel{processes = Processes, crowds = Crowds} = Channel) ->
    case lists:keytake(Framing, #crowd.framing, Crowds) of
        {value, #crowd{group = Group, waiting = Waiting} = Crowd, Others} ->
            case Join(Group) of
                ok ->
                    {ok, Channel#channel{
                        processes = Processes + 1, crowds = [Crowd#crowd{waiting = Waiting + 1} | Others]
                    }};
                {error, _} ->
                    none
            end;
        false ->
            none
    end.

%% @doc Removes a poll that was counted. The group is deleted with the last one, because the number of groups is
%% bounded and the number of channels without waiting polls is not.
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

%% No poll waits, and no response is on its way to one that did.
is_idle(#crowd{group = Group, waiting = Waiting}) -> Waiting =:= 0 andalso weir_group:size(Group) =:= 0.

%% @doc Returns how many polls are counted.
-spec waiting([crowd()]) -> non_neg_integer().
waiting(Crowds) -> lists:sum([Waiting || #crowd{waiting = Waiting} <- Crowds]).

%% @doc Stops counting the polls that wait for the latest message of a channel, and returns their crowds for
%% {@link give/4}.
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
            {Taken, Channel#channel{
                processes = Processes - Waiting, crowds = [Crowd#crowd{waiting = 0} || Crowd <- Crowds]
            }}
    end.

%% @doc Gives the latest message of a channel to the crowds that were taken.
-spec give([crowd()], #channel{}, weir_pubsub:message(), #shard{}) -> #channel{}.
give(Taken, Channel, Message, Shard) ->
    lists:foldl(fun(Crowd, Before) -> given(Crowd, Before, Message, Shard) end, Channel, Taken).

given(
    #crowd{framing = Framing, group = Group},
    #channel{name = Name, epoch = Epoch, crowds = Crowds} = Channel,
    Message,
    Shard
) ->
    case broadcast(Group, weir_pubsub_framing:message(Framing, Name, Message)) of
        {ok, _} ->
            Channel;
        {error, _} ->
            %% The message is too large for a group, or too many broadcasts are not finished. Those are lost with the
            %% group, so send to each poll.
            ok = weir_group:delete(Group),
            Rows = weir_pubsub_subscribers:of_channel(Shard#shard.subscribers, Epoch, poll),
            ok = tell_each([Row || #subscriber{framing = Of} = Row <- Rows, Of =:= Framing], Channel, Message, Shard),
            Channel#channel{crowds = lists:keydelete(Framing, #crowd.framing, Crowds)}
    end.

%% Framing has failed.
broadcast(_Group, <<>>) -> {error, no_frame};
broadcast(Group, Bytes) -> weir_group:broadcast(Group, Bytes).

%% A poll that has had its message ignores this one: the reference in the tag belongs to one request.
tell_each(Rows, Channel, Latest, Shard) ->
    lists:foreach(
        fun(#subscriber{pid = Pid, tag = Tag, name = Name} = Row) ->
            Pid ! weir_pubsub_subscribers:message(Tag, Name, next(Row, Channel, Latest, Shard))
        end,
        Rows
    ).

next(#subscriber{position = Position}, #channel{last = Last}, {message, {_, Last}, _, _} = Latest, _Shard) when
    Position =:= Last - 1
->
    Latest;
next(#subscriber{position = Last}, #channel{last = Last}, Latest, _Shard) ->
    Latest;
next(#subscriber{position = Position}, Channel, _Latest, #shard{messages = Messages}) ->
    case weir_pubsub_history:read(Messages, Channel, Position, {1, none}) of
        {Position, [Message]} -> Message;
        _ -> {closed, unavailable}
    end.

%% @doc Ends the crowds of a channel that is about to be removed, before its messages are. Polls that wait get
%% `{closed, deleted}'. Polls that have not got a message that was broadcast get it.
-spec disband(#channel{}, #shard{}) -> ok.
disband(#channel{crowds = []}, _Shard) ->
    ok;
disband(#channel{epoch = Epoch, crowds = Crowds} = Channel, #shard{subscribers = Subscribers} = Shard) ->
    lists:foreach(fun(#crowd{group = Group}) -> weir_group:delete(Group) end, Crowds),
    tell_each(weir_pubsub_subscribers:of_channel(Subscribers, Epoch, poll), Channel, {closed, deleted}, Shard).
