%% Connections and counters while a server does not answer the connect.
-module(weir_proxy_connecting_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [
    proxy/1, proxy/2, proxy/3,
    change/1,
    busy_address/1,
    busy_server/0,
    refuse/1,
    connect/1,
    name/1,
    until/2,
    wait_for_sessions/1
]).
-import(weir_test_wait, [patience/0, wait_until/1]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        a_server_that_does_not_answer_in_time_is_given_up,
        the_proxy_stops,
        the_configuration_changes,
        clients_reset,
        clients_end_their_direction,
        a_frontend_has_no_more_places,
        servers_of_the_same_machine_are_connected_at_once,
        clients_that_reset_at_once_are_counted,
        this_machine_has_nothing_left
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    [{before, resources()} | Config].

end_per_testcase(_Case, Config) ->
    ok = weir_proxy_test:end_case(),
    Before = proplists:get_value(before, Config),
    wait_until(fun() ->
        Now = resources(),
        lists:all(fun({Is, Was}) -> Is =< Was end, lists:zip(Now, Before)) orelse {Now, before, Before}
    end).

%% To check that a case leaves nothing behind.
resources() ->
    [
        length(weir:sockets()),
        length(weir:relays()),
        ets:info(weir_proxy_admissions, size),
        ets:info(weir_proxy_sessions, size)
    ].

a_server_that_does_not_answer_in_time_is_given_up(_Config) ->
    Port = proxy(#{servers => [busy_address(busy_server())], connect_timeout => 50, retries => 1}),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    wait_for_sessions(0),
    ?assertMatch({ok, [#{connection_errors := 2}]}, weir_proxy:servers(proxy, web)).

the_proxy_stops(_Config) ->
    Clients = clients(proxy(#{servers => [busy_address(busy_server())], connect_timeout => 10 * patience()}), 5),
    ok = weir_proxy:stop(proxy),
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())) || Client <- Clients].

the_configuration_changes(_Config) ->
    Busy = busy_server(),
    Clients = clients(proxy(#{servers => [busy_address(Busy)], connect_timeout => 10 * patience(), retries => 1}), 5),
    Server = ?SERVER:start("new"),
    ok = change(#{servers => [?SERVER:address(Server)], connect_timeout => 10 * patience(), retries => 1}),
    ok = refuse(Busy),
    [?assertEqual(<<"new">>, name(Client)) || Client <- Clients],
    wait_for_sessions(5),
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for_sessions(0).

clients_reset(_Config) ->
    Busy = busy_server(),
    Clients = clients(proxy(#{servers => [busy_address(Busy)], connect_timeout => 10 * patience(), retries => 0}), 5),
    [
        begin
            ok = inet:setopts(Client, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Client)
        end
     || Client <- Clients
    ],
    ok = refuse(Busy),
    wait_for_sessions(0).

%% The bytes that clients have sent are not lost by a failed attempt.
clients_end_their_direction(_Config) ->
    Busy = busy_server(),
    Clients = clients(proxy(#{servers => [busy_address(Busy)], connect_timeout => 10 * patience()}), 5),
    [
        begin
            ok = gen_tcp:send(Client, <<"all of it">>),
            ok = gen_tcp:shutdown(Client, write)
        end
     || Client <- Clients
    ],
    Server = ?SERVER:start("new"),
    ok = change(#{servers => [?SERVER:address(Server)]}),
    ok = refuse(Busy),
    [?assertEqual(<<"new\nall of it">>, until(Client, <<"all of it">>)) || Client <- Clients],
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())) || Client <- Clients],
    wait_for_sessions(0).

%% A connection that still waits for its server counts against the limit.
a_frontend_has_no_more_places(_Config) ->
    Port = proxy(#{servers => [busy_address(busy_server())], connect_timeout => 10 * patience()}, #{
        max_connections => 2, overload => reset
    }),
    _ = clients(Port, 2),
    case gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}], patience()) of
        {ok, Third} -> {error, _} = gen_tcp:recv(Third, 0, patience());
        %% The reset came before connect returned.
        {error, econnreset} -> ok
    end,
    ?assert(numbers_of_frontend(2)).

numbers_of_frontend(N) ->
    {ok, #{frontends := #{<<"front">> := #{current_sessions := Current}}}} = weir_proxy:info(proxy),
    Current =:= N.

%% Many clients connect together. Each gets a server's name and its own bytes.
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
    wait_for_sessions(100),
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for_sessions(0).

%% Some reset before their address was read. Each is counted in the frontend and has a line in the log.
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
    ?waitEqual(Count, lines(File)),
    {ok, #{frontends := #{<<"front">> := #{sessions_total := Total}}}} = weir_proxy:info(proxy),
    ?assertEqual(Count, Total),
    wait_for_sessions(0).

%% A local resource is missing: here the source address, which this machine does not have. It does not count against
%% the server, and the log says so.
this_machine_has_nothing_left(Config) ->
    Server = ?SERVER:start("a"),
    File = log_file(Config, "nothing_left"),
    Port = proxy(#{servers => [?SERVER:address(Server)], source => "192.0.2.1", retries => 0}, #{}, #{
        log => #{file => File, format => "%ts %rc"}
    }),
    ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitEqual(1, lines(File)),
    ?assertEqual({ok, <<"RC 0\n">>}, file:read_file(File)),
    {ok, #{frontends := #{<<"front">> := Front}}} = weir_proxy:info(proxy),
    ?assertMatch(#{connection_errors := 1, current_sessions := 0}, Front),
    ?assertMatch({ok, [#{state := up, connection_errors := 0, failures := 0}]}, weir_proxy:servers(proxy, web)).

log_file(Config, Name) -> iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), Name)).

lines(File) ->
    {ok, Text} = file:read_file(File),
    length(binary:matches(Text, <<"\n">>)).

current_sessions() ->
    {ok, Servers} = weir_proxy:servers(proxy, web),
    [Current || #{current_sessions := Current} <- Servers].

%% Opens Count connections, each with a place at a server that does not answer.
clients(Port, Count) ->
    Clients = [connect(Port) || _ <- lists:seq(1, Count)],
    ?waitEqual([Count], current_sessions()),
    Clients.
