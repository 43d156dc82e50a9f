%% @doc What Weir is to reach, against stock gen_tcp on the same OTP, native code and other peers, and whether it did.
-module(weir_bench_targets).

-export([check/2]).

-export_type([verdict/0, rival/0]).

%% `measured' is absent if the scenario was not measured on both.
-type verdict() :: #{
    title := binary(),
    rival := rival(),
    relation := relation(),
    limit := number(),
    measured => number(),
    met => boolean()
}.

%% Whom Weir is compared with: a contestant by its title, the best of several, or nobody where the figure itself is to
%% be reached.
-type rival() :: binary() | {best_of, [binary(), ...]} | nobody.

%% A ratio to the rival's figure that is to be reached or not to be passed, a difference or a figure that is not to be
%% passed.
-type relation() :: ratio_at_least | ratio_at_most | difference_at_most | at_most.

%% @doc The targets of an OTP release, beside what was measured: `Median' tells the median of a metric for a contestant,
%% by its title, in a scenario. Targets are set for releases 25 and 29, some for one of them;
%% for others there is none.
-spec check(Release :: string(), Median) -> [verdict()] when
    Median :: fun(
        (weir_bench_scenarios:name(), Contestant :: binary(), weir_bench_sample:metric()) -> {ok, number()} | unknown
    ).
check(Release, Median) ->
    [
        verdict(#{title => Title, rival => Rival, relation => Relation, limit => Limit},
            Of(Weir), rival(Rival, Relation, Of))
     || {Title, Scenario, Metric, Weir, Rival, Relation, Limits} <- targets(),
        {For, Limit} <- Limits, For =:= Release, Limit =/= none,
        Of <- [fun(Contestant) -> Median(Scenario, Contestant, Metric) end]
    ].

rival(nobody, _Relation, _Of) ->
    {ok, 0};
rival({best_of, Titles}, Relation, Of) ->
    case [Value || {ok, Value} <- lists:map(Of, Titles)] of
        Values when length(Values) < length(Titles) -> unknown;
        Values when Relation =:= ratio_at_least -> {ok, lists:max(Values)};
        Values -> {ok, lists:min(Values)}
    end;
rival(Title, _Relation, Of) ->
    Of(Title).

verdict(#{relation := Relation, limit := Limit} = Target, {ok, Weir}, {ok, Rival}) when
    Rival > 0; Relation =:= difference_at_most; Relation =:= at_most
->
    Measured = measured(Relation, Weir, Rival),
    Met =
        case Relation of
            ratio_at_least -> Measured >= Limit;
            _ -> Measured =< Limit
        end,
    Target#{measured => Measured, met => Met};
verdict(Target, _, _) ->
    Target.

measured(difference_at_most, Weir, Rival) -> Weir - Rival;
measured(at_most, Weir, _Nobody) -> Weir;
measured(_Ratio, Weir, Rival) -> Weir / Rival.

targets() ->
    against_stock() ++ fast_paths().

against_stock() ->
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

%% What is written for Weir. What it costs on either OTP is Weir's own, so the targets are the same.
fast_paths() ->
    Reactor = <<"weir reactor">>,
    Relay = <<"weir relay">>,
    Group = <<"weir group">>,
    [
        {Title, Scenario, Metric, Weir, Rival, Relation, [{"25", Limit}, {"29", Limit}]}
     || {Title, Scenario, Metric, Weir, Rival, Relation, Limit} <- [
            {<<"reactor, 100 connections: requests/s">>, 'reactor-100', requests_per_s, Reactor, <<"native">>,
                ratio_at_least, 0.97},
            {<<"reactor, 1,000 connections: requests/s">>, 'reactor-1000', requests_per_s, Reactor, <<"native">>,
                ratio_at_least, 0.95},
            {<<"reactor, 10,000 connections: requests/s">>, 'reactor-10000', requests_per_s, Reactor, <<"native">>,
                ratio_at_least, 0.95},
            {<<"listener, 1,000 connections: requests/s">>, 'listener-1000', requests_per_s, <<"weir listener">>,
                <<"weir once">>, ratio_at_least, 1.1},
            {<<"accept by a listener: server CPU per connection">>, accept, cpu_us_per_request, <<"weir listener">>,
                <<"native">>, ratio_at_most, 1.6},
            {<<"accept by a listener: server CPU per connection">>, accept, cpu_us_per_request, <<"weir listener">>,
                <<"inet passive">>, ratio_at_most, 0.4},
            {<<"game by a reactor: server CPU">>, game, cpu_s_per_minute, Reactor, <<"inet true">>,
                ratio_at_most, 0.35},
            {<<"game by a reactor: server CPU">>, game, cpu_s_per_minute, Reactor, <<"native">>, ratio_at_most, 1.3},
            {<<"memory per idle connection of a reactor, bytes">>, 'idle-most', bytes_per_connection, Reactor, nobody,
                at_most, 1024},
            {<<"a reactor's request: server CPU on two schedulers">>, schedulers, cpu_us_per_request,
                <<"weir reactor, 2 schedulers">>, <<"weir reactor, 1 scheduler">>, ratio_at_most, 1.05},
            {<<"relay of 1 GiB: bytes/CPU s">>, 'relay-bulk', bytes_per_cpu_s, Relay,
                <<"haproxy splicing">>, ratio_at_least, 1.0},
            {<<"broadcast beside 1,000 slow members: deliveries/s">>, 'broadcast-slow', requests_per_s,
                <<"weir group, 1,000 slow">>, <<"weir group, 9,000">>, ratio_at_least, 0.95},
            %% A queue of 64 KiB for each, were nothing of it shared.
            {<<"broadcast beside 1,000 slow members: KiB of memory more">>, 'broadcast-slow', memory_kib,
                <<"weir group, 1,000 slow">>, <<"weir group, 9,000">>, difference_at_most, 65536}
        ] ++
            [
                {<<"relay, ", Count/binary, " connections: requests/s">>, Scenario, requests_per_s, Relay, Rival,
                    ratio_at_least, AtLeast}
             || {Count, Scenario} <- [{<<"100">>, 'relay-100'}, {<<"500">>, 'relay-500'}],
                {Rival, AtLeast} <- [{<<"native">>, 0.97}, {<<"haproxy">>, 1.1}, {<<"inet once">>, 3.8}]
            ] ++
            [
                {<<"broadcast, ", Count/binary, " members: deliveries/s">>, Scenario, requests_per_s, Group, Rival,
                    ratio_at_least, AtLeast}
             || {Count, Scenario} <- [{<<"1,000">>, 'broadcast-1000'}, {<<"10,000">>, 'broadcast-10000'}],
                {Rival, AtLeast} <- [
                    {<<"native">>, 0.95}, {{best_of, [<<"inet processes">>, <<"socket processes">>]}, 1.6}
                ]
            ]
    ].

target(Title, Scenario, Metric, {Weir, Stock}, Relation, On25, On29) ->
    {Title, Scenario, Metric, Weir, Stock, Relation, [{"25", On25}, {"29", On29}]}.
