%% Runs bin/weir as a user would.
-module(weir_cli_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    help_names_every_command/1,
    help_of_run_names_examples_and_options/1,
    help_and_a_command_is_the_commands_help/1,
    every_command_refuses_an_unknown_option/1,
    version_names_weir_and_otp/1,
    a_wrong_argument_is_one_line_and_exit_code_2/1,
    a_tree_that_is_not_built_says_so/1,
    it_runs_through_a_symbolic_link/1,
    emulator_flags_come_from_the_environment/1,
    a_signal_stops_it_with_exit_code_0/1,
    it_outlives_a_hangup_that_its_parent_ignores/1,
    a_signal_while_it_boots_stops_it/1,
    the_emulator_dies_with_its_shell/1,
    places_of_sockets_are_told_on_a_signal/1,
    all_schedulers_that_are_asked_for_are_online/1,
    scenarios_are_listed/1,
    programs_die_with_the_measurer/1
]).

-import(weir_cli_program, [
    start/2, run/2, answer/1, later_lines/1, exit_status/1, stop/1, shell/1, kill/2, mentions/2, ancestor/2
]).
-import(weir_test_wait, [wait_until/1]).
-import(weir_cli_test, [connect/1, exchange/2, pid/1, serve/3]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        help_names_every_command,
        help_of_run_names_examples_and_options,
        help_and_a_command_is_the_commands_help,
        every_command_refuses_an_unknown_option,
        version_names_weir_and_otp,
        a_wrong_argument_is_one_line_and_exit_code_2,
        a_tree_that_is_not_built_says_so,
        it_runs_through_a_symbolic_link,
        emulator_flags_come_from_the_environment,
        a_signal_stops_it_with_exit_code_0,
        it_outlives_a_hangup_that_its_parent_ignores,
        a_signal_while_it_boots_stops_it,
        the_emulator_dies_with_its_shell,
        places_of_sockets_are_told_on_a_signal,
        all_schedulers_that_are_asked_for_are_online,
        scenarios_are_listed,
        programs_die_with_the_measurer
    ].

init_per_suite(Config) ->
    weir_cli_program:find(Config).

end_per_suite(_Config) ->
    ok.

%% Commands

