%% What a reactor does for its connections, from the side of stock gen_tcp sockets.
-module(weir_reactor_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, connect_raw/2, async/1, await/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [start/1, start/2, start/3, stop/1, kill_reactor/1, told/1, told/2, told_of/2]).
-import(reactor_probe, [recv_all/1, exchange/2, reports/1, send_apart/2]).

-include("reactor_suite.hrl").
suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, data},
        {group, flow}].

groups() ->
    [
        {data, [], [
            what_comes_goes_to_the_callback,
            urgent_data_stops_nothing,
            many_connections,
            room_for_events_is_given_back,
            a_stream_is_the_same_on_the_way_back,
            packets_are_delivered_one_by_one,
            lines_are_delivered_one_by_one,
            http_is_parsed,
            every_form_of_iodata_is_sent,
            states_are_kept_for_each_connection,
            undefined_is_a_state,
            passive_connections_are_not_read,
            a_connection_for_one_request_is_in_no_epoll
        ]},
        {flow, [], [
            a_slow_reader_is_not_read,
            a_reader_that_never_reads_is_closed,
            nothing_is_writable_after_the_end,
            writable_is_told,
            others_send_too,
            a_callback_that_relays_its_own_connection
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

urgent_data_stops_nothing(_Config) ->
    {Reactor, Port} = start(#{}),
    weir_test_peer:with_urgent_peer(Port, fun(Peer) ->
        ok = weir_test_peer:say_urgently(Peer),
        ?assertEqual({ok, <<"abcefg">>}, socket:recv(Peer, 6, patience()))
    end),
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

%% Its request has arrived before it is accepted, so the connection need not be polled. One that stays is registered
%% after its first reply.
a_connection_for_one_request_is_in_no_epoll(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun(Socket, Data, State) ->
        Self ! {is_registered, is_registered(Socket)},
        case Data of
            <<"last">> -> {close, Data, State};
            _ -> {send, Data, State}
        end
    end}),
    Ask = fun(Bytes) ->
        ok = sys:suspend(Reactor),
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, Bytes),
        ok = sys:resume(Reactor),
        Peer
    end,
    ?assertEqual(<<"last">>, recv_all(Ask("last"))),
    ?assertEqual({is_registered, false}, told(is_registered)),
    Stays = Ask("first"),
    ?assertEqual(<<"first">>, recv_exactly(Stays, 5)),
    ?assertEqual({is_registered, false}, told(is_registered)),
    exchange(Stays, "second"),
    ?assertEqual({is_registered, true}, told(is_registered)),
    stop(Reactor).

%% Linux lists the entries of an epoll with their data.
is_registered({'$inet', _, Handle}) ->
    Entry = lists:flatten(io_lib:format("data: ~16.16b ", [Handle])),
    {ok, Descriptors} = file:list_dir("/proc/self/fdinfo"),
    lists:any(fun(Descriptor) ->
        case file:read_file(filename:join("/proc/self/fdinfo", Descriptor)) of
            {ok, Text} -> string:find(Text, Entry) =/= nomatch;
            {error, _} -> false
        end
    end, Descriptors).

%% Silent connections need no memory for events; after a second of silence their memory is freed.
room_for_events_is_given_back(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 1100)],
    All = fun() ->
        [ok = gen_tcp:send(Peer, <<1:512>>) || Peer <- Peers],
        [?assertEqual(<<1:512>>, recv_exactly(Peer, 64)) || Peer <- Peers]
    end,
    Room = fun() ->
        {garbage_collection, Settings} = process_info(Reactor, garbage_collection),
        proplists:get_value(min_heap_size, Settings)
    end,
    wait_until(fun() -> length(weir:sockets()) > 1100 end),
    Silent = Room(),
    %% Memory of the first may be freed before the last has sent.
    Speaking = fun() -> All(), Room() > Silent end,
    wait_until(Speaking),
    wait_until(fun() -> Room() =:= Silent end),
    wait_until(Speaking),
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
    _ = send_apart(Peer, pieces(Wire, 7001)),
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
    {Reactor, Port} = start(#{data => fun reactor_probe:tell_only/3}, [{packet, http_bin}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
    ?assertEqual({http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}, element(3, told(data))),
    ?assertMatch({http_header, _, 'Host', _, <<"here">>}, element(3, told(data))),
    ?assertEqual(http_eoh, element(3, told(data))),
    stop(Reactor).

every_form_of_iodata_is_sent(_Config) ->
    Large = rand:bytes(100000),
    Forms = [
        <<"binary">>,
        [<<"a">>, <<"b">>],
        "string",
        [[1, [2]], <<"nested">> | <<"improper">>],
        <<>>,
        [],
        [[], <<>>],
        [Large, Large],
        [Large | Large],
        lists:duplicate(200, <<"many">>),
        binary:part(Large, 17, 60000)
    ],
    {Reactor, Port} = start(#{data => fun(_Socket, <<N>>, State) -> {send, lists:nth(N, Forms), State} end}, [
        {packet, raw},
        {buffer, 1}
    ]),
    Peer = connect_raw(Port),
    lists:foreach(
        fun(N) ->
            ok = gen_tcp:send(Peer, <<N>>),
            Expected = iolist_to_binary(lists:nth(N, Forms)),
            %% After an empty form something else is sent.
            ok = gen_tcp:send(Peer, <<1>>),
            Both = <<Expected/binary, "binary">>,
            ?assertEqual({N, Both}, {N, recv_exactly(Peer, byte_size(Both))})
        end,
        lists:seq(1, length(Forms))
    ),
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
    {Reactor, Port} = start(#{data => fun reactor_probe:tell_only/3}),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = inet:setopts(Socket, [{active, false}]),
    ok = gen_tcp:send(Peer, "later"),
    {error, einval} = gen_tcp:recv(Socket, 0),
    %% Later data on another connection is delivered.
    ok = gen_tcp:send(connect_raw(Port), "other"),
    {init, Other} = told(init),
    ?assertEqual({data, Other, <<"other">>}, told(data)),
    _ = sys:get_state(Reactor),
    weir_test_wait:assert_no_message(),
    ok = inet:setopts(Socket, [{active, true}]),
    ?assertEqual({data, Socket, <<"later">>}, told(data)),
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
    [ok = gen_tcp:send(Peer, <<4:32, Request:32>>) || Request <- lists:seq(1, N)],
    %% The peer does not read, so the reactor stops reading requests.
    wait_until(fun() ->
        {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
        Pending > 0
    end),
    %% The reactor had time to read them: it has served another connection that many times.
    Other = connect_raw(Port),
    {init, OtherSocket} = told(init),
    lists:foreach(fun(_) ->
        ok = gen_tcp:send(Other, <<4:32, 0:32>>),
        _ = recv_exactly(Other, 65540),
        _ = told(data, OtherSocket)
    end, lists:seq(1, 100)),
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    ?assert(Pending < 1024 * 1024),
    Read = length([1 || {data, _, _} <- element(2, process_info(self(), messages))]),
    ?assert(Read < N),
    _ = recv_exactly(Peer, N * 65540),
    {writable, Socket} = told_of(writable, Socket),
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

%% A reactor that waits for room is only told that the connection has ended.
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
        %% Closed by the callback with bytes that its peer never reads, and closed by the peer.
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

%% The connection stays with the reactor, which has a state for it.
a_callback_that_relays_its_own_connection(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {ip, {127, 0, 0, 1}}]),
    {ok, Server} = inet:port(Listener),
    Relay = fun(Socket, <<"relay">>, State) ->
        Relayed = weir:relay(Socket, {connect, {{127, 0, 0, 1}, Server}, patience()}),
        ?assertEqual({error, {Socket, reactor}}, Relayed),
        {send, <<"refused">>, State}
    end,
    {Reactor, Port} = start(#{data => Relay}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"relay">>),
    ?assertEqual(<<"refused">>, recv_exactly(Peer, 7)),
    ok = gen_tcp:close(Peer),
    {terminated, _, _} = told(terminated),
    ok = gen_tcp:close(Listener),
    stop(Reactor).
