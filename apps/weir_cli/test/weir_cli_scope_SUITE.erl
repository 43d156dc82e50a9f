%% Runs bin/weir scope as a user would, on nodes without Weir: in a terminal, and for programs.
-module(weir_cli_scope_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([
    all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2, end_per_testcase/2
]).
-export([help_says_how/1, a_wrong_argument_is_one_line/1, a_node_that_cannot_be_reached_is_one_line_and_exit_code_1/1]).
-export([
    once/1,
    as_json/1,
    as_csv/1,
    as_openmetrics/1,
    schedules/1,
    ping_pong/1,
    as_a_page/1,
    as_a_page_without_a_token/1,
    a_port_in_use/1,
    recorded/1,
    what_is_no_recording/1
]).
-export([
    every_page_in_80_by_24/1,
    every_page_in_200_by_60/1,
    a_recording_in_a_terminal/1,
    keys/1,
    a_node_that_ends/1,
    a_command_that_is_killed/1
]).

-import(weir_cli_program, [run/2, answer/1, mentions/2]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, programs}, {group, terminal}].

groups() ->
    [
        {programs, [parallel], [
            help_says_how,
            a_wrong_argument_is_one_line,
            a_node_that_cannot_be_reached_is_one_line_and_exit_code_1,
            once,
            as_json,
            as_csv,
            as_openmetrics,
            schedules,
            ping_pong,
            as_a_page,
            as_a_page_without_a_token,
            a_port_in_use,
            recorded,
            what_is_no_recording
        ]},
        {terminal, [parallel], [
            every_page_in_80_by_24,
            every_page_in_200_by_60,
            a_recording_in_a_terminal,
            keys,
            a_node_that_ends,
            a_command_that_is_killed
        ]}
    ].

init_per_suite(Config) ->
    {Name, Pid} = node_of_somebody(),
    [{node, Name}, {pid, Pid} | weir_cli_program:find(Config)].

end_per_suite(Config) ->
    weir_cli_program:kill("KILL", ?config(pid, Config)).

init_per_group(terminal, Config) ->
    case os:find_executable("tmux") of
        false -> {skip, "no tmux"};
        _ -> Config
    end;
init_per_group(_, Config) ->
    Config.

end_per_group(_, _Config) -> ok.

end_per_testcase(Case, _Config) ->
    _ = os:cmd(lists:concat(["tmux -L ", socket(Case), " kill-server 2>/dev/null"])),
    ok.

%% A stock node with its own cookie.
node_of_somebody() ->
    Name = lists:concat([peer:random_name(), "@127.0.0.1"]),
    {Name, weir_cli_program:start_node(Name, [])}.

