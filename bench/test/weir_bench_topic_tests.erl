-module(weir_bench_topic_tests).

-include_lib("eunit/include/eunit.hrl").

%% Third-party programs are peers even if they run on Weir. Servers written for Weir are not shown as its drop-in.
contestants_stand_in_the_column_of_what_they_are_test() ->
    {Header, [Row]} = weir_bench_topic:table([{<<"some">>, [{<<"25">>, scenario()}]}], #{<<"some">> => <<"Some">>}),
    Cells = maps:from_list(lists:zip(Header, [unicode:characters_to_list(Cell) || Cell <- Row])),
    ?assertMatch(
        #{
            "stock" := "1", "OTP's best" := "socket once: 2", "drop-in" := "3",
            "Weir's own way" := "weir http: 4; weir websocket: 5; echo reactor: 6", "native" := "7",
            "peers" := "nginx: 8; cowboy: 9; cowboy on weir: 10; ehttpd: 11; ranch on weir once: 12"
        },
        Cells
    ).

%% A contestant with two schedulers is shown beside the one with one, and in no other column.
two_schedulers_stand_beside_one_test() ->
    #{<<"contestants">> := [Inet | _] = Contestants} = Scenario = scenario(),
    Two = [
        Inet#{<<"title">> := <<"inet once, 2:2">>},
        Inet#{<<"title">> := <<"weir once, 2:2">>, <<"backend">> := <<"weir">>}
    ],
    {_, [Row]} = weir_bench_topic:table(
        [{<<"some">>, [{<<"25">>, Scenario#{<<"contestants">> := Contestants ++ Two}}]}], #{<<"some">> => <<"Some">>}
    ),
    [_, _, _, Stock, Best, DropIn, Own | _] = [unicode:characters_to_list(Cell) || Cell <- Row],
    ?assertEqual({"1; 2:2 1", "socket once: 2", "3; 2:2 1"}, {Stock, Best, DropIn}),
    ?assertEqual("weir http: 4; weir websocket: 5; echo reactor: 6", Own).

%% Releases share a row: equal values are shown once, missing ones as a dash.
releases_are_lines_of_a_cell_test() ->
    #{<<"contestants">> := Contestants} = Scenario = scenario(),
    Others = Scenario#{
        <<"contestants">> := [Other || #{<<"backend">> := Backend} = Other <- Contestants, Backend =/= <<"reference">>]
    },
    {_, [Row]} = weir_bench_topic:table([{<<"some">>, [{<<"25">>, scenario()}, {<<"29">>, Others}]}], #{
        <<"some">> => <<"Some">>
    }),
    [Work, Release, Measure, Stock, _, _, _, Native, _] = [unicode:characters_to_binary(Cell) || Cell <- Row],
    ?assertEqual([<<"`some`: Some">>, <<"25<br>29">>, <<"requests/s">>, <<"1">>], [Work, Release, Measure, Stock]),
    ?assertEqual(<<"7<br>–"/utf8>>, Native).

scenario() ->
    Titles = [
        {<<"inet once">>, <<"inet">>}, {<<"socket once">>, <<"socket">>}, {<<"weir once">>, <<"weir">>},
        {<<"weir http">>, <<"weir">>}, {<<"weir websocket">>, <<"weir">>}, {<<"echo reactor">>, <<"weir">>},
        {<<"native">>, <<"reference">>}, {<<"nginx">>, <<"nginx">>}, {<<"cowboy">>, <<"inet">>},
        {<<"cowboy on weir">>, <<"weir">>}, {<<"ehttpd">>, <<"inet">>}, {<<"ranch on weir once">>, <<"weir">>}
    ],
    Metric = atom_to_binary(requests_per_s),
    #{
        <<"metrics">> => [Metric],
        <<"contestants">> => [
            #{
                <<"title">> => Title, <<"backend">> => Backend,
                <<"metrics">> => #{Metric => #{<<"median">> => Number}}
            }
         || {Number, {Title, Backend}} <- lists:zip(lists:seq(1, length(Titles)), Titles)
        ]
    }.
