%% @doc Envoy as a proxy that is measured: one worker, its TCP proxy, on a configuration of its own.
-module(weir_bench_envoy).

-export([start/2]).
-export([configuration/2]).

%% @doc Starts it in front of 127.0.0.1:`Backend' and waits until it listens. `Pin' is what goes before the command.
-spec start(weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(Pin, Backend) ->
    weir_bench_daemon:start(
        fun(Port, _Directory, _Changes) -> configuration(Port, Backend) end,
        %% Of its own: what it shares with an older process of its own after a restart, and where it asks nobody who it is.
        fun(File) ->
            [weir_bench_peers:executable(envoy), "--config-yaml", read(File), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        end,
        %% It reads it once.
        "CONT",
        Pin
    ).

%% It knows the kind of a file by its name, which is another one here.
read(File) ->
    {ok, Text} = file:read_file(File),
    binary_to_list(Text).

%% @doc The configuration: no log, no administration, no limit that a run meets.
-spec configuration(inet:port_number(), Backend :: inet:port_number()) -> iodata().
configuration(Port, Backend) ->
    [
        "static_resources:\n"
        "  listeners:\n"
        "  - address: ", address(Port), "\n"
        "    tcp_backlog_size: 1024\n"
        "    filter_chains:\n"
        "    - filters:\n"
        "      - name: envoy.filters.network.tcp_proxy\n"
        "        typed_config:\n"
        "          \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n"
        "          stat_prefix: relay\n"
        "          cluster: backend\n"
        "  clusters:\n"
        "  - name: backend\n"
        "    type: STATIC\n"
        "    connect_timeout: 5s\n"
        "    circuit_breakers: { thresholds: [{ max_connections: 20000, max_pending_requests: 20000 }] }\n"
        "    load_assignment:\n"
        "      cluster_name: backend\n"
        "      endpoints: [{ lb_endpoints: [{ endpoint: { address: ", address(Backend), " } }] }]\n"
    ].

address(Port) ->
    io_lib:format("{ socket_address: { address: 127.0.0.1, port_value: ~b } }", [Port]).
