-module(weir_bench_machine_tests).

-include_lib("eunit/include/eunit.hrl").

a_server_has_a_core_and_its_driver_another_test() ->
    Cores = #{pinned => [2, 5], note => none},
    ?assertEqual(
        {["taskset", "-c", "2"], [["taskset", "-c", "5"]]}, weir_bench_machine:placement(apart, Cores)
    ).

schedulers_share_their_cores_with_a_driver_each_test() ->
    Cores = #{pinned => [2, 5], note => none},
    ?assertEqual(
        {["taskset", "-c", "2"], [["taskset", "-c", "2"]]}, weir_bench_machine:placement({together, 1}, Cores)
    ),
    ?assertEqual(
        {["taskset", "-c", "2,5"], [["taskset", "-c", "2"], ["taskset", "-c", "5"]]},
        weir_bench_machine:placement({together, 2}, Cores)
    ).

where_nothing_can_be_pinned_there_are_as_many_drivers_test() ->
    Cores = #{pinned => [], note => <<"why">>},
    ?assertEqual({[], [[]]}, weir_bench_machine:placement(apart, Cores)),
    ?assertEqual({[], [[], []]}, weir_bench_machine:placement({together, 2}, Cores)).

connections_are_as_many_as_wanted_or_fewer_test() ->
    ?assertEqual(1, weir_bench_machine:connections(1)),
    ?assert(weir_bench_machine:connections(100000) =< 100000).
