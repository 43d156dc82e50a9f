-module(weir_balancer_tests).

-include_lib("eunit/include/eunit.hrl").

connections(Counts) ->
    [{Pollset, {Pollset, N}} || {Pollset, Count} <- maps:to_list(Counts), N <- lists:seq(1, Count)].

even_loads_stay_test() ->
    ?assertEqual([], weir_balancer:moves(#{1 => 100, 2 => 119}, 20, connections(#{1 => 50, 2 => 50}))),
    ?assertEqual([], weir_balancer:moves(#{1 => 0, 2 => 0}, 20, connections(#{1 => 50, 2 => 50}))),
    ?assertEqual([], weir_balancer:moves(#{1 => 7}, 20, connections(#{1 => 50}))).

the_busiest_gives_to_the_idlest_test() ->
    Moves = weir_balancer:moves(#{1 => 400, 2 => 1000, 3 => 0}, 20, connections(#{1 => 10, 2 => 100, 3 => 0})),
    ?assertEqual(25, length(Moves)),
    ?assert(lists:all(fun({{From, _}, To}) -> {From, To} =:= {2, 3} end, Moves)).

no_more_than_makes_up_half_the_difference_test() ->
    ?assertEqual(10, length(weir_balancer:moves(#{1 => 1000, 2 => 800}, 10, connections(#{1 => 100, 2 => 100})))).

one_busy_connection_stays_test() ->
    ?assertEqual([], weir_balancer:moves(#{1 => 1000, 2 => 0}, 20, connections(#{1 => 1, 2 => 9}))).

loads_are_differences_test() ->
    ?assertEqual(#{1 => 0, 2 => 5}, weir_balancer:since(#{2 => 10}, #{1 => 99, 2 => 15})).
