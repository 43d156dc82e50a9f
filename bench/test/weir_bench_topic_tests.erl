-module(weir_bench_topic_tests).

-include_lib("eunit/include/eunit.hrl").

%% Programs of others stand among peers, also where they run on Weir; what is written for Weir does not pass for its drop-in.
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
