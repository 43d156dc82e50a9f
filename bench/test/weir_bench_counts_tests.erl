-module(weir_bench_counts_tests).

-include_lib("eunit/include/eunit.hrl").

%% Twenty intervals of 50 ms: connections open, then 40 futexes in each interval under load, then connections close.
futexes_are_counted_in_the_middle_of_the_load_test() ->
    Counts = lists:duplicate(4, 900) ++ lists:duplicate(14, 40) ++ [500, 700],
    Lines = [line(Number, Count) || {Number, Count} <- lists:zip(lists:seq(1, 20), Counts)],
    {ok, PerSecond} = weir_bench_counts:futexes_per_s(Lines, 600),
    ?assertEqual(800, round(PerSecond)).

a_line_without_a_count_is_none_test() ->
    Format = "     ~.9f,<not counted>,,syscalls:sys_enter_futex,0,100.00,,",
    Lines = [iolist_to_binary(io_lib:format(Format, [Number / 20])) || Number <- lists:seq(1, 20)],
    ?assertEqual({ok, 0.0}, weir_bench_counts:futexes_per_s(Lines, 600)).

what_is_no_count_is_said_test() ->
    ?assertEqual(none, weir_bench_counts:futexes_per_s([], 600)),
    ?assertEqual(none, weir_bench_counts:futexes_per_s([<<"event syntax error: 'syscalls:sys_enter_futex'">>], 600)),
    ?assertEqual(none, weir_bench_counts:futexes_per_s([line(Number, 1) || Number <- [1, 2, 3]], 600)).

places_are_those_of_most_connections_test() ->
    Lines = [<<"places 0 0 10 10">>, <<"places 400 100 1000 750">>, <<"places 200 0 900 100">>, <<"=ERROR REPORT">>],
    Places = weir_bench_counts:places(Lines),
    ?assertEqual(#{away_percent => 25.0, busiest_percent => 75.0}, Places),
    ?assertEqual(#{}, weir_bench_counts:places([<<"places 0 0 0 0">>])),
    ?assertEqual(#{}, weir_bench_counts:places([])).

line(Number, Count) ->
    iolist_to_binary(io_lib:format("     ~.9f,~b,,syscalls:sys_enter_futex,1091476,100.00,,", [Number / 20, Count])).
