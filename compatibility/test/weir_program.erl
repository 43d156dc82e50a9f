%% Programs that listen on a port of 127.0.0.1 while a case runs.
-module(weir_program).

-export([find/1, start/2, start_as/3, as/3, stop/1, stop_all/0]).
-export([with_us/2]).
-export([directory/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

%% Debian installs servers in /usr/sbin, which is not in a user's PATH; the path of PostgreSQL's programs contains its
%% version.
find(Program) ->
    Path = string:join([os:getenv("PATH", ""), "/usr/sbin" | filelib:wildcard("/usr/lib/postgresql/*/bin")], ":"),
    os:find_executable(Program, Path).

%% `Arguments' is a function of a free port. Returns that port once the program listens on it.
start(Program, Arguments) -> start_as(none, Program, Arguments).

%% Some servers refuse to run as root.
start_as(User, Program, Arguments) ->
    Self = self(),
    %% The keeper survives a killed case: it holds the port and waits for the program.
    {Keeper, Monitor} = spawn_monitor(fun() ->
        Port = weir_test_port:claim(),
        true = register(name(Port), self()),
        {Executable, All} = with_user(User, Program, Arguments(integer_to_list(Port))),
        Opened = open_port({spawn_executable, Executable}, [{args, All}, exit_status, stderr_to_stdout, binary]),
        {os_pid, Pid} = erlang:port_info(Opened, os_pid),
        Self ! {self(), started, Port},
        keep(Opened, Pid, [])
    end),
    receive
        {Keeper, started, Port} -> await(Port, Monitor);
        {'DOWN', Monitor, process, Keeper, Reason} -> error(Reason)
    end.

with_user(User, Program, Arguments) ->
    case User =/= none andalso os:cmd("id -u") of
        "0\n" -> with_us(["--reuid=" ++ User, "--regid=" ++ User, "--clear-groups"], find(Program), Arguments);
        _ -> with_us(find(Program), Arguments)
    end.

%% Wraps a program so that it gets a signal when this emulator ends for any reason.
with_us(Executable, Arguments) -> with_us([], Executable, Arguments).

with_us(Options, Executable, Arguments) ->
    case os:find_executable("setpriv") of
        false when Options =:= [] -> {Executable, Arguments};
        Setpriv -> {Setpriv, ["--pdeathsig", "TERM" | Options] ++ [Executable | Arguments]}
    end.

keep(Opened, Pid, Said) ->
    receive
        {Opened, {data, Data}} -> keep(Opened, Pid, [Data | lists:sublist(Said, 100)]);
        {Opened, {exit_status, Status}} -> exit({ended, Status, iolist_to_binary(lists:reverse(Said))});
        stop ->
            _ = os:cmd("kill " ++ integer_to_list(Pid)),
            receive
                {Opened, {exit_status, _}} -> ok
            after weir_test_wait:patience() ->
                _ = os:cmd("kill -9 " ++ integer_to_list(Pid))
            end
    end.

await(Port, Monitor) ->
    weir_test_wait:wait_until(fun() ->
        receive
            {'DOWN', Monitor, process, _, Reason} -> error(Reason)
        after 0 -> ok
        end,
        case gen_tcp:connect(?LOOPBACK, Port, []) of
            {ok, Socket} -> gen_tcp:close(Socket) =:= ok;
            Error -> Error
        end
    end),
    demonitor(Monitor, [flush]),
    Port.

%% Runs a program until it ends. If it fails, the error contains its output.
as(User, Program, Arguments) ->
    {Executable, All} = with_user(User, Program, Arguments),
    Opened = open_port({spawn_executable, Executable}, [{args, All}, exit_status, stderr_to_stdout, binary]),
    ended(Opened, <<>>).

ended(Opened, Said) ->
    receive
        {Opened, {data, Data}} -> ended(Opened, <<Said/binary, Data/binary>>);
        {Opened, {exit_status, 0}} -> ok;
        {Opened, {exit_status, Status}} -> {error, Status, Said}
    end.

%% Stops the program on this port, and returns when it has ended.
stop(Port) ->
    Monitor = monitor(process, name(Port)),
    catch name(Port) ! stop,
    receive {'DOWN', Monitor, process, _, _} -> ok end.

%% Stops all programs and deletes all directories of this emulator.
stop_all() ->
    [ok = stop(list_to_integer(Port)) || Name <- registered(), "weir_program_" ++ Port <- [atom_to_list(Name)]],
    [_ = file:del_dir_r(Directory) || Directory <- filelib:wildcard(directory_name("*", "*"))],
    ok.

name(Port) -> list_to_atom("weir_program_" ++ integer_to_list(Port)).

%% Creates an empty directory that other users may enter.
directory(Owner) ->
    Directory = directory_name(Owner, integer_to_list(erlang:unique_integer([positive]))),
    ok = file:make_dir(Directory),
    _ = os:cmd(lists:concat(["chown ", Owner, " ", Directory])),
    Directory.

directory_name(Owner, Number) -> lists:concat(["/tmp/weir-", Owner, "-", os:getpid(), "-", Number]).
