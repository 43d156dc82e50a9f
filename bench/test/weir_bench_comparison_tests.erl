-module(weir_bench_comparison_tests).

-include_lib("eunit/include/eunit.hrl").

contestants_of_several_scenarios_test() ->
    Table = #{
        otp => 29,
        metric => cpu_us_per_request,
        columns => [{"stock", "inet once"}, {"best", {best, ["inet once", "inet true"]}}, {"Weir", "weir once"}],
        rows => [{"echo", 'echo-100'}, {"proxy", 'relay-100', ["inet once", none, {named, "relay", "weir relay"}]}]
    },
    ?assertEqual(
        [
            [<<"OTP 29: CPU µs/request"/utf8>>, <<"stock">>, <<"best">>, <<"Weir">>],
            [<<"echo">>, <<"6.00">>, <<"5.00 (inet true)">>, <<"?">>],
            [<<"proxy">>, <<"30.00">>, <<"–"/utf8>>, <<"7.00 (relay)">>]
        ],
        table(Table, #{
            {'echo-100', "inet once"} => 6, {'echo-100', "inet true"} => 5, {'relay-100', "inet once"} => 30,
            {'relay-100', "weir relay"} => 7
        })
    ).

more_is_better_of_a_rate_test() ->
    Table = #{
        otp => 29, metric => held_per_s, columns => ["best"], rows => [{"chat", 'chat-held', [{best, ["a", "b"]}]}]
    },
    ?assertMatch([_, [_, <<"2,000 (b)">>]], table(Table, #{{'chat-held', "a"} => 1000, {'chat-held', "b"} => 2000})).

metrics_of_one_scenario_test() ->
    Table = #{otp => 25, scenario => 'chat-held', metrics => [held_per_s, p99_us], rows => [{"Nchan", "nchan"}]},
    ?assertEqual(
        [
            [<<"OTP 25">>, <<"requests/s held">>, <<"p99 µs"/utf8>>],
            [<<"Nchan">>, <<"60,000">>, <<"60,000">>]
        ],
        table(Table, #{{'chat-held', "nchan"} => 60000})
    ).

schedulers_are_columns_test() ->
    Table = #{
        otp => 25, metric => cpu_us_per_request, schedulers => [1, 2], rows => [{"reactor", 'scaling-echo', "weir"}]
    },
    ?assertEqual(
        [[<<"OTP 25: CPU µs/request"/utf8>>, <<"1 scheduler">>, <<"2">>], [<<"reactor">>, <<"1.00">>, <<"2.00">>]],
        table(Table, #{{'scaling-echo', "weir, 1:1"} => 1, {'scaling-echo', "weir, 2:2"} => 2})
    ).

%% A row stays out as soon as Weir is as good as the other.
only_what_is_slower_is_shown_test() ->
    Pair = fun(Scenario, Metric) -> {atom_to_list(Scenario), Scenario, Metric, "weir", {"stock", "inet"}} end,
    Table = #{otp => 29, slower => [Pair(sendfile, requests_per_s), Pair(accept, p99_us), Pair(busy, p99_us)]},
    ?assertEqual(
        [
            [<<"OTP 29">>, <<"measure">>, <<"Weir">>, <<"the other">>, <<"ratio">>],
            [<<"sendfile">>, <<"requests/s">>, <<"90">>, <<"100 (stock)">>, <<"0.90×"/utf8>>],
            [<<"accept">>, <<"p99 µs"/utf8>>, <<"120">>, <<"100 (stock)">>, <<"1.20×"/utf8>>]
        ],
        table(Table, #{
            {sendfile, "weir"} => 90, {sendfile, "inet"} => 100, {accept, "weir"} => 120, {accept, "inet"} => 100,
            {busy, "weir"} => 99, {busy, "inet"} => 100
        })
    ).

table(Table, Figures) ->
    {Header, Rows} = weir_bench_comparison:table(Table, fun(Scenario, Title, _Metric) ->
        case Figures of
            #{{Scenario, Title} := Value} -> {ok, Value};
            #{} -> unknown
        end
    end),
    [[unicode:characters_to_binary(Cell) || Cell <- Row] || Row <- [Header | Rows]].
