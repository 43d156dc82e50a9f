%% @private
%% @doc How a poller waits for work: when it polls again, when it sleeps, and at which priority. A value; the poller obeys it.
%%
%% A poller that finds work, or has just found some, yields and polls again: under load it runs once in each round of
%% its scheduler's run queue, and batches grow by themselves. When several polls in a row find nothing it sleeps on its
%% descriptor. How long it spins before that adapts to how long nothing came the last times, spin and sleep together:
%% if a spin could have bridged that, the next one is longer, else shorter.
%%
%% After a poll that has served nothing but bulk streams it does not spin: the peers take longer to move as much again than
%% sleeping takes, and polls meanwhile would find little. If all of them are relays, the pollset's thread serves them then.
%%
%% Beside many CPU-bound processes a round takes milliseconds. A poller that yields would then see a packet a round
%% late, and its owner another round later. So when rounds grow long it changes its pace: it sleeps after every poll,
%% at high priority, so that a packet wakes it at once. (A poller that yields at high priority would starve the rest.)
%% Now and then it tries a round at normal priority, to see whether they are short again.
-module(weir_wait_strategy).

-export([new/0]).
-export([next/3]).
-export([priority/1]).

-export_type([strategy/0, action/0]).

-type action() :: yield | {sleep, Relays :: boolean()}.
%% Whether the pollset's thread serves during the sleep, as nothing comes but relays of bulk.

%% Nanoseconds of spinning before sleep, at least and at most. Going to sleep and waking up takes 10 to 50
%% microseconds, depending on the machine: a longer spin wastes what it would save. A single peer that answers
%% at once takes 30 to 60.
-define(SPIN_MIN, 5_000).
-define(SPIN_MAX, 50_000).

%% What of a sleep is going there and waking up: without the sleep the pause would have been so much shorter.
-define(WAKING, 25_000).

%% A round is long if it takes more than this and more than what those need to whom the poll before has delivered: long
%% for the sake of others. Two in a row, because the operating system may have taken the processor away meanwhile.
-define(LONG_ROUND, 400_000).
-define(EVENT, 50_000).
-define(LONG_ROUNDS, 2).

%% Sleeps at high priority before a round at normal priority is tried.
-define(TRY_AFTER, 64).

-record(strategy, {
    pace = free :: free | crowded,
    %% What the next round measures: a yield, or a sleep, which says nothing of the run queue.
    last = sleep :: yield | sleep,
    delivered = 0 :: non_neg_integer(),
    idle = 0 :: non_neg_integer(),
    spin = ?SPIN_MIN :: pos_integer(),
    long = 0 :: non_neg_integer(),
    sleeps = 0 :: non_neg_integer()
}).

-opaque strategy() :: #strategy{}.

%% @doc The strategy of a poller that has not polled yet.
-spec new() -> strategy().
new() ->
    #strategy{}.

%% @doc What to do after a poll that found `Events', `RoundNs' nanoseconds after the one before.
-spec next(Events :: non_neg_integer() | bulk | relays, RoundNs :: non_neg_integer(), strategy()) -> {action(), strategy()}.
next(Events, RoundNs, Strategy) ->
    {Action, NewStrategy} = pace(Events, RoundNs, Strategy),
    {Action, NewStrategy#strategy{last = last(Action), delivered = delivered(Events)}}.

last(yield) -> yield;
last({sleep, _}) -> sleep.

delivered(Events) when is_integer(Events) -> Events;
delivered(_Bulk) -> 0.

pace(Events, RoundNs, Strategy = #strategy{pace = free, last = yield}) ->
    case is_long(RoundNs, Strategy) of
        true when Strategy#strategy.long + 1 >= ?LONG_ROUNDS ->
            {{sleep, false}, Strategy#strategy{pace = crowded, long = 0, sleeps = 0}};
        true ->
            free(Events, RoundNs, Strategy#strategy{long = Strategy#strategy.long + 1});
        false ->
            free(Events, RoundNs, Strategy#strategy{long = 0})
    end;
pace(Bulk, _SleptNs, Strategy = #strategy{pace = free, last = sleep}) when is_atom(Bulk) ->
    {{sleep, Bulk =:= relays}, Strategy#strategy{idle = 0}};
pace(Events, SleptNs, Strategy = #strategy{pace = free, last = sleep, spin = Spin, idle = Spun}) ->
    NewSpin =
        case Spun + SleptNs < ?SPIN_MAX + ?WAKING of
            true -> min(?SPIN_MAX, Spin * 2);
            false -> max(?SPIN_MIN, Spin div 2)
        end,
    free(Events, 0, Strategy#strategy{spin = NewSpin, idle = 0});
pace(_Events, RoundNs, Strategy = #strategy{pace = crowded, last = yield}) ->
    case is_long(RoundNs, Strategy) of
        true -> {{sleep, false}, Strategy#strategy{sleeps = 0}};
        false -> {yield, Strategy#strategy{pace = free, idle = 0}}
    end;
pace(_Events, _SleptNs, Strategy = #strategy{pace = crowded, last = sleep, sleeps = Sleeps}) when Sleeps < ?TRY_AFTER ->
    {{sleep, false}, Strategy#strategy{sleeps = Sleeps + 1}};
pace(_Events, _SleptNs, Strategy = #strategy{pace = crowded, last = sleep}) ->
    {yield, Strategy}.

is_long(RoundNs, #strategy{delivered = Delivered}) ->
    RoundNs > ?LONG_ROUND + ?EVENT * Delivered.

%% @doc The priority to go at until the next poll.
-spec priority(strategy()) -> normal | high.
priority(#strategy{pace = crowded, last = sleep}) -> high;
priority(#strategy{}) -> normal.

free(Bulk, _RoundNs, Strategy) when is_atom(Bulk) ->
    {{sleep, Bulk =:= relays}, Strategy#strategy{idle = 0}};
free(0, RoundNs, Strategy = #strategy{idle = Idle, spin = Spin}) when Idle + RoundNs >= Spin ->
    {{sleep, false}, Strategy#strategy{idle = Idle + RoundNs}};
free(0, RoundNs, Strategy = #strategy{idle = Idle}) ->
    {yield, Strategy#strategy{idle = Idle + RoundNs}};
free(_Events, _RoundNs, Strategy) ->
    {yield, Strategy#strategy{idle = 0}}.
