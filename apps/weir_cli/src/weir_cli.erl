%% @doc The command line: finds the command, runs it, and ends the emulator with its exit code.
%%
%% Exit codes: 0 success; 1 failure, such as a port in use; 2 wrong argument; 3 `load' could not offer the load; 4
%% `doctor' found warnings; 5 `doctor' found something critical; 130 interrupted measurement. A failure or a wrong
%% argument prints a message that begins with `weir: ' on standard error.
-module(weir_cli).

-export([start/0]).
-export([run/1]).

-export_type([outcome/0]).

%% What a command returns.
-type outcome() ::
    ok
    | {found, none | weir_scope_rule:severity()}
    | {help, iodata()}
    | {usage, iodata()}
    | {failed, iodata()}
    | {unoffered, iodata()}
    | interrupted.

%% @doc Runs the command that follows `-extra' on the emulator's command line, in a separate process that ends the
%% emulator. Returns at once, because the emulator only finishes its boot after this has returned.
-spec start() -> ok.
start() ->
    %% UTF-8 in every locale: the output contains units such as µs.
    ok = io:setopts(standard_io, [{encoding, unicode}]),
    ok = io:setopts(standard_error, [{encoding, unicode}]),
    _ = spawn(fun main/0),
    ok.

%% init:stop/1 would take a second, and nothing is left to stop.
-spec main() -> no_return().
main() ->
    halt(exit_code(init:get_plain_arguments())).

exit_code(Arguments) ->
    try run(Arguments) of
        ok -> 0;
        {found, critical} -> 5;
        {found, warning} -> 4;
        {found, _} -> 0;
        {help, Text} -> io:put_chars(Text), 0;
        {usage, Message} -> complain(Message), 2;
        {failed, Message} -> complain(Message), 1;
        {unoffered, Message} -> complain(["invalid: ", Message]), 3;
        interrupted -> complain("interrupted"), 130
    catch
        Class:Reason:Stack ->
            complain(erl_error:format_exception(Class, Reason, Stack)),
            1
    end.

%% @doc Runs a command, given as the arguments that follow `weir'.
-spec run([string()]) -> outcome().
run([]) -> {usage, "a command is missing (weir --help lists them)"};
run([Help]) when Help =:= "--help"; Help =:= "-h"; Help =:= "help" -> {help, help()};
run(["help" | Command]) -> run(Command ++ ["--help"]);
run(["--version"]) -> {help, version()};
run([Option, Extra | _]) when Option =:= "--help"; Option =:= "-h"; Option =:= "--version" ->
    {usage, [Option, " takes no argument, but there is: ", Extra, " (weir help COMMAND prints the help of a command)"]};
run(["run" | Arguments]) -> weir_cli_run:run(Arguments);
run(["serve" | Arguments]) -> weir_cli_serve:run(Arguments);
run(["push" | Arguments]) -> weir_cli_push:run(Arguments);
run(["proxy" | Arguments]) -> weir_cli_proxy:run(Arguments);
run(["doctor" | Arguments]) -> weir_cli_doctor:run(Arguments);
run(["scope" | Arguments]) -> weir_cli_scope:run(Arguments);
run(["demo" | Arguments]) -> weir_cli_demo:run(Arguments);
run(["bench" | Arguments]) -> weir_cli_bench:run(Arguments);
run(["load" | Arguments]) -> weir_cli_load:run(Arguments);
run(["-" ++ _ = Option | _]) -> {usage, ["unknown option ", Option, " (weir --help lists the commands)"]};
run([Command | _]) -> {usage, ["unknown command ", Command, " (weir --help lists them)"]}.

complain(Message) ->
    io:format(standard_error, "weir: ~ts~n", [Message]).

help() ->
    "weir: fast TCP for stock Erlang/OTP\n"
    "\n"
    "usage: weir COMMAND [OPTION...]\n"
    "\n"
    "  run EXAMPLE   serve one of the example servers, on stock gen_tcp or on Weir\n"
    "  serve DIR     serve the files of a directory over HTTP\n"
    "  push          serve channels: publish and subscribe over HTTP, as Nchan does\n"
    "  proxy         balance TCP connections over servers; reload its configuration without losing a connection\n"
    "  exec COMMAND  run any Erlang program, unchanged, with Weir as the TCP module of its virtual machine\n"
    "  scope NODE    show where a node spends its time, live\n"
    "  doctor NODE   find wrong settings and present faults of a node\n"
    "  load          put load on a TCP server and report the results; compare two reports\n"
    "  demo          compare stock gen_tcp and Weir on real traffic, in two minutes\n"
    "  demo chat     serve a chat room for the browser, with up to 1,000 robots in it\n"
    "  bench         run all benchmarks and write the results to bench/results\n"
    "\n"
    "  help COMMAND  print the help of a command, as COMMAND --help does\n"
    "  --help        print this text\n"
    "  --version     print the versions of Weir and of Erlang/OTP\n"
    "\n"
    "Pass emulator flags in ERL_FLAGS: ERL_FLAGS=\"+sbwt none\" weir run echo\n".

version() ->
    _ = application:load(weir_cli),
    {ok, Version} = application:get_key(weir_cli, vsn),
    io_lib:format("weir ~ts on Erlang/OTP ~ts, erts ~ts~n", [
        Version, erlang:system_info(otp_release), erlang:system_info(version)
    ]).
