%% bin/weir, run as a user would run it.
-module(weir_cli_program).

-include_lib("common_test/include/ct.hrl").

-export([find/1]).
-export([start/2, run/2]).
-export([line/1, later_lines/1, exit_status/1]).
-export([stop/1, shell/1, kill/2, kill_all/0]).
-export([mentions/2, ancestor/2]).

-define(TIMEOUT, 60000).

%% Where bin/weir is, and by which variables it finds what the tests were compiled with: rebar3's own.
find(Config) ->
    Ebin = filename:dirname(code:which(weir_cli)),
    Profile = ancestor(Ebin, 3),
    Build = filename:dirname(Profile),
    Environment = [{"REBAR_BASE_DIR", Build}, {"REBAR_PROFILE", filename:basename(Profile)}],
    [{weir, find_weir(Build)}, {environment, Environment} | Config].

%% With `{disposition, Option}' of env(1) in the configuration a signal is ignored, or is not, from the start.
start(Config, Arguments) ->
    {Program, All} =
        case ?config(disposition, Config) of
            undefined -> {?config(weir, Config), Arguments};
            Option -> {os:find_executable("env"), [Option, ?config(weir, Config) | Arguments]}
        end,
    Port = open_port({spawn_executable, Program}, [
        {args, All}, {env, ?config(environment, Config)}, {line, 1000}, exit_status, stderr_to_stdout, binary
    ]),
    _ = put({?MODULE, Port}, started),
    #{program => Port}.

run(Config, Arguments) ->
    Program = start(Config, Arguments),
    Status = exit_status(Program),
    {Status, later_lines(Program)}.

line(#{program := Port}) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, Status}} -> ct:fail({exited, Status})
    after ?TIMEOUT -> ct:fail(no_line)
    end.

later_lines(#{program := Port} = Program) ->
    receive {Port, {data, {_, Line}}} -> [Line | later_lines(Program)] after 0 -> [] end.

%% The lines that came before stay in the mailbox.
exit_status(#{program := Port}) ->
    receive {Port, {exit_status, Status}} -> Status after ?TIMEOUT -> ct:fail(still_running) end.

stop(Program) ->
    kill("TERM", shell(Program)),
    exit_status(Program).

shell(#{program := Port}) ->
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    integer_to_list(Pid).

kill(Signal, Pid) ->
    "" = os:cmd("kill -" ++ Signal ++ " " ++ Pid).

%% Those of a case that still run, because it has failed. The emulator is a child of the shell.
kill_all() ->
    [
        "" = os:cmd(lists:concat(["kill -KILL $(pgrep -P ", Shell, ") ", Shell]))
     || {{?MODULE, Port}, started} <- get(), {os_pid, Shell} <- [erlang:port_info(Port, os_pid)]
    ],
    ok.

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
