%% bin/weir, run as a user would run it.
-module(weir_cli_program).

-include_lib("common_test/include/ct.hrl").

-export([find/1]).
-export([start/2, run/2]).
-export([answer/1, told/1]).
-export([bound/2, start_node/2]).
-export([line/1, later_lines/1, exit_status/1]).
-export([stop/1, shell/1, kill/2]).
-export([mentions/2, ancestor/2]).

%% Finds bin/weir, and sets rebar3's variables so that it uses the build of the tests.
find(Config) ->
    Ebin = filename:dirname(code:which(weir_cli)),
    Profile = ancestor(Ebin, 3),
    Build = filename:dirname(Profile),
    Environment = [{"REBAR_BASE_DIR", Build}, {"REBAR_PROFILE", filename:basename(Profile)}],
    [{weir, find_weir(Build)}, {environment, Environment} | Config].

%% Starts the program. `{disposition, Option}' in the configuration is an option of env(1) that sets whether a signal
%% is ignored from the start. The program ends with the process that has started it, and with the virtual machine of
%% the tests.
start(Config, Arguments) ->
    {Program, All} =
        case ?config(disposition, Config) of
            undefined -> bound(?config(weir, Config), Arguments);
            Option -> bound(os:find_executable("env"), [Option, ?config(weir, Config) | Arguments])
        end,
    Port = open_port({spawn_executable, Program}, [
        {args, All}, {env, ?config(environment, Config)}, {line, 1000}, exit_status, stderr_to_stdout, binary
    ]),
    {os_pid, Shell} = erlang:port_info(Port, os_pid),
    #{program => Port, guard => guard(self(), Shell)}.

%% The emulator is a child of the shell.
guard(Starter, Shell) ->
    spawn(fun() ->
        Monitor = monitor(process, Starter),
        receive
            ended ->
                ok;
            {'DOWN', Monitor, process, Starter, _} ->
                os:cmd(lists:concat(["kill -KILL $(pgrep -P ", Shell, ") ", Shell]))
        end
    end).

%% Returns a command that gets SIGTERM when its parent ends. The parent is the port program of the VM of the tests,
%% which ends with that VM.
bound(Program, Arguments) ->
    case os:find_executable("setpriv") of
        false -> {Program, Arguments};
        Setpriv -> {Setpriv, ["--pdeathsig", "TERM", Program | Arguments]}
    end.

%% Starts a stock node with its own cookie, and returns its process id. The node ends with the virtual machine of the
%% tests, not with the caller.
start_node(Name, Flags) ->
    {Program, Arguments} = bound(
        os:find_executable("erl"),
        ["-noinput", "-name", Name, "-setcookie", "of_its_own" | Flags] ++ ["-eval", "io:format(\"up~n\")."]
    ),
    Port = open_port({spawn_executable, Program}, [{args, Arguments}, {line, 100}, binary]),
    receive
        {Port, {data, {eol, <<"up">>}}} -> ok
    after weir_test_wait:patience() -> ct:fail(no_node)
    end,
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    integer_to_list(Pid).

%% Runs a command in this VM that ends at once. Returns the same as run/2.
answer(Arguments) -> told(weir_cli:run(Arguments)).

%% Returns the exit code and the lines of an outcome.
told(ok) -> {0, []};
told({help, Text}) -> {0, string:split(string:trim(unicode:characters_to_binary(Text), trailing, "\n"), "\n", all)};
told({usage, Message}) -> {2, complaint(Message)};
told({failed, Message}) -> {1, complaint(Message)}.

complaint(Message) -> string:split(unicode:characters_to_binary(["weir: ", Message]), "\n", all).

run(Config, Arguments) ->
    Program = start(Config, Arguments),
    Status = exit_status(Program),
    {Status, later_lines(Program)}.

line(#{program := Port}) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, Status}} -> ct:fail({exited, Status})
    after weir_test_wait:patience() -> ct:fail(no_line)
    end.

later_lines(#{program := Port} = Program) ->
    receive {Port, {data, {_, Line}}} -> [Line | later_lines(Program)] after 0 -> [] end.

%% Earlier lines stay in the mailbox.
exit_status(#{program := Port, guard := Guard}) ->
    receive
        {Port, {exit_status, Status}} -> Guard ! ended, Status
    after weir_test_wait:patience() -> ct:fail(still_running)
    end.

stop(Program) ->
    kill("TERM", shell(Program)),
    exit_status(Program).

shell(#{program := Port}) ->
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    integer_to_list(Pid).

kill(Signal, Pid) ->
    "" = os:cmd("kill -" ++ Signal ++ " " ++ Pid).

mentions(Word, Lines) ->
    lists:any(fun(Line) -> binary:match(Line, list_to_binary(Word)) =/= nomatch end, Lines).

ancestor(Path, 0) -> Path;
ancestor(Path, Up) -> ancestor(filename:dirname(Path), Up - 1).

find_weir(Directory) ->
    Weir = filename:join([Directory, "bin", "weir"]),
    case {filelib:is_regular(Weir), filename:dirname(Directory)} of
        {true, _} -> Weir;
        {false, Directory} -> error(no_bin_weir);
        {false, Above} -> find_weir(Above)
    end.
