%% Listeners: what they accept, whom they turn away, how they end, and what is left when processes of theirs are killed.
-module(weir_listener_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(PATIENCE, 10000).

suite() ->
    [{timetrap, {seconds, 120}}].

all() ->
    [{group, function}, {group, protocol}, {group, reactor}, {group, alone}].

groups() ->
    %% What holds for every kind of handler.
    Common = [
        connections_are_served,
        connections_are_counted_and_listed,
        connections_beyond_the_limit_wait,
        connections_beyond_the_limit_are_reset,
        the_limit_is_raised,
        the_rate_is_kept,
        denied_addresses_are_reset,
        an_address_has_so_many_connections,
        a_suspended_listener_resumes_on_its_port,
        a_drained_listener_waits_for_connections,
        stop_ends_connections,
        ipv6_is_served,
        a_unix_socket_is_served,
        an_inherited_descriptor_is_served,
        an_inherited_descriptor_is_resumed,
        the_proxy_header_is_known,
        no_proxy_header_is_no_connection,
        killed_workers_have_successors,
        a_killed_listener_goes_on,
        killed_processes_leave_nothing,
        a_storm_of_resets_leaves_nothing
    ],
    Process = [least_loaded_spreads, tls_is_spoken],
    [
        {function, [], Common ++ Process},
        {protocol, [], Common ++ Process},
        {reactor, [], Common},
        {alone, [], [
            a_name_is_taken_once,
            a_port_is_taken_once,
            a_shared_port,
            a_shared_unix_socket,
            wrong_options_are_refused,
            a_listener_is_embedded,
            an_embedded_listener_outlives_weir,
            names_that_are_not_there_are_told,
            an_address_may_be_text,
            a_taken_port_is_no_crash,
            new_connections_are_dropped_and_those_before_accepted,
            relays_keep_their_places,
            stop_ends_relays,
            a_connection_may_count_no_more,
            connections_run_where_their_sockets_are,
            bound_processes_are_bound,
            a_handler_may_take_its_time_to_end,
            events_are_told,
            descriptors_run_out,
            connections_migrate_while_data_flows,
            loads_are_balanced,
            schedulers_go_offline
        ]}
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    weir_test_peer:init_group(weir, Config).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_group(alone, Config) ->
    [{handler, function} | Config];
init_per_group(Handler, Config) ->
    [{handler, Handler} | Config].

end_per_group(_Group, _Config) ->
    ok.

init_per_testcase(Case, Config) ->
    ok = weir_test_peer:silence_pollers(),
    [{name, Case} | weir_test_peer:init_case(Config)].

end_per_testcase(_Case, Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    weir_test_peer:end_case(Config).

%% The handlers: each sends back what comes.

handler(function) -> fun ?MODULE:echo/2;
handler(Kind) when Kind =:= protocol; Kind =:= reactor -> list_to_atom("weir_listener_" ++ atom_to_list(Kind)).

echo(Socket, Args) ->
    case {is_port_of_tls(Socket), weir:proxy_header()} of
        {_, {ok, #{src_address := Address}}} -> send(Socket, inet:ntoa(Address));
        _ -> ok
    end,
    echo_loop(Socket, Args).

echo_loop(Socket, Args) ->
    case recv(Socket) of
        {ok, <<"pid">>} -> send(Socket, term_to_binary(self())), echo_loop(Socket, Args);
        {ok, Data} -> send(Socket, Data), echo_loop(Socket, Args);
        {error, _} -> ok
    end.

is_port_of_tls({'$inet', _, _}) -> false;
is_port_of_tls(_) -> true.

recv(Socket = {'$inet', _, _}) -> gen_tcp:recv(Socket, 0);
recv(Socket) -> ssl:recv(Socket, 0).

send(Socket = {'$inet', _, _}, Data) -> gen_tcp:send(Socket, Data);
send(Socket, Data) -> ssl:send(Socket, Data).

start(Config, Options) ->
    Name = ?config(name, Config),
    Address =
        case Options of
            #{fd := _} -> #{};
            _ -> #{ip => ?LOOPBACK}
        end,
    {ok, _} = weir:start_listener(Name, maps:merge(Address, Options), handler(?config(handler, Config)), args),
    weir:get_port(Name).

connect(Port) -> weir_test_peer:connect_raw(Port).

ask(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    gen_tcp:recv(Socket, iolist_size(Data), ?PATIENCE).

is_served(Socket) ->
    ?assertEqual({ok, <<"hello">>}, ask(Socket, <<"hello">>)),
    Socket.

%% The reset may be there before connect has looked.
is_turned_away(Port) -> is_turned_away(Port, ?LOOPBACK).

is_turned_away(Port, From) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {ip, From}], ?PATIENCE) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, <<"x">>),
            ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)),
            ok = gen_tcp:close(Socket);
        {error, Reason} ->
            ?assertEqual(econnreset, Reason)
    end.

is_waiting(Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 100)).

count(Config) -> maps:get(connections, weir:info(?config(name, Config))).

