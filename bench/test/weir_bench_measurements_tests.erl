-module(weir_bench_measurements_tests).

-include_lib("eunit/include/eunit.hrl").

what_people_wrote_stays_test() ->
    Text = <<"# Title\n\n<!-- echo-100 -->\nold\n<!-- /echo-100 -->\n\nOur words.\n">>,
    {ok, Filled, []} = fill(Text),
    ?assertMatch({0, _}, binary:match(Filled, <<"# Title\n\n<!-- echo-100 -->\n### echo, 64 bytes">>)),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Filled, Part)})
     || Part <- [
            <<"<!-- /echo-100 -->\n\nOur words.\n">>,
            <<"bin/weir bench --only echo-100\n">>,
            <<"| OTP 25 | requests/s |">>,
            <<"| inet once | 100 (90">>
        ]
    ],
    ?assertEqual(nomatch, binary:match(Filled, <<"old">>)),
    %% Filling it again changes nothing.
    ?assertMatch({ok, Filled, _}, fill(Filled)).

what_was_not_measured_stays_test() ->
    Text = <<"<!-- echo-1000 -->\nas it was\n<!-- /echo-1000 -->\n">>,
    ?assertEqual({ok, Text, []}, fill(Text)).

results_are_named_test() ->
    {ok, Filled, []} = fill(<<"<!-- results -->\n<!-- /results -->\n">>),
    ?assertNotEqual(nomatch, binary:match(Filled, <<"- [a-file](../bench/results/a-file.md): started 2026">>)).

of_two_results_of_a_release_the_later_counts_test() ->
    #{scenarios := [{Scenario, [{Inet, _} | _]} | _]} = Record = weir_bench_record:record(),
    Later = Record#{scenarios := [{Scenario, [{Inet, [{ok, #{metrics => #{requests_per_s => 777}, errors => 0}}]}]}]},
    Documents = [{"a", weir_bench_results:document(Record)}, {"b", weir_bench_results:document(Later)}],
    {ok, Suite} = weir_bench_suite:read(),
    Text = <<"<!-- echo-100 -->\n<!-- /echo-100 -->\n">>,
    {ok, Filled, []} = weir_bench_measurements:fill(Text, Documents, Suite),
    ?assertNotEqual(nomatch, binary:match(Filled, <<"777">>)),
    ?assertEqual(nomatch, binary:match(Filled, <<"90">>)).

a_place_that_is_wrong_is_named_test_() ->
    [
        ?_assertMatch({Text, {error, _}}, {Text, fill(Text)})
     || Text <- [
            <<"<!-- echo-9 -->\n<!-- /echo-9 -->\n">>,
            <<"<!-- echo-100 -->\n">>,
            <<"<!-- echo-100 -->\n<!-- echo-1000 -->\n<!-- /echo-100 -->\n<!-- /echo-1000 -->\n">>
        ]
    ].

every_scenario_has_a_place_in_the_document_test() ->
    weir_bench_record:in_tree(),
    Places = [
        binary_to_atom(Place)
     || File <- weir_bench_tree:measurements(),
        {ok, Text} <- [file:read_file(File)],
        {ok, Names} <- [weir_bench_measurements:places(Text)],
        Place <- Names
    ],
    {ok, #{scenarios := Scenarios}} = weir_bench_suite:read(),
    ?assertEqual([], [
        Name
     || #{name := Name, chapter := Chapter} <- Scenarios,
        not lists:member(Name, Places),
        not lists:member(Chapter, Places)
    ]).

a_chapter_is_one_table_test() ->
    {ok, Filled, []} = fill(<<"<!-- echo -->\n<!-- /echo -->\n">>),
    [_, Header, _Rule, Row, <<"<!-- /echo -->">>, <<>>] = binary:split(Filled, <<"\n">>, [global]),
    ?assertMatch(<<"| work | OTP | measure | stock |", _/binary>>, Header),
    ?assertEqual(
        <<
            "| `echo-100`: echo, 64 bytes, 100 connections | 25 | requests/s · CPU µs/request | "
            "100 · – | inet once: 100 · – | 240 · – |  |  |  |"/utf8
        >>,
        Row
    ).

a_chart_that_is_shown_is_drawn_test() ->
    ?assertMatch(
        {ok, _, [{"echo-100-otp25.svg", <<"<svg ", _/binary>>}]}, fill(<<"![echo](measurements/echo-100-otp25.svg)\n">>)
    ),
    ?assertMatch({ok, _, []}, fill(<<"![echo](measurements/echo-100-otp29.svg)\n">>)).

%% The row shows the miss of one release beside the success of another.
a_missed_target_is_named_test() ->
    Verdict = #{<<"relation">> => <<"ratio_at_least">>, <<"limit">> => 2.0, <<"rival">> => <<"inet once">>},
    Verdicts = [
        Verdict#{<<"title">> => <<"reached">>, <<"measured">> => 2.1, <<"met">> => true},
        Verdict#{<<"title">> => <<"missed">>, <<"measured">> => 1.9, <<"met">> => false}
    ],
    Forgotten = Verdict#{<<"title">> => <<"forgotten">>, <<"measured">> => 1.0, <<"met">> => false},
    Recorded = weir_bench_results:document(weir_bench_record:record()),
    #{<<"machine">> := Machine} = Document = Recorded#{<<"targets">> => [Forgotten | Verdicts]},
    [Reached, Missed] = Verdicts,
    Later = Document#{
        <<"machine">> := Machine#{<<"otp">> := <<"29.1">>},
        <<"targets">> := [Reached, Missed#{<<"limit">> => 1.7, <<"met">> => true}]
    },
    {ok, Suite} = weir_bench_suite:read(),
    {ok, Filled, []} = weir_bench_measurements:fill(
        <<"<!-- targets -->\n<!-- /targets -->\n">>, [{"a", Document}, {"b", Later}],
        Suite#{targets := [#{title => <<"reached">>}, #{title => <<"missed">>}]}
    ),
    [?assertNotEqual({Part, nomatch}, {Part, binary:match(Filled, Part)})
     || Part <- [
            <<"OTP 25: 1 of 2 met; OTP 29: 2 of 2 met. Missed by">>,
            <<"| work | target | OTP 25 | OTP 29 |\n">>,
            <<"| missed | ≥ 1.7× inet once<br>≥ 2.0× inet once | **1.90×** | 1.90× |\n"/utf8>>
        ]],
    ?assertEqual(nomatch, binary:match(Filled, <<"reached">>)),
    ?assertEqual(nomatch, binary:match(Filled, <<"forgotten">>)).

fill(Text) ->
    {ok, Suite} = weir_bench_suite:read(),
    weir_bench_measurements:fill(Text, [{"a-file", weir_bench_results:document(weir_bench_record:record())}], Suite).
