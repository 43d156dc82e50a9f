%% @doc HAProxy as a server that is measured: one thread, TCP mode, on a configuration of its own.
-module(weir_bench_haproxy).

-export([executable/0]).
-export([start/3]).
-export([configuration/4]).

-define(READY_TIMEOUT, 10000).
-define(TRY_EVERY, 50).
%% It sizes its tables by it; more than any scenario has.
-define(MOST_CONNECTIONS, 4096).

%% @doc Where HAProxy is, or `false' where it is not installed.
-spec executable() -> file:filename() | false.
executable() ->
    %% Debian keeps it where only root looks.
    os:find_executable("haproxy", os:getenv("PATH", "") ++ ":/usr/sbin:/usr/local/sbin").

%% @doc Starts it in front of 127.0.0.1:`Backend' and waits until it listens. `Pin' is what goes before the command.
%% `splice' in the run has it move bytes within the kernel.
-spec start(weir_bench_scenarios:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, binary()}.
start(Run, Pin, Backend) ->
    %% It cannot tell which free port it took, so it is told one.
    Port = weir_bench_machine:free_port(),
    File = temporary_file(),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, configuration(Port, Backend, ?MOST_CONNECTIONS, maps:get(splice, Run, false))),
    %% In the foreground.
    Program = weir_bench_program:start(Pin ++ [executable(), "-db", "-f", File], []),
    Listening = listening(Program, Port),
    %% Read once, when it starts.
    ok = file:delete(File),
    ok = file:del_dir(filename:dirname(File)),
    case Listening of
        {ok, Pid} ->
            {ok, #{program => Program, port => Port, pid => Pid}};
        {error, Failure} ->
            ok = weir_bench_program:stop(Program),
            {error, <<"haproxy ", (weir_bench_program:explain(Failure))/binary>>}
    end.

temporary_file() ->
    Folder = io_lib:format("weir-haproxy-~s-~b", [os:getpid(), erlang:unique_integer([positive])]),
    filename:join([os:getenv("TMPDIR", "/tmp"), lists:flatten(Folder), "haproxy.cfg"]).

%% @doc The configuration: as few words as it starts with, no log, and timeouts that no run meets. To splice it is told
%% for both directions: with `splice-auto', where it decides by itself, a stream on loopback was copied.
-spec configuration(Port, Backend, MostConnections :: pos_integer(), Splice :: boolean()) -> iodata() when
    Port :: inet:port_number(), Backend :: inet:port_number().
configuration(Port, Backend, MostConnections, Splice) ->
    [
        "global\n"
        "    nbthread 1\n",
        io_lib:format("    maxconn ~b\n", [MostConnections]),
        "listen relay\n"
        "    mode tcp\n"
        "    retries 0\n"
        "    timeout connect 5s\n"
        "    timeout client 5m\n"
        "    timeout server 5m\n",
        case Splice of true -> "    option splice-request\n    option splice-response\n"; false -> "" end,
        io_lib:format("    bind 127.0.0.1:~b\n", [Port]),
        io_lib:format("    server backend 127.0.0.1:~b\n", [Backend])
    ].

%% The leash tells the pid of what it started, which HAProxy keeps; when it listens it does not tell.
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
