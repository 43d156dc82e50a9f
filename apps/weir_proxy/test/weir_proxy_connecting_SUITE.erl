%% What becomes of connections while their server does not answer: of theirs, and of what is counted.
-module(weir_proxy_connecting_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [proxy/1, proxy/2, proxy/3, change/1, numbers/1, busy_port/0, connect/1, name/1, until/2, wait_for/1]).

-define(SERVER, weir_proxy_backend_double).
-define(PATIENCE, 10_000).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        the_proxy_stops, the_configuration_changes, clients_reset, clients_end_their_direction, a_frontend_has_no_more_places,
        servers_of_the_same_machine_are_connected_at_once, clients_that_reset_at_once_are_counted, this_machine_has_nothing_left
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    [{before, resources()} | Config].

end_per_testcase(_Case, Config) ->
    ok = weir_proxy_test:end_case(),
    Before = proplists:get_value(before, Config),
    wait_for(fun() -> lists:all(fun({Now, Then}) -> Now =< Then end, lists:zip(resources(), Before)) end).

%% Nothing of a case stays.
resources() -> [length(weir:sockets()), length(weir:relays()), ets:info(weir_proxy_pending, size), ets:info(weir_proxy_sessions, size)].

the_proxy_stops(_Config) ->
    Clients = clients(proxy(#{servers => [busy()], connect_timeout => 10 * ?PATIENCE}), 5),
    ok = weir_proxy:stop(proxy),
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?PATIENCE)) || Client <- Clients].

the_configuration_changes(_Config) ->
    Clients = clients(proxy(#{servers => [busy()], connect_timeout => 1000, retries => 1}), 5),
    Server = ?SERVER:start("new"),
    ok = change(#{servers => [?SERVER:address(Server)], connect_timeout => 1000, retries => 1}),
    [?assertEqual(<<"new">>, name(Client)) || Client <- Clients],
    wait_for(fun() -> numbers(5) end),
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for(fun() -> numbers(0) end).

clients_reset(_Config) ->
    Clients = clients(proxy(#{servers => [busy()], connect_timeout => 500, retries => 0}), 5),
    [
        begin
            ok = inet:setopts(Client, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Client)
        end
     || Client <- Clients
    ],
    wait_for(fun() -> numbers(0) end).

%% What they have said is not lost by the attempt that has failed.
clients_end_their_direction(_Config) ->
    Clients = clients(proxy(#{servers => [busy()], connect_timeout => 1000}), 5),
    [
        begin
            ok = gen_tcp:send(Client, <<"all of it">>),
            ok = gen_tcp:shutdown(Client, write)
        end
     || Client <- Clients
    ],
    Server = ?SERVER:start("new"),
    ok = change(#{servers => [?SERVER:address(Server)]}),
    [?assertEqual(<<"new\nall of it">>, until(Client, <<"all of it">>)) || Client <- Clients],
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?PATIENCE)) || Client <- Clients],
    wait_for(fun() -> numbers(0) end).

%% One that connects has its place.
a_frontend_has_no_more_places(_Config) ->
    Port = proxy(#{servers => [busy()], connect_timeout => 10 * ?PATIENCE}, #{max_connections => 2, overload => reset}),
    _ = clients(Port, 2),
    case gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}], ?PATIENCE) of
        {ok, Third} -> {error, _} = gen_tcp:recv(Third, 0, ?PATIENCE);
        %% The reset was faster.
        {error, econnreset} -> ok
    end,
    ?assert(numbers_of_frontend(2)).

numbers_of_frontend(N) ->
    {ok, #{frontends := #{<<"front">> := #{current_sessions := Current}}}} = weir_proxy:info(proxy),
    Current =:= N.

%% Many that come together: each has its own server's name, and its own bytes.
servers_of_the_same_machine_are_connected_at_once(_Config) ->
    Servers = [?SERVER:address(?SERVER:start(Name)) || Name <- ["a", "b"]],
    Port = proxy(#{servers => Servers}),
    Clients = [connect(Port) || _ <- lists:seq(1, 100)],
    [ok = gen_tcp:send(Client, integer_to_binary(Number)) || {Number, Client} <- lists:enumerate(Clients)],
    Names = [
        begin
            Said = integer_to_binary(Number),
            [Name, Said] = binary:split(until(Client, Said), <<"\n">>),
            Name
        end
     || {Number, Client} <- lists:enumerate(Clients)
    ],
    ?assertEqual([<<"a">>, <<"b">>], lists:usort(Names)),
    wait_for(fun() -> numbers(100) end),
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for(fun() -> numbers(0) end).

%% Some before it is known who they are. Each is a client of the frontend, and a line of the log.
clients_that_reset_at_once_are_counted(Config) ->
    Server = ?SERVER:start("a"),
    File = log_file(Config, "reset_at_once"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}, #{}, #{log => #{file => File}}),
    Count = 200,
    [
        begin
            Client = connect(Port),
            ok = inet:setopts(Client, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Client)
        end
     || _ <- lists:seq(1, Count)
    ],
    wait_for(fun() -> lines(File) =:= Count end),
    {ok, #{frontends := #{<<"front">> := #{sessions_total := Total}}}} = weir_proxy:info(proxy),
    ?assertEqual(Count, Total),
    wait_for(fun() -> numbers(0) end).

%% No descriptor, or no port: here, an address that it does not have. It is not the server's fault, and the log does not say so.
this_machine_has_nothing_left(Config) ->
    Server = ?SERVER:start("a"),
    File = log_file(Config, "nothing_left"),
    Port = proxy(#{servers => [?SERVER:address(Server)], source => "192.0.2.1", retries => 0}, #{}, #{log => #{file => File, format => "%ts %rc"}}),
    ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, ?PATIENCE)),
    wait_for(fun() -> lines(File) =:= 1 end),
    ?assertEqual({ok, <<"RC 0\n">>}, file:read_file(File)),
    {ok, #{frontends := #{<<"front">> := Front}}} = weir_proxy:info(proxy),
    ?assertMatch(#{connection_errors := 1, current_sessions := 0}, Front),
    ?assertMatch({ok, [#{state := up, connection_errors := 0, failures := 0}]}, weir_proxy:servers(proxy, web)).

log_file(Config, Name) -> iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), Name)).

lines(File) ->
    {ok, Text} = file:read_file(File),
    length(binary:matches(Text, <<"\n">>)).

busy() -> lists:concat(["127.0.0.1:", busy_port()]).

%% So many, each of which has a place at a server that does not answer.
clients(Port, Count) ->
    Clients = [connect(Port) || _ <- lists:seq(1, Count)],
    wait_for(fun() -> {ok, [#{current_sessions := Taken}]} = weir_proxy:servers(proxy, web), Taken =:= Count end),
    Clients.
