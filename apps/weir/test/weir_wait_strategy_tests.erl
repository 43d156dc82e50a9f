-module(weir_wait_strategy_tests).

-include_lib("eunit/include/eunit.hrl").

%% Nanoseconds of a round on a scheduler with little to do, and with much.
-define(SHORT, 1_000).
-define(LONG, 2_000_000).

%% The resulting constants of the module.
-define(SPIN_MIN, 5_000).
-define(SPIN_MAX, 50_000).
-define(WAKING, 25_000).
-define(TRY_AFTER, 64).

%% Feeds polls to a strategy. Returns the action after each, and the strategy.
walk(Polls, Strategy) ->
    lists:mapfoldl(fun({Events, Round}, Before) -> weir_wait_strategy:next(Events, Round, Before) end, Strategy, Polls).

new() ->
    {[yield], Strategy} = walk([{1, 0}], weir_wait_strategy:new()),
    Strategy.

%% The number of empty polls of a free poller before it sleeps, after a sleep of this length.
empty_polls(Slept, Strategy) ->
    {Action, Next} = weir_wait_strategy:next(0, Slept, Strategy),
    count_empty(Action, Next, 1).

count_empty({sleep, false}, Strategy, Count) ->
    {Count, Strategy};
count_empty(yield, Strategy, Count) ->
    {Action, Next} = weir_wait_strategy:next(0, ?SHORT, Strategy),
    count_empty(Action, Next, Count + 1).

crowded() ->
    {[yield, {sleep, false}], Strategy} = walk([{1, ?LONG}, {1, ?LONG}], new()),
    Strategy.

work_keeps_it_going_test() ->
    {Actions, Strategy} = walk(lists:duplicate(1000, {3, ?SHORT}), new()),
    ?assertEqual([yield], lists:usort(Actions)),
    ?assertEqual(normal, weir_wait_strategy:priority(Strategy)).

%% A new strategy has not slept yet, and spins for twice the minimum.
empty_polls_end_in_sleep_test() ->
    {Actions, Strategy} = walk(lists:duplicate(2 * ?SPIN_MIN div ?SHORT, {0, ?SHORT}), new()),
    ?assertEqual([{sleep, false}], [Action || Action <- Actions, Action =/= yield]),
    ?assertEqual({sleep, false}, lists:last(Actions)),
    ?assertEqual(normal, weir_wait_strategy:priority(Strategy)).

%% One event restarts the spin.
work_renews_the_spin_test() ->
    Nearly = lists:duplicate(?SPIN_MIN div ?SHORT - 1, {0, ?SHORT}),
    {Actions, _} = walk(Nearly ++ [{1, ?SHORT}] ++ Nearly, new()),
    ?assertEqual([yield], lists:usort(Actions)).

short_sleeps_make_it_spin_longer_test() ->
    {_, Asleep} = empty_polls(?SHORT, new()),
    {Counts, _} = lists:mapfoldl(fun(_, Strategy) -> empty_polls(?SHORT, Strategy) end, Asleep, lists:seq(1, 3)),
    ?assertEqual(lists:usort(Counts), Counts).

it_spins_no_longer_than_the_most_test() ->
    {_, Asleep} = empty_polls(?SHORT, new()),
    {Counts, _} = lists:mapfoldl(fun(_, Strategy) -> empty_polls(?SHORT, Strategy) end, Asleep, lists:seq(1, 20)),
    ?assertEqual(?SPIN_MAX div ?SHORT + 1, lists:max(Counts)).

%% A sleep after a spin is shorter than the pause between events: the sum of both counts.
spin_and_sleep_count_together_test() ->
    Pause = ?SPIN_MAX + ?WAKING + ?SHORT,
    {_, Asleep} = empty_polls(?SHORT, new()),
    Wait = fun(_, {Spun, Strategy}) -> empty_polls(max(?SHORT, Pause - Spun * ?SHORT), Strategy) end,
    {Spun, _} = lists:foldl(Wait, {0, Asleep}, lists:seq(1, 10)),
    ?assertEqual(?SPIN_MIN div ?SHORT + 1, Spun).

