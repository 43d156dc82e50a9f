%% Programs that listen on a port of 127.0.0.1 while a case runs.
-module(weir_program).

-include_lib("stdlib/include/assert.hrl").

-export([find/1, start/2, start_as/3, as/3, stop/1, stop_all/0]).
-export([free_port/0, directory/1]).

-define(PATIENCE, 30_000).

%% Debian keeps servers where only root looks, and those of PostgreSQL with their version.
find(Program) ->
    Path = string:join([os:getenv("PATH", ""), "/usr/sbin" | filelib:wildcard("/usr/lib/postgresql/*/bin")], ":"),
    os:find_executable(Program, Path).

%% The arguments are made from a free port. Returns that port once the program listens on it.
start(Program, Arguments) -> start_as(none, Program, Arguments).

%% Some servers do not run as root.
start_as(User, Program, Arguments) ->
    Port = free_port(),
    {Executable, All} = with_user(User, Program, Arguments(integer_to_list(Port))),
    Self = self(),
    %% The case may be killed; who waits for the program is not.
    Keeper = spawn(fun() ->
        Opened = open_port({spawn_executable, Executable}, [{args, All}, exit_status, stderr_to_stdout, binary]),
        {os_pid, Pid} = erlang:port_info(Opened, os_pid),
        Self ! {self(), started},
        keep(Opened, Pid, [])
    end),
    true = register(name(Port), Keeper),
    receive {Keeper, started} -> ok end,
    await(Port, Keeper, erlang:monotonic_time(millisecond) + ?PATIENCE).

with_user(User, Program, Arguments) ->
    case User =/= none andalso os:cmd("id -u") of
        "0\n" -> {os:find_executable("setpriv"), ["--reuid=" ++ User, "--regid=" ++ User, "--clear-groups", find(Program) | Arguments]};
        _ -> {find(Program), Arguments}
    end.

keep(Opened, Pid, Said) ->
    receive
        {Opened, {data, Data}} -> keep(Opened, Pid, [Data | lists:sublist(Said, 100)]);
        {Opened, {exit_status, Status}} -> exit({ended, Status, iolist_to_binary(lists:reverse(Said))});
        {stop, From} ->
            _ = os:cmd("kill " ++ integer_to_list(Pid)),
            receive
                {Opened, {exit_status, _}} -> ok
            after ?PATIENCE ->
                _ = os:cmd("kill -9 " ++ integer_to_list(Pid))
            end,
            From ! {self(), stopped}
    end.

await(Port, Keeper, Deadline) ->
    ?assert(is_process_alive(Keeper)),
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Port;
        {error, _} ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline),
            timer:sleep(50),
            await(Port, Keeper, Deadline)
    end.

%% Runs a program to its end; its output if it fails.
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

stop(Port) ->
    Keeper = whereis(name(Port)),
    Monitor = monitor(process, Keeper),
    Keeper ! {stop, self()},
    receive
        {Keeper, stopped} -> ok;
        {'DOWN', Monitor, process, Keeper, _} -> ok
    end,
    wait_until_gone(Port).

wait_until_gone(Port) ->
    case whereis(name(Port)) of
        undefined -> ok;
        _ -> timer:sleep(5), wait_until_gone(Port)
    end.

stop_all() ->
    [ok = stop(list_to_integer(Port)) || Name <- registered(), "weir_program_" ++ Port <- [atom_to_list(Name)]],
    ok.

name(Port) -> list_to_atom("weir_program_" ++ integer_to_list(Port)).

%% Below the ports that connections take by themselves.
free_port() ->
    Port = 10_000 + rand:uniform(20_000),
    case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}]) of
        {ok, Listen} ->
            ok = gen_tcp:close(Listen),
            Port;
        {error, eaddrinuse} ->
            free_port()
    end.

%% An empty directory that other users may enter.
directory(Owner) ->
    Directory = lists:concat(["/tmp/weir-", Owner, "-", os:getpid(), "-", erlang:unique_integer([positive])]),
    ok = file:make_dir(Directory),
    _ = os:cmd(lists:concat(["chown ", Owner, " ", Directory])),
    Directory.
