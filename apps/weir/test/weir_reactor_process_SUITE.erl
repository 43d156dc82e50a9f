%% Reactors as processes, their outgoing connections, and partial sends.
-module(weir_reactor_process_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, async/1, await/1, kill/1, socket_pair/2, reset/1]).
-import(weir_test_wait, [patience/0, recv_exactly/2]).
-import(reactor_probe, [start/1, listen/1, client/1, stop/1, told/1, told/2, told_of/2, recv_all/1, exchange/2]).

-include("reactor_suite.hrl").
suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, connecting},
        {group, process},
        {group, partial_sends}
    ].

groups() ->
    [
        {connecting, [], [
            connect_calls_init,
            connect_is_refused,
            connect_from_an_address,
            connect_from_a_callback,
            connect_errors_that_show_at_once,
            adopt_takes_what_is_unread,
            what_comes_during_an_adoption_is_sent_back
        ]},
        {process, [], [
            shutdown_terminates_each_connection,
            the_end_of_the_parent_is_the_end,
            sys_looks_at_the_states,
            options_are_checked,
            a_listening_socket_that_is_none,
            a_supervisor_has_reactors_by_their_specification,
            a_name
        ]},
        {partial_sends, [], [
            send_nowait_takes_what_the_kernel_takes,
            send_nowait_stays_behind_the_queue,
            send_nowait_refuses_packets_and_closed_sockets,
            notify_writable_tells_a_close
        ]}
    ].

%%% Connecting.

