%% @doc `weir proxy' as a server that is measured: one frontend with a rule and a backend that is balanced. And what it has in common
%% with the proxies beside it.
-module(weir_bench_proxy).

-export([configuration/1]).
-export([servers/1]).
-export([server_name/0]).

-type settings() :: #{port := inet:port_number(), backend := inet:port_number(), servers := pos_integer(), sni => boolean()}.

%% @doc The configuration. The rule sends everybody to the backend: by address, or with `sni' those who call the server by its name.
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

%% @doc How many servers a proxy's backend has after so many changes: one comes and goes. All are the same one.
-spec servers(Changes :: non_neg_integer()) -> 1 | 2.
servers(Changes) -> 1 + Changes rem 2.

%% @doc The name that is in the driver's ClientHello.
-spec server_name() -> string().
server_name() -> "bench.example".
