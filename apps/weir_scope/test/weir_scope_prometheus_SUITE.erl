%% Prometheus reads the metrics, and evaluates the expressions of the Grafana dashboard.
-module(weir_scope_prometheus_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([what_promtool_says/1, what_a_dashboard_shows/1]).

-import(weir_scope_served, [start/1, stop/1, ask/2, bearer/1, host/0]).
-import(weir_test_wait, [wait_until/1]).

-include("served_suite.hrl").

-define(TOKEN, (weir_scope_served:token())).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [what_promtool_says, what_a_dashboard_shows].

init_per_suite(Config) ->
    case [os:find_executable(Name) || Name <- ["promtool", "prometheus"]] of
        [Tool, Server] when is_list(Tool), is_list(Server) ->
            %% weir_http runs too: the dashboard has panels for both.
            weir_scope_served:with([weir_pubsub, weir_scope], [{promtool, Tool}, {prometheus, Server} | Config]);
        _ -> {skip, "no promtool and prometheus (scripts/setup test)"}
    end.

%% Prometheus' own parsers accept the metrics, with any listener name as a label, and the dashboard's expressions.
%% `check metrics' only reads the older format, so this makes a block of the metrics, for which each needs a timestamp.
what_promtool_says(Config) ->
    [Program, Directory] = [?config(Key, Config) || Key <- [promtool, priv_dir]],
    [Metrics, Rules] = [filename:join(Directory, Name) || Name <- ["metrics.txt", "rules.json"]],
    Now = integer_to_list(erlang:system_time(second)),
    ok = file:write_file(
        Metrics,
        lists:join($\n, [
            case Line of
                <<"#", _/binary>> -> Line;
                <<>> -> Line;
                _ -> [Line, $\s, Now]
            end
         || Line <- weir_scope_metrics_tests:lines()
        ])
    ),
    {0, _} = program(Program, [
        "tsdb", "create-blocks-from", "openmetrics", Metrics, filename:join(Directory, "blocks")
    ]),
    Expressions = expressions("5m"),
    Recorded = [
        #{record => list_to_binary("expression_" ++ integer_to_list(Number)), expr => Expression}
     || {Number, Expression} <- lists:zip(lists:seq(1, length(Expressions)), Expressions)
    ],
    ok = file:write_file(Rules, weir_json:encode(#{groups => [#{name => dashboard, rules => Recorded}]})),
    {0, _} = program(Program, ["check", "rules", Rules]),
    %% A wrong expression is detected.
    ok = file:write_file(
        Rules,
        weir_json:encode(#{
            groups => [#{name => dashboard, rules => [#{record => wrong, expr => <<"rate(beam_reductions_total)">>}]}]
        })
    ),
    {1, _} = program(Program, ["check", "rules", Rules]).

%% Replaces the interval in the dashboard's expressions, and keeps its other variables.
expressions(Interval) ->
    [
        binary:replace(Expression, <<"$__rate_interval">>, list_to_binary(Interval), [global])
     || Expression <- weir_scope_grafana_tests:expressions(), binary:match(Expression, <<"label_values">>) =:= nomatch
    ].

%% A Prometheus with the token has numbers for every line of every panel, except for a missing control group and for
%% listeners that do not measure.
what_a_dashboard_shows(Config) ->
    Page = start(#{}),
    {200, _, Metrics} = ask("/metrics", [host(), bearer(?TOKEN)]),
    Target = "127.0.0.1:" ++ integer_to_list(weir_scope_web:port()),
    {Server, Port} = prometheus(Target, Config),
    Missing = [
        Name
     || Name <- [<<"beam_throttled_ratio">>, <<"weir_listener_reply_seconds">>], binary:match(Metrics, Name) =:= nomatch
    ],
    Told = [
        Expression
     || Expression <- expressions("2m"), Missing =:= [] orelse binary:match(Expression, Missing) =:= nomatch
    ],
    ?assert(length(Told) > 25),
    [wait_until(fun() -> length(results(Port, chosen(Expression, Target))) > 0 end) || Expression <- Told],
    %% An expression of an unknown metric has no numbers.
    ?assertEqual([], results(Port, <<"beam_nothing">>)),
    ?assertMatch([_], results(Port, <<"scrape_samples_scraped > 50">>)),
    port_close(Server),
    stop(Page).

chosen(Expression, Target) ->
    lists:foldl(
        fun({Variable, Value}, Text) -> binary:replace(Text, Variable, Value, [global]) end,
        Expression,
        [{<<"$job">>, <<"tested">>}, {<<"$instance">>, list_to_binary(Target)}]
    ).

%% It ends when its input closes, which is when the process that has started it ends.
prometheus(Target, Config) ->
    Directory = ?config(priv_dir, Config),
    File = filename:join(Directory, "prometheus.json"),
    ok = file:write_file(
        File,
        weir_json:encode(#{
            global => #{scrape_interval => '2s'},
            scrape_configs => [
                #{
                    job_name => tested,
                    authorization => #{credentials => ?TOKEN},
                    static_configs => [#{targets => [list_to_binary(Target)]}]
                }
            ]
        })
    ),
    Port = weir_test_port:claim(),
    Server = open_port({spawn_executable, "/bin/sh"}, [
        {args, [
            "-c",
            "\"$@\" </dev/null >/dev/null 2>&1 & cat >/dev/null; kill $!; wait",
            "sh",
            ?config(prometheus, Config),
            "--config.file=" ++ File,
            "--storage.tsdb.path=" ++ filename:join(Directory, "database"),
            "--web.listen-address=127.0.0.1:" ++ integer_to_list(Port)
        ]}
    ]),
    {Server, Port}.

%% There are no results before it listens.
results(Port, Expression) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]) of
        {ok, Socket} ->
            ok = gen_tcp:send(Socket, ["GET /api/v1/query?query=", uri_string:quote(Expression), " HTTP/1.0\r\n\r\n"]),
            [Head, Body] = binary:split(received(Socket, <<>>), <<"\r\n\r\n">>),
            answered(Expression, Head, weir_json:decode(Body));
        {error, econnrefused} ->
            []
    end.

answered(_Expression, <<"HTTP/1.0 200", _/binary>>, {ok, #{<<"data">> := #{<<"result">> := Results}}}) -> Results;
answered(_Expression, <<"HTTP/1.0 503", _/binary>>, _) -> [];
answered(Expression, Head, Body) -> ct:fail({Expression, Head, Body}).

received(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, More} -> received(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

program(Program, Arguments) ->
    Port = open_port({spawn_executable, Program}, [{args, Arguments}, exit_status, stderr_to_stdout, binary]),
    said(Port, <<>>).

said(Port, Text) ->
    receive
        {Port, {data, Data}} -> said(Port, <<Text/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> ct:log("~ts", [Text]), {Status, Text}
    after weir_test_wait:patience() -> ct:fail({no_end, Text})
    end.

