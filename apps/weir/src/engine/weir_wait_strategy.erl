%% @private
%% @doc How a poller waits for work: when it polls again, when it sleeps, and at which priority. A value; the poller
%% carries out its decisions.
%%
%% A poller that has found work lately yields and polls again: under load it runs once in each round of its
%% scheduler's run queue, and batches grow with the load. After several empty polls in a row it sleeps on its
%% descriptor. How long it spins first adapts to the length of the last pauses, spin and sleep together: if the
%% longest spin could have bridged the pause, the next spin is longer, else shorter.
%%
%% After a poll that served only bulk streams it does not spin: the peers need longer to move the next data than a
%% sleep takes, and polls would find little. If all of the streams are relays, the pollset's thread serves them during
%% the sleep.
%%
%% Beside many CPU-bound processes a round takes milliseconds. A poller that yields would see a packet one round late,
%% and its owner yet another round later. So when rounds become long it sleeps after every poll, at high priority, so
%% that a packet wakes it at once. (If it yielded at high priority it would starve other processes.) Now and then it
%% tries a round at normal priority, to see whether rounds are short again.
-module(weir_wait_strategy).

-export([new/0]).
-export([next/3]).
-export([priority/1]).

-export_type([strategy/0, action/0]).

-type action() :: yield | {sleep, Relays :: boolean()}.
%% `Relays': the pollset's thread serves during the sleep, because there are only bulk relays.

%% The shortest and longest spin before a sleep, in nanoseconds. Going to sleep and waking up takes 10 to 50
%% microseconds, depending on the machine: a longer spin costs more than it saves. A single peer that answers at once
%% takes 30 to 60 microseconds.
-define(SPIN_MIN, 5_000).
-define(SPIN_MAX, 50_000).

%% The part of a sleep that is spent on falling asleep and waking up: without the sleep the pause would have been this
%% much shorter.
-define(WAKING, 25_000).

%% A round is long if it exceeds this time plus EVENT for each socket served in the last poll, whose owners run in it.
%% Two long rounds in a row count, because the operating system may have taken the processor away in one.
-define(LONG_ROUND, 400_000).
-define(EVENT, 50_000).
-define(LONG_ROUNDS, 2).

%% Sleeps at high priority before a round at normal priority is tried.
-define(TRY_AFTER, 64).

-record(strategy, {
    pace = free :: free | crowded,
    %% What the time of the next round measures: a yield, or a sleep, which says nothing about the run queue.
    last = sleep :: yield | sleep,
    delivered = 0 :: non_neg_integer(),
    idle = 0 :: non_neg_integer(),
    spin = ?SPIN_MIN :: pos_integer(),
    long = 0 :: non_neg_integer(),
    sleeps = 0 :: non_neg_integer()
}).

-opaque strategy() :: #strategy{}.

%% @doc Returns the strategy of a poller that has not polled yet.
-spec new() -> strategy().
new() ->
    #strategy{}.

%% @doc Returns what to do after a poll that returned `Events', `RoundNs' nanoseconds after the last poll.
-spec next(Events :: non_neg_integer() | bulk | relays, RoundNs :: non_neg_integer(), strategy()) ->
    {action(), strategy()}.
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

%% @doc Returns the priority until the next poll.
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
