-module(weir_load_units_tests).

-include_lib("eunit/include/eunit.hrl").

-define(S, 1_000_000_000).

times_test_() ->
    [
        ?_assertEqual({Text, {ok, Time}}, {Text, weir_load_units:time(Text)})
     || {Text, Time} <- [
            {"500us", 500_000}, {"10ms", 10_000_000}, {"8s", 8 * ?S}, {"1.5s", 1_500_000_000}, {"5m", 300 * ?S},
            {"1h", 3600 * ?S}, {"0s", 0}, {"7ns", 7}
        ]
    ].

wrong_times_test_() ->
    [
        ?_assertMatch({Text, {error, _}}, {Text, weir_load_units:time(Text)})
     || Text <- ["", "8", "s", "8 s", "-1s", "1.s", "8d"]
    ].

rates_test_() ->
    [
        ?_assertEqual({Text, {ok, Rate}}, {Text, weir_load_units:rate(Text)})
     || {Text, Rate} <- [
            {"2000", {constant, 2000}}, {"0.5", {constant, 0.5}}, {"100..5000", {ramp, 100, 5000}},
            {"0..10.5", {ramp, 0, 10.5}}, {"1,2,3", {steps, [1, 2, 3]}}, {"44.4t", {slope, 44.4}},
            {"pow:5000:2", {power, 5000, 2}}
        ]
    ].

wrong_rates_test_() ->
    [
        ?_assertMatch({Text, {error, _}}, {Text, weir_load_units:rate(Text)})
     || Text <- ["", "fast", "-1", "0", "1..", "..1", "1,,2", "t", "pow:1", "pow:1:0", "0..0", "99999999999", "1..2..3"]
    ].

segments_last_as_long_as_the_whole_test_() ->
    [
        fun() ->
            {ok, Rate} = weir_load_units:rate(Text),
            Schedule = weir_load_schedule:new(weir_load_units:segments(Rate, 10 * ?S)),
            ?assertEqual(10 * ?S, weir_load_schedule:duration(Schedule)),
            ?assertEqual(Count, weir_load_schedule:count(Schedule))
        end
     || {Text, Count} <- [
            {"2000", 20_000}, {"0..100", 500}, {"10,20,30", 200}, {"44.4t", 2220}, {"pow:300:2", 1000}
        ]
    ].