long_sleeps_make_it_spin_shorter_test() ->
    {_, Asleep} = empty_polls(?SHORT, new()),
    {_, LongSpin} = lists:mapfoldl(fun(_, Strategy) -> empty_polls(?SHORT, Strategy) end, Asleep, lists:seq(1, 10)),
    {Counts, _} = lists:mapfoldl(fun(_, Strategy) -> empty_polls(?LONG, Strategy) end, LongSpin, lists:seq(1, 10)),
    ?assertEqual(lists:reverse(lists:sort(Counts)), Counts),
    ?assertEqual(?SPIN_MIN div ?SHORT + 1, lists:last(Counts)).

%% The length of a sleep says nothing about the run queue.
long_sleeps_are_no_long_rounds_test() ->
    {_, Asleep} = empty_polls(?SHORT, new()),
    {Actions, Strategy} = walk([{1, ?LONG}, {1, ?SHORT}], Asleep),
    ?assertEqual([yield, yield], Actions),
    {yield, After} = weir_wait_strategy:next(1, ?LONG, Strategy),
    ?assertEqual(normal, weir_wait_strategy:priority(After)).

one_long_round_is_chance_test() ->
    Polls = lists:append(lists:duplicate(10, [{1, ?LONG}, {1, ?SHORT}])),
    {Actions, Strategy} = walk(Polls, new()),
    ?assertEqual([yield], lists:usort(Actions)),
    ?assertEqual(normal, weir_wait_strategy:priority(Strategy)).

two_long_rounds_are_a_crowd_test() ->
    Strategy = crowded(),
    ?assertEqual(high, weir_wait_strategy:priority(Strategy)),
    %% It sleeps after every poll, whatever the poll found.
    {Actions, Still} = walk([{Events, ?LONG} || Events <- [0, 1, 100]], Strategy),
    ?assertEqual([{sleep, false}, {sleep, false}, {sleep, false}], Actions),
    ?assertEqual(high, weir_wait_strategy:priority(Still)).

%% A yield at high priority would starve other processes.
never_yields_at_high_priority_test() ->
    lists:foldl(
        fun(N, Strategy) ->
            {Action, Next} = weir_wait_strategy:next(N rem 3, (N * 7919) rem (2 * ?LONG), Strategy),
            ?assertNot(Action =:= yield andalso weir_wait_strategy:priority(Next) =:= high),
            Next
        end,
        weir_wait_strategy:new(),
        lists:seq(1, 10000)
    ).

tries_a_round_now_and_then_test() ->
    {Actions, Strategy} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {Sleeps, [Last]} = lists:split(?TRY_AFTER, Actions),
    ?assertEqual([{sleep, false}], lists:usort(Sleeps)),
    ?assertEqual(yield, Last),
    ?assertEqual(normal, weir_wait_strategy:priority(Strategy)).

short_trial_round_frees_it_test() ->
    {_, Trying} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {Actions, Strategy} = walk([{1, ?SHORT}, {1, ?SHORT}], Trying),
    ?assertEqual([yield, yield], Actions),
    ?assertEqual(normal, weir_wait_strategy:priority(Strategy)).

long_trial_round_does_not_test() ->
    {_, Trying} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {{sleep, false}, Strategy} = weir_wait_strategy:next(1, ?LONG, Trying),
    ?assertEqual(high, weir_wait_strategy:priority(Strategy)),
    {Actions, _} = walk(lists:duplicate(?TRY_AFTER, {1, ?LONG}), Strategy),
    ?assertEqual([{sleep, false}], lists:usort(Actions)).

it_does_not_spin_for_bulk_streams_test_() ->
    [fun() -> no_spin_for_bulk(bulk, false) end, fun() -> no_spin_for_bulk(relays, true) end].

no_spin_for_bulk(Bulk, ByThread) ->
    {Actions, Strategy} = walk(lists:duplicate(100, {Bulk, ?SHORT}), new()),
    ?assertEqual([{sleep, ByThread}], lists:usort(Actions)),
    %% Its short sleeps must not change how long it spins for others.
    {Before, _} = empty_polls(?SHORT, new()),
    {After, _} = empty_polls(?SHORT, Strategy),
    ?assert(After =< 2 * Before + 1).

bulk_streams_beside_busy_processes_test() ->
    {Actions, Strategy} = walk(lists:duplicate(?TRY_AFTER - 1, {bulk, ?LONG}), crowded()),
    ?assertEqual([{sleep, false}], lists:usort(Actions)),
    ?assertEqual(high, weir_wait_strategy:priority(Strategy)).
