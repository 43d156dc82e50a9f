-module(weir_load_schedule_tests).

-include_lib("eunit/include/eunit.hrl").

-define(S, 1_000_000_000).

schedules() ->
    [
        [{constant, 2000, 8 * ?S}],
        [{constant, 1, 3 * ?S}],
        [{constant, 1000, 2 * ?S}, {constant, 0, ?S}, {constant, 3000, 2 * ?S}],
        [{ramp, 0, 44.4 * 10, 10 * ?S}],
        [{ramp, 1000, 100, 5 * ?S}],
        [{ramp, 500, 500, 5 * ?S}],
        [{power, 1000, 2, 6 * ?S}],
        [{constant, 100, ?S}, {power, 1000, 0.5, 6 * ?S}, {ramp, 1000, 0, ?S}]
    ].

all(Schedule, Number, Of) ->
    all(weir_load_schedule:next(weir_load_schedule:first(Schedule, Number, Of))).

all(done) -> [];
all({Due, Arrivals}) -> [Due | all(weir_load_schedule:next(Arrivals))].

counts_are_exact_at_every_moment_test_() ->
    [
        fun() ->
            Schedule = weir_load_schedule:new(Segments),
            Due = all(Schedule, 1, 1),
            ?assertEqual(weir_load_schedule:count(Schedule), length(Due)),
            ?assertEqual(Due, lists:sort(Due)),
            Duration = weir_load_schedule:duration(Schedule),
            ?assert(lists:all(fun(Time) -> Time >= 0 andalso Time < Duration end, Due)),
            [
                begin
                    Time = Duration * Part div 50,
                    Expected = weir_load_schedule:due_until(Schedule, Time),
                    ?assert(abs(Expected - length([D || D <- Due, D < Time])) =< 1)
                end
             || Part <- lists:seq(0, 50)
            ]
        end
     || Segments <- schedules()
    ].

parts_make_up_the_whole_test_() ->
    [
        fun() ->
            Schedule = weir_load_schedule:new(Segments),
            Parts = [all(Schedule, Number, 3) || Number <- [1, 2, 3]],
            ?assertEqual(all(Schedule, 1, 1), lists:sort(lists:append(Parts)))
        end
     || Segments <- schedules()
    ].

the_known_counts_test() ->
    Count = fun(Segments) -> weir_load_schedule:count(weir_load_schedule:new(Segments)) end,
    ?assertEqual(16000, Count([{constant, 2000, 8 * ?S}])),
    %% The integral of 44.4 t is 22.2 t^2.
    ?assertEqual(2220, Count([{ramp, 0, 444, 10 * ?S}])),
    ?assertEqual(2000, Count([{power, 1000, 2, 6 * ?S}])),
    ?assertEqual(0, Count([])).

even_arrivals_are_a_gap_apart_test() ->
    Due = all(weir_load_schedule:new([{constant, 1000, ?S}]), 1, 1),
    ?assertEqual([500_000 + N * 1_000_000 || N <- lists:seq(0, 999)], Due).

random_arrivals_are_exact_in_number_and_exponential_in_gaps_test() ->
    Schedule = weir_load_schedule:new([{constant, 10_000, 4 * ?S}], {poisson, 7}),
    Parts = [all(Schedule, Number, 2) || Number <- [1, 2]],
    Due = lists:sort(lists:append(Parts)),
    ?assertEqual(40_000, length(Due)),
    Gaps = lists:zipwith(fun erlang:'-'/2, tl(Due), lists:droplast(Due)),
    Short = length([Gap || Gap <- Gaps, Gap < 100_000]),
    %% In an exponential distribution 63.2 % are below the mean.
    ?assert(abs(Short / length(Gaps) - 0.632) < 0.01),
    ?assert(lists:last(Due) < 4 * ?S),
    %% Quarters differ at random, but not by much: the standard deviation of 10,000 is 87.
    Quarter = length([D || D <- Due, D < ?S]),
    ?assert(abs(Quarter - 10_000) < 500).

random_arrivals_follow_the_rate_test() ->
    Schedule = weir_load_schedule:new([{ramp, 0, 10_000, 4 * ?S}], {poisson, 1}),
    Due = all(Schedule, 1, 1),
    ?assertEqual(20_000, length(Due)),
    Half = length([D || D <- Due, D < 2 * ?S]),
    ?assert(abs(Half - 5_000) < 300).

random_arrivals_are_exact_in_each_segment_test() ->
    Schedule = weir_load_schedule:new([{constant, 100, ?S}, {constant, 0, ?S}, {ramp, 0, 300, 2 * ?S}], {poisson, 5}),
    Due = lists:append([all(Schedule, Number, 3) || Number <- [1, 2, 3]]),
    Between = fun(From, To) -> length([D || D <- Due, D >= From * ?S, D < To * ?S]) end,
    ?assertEqual([100, 0, 300], [Between(0, 1), Between(1, 2), Between(2, 4)]).

the_same_seed_gives_the_same_arrivals_test() ->
    Of = fun(Seed) -> all(weir_load_schedule:new([{constant, 100, ?S}], {poisson, Seed}), 1, 1) end,
    ?assertEqual(Of(1), Of(1)),
    ?assertNotEqual(Of(1), Of(2)).

rates_test() ->
    Schedule = weir_load_schedule:new([{constant, 100, ?S}, {ramp, 0, 200, 2 * ?S}]),
    ?assertEqual([100.0, 100.0, 0.0, 100.0, 0.0], [
        weir_load_schedule:rate_at(Schedule, Time) || Time <- [-1, 0, ?S, 2 * ?S, 3 * ?S]
    ]).
