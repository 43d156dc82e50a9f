%% @doc A server of others that reads where to listen from a file and does not tell when it does: HAProxy, nginx. It is
%% told a port that is free, and asked until it listens.
-module(weir_bench_daemon).

-export([start/3]).

-define(READY_TIMEOUT, 10000).
-define(TRY_EVERY, 50).

%% @doc Starts what `Command' makes of a configuration's file, and waits until it listens. `Configuration' is given the
%% port, and a directory where it may leave what it has to leave. `Pin' is what goes before the command.
-spec start(Configuration, Command, weir_bench_machine:pin()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}
when
    Configuration :: fun((inet:port_number(), Directory :: file:filename()) -> iodata()),
    Command :: fun((File :: file:filename()) -> [string(), ...]).
start(Configuration, Command, Pin) ->
    Port = weir_bench_machine:free_port(),
    File = weir_bench_tree:scratch(io_lib:format("~b.conf", [Port])),
    ok = file:write_file(File, Configuration(Port, filename:dirname(File))),
    Program = weir_bench_program:start(Pin ++ Command(File), []),
    Listening = listening(Program, Port),
    %% Read once, when it starts.
    ok = file:delete(File),
    case Listening of
        {ok, Pid} ->
            {ok, #{program => Program, port => Port, pid => Pid}};
        {error, _} = Error ->
            ok = weir_bench_program:stop(Program),
            Error
    end.

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
