%% The buckets in which callback times are counted.
-module(weir_reactor_times_tests).

-include_lib("eunit/include/eunit.hrl").

native(Nanoseconds) -> erlang:convert_time_unit(Nanoseconds, nanosecond, native).

seen(All) ->
    Times = weir_reactor_times:new(),
    [ok = weir_reactor_times:callback(native(Took), Times) || Took <- All],
    #{times := Seen} = weir_reactor_times:seen(Times),
    Seen.

%% From 128 ns to the longest time, buckets are 128 ns or an eighth of the time wide, and a bucket is reported as its
%% middle.
a_time_is_near_itself_test() ->
    lists:foreach(
        fun(Took) ->
            [{Told, 1}] = seen([Took]),
            ?assert(abs(Told - Took) =< 64 + Took div 16, {Took, Told})
        end,
        [(1 bsl Power) + (Part bsl Power) div 16 || Power <- lists:seq(0, 36), Part <- lists:seq(0, 15)]
    ).

in_the_order_of_their_times_test() ->
    Seen = seen([1 bsl Power || Power <- lists:seq(36, 0, -1)]),
    ?assertEqual(lists:sort(Seen), Seen),
    ?assertEqual(37, lists:sum([Count || {_, Count} <- Seen])).

beyond_the_longest_test() ->
    [{Longest, 2}] = seen([1 bsl 37 - 1, 1 bsl 50]),
    ?assert(Longest > 1 bsl 36).

totals_test() ->
    Times = weir_reactor_times:new(),
    ?assertEqual(#{callbacks => 0, callback_ns => 0}, weir_reactor_times:totals(Times)),
    [ok = weir_reactor_times:batch(Events, native(Took), Times) || {Events, Took} <- [{1, 500}, {64, 100_000}]],
    ?assertEqual(#{callbacks => 65, callback_ns => 100_500}, weir_reactor_times:totals(Times)),
    ?assertMatch(#{measured := false, times := []}, weir_reactor_times:seen(Times)),
    ok = weir_reactor_times:measures(true, Times),
    ?assertMatch(#{measured := true}, weir_reactor_times:seen(Times)),
    ok = weir_reactor_times:measures(false, Times),
    ?assertMatch(#{measured := false}, weir_reactor_times:seen(Times)).
