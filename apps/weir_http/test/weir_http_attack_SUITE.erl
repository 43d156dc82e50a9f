%% Floods of garbage, resets, compressed bombs and idle connections: an honest client is answered during the attack.
%% Afterwards connections, descriptors and memory are as before. `make soak' does the same with thousands of
%% connections, and with slowhttptest.
-module(weir_http_attack_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([resets/1, random_bytes/1, zeros/1, compressed_bombs/1, idle_connections/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [resets, random_bytes, zeros, compressed_bombs, idle_connections].

init_per_suite(Config) ->
    Server = weir_http_attack:start(#{}, []),
    %% Warm up: allocations that happen only once.
    _ = weir_http_attack:honest(weir_http_attack:port(Server), 200),
    [{server, Server} | Config].

end_per_suite(Config) -> weir_http_attack:stop(?config(server, Config)).

resets(Config) -> beside(Config, fun(Port) -> weir_http_attack:resets(Port, 1000) end).

random_bytes(Config) -> beside(Config, fun(Port) -> weir_http_attack:floods(Port, 8, fun rand:bytes/1) end).

zeros(Config) -> beside(Config, fun(Port) -> weir_http_attack:floods(Port, 8, fun(Size) -> <<0:Size/unit:8>> end) end).

compressed_bombs(Config) -> beside(Config, fun(Port) -> weir_http_attack:bombs(Port, 50) end).

%% On a listener with short timeouts, so the honest client may be too slow for it.
idle_connections(Config) ->
    Impatient = weir_http_attack:listen(impatient, #{header_timeout => 500}, ?config(server, Config)),
    beside(Config, fun(_) ->
        Sockets = weir_http_attack:idle(Impatient, 500),
        %% The server closes them.
        [{error, closed} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()) || Socket <- Sockets],
        [gen_tcp:close(Socket) || Socket <- Sockets]
    end).

beside(Config, Attack) ->
    Server = ?config(server, Config),
    Port = weir_http_attack:port(Server),
    Before = weir_http_attack:left(Server),
    {Attacker, Monitor} = spawn_monitor(fun() -> Attack(Port) end),
    _ = weir_http_attack:honest(Port, 300),
    receive {'DOWN', Monitor, process, Attacker, Reason} -> ?assertEqual(normal, Reason) end,
    ?assertEqual(ok, weir_http_attack:at_rest(Server, Before)).
