-module(weir_bench_sample_tests).

-include_lib("eunit/include/eunit.hrl").

medians_test_() ->
    [
        ?_assertEqual(5, weir_bench_sample:median([5])),
        ?_assertEqual(2, weir_bench_sample:median([3, 1, 2])),
        ?_assertEqual(2.5, weir_bench_sample:median([4, 1, 3, 2])),
        ?_assertEqual(1, weir_bench_sample:median([1, 1, 1, 100, 0]))
    ].

the_figures_of_a_report_test() ->
    Report = #{
        <<"duration_s">> => 2.0,
        <<"requests_per_s">> => 1000.5,
        <<"latency_us">> => #{<<"p50">> => 10.1, <<"p99">> => 99.9, <<"max">> => 100},
        <<"errors">> => #{<<"reset">> => 2, <<"timeout">> => 1},
        <<"server">> => #{<<"cpu_s">> => 0.5, <<"cpu_us_per_request">> => 3.25}
    },
    ?assertEqual(
        #{
            metrics => #{
                requests_per_s => 1000.5,
                p50_us => 10.1,
                p99_us => 99.9,
                max_us => 100,
                cpu_us_per_request => 3.25,
                core_percent => 25.0
            },
            errors => 3
        },
        weir_bench_sample:from_report(Report)
    ).

the_figures_of_a_report_of_bytes_test() ->
    Report = #{
        <<"duration_s">> => 2.0,
        <<"bytes_per_s">> => 1.0e9,
        <<"errors">> => #{},
        <<"server">> => #{<<"cpu_s">> => 1.0, <<"bytes_per_cpu_s">> => 2.0e9}
    },
    ?assertEqual(
        #{metrics => #{bytes_per_s => 1.0e9, bytes_per_cpu_s => 2.0e9, core_percent => 50.0}, errors => 0},
        weir_bench_sample:from_report(Report)
    ).

the_figures_of_a_report_of_connections_test() ->
    Report = #{
        <<"duration_s">> => 2.0,
        <<"connections">> => 19744,
        <<"errors">> => #{},
        <<"server">> => #{<<"cpu_s">> => 0.0, <<"bytes_per_connection">> => 900.0, <<"rss_end_kib">> => 40960}
    },
    Expected = #{bytes_per_connection => 900.0, connections => 19744, memory_kib => 40960, core_percent => 0.0},
    ?assertEqual(#{metrics => Expected, errors => 0}, weir_bench_sample:from_report(Report)).

what_two_drivers_have_measured_of_one_server_test() ->
    Metrics = #{requests_per_s => 1000, p50_us => 10, p99_us => 90, core_percent => 40.0, cpu_us_per_request => 400.0},
    One = #{metrics => Metrics, errors => 1},
    ?assertEqual(One, weir_bench_sample:sum([One])),
    Other = #{
        metrics => Metrics#{requests_per_s := 3000, p50_us := 5, p99_us := 99, core_percent := 44.0}, errors => 2
    },
    #{metrics := Sum, errors := 3} = weir_bench_sample:sum([One, Other]),
    ?assertMatch(#{requests_per_s := 4000, p50_us := 10, p99_us := 99, core_percent := 42.0}, Sum),
    ?assertEqual(105, round(map_get(cpu_us_per_request, Sum))).

switches_of_several_drivers_are_for_all_requests_test() ->
    Metrics = #{
        requests_per_s => 1000,
        p50_us => 1,
        p99_us => 2,
        core_percent => 40.0,
        cpu_us_per_request => 400.0,
        connections => 10,
        switches_per_request => 3.0
    },
    %% Both drivers have seen the 3,000 switches a second of the same server.
    Samples = [
        #{metrics => Metrics, errors => 0},
        #{metrics => Metrics#{requests_per_s := 3000, switches_per_request := 1.0}, errors => 0}
    ],
    #{metrics := OfOne} = weir_bench_sample:sum(Samples),
    ?assertMatch(#{switches_per_request := 0.75, connections := 20}, OfOne),
    %% Of two servers, each had its own switches.
    #{metrics := OfTwo} = weir_bench_sample:side_by_side(Samples),
    ?assertMatch(#{switches_per_request := 1.5}, OfTwo).

what_is_measured_of_several_servers_side_by_side_test() ->
    Sample = fun(Connections, Bytes) ->
        #{metrics => #{connections => Connections, bytes_per_connection => Bytes, core_percent => 0.5}, errors => 1}
    end,
    #{metrics := Metrics, errors := 2} = weir_bench_sample:side_by_side([Sample(100, 1000.0), Sample(300, 2000.0)]),
    ?assertEqual(
        #{connections => 400, servers => 2, bytes_per_connection => 1750.0, core_percent => 1.0}, Metrics
    ).

requests_of_several_servers_side_by_side_test() ->
    Sample = fun(Rate, Percent, P99) ->
        #{
            metrics => #{
                connections => 10,
                requests_per_s => Rate,
                core_percent => Percent,
                p50_us => 5,
                p99_us => P99,
                cpu_us_per_request => 1.0
            },
            errors => 0
        }
    end,
    #{metrics := Metrics} = weir_bench_sample:side_by_side([Sample(1000, 10.0, 70), Sample(3000, 10.0, 90)]),
    ?assertEqual(
        #{
            connections => 20,
            servers => 2,
            requests_per_s => 4000,
            core_percent => 20.0,
            p50_us => 5,
            p99_us => 90,
            cpu_us_per_request => 50.0
        },
        Metrics
    ).