%% Cases for every kind of handler.

connections_are_served(Config) ->
    Port = start(Config, #{}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 20)],
    [is_served(Socket) || Socket <- Sockets],
    Bytes = crypto:strong_rand_bytes(300_000),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {echoed, gen_tcp:recv(hd(Sockets), byte_size(Bytes), ?PATIENCE)} end),
    ok = gen_tcp:send(hd(Sockets), Bytes),
    receive {echoed, Echoed} -> ?assert({ok, Bytes} =:= Echoed) end.

connections_are_counted_and_listed(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 5)],
    ?assertMatch(#{connections := 5, accepted := 5, waiting := 0, status := running, port := Port}, weir:info(Name)),
    Connections = weir:connections(Name),
    ?assertEqual(5, length(Connections)),
    ?assertEqual(
        lists:sort([inet:sockname(Socket) || Socket <- Sockets]),
        lists:sort([inet:peername(Socket) || {Socket, _} <- Connections])
    ),
    [?assert(is_process_alive(Pid)) || {_, Pid} <- Connections],
    ?assertEqual([Name], weir:listeners()),
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    wait_until(fun() -> count(Config) =:= 0 end),
    ?assertEqual([], weir:connections(Name)).

connections_beyond_the_limit_wait(Config) ->
    Port = start(Config, #{max_connections => 3}),
    Served = [is_served(connect(Port)) || _ <- lists:seq(1, 3)],
    Late = connect(Port),
    is_waiting(Late),
    ?assertMatch(#{connections := 3, overload := 0}, weir:info(?config(name, Config))),
    ok = gen_tcp:close(hd(Served)),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Late, 5, ?PATIENCE)).

connections_beyond_the_limit_are_reset(Config) ->
    Port = start(Config, #{max_connections => 2, overload => reset}),
    [First | _] = [is_served(connect(Port)) || _ <- lists:seq(1, 2)],
    [is_turned_away(Port) || _ <- lists:seq(1, 5)],
    wait_until(fun() -> maps:get(overload, weir:info(?config(name, Config))) =:= 5 end),
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 1 end),
    is_served(connect(Port)).

the_limit_is_raised(Config) ->
    Port = start(Config, #{max_connections => 0}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 3)],
    [is_waiting(Socket) || Socket <- Sockets],
    ok = weir:set_max_connections(?config(name, Config), 3),
    [?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 5, ?PATIENCE)) || Socket <- Sockets],
    ?assertMatch(#{max_connections := 3}, weir:info(?config(name, Config))).

the_rate_is_kept(Config) ->
    Port = start(Config, #{max_rate => 5}),
    Began = erlang:monotonic_time(millisecond),
    [is_served(Socket) || Socket <- [connect(Port) || _ <- lists:seq(1, 8)]],
    %% Five at once, and the other three in their time.
    ?assert(erlang:monotonic_time(millisecond) - Began >= 500),
    ?assertMatch(#{rate_pauses := Pauses} when Pauses > 0, weir:info(?config(name, Config))).

denied_addresses_are_reset(Config) ->
    Port = start(Config, #{deny => ["127.0.0.0/8"], allow => ["127.0.0.1"]}),
    is_served(connect(Port)),
    is_turned_away(Port, {127, 0, 0, 2}),
    wait_until(fun() -> maps:get(denied, weir:info(?config(name, Config))) =:= 1 end),
    ?assertEqual(1, count(Config)).

an_address_has_so_many_connections(Config) ->
    Port = start(Config, #{per_address => 2}),
    [First | _] = [is_served(connect(Port)) || _ <- lists:seq(1, 2)],
    is_turned_away(Port),
    is_served(weir_test_peer:connect_raw(Port, [{ip, {127, 0, 0, 2}}])),
    ?assertMatch(#{crowded := 1, connections := 3}, weir:info(?config(name, Config))),
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 2 end),
    is_served(connect(Port)).

a_suspended_listener_resumes_on_its_port(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Socket = is_served(connect(Port)),
    ok = weir:suspend_listener(Name),
    ok = weir:suspend_listener(Name),
    ?assertMatch(#{status := suspended, port := Port}, weir:info(Name)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])),
    is_served(Socket),
    ok = weir:resume_listener(Name),
    ok = weir:resume_listener(Name),
    [is_served(connect(Port)) || _ <- lists:seq(1, 5)],
    is_served(Socket).

a_drained_listener_waits_for_connections(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    [First, Second] = [is_served(connect(Port)) || _ <- [1, 2]],
    ?assertEqual({error, {timeout, 2}}, weir:drain_listener(Name, 50)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])),
    Drain = weir_test_peer:async(fun() -> weir:drain_listener(Name, infinity) end),
    ok = gen_tcp:close(First),
    weir_test_peer:assert_waits(Drain),
    ok = gen_tcp:close(Second),
    ?assertEqual(ok, weir_test_peer:await(Drain)).

%% What a drain begins with.
new_connections_are_dropped_and_those_before_accepted(_Config) ->
    [
        begin
            {ok, {_, _, Handle} = Listen} = gen_tcp:listen(0, [{tcp_module, Module}, {ip, Ip}]),
            {ok, Port} = inet:port(Listen),
            Before = [connected(Ip, Port) || _ <- lists:seq(1, 3)],
            ok = weir_nif:refuse(Handle),
            ?assertEqual({error, timeout}, gen_tcp:connect(Ip, Port, [], 300)),
            [
                begin
                    {ok, Accepted} = gen_tcp:accept(Listen, ?PATIENCE),
                    ok = gen_tcp:send(Accepted, "hello"),
                    ok = gen_tcp:close(Accepted)
                end
             || _ <- Before
            ],
            [?assertEqual({ok, "hello"}, gen_tcp:recv(Socket, 5, ?PATIENCE)) || Socket <- Before],
            [ok = gen_tcp:close(Socket) || Socket <- Before],
            ?assertEqual({error, timeout}, gen_tcp:accept(Listen, 0)),
            ok = gen_tcp:close(Listen),
            ?assertEqual({error, closed}, weir_nif:refuse(Handle)),
            ?assertEqual({error, econnrefused}, gen_tcp:connect(Ip, Port, []))
        end
     || {Module, Ip} <- [{weir_tcp, ?LOOPBACK}, {weir_tcp6, {0, 0, 0, 0, 0, 0, 0, 1}}]
    ].

connected(Ip, Port) ->
    {ok, Socket} = gen_tcp:connect(Ip, Port, [{active, false}]),
    Socket.

stop_ends_connections(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 5)],
    Pids = [Pid || {_, Pid} <- weir:connections(Name)],
    ok = weir:stop_listener(Name),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)) || Socket <- Sockets],
    ?assertNot(lists:any(fun is_process_alive/1, Pids)),
    ?assertEqual({error, {no_listener, Name}}, weir:stop_listener(Name)),
    ?assertEqual({error, {no_listener, Name}}, weir:info(Name)),
    ?assertEqual([], weir:listeners()),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])).

