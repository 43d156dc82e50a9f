-module(weir_bench_table_tests).

-include_lib("eunit/include/eunit.hrl").

words_stand_left_and_figures_right_test() ->
    ?assertEqual(
        "work  server    p50 µs\n"
        "----  -------  -------\n"
        "echo  gen_tcp      103\n"
        "echo  Weir     242,000\n",
        unicode:characters_to_list(
            weir_bench_table:text(["work", "server", <<"p50 µs"/utf8>>], [
                ["echo", "gen_tcp", "103"], [<<"echo">>, <<"Weir">>, "242,000"]
            ])
        )
    ).

markdown_test() ->
    ?assertEqual(
        "|  | a |\n| --- | ---: |\n| b | 1 |\n",
        unicode:characters_to_list(weir_bench_table:markdown(["", "a"], [["b", "1"]]))
    ).

thousands_test_() ->
    [
        ?_assertEqual(Text, lists:flatten(weir_bench_table:number(Number)))
     || {Number, Text} <- [{0, "0"}, {999, "999"}, {1000, "1,000"}, {1002003, "1,002,003"}, {-1234, "-1,234"}]
    ].
