-module(weir_bench_scaling_tests).

-include_lib("eunit/include/eunit.hrl").

schedulers_are_as_many_as_half_of_the_cores_or_those_that_are_counted_test() ->
    ?assertEqual([1, 2, 4, 8, 16], weir_bench_scaling:numbers(32)),
    ?assertEqual([1, 2, 4, 8, 16], weir_bench_scaling:numbers(40)),
    ?assertEqual([1, 2, 4], weir_bench_scaling:numbers(8)),
    [?assertEqual([1, 2, 8], weir_bench_scaling:numbers(Few)) || Few <- [0, 1, 2, 4, 7]].

all_of_a_run_is_measured_in_one_way_test() ->
    ?assertEqual({apart, 32}, weir_bench_scaling:mode([1, 2, 16], 32)),
    ?assertEqual(counted, weir_bench_scaling:mode([1, 2, 17], 32)),
    ?assertEqual({apart, 4}, weir_bench_scaling:mode([1, 2], 4)),
    %% One scheduler is measured in the same mode as two.
    ?assertEqual(counted, weir_bench_scaling:mode([1], 2)).

each_contestant_is_there_with_each_number_test() ->
    {ok, #{scenarios := Scenarios}} = weir_bench_scaling:read(),
    [
        begin
            #{contestants := All} = Over = weir_bench_scaling:over(Scenario, [1, 4], {apart, 16}),
            ?assertEqual(2 * length(Contestants), length(All)),
            ?assertEqual(ok, weir_bench_scenario:complete(Over)),
            ?assertEqual([1, 4], lists:usort([Number || #{schedulers := Number} <- All])),
            Plain = lists:usort([weir_bench_scenario:plain_title(Title) || #{title := Title} <- All]),
            ?assertEqual(lists:usort([Title || #{title := Title} <- Contestants]), Plain)
        end
     || #{contestants := Contestants} = Scenario <- Scenarios
    ].

drivers_have_cores_of_their_own_or_none_have_test() ->
    [Scenario | _] = scenarios(),
    Placed = fun(Mode) ->
        #{contestants := [One | _]} = weir_bench_scaling:over(Scenario, [1, 8], Mode),
        maps:with([drivers, pinned], One)
    end,
    ?assertEqual(#{drivers => 2}, Placed({apart, 16})),
    ?assertEqual(#{pinned => false}, Placed(counted)),
    #{contestants := [_, Eight | _]} = weir_bench_scaling:over(Scenario, [1, 8], {apart, 20}),
    ?assertMatch(#{drivers := 12, title := <<"weir once, 8:8">>}, Eight).

counted_rates_come_last_and_latencies_not_at_all_test() ->
    [Scenario | _] = scenarios(),
    #{metrics := [requests_per_s | _] = Apart} = weir_bench_scaling:over(Scenario, [1, 2], {apart, 8}),
    #{metrics := [cpu_us_per_request | _] = Counted} = weir_bench_scaling:over(Scenario, [1, 2], counted),
    ?assertEqual([p99_us], Apart -- Counted),
    ?assertEqual(requests_per_s, lists:last(Counted)).

%% A scenario with the name of one of the bench would write into the tables of the bench.
names_are_others_than_those_of_the_bench_test() ->
    {ok, #{scenarios := Bench}} = weir_bench_suite:read(),
    Names = [Name || #{name := Name} <- scenarios()],
    ?assertEqual(Names, Names -- [Name || #{name := Name} <- Bench]).

a_curve_has_a_line_for_each_contestant_test() ->
    Contestant = fun(Title, Schedulers, Value) ->
        #{
            <<"title">> => Title,
            <<"schedulers">> => Schedulers,
            <<"metrics">> => #{<<"requests_per_s">> => #{<<"median">> => Value}}
        }
    end,
    Document = #{
        <<"over">> => <<"schedulers">>,
        <<"title">> => <<"a < b">>,
        <<"metrics">> => [<<"requests_per_s">>],
        <<"contestants">> => [
            Contestant(<<"weir, 1:1">>, 1, 100),
            Contestant(<<"weir, 2:2">>, 2, 180),
            Contestant(<<"inet, 1:1">>, 1, 50),
            #{<<"title">> => <<"inet, 2:2">>, <<"schedulers">> => 2, <<"metrics">> => #{}}
        ]
    },
    {ok, Svg} = weir_bench_chart:svg(Document),
    Text = unicode:characters_to_binary(Svg),
    Count = fun(Part) -> length(binary:matches(Text, Part)) end,
    ?assertEqual({2, 3, 1}, {Count(<<"class=\"curve\"">>), Count(<<"<circle">>), Count(<<"a &lt; b">>)}),
    ?assertEqual(none, weir_bench_chart:svg(Document#{<<"contestants">> := []})).

scenarios() ->
    {ok, #{scenarios := Scenarios}} = weir_bench_scaling:read(),
    Scenarios.
