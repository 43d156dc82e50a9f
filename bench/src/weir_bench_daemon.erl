%% @doc Runs third-party servers that read their port from a file and do not print when they are ready, such as
%% HAProxy and nginx. They get a free port, and are probed until they listen.
-module(weir_bench_daemon).

-export([start/4]).
-export([stop/1]).

%% A program may start slowly on a busy machine.
-define(READY_TIMEOUT, 60000).
-define(TRY_EVERY, 50).

%% @doc Writes a configuration, starts the server and waits until it listens. `Configuration' gets the port, a
%% directory for the server's files, and the number of changes. `Command' gets the configuration file. `Signal' makes
%% the server reload it. `Pin' is a prefix of the command.
-spec start(Configuration, Command, Signal :: string(), weir_bench_machine:pin()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}
when
    Configuration :: fun((inet:port_number(), Directory :: file:filename(), Changes :: non_neg_integer()) -> iodata()),
    Command :: fun((File :: file:filename()) -> [string(), ...]).
start(Configuration, Command, Signal, Pin) ->
    Port = weir_bench_machine:free_port(),
    Directory = filename:dirname(weir_bench_tree:scratch("")),
    {File, Kept} = weir_bench_configuration:write(io_lib:format("~b.conf", [Port]), fun(Changes) ->
        Configuration(Port, Directory, Changes)
    end),
    Program = weir_bench_program:start(Pin ++ Command(File), []),
    case listening(Program, Port) of
        {ok, Pid} ->
            {ok, weir_bench_configuration:keep(Kept, Signal, #{program => Program, port => Port, pid => Pid})};
        {error, _} = Error ->
            ok = weir_bench_program:stop(Program),
            ok = weir_bench_configuration:delete(Kept),
            Error
    end.

%% @doc Stops a server, also one of ours, waits until it has ended, and deletes its files.
-spec stop(weir_bench_server:server()) -> ok.
stop(#{program := Program} = Server) ->
    ok = weir_bench_program:stop(Program),
    lists:foreach(fun weir_bench_configuration:delete/1, [File || #{file := File} <- [Server]]),
    lists:foreach(fun file:del_dir_r/1, [Directory || #{directory := Directory} <- [Server]]),
    lists:foreach(fun stop/1, [Origin || #{origin := Origin} <- [Server]]).

%% The leash prints the pid of its child, and the child keeps that pid.
listening(Program, Port) ->
    Pid = fun(<<"pid ", Pid/binary>>) -> {ok, binary_to_list(Pid)}; (_) -> no end,
    case weir_bench_program:await(Program, Pid, ?READY_TIMEOUT) of
        {ok, _} = Started ->
            await_listening(Program, Port, Started, [], erlang:monotonic_time(millisecond) + ?READY_TIMEOUT);
        {error, _} = Error ->
            Error
    end.

await_listening(Program, Port, Started, Output, Deadline) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Started;
        {error, _} ->
            case weir_bench_program:await(Program, fun(_) -> no end, ?TRY_EVERY) of
                {error, {exited, More}} ->
                    {error, {exited, Output ++ More}};
                {error, {timeout, More}} ->
                    case erlang:monotonic_time(millisecond) < Deadline of
                        true -> await_listening(Program, Port, Started, Output ++ More, Deadline);
                        false -> {error, {timeout, Output ++ More}}
                    end
            end
    end.
