-module(weir_load_search_tests).

-include_lib("eunit/include/eunit.hrl").

%% A server that keeps its promise up to a rate.
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

a_stop_ends_it_test() ->
    Try = fun(1000) -> kept; (_) -> stopped end,
    ?assertMatch({stopped, #{kept := 1000}}, weir_load_search:search(Try, 1000)).
