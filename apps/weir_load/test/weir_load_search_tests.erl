-module(weir_load_search_tests).

-include_lib("eunit/include/eunit.hrl").

%% A server that keeps the promise up to a rate.
up_to(Most) -> fun(Rate) when Rate =< Most -> kept; (_Rate) -> broken end.

the_limit_is_found_from_below_and_above_test_() ->
    [
        fun() ->
            {ok, #{kept := Kept, broken := Broken, limit := server}} = weir_load_search:search(up_to(Most), Start),
            ?assert(Kept =< Most andalso Most < Broken),
            ?assert(Broken - Kept =< 0.05 * Broken)
        end
     || Most <- [10, 777, 5000, 123_456], Start <- [50, 1000, 200_000]
    ].

nothing_is_kept_test() ->
    ?assertMatch({ok, #{kept := none, limit := server}}, weir_load_search:search(fun(_) -> broken end, 1000)).

nothing_is_broken_test() ->
    ?assertMatch({ok, #{broken := none}}, weir_load_search:search(fun(_) -> kept end, 1000)).

the_generator_is_the_limit_test() ->
    Try = fun(Rate) when Rate =< 3000 -> kept; (_Rate) -> unoffered end,
    ?assertMatch({ok, #{limit := generator}}, weir_load_search:search(Try, 1000)).

one_bad_moment_decides_nothing_test() ->
    Counter = counters:new(1, []),
    Try = fun(Rate) ->
        ok = counters:add(Counter, 1, 1),
        case counters:get(Counter, 1) of
            3 -> broken;
            _ -> (up_to(5000))(Rate)
        end
    end,
    {ok, #{kept := Kept, tries := Tries}} = weir_load_search:search(Try, 1000),
    ?assert(Kept > 4700),
    ?assertEqual([{1000, kept}, {1000, kept}, {2000, broken}, {2000, kept}, {2000, kept}], lists:sublist(Tries, 5)).

within_bounds_test_() ->
    [
        ?_assertMatch(
            {ok, #{kept := 19_000, broken := none}},
            weir_load_search:search(fun(_) -> kept end, 5000, #{most => 19_000})
        ),
        ?_assertMatch(
            {ok, #{kept := none, broken := 1500.0}},
            weir_load_search:search(fun(_) -> broken end, 6000, #{least => 1500})
        ),
        fun() ->
            {ok, #{kept := Kept, broken := Broken}} = weir_load_search:search(up_to(777), 1000, #{precision => 0.2}),
            ?assert(Kept =< 777 andalso 777 < Broken),
            ?assert(Broken - Kept > 0.1 * Broken)
        end
    ].

what_is_kept_once_is_not_tried_again_test() ->
    {ok, #{kept := 2000, tries := Tries}} =
        weir_load_search:search(up_to(2100), 1000, #{once => true, precision => 0.3}),
    ?assertEqual(
        [
            {1000, kept},
            {2000, kept},
            {4000, broken},
            {4000, broken},
            {3000.0, broken},
            {3000.0, broken},
            {2500.0, broken},
            {2500.0, broken}
        ],
        Tries
    ).

a_stop_ends_it_test() ->
    Try = fun(1000) -> kept; (_) -> stopped end,
    ?assertMatch({stopped, #{kept := 1000}}, weir_load_search:search(Try, 1000)).
