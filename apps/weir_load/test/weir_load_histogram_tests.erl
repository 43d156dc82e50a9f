-module(weir_load_histogram_tests).

-include_lib("eunit/include/eunit.hrl").

percentiles_are_within_a_thousandth_of_exact_ones_test() ->
    {Values, _} = lists:mapfoldl(
        fun(_, Random) ->
            {Uniform, Later} = rand:uniform_s(Random),
            {round(math:exp(Uniform * 20)), Later}
        end,
        rand:seed_s(exsss, 1),
        lists:seq(1, 20_000)
    ),
    Histogram = weir_load_histogram:new(),
    ok = weir_load_histogram:record(Histogram, Values),
    Sorted = list_to_tuple(lists:sort(Values)),
    Percentiles = [1, 10, 50, 75, 90, 99, 99.9, 99.99, 100],
    [
        begin
            %% The neighbour counts too, because 99.99 / 100 is not exactly 0.9999.
            Rank = P / 100 * tuple_size(Sorted),
            ?assert(Found >= element(max(1, floor(Rank)), Sorted) * 0.999 - 1),
            ?assert(Found =< element(min(tuple_size(Sorted), ceil(Rank) + 1), Sorted) * 1.001 + 1)
        end
     || {P, Found} <- lists:zip(Percentiles, weir_load_histogram:percentiles(Histogram, Percentiles))
    ],
    #{count := 20_000, mean := Mean} = weir_load_histogram:summary(Histogram),
    ?assert(abs(Mean / (lists:sum(Values) / 20_000) - 1) < 0.001).

parts_that_travelled_merge_to_the_whole_test() ->
    Values = [N * N * 7 || N <- lists:seq(0, 9999)],
    Whole = weir_load_histogram:new(),
    ok = weir_load_histogram:record(Whole, Values),
    Merged = weir_load_histogram:new(),
    [
        begin
            Part = weir_load_histogram:new(),
            ok = weir_load_histogram:record(Part, [V || V <- Values, V rem 3 =:= Rest]),
            Bytes = weir_load_histogram:serialise(Part),
            ok = weir_load_histogram:merge(Merged, weir_load_histogram:deserialise(Bytes))
        end
     || Rest <- [0, 1, 2]
    ],
    ?assertEqual(weir_load_histogram:summary(Whole), weir_load_histogram:summary(Merged)),
    Percentiles = [N / 10 || N <- lists:seq(0, 1000)],
    ?assertEqual(
        weir_load_histogram:percentiles(Whole, Percentiles), weir_load_histogram:percentiles(Merged, Percentiles)
    ).

one_merges_with_itself_test() ->
    Histogram = weir_load_histogram:new(),
    ok = weir_load_histogram:record(Histogram, [1, 2, 3]),
    ok = weir_load_histogram:merge(Histogram, Histogram),
    ?assertMatch(#{count := 6, min := 1, max := 3}, weir_load_histogram:summary(Histogram)).

longer_than_an_hour_is_an_hour_test() ->
    Histogram = weir_load_histogram:new(),
    ok = weir_load_histogram:record(Histogram, [1 bsl 63]),
    [Value] = weir_load_histogram:percentiles(Histogram, [50]),
    ?assert(abs(Value / 3_600_000_000_000 - 1) < 0.001).

wrong_arguments_are_badarg_test_() ->
    Histogram = weir_load_histogram:new(),
    Bytes = weir_load_histogram:serialise(Histogram),
    [
        ?_assertError(badarg, Call())
     || Call <- [
            fun() -> weir_load_histogram:record(Histogram, [-1]) end,
            fun() -> weir_load_histogram:record(Histogram, [1.5]) end,
            fun() -> weir_load_histogram:record(Histogram, [1 bsl 64]) end,
            fun() -> weir_load_histogram:record(Histogram, [a | b]) end,
            fun() -> weir_load_histogram:record(make_ref(), [1]) end,
            fun() -> weir_load_nif:record_some(Histogram, lists:duplicate(5000, 1)) end,
            fun() -> weir_load_histogram:percentiles(Histogram, [101]) end,
            fun() -> weir_load_histogram:percentiles(Histogram, [-1]) end,
            fun() -> weir_load_histogram:merge(Histogram, none) end,
            fun() -> weir_load_histogram:deserialise(<<>>) end,
            fun() -> weir_load_histogram:deserialise(<<"histogram">>) end,
            fun() -> weir_load_histogram:deserialise(binary:part(Bytes, 0, byte_size(Bytes) - 1)) end,
            fun() -> weir_load_histogram:deserialise(binary:copy(<<0>>, 2_000_000)) end,
            fun() -> weir_load_nif:alarm_set(make_ref(), 1) end,
            fun() -> weir_load_nif:alarm_set(weir_load_nif:alarm_start(), -1) end,
            fun() -> weir_load_nif:alarm_set(weir_load_nif:alarm_start(), 1 bsl 62) end
        ]
    ].

an_alarm_goes_off_once_and_not_early_test_() -> {timeout, 300, fun an_alarm_goes_off_once_and_not_early/0}.

an_alarm_goes_off_once_and_not_early() ->
    Alarm = weir_load_nif:alarm_start(),
    Before = erlang:monotonic_time(nanosecond),
    ok = weir_load_nif:alarm_set(Alarm, 60_000_000_000),
    ok = weir_load_nif:alarm_set(Alarm, 2_000_000),
    ?assertEqual(weir_load_alarm, weir_test_wait:next_message()),
    ?assert(erlang:monotonic_time(nanosecond) - Before >= 2_000_000),
    weir_test_wait:assert_no_message().
