%% How connections of a reactor end, and the effect of messages and ticks.
-module(weir_reactor_messages_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, async/1, kill/1, pid/1, reset/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [start/1, start/2, start/3, stop/1, told/1, told/2, recv_all/1, exchange/2, reports/1]).

-include("reactor_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, ends},
        {group, messages}].

groups() ->
    [
        {ends, [], [
            the_peer_closes,
            a_request_with_the_end_behind_it_is_answered,
            close_sends_what_was_sent_before,
            close_with_the_last_words,
            init_may_close,
            gen_tcp_close_is_told,
            a_reset_is_told,
            a_bad_packet_is_told,
            a_callback_that_raises_closes_its_own_connection,
            a_bad_result_closes_its_own_connection,
            the_end_is_told_to_monitors
        ]},
        {messages, [], [
            send_reaches_handle_info,
            monitors_reach_handle_info,
            other_messages_are_reported,
            ticks_reach_all_connections,
            ticks_do_not_reach_those_that_sleep,
            a_sleeper_is_woken,
            a_tick_can_be_for_all,
            a_long_callback_is_named
        ]}
    ].

%%% Ends.

the_peer_closes(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:close(Peer),
    ?assertEqual(closed, told(closed, Socket)),
    ?assertEqual(closed, told(terminated, Socket)),
    ?assertEqual({error, closed}, weir_reactor:send(Socket, late)),
    stop(Reactor).

a_request_with_the_end_behind_it_is_answered(_Config) ->
    {Reactor, Port} = start(#{}),
    lists:foreach(fun(_) ->
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, "request"),
        ok = gen_tcp:shutdown(Peer, write),
        ?assertEqual(<<"request">>, recv_all(Peer)),
        ?assertEqual(closed, element(3, told(closed)))
    end, lists:seq(1, 50)),
    stop(Reactor).

close_sends_what_was_sent_before(_Config) ->
    Bytes = rand:bytes(5000000),
    {Reactor, Port} = start(#{
        data => fun(_Socket, _Data, State) -> {send, Bytes, State} end,
        info => fun(close, State) -> {close, State} end
    }),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, "go"),
    First = recv_exactly(Peer, 1),
    ok = weir_reactor:send(Socket, close),
    ?assertEqual(normal, told(terminated, Socket)),
    ?assert(Bytes =:= <<First/binary, (recv_all(Peer))/binary>>),
    stop(Reactor).

close_with_the_last_words(_Config) ->
    Bytes = rand:bytes(3000000),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {close, [<<"bye ">>, Bytes], State} end}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, "go"),
    ?assert(<<"bye ", Bytes/binary>> =:= recv_all(Peer)),
    ?assertEqual(normal, told(terminated, Socket)),
    stop(Reactor).

init_may_close(_Config) ->
    {Reactor, Port} = start(#{init => fun(_Socket, State) -> {close, <<"no">>, State} end}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ?assertEqual(<<"no">>, recv_all(Peer)),
    ?assertEqual(normal, told(terminated, Socket)),
    stop(Reactor).

gen_tcp_close_is_told(_Config) ->
    {Reactor, Port} = start(#{data => fun(Socket, _Data, State) ->
        ok = gen_tcp:close(Socket),
        {send, <<"last">>, State}
    end}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, "go"),
    ?assertEqual(<<"last">>, recv_all(Peer)),
    ?assertEqual(closed, told(closed, Socket)),
    stop(Reactor).

a_reset_is_told(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    reset(Peer),
    ?assertEqual(econnreset, told(closed, Socket)),
    stop(Reactor).

a_bad_packet_is_told(_Config) ->
    {Reactor, Port} = start(#{}, [{packet, 4}, {packet_size, 100}]),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, <<1000:32>>),
    ?assertEqual(emsgsize, told(closed, Socket)),
    stop(Reactor).

a_callback_that_raises_closes_its_own_connection(_Config) ->
    Answer = fun
        (_Socket, <<"raise">>, _State) -> error(on_purpose);
        (_Socket, Data, State) -> {send, Data, State}
    end,
    {Reactor, Port} = start(#{data => Answer}),
    [Good, Bad] = [connect_raw(Port), connect_raw(Port)],
    exchange(Good, "before"),
    exchange(Bad, "before"),
    Reports = reports(fun() ->
        ok = gen_tcp:send(Bad, "raise"),
        ?assertEqual(<<>>, recv_all(Bad)),
        {terminated, _, {error, {error, on_purpose, _}}} = told(terminated)
    end),
    ?assertMatch([_], [Report || Report <- Reports, string:find(Report, "on_purpose") =/= nomatch]),
    exchange(Good, "after"),
    stop(Reactor).

a_bad_result_closes_its_own_connection(_Config) ->
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, _State) -> nonsense end}),
    Peer = connect_raw(Port),
    Reports = reports(fun() ->
        ok = gen_tcp:send(Peer, "go"),
        ?assertEqual(<<>>, recv_all(Peer)),
        {terminated, _, {error, {error, {bad_return_value, nonsense}, _}}} = told(terminated)
    end),
    ?assertMatch([_], [Report || Report <- Reports, string:find(Report, "nonsense") =/= nomatch]),
    stop(Reactor).

