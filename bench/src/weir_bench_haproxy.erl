%% @doc HAProxy as a measured server: one thread, TCP mode, its own configuration.
-module(weir_bench_haproxy).

-export([start/3]).
-export([configuration/1]).

%% maxconn. HAProxy sizes its tables by it and needs two descriptors for each connection, more if it splices. Most
%% scenarios have no more connections.
-define(CONNECTIONS, 4096).

%% A ClientHello has to fit into the buffer.
-define(BUFFER, 32768).

-type settings() :: #{
    port := inet:port_number(),
    backend := inet:port_number(),
    most := pos_integer(),
    servers := pos_integer(),
    splice => boolean(),
    sni => boolean()
}.

%% @doc Starts HAProxy in front of 127.0.0.1:`Backend' and waits until it listens. `Pin' is a prefix of the command.
%% Options of the run: `splice' moves bytes within the kernel, `sni' routes by TLS server name, and `changes' adds a
%% master process, which reloads need.
-spec start(weir_bench_scenario:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(Run = #{connections := Connections}, Pin, Backend) ->
    Settings = (maps:with([splice, sni, hello], Run))#{
        backend => Backend, most => max(?CONNECTIONS, Connections + 100)
    },
    Master = ["-W" || #{changes := _} <- [Run]],
    weir_bench_daemon:start(
        fun(Port, _Directory, Changes) ->
            configuration(Settings#{port => Port, servers => weir_bench_proxy:servers(Changes)})
        end,
        %% -db: in the foreground.
        fun(File) -> [weir_bench_peers:executable(haproxy)] ++ Master ++ ["-db", "-f", File] end,
        "USR2",
        Pin
    ).

%% @doc Returns a minimal configuration without logs, whose timeouts no run reaches. Splicing is forced in both
%% directions: with `splice-auto', HAProxy copied a stream on loopback.
-spec configuration(settings()) -> iodata().
configuration(#{port := Port, backend := Backend, most := Most, servers := Servers} = Settings) ->
    [
        "global\n"
        "    nbthread 1\n",
        io_lib:format("    maxconn ~b\n", [Most]),
        [io_lib:format("    tune.bufsize ~b\n", [?BUFFER]) || #{hello := _} <- [Settings]],
        "defaults\n"
        "    mode tcp\n"
        "    retries 0\n"
        "    timeout connect 1m\n"
        "    timeout client 5m\n"
        "    timeout server 5m\n",
        ["    option splice-request\n    option splice-response\n" || #{splice := true} <- [Settings]],
        "frontend relay\n",
        io_lib:format("    bind 127.0.0.1:~b\n", [Port]),
        chosen(Settings),
        "backend main\n",
        [io_lib:format("    server backend~b 127.0.0.1:~b\n", [Number, Backend]) || Number <- lists:seq(1, Servers)]
    ].

chosen(#{sni := true}) ->
    [
        "    tcp-request inspect-delay 5s\n"
        "    tcp-request content accept if { req.ssl_hello_type 1 }\n"
        "    use_backend main if { req.ssl_sni -i ", weir_bench_proxy:server_name(), " }\n"
    ];
chosen(_) ->
    "    default_backend main\n".
