%% What a reactor does for its connections, each case seen by stock gen_tcp sockets at the other end.
-module(weir_reactor_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, connect_raw/2, async/1, await/1, kill/1, pid/1, wait_until/1, recv_exactly/2,
    socket_pair/2, reset/1]).
-import(reactor_probe, [start/1, start/2, start/3, listen/1, client/1, stop/1, kill_reactor/1, told/1, told/2,
    told_of/2, recv_all/1, exchange/2, reports/1]).

-include("reactor_suite.hrl").

suite() ->
    [{timetrap, {seconds, 90}}].

all() ->
    [
        {group, data},
        {group, ends},
        {group, messages},
        {group, flow},
        {group, connecting},
        {group, process},
        {group, partial_sends}
    ].

groups() ->
    [
        {data, [], [
            what_comes_goes_to_the_callback,
            many_connections,
            room_for_events_is_given_back,
            a_stream_is_the_same_on_the_way_back,
            packets_are_delivered_one_by_one,
            lines_are_delivered_one_by_one,
            http_is_parsed,
            every_form_of_iodata_is_sent,
            states_are_kept_for_each_connection,
            undefined_is_a_state,
            passive_connections_are_not_read
        ]},
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
        ]},
        {flow, [], [
            a_slow_reader_is_not_read,
            a_reader_that_never_reads_is_closed,
            nothing_is_writable_after_the_end,
            writable_is_told,
            others_send_too
        ]},
        {connecting, [], [
            connect_calls_init,
            connect_is_refused,
            connect_from_an_address,
            connect_from_a_callback,
            connect_errors_that_show_at_once,
            adopt_takes_what_is_unread
        ]},
        {process, [], [
            shutdown_terminates_each_connection,
            the_end_of_the_parent_is_the_end,
            sys_looks_at_the_states,
            options_are_checked,
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

%%% Data.

what_comes_goes_to_the_callback(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    exchange(Peer, <<"hello">>),
    ?assertEqual(inet:port(Peer), {ok, element(2, element(2, {ok, _} = inet:peername(Socket)))}),
    stop(Reactor).

many_connections(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 500)],
    Send = fun(Round) ->
        Numbered = lists:zip(lists:seq(1, 500), Peers),
        Bytes = fun(N) -> <<Round:32, N:32, 0:480>> end,
        lists:foreach(fun({N, Peer}) -> ok = gen_tcp:send(Peer, Bytes(N)) end, Numbered),
        lists:foreach(fun({N, Peer}) -> ?assertEqual(Bytes(N), recv_exactly(Peer, 68)) end, Numbered)
    end,
    lists:foreach(Send, lists:seq(1, 5)),
    stop(Reactor).

%% Connections that say nothing cost no room for what they might say; those that have been silent for a second, none any more.
room_for_events_is_given_back(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 2100)],
    All = fun() ->
        [ok = gen_tcp:send(Peer, <<1:512>>) || Peer <- Peers],
        [?assertEqual(<<1:512>>, recv_exactly(Peer, 64)) || Peer <- Peers]
    end,
    Room = fun() ->
        {garbage_collection, Settings} = process_info(Reactor, garbage_collection),
        proplists:get_value(min_heap_size, Settings)
    end,
    wait_until(fun() -> length(weir:sockets()) >= 2100 end),
    Silent = Room(),
    All(),
    ?assert(Room() > Silent),
    wait_until(fun() -> Room() =:= Silent end),
    All(),
    ?assert(Room() > Silent),
    stop(Reactor).

a_stream_is_the_same_on_the_way_back(_Config) ->
    {Reactor, Port} = start(#{}),
    Bytes = rand:bytes(8 * 1024 * 1024),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 4)],
    Senders = [async(fun() -> gen_tcp:send(Peer, Bytes) end) || Peer <- Peers],
    [?assert(Bytes =:= recv_exactly(Peer, byte_size(Bytes))) || Peer <- Peers],
    [ok = await(Sender) || Sender <- Senders],
    stop(Reactor).

