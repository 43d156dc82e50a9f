-module(weir_gait_tests).

-include_lib("eunit/include/eunit.hrl").

%% Rounds in nanoseconds: of a scheduler with little to do, and with much.
-define(SHORT, 1_000).
-define(LONG, 2_000_000).

%% What the constants of the module come to.
-define(HOPE_MIN, 5_000).
-define(HOPE_MAX, 50_000).
-define(WAKING, 25_000).
-define(TRY_AFTER, 64).

%% Feeds polls to a gait. Returns what was to be done after each, and the gait.
walk(Polls, Gait) ->
    lists:mapfoldl(fun({Events, Round}, Before) -> weir_gait:next(Events, Round, Before) end, Gait, Polls).

new() ->
    {[yield], Gait} = walk([{1, 0}], weir_gait:new()),
    Gait.

%% Vain polls of a free poller before it sleeps, after a sleep as long as told.
vain_polls(Slept, Gait) ->
    {Action, Next} = weir_gait:next(0, Slept, Gait),
    count_vain(Action, Next, 1).

count_vain({sleep, false}, Gait, Count) ->
    {Count, Gait};
count_vain(yield, Gait, Count) ->
    {Action, Next} = weir_gait:next(0, ?SHORT, Gait),
    count_vain(Action, Next, Count + 1).

crowded() ->
    {[yield, {sleep, false}], Gait} = walk([{1, ?LONG}, {1, ?LONG}], new()),
    Gait.

work_keeps_it_going_test() ->
    {Actions, Gait} = walk(lists:duplicate(1000, {3, ?SHORT}), new()),
    ?assertEqual([yield], lists:usort(Actions)),
    ?assertEqual(normal, weir_gait:priority(Gait)).

%% A new one has slept for no time, and hopes for twice the least.
vain_polls_end_in_sleep_test() ->
    {Actions, Gait} = walk(lists:duplicate(2 * ?HOPE_MIN div ?SHORT, {0, ?SHORT}), new()),
    ?assertEqual([{sleep, false}], [Action || Action <- Actions, Action =/= yield]),
    ?assertEqual({sleep, false}, lists:last(Actions)),
    ?assertEqual(normal, weir_gait:priority(Gait)).

%% One event, and it hopes from the start.
work_renews_hope_test() ->
    Nearly = lists:duplicate(?HOPE_MIN div ?SHORT - 1, {0, ?SHORT}),
    {Actions, _} = walk(Nearly ++ [{1, ?SHORT}] ++ Nearly, new()),
    ?assertEqual([yield], lists:usort(Actions)).

short_sleeps_make_it_hope_longer_test() ->
    {_, Asleep} = vain_polls(?SHORT, new()),
    {Counts, _} = lists:mapfoldl(fun(_, Gait) -> vain_polls(?SHORT, Gait) end, Asleep, lists:seq(1, 3)),
    ?assertEqual(lists:usort(Counts), Counts).

it_hopes_no_longer_than_the_most_test() ->
    {_, Asleep} = vain_polls(?SHORT, new()),
    {Counts, _} = lists:mapfoldl(fun(_, Gait) -> vain_polls(?SHORT, Gait) end, Asleep, lists:seq(1, 20)),
    ?assertEqual(?HOPE_MAX div ?SHORT + 1, lists:max(Counts)).

%% Sleeps that follow vain hope are shorter than the pauses between events: what counts is both.
hope_and_sleep_count_together_test() ->
    Pause = ?HOPE_MAX + ?WAKING + ?SHORT,
    {_, Asleep} = vain_polls(?SHORT, new()),
    Wait = fun(_, {Hoped, Gait}) -> vain_polls(max(?SHORT, Pause - Hoped * ?SHORT), Gait) end,
    {Hoped, _} = lists:foldl(Wait, {0, Asleep}, lists:seq(1, 10)),
    ?assertEqual(?HOPE_MIN div ?SHORT + 1, Hoped).

