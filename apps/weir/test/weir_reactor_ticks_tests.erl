%% Which connections a tick calls, without a reactor.
-module(weir_reactor_ticks_tests).

-include_lib("eunit/include/eunit.hrl").

-define(LONG_MS, 1000000).

%% The test process acts as the reactor.
new() -> weir_reactor_ticks:start(?LONG_MS, reactor_probe).

%% The connections that the next tick calls. Each then sleeps for this many ticks.
tick(Sleep, Ticks) -> visit(Sleep, [], weir_reactor_ticks:begin_tick(due, Ticks)).

visit(Sleep, Visited, Ticks) ->
    case weir_reactor_ticks:next(Ticks) of
        none -> {lists:reverse(Visited), Ticks};
        {Handle, Left} -> visit(Sleep, [Handle | Visited], weir_reactor_ticks:again(Handle, Sleep(Handle), Left))
    end.

times(N, Sleep, Ticks) ->
    lists:mapfoldl(fun(_, Before) -> tick(Sleep, Before) end, Ticks, lists:seq(1, N)).

%% Adds a connection with a state.
soon(Handle) ->
    _ = put(Handle, state),
    weir_reactor_ticks:soon(Handle).

test_(Fun) ->
    {spawn, fun() ->
        {module, reactor_probe} = code:ensure_loaded(reactor_probe),
        Fun(new())
    end}.

awake_ones_are_called_each_time_test_() ->
    test_(fun(Ticks) ->
        ok = soon(1),
        ?assertMatch({[[1], [1], [1]], _}, times(3, fun(_) -> 1 end, Ticks))
    end).

those_that_are_gone_are_forgotten_test_() ->
    test_(fun(Ticks) ->
        ok = soon(1),
        ?assertMatch({[[1], [], []], _}, times(3, fun(_) -> 0 end, Ticks))
    end).

those_that_are_gone_before_the_first_are_not_called_test_() ->
    test_(fun(Ticks) ->
        [ok = soon(Handle) || Handle <- [1, 2, 3]],
        _ = erase(2),
        ?assertMatch({[[1, 3]], _}, times(1, fun(_) -> 1 end, Ticks))
    end).

sleepers_are_called_when_they_are_due_test_() ->
    test_(fun(Ticks) ->
        [ok = soon(Handle) || Handle <- [1, 2, 3]],
        ?assertMatch({[[1, 2, 3], [1], [1, 2], [1, 3], [1, 2]], _}, times(5, fun(Handle) -> Handle end, Ticks))
    end).

%% For any length: the ring wraps around.
no_sleep_is_lost_test_() ->
    [
        test_(fun(Ticks) ->
            ok = soon(1),
            {Visits, _} = times(200, fun(_) -> Sleep end, Ticks),
            At = [N || {N, [1]} <- lists:zip(lists:seq(0, 199), Visits)],
            ?assertEqual(lists:seq(0, 199, min(Sleep, 63)), At)
        end)
     || Sleep <- [2, 62, 63, 64, 1000]
    ].

%% The old entry of a woken connection causes one more call, and no further ones.
woken_ones_are_called_once_in_a_tick_test_() ->
    test_(fun(Ticks) ->
        Sleep = fun(_) -> 10 end,
        ok = soon(1),
        {[[1] | _], Asleep} = times(5, Sleep, Ticks),
        ok = soon(1),
        ok = soon(2),
        ok = soon(1),
        {Visits, _} = times(6, Sleep, Asleep),
        ?assertEqual([[1, 2], [], [], [], [], [1]], Visits)
    end).

one_for_all_forgets_what_was_test_() ->
    test_(fun(Ticks) ->
        ok = soon(1),
        {[1], Asleep} = tick(fun(_) -> 2 end, Ticks),
        _ = put(1, state),
        _ = put(2, state),
        {All, Again} = visit(fun(_) -> 3 end, [], weir_reactor_ticks:begin_tick(all, Asleep)),
        ?assertEqual([1, 2], lists:sort(All)),
        ?assertMatch({[[], [], [1, 2]], _}, times(3, fun(_) -> 3 end, Again))
    end).

a_tick_that_is_not_through_is_not_begun_again_test_() ->
    test_(fun(Ticks) ->
        ok = soon(1),
        Begun = weir_reactor_ticks:begin_tick(due, Ticks),
        ok = soon(2),
        {1, Left} = weir_reactor_ticks:next(weir_reactor_ticks:begin_tick(due, Begun)),
        ?assertMatch({[2], _}, tick(fun(_) -> 1 end, weir_reactor_ticks:again(1, 0, Left)))
    end).