help_says_how(_Config) ->
    {0, Lines} = answer(["scope", "--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["weir scope NODE", "--cookie", "--json", "--once", "Exit code"]].

a_wrong_argument_is_one_line(Config) ->
    {2, [<<"weir: ", _/binary>>] = Terminal} = run(Config, ["scope", "a@b"]),
    ?assert(mentions("no terminal", Terminal)),
    [
        begin
            {Status, Lines} = answer(["scope" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {[], "node"},
            {["patient", "--once"], "NAME@HOST"},
            {["a@b", "c@d"], "c@d"},
            {["a@b", "--csv", "--seconds", "0"], "seconds"},
            {["a@b", "--once", "--json"], "exclude"},
            {["a@b", "--schedules", "61"], "schedules"},
            {["a@b", "--schedules", "1", "--ping-pong"], "exclude"}
        ]
    ].

a_node_that_cannot_be_reached_is_one_line_and_exit_code_1(Config) ->
    {1, [Nobody]} = run(Config, ["scope", "nobody@127.0.0.1", "--once"]),
    ?assert(mentions("cannot reach nobody@127.0.0.1", [Nobody])).

once(Config) ->
    {0, Lines} = run(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--once"]),
    [
        ?assert(mentions(Word, Lines))
     || Word <- [
            "== overview",
            "utilisation",
            "normal 1",
            "eheap_alloc",
            "code_server",
            "OTP's poll set",
            "OTP's poll thread",
            "dirty_io_scheduler 1",
            "its own locks",
            "os_timestamp"
        ]
    ].

as_json(Config) ->
    {0, Lines} = run(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--json", "--no-load"]),
    {ok, #{<<"node">> := Node, <<"schedulers">> := [#{<<"utilisation">> := _} | _], <<"processes">> := [_ | _]}} =
        weir_json:decode(iolist_to_binary(lists:join($\n, Lines))),
    ?assertEqual(list_to_binary(?config(node, Config)), Node).

as_csv(Config) ->
    Program = weir_cli_program:start(Config, [
        "scope", ?config(node, Config), "--cookie", "of_its_own", "--csv", "--seconds", "2"
    ]),
    0 = weir_cli_program:exit_status(Program),
    %% Lines longer than a thousand bytes arrive in pieces. The test only needs the first one.
    Lines = weir_cli_program:later_lines(Program),
    ?assertMatch([<<"at,scheduler.normal.1.cpu,", _/binary>> | _], Lines),
    ?assert(length([Line || <<"17", _/binary>> = Line <- Lines] ++ [Line || <<"18", _/binary>> = Line <- Lines]) >= 2).

as_openmetrics(Config) ->
    {0, Lines} = run(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--openmetrics"]),
    ?assertEqual(<<"# EOF">>, lists:last(Lines)),
    ?assert(mentions("beam_reductions_total ", Lines)).

%% The cost is printed first, on standard error, which is part of the output here.
schedules(Config) ->
    %% A scheduler without a turn in the second has no table.
    ?waitMatch({[], _}, begin
        {0, Lines} = run(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--schedules", "1"]),
        Words = [
            "OTP's tracer",
            "from ready to running",
            "scheduler 1: ",
            "value |---",
            "turns of some processes",
            "migrations: "
        ],
        {[Word || Word <- Words, not mentions(Word, Lines)], Lines}
    end),
    {1, Refused} = run(Config, [
        "scope", ?config(node, Config), "--cookie", "of_its_own", "--schedules", "1", "--no-load"
    ]),
    ?assert(mentions("schedules cannot be measured with --no-load", Refused)).

ping_pong(Config) ->
    {0, Lines} = run(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--ping-pong"]),
    ?assert(mentions("round trips a second", Lines)),
    ?assert(mentions("ipctest in 2013: 832296", Lines)).

%% Only the printed address, with its token, gives access.
as_a_page(Config) ->
    Program = weir_cli_program:start(Config, ["scope", ?config(node, Config), "--cookie", "of_its_own", "--http", "0"]),
    {Port, Address} = served(Program),
    {match, [Token]} = re:run(Address, "^http://127.0.0.1:[0-9]+/#token=([0-9A-F]{32})$", [
        {capture, all_but_first, list}
    ]),
    ?assertEqual("401", curl(Port, "/metrics", "")),
    ?assertEqual("200", curl(Port, "/metrics", "-H 'Authorization: Bearer " ++ Token ++ "'")),
    ?assertEqual("200", curl(Port, "/look/processes", "-H 'Authorization: Bearer " ++ Token ++ "'")),
    weir_cli_program:kill("TERM", weir_cli_program:shell(Program)),
    0 = weir_cli_program:exit_status(Program).

as_a_page_without_a_token(Config) ->
    Program = weir_cli_program:start(Config, [
        "scope", ?config(node, Config), "--cookie", "of_its_own", "--http=0", "--no-token", "--no-load"
    ]),
    {Port, Address} = served(Program),
    ?assertEqual(list_to_binary(["http://127.0.0.1:", Port, "/"]), Address),
    ?assertEqual("200", curl(Port, "/look/overview", "")),
    ?assertEqual("421", curl(Port, "/look/overview", "-H 'Host: somebody.example'")),
    weir_cli_program:kill("TERM", weir_cli_program:shell(Program)),
    0 = weir_cli_program:exit_status(Program).

recorded(Config) ->
    [First, Second] =
        Files = [filename:join(?config(priv_dir, Config), Name) || Name <- ["first.jsonl", "second.jsonl.gz"]],
    [record(Config, File) || File <- Files],
    [
        begin
            {0, Lines} = run(Config, ["scope", "replay", File, "--once"]),
            [
                ?assert(mentions(Word, Lines))
             || Word <- ["== overview", "recorded at ", "utilisation", "eheap_alloc", "code_server"]
            ]
        end
     || File <- Files
    ],
    {0, Table} = run(Config, ["scope", "compare", First, Second, "--least", "0"]),
    [
        ?assert(mentions(Word, Table))
     || Word <- ["memory.total", "scheduler.normal.1.utilisation", "medians differ by 0 %"]
    ],
    Program = weir_cli_program:start(Config, ["scope", "replay", First, "--http", "0", "--no-token"]),
    {Port, _} = served(Program),
    ?assertEqual("200", curl(Port, "/look/memory", "")),
    weir_cli_program:kill("TERM", weir_cli_program:shell(Program)),
    0 = weir_cli_program:exit_status(Program).

record(Config, File) ->
    {0, [Told]} = run(Config, [
        "scope", "record", ?config(node, Config), File, "--cookie", "of_its_own", "--seconds", "2"
    ]),
    ?assertEqual(list_to_binary(["2 seconds recorded in ", File]), Told).

what_is_no_recording(Config) ->
    File = filename:join(?config(priv_dir, Config), "none"),
    ok = file:write_file(File, "{}\n"),
    [
        begin
            {1, [Line]} = run(Config, ["scope" | Arguments]),
            ?assert(mentions(Why, [Line]))
        end
     || {Arguments, Why} <- [
            {["replay", File, "--once"], "not a recording"},
            {["compare", File, File], "not a recording"},
            {["replay", File ++ "x", "--once"], "no such file"},
            {["record", "nobody@127.0.0.1", File ++ "y"], "cannot reach"}
        ]
    ],
    [
        ?assertMatch({Arguments, {2, [_]}}, {Arguments, run(Config, ["scope" | Arguments])})
     || Arguments <- [["record", "a@b"], ["replay"], ["compare", File], ["replay", File, "--speed", "0"]]
    ].

a_recording_in_a_terminal(Config) ->
    Case = ?FUNCTION_NAME,
    File = filename:join(?config(priv_dir, Config), "terminal.jsonl"),
    record(Config, File),
    start_program(Case, 80, 24, ["replay ", File], Config),
    shows(Case, "recorded at"),
    keys(Case, "3"), shows(Case, "eheap_alloc"),
    quits(Case, "q").

a_port_in_use(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    {1, [Line]} = run(Config, [
        "scope", ?config(node, Config), "--cookie", "of_its_own", "--http", integer_to_list(Port)
    ]),
    ?assert(mentions("cannot listen on 127.0.0.1 port " ++ integer_to_list(Port), [Line])),
    ok = gen_tcp:close(Listen).

served(Program) ->
    <<"ready ", Port/binary>> = weir_cli_program:line(Program),
    <<"pid ", _/binary>> = weir_cli_program:line(Program),
    {binary_to_list(Port), weir_cli_program:line(Program)}.

curl(Port, Path, More) ->
    os:cmd(lists:concat(["curl -s -m 120 -o /dev/null -w '%{http_code}' ", More, " http://127.0.0.1:", Port, Path])).

every_page_in_80_by_24(Config) -> every_page(?FUNCTION_NAME, 80, 24, Config).
every_page_in_200_by_60(Config) -> every_page(?FUNCTION_NAME, 200, 60, Config).

every_page(Case, Columns, Rows, Config) ->
    start(Case, Columns, Rows, Config),
    [
        begin
            keys(Case, Key),
            shows(Case, Word)
        end
     || {Key, Word} <- [
            {"1", "utilisation"},
            {"2", "normal 1"},
            {"3", "eheap_alloc"},
            {"4", "reds/s"},
            {"5", "owner"},
            {"6", "OTP's poll set"},
            {"7", "Weir does not run on"},
            {"8", "Microstates"},
            {"9", "other threads"},
            {"0", "Weir does not run on"},
            {"l", "its own locks"},
            {"c", "time correction is"},
            {"Tab", "utilisation"}
        ]
    ],
    ?assert(length(captured(Case)) =< Rows),
    quits(Case, "q").

keys(Config) ->
    Case = ?FUNCTION_NAME,
    start(Case, 80, 24, Config),
    shows(Case, "utilisation"),
    keys(Case, "?"), shows(Case, "next or previous page"),
    keys(Case, "x"), shows(Case, "utilisation"),
    keys(Case, "4"), shows(Case, "code_server"),
    keys(Case, "/ logger_su Enter"), gone(Case, "code_server"), shows(Case, "logger_sup"),
    keys(Case, "Escape"), shows(Case, "code_server"),
    keys(Case, "s"), shows(Case, "sorted by memory"),
    keys(Case, "p"), shows(Case, "paused"),
    keys(Case, "p"), gone(Case, "paused"),
    tmux(Case, "resize-window -x 120 -y 40"),
    %% The last line moved down to row 40.
    weir_test_wait:wait_until(fun() -> length(captured(Case)) > 30 end),
    quits(Case, "C-c").

%% The screen stays and shows what has happened.
a_node_that_ends(Config) ->
    Case = ?FUNCTION_NAME,
    {Name, Pid} = node_of_somebody(),
    start(Case, 80, 24, [{node, Name} | Config]),
    shows(Case, "utilisation"),
    weir_cli_program:kill("KILL", Pid),
    shows(Case, "cannot reach"),
    quits(Case, "q").

%% bin/weir restores the terminal.
a_command_that_is_killed(Config) ->
    Case = ?FUNCTION_NAME,
    start(Case, 80, 24, Config),
    shows(Case, "utilisation"),
    [Shell] = string:lexemes(tmux(Case, "list-panes -F '#{pane_pid}'"), "\n"),
    [Emulator] = emulators(Shell),
    weir_cli_program:kill("KILL", Emulator),
    shows(Case, "ended 137"),
    shows(Case, "same modes").

emulators(Pid) ->
    lists:append([
        case file:read_file("/proc/" ++ Child ++ "/comm") of
            {ok, <<"beam.smp\n">>} -> [Child];
            _ -> emulators(Child)
        end
     || Child <- string:lexemes(os:cmd("pgrep -P " ++ Pid), "\n")
    ]).

%% Starts it in a shell that prints the exit status afterwards, and whether the terminal is as before.
start(Case, Columns, Rows, Config) ->
    start_program(Case, Columns, Rows, [?config(node, Config), " --cookie of_its_own"], Config).

start_program(Case, Columns, Rows, Arguments, Config) ->
    Environment = [[Name, $=, Value, $\s] || {Name, Value} <- ?config(environment, Config)],
    Script = filename:join(?config(priv_dir, Config), lists:concat([Case, ".sh"])),
    ok = file:write_file(Script, [
        "before=$(stty -g)\n",
        "env ",
        Environment,
        ?config(weir, Config),
        " scope ",
        Arguments,
        $\n,
        "echo ended $?\n",
        "[ \"$(stty -g)\" = \"$before\" ] && echo same modes\n",
        "sleep 600\n"
    ]),
    %% Tmux's server is not a child of this VM. This port program ends it when its input closes, at the latest with the
    %% case.
    _ = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", "cat; tmux -L \"$0\" kill-server", socket(Case)]}, stderr_to_stdout
    ]),
    tmux(Case, lists:concat(["new-session -d -x ", Columns, " -y ", Rows, " sh ", Script])).

quits(Case, Key) ->
    keys(Case, Key),
    shows(Case, "ended 0"),
    shows(Case, "same modes").

keys(Case, Keys) -> tmux(Case, "send-keys " ++ Keys).

captured(Case) ->
    string:lexemes(tmux(Case, "capture-pane -p"), "\n").

shows(Case, Text) -> looks(Case, fun(Screen) -> string:find(Screen, Text) =/= nomatch end, {shows, Text}).
gone(Case, Text) -> looks(Case, fun(Screen) -> string:find(Screen, Text) =:= nomatch end, {hides, Text}).

looks(Case, Passes, Expected) ->
    weir_test_wait:wait_match(fun() -> tmux(Case, "capture-pane -p") end, Passes, #{expected => Expected}).

%% Each case has its own tmux server, without the user's configuration, which the case ends.
tmux(Case, Command) -> os:cmd(lists:concat(["TERM=xterm-256color tmux -f /dev/null -L ", socket(Case), " ", Command])).

socket(Case) -> lists:concat(["weir_scope_", os:getpid(), "_", Case]).
