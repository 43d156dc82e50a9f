%% Connections that leave a reactor: for a process, or for a relay.
-module(weir_reactor_leaving_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, accept_raw/1, keep/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [
    start/1, start/2, stop/1, kill_reactor/1, told/1, told/2, recv_all/1, exchange/2, send_apart/2
]).

-include("reactor_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, to_a_process},
        {group, to_a_relay}
    ].

groups() ->
    [
        {to_a_process, [], [
            handoff_keeps_all_bytes_in_order,
            handoff_with_an_explicit_rest,
            handoff_of_packets,
            handoff_after_a_send,
            handoff_from_init,
            handoff_to_a_dead_process_closes,
            handoff_of_terms_closes,
            handoff_to_a_server_of_http
        ]},
        {to_a_relay, [], [
            relay_to_a_socket_of_the_reactors_process,
            relay_to_another_connection,
            relay_of_packets,
            relay_with_a_prefix,
            relay_while_data_flies,
            relay_outlives_the_reactor,
            relay_to_a_socket_of_others_leaves_that_alone,
            relay_to_a_connection_that_is_not_made_yet,
            relay_with_itself_closes
        ]}
    ].

%%% To a process.

handoff_keeps_all_bytes_in_order(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {handoff, Self, State} end}),
    Bytes = rand:bytes(3000000),
    Peer = connect_raw(Port),
    Sender = async(fun() -> ok = gen_tcp:send(Peer, Bytes), gen_tcp:shutdown(Peer, write) end),
    Socket = handed_off(),
    ?assertEqual({handoff, Self}, told(terminated, Socket)),
    ?assertEqual({error, not_reactor}, weir_reactor:send(Socket, late)),
    ?assert(Bytes =:= recv_all(Socket)),
    ok = await(Sender),
    ok = gen_tcp:close(Socket),
    stop(Reactor).

handed_off() ->
    receive
        {weir_reactor, handoff, Socket} -> Socket
    after patience() -> ct:fail(not_handed_off)
    end.

handoff_with_an_explicit_rest(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun(_Socket, <<_:4/binary, Rest/binary>>, State) ->
        {handoff, Self, Rest, State}
    end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "GET body"),
    Socket = handed_off(),
    ?assertEqual({ok, <<"body">>}, gen_tcp:recv(Socket, 4, patience())),
    ok = gen_tcp:send(Socket, "reply"),
    ?assertEqual(<<"reply">>, recv_exactly(Peer, 5)),
    %% The connection survives the reactor.
    kill_reactor(Reactor),
    ok = gen_tcp:send(Peer, "more"),
    ?assertEqual({ok, <<"more">>}, gen_tcp:recv(Socket, 4, patience())),
    ok = gen_tcp:close(Socket).

handoff_of_packets(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"3">>, State) -> {handoff, Self, State};
        (_Socket, _Data, State) -> {ok, State}
    end}, [{packet, 4}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, [<<1:32, Digit>> || Digit <- "123456789"]),
    Socket = handed_off(),
    Digits = [element(2, {ok, _} = gen_tcp:recv(Socket, 0, patience())) || _ <- "3456789"],
    ?assertEqual(<<"3456789">>, iolist_to_binary(Digits)),
    ok = gen_tcp:close(Socket),
    stop(Reactor).

handoff_after_a_send(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"go\n">>, State) -> {handoff, Self, <<>>, State};
        (_Socket, Data, State) -> {send, Data, State}
    end}, [{packet, line}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "a\nb\ngo\nrest\n"),
    Socket = handed_off(),
    ok = gen_tcp:send(Socket, "c\n"),
    ?assertEqual(<<"a\nb\nc\n">>, recv_exactly(Peer, 6)),
    ?assertEqual({ok, <<"rest\n">>}, gen_tcp:recv(Socket, 0, patience())),
    ok = gen_tcp:close(Socket),
    stop(Reactor).

handoff_to_a_dead_process_closes(_Config) ->
    Dead = async(fun() -> ok end),
    kill(Dead),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {handoff, pid(Dead), State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "go"),
    ?assertEqual(<<>>, recv_all(Peer)),
    {terminated, _, {error, _}} = told(terminated),
    stop(Reactor).