packets_are_delivered_one_by_one(_Config) ->
    {Reactor, Port} = start(#{data => fun tell_and_echo/3}, [{packet, 2}]),
    Peer = connect_raw(Port),
    Packets = [<<"one">>, <<>>, binary:copy(<<"x">>, 40000) | [integer_to_binary(N) || N <- lists:seq(1, 100)]],
    Wire = iolist_to_binary([[<<(byte_size(Packet)):16>>, Packet] || Packet <- Packets]),
    lists:foreach(fun(Piece) -> ok = gen_tcp:send(Peer, Piece), timer:sleep(1) end, pieces(Wire, 7001)),
    ?assertEqual(Wire, recv_exactly(Peer, byte_size(Wire))),
    ?assertEqual(Packets, [element(3, told(data)) || _ <- Packets]),
    stop(Reactor).

tell_and_echo(Socket, Data, State = #{tell := Pid}) ->
    Pid ! {data, Socket, Data},
    {send, Data, State}.

pieces(Bytes, Size) when byte_size(Bytes) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    [Piece | pieces(Rest, Size)];
pieces(Bytes, _Size) ->
    [Bytes].

lines_are_delivered_one_by_one(_Config) ->
    {Reactor, Port} = start(#{data => fun tell_and_echo/3}, [{packet, line}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "a\nbc\nd"),
    ?assertEqual(<<"a\n">>, element(3, told(data))),
    ?assertEqual(<<"bc\n">>, element(3, told(data))),
    ok = gen_tcp:send(Peer, "\n"),
    ?assertEqual(<<"d\n">>, element(3, told(data))),
    stop(Reactor).

http_is_parsed(_Config) ->
    {Reactor, Port} = start(#{data => fun tell_only/3}, [{packet, http_bin}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
    ?assertEqual({http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}, element(3, told(data))),
    ?assertMatch({http_header, _, 'Host', _, <<"here">>}, element(3, told(data))),
    ?assertEqual(http_eoh, element(3, told(data))),
    stop(Reactor).

tell_only(Socket, Data, State = #{tell := Pid}) ->
    Pid ! {data, Socket, Data},
    {ok, State}.

every_form_of_iodata_is_sent(_Config) ->
    Large = rand:bytes(100000),
    Forms = [
        <<"binary">>, [<<"a">>, <<"b">>], "string", [[1, [2]], <<"nested">> | <<"improper">>], <<>>, [], [[], <<>>],
        [Large, Large], [Large | Large], lists:duplicate(200, <<"many">>), binary:part(Large, 17, 60000)
    ],
    {Reactor, Port} = start(#{data => fun(_Socket, <<N>>, State) -> {send, lists:nth(N, Forms), State} end}, [{packet, raw},
        {buffer, 1}]),
    Peer = connect_raw(Port),
    lists:foreach(fun(N) ->
        ok = gen_tcp:send(Peer, <<N>>),
        Expected = iolist_to_binary(lists:nth(N, Forms)),
        %% What is nothing is followed by something.
        ok = gen_tcp:send(Peer, <<1>>),
        Both = <<Expected/binary, "binary">>,
        ?assertEqual({N, Both}, {N, recv_exactly(Peer, byte_size(Both))})
    end, lists:seq(1, length(Forms))),
    stop(Reactor).

states_are_kept_for_each_connection(_Config) ->
    Count = fun(_Socket, _Data, State) ->
        N = maps:get(count, State, 0) + 1,
        {send, <<N>>, State#{count => N}}
    end,
    {Reactor, Port} = start(#{data => Count}),
    [A, B] = [connect_raw(Port), connect_raw(Port)],
    Ask = fun(Peer) -> ok = gen_tcp:send(Peer, "?"), <<N>> = recv_exactly(Peer, 1), N end,
    ?assertEqual([1, 2, 1, 3, 2], [Ask(Peer) || Peer <- [A, A, B, A, B]]),
    stop(Reactor).

undefined_is_a_state(_Config) ->
    {Reactor, Port} = start(#{init => fun(Socket, State) ->
        ok = weir_reactor:send(Socket, kept),
        {ok, State#{info => fun(kept, Now) -> {send, <<"!">>, Now} end}}
    end}),
    Peer = connect_raw(Port),
    <<"!">> = recv_exactly(Peer, 1),
    {init, Socket} = told(init),
    _ = sys:replace_state(Reactor, fun(_) -> undefined end),
    ?assertEqual(#{Socket => undefined}, sys:get_state(Reactor)),
    kill_reactor(Reactor).

passive_connections_are_not_read(_Config) ->
    {Reactor, Port} = start(#{data => fun tell_only/3}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = inet:setopts(Socket, [{active, false}]),
    ok = gen_tcp:send(Peer, "later"),
    {error, einval} = gen_tcp:recv(Socket, 0),
    receive
        {data, _, _} -> ct:fail(read)
    after 100 -> ok
    end,
    ok = inet:setopts(Socket, [{active, true}]),
    ?assertEqual({data, Socket, <<"later">>}, told(data)),
    stop(Reactor).

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
    after ?PATIENCE -> ct:fail(no_down)
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
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 100)],
    [told(init) || _ <- Peers],
    [await_called() || _ <- Peers],
    %% From now on each of them is called once in twenty ticks.
    Before = counters:get(Ticks, 1),
    wait_until(fun() -> counters:get(Ticks, 1) >= Before + 60 end),
    Called = flush_called(0),
    ?assert(Called >= 100),
    ?assert(Called =< 100 * ((counters:get(Ticks, 1) - Before) div 20 + 1)),
    stop(Reactor).

a_sleeper_is_woken(_Config) ->
    {Reactor, Port} = start(#{
        tick => fun(_Socket, State = #{tell := Pid}) ->
            Pid ! called,
            {sleep, 1000000, State}
        end,
        data => fun(Socket, Data, State) ->
            %% Twice is once.
            ok = weir_reactor:tick_soon(Socket),
            ok = weir_reactor:tick_soon(Socket),
            {send, Data, State}
        end
    }, [], #{tick => 20}),
    Peer = connect_raw(Port),
    await_called(),
    exchange(Peer, "wake up"),
    await_called(),
    ?assertEqual(0, flush_called(0)),
    %% Elsewhere it does nothing.
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
    %% What is no answer is reported, and taken for the one that forgets nobody.
    ?assertMatch([_ | _], reports(fun() ->
        ok = atomics:put(All, 1, 2),
        [await_called() || _ <- Peers, _ <- lists:seq(1, 10)]
    end)),
    stop(Reactor).

await_called() ->
    receive
        called -> ok
    after 10000 -> ct:fail(not_called)
    end.

flush_called(Called) ->
    receive
        called -> flush_called(Called + 1)
    after 0 -> Called
    end.

a_long_callback_is_named(_Config) ->
    {Reactor, Port} = start(#{data => fun(_Socket, Data, State) ->
        timer:sleep(50),
        {send, Data, State}
    end}, [], #{long_callback_ms => 10}),
    Peer = connect_raw(Port),
    Reports = reports(fun() ->
        exchange(Peer, "slow"),
        exchange(Peer, "slow again")
    end),
    ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, "handle_data") =/= nomatch]),
    stop(Reactor).

%%% Flow.

a_slow_reader_is_not_read(_Config) ->
    Bytes = binary:copy(<<"x">>, 65536),
    {Reactor, Port} = start(#{data => fun(Socket, Data, State = #{tell := Pid}) ->
        Pid ! {data, Socket, Data},
        {send, Bytes, State}
    end}, [{packet, 4}, {sndbuf, 65536}]),
    Peer = connect_raw(Port, [{recbuf, 65536}]),
    {init, Socket} = told(init),
    N = 400,
    Sender = async(fun() -> [ok = gen_tcp:send(Peer, <<4:32, Request:32>>) || Request <- lists:seq(1, N)], ok end),
    %% Nobody reads, so that not all of the requests are.
    wait_until(fun() ->
        {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
        Pending > 0
    end),
    timer:sleep(200),
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    ?assert(Pending < 1024 * 1024),
    Read = length([1 || {data, _, _} <- element(2, process_info(self(), messages))]),
    ?assert(Read < N),
    ok = await(Sender),
    _ = recv_exactly(Peer, N * 65540),
    ?assertEqual({writable, Socket}, told(writable)),
    ?assertEqual(N, length([told(data) || _ <- lists:seq(1, N)])),
    stop(Reactor).

a_reader_that_never_reads_is_closed(_Config) ->
    Bytes = binary:copy(<<"x">>, 65536),
    {Reactor, Port} = start(#{tick => fun(_Socket, State) -> {send, Bytes, State} end}, [],
        #{tick => 1, max_send_queue => 300000}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ?assertEqual(send_queue_full, told(closed, Socket)),
    _ = recv_all(Peer),
    stop(Reactor).

%% A reactor that waits for room hears of the end of a connection by that, and by nothing else.
nothing_is_writable_after_the_end(_Config) ->
    Bytes = binary:copy(<<"x">>, 8_000_000),
    {Reactor, Port} = start(#{
        data => fun
            (Socket, <<"fill">>, State) ->
                ok = weir:notify_writable(Socket),
                {send, Bytes, State};
            (_Socket, <<"close">>, State) ->
                {close, State}
        end
    }, [{packet, 4}, {high_watermark, 100_000_000}, {sndbuf, 65536}], #{max_send_queue => 100_000_000}),
    Fill = fun() ->
        Peer = connect_raw(Port, [{recbuf, 65536}]),
        {init, _} = told(init),
        ok = gen_tcp:send(Peer, [<<4:32>>, "fill"]),
        Peer
    end,
    Reports = reports(fun() ->
        %% Closed by the callback, with bytes that its peer never takes; and by the peer.
        Closed = Fill(),
        ok = gen_tcp:send(Closed, [<<5:32>>, "close"]),
        {terminated, _, normal} = told(terminated),
        ok = gen_tcp:close(Closed),
        Reset = Fill(),
        ok = inet:setopts(Reset, [{linger, {true, 0}}]),
        ok = gen_tcp:close(Reset),
        {terminated, _, econnreset} = told(terminated)
    end),
    ?assertEqual([], Reports),
    stop(Reactor).

writable_is_told(_Config) ->
    Fill = fun Fill(Socket) ->
        case weir:send_nowait(Socket, binary:copy(<<"x">>, 100000)) of
            {ok, 100000} -> 100000 + Fill(Socket);
            {ok, Part} -> Part
        end
    end,
    {Reactor, Port} = start(#{
        data => fun(Socket, _Data, State = #{tell := Pid}) ->
            Pid ! {filled, Fill(Socket)},
            ok = weir:notify_writable(Socket),
            {ok, State}
        end,
        writable => fun(_Socket, State) -> {send, <<"!">>, State} end
    }),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "fill"),
    {filled, N} = told(filled),
    _ = recv_exactly(Peer, N),
    ?assertEqual(<<"!">>, recv_exactly(Peer, 1)),
    stop(Reactor).

others_send_too(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    Bytes = rand:bytes(1500000),
    ok = gen_tcp:send(Socket, Bytes),
    ok = gen_tcp:send(Socket, "end"),
    ?assert(<<Bytes/binary, "end">> =:= recv_exactly(Peer, 1500003)),
    stop(Reactor).

%%% Connecting.

connect_calls_init(_Config) ->
    {Server, Port} = start(#{}),
    Client = client(#{}),
    Greet = fun(_Socket, State) -> {send, <<"greetings">>, State} end,
    Args = #{tell => self(), init => Greet, data => fun tell_only/3},
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, [{args, Args}, {nodelay, true}]),
    {init, Socket} = told_of(init, Socket),
    ?assertEqual(<<"greetings">>, told(data, Socket)),
    stop(Client),
    stop(Server).

connect_is_refused(_Config) ->
    Client = client(#{}),
    Port = weir_test_peer:free_port(),
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, []),
    ?assertEqual(econnrefused, told(not_connected, Socket)),
    ?assertEqual(#{}, sys:get_state(Client)),
    stop(Client).

connect_from_an_address(_Config) ->
    {Server, Port} = start(#{}),
    Client = client(#{data => fun tell_only/3}),
    {ok, Socket} = weir_reactor:connect(Client, ?LOOPBACK, Port, [{ip, {127, 0, 0, 77}}]),
    {init, Socket} = told_of(init, Socket),
    ?assertMatch({ok, {{127, 0, 0, 77}, _}}, inet:sockname(Socket)),
    stop(Client),
    stop(Server).

connect_from_a_callback(_Config) ->
    {Server, Port} = start(#{}),
    Self = self(),
    Client = client(#{data => fun(_Socket, _Data, State) ->
        Args = #{tell => Self, init => fun(_, Fresh) -> {send, <<"second">>, Fresh} end, data => fun tell_only/3},
        {ok, _} = weir_reactor:connect(self(), ?LOOPBACK, Port, [{args, Args}]),
        {ok, State#{data := fun tell_only/3}}
    end, init => fun(_Socket, State) -> {send, <<"first">>, State} end}),
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
    {ok, <<"un">>} = gen_tcp:recv(Socket, 2, ?PATIENCE),
    Reactor = client(#{}),
    {ok, Socket} = weir_reactor:adopt(Reactor, Socket, #{tell => self()}),
    ?assertEqual(<<"read">>, recv_exactly(Peer, 4)),
    exchange(Peer, "more"),
    stop(Reactor),
    ?assertEqual(<<>>, recv_all(Peer)).

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
    {Listen, _} = listen([]),
    ok = gen_tcp:close(Listen),
    ?assertEqual({error, closed}, Bad(#{module => reactor_probe, listen => Listen})).

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
    ?assertMatch({error, {already_started, Reactor}}, weir_reactor:start_link(#{module => reactor_probe, name => ?MODULE})),
    stop(Reactor).

%%% Partial sends, for sockets of processes.

send_nowait_takes_what_the_kernel_takes(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({ok, 5}, weir:send_nowait(Socket, ["he", <<"llo">>])),
    ?assertEqual(<<"hello">>, recv_exactly(Peer, 5)),
    Taken = fill(Socket, 0),
    ?assertEqual({ok, 0}, weir:send_nowait(Socket, "more")),
    ok = weir:notify_writable(Socket),
    ?assertEqual(Taken, byte_size(recv_exactly(Peer, Taken))),
    receive
        {weir_writable, Socket} -> ok
    after ?PATIENCE -> ct:fail(not_writable)
    end,
    ?assertEqual({ok, 4}, weir:send_nowait(Socket, "more")),
    ?assertEqual(<<"more">>, recv_exactly(Peer, 4)),
    %% It is writable already.
    ok = weir:notify_writable(Socket),
    receive
        {weir_writable, Socket} -> ok
    after ?PATIENCE -> ct:fail(not_writable)
    end.

fill(Socket, Taken) ->
    case weir:send_nowait(Socket, binary:copy(<<"x">>, 500000)) of
        {ok, 500000} -> fill(Socket, Taken + 500000);
        {ok, Part} -> Taken + Part
    end.

send_nowait_stays_behind_the_queue(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Bytes = rand:bytes(10000000),
    ok = gen_tcp:send(Socket, Bytes),
    ?assertEqual({ok, 0}, weir:send_nowait(Socket, "behind")),
    ok = weir:notify_writable(Socket),
    ?assert(Bytes =:= recv_exactly(Peer, byte_size(Bytes))),
    receive
        {weir_writable, Socket} -> ok
    after ?PATIENCE -> ct:fail(not_writable)
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
    receive
        {weir_writable, Socket} -> ok
    after ?PATIENCE -> ct:fail(not_told)
    end,
    ?assertMatch({error, _}, weir:send_nowait(Socket, "x")).
