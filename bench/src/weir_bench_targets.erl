%% @doc What Weir is to reach against stock gen_tcp on the same OTP, and whether it did.
-module(weir_bench_targets).

-export([check/2]).

-export_type([verdict/0]).

%% `measured' is absent if the scenario was not measured on both.
-type verdict() :: #{
    title := binary(), relation := relation(), limit := number(), measured => number(), met => boolean()
}.

%% A ratio to stock that is to be reached or not to be passed, or a difference that is not to be passed.
-type relation() :: ratio_at_least | ratio_at_most | difference_at_most.

%% @doc The targets of an OTP release, beside what was measured: `Median' tells the median of a metric for a contestant,
%% by its title, in a scenario. Targets are set for releases 25 and 29, some for one of them;
%% for others there is none.
-spec check(Release :: string(), Median) -> [verdict()] when
    Median :: fun(
        (weir_bench_scenarios:name(), Contestant :: binary(), weir_bench_sample:metric()) -> {ok, number()} | unknown
    ).
check(Release, Median) ->
    [
        verdict(Title, Relation, Limit, Median(Scenario, Weir, Metric), Median(Scenario, Stock, Metric))
     || {Title, Scenario, Metric, Weir, Stock, Relation, Limits} <- targets(), {For, Limit} <- Limits, For =:= Release, Limit =/= none
    ].

verdict(Title, Relation, Limit, {ok, Weir}, {ok, Stock}) when Stock > 0; Relation =:= difference_at_most ->
    Measured = measured(Relation, Weir, Stock),
    Met =
        case Relation of
            ratio_at_least -> Measured >= Limit;
            _ -> Measured =< Limit
        end,
    #{title => Title, relation => Relation, limit => Limit, measured => Measured, met => Met};
verdict(Title, Relation, Limit, _, _) ->
    #{title => Title, relation => Relation, limit => Limit}.

measured(difference_at_most, Weir, Stock) -> Weir - Stock;
measured(_Ratio, Weir, Stock) -> Weir / Stock.

targets() ->
    Once = {<<"weir once">>, <<"inet once">>},
    Passive = {<<"weir passive">>, <<"inet passive">>},
    Plainly = {<<"weir">>, <<"inet">>},
    [
        target(<<"echo, 100 connections: requests/s">>, 'echo-100', requests_per_s, Once, ratio_at_least, 2.2, 1.4),
        target(<<"echo, 1,000 connections: requests/s">>, 'echo-1000', requests_per_s, Once, ratio_at_least, 2.4, 1.5),
        target(<<"echo, 8 connections: median latency">>, 'echo-8', p50_us, Once, ratio_at_most, 0.4, 0.6),
        target(<<"echo, 1 connection: median latency">>, 'echo-1', p50_us, Once, ratio_at_most, 1.0, 1.0),
        target(<<"echo beside 200 processes: median latency">>, busy, p50_us, Once, ratio_at_most, 1.1, 1.1),
        target(<<"proxy, 100 connections: requests/s">>, 'proxy-100', requests_per_s, Once, ratio_at_least, 2.0, 2.5),
        target(
            <<"ehttpd, 100 connections: requests/s">>, 'ehttpd-100', requests_per_s, Once, ratio_at_least, 2.0, 1.35
        ),
        target(
            <<"accept: server CPU per connection">>, accept, cpu_us_per_request,
            Passive, ratio_at_most, 0.5, 0.6
        ),
        target(
            <<"game, 10,000 connections: server CPU">>, game, cpu_s_per_minute,
            {<<"weir true">>, <<"inet true">>}, ratio_at_most, 0.7, 0.5
        ),
        target(<<"memory per idle connection">>, idle, bytes_per_connection, Once, ratio_at_most, 0.6, 0.5),
        target(
            <<"10,000 idle connections: CPU over an empty stock node, % of a core">>, idle, core_percent,
            {<<"weir once">>, <<"inet, 1 connection">>}, difference_at_most, 0.2, 0.2
        ),
        target(
            <<"{packet, 4}, 100 connections: requests/s">>, 'packet-4', requests_per_s, Once, ratio_at_least, 2.0, 1.5
        ),
        target(
            <<"{packet, line}, 100 connections: requests/s">>, 'packet-line', requests_per_s, Once, ratio_at_least,
            2.0, 1.5
        ),
        target(
            <<"Cowboy, 100 connections: requests/s">>, 'cowboy-100', requests_per_s, Plainly, ratio_at_least, none, 1.9
        ),
        target(
            <<"Cowboy, 1,000 connections: requests/s">>, 'cowboy-1000', requests_per_s, Plainly, ratio_at_least,
            none, 1.75
        ),
        target(<<"TLS, 100 connections: requests/s">>, 'tls-100', requests_per_s, Once, ratio_at_least, 1.0, 1.0),
        target(<<"sendfile of 1 MiB: requests/s">>, sendfile, requests_per_s, Plainly, ratio_at_least, 1.0, 1.0)
    ] ++
        [
            target(
                <<Way/binary, ": ", (weir_bench_sample:title(Metric))/binary>>, Scenario, Metric, Contestants,
                ratio_at_least, 1.0, 1.0
            )
         || {Way, Scenario, Contestants} <- [
                {<<"the server sends 64 KiB at a time">>, download, Plainly},
                {<<"the server receives, {active, once}">>, upload, Once},
                {<<"the server receives, passive">>, upload, Passive}
            ],
            Metric <- [bytes_per_s, bytes_per_cpu_s]
        ].

target(Title, Scenario, Metric, {Weir, Stock}, Relation, On25, On29) ->
    {Title, Scenario, Metric, Weir, Stock, Relation, [{"25", On25}, {"29", On29}]}.