handoff_from_init(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{init => fun(_Socket, State) -> {handoff, Self, State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "early"),
    Socket = handed_off(),
    ?assertEqual({ok, <<"early">>}, gen_tcp:recv(Socket, 5, patience())),
    ?assertEqual({handoff, Self}, told(terminated, Socket)),
    ok = gen_tcp:close(Socket),
    stop(Reactor).

%% HTTP packets cannot be put back, so the connection is closed.
handoff_of_terms_closes(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {handoff, Self, State} end}, [{packet, http_bin}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "GET / HTTP/1.1\r\n\r\n"),
    ?assertEqual(<<>>, recv_all(Peer)),
    ?assertMatch({terminated, _, {error, {error, {handoff, badarg}, _}}}, told(terminated)),
    stop(Reactor).

%% HTTP clients are recognised by their first bytes and served by ordinary gen_tcp code, which gets partly read
%% headers complete.
handoff_to_a_server_of_http(_Config) ->
    Server = spawn_link(fun serve_http/0),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"GET", _/binary>>, State) -> {handoff, Server, State};
        (_Socket, Data, State) -> {send, Data, State}
    end}),
    Other = connect_raw(Port),
    exchange(Other, "not of HTTP"),
    Browser = connect_raw(Port),
    Pieces = ["GET /first HT", "TP/1.1\r\nHost: he", "re\r\n\r\nGET /second HTTP/1.1\r\n", "Host: here\r\n", "\r\n"],
    _ = send_apart(Browser, Pieces),
    ?assertEqual(<<"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n/first">>, recv_exactly(Browser, 44)),
    ?assertEqual(<<"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n/second">>, recv_exactly(Browser, 45)),
    exchange(Other, "still served"),
    ok = gen_tcp:close(Browser),
    wait_until(fun() -> not is_process_alive(Server) end),
    stop(Reactor).

serve_http() ->
    receive
        {weir_reactor, handoff, Socket} ->
            ok = inet:setopts(Socket, [{packet, http_bin}, {active, once}]),
            answer_requests(Socket, none)
    end.

answer_requests(Socket, Path) ->
    receive
        {http, Socket, {http_request, 'GET', {abs_path, New}, {1, 1}}} ->
            next_part(Socket, New);
        {http, Socket, {http_header, _, 'Host', _, <<"here">>}} ->
            next_part(Socket, Path);
        {http, Socket, http_eoh} ->
            Length = integer_to_binary(byte_size(Path)),
            ok = gen_tcp:send(Socket, ["HTTP/1.1 200 OK\r\nContent-Length: ", Length, "\r\n\r\n", Path]),
            next_part(Socket, none);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.

next_part(Socket, Path) ->
    ok = inet:setopts(Socket, [{active, once}]),
    answer_requests(Socket, Path).

%%% To a relay.

%% A stock server to which a callback connects.
server() ->
    {ok, Listener} = keep(gen_tcp:listen(0, [binary, {active, false}, {ip, ?LOOPBACK}])),
    {ok, Port} = inet:port(Listener),
    {Listener, Port}.

connect_weir(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{tcp_module, weir_tcp}, binary, {active, false}]),
    Socket.

%% Checks both directions of a relay, and its end.
assert_joined(Peer, Other) ->
    Bytes = rand:bytes(1000000),
    [There, Back] = [async(fun() -> gen_tcp:send(End, Bytes) end) || End <- [Peer, Other]],
    ?assert(Bytes =:= recv_exactly(Other, byte_size(Bytes))),
    ?assert(Bytes =:= recv_exactly(Peer, byte_size(Bytes))),
    [ok = await(Each) || Each <- [There, Back]],
    ok = gen_tcp:close(Peer),
    ?assertEqual(<<>>, recv_all(Other)),
    ok = gen_tcp:close(Other).

