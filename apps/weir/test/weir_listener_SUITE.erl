%% Listeners: which connections they accept and refuse, how they end, and what is left when their processes are
%% killed.
-module(weir_listener_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_listener_test, [connect/1, count/1, handler/1, is_served/1, is_waiting/1, start/2]).

-include("listener_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, function}, {group, protocol}, {group, reactor}].

groups() ->
    %% Cases for every kind of handler.
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
        a_drained_listener_accepts_its_backlog,
        a_drained_unix_listener_accepts_its_backlog,
        stop_ends_connections,
        ipv6_is_served,
        a_unix_socket_is_served,
        an_inherited_descriptor_is_served,
        an_inherited_descriptor_is_resumed,
        the_proxy_header_is_known,
        no_proxy_header_is_no_connection
    ],
    Process = [least_loaded_spreads, tls_is_spoken, a_wrong_proxy_header_is_no_crash],
    [
        {function, [], Common ++ Process},
        {protocol, [], Common ++ Process},
        {reactor, [], Common}
    ].

init_per_group(Handler, Config) ->
    [{handler, Handler} | Config].

end_per_group(_Group, _Config) ->
    ok.

%% The reset may arrive before connect has returned.
is_turned_away(Port) -> is_turned_away(Port, ?LOOPBACK).

is_turned_away(Port, From) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {ip, From}], patience()) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, <<"x">>),
            ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())),
            ok = gen_tcp:close(Socket);
        {error, Reason} ->
            ?assertEqual(econnreset, Reason)
    end.

%% Cases for every kind of handler.

connections_are_served(Config) ->
    Port = start(Config, #{}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 20)],
    [is_served(Socket) || Socket <- Sockets],
    Bytes = crypto:strong_rand_bytes(300_000),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {echoed, gen_tcp:recv(hd(Sockets), byte_size(Bytes), patience())} end),
    ok = gen_tcp:send(hd(Sockets), Bytes),
    receive {echoed, Echoed} -> ?assert({ok, Bytes} =:= Echoed) after patience() -> ct:fail(not_echoed) end.

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
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Late, 5, patience())).

connections_beyond_the_limit_are_reset(Config) ->
    Port = start(Config, #{max_connections => 2, overload => reset}),
    [First | _] = [is_served(connect(Port)) || _ <- lists:seq(1, 2)],
    [is_turned_away(Port) || _ <- lists:seq(1, 5)],
    wait_until(fun() -> maps:get(overload, weir:info(?config(name, Config))) =:= 5 end),
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 1 end),
    %% Its slot is free a moment later.
    weir_listener_test:still_serves(Port).

the_limit_is_raised(Config) ->
    Port = start(Config, #{max_connections => 0}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 3)],
    [is_waiting(Socket) || Socket <- Sockets],
    ok = weir:set_max_connections(?config(name, Config), 3),
    [?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 5, patience())) || Socket <- Sockets],
    ?assertMatch(#{max_connections := 3}, weir:info(?config(name, Config))).

the_rate_is_kept(Config) ->
    Port = start(Config, #{max_rate => 20}),
    Began = erlang:monotonic_time(millisecond),
    [is_served(Socket) || Socket <- [connect(Port) || _ <- lists:seq(1, 24)]],
    %% Twenty at once, the other four at the rate.
    ?assert(erlang:monotonic_time(millisecond) - Began >= 190),
    %% They may connect so slowly that none has to wait.
    wait_until(fun() ->
        _ = [connect(Port) || _ <- lists:seq(1, 40)],
        maps:get(rate_pauses, weir:info(?config(name, Config))) > 0
    end).

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
    wait_until(fun() ->
        maps:with([crowded, connections], weir:info(?config(name, Config))) =:= #{crowded => 1, connections => 3}
    end),
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 2 end),
    %% Its slot is free a moment later.
    weir_listener_test:still_serves(Port).

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

%% Even if that takes longer than handshakes do.
a_drained_listener_accepts_its_backlog(Config) ->
    Port = start(Config, #{max_rate => 20}),
    its_backlog_is_served([connect(Port) || _ <- lists:seq(1, 24)], Config).

%% The kernel does not report the length of a Unix socket's backlog.
a_drained_unix_listener_accepts_its_backlog(Config) ->
    Path = path(Config),
    undefined = start(Config, #{ip => {local, Path}, max_rate => 20}),
    its_backlog_is_served([connect_local(Path) || _ <- lists:seq(1, 24)], Config),
    ok = file:delete(Path).

its_backlog_is_served(Sockets, Config) ->
    Drain = weir_test_peer:async(fun() -> weir:drain_listener(?config(name, Config), patience()) end),
    [begin is_served(Socket), ok = gen_tcp:close(Socket) end || Socket <- Sockets],
    ?assertEqual(ok, weir_test_peer:await(Drain)).

stop_ends_connections(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 5)],
    Pids = [Pid || {_, Pid} <- weir:connections(Name)],
    ok = weir:stop_listener(Name),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())) || Socket <- Sockets],
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
    Path = path(Config),
    Options = #{ip => {local, Path}},
    Name = ?config(name, Config),
    undefined = start(Config, Options),
    [is_served(connect_local(Path)) || _ <- lists:seq(1, 10)],
    ?assertMatch({error, eaddrinuse}, weir:start_listener(other, Options, handler(function), args)),
    %% The file stays and is reused.
    ok = weir:suspend_listener(Name),
    ok = weir:resume_listener(Name),
    is_served(connect_local(Path)),
    ok = weir:stop_listener(Name),
    ok = file:delete(Path).