connect_calls_init(_Config) ->
    {Server, Port} = start(#{}),
    Client = client(#{}),
    Greet = fun(_Socket, State) -> {send, <<"greetings">>, State} end,
    Args = #{tell => self(), init => Greet, data => fun reactor_probe:tell_only/3},
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, [{args, Args}, {nodelay, true}]),
    {init, Socket} = told_of(init, Socket),
    ?assertEqual(<<"greetings">>, told(data, Socket)),
    stop(Client),
    stop(Server).

connect_is_refused(_Config) ->
    Client = client(#{}),
    Port = await(async(fun weir_test_port:claim/0)),
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, []),
    ?assertEqual(econnrefused, told(not_connected, Socket)),
    ?assertEqual(#{}, sys:get_state(Client)),
    stop(Client).

connect_from_an_address(_Config) ->
    {Server, Port} = start(#{}),
    Client = client(#{data => fun reactor_probe:tell_only/3}),
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, [{ip, {127, 0, 0, 77}}]),
    {init, Socket} = told_of(init, Socket),
    ?assertMatch({ok, {{127, 0, 0, 77}, _}}, inet:sockname(Socket)),
    stop(Client),
    stop(Server).

connect_from_a_callback(_Config) ->
    {Server, Port} = start(#{}),
    Self = self(),
    Client = client(#{
        data => fun(_Socket, _Data, State) ->
            Args = #{
                tell => Self,
                init => fun(_, Fresh) -> {send, <<"second">>, Fresh} end,
                data => fun reactor_probe:tell_only/3
            },
            {ok, _} = weir_reactor:connect(self(), ?LOOPBACK, Port, [{args, Args}]),
            {ok, State#{data := fun reactor_probe:tell_only/3}}
        end,
        init => fun(_Socket, State) -> {send, <<"first">>, State} end
    }),
    {ok, _} = weir_reactor:connect(Client, ?LOOPBACK, Port, []),
    {data, _, <<"second">>} = told(data),
    stop(Client),
    stop(Server).

connect_errors_that_show_at_once(_Config) ->
    Client = client(#{}),
    ?assertEqual({error, eaddrnotavail}, weir_reactor:connect(Client, ?LOOPBACK, 1, [{ip, {192, 0, 2, 1}}])),
    ?assertEqual({error, noproc}, weir_reactor:connect(no_such_reactor, ?LOOPBACK, 1, [])),
    ?assertExit(badarg, weir_reactor:connect(Client, ?LOOPBACK, 1, [{nodelay, perhaps}])),
    ?assertExit(badarg, weir_reactor:connect(Client, "localhost", 1, [])),
    stop(Client),
    ?assertEqual({error, noproc}, weir_reactor:connect(Client, ?LOOPBACK, 1, [])).

adopt_takes_what_is_unread(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, "unread"),
    {ok, <<"un">>} = gen_tcp:recv(Socket, 2, patience()),
    Reactor = client(#{}),
    {ok, Socket} = weir_reactor:adopt(Reactor, Socket, #{tell => self()}),
    ?assertEqual(<<"read">>, recv_exactly(Peer, 4)),
    exchange(Peer, "more"),
    stop(Reactor),
    ?assertEqual(<<>>, recv_all(Peer)).

%% The poller of a scheduler may be handling an event of a socket just when a reactor adopts it.
what_comes_during_an_adoption_is_sent_back(Config) ->
    Reactors = [
        element(
            2, {ok, _} = weir_reactor:start_link(#{module => reactor_probe, scheduler => Scheduler, affinity => bound})
        )
     || Scheduler <- lists:seq(1, erlang:system_info(schedulers_online))
    ],
    [adopt_meanwhile(Reactor, Config) || _ <- lists:seq(1, 5), Reactor <- Reactors],
    [stop(Reactor) || Reactor <- Reactors].

adopt_meanwhile(Reactor, Config) ->
    Pairs = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 100)],
    %% From now on its pollset gets events of each.
    [{error, timeout} = gen_tcp:recv(Socket, 0, 0) || {Socket, _} <- Pairs],
    Numbers = lists:seq(1, 30),
    Sender = async(fun() -> [ok = gen_tcp:send(Peer, <<N:32>>) || N <- Numbers, {_, Peer} <- Pairs] end),
    [{ok, Socket} = weir_reactor:adopt(Reactor, Socket, #{tell => self()}) || {Socket, _} <- Pairs],
    _ = await(Sender),
    Sent = <<<<N:32>> || N <- Numbers>>,
    [?assertEqual(Sent, recv_exactly(Peer, byte_size(Sent))) || {_, Peer} <- Pairs],
    [ok = gen_tcp:close(Peer) || {_, Peer} <- Pairs],
    [_ = told(closed, Socket) || {Socket, _} <- Pairs],
    ok.

%%% The process.

shutdown_terminates_each_connection(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 20)],
    [told(init) || _ <- Peers],
    exit(Reactor, shutdown),
    ?assertEqual(lists:duplicate(20, shutdown), [element(3, told(terminated)) || _ <- Peers]),
    [?assertEqual(<<>>, recv_all(Peer)) || Peer <- Peers].

the_end_of_the_parent_is_the_end(_Config) ->
    Self = self(),
    {Listen, Port} = listen([]),
    Parent = async(fun() ->
        {ok, _} = weir_reactor:start_link(#{module => reactor_probe, args => #{tell => Self}, listen => Listen})
    end),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    kill(Parent),
    ?assertEqual(killed, told(terminated, Socket)),
    ?assertEqual(<<>>, recv_all(Peer)).

sys_looks_at_the_states(_Config) ->
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State = #{answer := Answer}) -> {send, Answer, State} end,
        answer => <<"a">>}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    #{Socket := #{answer := <<"a">>}} = sys:get_state(Reactor),
    _ = sys:replace_state(Reactor, fun(State) -> State#{answer := <<"b">>} end),
    ok = gen_tcp:send(Peer, "?"),
    ?assertEqual(<<"b">>, recv_exactly(Peer, 1)),
    ok = sys:suspend(Reactor),
    ok = sys:resume(Reactor),
    ok = gen_tcp:send(Peer, "?"),
    ?assertEqual(<<"b">>, recv_exactly(Peer, 1)),
    {status, Reactor, {module, _}, _} = sys:get_status(Reactor),
    stop(Reactor).

options_are_checked(_Config) ->
    Bad = fun(Options) -> weir_reactor:start_link(Options) end,
    ?assertMatch({error, {bad_option, module, missing, [_ | _]}}, Bad(#{})),
    ?assertMatch({error, {bad_option, module, lists, [_ | _]}}, Bad(#{module => lists})),
    ?assertMatch({error, {bad_option, module, no_such_module, [_ | _]}}, Bad(#{module => no_such_module})),
    ?assertMatch({error, {bad_option, options, [], [_ | _]}}, Bad([])),
    ?assertMatch({error, {bad_option, tick, 0, [_ | _]}}, Bad(#{module => reactor_probe, tick => 0})),
    ?assertMatch({error, {bad_option, colour, red, [_ | _]}}, Bad(#{module => reactor_probe, colour => red})),
    ?assertMatch({error, {bad_option, scheduler, 0, [_ | _]}}, Bad(#{module => reactor_probe, scheduler => 0})),
    %% More than the VM's timers and the native code accept.
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, Bad(#{module => reactor_probe, Name => Value}))
     || Name <- [tick, long_callback_ms, max_send_queue, handshake_timeout], Value <- [16#100000000, 1 bsl 80, 1.5]
    ],
    {Listen, _} = listen([]),
    ok = gen_tcp:close(Listen),
    ?assertEqual({error, closed}, Bad(#{module => reactor_probe, listen => Listen})).

%% For example the handle of a socket on another node. The reactor's connections continue.
a_listening_socket_that_is_none(_Config) ->
    Forged = {'$inet', weir_tcp, 16#ffffff},
    ?assertEqual({error, einval}, weir_reactor:start_link(#{module => reactor_probe, listen => Forged})),
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, _} = told(init),
    ok = weir_reactor:listen(Reactor, Forged),
    ok = gen_tcp:send(Peer, "here"),
    ?assertEqual(<<"here">>, recv_exactly(Peer, 4)),
    ?assertMatch({ok, #{connections := 1}}, weir_reactor:info(Reactor)),
    stop(Reactor).

a_supervisor_has_reactors_by_their_specification(_Config) ->
    Options = [#{module => reactor_probe}, #{module => reactor_probe, scheduler => 1}],
    {ok, Supervisor} = weir_listener_supervisor:start_link([weir_reactor:child_spec(One) || One <- Options]),
    ?assertMatch(
        [{{weir_reactor, reactor_probe}, _, worker, _}, {{weir_reactor, reactor_probe, 1}, _, worker, _}],
        lists:sort(supervisor:which_children(Supervisor))
    ),
    unlink(Supervisor),
    gen_server:stop(Supervisor).

a_name(_Config) ->
    {ok, Reactor} = weir_reactor:start_link(#{module => reactor_probe, name => ?MODULE}),
    ?assertEqual(Reactor, whereis(?MODULE)),
    ?assertMatch(
        {error, {already_started, Reactor}}, weir_reactor:start_link(#{module => reactor_probe, name => ?MODULE})
    ),
    stop(Reactor).

%%% Partial sends, for sockets of processes.

send_nowait_takes_what_the_kernel_takes(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({ok, 5}, weir:send_nowait(Socket, ["he", <<"llo">>])),
    ?assertEqual(<<"hello">>, recv_exactly(Peer, 5)),
    Taken = fill(Socket, 0),
    ok = weir:notify_writable(Socket),
    ?assertEqual(Taken, byte_size(recv_exactly(Peer, Taken))),
    receive
        {weir_writable, Socket} -> ok
    after patience() -> ct:fail(not_writable)
    end,
    ?assertEqual({ok, 4}, weir:send_nowait(Socket, "more")),
    ?assertEqual(<<"more">>, recv_exactly(Peer, 4)),
    %% It is already writable.
    ok = weir:notify_writable(Socket),
    receive
        {weir_writable, Socket} -> ok
    after patience() -> ct:fail(not_writable)
    end.

fill(Socket, Taken) ->
    case weir:send_nowait(Socket, binary:copy(<<"x">>, 500000)) of
        {ok, 0} -> Taken;
        %% Data on its way to the peer may still make room when it arrives.
        {ok, Part} -> fill(Socket, Taken + Part)
    end.

send_nowait_stays_behind_the_queue(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 65536}]),
    Bytes = rand:bytes(10000000),
    ok = gen_tcp:send(Socket, Bytes),
    ?assertEqual({ok, 0}, weir:send_nowait(Socket, "behind")),
    ok = weir:notify_writable(Socket),
    ?assert(Bytes =:= recv_exactly(Peer, byte_size(Bytes))),
    receive
        {weir_writable, Socket} -> ok
    after patience() -> ct:fail(not_writable)
    end,
    ?assertEqual({ok, 6}, weir:send_nowait(Socket, "behind")),
    ?assertEqual(<<"behind">>, recv_exactly(Peer, 6)).

send_nowait_refuses_packets_and_closed_sockets(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {packet, 4}]),
    ?assertEqual({error, einval}, weir:send_nowait(Socket, "x")),
    ?assertError(badarg, weir:send_nowait(Socket, [no, iodata])),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, weir:send_nowait(Socket, "x")),
    ?assertEqual({error, closed}, weir:notify_writable(Socket)).

notify_writable_tells_a_close(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    _ = fill(Socket, 0),
    ok = weir:notify_writable(Socket),
    reset(Peer),
    told_of_close(Socket).

%% There may have been room before.
told_of_close(Socket) ->
    receive
        {weir_writable, Socket} -> ok
    after patience() -> ct:fail(not_told)
    end,
    case weir:send_nowait(Socket, "x") of
        {error, _} ->
            ok;
        {ok, _} ->
            case weir:notify_writable(Socket) of
                ok -> told_of_close(Socket);
                {error, closed} -> ok
            end
    end.