help_names_every_command(Config) ->
    {0, Lines} = run(Config, ["--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["run", "serve", "demo", "bench", "--version"]],
    {2, [Line]} = run(Config, []),
    ?assert(mentions("--help", [Line])).

help_of_run_names_examples_and_options(_Config) ->
    {0, Lines} = answer(["run", "--help"]),
    Examples = [
        "echo", "proxy", "ehttpd", "accept", "game", "tls_echo", "file_httpd", "discard", "chargen", "cowboy_hello",
        "fanout_processes", "fanout", "echo_listener", "accept_listener", "echo_reactor", "game_reactor", "relay",
        "ranch_echo", "ranch_simple", "simple", "simple_readers", "simple_responders"
    ],
    Options = [
        "--port", "--backend", "--active", "--packet", "--file", "--to", "--schedulers", "--ip", "--size",
        "--per-second", "--sndbuf", "--acceptors", "--sleep", "--work", "--places"
    ],
    [?assert(mentions(Word, Lines)) || Word <- Examples ++ Options],
    [{0, [_ | _]} = answer([Command, "--help"]) || Command <- ["demo", "bench"]].

help_and_a_command_is_the_commands_help(Config) ->
    ?assertEqual(run(Config, ["exec", "--help"]), run(Config, ["help", "exec"])),
    [
        ?assertEqual({Command, answer(Command ++ ["--help"])}, {Command, answer(["help" | Command])})
     || Command <- [["run"], ["serve"], ["load"], ["load", "echo"], ["load", "compare"], ["demo"], ["bench"]]
    ],
    ?assertEqual(answer(["--help"]), answer(["help"])).

every_command_refuses_an_unknown_option(Config) ->
    [
        begin
            {Status, Lines} = Answer(Command ++ ["--frob"]),
            ?assertMatch({Command, 2, [<<"weir: ", _/binary>>]}, {Command, Status, Lines}),
            ?assert(mentions("--frob", Lines))
        end
     || {Answer, Commands} <- [
            {fun(Arguments) -> run(Config, Arguments) end, [[], ["exec"]]},
            {fun weir_cli_program:answer/1, [
                ["help"],
                ["--version"],
                ["run"],
                ["run", "echo"],
                ["serve"],
                ["load"],
                ["load", "echo", "127.0.0.1:1"],
                ["load", "compare"],
                ["demo"],
                ["bench"]
            ]}
        ],
        Command <- Commands
    ].

version_names_weir_and_otp(Config) ->
    {0, [Line]} = run(Config, ["--version"]),
    ?assert(mentions("OTP " ++ erlang:system_info(otp_release), [Line])).

a_wrong_argument_is_one_line_and_exit_code_2(Config) ->
    %% bin/weir itself checks this argument.
    {2, [<<"weir: ", _/binary>>] = Schedulers} = run(Config, ["run", "echo", "--schedulers", "1025"]),
    ?assert(mentions("1025", Schedulers)),
    [
        begin
            {Status, Lines} = answer(string:lexemes(Arguments, " ")),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {"frob", "frob"},
            {"--frob", "--frob"},
            {"run", "example"},
            {"run frob", "frob"},
            {"run echo more", "more"},
            {"run echo --port 65536", "65536"},
            {"run echo --backend quic", "quic"},
            {"run echo --active 0", "--active 0"},
            {"run echo --ip localhost", "localhost"},
            {"run proxy", "--to"},
            {"run proxy --to nowhere", "nowhere"},
            {"run relay", "--to"},
            {"run relay --to 127.0.0.1:1 --backend inet", "--backend inet"},
            {"run echo --to 127.0.0.1:1", "--to"},
            {"run echo --packet 3", "--packet 3"},
            {"run proxy --to 127.0.0.1:1 --packet 4", "--packet is for echo"},
            {"run file_httpd", "--file"},
            {"run chargen --active once", "--active"},
            {"run echo_reactor --backend inet", "echo_reactor runs on weir only"},
            {"run relay --to 127.0.0.1:1 --backend socket", "--backend socket"},
            {"run fanout --size 7", "--size 7"},
            {"run fanout --per-second -1", "--per-second -1"},
            {"run echo --size 64", "--size is for fanout_processes, ws_broadcast, sse_broadcast, fanout"},
            {"run echo --sndbuf 0", "--sndbuf 0"},
            {"run echo_listener --active true", "--active is for"},
            {"run accept_listener --active once", "--active is for"},
            {"help frob", "frob"},
            {"--help run", "weir help COMMAND"},
            {"demo now", "now"},
            {"demo --json /no/such/directory/file", "/no/such/directory/file"},
            {"bench --only frob", "frob"},
            {"bench --repeat 0", "--repeat 0"},
            {"bench frob", "frob"},
            {"bench document results.json", "results.json"},
            {"bench page", "RESULTS"},
            {"run echo --sleep 20", "--sleep is for ranch_simple, simple"},
            {"run simple --acceptors 0", "--acceptors 0"}
        ]
    ].

a_tree_that_is_not_built_says_so(Config) ->
    Nowhere = ?config(priv_dir, Config),
    {1, [Line]} = run([{environment, [{"REBAR_BASE_DIR", Nowhere}]} | Config], ["--help"]),
    ?assert(mentions("make build", [Line])).

it_runs_through_a_symbolic_link(Config) ->
    Link = filename:join(?config(priv_dir, Config), "a link"),
    ok = file:make_symlink(?config(weir, Config), Link),
    {0, [_]} = run([{weir, Link} | Config], ["--version"]).

emulator_flags_come_from_the_environment(Config) ->
    Environment = [{"ERL_FLAGS", "+S 3:3"} | ?config(environment, Config)],
    Program = serve([{environment, Environment} | Config], echo, ["--backend", "inet"]),
    {ok, CommandLine} = file:read_file(proc(pid(Program), "cmdline")),
    ?assertNotEqual(nomatch, binary:match(CommandLine, <<0, "3:3", 0>>)),
    0 = stop(Program).

a_signal_stops_it_with_exit_code_0(Config) ->
    [
        begin
            #{port := Port} = Program = serve(under("--default-signal=HUP", Config), echo, ["--backend", "inet"]),
            {ok, Client} = connect(Port),
            kill(Signal, shell(Program)),
            ?assertEqual({Signal, 0, []}, {Signal, exit_status(Program), later_lines(Program)}),
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_test_wait:patience())),
            ?assertEqual({error, econnrefused}, connect(Port))
        end
     || Signal <- ["TERM", "INT", "HUP"]
    ].