the_end_is_told_to_monitors(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    Reference = inet:monitor(Socket),
    ok = gen_tcp:close(Peer),
    receive
        {'DOWN', Reference, _, Socket, _} -> ok
    after patience() -> ct:fail(no_down)
    end,
    stop(Reactor).

%%% Messages.

send_reaches_handle_info(_Config) ->
    {Reactor, Port} = start(#{info => fun(Message, State) -> {send, Message, State} end}),
    [A, B] = [connect_raw(Port), connect_raw(Port)],
    Sockets = [element(2, told(init)), element(2, told(init))],
    lists:foreach(fun(Socket) ->
        {ok, {_, PeerPort}} = inet:peername(Socket),
        ok = weir_reactor:send(Socket, <<PeerPort:16>>)
    end, Sockets),
    lists:foreach(fun(Peer) ->
        {ok, PeerPort} = inet:port(Peer),
        ?assertEqual(<<PeerPort:16>>, recv_exactly(Peer, 2))
    end, [A, B]),
    stop(Reactor).

monitors_reach_handle_info(_Config) ->
    Process = async(fun() -> ok end),
    {Reactor, Port} = start(#{init => fun(Socket, State) ->
        _ = monitor(process, pid(Process), [{tag, {weir_reactor, Socket}}]),
        {ok, State}
    end}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    exchange(Peer, "there"),
    kill(Process),
    ?assertMatch({{weir_reactor, Socket}, _, process, _, killed}, told(info, Socket)),
    stop(Reactor).

other_messages_are_reported(_Config) ->
    {Reactor, _Port} = start(#{}),
    Reports = reports(fun() ->
        Reactor ! {a, stray},
        Reactor ! stray,
        #{} = sys:get_state(Reactor)
    end),
    ?assertEqual(2, length([Report || Report <- Reports, string:find(Report, "stray") =/= nomatch])),
    stop(Reactor).

ticks_reach_all_connections(_Config) ->
    {Reactor, Port} = start(#{tick => fun(_Socket, State) -> {send, <<"t">>, State} end}, [], #{tick => 20}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 300)],
    [?assertEqual(<<"tttt">>, recv_exactly(Peer, 4)) || Peer <- Peers],
    stop(Reactor).

ticks_do_not_reach_those_that_sleep(_Config) ->
    Ticks = counters:new(1, []),
    {Reactor, Port} = start(#{
        begin_tick => fun() ->
            ok = counters:add(Ticks, 1, 1),
            due
        end,
        tick => fun(_Socket, State = #{tell := Pid}) ->
            Pid ! called,
            {sleep, 20, State}
        end
    }, [], #{tick => 5}),
    Before = counters:get(Ticks, 1),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 100)],
    [told(init) || _ <- Peers],
    [await_called() || _ <- Peers],
    Begun = counters:get(Ticks, 1),
    wait_until(fun() -> counters:get(Ticks, 1) >= Begun + 60 end),
    Called = flush_called(length(Peers)),
    ?assert(Called >= 2 * length(Peers)),
    %% Each is called at its first tick, and then at every twentieth.
    ?assert(Called =< length(Peers) * ((counters:get(Ticks, 1) - Before) div 20 + 1)),
    stop(Reactor).

a_sleeper_is_woken(_Config) ->
    {Reactor, Port} = start(#{
        tick => fun(_Socket, State = #{tell := Pid}) ->
            Pid ! called,
            {sleep, 1000000, State}
        end,
        data => fun(Socket, Data, State) ->
            %% Two calls have the effect of one.
            ok = weir_reactor:tick_soon(Socket),
            ok = weir_reactor:tick_soon(Socket),
            {send, Data, State}
        end
    }, [], #{tick => 20}),
    Peer = connect_raw(Port),
    await_called(),
    exchange(Peer, "wake up"),
    await_called(),
    _ = sys:get_state(Reactor),
    ?assertEqual(0, flush_called(0)),
    %% Outside the reactor it does nothing.
    {init, Socket} = told(init),
    ?assertEqual(ok, weir_reactor:tick_soon(Socket)),
    stop(Reactor).

a_tick_can_be_for_all(_Config) ->
    All = atomics:new(1, []),
    {Reactor, Port} = start(#{
        begin_tick => fun() -> element(1 + atomics:get(All, 1), {due, all, neither}) end,
        tick => fun(_Socket, State = #{tell := Pid}) ->
            Pid ! called,
            {sleep, 1000000, State}
        end
    }, [], #{tick => 5}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 10)],
    [await_called() || _ <- Peers],
    ok = atomics:put(All, 1, 1),
    [await_called() || _ <- Peers, _ <- [first, second]],
    %% An invalid result is reported and treated as `all'.
    ?assertMatch([_ | _], reports(fun() ->
        ok = atomics:put(All, 1, 2),
        [await_called() || _ <- Peers, _ <- lists:seq(1, 10)]
    end)),
    stop(Reactor).

await_called() ->
    receive
        called -> ok
    after patience() -> ct:fail(not_called)
    end.

flush_called(Called) ->
    receive
        called -> flush_called(Called + 1)
    after 0 -> Called
    end.

a_long_callback_is_named(_Config) ->
    {Reactor, Port} = start(#{data => fun(_Socket, Data, State) ->
        timer:sleep(20),
        {send, Data, State}
    end}, [], #{long_callback_ms => 10}),
    Peer = connect_raw(Port),
    Reports = reports(fun() ->
        exchange(Peer, "slow"),
        exchange(Peer, "slow again")
    end),
    ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, "handle_data") =/= nomatch]),
    stop(Reactor).
