%% @doc A server of others that reads where to listen from a file and does not tell when it does: HAProxy, nginx. It is
%% told a port that is free, and asked until it listens.
-module(weir_bench_daemon).

-export([start/4]).
-export([stop/1]).

%% On a busy machine a program needs long to start.
-define(READY_TIMEOUT, 60000).
-define(TRY_EVERY, 50).

%% @doc Starts what `Command' makes of a configuration's file, and waits until it listens. `Configuration' is given the
%% port, a directory where it may leave what it has to leave, and how often it was changed. `Signal' is what has the server read it
%% again. `Pin' is what goes before the command.
-spec start(Configuration, Command, Signal :: string(), weir_bench_machine:pin()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}
when
    Configuration :: fun((inet:port_number(), Directory :: file:filename(), Changes :: non_neg_integer()) -> iodata()),
    Command :: fun((File :: file:filename()) -> [string(), ...]).
start(Configuration, Command, Signal, Pin) ->
    Port = weir_bench_machine:free_port(),
    Directory = filename:dirname(weir_bench_tree:scratch("")),
    {File, Kept} = weir_bench_configuration:write(io_lib:format("~b.conf", [Port]), fun(Changes) -> Configuration(Port, Directory, Changes) end),
    Program = weir_bench_program:start(Pin ++ Command(File), []),
    case listening(Program, Port) of
        {ok, Pid} ->
            {ok, weir_bench_configuration:keep(Kept, Signal, #{program => Program, port => Port, pid => Pid})};
        {error, _} = Error ->
            ok = weir_bench_program:stop(Program),
            ok = weir_bench_configuration:delete(Kept),
            Error
    end.

%% @doc Ends a server, one of ours too, with what it has left, and waits until it is gone.
-spec stop(weir_bench_server:server()) -> ok.
stop(#{program := Program} = Server) ->
    ok = weir_bench_program:stop(Program),
    lists:foreach(fun weir_bench_configuration:delete/1, [File || #{file := File} <- [Server]]),
    lists:foreach(fun file:del_dir_r/1, [Directory || #{directory := Directory} <- [Server]]),
    lists:foreach(fun stop/1, [Origin || #{origin := Origin} <- [Server]]).

%% The leash tells the pid of what it started, which the daemon keeps.
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
