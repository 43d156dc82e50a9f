-module(weir_bench_machine_tests).

-include_lib("eunit/include/eunit.hrl").

a_server_has_a_core_and_its_driver_another_test() ->
    Cores = #{pinned => [2, 5], note => none},
    ?assertEqual(
        {["taskset", "-c", "2"], [["taskset", "-c", "5"]]}, weir_bench_machine:placement(apart, Cores)
    ).

together_there_is_a_driver_on_each_core_test() ->
    Cores = #{pinned => [2, 5], note => none},
    Drivers = [["taskset", "-c", "2"], ["taskset", "-c", "5"]],
    ?assertEqual({["taskset", "-c", "2"], Drivers}, weir_bench_machine:placement({together, 1}, Cores)),
    ?assertEqual({["taskset", "-c", "2,5"], Drivers}, weir_bench_machine:placement({together, 2}, Cores)).

where_nothing_can_be_pinned_there_are_as_many_drivers_test() ->
    Cores = #{pinned => [], note => <<"why">>},
    ?assertEqual({[], [[]]}, weir_bench_machine:placement(apart, Cores)),
    ?assertEqual({[], [[], []]}, weir_bench_machine:placement({together, 1}, Cores)).

a_server_with_several_cores_has_drivers_on_others_where_there_are_enough_test() ->
    Cores = weir_bench_machine:cores(),
    ?assertEqual({[], [[]]}, weir_bench_machine:placement(anywhere, Cores)),
    ?assertEqual({[], [[]]}, weir_bench_machine:placement({apart, 1, 1}, #{pinned => [], note => <<"why">>})),
    case weir_bench_machine:allowed() of
        Allowed when Allowed >= 2 ->
            {["taskset", "-c", Server], [["taskset", "-c", Driver]]} = weir_bench_machine:placement(
                {apart, Allowed - 1, 1}, Cores
            ),
            ?assertNot(lists:member(Driver, string:lexemes(Server, ","))),
            ?assertEqual(Allowed - 1, length(string:lexemes(Server, ",")));
        _ ->
            ok
    end,
    ?assertEqual({[], [[]]}, weir_bench_machine:placement({apart, weir_bench_machine:allowed(), 1}, Cores)).

connections_are_as_many_as_wanted_or_fewer_test() ->
    ?assertEqual([1], weir_bench_machine:shares(1, false)),
    [Fewer] = weir_bench_machine:shares(100_000_000, false),
    ?assert(Fewer < 100_000_000).

connections_are_spread_over_as_many_servers_as_it_takes_test() ->
    Shares = weir_bench_machine:shares(10_000_000, true),
    ?assertEqual(10_000_000, lists:sum(Shares)),
    ?assert(lists:max(Shares) - lists:min(Shares) =< 1),
    [Limit] = weir_bench_machine:shares(100_000_000, false),
    ?assert(lists:max(Shares) =< Limit),
    ?assertEqual([1], weir_bench_machine:shares(1, true)).
