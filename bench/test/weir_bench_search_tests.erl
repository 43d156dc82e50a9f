-module(weir_bench_search_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SEARCH, #{over => rate, start => 6000, least => 1500, most => 48000, metric => p99_us, limit => 100_000}).

the_highest_rate_that_is_held_comes_with_its_figures_test() ->
    {ok, #{metrics := #{held_per_s := Held, p99_us := P99}}} = most(fun(Rate) -> sample(Rate, 10_000, 0, 0) end),
    ?assert(Held =< 10_000 andalso Held >= 9000),
    %% The figures are from the run in which the value was held.
    ?assertEqual(Held, P99).

what_fails_or_is_missed_is_not_held_test_() ->
    Held = fun(Measure) ->
        {ok, #{metrics := #{held_per_s := Rate}}} = most(Measure),
        Rate
    end,
    Broken = fun(Result) ->
        fun
            (Rate) when Rate > 10_000 -> Result;
            (Rate) -> sample(Rate, 50_000, 0, 0)
        end
    end,
    [
        ?_assertEqual({What, true}, {What, Held(Broken(Result)) =< 10_000})
     || {What, Result} <- [
            {errors, sample(1, 50_000, 1, 0)},
            {missed, sample(1, 50_000, 0, 1)},
            {nothing_at_all, {error, <<"not one">>}}
        ]
    ].

at_the_ends_it_is_told_test() ->
    ?assertMatch(
        {ok, #{metrics := #{held_per_s := 48000}, notes := [<<"held to the end", _/binary>>]}},
        most(fun(Rate) -> sample(Rate, 50_000, 0, 0) end)
    ),
    ?assertMatch(
        {ok, #{metrics := #{held_per_s := 0}, notes := [<<"not even 1,500", _/binary>>]}},
        most(fun(Rate) -> sample(Rate, 100, 0, 0) end)
    ).

a_server_that_never_starts_is_an_error_test() ->
    ?assertEqual({error, <<"no server">>}, most(fun(_) -> {error, <<"no server">>} end)).

connections_are_looked_for_as_well_test() ->
    Search = ?SEARCH#{over := connections},
    {ok, #{metrics := Metrics}} = weir_bench_search:most(Search, fun(Count) -> sample(Count, 50_000, 0, 0) end),
    ?assertMatch(#{connections := 48000}, Metrics),
    ?assertNot(is_map_key(held_per_s, Metrics)).

most(Measure) -> weir_bench_search:most(?SEARCH, Measure).

%% A server that holds up to a rate. The percentile is the rate, or above the limit.
sample(Rate, Most, Errors, Missed) ->
    P99 = if Rate =< Most -> Rate; true -> 100_001 end,
    {ok, #{metrics => #{p99_us => P99, missed => Missed}, errors => Errors}}.
