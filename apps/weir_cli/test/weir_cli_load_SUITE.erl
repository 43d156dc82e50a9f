%% Runs `bin/weir load' as a user would, against the example servers.
-module(weir_cli_load_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    help_names_scenarios_and_options/1,
    a_wrong_argument_is_one_line_and_exit_code_2/1,
    echo_writes_its_total_as_json/1,
    http_takes_a_url/1,
    fast_connect_opens_connections/1,
    proxy_runs_its_backend/1,
    game_is_pushed/1,
    a_broken_promise_is_exit_code_1/1,
    nobody_there_is_exit_code_1/1,
    nothing_but_errors_is_exit_code_1/1,
    a_load_that_cannot_be_offered_is_exit_code_3/1,
    a_signal_ends_with_the_report/1,
    runs_are_compared/1,
    a_rate_is_searched/1,
    a_scenario_of_ones_own/1,
    load_comes_from_several_nodes/1,
    a_search_is_repeated/1,
    a_scenario_within_tls/1,
    nodes_are_joined_and_observed/1,
    an_overloaded_generator_is_exit_code_3/1
]).

-import(weir_cli_program, [
    start/2, run/2, answer/1, line/1, later_lines/1, exit_status/1, shell/1, kill/2, mentions/2
]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        help_names_scenarios_and_options,
        a_wrong_argument_is_one_line_and_exit_code_2,
        echo_writes_its_total_as_json,
        http_takes_a_url,
        fast_connect_opens_connections,
        proxy_runs_its_backend,
        game_is_pushed,
        a_broken_promise_is_exit_code_1,
        nobody_there_is_exit_code_1,
        nothing_but_errors_is_exit_code_1,
        a_load_that_cannot_be_offered_is_exit_code_3,
        a_signal_ends_with_the_report,
        runs_are_compared,
        a_rate_is_searched,
        a_scenario_of_ones_own,
        load_comes_from_several_nodes,
        a_search_is_repeated,
        a_scenario_within_tls,
        nodes_are_joined_and_observed,
        an_overloaded_generator_is_exit_code_3
    ].

init_per_suite(Config) ->
    weir_cli_examples:start_node(weir_cli_program:find(Config)).

end_per_suite(Config) ->
    weir_cli_examples:stop_node(Config).

help_names_scenarios_and_options(_Config) ->
    {0, Lines} = answer(["load", "--help"]),
    Scenarios = ["echo", "http", "fast_connect", "fast_receive", "proxy", "fanout", "game", "idle"],
    [?assert(mentions(Word, Lines)) || Word <- ["compare" | Scenarios]],
    [
        begin
            {0, Own} = answer(["load", Scenario, "--help"]),
            [?assert(mentions(Word, Own)) || Word <- ["--duration", "--json", "--html", "--assert", "--observe"]]
        end
     || Scenario <- Scenarios
    ],
    {0, _} = answer(["load", "compare", "--help"]).

a_wrong_argument_is_one_line_and_exit_code_2(_Config) ->
    [
        begin
            {Status, Lines} = answer(["load" | string:lexemes(Arguments, " ")]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines), Arguments)
        end
     || {Arguments, Wrong} <- [
            {"", "scenario"},
            {"frob 127.0.0.1:1", "frob"},
            {"lists 127.0.0.1:1", "lists"},
            {"--rate 5", "--rate"},
            {"echo", "target"},
            {"echo 127.0.0.1", "127.0.0.1"},
            {"echo 127.0.0.1:99999", "99999"},
            {"echo 127.0.0.1:1 more", "more"},
            {"echo 127.0.0.1:1 --rate fast", "--rate fast"},
            {"echo 127.0.0.1:1 --rate 5 --concurrency 5", "--concurrency"},
            {"echo 127.0.0.1:1 --connections 5 --concurrency 5", "--concurrency"},
            {"echo 127.0.0.1:1 --duration 0s", "--duration 0s"},
            {"echo 127.0.0.1:1 --assert p98<1ms", "p98"},
            {"echo 127.0.0.1:1 --search p99<1ms --rate 1..5", "--search"},
            {"echo 127.0.0.1:1 --path /", "--path"},
            {"fast_connect 127.0.0.1:1 --connections 5", "--connections"},
            {"game 127.0.0.1:1 --rate 5", "--rate"},
            {"echo 127.0.0.1:1 --nodes here", "--nodes here"},
            {"echo 127.0.0.1:1 --nodes a@b --local-nodes 2", "--local-nodes"},
            {"http https://127.0.0.1:/", "https"},
            {"http http://127.0.0.1/ --tls", "https://"},
            {"echo 127.0.0.1:1 --insecure", "--insecure"},
            {"http http://127.0.0.1/ --cacert file", "--cacert"},
            {"echo 127.0.0.1:1 --tls --insecure --cacert file", "--cacert"},
            {"echo 127.0.0.1:1 --observe here", "--observe here"},
            {"echo 127.0.0.1:1 --observe 0", "--observe 0"},
            {"echo 127.0.0.1:1 --json /no/such/directory/file", "/no/such/directory/file"},
            {"echo 127.0.0.1:1 --html /no/such/directory/file", "/no/such/directory/file"},
            {"echo 127.0.0.1:1 --search p99<1ms --json /no/such/directory/file", "/no/such/directory/file"},
            {"compare one.json", "two files"},
            {"compare no.json no.json", "no.json"}
        ]
    ].

echo_writes_its_total_as_json(Config) ->
    served(Config, echo, fun(Target, Pid) ->
        File = file(Config, "echo.json"),
        {0, Lines} = load(Config, [
            "echo",
            Target,
            "--connections",
            "10",
            "--rate",
            "500",
            "--duration",
            "2s",
            "--warmup",
            "500ms",
            "--json",
            File,
            "--observe",
            Pid,
            "--assert",
            "errors=0",
            "--assert",
            "p50<1000s"
        ]),
        ?assert(mentions("promise   errors=0: kept", Lines)),
        {ok, Text} = file:read_file(File),
        {ok, #{<<"total">> := Total, <<"seconds">> := [_, _ | _], <<"valid">> := true} = Document} = weir_json:decode(
            Text
        ),
        ?assertMatch(#{<<"offered">> := 1000, <<"answered">> := 1000, <<"achieved_rate">> := _}, Total),
        [
            ?assertMatch(#{Measure := #{<<"p99">> := _, <<"count">> := 1000}}, Total)
         || Measure <- [<<"response_us">>, <<"service_us">>, <<"lag_us">>]
        ],
        #{<<"histograms">> := #{<<"response">> := Base64}} = Document,
        Histogram = weir_load_histogram:deserialise(base64:decode(Base64)),
        ?assertMatch(#{count := 1000}, weir_load_histogram:summary(Histogram))
    end).

http_takes_a_url(Config) ->
    served(Config, ehttpd, fun(Target, _Pid) ->
        {0, Lines} = load(Config, [
            "http",
            "http://" ++ Target ++ "/page",
            "--rate",
            "200",
            "--depth",
            "2",
            "--duration",
            "1s",
            "--assert",
            "answered=200",
            "--assert",
            "errors=0"
        ]),
        ?assert(mentions("promise   answered=200: kept", Lines))
    end).

fast_connect_opens_connections(Config) ->
    served(Config, accept, fun(Target, _Pid) ->
        {0, Lines} = load(Config, ["fast_connect", Target, "--duration", "2s", "--assert", "connected=89"]),
        ?assert(mentions("promise   connected=89: kept", Lines))
    end).

proxy_runs_its_backend(Config) ->
    Port = integer_to_list(weir_test_port:claim()),
    served(Config, {proxy, ["--to", "127.0.0.1:" ++ Port]}, fun(Target, _Pid) ->
        {0, _} = load(Config, ["proxy", Target, "--backend", Port, "--rate", "100", "--duration", "1s",
            "--assert", "answered=100"])
    end).

game_is_pushed(Config) ->
    served(Config, game, fun(Target, _Pid) ->
        {0, _} = load(Config, ["game", Target, "--connections", "20", "--duration", "2s", "--assert", "pushed>=1"])
    end).

a_broken_promise_is_exit_code_1(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        {1, Lines} = load(Config, ["echo", Target, "--rate", "100", "--duration", "500ms", "--assert", "p50<1ns"]),
        ?assert(mentions("promise broken: p50<1ns", Lines))
    end).

nobody_there_is_exit_code_1(Config) ->
    Target = "127.0.0.1:" ++ integer_to_list(weir_test_port:claim()),
    {1, Lines} = load(Config, ["echo", Target]),
    ?assert(mentions("connection refused", Lines)).

%% A server whose answers are not HTTP.
nothing_but_errors_is_exit_code_1(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        [
            begin
                {1, Lines} = load(Config, ["http", "http://" ++ Target ++ "/", "--duration", "500ms" | Load]),
                ?assert(mentions("weir: no request was answered", Lines))
            end
         || Load <- [["--concurrency", "1"], ["--rate", "20"]]
        ]
    end).

a_load_that_cannot_be_offered_is_exit_code_3(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        {3, Lines} = load(Config, ["echo", Target, "--rate", "100", "--duration", "500ms", "--max-lag", "1ns"]),
        ?assert(mentions("weir: invalid: the generator's own lag", Lines))
    end).

a_signal_ends_with_the_report(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        Program = start(Config, ["load", "echo", Target, "--rate", "5", "--duration", "100s", "--max-lag", "1m"]),
        %% With so few requests none is missing if the generator is late for a moment when the signal arrives.
        wait_for_second(Program),
        kill("INT", shell(Program)),
        0 = exit_status(Program),
        Lines = later_lines(Program),
        ?assert(mentions("interrupted", Lines)),
        ?assert(mentions("response", Lines))
    end).

wait_for_second(Program) ->
    case re:run(line(Program), "^ +1 +[0-9]+ ") of
        {match, _} -> ok;
        nomatch -> wait_for_second(Program)
    end.

runs_are_compared(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        File = file(Config, "runs.json"),
        {0, _} = load(Config, [
            "echo", Target, "--rate", "100", "--duration", "500ms", "--repeat", "3", "--json", File
        ]),
        {0, Lines} = run(Config, ["load", "compare", File, File]),
        ?assert(mentions("no difference shown", Lines)),
        ?assert(mentions("Welch", Lines))
    end).

a_rate_is_searched(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        File = file(Config, "search.json"),
        %% This promise depends on the rate alone.
        {0, Lines} = load(Config, ["echo", Target, "--rate", "200", "--duration", "300ms", "--search", "answered<=100",
            "--max-lag", "10s", "--json", File]),
        ?assert(mentions("answered<=100 holds at", Lines)),
        {ok, Text} = file:read_file(File),
        {ok, #{<<"search">> := #{<<"kept_rate">> := Kept, <<"broken_rate">> := Broken}}} = weir_json:decode(Text),
        ?assert(Kept =< 335 andalso Broken > 330)
    end).

a_search_is_repeated(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        File = file(Config, "searches.json"),
        {0, Lines} = load(Config, ["echo", Target, "--rate", "300", "--duration", "300ms", "--search", "answered<=100",
            "--repeat", "3", "--max-lag", "10s", "--json", File]),
        ?assert(mentions("in 3 searches: at ", Lines)),
        {ok, Text} = file:read_file(File),
        {ok, #{<<"search">> := Search}} = weir_json:decode(Text),
        #{<<"kept_rate">> := Kept, <<"spread">> := [Least, Most], <<"searches">> := [_, _, _]} = Search,
        ?assert(Least =< Kept andalso Kept =< Most)
    end).

a_scenario_within_tls(Config) ->
    served(Config, tls_echo, fun(Target, _Pid) ->
        Load = ["echo", Target, "--tls", "--rate", "100", "--duration", "500ms", "--assert", "answered=50"],
        File = file(Config, "tls.json"),
        {0, _} = load(Config, Load ++ ["--insecure", "--json", File]),
        {ok, Text} = file:read_file(File),
        ?assertMatch({ok, #{<<"tls">> := true}}, weir_json:decode(Text)),
        {1, Lines} = load(Config, Load),
        ?assert(mentions("is not trusted", Lines)),
        {1, _} = load(Config, Load ++ ["--cacert", "/no/such/file"])
    end).

%% Two nodes as on other machines: the test only uses their names and their cookie.
nodes_are_joined_and_observed(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        Start = fun() ->
            {ok, Peer, Node} = peer:start(#{
                name => peer:random_name(joined),
                host => "localhost",
                connection => standard_io,
                args => [
                    "-setcookie", "joined", "-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-pa" | code:get_path()
                ]
            }),
            {Peer, atom_to_list(Node)}
        end,
        {PeerA, A} = Start(),
        {PeerB, B} = Start(),
        File = file(Config, "joined.json"),
        Load = [
            "echo",
            Target,
            "--nodes",
            A ++ "," ++ B,
            "--rate",
            "200",
            "--connections",
            "10",
            "--duration",
            "2s",
            "--observe",
            A,
            "--assert",
            "answered=400",
            "--assert",
            "connected=10"
        ],
        {0, _} = load(Config, Load ++ ["--cookie", "joined", "--json", File]),
        {ok, Text} = file:read_file(File),
        {ok, #{<<"nodes">> := Nodes, <<"observe">> := Observed, <<"seconds">> := [First | _]}} = weir_json:decode(Text),
        ?assertEqual(lists:sort([list_to_binary(A), list_to_binary(B)]), lists:sort(Nodes)),
        ?assertEqual(list_to_binary(A), Observed),
        ?assertMatch(
            #{<<"server">> := #{<<"cpu">> := _, <<"schedulers">> := [_ | _], <<"pollsets">> := [_ | _]}}, First
        ),
        %% The error says what is wrong.
        {1, Refused} = load(Config, Load ++ ["--cookie", "another"]),
        ?assert(mentions("it refuses the connection", Refused)),
        {1, Absent} = load(Config, ["echo", Target, "--observe", "nobody@localhost"]),
        ?assert(mentions("cannot reach the node nobody@localhost: the nodes on localhost are", Absent)),
        [ok = peer:stop(Peer) || Peer <- [PeerA, PeerB]]
    end).

an_overloaded_generator_is_exit_code_3(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        {3, Lines} = run(Config, [
            "load", "echo", Target, "--rate", "10000000", "--duration", "100ms", "--timeout", "1s"
        ]),
        ?assert(mentions("invalid: the generator", Lines))
    end).

a_scenario_of_ones_own(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        {0, _} = load(Config, ["weir_load_echo", Target, "--size", "5", "--rate", "100", "--duration", "500ms",
            "--assert", "answered=50"])
    end).

load_comes_from_several_nodes(Config) ->
    served(Config, echo, fun(Target, _Pid) ->
        File = file(Config, "nodes.json"),
        {0, _} = load(Config, [
            "echo",
            Target,
            "--local-nodes",
            "2",
            "--rate",
            "200",
            "--connections",
            "10",
            "--duration",
            "1s",
            "--assert",
            "answered=200",
            "--assert",
            "connected=10",
            "--json",
            File
        ]),
        {ok, Text} = file:read_file(File),
        {ok, #{<<"nodes">> := [A, B]}} = weir_json:decode(Text),
        ?assertNotEqual(A, B),
        {1, Lines} = load(Config, ["echo", Target, "--nodes", "nobody@localhost"]),
        ?assert(mentions("nobody@localhost", Lines))
    end).

%% Serves an example while a fun puts load on it.
served(Config, {Example, Options}, Load) ->
    #{port := Port, pid := Pid} = Server = weir_cli_examples:serve(Config, Example, Options),
    try
        Load("127.0.0.1:" ++ integer_to_list(Port), binary_to_list(Pid))
    after
        weir_cli_examples:stop(Server)
    end;
served(Config, Example, Load) ->
    served(Config, {Example, []}, Load).

%% The machine may be busy, so the generator may be late by up to 60 s, unless a test sets --max-lag itself.
load(Config, [Scenario | Arguments]) ->
    {Status, Lines} = run(Config, ["load", Scenario, "--max-lag", "60s" | Arguments]),
    ct:log("~p~n~ts", [Arguments, lists:join("\n", Lines)]),
    {Status, Lines}.

file(Config, Name) ->
    filename:join(?config(priv_dir, Config), Name).
