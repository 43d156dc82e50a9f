%% Listeners, relays and groups when what they depend on dies at the worst moment: supervisors, owners, pollers and
%% peers, several at once. The suites of the three test single deaths. After each case the numbers of descriptors,
%% sockets, relays and listeners are as before.
-module(weir_fastpath_listeners_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, reset/1, async/1, await/2, pid/1]).
-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_fastpath_test, [kill_pollers/0, one_of/1, pause/0]).

-include("fastpath_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, listeners}].

groups() ->
    [
        {listeners, [], [
            supervisor_of_listeners_killed,
            names_of_listeners_killed,
            keeper_of_pollers_killed,
            killed_before_their_handshake,
            started_and_stopped_in_a_storm,
            killed_while_they_move,
            relayed_by_handlers_that_are_killed
        ]}
    ].

%% Kills a supervised registered process, and waits for its successor.
kill_registered(Name) ->
    Old = whereis(Name),
    exit(Old, kill),
    wait_until(fun() -> is_pid(whereis(Name)) andalso whereis(Name) =/= Old end).

%% Listeners -------------------------------------------------------------------

echo(Socket, Args) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            echo(Socket, Args);
        {error, _} ->
            ok
    end.

start(Name, Options) ->
    start(Name, Options, fun ?MODULE:echo/2).

start(Name, Options, Handler) ->
    {ok, _} = weir:start_listener(
        Name, maps:merge(#{ip => ?LOOPBACK, handshake_timeout => infinity}, Options), Handler, args
    ),
    weir:get_port(Name).

is_served(Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 5, patience())),
    Socket.

count(Name) ->
    maps:get(connections, weir:info(Name)).

is_refused(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, []) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            false;
        {error, Reason} ->
            Reason =:= econnrefused
    end.

%% Clients that connect to the port that a function returns, again and again, and ignore failures.
storm(Port, Count) ->
    [async(fun() -> storm(Port) end) || _ <- lists:seq(1, Count)].

storm(Port) ->
    receive
        stop -> ok
    after 0 ->
        case gen_tcp:connect(?LOOPBACK, Port(), [binary, {active, false}], 2000) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                _ = gen_tcp:recv(Socket, 5, 100),
                case rand:uniform(2) of
                    1 -> gen_tcp:close(Socket);
                    2 -> reset(Socket)
                end;
            {error, _} ->
                pause()
        end,
        storm(Port)
    end.

calm(Storm) ->
    [pid(Client) ! stop || Client <- Storm],
    [ok = await(Client, patience()) || Client <- Storm].

%% A virtual machine has one supervisor of each kind, which gives up after too many deaths: such cases run in their
%% own VM.
on_node(Case) ->
    weir_test_node:on_node(?MODULE, Case, "", ["+S", "2"]).

supervisor_of_listeners_killed(_Config) ->
    on_node(kill_supervisor_of_listeners).

%% Its listeners end with it, in order, and can be started again without hindrance.
kill_supervisor_of_listeners(_Config) ->
    Handlers = [{fun_of_it, fun ?MODULE:echo/2}, {protocol, weir_listener_protocol}, {reactor, weir_listener_reactor}],
    Listeners = [{Name, start(Name, #{}, Handler), Handler} || {Name, Handler} <- Handlers],
    Clients = [is_served(connect_raw(Port)) || {_, Port, _} <- Listeners, _ <- lists:seq(1, 20)],
    kill_registered(weir_listener_sup),
    lists:foreach(fun weir_fastpath_test:is_over/1, Clients),
    wait_until(fun() -> weir:listeners() =:= [] end),
    %% Names are free before the sockets are closed.
    [wait_until(fun() -> is_refused(Port) end) || {_, Port, _} <- Listeners],
    [
        begin
            Port = start(Name, #{port => Port}, Handler),
            _ = is_served(connect_raw(Port)),
            ?assertEqual(1, count(Name)),
            ok = weir:stop_listener(Name)
        end
     || {Name, Port, Handler} <- Listeners
    ].

names_of_listeners_killed(_Config) ->
    on_node(kill_names_of_listeners).

%% Registered names and inherited state survive.
kill_names_of_listeners(_Config) ->
    Port = start(kept, #{}),
    Gone = start(gone, #{}),
    Clients = [is_served(connect_raw(Port)) || _ <- lists:seq(1, 5)],
    kill_registered(weir_listener_names),
    ?assertEqual([gone, kept], lists:sort(weir:listeners())),
    ?assertEqual({Port, 5}, {weir:get_port(kept), count(kept)}),
    ?assertMatch({error, {already_started, _}}, weir:start_listener(kept, #{}, fun ?MODULE:echo/2, args)),
    Old = weir_listener_names:whereis_name(kept),
    exit(Old, kill),
    wait_until(fun() ->
        New = weir_listener_names:whereis_name(kept),
        is_pid(New) andalso New =/= Old
    end),
    ?assertEqual({Port, 5}, {weir:get_port(kept), count(kept)}),
    lists:foreach(fun is_served/1, [connect_raw(Port) | Clients]),
    ok = weir:stop_listener(gone),
    ?assertEqual([kept], weir:listeners()),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Gone, [])),
    ok = weir:stop_listener(kept).

keeper_of_pollers_killed(_Config) ->
    on_node(kill_keeper_of_pollers).

kill_keeper_of_pollers(_Config) ->
    ok = weir_test_peer:silence_pollers(),
    Port = start(streams, #{}),
    Streams = weir_test_streams:start_streams(Port, 4),
    [
        begin
            weir_test_streams:assert_streams_go_on(Streams),
            kill_registered(weir_pollsets)
        end
     || _ <- lists:seq(1, 3)
    ],
    weir_test_streams:assert_streams_go_on(Streams),
    weir_test_streams:stop_streams(Streams),
    _ = is_served(connect_raw(Port)),
    ok = weir:stop_listener(streams).

%% Slots of connections that were never served are freed.
killed_before_their_handshake(Config) ->
    Name = ?config(name, Config),
    Options = #{max_connections => 10, proxy_protocol => true, handshake_timeout => infinity},
    <<Half:10/binary, Rest/binary>> = weir_proxy_protocol:build(#{version => 2, command => local}),
    [
        begin
            Port = start(Name, Options, Handler),
            [
                begin
                    Clients = [connect_raw(Port) || _ <- lists:seq(1, 10)],
                    [ok = gen_tcp:send(Client, Half) || Client <- Clients],
                    wait_until(fun() -> length(weir:connections(Name)) =:= 10 end),
                    [exit(Pid, kill) || {_, Pid} <- weir:connections(Name)],
                    lists:foreach(fun weir_fastpath_test:is_over/1, Clients),
                    wait_until(fun() -> count(Name) =:= 0 end)
                end
             || _ <- lists:seq(1, 3)
            ],
            Client = connect_raw(Port),
            ok = gen_tcp:send(Client, [Half, Rest]),
            _ = is_served(Client),
            ok = weir:stop_listener(Name)
        end
     || Handler <- [fun ?MODULE:echo/2, weir_listener_protocol]
    ].

started_and_stopped_in_a_storm(Config) ->
    Name = ?config(name, Config),
    Current = atomics:new(1, []),
    %% Nothing listens on the first port.
    atomics:put(Current, 1, await(async(fun weir_test_port:claim/0), patience())),
    Storm = storm(fun() -> atomics:get(Current, 1) end, 6),
    [
        begin
            atomics:put(Current, 1, start(Name, #{max_connections => 5, overload => Overload}, Handler)),
            pause(),
            ok = weir:suspend_listener(Name),
            pause(),
            _ = weir:resume_listener(Name),
            pause(),
            ok = weir:stop_listener(Name)
        end
     || _ <- lists:seq(1, 5),
        Overload <- [pause, reset],
        Handler <- [fun ?MODULE:echo/2, weir_listener_protocol, weir_listener_reactor]
    ],
    calm(Storm),
    ?assertEqual([], weir:listeners()).

killed_while_they_move(Config) ->
    Name = ?config(name, Config),
    Port = start(Name, #{max_connections => 30, balance => #{interval => 10, threshold => 10}}),
    Storm = storm(fun() -> Port end, 6),
    Pollsets = weir_pollsets:all(),
    [
        begin
            [
                case rand:uniform(4) of
                    1 -> exit(Pid, kill);
                    _ -> weir:migrate(Socket, one_of(Pollsets))
                end
             || {Socket, Pid} <- weir:connections(Name)
            ],
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause()
        end
     || N <- lists:seq(1, 100)
    ],
    calm(Storm),
    wait_until(fun() -> count(Name) =:= 0 end),
    _ = is_served(connect_raw(Port)).

%% Each connection is relayed to one of another listener. Whichever process dies, both ends are closed and their slots
%% are freed.
relayed_by_handlers_that_are_killed(_Config) ->
    Back = start(back, #{}),
    Relay = fun(Client, _) ->
        case gen_tcp:connect(?LOOPBACK, Back, [{tcp_module, weir_tcp}, binary, {active, false}]) of
            {ok, Server} ->
                case weir:relay(Client, Server, #{}) of
                    {ok, Relayed} -> receive {weir_relay, Relayed, _, _} -> ok end;
                    {error, _} -> gen_tcp:close(Server)
                end;
            {error, _} ->
                ok
        end
    end,
    Front = start(front, #{max_connections => 40}, Relay),
    Storm = storm(fun() -> Front end, 6),
    [
        begin
            [exit(Pid, kill) || {_, Pid} <- weir:connections(one_of([front, back])), rand:uniform(2) =:= 1],
            [weir:stop_relay(Stopped) || Stopped <- weir:relays(), rand:uniform(4) =:= 1],
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause()
        end
     || N <- lists:seq(1, 100)
    ],
    calm(Storm),
    wait_until(fun() -> {count(front), count(back), weir:relays()} =:= {0, 0, []} end),
    _ = is_served(connect_raw(Front)).
