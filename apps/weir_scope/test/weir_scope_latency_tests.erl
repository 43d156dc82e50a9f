%% Compares the table of tcprstat with the same figures computed from single times.
-module(weir_scope_latency_tests).

-include_lib("eunit/include/eunit.hrl").

no_reply_test() ->
    ?assert(lists:all(fun(Value) -> Value == 0 end, maps:values(weir_scope_latency:figures([])))).

one_reply_test() ->
    ?assertMatch(
        #{
            count := 1,
            min := 2.0,
            max := 2.0,
            avg := 2.0,
            med := 2.0,
            stddev := Zero,
            '95_max' := 2.0,
            '99_avg' := 2.0,
            p999 := 2.0
        } when Zero == 0,
        weir_scope_latency:figures([{2000, 1}])
    ).

%% A hundred times of 1 to 100 microseconds.
a_hundred_test() ->
    Times = [{Time * 1000, 1} || Time <- lists:seq(1, 100)],
    #{
        count := 100,
        min := 1.0,
        max := 100.0,
        avg := 50.5,
        med := 50.0,
        stddev := Deviation,
        p90 := 90.0,
        '95_max' := 95.0,
        '95_avg' := 48.0,
        '95_std' := Deviation95,
        '99_max' := 99.0,
        '99_avg' := 50.0,
        '99_std' := Deviation99,
        p999 := 100.0
    } = weir_scope_latency:figures(Times),
    ?assert(abs(Deviation - deviation(lists:seq(1, 100))) < 0.001),
    ?assert(abs(Deviation95 - deviation(lists:seq(1, 95))) < 0.001),
    ?assert(abs(Deviation99 - deviation(lists:seq(1, 99))) < 0.001).

deviation(Values) ->
    Mean = lists:sum(Values) / length(Values),
    math:sqrt(lists:sum([(Value - Mean) * (Value - Mean) || Value <- Values]) / length(Values)).

%% A percentile may lie among equal times.
equal_times_test() ->
    ?assertMatch(
        #{count := 1000, med := 1.0, '95_max' := 1.0, '99_max' := 5.0, p999 := 5.0},
        weir_scope_latency:figures([{1000, 980}, {5000, 20}])
    ).

between_test() ->
    ?assertEqual([], weir_scope_latency:between([], [])),
    ?assertEqual([{1, 3}], weir_scope_latency:between([], [{1, 3}])),
    ?assertEqual([{1, 2}, {3, 4}], weir_scope_latency:between([{2, 1}, {3, 1}], [{1, 2}, {2, 1}, {3, 5}])).

begun_anew_test() ->
    ?assertEqual([{2, 1}], weir_scope_latency:between([{1, 5}, {2, 7}], [{2, 1}])).

steps_test() ->
    Steps = weir_scope_latency:steps([
        {0, 1}, {999, 2}, {1999, 4}, {2000, 1}, {3999, 1}, {4000, 1}, {1_000_000_000, 5}, {60_000_000_000, 7}
    ]),
    ?assertEqual(24, length(Steps)),
    ?assertEqual([{1, 7}, {2, 2}, {4, 1}, {524_288, 5}, {8_388_608, 7}], [
        Step || {_, Count} = Step <- Steps, Count > 0
    ]).

together_test() ->
    ?assertEqual([{1, 2}, {2, 4}, {3, 1}], weir_scope_latency:together([[{1, 2}, {2, 1}], [], [{2, 3}, {3, 1}]])).
