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

results_are_named_with_their_machine_test() ->
    {ok, Filled, []} = fill(<<"<!-- results -->\n<!-- /results -->\n">>),
    Line = <<"- [a-file](../bench/results/a-file.json): OTP 25.2, A <processor>, 2 cores, Linux 6.1, 3 rounds">>,
    ?assertNotEqual(nomatch, binary:match(Filled, <<Line/binary, "; nginx 1.22\n">>)).

of_two_results_of_a_release_the_later_counts_test() ->
    #{scenarios := [{Scenario, [{Inet, _} | _]} | _]} = Record = weir_bench_record:record(),
    Later = Record#{scenarios := [{Scenario, [{Inet, [{ok, #{metrics => #{requests_per_s => 777}, errors => 0}}]}]}]},
    Documents = [{"a.json", weir_bench_results:document(Record)}, {"b.json", weir_bench_results:document(Later)}],
    Text = <<"<!-- echo-100 -->\n<!-- /echo-100 -->\n">>,
    {ok, Filled, []} = weir_bench_measurements:fill(Text, (sources())#{results := Documents}),
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

a_chapter_is_all_scenarios_without_a_place_of_their_own_test() ->
    Places = [
        [<<"<!-- ">>, Name, <<" -->\n<!-- /">>, Name, <<" -->\n">>]
     || Name <- ["connections", "echo", "echo-100"]
    ],
    {ok, Filled, []} = fill(iolist_to_binary(Places)),
    ?assertMatch({0, _}, binary:match(Filled, <<"<!-- connections -->\n### connect, a request of 26 bytes">>)),
    ?assertNotEqual(nomatch, binary:match(Filled, <<"<!-- echo -->\n<!-- /echo -->">>)).

a_place_in_a_sentence_stays_in_its_line_test() ->
    {ok, Filled, []} = fill(<<"It runs: <!-- conformance -->old<!-- /conformance -->.\n">>),
    ?assertEqual(
        <<"It runs: <!-- conformance -->of 9 cases on OTP 25, 5 match, 1 do worse (reasons listed) and 3 do not apply",
            "<!-- /conformance -->.\n">>,
        Filled
    ).

a_chart_that_is_shown_is_drawn_test() ->
    ?assertMatch(
        {ok, _, [{"echo-100-otp25.svg", <<"<svg ", _/binary>>}]}, fill(<<"![echo](measurements/echo-100-otp25.svg)\n">>)
    ),
    ?assertMatch({ok, _, []}, fill(<<"![echo](measurements/echo-100-otp29.svg)\n">>)).

targets_are_counted_by_release_test() ->
    Verdict = #{<<"relation">> => <<"ratio_at_least">>, <<"limit">> => 2.0, <<"rival">> => <<"inet once">>},
    Reached = Verdict#{<<"title">> => <<"reached">>, <<"measured">> => 2.1, <<"met">> => true},
    Missed = Verdict#{<<"title">> => <<"missed">>, <<"measured">> => 1.9, <<"met">> => false},
    Forgotten = Verdict#{<<"title">> => <<"forgotten">>, <<"measured">> => 1.0, <<"met">> => false},
    #{<<"machine">> := Machine} = Recorded = weir_bench_results:document(weir_bench_record:record()),
    Document = Recorded#{<<"targets">> := [Forgotten, Reached, Missed]},
    Later = Document#{<<"machine">> := Machine#{<<"otp">> := <<"29.1">>}, <<"targets">> := [Reached]},
    #{suite := Suite} = Sources = sources(),
    {ok, Filled, []} = weir_bench_measurements:fill(<<"<!-- targets --><!-- /targets -->">>, Sources#{
        results := [{"a.json", Document}, {"b.json", Later}],
        suite := Suite#{targets := [#{title => <<"reached">>}, #{title => <<"missed">>}]}
    }),
    ?assertEqual(<<"<!-- targets -->OTP 29: 1 of 1; OTP 25: 1 of 2<!-- /targets -->">>, Filled),
    ?assertEqual(
        <<"missed target: missed: ≥ 2.0× inet once, measured 1.90×\n"/utf8>>,
        unicode:characters_to_binary(weir_bench_report:missed(Document#{<<"targets">> := [Reached, Missed]}))
    ).

%% `bin/weir bench document' has not been run since results or definitions changed.
documents_are_up_to_date_test() ->
    ok = weir_bench_record:in_tree(),
    {ok, Contents} = weir_bench_measurements:contents(),
    ?assertEqual([], [File || {File, Content} <- Contents, file:read_file(File) =/= {ok, Content}]).

every_table_is_shown_and_every_figure_was_measured_test() ->
    ok = weir_bench_record:in_tree(),
    {ok, Comparisons} = weir_bench_comparison:read(),
    Texts = [Text || File <- weir_bench_tree:measurements(), {ok, Text} <- [file:read_file(File)]],
    Places = lists:append([Names || Text <- Texts, {ok, Names} <- [weir_bench_measurements:places(Text)]]),
    ?assertEqual([], maps:keys(Comparisons) -- Places),
    ?assertEqual([], [Text || Text <- Texts, binary:match(Text, <<"| ? ">>) =/= nomatch]).

every_chart_in_the_tree_is_shown_test() ->
    ok = weir_bench_record:in_tree(),
    {ok, Contents} = weir_bench_measurements:contents(),
    [Directory | _] = [filename:dirname(File) || {File, _} <- Contents, filename:extension(File) =:= ".svg"],
    Charts = filelib:wildcard(filename:join(Directory, "*.svg")),
    ?assertEqual([], Charts -- [File || {File, _} <- Contents]).

fill(Text) -> weir_bench_measurements:fill(Text, sources()).

sources() ->
    {ok, Suite} = weir_bench_suite:read(),
    #{
        results => [{"a-file.json", weir_bench_results:document(weir_bench_record:record())}],
        suite => Suite,
        comparisons => #{},
        conformance => <<"9 cases: 5 same, 0 better, 1 worse, 3 not on Weir.">>
    }.
