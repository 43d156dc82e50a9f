-module(weir_bench_report_tests).

-include_lib("eunit/include/eunit.hrl").

a_document_has_median_and_spread_of_each_contestant_test() ->
    Json = weir_bench_results:document(weir_bench_record:record()),
    #{<<"complete">> := false, <<"machine">> := #{<<"kernel">> := <<"6.1">>}, <<"scenarios">> := [Scenario | _]} = Json,
    #{<<"name">> := <<"echo-100">>, <<"contestants">> := [Inet, _Weir, Native | _]} = Scenario,
    ?assertMatch(
        #{<<"rounds">> := 3, <<"metrics">> := #{<<"requests_per_s">> := #{<<"median">> := 100, <<"max">> := 110}}}, Inet
    ),
    ?assertMatch(#{<<"metrics">> := #{}, <<"failures">> := [<<"it fell">>], <<"errors">> := 0}, Native).

a_document_is_read_from_its_file_test() ->
    {ok, Directory} = file:get_cwd(),
    File = filename:join([Directory, "_build", "weir_bench_report_tests.json"]),
    Document = weir_bench_results:document(weir_bench_record:record()),
    ok = file:write_file(File, weir_bench_results:text(Document)),
    ?assertEqual({ok, Document}, weir_bench_results:read(File)),
    ?assertEqual(<<"25">>, weir_bench_results:release(Document)),
    ok = file:write_file(File, "{}"),
    {error, Message} = weir_bench_results:read(File),
    ok = file:delete(File),
    ?assertNotEqual(nomatch, string:find(Message, "no results")),
    ?assertMatch({error, _}, weir_bench_results:read(File)).

%% So that a file of a whole run can be read by people, and its changes too.
each_contestant_is_a_line_of_its_file_test() ->
    Text = iolist_to_binary(weir_bench_results:text(weir_bench_results:document(weir_bench_record:record()))),
    ?assertMatch(
        [_],
        [
            Line
         || <<"{\"scenario\": \"echo-100\", \"contestant\": \"inet once\", \"backend\": \"inet\", \"rounds\": 3, ",
                "\"requests_per_s\": [100,90,110]}", _/binary>> = Line <- binary:split(Text, <<"\n">>, [global])
        ]
    ).

%% Every clone of the tree contains them.
the_results_in_the_tree_are_short_test() ->
    ok = weir_bench_record:in_tree(),
    Lines = [
        length(binary:matches(Text, <<"\n">>))
     || File <- filelib:wildcard(filename:join(weir_bench_tree:results(), "*.json")),
        {ok, Text} <- [file:read_file(File)]
    ],
    ?assert(lists:sum(Lines) =< 3000).

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
