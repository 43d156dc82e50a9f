%% @doc Envoy as a measured proxy: its TCP proxy with one worker and its own configuration.
-module(weir_bench_envoy).

-export([start/2]).
-export([configuration/2]).

%% @doc Starts Envoy in front of 127.0.0.1:`Backend' and waits until it listens. `Pin' is a prefix of the command.
-spec start(weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(Pin, Backend) ->
    weir_bench_daemon:start(
        fun(Port, _Directory, _Changes) -> configuration(Port, Backend) end,
        %% Disables shared memory with an older Envoy (hot restart) and the lookup of the machine's identity.
        fun(File) ->
            [
                weir_bench_peers:executable(envoy),
                "--config-yaml",
                read(File),
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "error"
            ]
        end,
        %% Envoy reads its configuration only once.
        "CONT",
        Pin
    ).

%% Envoy infers the format from the file's extension, which is different here, so the text is passed instead.
read(File) ->
    {ok, Text} = file:read_file(File),
    binary_to_list(Text).

%% @doc Returns a configuration without logs and administration, whose limits no run reaches.
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