ipv6_is_served(Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Probe} ->
            ok = gen_tcp:close(Probe),
            Port = start(Config, #{ip => {0, 0, 0, 0, 0, 0, 0, 1}, deny => ["::2"]}),
            {ok, Socket} = weir_test_peer:keep(gen_tcp:connect("::1", Port, [inet6, binary, {active, false}])),
            is_served(Socket);
        {error, _} ->
            {skip, no_ipv6}
    end.

a_unix_socket_is_served(Config) ->
    Path = filename:join("/tmp", "weir_listener_" ++ os:getpid() ++ atom_to_list(?config(handler, Config))),
    Options = #{ip => {local, Path}},
    Name = ?config(name, Config),
    undefined = start(Config, Options),
    Connect = fun() ->
        {ok, Socket} = weir_test_peer:keep(gen_tcp:connect({local, Path}, 0, [binary, {active, false}])),
        is_served(Socket)
    end,
    [Connect() || _ <- lists:seq(1, 10)],
    ?assertMatch({error, eaddrinuse}, weir:start_listener(other, Options, handler(function), args)),
    %% The file stays, and is taken over.
    ok = weir:suspend_listener(Name),
    ok = weir:resume_listener(Name),
    Connect(),
    ok = weir:stop_listener(Name),
    ok = file:delete(Path).

an_inherited_descriptor_is_served(Config) ->
    {ok, Opened} = weir_test_peer:keep(gen_tcp:listen(0, [{ip, ?LOOPBACK}, {backlog, 100}])),
    {ok, Fd} = inet:getfd(Opened),
    {ok, Port} = inet:port(Opened),
    Port = start(Config, #{fd => Fd}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 10)],
    ok = weir:stop_listener(?config(name, Config)),
    %% It is open: connections wait in its backlog.
    {ok, Port} = inet:port(Opened),
    _ = connect(Port),
    {ok, Accepted} = gen_tcp:accept(Opened, ?PATIENCE),
    ok = gen_tcp:close(Accepted).

%% All of its listening sockets share one open file, which stays open when they are closed.
an_inherited_descriptor_is_resumed(Config) ->
    {ok, Opened} = weir_test_peer:keep(gen_tcp:listen(0, [{ip, ?LOOPBACK}, {backlog, 100}])),
    {ok, Fd} = inet:getfd(Opened),
    Port = start(Config, #{fd => Fd}),
    Name = ?config(name, Config),
    #{pid := Listener} = weir:info(Name),
    [
        begin
            ok = weir:suspend_listener(Name),
            ok = weir:resume_listener(Name),
            [is_served(connect(Port)) || _ <- lists:seq(1, 5)]
        end
     || _ <- lists:seq(1, 5)
    ],
    ?assertMatch(#{pid := Listener}, weir:info(Name)).

least_loaded_spreads(Config) ->
    Port = start(Config, #{placement => least_loaded}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 40)],
    Connections = weir:connections(?config(name, Config)),
    Pollsets = [Pollset || {{_, _, Handle}, _} <- Connections, {ok, #{pollset := Pollset}} <- [weir_nif:info(Handle)]],
    Counts = [length([P || P <- Pollsets, P =:= Pollset]) || Pollset <- weir_pollsets:all()],
    %% Listening sockets and those of other cases count as well.
    ?assert(lists:max(Counts) - lists:min(Counts) =< 6).

%% Misfortune. Clients come all the time; processes are killed; those who were not served try again.

killed_workers_have_successors(Config) ->
    Port = start(Config, #{}),
    Storm = storm(Port, 8),
    [
        begin
            kill_workers(?config(name, Config)),
            timer:sleep(20)
        end
     || _ <- lists:seq(1, 20)
    ],
    still_serves(Port),
    calm(Storm),
    wait_until(fun() -> count(Config) =:= 0 end).

kill_workers(Name) ->
    #{pid := Listener} = weir:info(Name),
    {links, Linked} = process_info(Listener, links),
    Supervisor = whereis(weir_listener_sup),
    [exit(Pid, kill) || Pid <- Linked, is_pid(Pid), Pid =/= Supervisor].

a_killed_listener_goes_on(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Socket = is_served(connect(Port)),
    Storm = storm(Port, 4),
    [
        begin
            Old = weir_listener_names:whereis_name(Name),
            exit(Old, kill),
            wait_until(fun() -> is_pid(Now = weir_listener_names:whereis_name(Name)) andalso Now =/= Old end)
        end
     || _ <- lists:seq(1, 4)
    ],
    ?assertEqual(Port, weir:get_port(Name)),
    still_serves(Port),
    calm(Storm),
    %% The connections of funs are those of before, and are still counted.
    ?config(handler, Config) =:= function andalso is_served(Socket),
    Left = case ?config(handler, Config) of function -> 1; _ -> 0 end,
    wait_until(fun() -> count(Config) =:= Left end).

killed_processes_leave_nothing(Config) ->
    Port = start(Config, #{max_connections => 20}),
    Name = ?config(name, Config),
    Storm = storm(Port, 8),
    [
        begin
            [exit(Pid, kill) || {_, Pid} <- weir:connections(Name)],
            [exit(Pid, kill) || N rem 4 =:= 0, #{poller := Pid} <- weir:pollsets(), is_pid(Pid)],
            timer:sleep(10)
        end
     || N <- lists:seq(1, 30)
    ],
    still_serves(Port),
    calm(Storm),
    wait_until(fun() -> count(Config) =:= 0 end),
    ?assertMatch(#{waiting := 0}, weir:info(Name)).

a_storm_of_resets_leaves_nothing(Config) ->
    Port = start(Config, #{max_connections => 50, per_address => 40}),
    Clients = [
        weir_test_peer:async(fun() ->
            [
                case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {linger, {true, 0}}]) of
                    {ok, Socket} ->
                        _ = N rem 3 =:= 0 andalso gen_tcp:send(Socket, <<"x">>),
                        gen_tcp:close(Socket);
                    {error, _} ->
                        ok
                end
             || N <- lists:seq(1, 100)
            ]
        end)
     || _ <- lists:seq(1, 4)
    ],
    [weir_test_peer:await(Client) || Client <- Clients],
    wait_until(fun() -> count(Config) =:= 0 end),
    is_served(connect(Port)).

storm(Port, Count) -> [spawn_link(fun() -> storm(Port) end) || _ <- lists:seq(1, Count)].

storm(Port) ->
    receive
        {stop, From} -> From ! {stopped, self()}
    after 0 ->
        case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], 5000) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                _ = gen_tcp:recv(Socket, 5, 200),
                gen_tcp:close(Socket);
            {error, _} ->
                timer:sleep(5)
        end,
        storm(Port)
    end.

calm(Storm) ->
    [Pid ! {stop, self()} || Pid <- Storm],
    [receive {stopped, Pid} -> ok after 30000 -> ct:fail(storm_does_not_end) end || Pid <- Storm].

still_serves(Port) ->
    wait_until(fun() ->
        case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], 1000) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                Answer = gen_tcp:recv(Socket, 5, 2000),
                ok = gen_tcp:close(Socket),
                Answer =:= {ok, <<"hello">>};
            {error, _} ->
                false
        end
    end).

%% PROXY headers, and TLS for handlers that are processes.

the_proxy_header_is_known(Config) ->
    Port = start(Config, #{proxy_protocol => true}),
    Header = #{
        command => proxy, transport_family => ipv4, transport_protocol => stream,
        src_address => {192, 0, 2, 1}, src_port => 1, dest_address => {192, 0, 2, 2}, dest_port => 2
    },
    [
        begin
            Socket = connect(Port),
            <<First:9/binary, Rest/binary>> = weir_proxy_header:build(Header#{version => Version}),
            ok = gen_tcp:send(Socket, First),
            timer:sleep(5),
            ok = gen_tcp:send(Socket, [Rest, "hello"]),
            ?assertEqual({ok, <<"192.0.2.1hello">>}, gen_tcp:recv(Socket, 14, ?PATIENCE))
        end
     || Version <- [1, 2]
    ].

no_proxy_header_is_no_connection(Config) ->
    Port = start(Config, #{proxy_protocol => true, handshake_timeout => 100}),
    Wrong = connect(Port),
    ok = gen_tcp:send(Wrong, <<"GET / HTTP/1.1\r\n">>),
    Silent = connect(Port),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)) || Socket <- [Wrong, Silent]],
    wait_until(fun() -> count(Config) =:= 0 end).

tls_is_spoken(Config) ->
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Port = start(Config, #{tls => [Option || {Name, _} = Option <- Server, Name =:= cert orelse Name =:= key], handshake_timeout => 2000, proxy_protocol => true}),
    Header = weir_proxy_header:build(#{version => 2, command => local}),
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, Header),
    {ok, Tls} = ssl:connect(Socket, [{verify, verify_none}, {active, false}], ?PATIENCE),
    ok = ssl:send(Tls, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, ssl:recv(Tls, 5, ?PATIENCE)),
    Plain = connect(Port),
    ok = gen_tcp:send(Plain, [Header, <<"this is no handshake">>]),
    %% An alert, and the end.
    _ = weir_test_peer:recv_all(Plain),
    ok = ssl:close(Tls),
    wait_until(fun() -> count(Config) =:= 0 end).

%% Cases for one kind.

a_name_is_taken_once(Config) ->
    _ = start(Config, #{}),
    Name = ?config(name, Config),
    ?assertMatch({error, {already_started, _}}, weir:start_listener(Name, #{}, handler(function), args)).

a_port_is_taken_once(Config) ->
    Port = start(Config, #{}),
    Options = #{ip => ?LOOPBACK, port => Port},
    ?assertEqual({error, eaddrinuse}, weir:start_listener(other, Options, handler(function), args)),
    ok = weir:stop_listener(?config(name, Config)),
    {ok, _} = weir:start_listener(other, Options, handler(function), args),
    is_served(connect(Port)).

%% The kernel spreads connections over both.
a_shared_port(Config) ->
    Port = start(Config, #{}),
    Says = fun(Socket, Word) -> gen_tcp:send(Socket, Word) end,
    Options = #{ip => ?LOOPBACK, port => Port},
    ?assertEqual({error, eaddrinuse}, weir:start_listener(other, Options, Says, <<"other">>)),
    {ok, _} = weir:start_listener(other, Options#{shared => true}, Says, <<"other">>),
    Heard = fun() -> gen_tcp:recv(connect(Port), 5, 100) end,
    wait_until(fun() -> Heard() =:= {ok, <<"other">>} end),
    ok = weir:suspend_listener(other),
    ok = weir:resume_listener(other),
    wait_until(fun() -> Heard() =:= {ok, <<"other">>} end),
    %% What one leaves is the other's.
    ok = weir:stop_listener(?config(name, Config)),
    [?assertEqual({ok, <<"other">>}, gen_tcp:recv(connect(Port), 5, ?PATIENCE)) || _ <- lists:seq(1, 10)],
    ok = weir:stop_listener(other).

a_shared_unix_socket(Config) ->
    Path = filename:join("/tmp", "weir_listener_shared_" ++ os:getpid() ++ atom_to_list(?config(handler, Config))),
    undefined = start(Config, #{ip => {local, Path}}),
    Connect = fun() ->
        {ok, Socket} = weir_test_peer:keep(gen_tcp:connect({local, Path}, 0, [binary, {active, false}])),
        Socket
    end,
    Before = Connect(),
    Says = fun(Socket, Word) -> gen_tcp:send(Socket, Word) end,
    {ok, _} = weir:start_listener(other, #{ip => {local, Path}, shared => true}, Says, <<"other">>),
    ?assertEqual({ok, <<"other">>}, gen_tcp:recv(Connect(), 5, ?PATIENCE)),
    is_served(Before),
    ok = weir:stop_listener(other),
    ok = file:delete(Path),
    %% What is no socket stays there.
    ok = file:write_file(Path, "mine"),
    [
        ?assertEqual({error, eaddrinuse}, weir:start_listener(other, #{ip => {local, Path}, shared => IsShared}, Says, <<"other">>))
     || IsShared <- [true, false]
    ],
    ?assertEqual({ok, <<"mine">>}, file:read_file(Path)),
    ok = file:delete(Path).

wrong_options_are_refused(_Config) ->
    ?assertMatch({error, {bad_option, port, no, _}}, weir:start_listener(a, #{port => no}, handler(function), x)),
    ?assertMatch(
        {error, {bad_option, socket_opts, _, _}},
        weir:start_listener(a, #{socket_opts => [{nonsense, 1}]}, handler(function), x)
    ),
    %% The culprit is named, and nothing else.
    ?assertMatch(
        {error, {bad_option, socket_opts, {nodelay, 1}, [_ | _]}},
        weir:start_listener(a, #{socket_opts => [{backlog, 5}, {nodelay, 1}, {keepalive, true}]}, handler(function), x)
    ),
    ?assertMatch({error, {bad_option, handler, lists, [_ | _]}}, weir:start_listener(a, #{}, lists, x)),
    #{start := {Module, Function, Arguments}} = weir:child_spec(a, #{port => no}, handler(function), x),
    ?assertMatch({error, {bad_option, port, no, _}}, apply(Module, Function, Arguments)),
    ?assertEqual([], weir:listeners()).

a_listener_is_embedded(Config) ->
    Name = ?config(name, Config),
    Spec = weir:child_spec(Name, #{ip => ?LOOPBACK}, handler(function), args),
    ?assertEqual(Spec, weir_listener:child_spec({Name, #{ip => ?LOOPBACK}, handler(function), args})),
    {ok, Supervisor} = weir_listener_supervisor:start_link([Spec]),
    is_served(connect(weir:get_port(Name))),
    ?assertEqual({error, {no_listener, Name}}, weir:stop_listener(Name)),
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    wait_until(fun() -> weir:listeners() =:= [] end).

%% On a node of its own: Weir is stopped and started under it.
an_embedded_listener_outlives_weir(_Config) ->
    weir_test_peer:on_node(?MODULE, with_weir_stopped, "", ["+S", "2"]).

with_weir_stopped(Config) ->
    Specs = [weir:child_spec(Name, #{ip => ?LOOPBACK}, handler(function), args) || Name <- [running, suspended]],
    {ok, Supervisor} = weir_listener_supervisor:start_link(Specs),
    Before = supervisor:which_children(Supervisor),
    Port = weir:get_port(running),
    ok = weir:suspend_listener(suspended),
    [
        begin
            ok = application:stop(weir),
            ?assertEqual([], weir:listeners()),
            ok = application:start(weir),
            wait_until(fun() -> lists:sort(weir:listeners()) =:= [running, suspended] end),
            wait_until(fun() -> maps:get(status, weir:info(running)) =:= running end),
            still_serves(Port),
            ?assertMatch(#{status := suspended}, weir:info(suspended))
        end
     || _ <- [1, 2]
    ],
    ?assertEqual(Before, supervisor:which_children(Supervisor)),
    ok = weir:resume_listener(suspended),
    still_serves(weir:get_port(suspended)),
    [?assertEqual(ok, weir:drain_listener(Name, ?PATIENCE)) || Name <- [running, suspended]],
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    wait_until(fun() -> weir:listeners() =:= [] end),
    Config.

names_that_are_not_there_are_told(_Config) ->
    [
        ?assertEqual({error, {no_listener, nobody}}, apply(weir, Function, [nobody | Arguments]))
     || {Function, Arguments} <- [
            {stop_listener, []}, {suspend_listener, []}, {resume_listener, []}, {drain_listener, [0]}, {info, []},
            {connections, []}, {set_max_connections, [1]}, {set_options, [#{}]}, {get_port, []}
        ]
    ].

an_address_may_be_text(Config) ->
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => "127.0.0.1"}, handler(function), args),
    ?assertMatch(#{ip := ?LOOPBACK}, weir:info(?config(name, Config))),
    is_served(connect(weir:get_port(?config(name, Config)))).

%% The error is all that there is: a log that nobody asked for is none.
a_taken_port_is_no_crash(Config) ->
    Port = start(Config, #{}),
    Self = self(),
    Tell = fun(Event, _) -> Self ! {logged, Event}, stop end,
    ok = logger:add_primary_filter(?FUNCTION_NAME, {Tell, []}),
    try
        ?assertEqual({error, eaddrinuse}, weir:start_listener(other, #{ip => ?LOOPBACK, port => Port}, handler(function), x))
    after
        logger:remove_primary_filter(?FUNCTION_NAME)
    end,
    ?assertEqual([], [Event || {logged, Event} <- weir_test_peer:messages()]).

%% A relay takes the sockets of its connections, and not their places.
relays_keep_their_places(Config) ->
    Name = ?config(name, Config),
    Port = start_relay(Name, #{max_connections => 2, per_address => 2}, #{}),
    Relayed = [is_served(connect(Port)) || _ <- [1, 2]],
    wait_until(fun() -> length(weir:relays()) =:= 2 end),
    ?assertMatch(#{connections := 2}, weir:info(Name)),
    Late = connect(Port),
    is_waiting(Late),
    ?assertEqual({error, {timeout, 2}}, weir:drain_listener(Name, 50)),
    ok = weir:resume_listener(Name),
    [ok = gen_tcp:close(Socket) || Socket <- Relayed],
    wait_until(fun() -> weir:relays() =:= [] end),
    wait_until(fun() -> count(Config) =:= 0 end),
    [is_served(connect(Port)) || _ <- [1, 2]].

%% So does one that outlives its owner.
stop_ends_relays(Config) ->
    [
        begin
            Name = {?config(name, Config), Options},
            Port = start_relay(Name, #{}, Options),
            Socket = is_served(connect(Port)),
            wait_until(fun() -> length(weir:relays()) =:= 1 end),
            ok = weir:stop_listener(Name),
            ?assertEqual([], weir:relays()),
            ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE))
        end
     || Options <- [#{}, #{detached => true}]
    ].

%% What ranch:remove_connection/1 tells the parent of a connection.
a_connection_may_count_no_more(Config) ->
    Name = ?config(name, Config),
    {ok, Listener} = weir:start_listener(Name, #{ip => ?LOOPBACK, max_connections => 1}, weir_listener_protocol, args),
    First = is_served(connect(weir:get_port(Name))),
    Second = connect(weir:get_port(Name)),
    is_waiting(Second),
    Acceptors = [Acceptor || {_, Acceptor, _, _} <- supervisor:which_children(Listener)],
    [Pid] = [Pid || Acceptor <- Acceptors, {_, Pid, _, _} <- supervisor:which_children(Acceptor)],
    [Acceptor ! {remove_connection, Name, Pid} || Acceptor <- Acceptors, _ <- [1, 2]],
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Second, 5, ?PATIENCE)),
    is_served(First),
    ?assertMatch(#{connections := 2}, weir:info(Name)),
    %% It gave its place back once.
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 1 end),
    Third = connect(weir:get_port(Name)),
    is_waiting(Third),
    ok = gen_tcp:close(Second),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Third, 5, ?PATIENCE)).

%% A listener whose connections are joined with an echo server's.
start_relay(Name, Options, RelayOptions) ->
    Echo = {Name, echo},
    {ok, _} = weir:start_listener(Echo, #{ip => ?LOOPBACK}, handler(function), args),
    Behind = weir:get_port(Echo),
    Relay = fun(Socket, _) ->
        {ok, Server} = gen_tcp:connect(?LOOPBACK, Behind, [{tcp_module, weir_tcp}, binary, {active, false}]),
        {ok, Relay} = weir:relay(Socket, Server, RelayOptions),
        receive {weir_relay, Relay, _, _} -> ok end
    end,
    {ok, _} = weir:start_listener(Name, Options#{ip => ?LOOPBACK}, Relay, []),
    weir:get_port(Name).

connections_run_where_their_sockets_are(Config) ->
    Self = self(),
    Handler = fun(Socket = {_, _, Handle}, _) ->
        {ok, #{pollset := Pollset}} = weir_nif:info(Handle),
        Self ! {runs, Pollset, erlang:system_info(scheduler_id)},
        echo(Socket, [])
    end,
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => ?LOOPBACK, affinity => bound}, Handler, []),
    Port = weir:get_port(?config(name, Config)),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    [receive {runs, Pollset, Scheduler} -> ?assertEqual(Pollset, Scheduler) end || _ <- lists:seq(1, 20)].

bound_processes_are_bound(Config) ->
    Self = self(),
    Handler = fun(_Socket, _) -> Self ! {bound, process_flag(scheduler, 0), erlang:system_info(scheduler_id)} end,
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => ?LOOPBACK, affinity => bound}, Handler, []),
    _ = connect(weir:get_port(?config(name, Config))),
    receive {bound, Bound, Scheduler} -> ?assertEqual(Scheduler, Bound) end.

a_handler_may_take_its_time_to_end(_Config) ->
    Self = self(),
    Handler = fun(_Socket, How) ->
        process_flag(trap_exit, true),
        Self ! {serving, self()},
        receive
            {'EXIT', _, shutdown} when How =:= polite -> Self ! {goodbye, self()};
            never -> ok
        end
    end,
    [
        begin
            {ok, _} = weir:start_listener(How, #{ip => ?LOOPBACK, shutdown => Time}, Handler, How),
            _ = connect(weir:get_port(How)),
            Pid = receive {serving, Serving} -> Serving end,
            ok = weir:stop_listener(How),
            ?assertNot(is_process_alive(Pid)),
            How =:= polite andalso receive {goodbye, Pid} -> ok after 0 -> ct:fail(not_asked) end
        end
     || {How, Time} <- [{polite, infinity}, {rude, 50}, {brutal, brutal_kill}]
    ].

events_are_told(Config) ->
    Name = ?config(name, Config),
    Self = self(),
    Events = [[weir, listener, What] || What <- [start, stop, suspend, resume, accept]] ++
        [[weir, connection, start], [weir, connection, stop]],
    Tell = fun(Event, Measurements, Metadata, _) -> Self ! {lists:last(Event), hd(tl(Event)), Measurements, Metadata} end,
    ok = weir_event:attach_many(?MODULE, Events, Tell, []),
    try
        Port = start(Config, #{}),
        receive {start, listener, #{connections := 0}, #{name := Name, port := Port}} -> ok end,
        Socket = is_served(connect(Port)),
        receive {accept, listener, #{count := 1}, #{name := Name, pollset := _}} -> ok end,
        Pid = receive {start, connection, #{system_time := _}, #{name := Name, pid := Serving}} -> Serving end,
        ok = gen_tcp:close(Socket),
        receive {stop, connection, #{duration := _}, #{pid := Pid, reason := normal}} -> ok end,
        ok = weir:suspend_listener(Name),
        receive {suspend, listener, #{accepted := 1}, _} -> ok end,
        ok = weir:resume_listener(Name),
        receive {resume, listener, _, _} -> ok end,
        ok = weir:stop_listener(Name),
        receive {stop, listener, _, #{status := _}} -> ok end
    after
        weir_event:detach(?MODULE)
    end.

%% On a node of its own, with few descriptors.
descriptors_run_out(_Config) ->
    weir_test_peer:on_node(?MODULE, with_few_descriptors, "ulimit -n 120;", ["+S", "2"]).

with_few_descriptors(Config) ->
    Self = self(),
    Tell = fun(Event, _, Metadata, _) -> Self ! {lists:last(Event), Metadata} end,
    ok = weir_event:attach_many(few, [[weir, listener, exhausted], [weir, listener, recover]], Tell, []),
    {ok, _} = weir:start_listener(few, #{ip => ?LOOPBACK}, handler(function), args),
    Port = weir:get_port(few),
    %% The clients' descriptors are of the same node. When both ends have run out together one more is left for a client,
    %% and none for its connection.
    {ok, Spare} = file:open(code:which(?MODULE), [read, raw]),
    First = connect_all(Port, []),
    ok = file:close(Spare),
    Sockets = connect_all(Port, First),
    receive {exhausted, #{name := few, reason := Reason}} -> ?assertEqual(emfile, Reason) after ?PATIENCE -> ct:fail(not_told) end,
    #{connections := Served} = weir:info(few),
    ?assert(Served < length(Sockets)),
    [ok = weir_test_peer:reset(Socket) || Socket <- Sockets],
    receive {recover, #{name := few}} -> ok after ?PATIENCE -> ct:fail(not_recovered) end,
    still_serves(Port),
    wait_until(fun() -> maps:get(connections, weir:info(few)) =:= 0 end),
    ok = weir_event:detach(few),
    ok = weir:stop_listener(few),
    Config.

connect_all(Port, Sockets) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], 1000) of
        {ok, Socket} -> connect_all(Port, [Socket | Sockets]);
        {error, _} -> Sockets
    end.

%% The streams check every byte of both directions. Each connection moves itself with its process, and all are moved from
%% outside meanwhile.
connections_migrate_while_data_flows(Config) ->
    Pollsets = weir_pollsets:all(),
    Wander = fun Loop(Socket, Args) ->
        case gen_tcp:recv(Socket, 0) of
            {ok, Data} ->
                ok = gen_tcp:send(Socket, Data),
                _ = rand:uniform(4) =:= 1 andalso (ok = weir:migrate(Socket, rand:uniform(length(Pollsets)))),
                Loop(Socket, Args);
            {error, _} ->
                ok
        end
    end,
    Name = ?config(name, Config),
    {ok, _} = weir:start_listener(Name, #{ip => ?LOOPBACK}, Wander, []),
    Streams = weir_test_peer:start_streams(weir:get_port(Name), 4),
    [
        begin
            [weir:migrate(Socket, rand:uniform(length(Pollsets))) || {Socket, _} <- weir:connections(Name)],
            timer:sleep(1)
        end
     || _ <- lists:seq(1, 500)
    ],
    weir_test_peer:assert_streams_go_on(Streams),
    weir_test_peer:stop_streams(Streams).

%% All connections begin on one pollset, and are spread by what they do.
loads_are_balanced(Config) ->
    Name = ?config(name, Config),
    Port = start(Config, #{balance => #{interval => 20, threshold => 20}}),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    [ok = weir:migrate(Socket, 1) || {Socket, _} <- weir:connections(Name)],
    case length(weir_pollsets:all()) of
        1 ->
            {skip, one_scheduler};
        _ ->
            wait_until(fun() ->
                [is_served(Socket) || Socket <- Sockets],
                Pollsets = [P || {{_, _, Handle}, _} <- weir:connections(Name), {ok, #{pollset := P}} <- [weir_nif:info(Handle)]],
                length([P || P <- Pollsets, P =/= 1]) >= 4
            end)
    end.

schedulers_go_offline(Config) ->
    Port = start(Config, #{}),
    Online = erlang:system_info(schedulers_online),
    try
        erlang:system_flag(schedulers_online, 1),
        [still_serves(Port) || _ <- lists:seq(1, 20)],
        erlang:system_flag(schedulers_online, Online),
        [still_serves(Port) || _ <- lists:seq(1, 20)]
    after
        erlang:system_flag(schedulers_online, Online)
    end.