%% As with `nohup bin/weir run echo'.
it_outlives_a_hangup_that_its_parent_ignores(Config) ->
    #{port := Port} = Program = serve(under("--ignore-signal=HUP", Config), echo, ["--backend", "inet"]),
    kill("HUP", shell(Program)),
    kill("HUP", binary_to_list(pid(Program))),
    {ok, Client} = connect(Port),
    exchange(Client, <<"still there">>),
    0 = stop(Program).

%% Sets the disposition of the signal, because the tests themselves may run with SIGHUP ignored (`nohup make test').
under(Disposition, Config) ->
    [{disposition, Disposition} | Config].

%% At the beginning of the boot the emulator has no signal handler yet.
a_signal_while_it_boots_stops_it(Config) ->
    [
        begin
            Program = start(Config, ["run", "echo", "--backend", "inet"]),
            timer:sleep(Delay),
            kill("TERM", shell(Program)),
            _ = exit_status(Program)
        end
     || Delay <- [20, 60, 100, 150]
    ].

the_emulator_dies_with_its_shell(Config) ->
    case os:find_executable("setpriv") of
        false ->
            {skip, "without setpriv the emulator stays"};
        _ ->
            Program = serve(Config, echo, ["--backend", "inet"]),
            kill("KILL", shell(Program)),
            gone(pid(Program))
    end.

%% Of two connections, only one has an owner that runs.
places_of_sockets_are_told_on_a_signal(Config) ->
    #{port := Port} =
        Program = serve(Config, echo, ["--places", "--schedulers", "2", "--work", "1", "--acceptors", "1"]),
    {ok, Silent} = connect(Port),
    {ok, Speaker} = connect(Port),
    exchange(Silent, <<"first">>),
    Asking = spawn_link(fun() -> speak(Speaker, 0) end),
    ok = gen_tcp:controlling_process(Speaker, Asking),
    Asking ! begin_now,
    %% The owner of the silent connection may still run for a while, until it waits in its receive again.
    [1 = Seen, Away, Events, Busiest] = ?waitMatch([1, _, _, _], places(Program)),
    ?assert(Away =< Seen),
    ?assert(Busiest =< Events andalso Busiest > 0),
    unlink(Asking),
    exit(Asking, kill),
    0 = stop(Program).

places(Program) ->
    kill("USR2", binary_to_list(pid(Program))),
    [<<"places">> | Numbers] = binary:split(weir_cli_program:line(Program), <<" ">>, [global]),
    [binary_to_integer(Number) || Number <- Numbers].

speak(Socket, 0) ->
    receive begin_now -> speak(Socket, 1) end;
speak(Socket, Count) ->
    exchange(Socket, <<"again">>),
    speak(Socket, Count + 1).

all_schedulers_that_are_asked_for_are_online(Config) ->
    Many = erlang:system_info(logical_processors) + 1,
    Program = serve(Config, echo_reactor, ["--schedulers", integer_to_list(Many)]),
    {ok, Status} = file:read_file(proc(pid(Program), "cmdline")),
    Argument = integer_to_list(Many) ++ ":" ++ integer_to_list(Many),
    ?assertNotEqual(nomatch, binary:match(Status, list_to_binary(Argument))),
    0 = stop(Program).

scenarios_are_listed(Config) ->
    {0, Lines} = run(Config, ["bench", "--list"]),
    Names = [
        "echo-10000", "busy", "ehttpd-100", "accept", "game", "idle", "packet-4", "packet-line", "tls-100",
        "random-10000", "cowboy-100", "cowboy-1000", "sendfile", "download", "upload", "listener-1000", "relay-500",
        "relay-bulk", "broadcast-1000", "broadcast-slow", "idle-100000", "schedulers", "fast-connect", "fast-receive",
        "fanout-delay", "seed-acceptors", "seed-active-500mbit", "quick"
    ],
    [?assert(mentions(Name, Lines)) || Name <- Names].

programs_die_with_the_measurer(Config) ->
    Leash = filename:join([ancestor(?config(weir, Config), 2), "bench", "leash"]),
    Port = open_port({spawn_executable, Leash}, [{args, ["sleep", "600"]}, {line, 1000}, binary]),
    Pid =
        receive
            {Port, {data, {eol, <<"pid ", Number/binary>>}}} -> Number
        after weir_test_wait:patience() -> error(no_pid)
        end,
    ?assert(filelib:is_regular(proc(Pid, "status"))),
    true = port_close(Port),
    gone(Pid).

gone(Pid) ->
    wait_until(fun() ->
        case file:read_file(proc(Pid, "status")) of
            {error, Reason} -> lists:member(Reason, [enoent, esrch]);
            {ok, Status} -> Status
        end
    end).

proc(Pid, File) ->
    filename:join(["/proc", binary_to_list(Pid), File]).
