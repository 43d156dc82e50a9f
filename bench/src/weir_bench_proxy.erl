%% @doc `weir proxy' as a measured server: one frontend with a rule, and a balanced backend. Also has what all
%% measured proxies share.
-module(weir_bench_proxy).

-export([configuration/1]).
-export([servers/1]).
-export([server_name/0]).

-type settings() :: #{
    port := inet:port_number(), backend := inet:port_number(), servers := pos_integer(), sni => boolean()
}.

%% @doc Returns the configuration. Its rule sends every client to the backend: by address, or with `sni' by TLS server
%% name.
-spec configuration(settings()) -> iodata().
configuration(#{port := Port, backend := Backend, servers := Servers} = Settings) ->
    [
        "[frontends.main]\n",
        io_lib:format("listen = \"127.0.0.1:~b\"\n", [Port]),
        "[[frontends.main.rules]]\n",
        case Settings of
            #{sni := true} -> ["sni = \"", server_name(), "\"\n"];
            #{} -> "from = \"127.0.0.0/8\"\n"
        end,
        "backend = \"main\"\n"
        "[backends.main]\n"
        "balance = \"least_connections\"\n"
        "servers = [",
        lists:join(", ", [
            io_lib:format("{ address = \"127.0.0.1:~b\", name = \"backend~b\" }", [Backend, Number])
         || Number <- lists:seq(1, Servers)
        ]),
        "]\n"
    ].

%% @doc Returns how many servers a backend has after this many changes: one is added and removed in turn. All have the
%% same address.
-spec servers(Changes :: non_neg_integer()) -> 1 | 2.
servers(Changes) -> 1 + Changes rem 2.

%% @doc Returns the server name in the driver's ClientHello.
-spec server_name() -> string().
server_name() -> "bench.example".