the_figures_of_an_open_loop_test() ->
    Document = load(<<"100">>, [second(100, 5_000, 0, 20), second(100, 7_000, 0, 20)]),
    #{metrics := Metrics, errors := 3, notes := [<<"not valid, ", _/binary>>]} = weir_bench_sample:from_load(
        Document#{<<"invalid">> := [<<"it was late">>]}
    ),
    ?assertEqual(
        #{requests_per_s => 99.5, p50_us => 10.0, p99_us => 20.0, core_percent => 50.0, cpu_us_per_request => 5000.0},
        Metrics
    ).

a_load_that_grows_is_held_until_its_answers_come_late_or_not_at_all_test_() ->
    [
        ?_assertMatch(
            {What, #{metrics := #{held_per_s := Held}, errors := 0, notes := Notes}},
            {What, weir_bench_sample:from_load(load(<<"0..400">>, Seconds))}
        )
     || {What, Held, Notes, Seconds} <- [
            {late, 200, [], [second(100, 5_000, 0, 20), second(200, 5_000, 0, 20), second(300, 500_000, 0, 20)]},
            {failing, 100, [], [second(100, 5_000, 0, 20), second(200, 5_000, 1, 20)]},
            %% Late once, and in time again at a higher rate: another process of the machine was the cause.
            {noise, 300, [], [
                second(100, 5_000, 0, 20), second(200, 900_000, 0, 20), second(300, 5_000, 0, 20),
                second(400, 900_000, 0, 20)
            ]},
            {to_the_end, 100, [<<"held to the end, it may hold more">>], [second(100, 5_000, 0, 20)]},
            {the_generator, 100, [<<"the generator fell behind first, the server may hold more">>], [
                second(100, 5_000, 0, 20), second(200, 500_000, 0, 50_000)
            ]},
            {nothing, 0, [], [second(100, 900_000, 0, 20)]}
        ]
    ].

the_second_in_which_a_load_was_stopped_does_not_count_test() ->
    Seconds = [second(100, 5_000, 0, 20), second(200, 900_000, 0, 20), second(300, 5_000, 0, 20)],
    Document = (load(<<"0..400">>, Seconds))#{<<"interrupted">> := true},
    #{metrics := #{held_per_s := Held, answered_per_s := Most}, seconds := Told} = weir_bench_sample:from_load(
        Document
    ),
    ?assertEqual({100, 100, 2}, {Held, Most, length(Told)}).

seconds_of_rounds_become_one_line_test() ->
    Run = fun(Values) -> #{seconds => [#{offered => 1, p50_us => V, p99_us => 2 * V} || V <- Values]} end,
    ?assertEqual(
        [#{offered => 1, p50_us => 2, p99_us => 4}],
        weir_bench_sample:median_seconds([Run([1, 9]), Run([2]), Run([3, 9]), #{}])
    ),
    ?assertEqual([], weir_bench_sample:median_seconds([#{}])).

%% The part of `weir load''s output that is read.
load(Rate, Seconds) ->
    #{
        <<"rate">> => Rate, <<"loop">> => <<"open">>, <<"connections">> => 0, <<"invalid">> => [],
        <<"interrupted">> => false,
        <<"seconds">> => Seconds,
        <<"total">> => #{
            <<"achieved_rate">> => 99.5, <<"pushed_rate">> => 0.0, <<"error_count">> => 3,
            <<"response_us">> => #{<<"p50">> => 10.0, <<"p99">> => 20.0}
        }
    }.

second(Offered, P99, Errors, Lag) ->
    #{
        <<"offered">> => Offered, <<"answered">> => 100, <<"error_count">> => Errors,
        <<"response_us">> => #{<<"p50">> => 10.0, <<"p99">> => P99}, <<"lag_us">> => #{<<"p99">> => Lag},
        <<"server">> => #{<<"cpu">> => 0.5, <<"rss_bytes">> => 1}
    }.

a_metric_that_some_samples_lack_is_summed_up_over_the_others_test() ->
    Metrics = [#{p50_us => 3}, #{p50_us => 1, p99_us => 9}, #{p50_us => 2}],
    Samples = [#{metrics => Of, errors => 0} || Of <- Metrics],
    ?assertEqual(
        #{
            p50_us => #{median => 2, min => 1, max => 3, samples => [3, 1, 2]},
            p99_us => #{median => 9, min => 9, max => 9, samples => [9]}
        },
        weir_bench_sample:summary(Samples)
    ),
    ?assertEqual(#{}, weir_bench_sample:summary([])).

%% A median would hide connections that were lost in one round of three.
of_what_must_not_happen_the_worst_round_counts_test() ->
    Samples = [#{metrics => #{lost => Lost}, errors => Lost} || Lost <- [0, 7, 0]],
    ?assertEqual(
        #{lost => #{median => 7, min => 0, max => 7, samples => [0, 7, 0]}}, weir_bench_sample:summary(Samples)
    ).

every_metric_has_a_title_and_a_better_side_test() ->
    [
        begin
            ?assertNotEqual(<<>>, weir_bench_sample:title(Metric)),
            ?assert(lists:member(weir_bench_sample:better(Metric), [more, less])),
            ?assertNotEqual("", lists:flatten(weir_bench_sample:format(Metric, 1.5)))
        end
     || Metric <- weir_bench_sample:metrics()
    ].

formats_test_() ->
    [
        ?_assertEqual(Text, lists:flatten(weir_bench_sample:format(Metric, Value)))
     || {Metric, Value, Text} <- [
            {requests_per_s, 103000.4, "103,000"},
            {p50_us, 92.4, "92"},
            {cpu_us_per_request, 12, "12.00"},
            {core_percent, 0.1234, "0.12"},
            {bytes_per_s, 1234567890.1, "1.23"},
            {connections, 19744, "19,744"},
            {memory_kib, 5184, "5.1"}
        ]
    ].