relay_to_a_socket_of_the_reactors_process(_Config) ->
    {Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun(_Socket, <<"CONNECT ", _/binary>>, State) ->
        {relay, connect_weir(ServerPort), State}
    end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "CONNECT me"),
    Other = accept_raw(Listener),
    ?assertEqual(<<"CONNECT me">>, recv_exactly(Other, 10)),
    {init, Socket} = told(init),
    ?assertMatch({relay, _}, told(terminated, Socket)),
    assert_joined(Peer, Other),
    ?assertEqual(#{}, sys:get_state(Reactor)),
    stop(Reactor).

%% Both connections belong to the reactor, which forgets them. Unsent and unread data of both goes with them.
relay_to_another_connection(_Config) ->
    {Reactor, Port} = start(#{
        data => fun(_Socket, _Data, State = #{other := Other}) -> {relay, Other, State} end,
        info => fun({other, Other}, State) -> {send, <<"met ">>, State#{other => Other}} end
    }),
    [Peer, Other] = [connect_raw(Port), connect_raw(Port)],
    Sockets = [A, B] = [element(2, told(init)), element(2, told(init))],
    ok = weir_reactor:send(A, {other, B}),
    ok = weir_reactor:send(B, {other, A}),
    [?assertEqual(<<"met ">>, recv_exactly(Each, 4)) || Each <- [Peer, Other]],
    ok = gen_tcp:send(Peer, "hello"),
    ?assertEqual(<<"hello">>, recv_exactly(Other, 5)),
    ?assertEqual([{relay, B}, {relay, A}], [told(terminated, Socket) || Socket <- Sockets]),
    assert_joined(Peer, Other),
    stop(Reactor).

%% Delivered packets get their frames back on the stream.
relay_of_packets(_Config) ->
    {Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"3">>, State) -> {relay, connect_weir(ServerPort), State};
        (_Socket, _Data, State) -> {ok, State}
    end}, [{packet, 4}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, [<<1:32, Digit>> || Digit <- "123456789"]),
    Other = accept_raw(Listener),
    Expected = <<<<1:32, Digit>> || <<Digit>> <= <<"3456789">>>>,
    ?assertEqual(Expected, recv_exactly(Other, byte_size(Expected))),
    assert_joined(Peer, Other),
    stop(Reactor).

relay_with_a_prefix(_Config) ->
    {Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun(_Socket, <<"secret ", Rest/binary>>, State) ->
        {relay, connect_weir(ServerPort), <<"known ", Rest/binary>>, State}
    end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "secret rest"),
    Other = accept_raw(Listener),
    ?assertEqual(<<"known rest">>, recv_exactly(Other, 10)),
    assert_joined(Peer, Other),
    stop(Reactor).

relay_while_data_flies(_Config) ->
    {Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, _Data, State = #{seen := 5}) -> {relay, connect_weir(ServerPort), State};
        (_Socket, Data, State) -> {send, Data, State#{seen => maps:get(seen, State, 0) + 1}}
    end}),
    Bytes = rand:bytes(2000000),
    Peer = connect_raw(Port),
    Sender = async(fun() -> ok = gen_tcp:send(Peer, Bytes), gen_tcp:shutdown(Peer, write) end),
    Other = accept_raw(Listener),
    %% The beginning was echoed, and the rest was relayed.
    Relayed = recv_all(Other),
    ok = gen_tcp:close(Other),
    Echoed = recv_all(Peer),
    ok = await(Sender),
    ?assert(Bytes =:= <<Echoed/binary, Relayed/binary>>),
    stop(Reactor).

relay_outlives_the_reactor(_Config) ->
    {Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {relay, connect_weir(ServerPort), State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "go"),
    Other = accept_raw(Listener),
    ?assertEqual(<<"go">>, recv_exactly(Other, 2)),
    kill_reactor(Reactor),
    assert_joined(Peer, Other).

relay_to_a_socket_of_others_leaves_that_alone(_Config) ->
    {Listener, ServerPort} = server(),
    Ours = connect_weir(ServerPort),
    Other = accept_raw(Listener),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {relay, Ours, State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "go"),
    ?assertEqual(<<>>, recv_all(Peer)),
    ?assertMatch({terminated, _, {error, {error, {relay, {Ours, not_owner}}, _}}}, told(terminated)),
    ok = gen_tcp:send(Ours, "still there"),
    ?assertEqual(<<"still there">>, recv_exactly(Other, 11)),
    ok = gen_tcp:close(Ours),
    stop(Reactor).

relay_to_a_connection_that_is_not_made_yet(_Config) ->
    {_Listener, ServerPort} = server(),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) ->
        {ok, Other} = weir_reactor:connect(self(), ?LOOPBACK, ServerPort, [{args, State}]),
        {relay, Other, State}
    end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "go"),
    ?assertEqual(<<>>, recv_all(Peer)),
    {terminated, _, {error, {error, {relay, {_, enotconn}}, _}}} = told(terminated),
    wait_until(fun() -> sys:get_state(Reactor) =:= #{} end),
    stop(Reactor).

relay_with_itself_closes(_Config) ->
    {Reactor, Port} = start(#{data => fun(Socket, _Data, State) -> {relay, Socket, State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, "go"),
    ?assertEqual(<<>>, recv_all(Peer)),
    {terminated, _, {error, {error, {relay, _}, _}}} = told(terminated),
    stop(Reactor).
