%% @private
%% @doc How a poller goes: when it polls again, when it sleeps, and at which priority. A value; the poller obeys it.
%%
%% A poller that finds work, or has just found some, yields and polls again: under load it runs once in each round of
%% its scheduler's run queue, and batches grow by themselves. When several polls in a row find nothing it sleeps on its
%% descriptor. How long it hopes before that follows from how long nothing came the last times, hope and sleep together:
%% where hope could have bridged that, it hopes longer, else less.
%%
%% A poll that has served nothing but bulk streams does not hope at all: the peers take longer to move as much again than
%% sleeping takes, and what they do meanwhile would only be looked at in vain. Where all of them are relays the pollset's
%% thread serves them then.
%%
%% Beside many CPU-bound processes a round takes milliseconds. A poller that yields would then see a packet a round
%% late, and its owner another round later. So when rounds grow long it changes its gait: it sleeps after every poll,
%% at high priority, so that a packet wakes it at once. (A poller that yields at high priority would starve the rest.)
%% Now and then it tries a round at normal priority, to see whether they are short again.
-module(weir_gait).

-export([new/0]).
-export([next/3]).
-export([priority/1]).

-export_type([gait/0, action/0]).

-type action() :: yield | {sleep, Relays :: boolean()}.
%% Whether the pollset's thread serves during the sleep, as nothing comes but relays of bulk.

%% Nanoseconds of vain polling before sleep, at least and at most. Going to sleep and waking up takes 10 to 50
%% microseconds, depending on the machine: hoping longer than that wastes what it would save. A single peer that answers
%% at once takes 30 to 60.
-define(HOPE_MIN, 5_000).
-define(HOPE_MAX, 50_000).

%% What of a sleep is going there and waking up: without the sleep the pause would have been so much shorter.
-define(WAKING, 25_000).

%% A round is long if it takes more than this and more than what those need to whom the poll before has delivered: long
%% for the sake of others. Two in a row, because the operating system may have taken the processor away meanwhile.
-define(LONG_ROUND, 400_000).
-define(EVENT, 50_000).
-define(LONG_ROUNDS, 2).

%% Sleeps at high priority before a round at normal priority is tried.
-define(TRY_AFTER, 64).

-record(gait, {
    pace = free :: free | crowded,
    %% What the next round measures: a yield, or a sleep, which says nothing of the run queue.
    last = sleep :: yield | sleep,
    delivered = 0 :: non_neg_integer(),
    idle = 0 :: non_neg_integer(),
    hope = ?HOPE_MIN :: pos_integer(),
    long = 0 :: non_neg_integer(),
    sleeps = 0 :: non_neg_integer()
}).

-opaque gait() :: #gait{}.

%% @doc The gait of a poller that has not polled yet.
-spec new() -> gait().
new() ->
    #gait{}.

%% @doc What to do after a poll that found `Events', `RoundNs' nanoseconds after the one before.
-spec next(Events :: non_neg_integer() | bulk | relays, RoundNs :: non_neg_integer(), gait()) -> {action(), gait()}.
next(Events, RoundNs, Gait) ->
    {Action, NewGait} = pace(Events, RoundNs, Gait),
    {Action, NewGait#gait{last = last(Action), delivered = delivered(Events)}}.

last(yield) -> yield;
last({sleep, _}) -> sleep.

delivered(Events) when is_integer(Events) -> Events;
delivered(_Bulk) -> 0.

pace(Events, RoundNs, Gait = #gait{pace = free, last = yield}) ->
    case is_long(RoundNs, Gait) of
        true when Gait#gait.long + 1 >= ?LONG_ROUNDS ->
            {{sleep, false}, Gait#gait{pace = crowded, long = 0, sleeps = 0}};
        true ->
            free(Events, RoundNs, Gait#gait{long = Gait#gait.long + 1});
        false ->
            free(Events, RoundNs, Gait#gait{long = 0})
    end;
pace(Bulk, _SleptNs, Gait = #gait{pace = free, last = sleep}) when is_atom(Bulk) ->
    {{sleep, Bulk =:= relays}, Gait#gait{idle = 0}};
pace(Events, SleptNs, Gait = #gait{pace = free, last = sleep, hope = Hope, idle = Hoped}) ->
    NewHope =
        case Hoped + SleptNs < ?HOPE_MAX + ?WAKING of
            true -> min(?HOPE_MAX, Hope * 2);
            false -> max(?HOPE_MIN, Hope div 2)
        end,
    free(Events, 0, Gait#gait{hope = NewHope, idle = 0});
pace(_Events, RoundNs, Gait = #gait{pace = crowded, last = yield}) ->
    case is_long(RoundNs, Gait) of
        true -> {{sleep, false}, Gait#gait{sleeps = 0}};
        false -> {yield, Gait#gait{pace = free, idle = 0}}
    end;
pace(_Events, _SleptNs, Gait = #gait{pace = crowded, last = sleep, sleeps = Sleeps}) when Sleeps < ?TRY_AFTER ->
    {{sleep, false}, Gait#gait{sleeps = Sleeps + 1}};
pace(_Events, _SleptNs, Gait = #gait{pace = crowded, last = sleep}) ->
    {yield, Gait}.

is_long(RoundNs, #gait{delivered = Delivered}) ->
    RoundNs > ?LONG_ROUND + ?EVENT * Delivered.

%% @doc The priority to go at until the next poll.
-spec priority(gait()) -> normal | high.
priority(#gait{pace = crowded, last = sleep}) -> high;
priority(#gait{}) -> normal.

free(Bulk, _RoundNs, Gait) when is_atom(Bulk) ->
    {{sleep, Bulk =:= relays}, Gait#gait{idle = 0}};
free(0, RoundNs, Gait = #gait{idle = Idle, hope = Hope}) when Idle + RoundNs >= Hope ->
    {{sleep, false}, Gait#gait{idle = Idle + RoundNs}};
free(0, RoundNs, Gait = #gait{idle = Idle}) ->
    {yield, Gait#gait{idle = Idle + RoundNs}};
free(_Events, _RoundNs, Gait) ->
    {yield, Gait#gait{idle = 0}}.