long_sleeps_make_it_hope_shorter_test() ->
    {_, Asleep} = vain_polls(?SHORT, new()),
    {_, Hopeful} = lists:mapfoldl(fun(_, Gait) -> vain_polls(?SHORT, Gait) end, Asleep, lists:seq(1, 10)),
    {Counts, _} = lists:mapfoldl(fun(_, Gait) -> vain_polls(?LONG, Gait) end, Hopeful, lists:seq(1, 10)),
    ?assertEqual(lists:reverse(lists:sort(Counts)), Counts),
    ?assertEqual(?HOPE_MIN div ?SHORT + 1, lists:last(Counts)).

%% How long it slept says nothing about the run queue.
long_sleeps_are_no_long_rounds_test() ->
    {_, Asleep} = vain_polls(?SHORT, new()),
    {Actions, Gait} = walk([{1, ?LONG}, {1, ?SHORT}], Asleep),
    ?assertEqual([yield, yield], Actions),
    {yield, After} = weir_gait:next(1, ?LONG, Gait),
    ?assertEqual(normal, weir_gait:priority(After)).

one_long_round_is_chance_test() ->
    Polls = lists:append(lists:duplicate(10, [{1, ?LONG}, {1, ?SHORT}])),
    {Actions, Gait} = walk(Polls, new()),
    ?assertEqual([yield], lists:usort(Actions)),
    ?assertEqual(normal, weir_gait:priority(Gait)).

two_long_rounds_are_a_crowd_test() ->
    Gait = crowded(),
    ?assertEqual(high, weir_gait:priority(Gait)),
    %% It sleeps after every poll, whatever that found.
    {Actions, Still} = walk([{Events, ?LONG} || Events <- [0, 1, 100]], Gait),
    ?assertEqual([{sleep, false}, {sleep, false}, {sleep, false}], Actions),
    ?assertEqual(high, weir_gait:priority(Still)).

%% A yield at high priority would starve the rest.
never_yields_at_high_priority_test() ->
    lists:foldl(
        fun(N, Gait) ->
            {Action, Next} = weir_gait:next(N rem 3, (N * 7919) rem (2 * ?LONG), Gait),
            ?assertNot(Action =:= yield andalso weir_gait:priority(Next) =:= high),
            Next
        end,
        weir_gait:new(),
        lists:seq(1, 10000)
    ).

tries_a_round_now_and_then_test() ->
    {Actions, Gait} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {Sleeps, [Last]} = lists:split(?TRY_AFTER, Actions),
    ?assertEqual([{sleep, false}], lists:usort(Sleeps)),
    ?assertEqual(yield, Last),
    ?assertEqual(normal, weir_gait:priority(Gait)).

short_trial_round_frees_it_test() ->
    {_, Trying} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {Actions, Gait} = walk([{1, ?SHORT}, {1, ?SHORT}], Trying),
    ?assertEqual([yield, yield], Actions),
    ?assertEqual(normal, weir_gait:priority(Gait)).

long_trial_round_does_not_test() ->
    {_, Trying} = walk(lists:duplicate(?TRY_AFTER + 1, {1, ?LONG}), crowded()),
    {{sleep, false}, Gait} = weir_gait:next(1, ?LONG, Trying),
    ?assertEqual(high, weir_gait:priority(Gait)),
    {Actions, _} = walk(lists:duplicate(?TRY_AFTER, {1, ?LONG}), Gait),
    ?assertEqual([{sleep, false}], lists:usort(Actions)).

bulk_streams_are_not_hoped_for_test_() ->
    [fun() -> bulk_is_not_hoped_for(bulk, false) end, fun() -> bulk_is_not_hoped_for(relays, true) end].

bulk_is_not_hoped_for(Bulk, ByThread) ->
    {Actions, Gait} = walk(lists:duplicate(100, {Bulk, ?SHORT}), new()),
    ?assertEqual([{sleep, ByThread}], lists:usort(Actions)),
    %% Its short sleeps say nothing of how long to hope for others.
    {Before, _} = vain_polls(?SHORT, new()),
    {After, _} = vain_polls(?SHORT, Gait),
    ?assert(After =< 2 * Before + 1).

bulk_streams_beside_busy_processes_test() ->
    {Actions, Gait} = walk(lists:duplicate(?TRY_AFTER - 1, {bulk, ?LONG}), crowded()),
    ?assertEqual([{sleep, false}], lists:usort(Actions)),
    ?assertEqual(high, weir_gait:priority(Gait)).
