-module(weir_bench_report_tests).

-include_lib("eunit/include/eunit.hrl").

a_record_as_json_has_every_measurement_test() ->
    {ok, Json} = weir_load_json:decode(iolist_to_binary(weir_bench_report:json(record()))),
    #{<<"complete">> := false, <<"machine">> := #{<<"kernel">> := <<"6.1">>}, <<"scenarios">> := [Scenario]} = Json,
    #{<<"name">> := <<"echo-100">>, <<"contestants">> := [Inet, _Weir, Native]} = Scenario,
    ?assertMatch(#{<<"metrics">> := #{<<"requests_per_s">> := #{<<"samples">> := [90, 110, 100]}}}, Inet),
    ?assertMatch(#{<<"metrics">> := #{}, <<"failures">> := [<<"it fell">>], <<"errors">> := 0}, Native).

a_record_as_markdown_is_medians_and_spread_test() ->
    Text = markdown(),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [
            <<"| inet once | 100 (90–110) |"/utf8>>,
            <<"| native |  |">>,
            <<"native: failed, it fell">>,
            <<"weir once: 2 errors.">>,
            <<"not all is here">>
        ]
    ].

targets_are_told_with_what_was_measured_test() ->
    Median = fun
        ('echo-100', <<"weir once">>, requests_per_s) -> {ok, 250};
        ('echo-100', <<"inet once">>, requests_per_s) -> {ok, 100};
        ('echo-8', <<"weir once">>, p50_us) -> {ok, 50};
        ('echo-8', <<"inet once">>, p50_us) -> {ok, 100};
        (idle, <<"weir once">>, core_percent) -> {ok, 0.3};
        (idle, <<"inet, 1 connection">>, core_percent) -> {ok, 0.0};
        (_, _, _) -> unknown
    end,
    Verdicts = weir_bench_targets:check("25", Median),
    ?assertEqual([{2.5, true}, {0.5, false}, {0.3, false}], [{M, Met} || #{measured := M, met := Met} <- Verdicts]),
    ?assertEqual([], weir_bench_targets:check("27", Median)).

targets_against_others_than_stock_test() ->
    Medians = #{
        {'relay-100', <<"weir relay">>, requests_per_s} => 110,
        {'relay-100', <<"haproxy">>, requests_per_s} => 100,
        {'relay-100', <<"native">>, requests_per_s} => 120,
        {'broadcast-1000', <<"weir group">>, requests_per_s} => 300,
        {'broadcast-1000', <<"inet processes">>, requests_per_s} => 100,
        {'broadcast-1000', <<"socket processes">>, requests_per_s} => 200,
        %% Of the best of two nothing is known when one of them was not measured.
        {'broadcast-10000', <<"weir group">>, requests_per_s} => 300,
        {'broadcast-10000', <<"inet processes">>, requests_per_s} => 100,
        {'idle-most', <<"weir reactor">>, bytes_per_connection} => 1000
    },
    Median = fun(Scenario, Contestant, Metric) ->
        case Medians of #{{Scenario, Contestant, Metric} := Value} -> {ok, Value}; #{} -> unknown end
    end,
    ?assertEqual(
        lists:sort([
            {<<"native">>, 110 / 120, false},
            {<<"haproxy">>, 1.1, true},
            {{best_of, [<<"inet processes">>, <<"socket processes">>]}, 1.5, false},
            {nobody, 1000, true}
        ]),
        lists:sort([
            {Rival, Measured, Met}
         || #{rival := Rival, measured := Measured, met := Met} <- weir_bench_targets:check("29", Median)
        ])
    ).

a_target_names_its_rival_test() ->
    [Scenario] = [Scenario || #{name := 'idle-most'} = Scenario <- weir_bench_scenarios:all()],
    Reactor = #{title => <<"weir reactor">>, backend => weir, server => echo_reactor},
    Sample = {ok, #{metrics => #{bytes_per_connection => 2048}, errors => 0}},
    Text = unicode:characters_to_binary(
        weir_bench_report:markdown((record())#{scenarios := [{Scenario, [{Reactor, [Sample]}]}]})
    ),
    Expected =
        case erlang:system_info(otp_release) of
            Release when Release =:= "25"; Release =:= "29" -> [
                <<"reactor, bytes | ≤ 1024 | 2,048 | **no** |"/utf8>>,
                <<"| ≥ 1.1× haproxy | not measured |"/utf8>>,
                <<"| ≥ 1.6× the best of inet processes, socket processes |"/utf8>>,
                <<"more than weir group, 9,000 |">>
            ];
            _ -> []
        end,
    [?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)}) || Part <- Expected].

%% A target of a scenario or a contestant that is not there would never be met nor missed.
every_target_can_be_measured_test() ->
    Scenarios = weir_bench_scenarios:all(),
    Check = fun(Scenario, Contestant, Metric) ->
        [#{contestants := Contestants}] = [S || #{name := Name} = S <- Scenarios, Name =:= Scenario],
        ?assert(lists:member(Contestant, [Title || #{title := Title} <- Contestants])),
        ?assertNotEqual(<<>>, weir_bench_sample:title(Metric)),
        {ok, 1}
    end,
    %% Those of Cowboy are for one release only.
    On25 = length(weir_bench_targets:check("25", Check)),
    ?assert(On25 > 0),
    ?assertEqual(On25 + 2, length(weir_bench_targets:check("29", Check))).

what_needs_an_application_that_is_not_there_is_skipped_with_a_word_test() ->
    [Cowboy] = [Scenario || #{name := 'cowboy-100'} = Scenario <- weir_bench_scenarios:all()],
    Ignored = fun(_) -> ok end,
    Cores = #{pinned => [], note => none},
    Results = weir_bench_rounds:run(Cowboy#{needs := nowhere}, 1, Cores, fun(_, _) -> ok end, Ignored),
    ?assertMatch([{_, [{skipped, <<"nowhere is not installed">>}]}, _, _], Results),
    Text = unicode:characters_to_binary(weir_bench_report:markdown((record())#{scenarios := [{Cowboy, Results}]})),
    ?assertNotEqual(nomatch, binary:match(Text, <<"weir: skipped, nowhere is not installed">>)).

the_report_is_the_last_object_that_was_printed_test_() ->
    [
        ?_assertEqual({ok, #{<<"a">> => 2}}, weir_bench_driver:report([<<"{\"a\":1}">>, <<"{\"a\":2}">>, <<"bye">>])),
        ?_assertMatch({error, _}, weir_bench_driver:report([<<"bye">>])),
        ?_assertMatch({error, _}, weir_bench_driver:report([<<"{\"a\":">>]))
    ].

scenarios_are_chosen_by_name_in_the_order_of_the_matrix_test() ->
    ?assertEqual({ok, [accept, 'relay-bulk']}, weir_bench_scenarios:select(["relay-bulk", "accept"])),
    ?assertEqual({ok, ['echo-8', idle]}, weir_bench_scenarios:select(["idle", "echo-8"])),
    ?assertMatch({error, _}, weir_bench_scenarios:select(["idle", "echo-9"])),
    ?assertMatch({error, _}, weir_bench_scenarios:select([])).

names_are_one_of_a_kind_test() ->
    Names = [Name || #{name := Name} <- weir_bench_scenarios:all()],
    ?assertEqual(lists:usort(Names), lists:sort(Names)),
    [
        begin
            Titles = [Title || #{title := Title} <- Contestants],
            ?assertEqual({Name, lists:usort(Titles)}, {Name, lists:sort(Titles)})
        end
     || #{name := Name, contestants := Contestants} <- weir_bench_scenarios:all()
    ].

what_is_written_for_weir_is_not_run_on_stock_test() ->
    OfWeir = [echo_listener, accept_listener, echo_reactor, game_reactor, relay, fanout],
    [
        ?assertEqual({Name, Title, true}, {Name, Title, Backend =:= weir})
     || #{name := Name, server := Server, contestants := Contestants} <- weir_bench_scenarios:all(),
        #{title := Title, backend := Backend} = Contestant <- Contestants,
        lists:member(maps:get(server, Contestant, Server), OfWeir)
    ].

quick_is_shorter_in_time_and_in_bytes_test() ->
    [Bulk] = [Scenario || #{name := 'relay-bulk'} = Scenario <- weir_bench_scenarios:all()],
    #{warmup := Warmup, duration := Duration, bytes := Bytes} = Bulk,
    ?assertMatch(
        #{warmup := W, duration := D, bytes := B} when W < Warmup andalso D < Duration andalso B < Bytes,
        weir_bench_scenarios:quick(Bulk)
    ).

markdown() ->
    unicode:characters_to_binary(weir_bench_report:markdown(record())).

record() ->
    [Scenario] = [Scenario || #{name := 'echo-100'} = Scenario <- weir_bench_scenarios:all()],
    Sample = fun(Rate, Errors) -> {ok, #{metrics => #{requests_per_s => Rate}, errors => Errors}} end,
    Titled = fun(Title) -> #{title => Title, backend => inet, active => once} end,
    #{
        machine => #{
            processor => <<"A processor">>, cores => 2, kernel => <<"6.1">>, otp => <<"25.2">>, erts => <<"13">>,
            commit => <<"c0ffee">>, pinning => <<"server on core 0">>
        },
        started => <<"2026-11-21T10:30:00+00:00">>,
        rounds => 3,
        quick => false,
        complete => false,
        scenarios => [
            {Scenario, [
                {Titled(<<"inet once">>), [Sample(90, 0), Sample(110, 0), Sample(100, 0)]},
                {Titled(<<"weir once">>), [Sample(240, 2)]},
                {Titled(<<"native">>), [{error, <<"it fell">>}]}
            ]}
        ]
    }.
