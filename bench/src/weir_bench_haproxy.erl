%% @doc HAProxy as a server that is measured: one thread, TCP mode, on a configuration of its own.
-module(weir_bench_haproxy).

-export([start/3]).
-export([configuration/4]).

%% It sizes its tables by it, and wants two descriptors for each, or more where it splices: as many as most scenarios have.
-define(CONNECTIONS, 4096).

%% @doc Starts it in front of 127.0.0.1:`Backend' and waits until it listens. `Pin' is what goes before the command.
%% `splice' in the run has it move bytes within the kernel.
-spec start(weir_bench_scenario:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(Run = #{connections := Connections}, Pin, Backend) ->
    Most = max(?CONNECTIONS, Connections + 100),
    weir_bench_daemon:start(
        fun(Port, _Directory) -> configuration(Port, Backend, Most, maps:get(splice, Run, false)) end,
        %% In the foreground.
        fun(File) -> [weir_bench_peers:executable(haproxy), "-db", "-f", File] end,
        Pin
    ).

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
