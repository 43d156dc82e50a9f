-module(weir_bench_report_tests).

-include_lib("eunit/include/eunit.hrl").

a_document_has_every_measurement_test() ->
    Json = weir_bench_results:document(weir_bench_record:record()),
    #{<<"complete">> := false, <<"machine">> := #{<<"kernel">> := <<"6.1">>}, <<"scenarios">> := [Scenario | _]} = Json,
    #{<<"name">> := <<"echo-100">>, <<"contestants">> := [Inet, _Weir, Native | _]} = Scenario,
    ?assertMatch(#{<<"metrics">> := #{<<"requests_per_s">> := #{<<"samples">> := [90, 110, 100]}}}, Inet),
    ?assertMatch(#{<<"metrics">> := #{}, <<"failures">> := [<<"it fell">>], <<"errors">> := 0}, Native).

a_document_is_read_from_its_file_test() ->
    {ok, Directory} = file:get_cwd(),
    File = filename:join([Directory, "_build", "weir_bench_report_tests.json"]),
    Document = weir_bench_results:document(weir_bench_record:record()),
    ok = file:write_file(File, weir_json:encode(Document)),
    ?assertEqual({ok, Document}, weir_bench_results:read(File)),
    ?assertEqual(<<"25">>, weir_bench_results:release(Document)),
    ok = file:write_file(File, "{}"),
    {error, Message} = weir_bench_results:read(File),
    ok = file:delete(File),
    ?assertNotEqual(nomatch, string:find(Message, "no results")),
    ?assertMatch({error, _}, weir_bench_results:read(File)).

a_document_as_markdown_is_medians_and_spread_test() ->
    Text = markdown(weir_bench_record:record()),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [
            <<"| inet once | 100 (90–110) |"/utf8>>,
            <<"| native |  |">>,
            <<"native: failed, it fell">>,
            <<"weir once: 2 errors.">>,
            <<"go: skipped, go is not installed.">>,
            <<"bin/weir bench --only echo-100">>,
            <<"peers | nginx 1.22">>,
            <<"not all is here">>
        ]
    ].

a_target_names_its_rival_test() ->
    #{suite := Suite} = Record = weir_bench_record:record(),
    Target = fun(Rival, Relation, Limit) ->
        #{
            title => <<"echo">>, scenario => 'echo-100', metric => requests_per_s, contestant => <<"weir once">>,
            rival => Rival, relation => Relation,
            limits => #{list_to_integer(erlang:system_info(otp_release)) => Limit}
        }
    end,
    Text = markdown(Record#{
        suite := Suite#{
            targets := [
                Target(<<"inet once">>, ratio_at_least, 2.5),
                Target({best_of, [<<"inet once">>]}, ratio_at_most, 2),
                Target(<<"inet once">>, difference_at_most, 200),
                Target(nobody, at_most, 100),
                Target(<<"native">>, ratio_at_least, 0.9)
            ]
        }
    }),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, unicode:characters_to_binary(Part))})
     || Part <- [
            "≥ 2.5× inet once | 2.40× | **no** |", "≤ 2× the best of inet once | 2.40× | **no** |",
            "≤ 200 more than inet once | 140.000 | yes |", "≤ 100 | 240 | **no** |"
        ]
    ],
    %% The target was not measured, so it is left out.
    ?assertEqual(nomatch, binary:match(Text, <<"0.9">>)).

what_needs_a_peer_that_is_not_there_is_skipped_with_a_word_test() ->
    ok = weir_bench_record:in_tree(),
    case weir_bench_peers:missing([cowboy]) of
        [] ->
            ok;
        [cowboy] ->
            {ok, #{scenarios := Scenarios}} = weir_bench_suite:read(),
            [Cowboy] = [Scenario || #{name := 'cowboy-100'} = Scenario <- Scenarios],
            Ignored = fun(_) -> ok end,
            Cores = #{pinned => [], note => none},
            [{_, [Result]} | _] = weir_bench_rounds:run(Cowboy, 1, Cores, fun(_, _) -> ok end, Ignored),
            ?assertEqual({skipped, <<"cowboy is not installed">>}, Result)
    end.

the_report_is_the_last_object_that_was_printed_test_() ->
    [
        ?_assertEqual({ok, #{<<"a">> => 2}}, weir_bench_driver:report([<<"{\"a\":1}">>, <<"{\"a\":2}">>, <<"bye">>])),
        ?_assertMatch({error, _}, weir_bench_driver:report([<<"bye">>])),
        ?_assertMatch({error, _}, weir_bench_driver:report([<<"{\"a\":">>]))
    ].

markdown(Record) ->
    unicode:characters_to_binary(weir_bench_report:markdown(weir_bench_results:document(Record))).