path(Config) -> filename:join("/tmp", "weir_listener_" ++ os:getpid() ++ atom_to_list(?config(handler, Config))).

connect_local(Path) ->
    {ok, Socket} = weir_test_peer:keep(gen_tcp:connect({local, Path}, 0, [binary, {active, false}])),
    Socket.

an_inherited_descriptor_is_served(Config) ->
    {ok, Opened} = weir_test_peer:keep(gen_tcp:listen(0, [{ip, ?LOOPBACK}, {backlog, 100}])),
    {ok, Fd} = inet:getfd(Opened),
    {ok, Port} = inet:port(Opened),
    Port = start(Config, #{fd => Fd}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 10)],
    ok = weir:stop_listener(?config(name, Config)),
    %% The descriptor is still open: connections wait in its backlog.
    {ok, Port} = inet:port(Opened),
    _ = connect(Port),
    {ok, Accepted} = gen_tcp:accept(Opened, patience()),
    ok = gen_tcp:close(Accepted).

%% All listening sockets share one open file description, which stays open when they are closed.
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

%% PROXY headers, and TLS for handlers that are processes.

the_proxy_header_is_known(Config) ->
    Port = start(Config, #{proxy_protocol => true, handshake_timeout => infinity}),
    Header = #{
        command => proxy, transport_family => ipv4, transport_protocol => stream,
        src_address => {192, 0, 2, 1}, src_port => 1, dest_address => {192, 0, 2, 2}, dest_port => 2
    },
    [
        begin
            Socket = connect(Port),
            <<First:9/binary, Rest/binary>> = weir_proxy_protocol:build(Header#{version => Version}),
            _ = reactor_probe:send_apart(Socket, [First, [Rest, "hello"]]),
            ?assertEqual({ok, <<"192.0.2.1hello">>}, gen_tcp:recv(Socket, 14, patience()))
        end
     || Version <- [1, 2]
    ].

no_proxy_header_is_no_connection(Config) ->
    Port = start(Config, #{proxy_protocol => true, handshake_timeout => 100}),
    Wrong = connect(Port),
    ok = gen_tcp:send(Wrong, <<"GET / HTTP/1.1\r\n">>),
    Silent = connect(Port),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())) || Socket <- [Wrong, Silent]],
    wait_until(fun() -> count(Config) =:= 0 end).

a_wrong_proxy_header_is_no_crash(Config) ->
    Port = start(Config, #{proxy_protocol => true, handshake_timeout => infinity}),
    Wrong = connect(Port),
    wait_until(fun() -> length(weir:connections(?config(name, Config))) =:= 1 end),
    [{_, Pid}] = weir:connections(?config(name, Config)),
    Monitor = monitor(process, Pid),
    ok = gen_tcp:send(Wrong, <<"PROXY TCP4 nonsense\r\n">>),
    receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end,
    ?assertMatch({error, _}, gen_tcp:recv(Wrong, 0, patience())).

tls_is_spoken(Config) ->
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Tls = [Option || {Name, _} = Option <- Server, Name =:= cert orelse Name =:= key],
    Port = start(Config, #{tls => Tls, handshake_timeout => patience(), proxy_protocol => true}),
    Header = weir_proxy_protocol:build(#{version => 2, command => local}),
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, Header),
    {ok, Client} = ssl:connect(Socket, [{verify, verify_none}, {active, false}], patience()),
    ok = ssl:send(Client, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, ssl:recv(Client, 5, patience())),
    Plain = connect(Port),
    ok = gen_tcp:send(Plain, [Header, <<"this is no handshake">>]),
    %% An alert, then the end.
    _ = weir_test_wait:recv_all(Plain),
    ok = ssl:close(Client),
    wait_until(fun() -> count(Config) =:= 0 end).
