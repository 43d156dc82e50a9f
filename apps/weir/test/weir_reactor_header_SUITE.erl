%% PROXY headers of reactors' connections. weir_listener_SUITE tests them for every kind of handler, and
%% weir_proxy_protocol_tests the parser.
-module(weir_reactor_header_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, reset/1, async/1, await/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [stop/1, kill_reactor/1, told/1, told/2, told_of/2, recv_all/1, send_apart/2]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("reactor_suite.hrl").

-define(HEADER, #{
    version => 2,
    command => proxy,
    transport_family => ipv4,
    transport_protocol => stream,
    src_address => {192, 0, 2, 1},
    src_port => 1,
    dest_address => {192, 0, 2, 2},
    dest_port => 2
}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, headers}
    ].

groups() ->
    [
        {headers, [], [
            init_knows_the_header,
            a_header_comes_byte_by_byte,
            what_is_behind_it_is_framed,
            init_may_choose_the_frame,
            init_may_hand_off,
            every_connection_has_its_own,
            who_says_nothing_is_closed,
            who_says_something_else_is_closed,
            the_end_in_a_header_is_no_connection,
            what_comes_of_headers_is_told,
            failures_of_a_listener_are_counted,
            ticks_and_messages_wait_for_init,
            resets_in_headers,
            killed_in_headers
        ]}
    ].

start(Args) -> start(Args, [], #{}).

%% Connections first send the port of the header. Headers have no time limit unless the options set one.
start(Args, Listen, Options) ->
    Address = fun(_Socket, State) ->
        {ok, #{src_port := Port}} = weir:proxy_header(),
        {send, <<Port:16>>, State}
    end,
    Default = #{proxy_protocol => true, handshake_timeout => infinity},
    reactor_probe:start(maps:merge(#{init => Address}, Args), Listen, maps:merge(Default, Options)).

header() -> header(1).

header(Port) -> weir_proxy_protocol:build(?HEADER#{src_port := Port}).

init_knows_the_header(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{
        init => fun(_Socket, State) -> Self ! {header, weir:proxy_header()}, {ok, State} end,
        data => fun(_Socket, Data, State) -> Self ! {later, weir:proxy_header()}, {send, Data, State} end
    }),
    Line = (maps:remove(version, ?HEADER))#{version => 1},
    lists:foreach(fun(Header) ->
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, [weir_proxy_protocol:build(Header), "hello"]),
        ?assertEqual(<<"hello">>, recv_exactly(Peer, 5)),
        ?assertEqual({header, {ok, Header}}, told(header)),
        ?assertEqual({later, undefined}, told(later))
    end, [?HEADER, Line, #{version => 2, command => local}, (?HEADER)#{alpn => <<"h2">>}]),
    stop(Reactor).

a_header_comes_byte_by_byte(_Config) ->
    {Reactor, Port} = start(#{}),
    Peer = connect_raw(Port),
    _ = send_apart(Peer, [[Byte] || <<Byte>> <= <<(header())/binary, "x">>]),
    ?assertEqual(<<1:16, "x">>, recv_exactly(Peer, 3)),
    stop(Reactor).

%% The connection's packet mode applies after the header, not to it.
what_is_behind_it_is_framed(_Config) ->
    {Reactor, Port} = start(
        #{
            init => fun(_Socket, State) -> {ok, State} end,
            data => fun(Socket, Data, State = #{tell := Pid}) ->
                Pid ! {data, Socket, Data},
                {ok, State}
            end
        },
        [{packet, 4}],
        #{}
    ),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, [header(), <<3:32, "one", 3:32, "t">>]),
    {init, Socket} = told(init),
    ?assertEqual(<<"one">>, told(data, Socket)),
    ok = gen_tcp:send(Peer, <<"wo", 0:32>>),
    ?assertEqual(<<"two">>, told(data, Socket)),
    ?assertEqual(<<>>, told(data, Socket)),
    stop(Reactor).

init_may_choose_the_frame(_Config) ->
    {Reactor, Port} = start(#{
        init => fun(Socket, State) -> ok = inet:setopts(Socket, [{packet, line}]), {ok, State} end,
        data => fun(Socket, Data, State = #{tell := Pid}) -> Pid ! {data, Socket, Data}, {ok, State} end
    }),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, [header(), "a\nb\nc"]),
    {init, Socket} = told(init),
    ?assertEqual([<<"a\n">>, <<"b\n">>], [told(data, Socket), told(data, Socket)]),
    stop(Reactor).

init_may_hand_off(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{init => fun(_Socket, State) -> {handoff, Self, State} end}),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, [header(), "for the process"]),
    receive
        {weir_reactor, handoff, Socket} ->
            ?assertEqual(<<"for the process">>, recv_exactly(Socket, 15)),
            ok = gen_tcp:close(Socket)
    end,
    stop(Reactor).

every_connection_has_its_own(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [{N, connect_raw(Port)} || N <- lists:seq(1, 100)],
    <<_/binary>> = Front = binary:part(header(), 0, 10),
    lists:foreach(fun({_, Peer}) -> ok = gen_tcp:send(Peer, Front) end, Peers),
    lists:foreach(fun({N, Peer}) ->
        <<_:10/binary, Rest/binary>> = header(N),
        ok = gen_tcp:send(Peer, [Rest, <<N:32>>])
    end, Peers),
    lists:foreach(fun({N, Peer}) -> ?assertEqual(<<N:16, N:32>>, recv_exactly(Peer, 6)) end, Peers),
    stop(Reactor).

who_says_nothing_is_closed(_Config) ->
    {Reactor, Port} = start(#{}, [], #{handshake_timeout => 100}),
    %% The header has arrived when the reactor accepts, and is read before timeouts are checked.
    ok = sys:suspend(Reactor),
    Good = connect_raw(Port),
    ok = gen_tcp:send(Good, header()),
    ok = sys:resume(Reactor),
    ?assertEqual(<<1:16>>, recv_exactly(Good, 2)),
    Silent = connect_raw(Port),
    Slow = connect_raw(Port),
    ok = gen_tcp:send(Slow, binary:part(header(), 0, 20)),
    %% The timeout is for the header only, and also expires for later connections.
    [?assertEqual(<<>>, recv_all(Peer)) || Peer <- [Silent, Slow]],
    ok = gen_tcp:send(Good, "still there"),
    ?assertEqual(<<"still there">>, recv_exactly(Good, 11)),
    ?assertEqual(1, map_size(sys:get_state(Reactor))),
    stop(Reactor).

who_says_something_else_is_closed(_Config) ->
    {Reactor, Port} = start(#{}),
    lists:foreach(fun(Wrong) ->
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, Wrong),
        ?assertEqual({Wrong, <<>>}, {Wrong, recv_all(Peer)})
    end, ["GET / HTTP/1.1\r\n", "PROXY TCP5 \r\n", binary:copy(<<"PROXY ">>, 30), "\r\n\r\n\0\r\nQUIT\n\x31\0\0\0"]),
    receive
        {init, _} -> ct:fail(begun)
    after 0 -> ok
    end,
    ?assertEqual(#{}, sys:get_state(Reactor)),
    stop(Reactor).

the_end_in_a_header_is_no_connection(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 20)],
    lists:foreach(fun(Peer) ->
        ok = gen_tcp:send(Peer, binary:part(header(), 0, rand:uniform(15))),
        ok = gen_tcp:shutdown(Peer, write),
        ?assertEqual(<<>>, recv_all(Peer))
    end, Peers),
    receive
        {Kind, _, _} -> ct:fail({told, Kind})
    after 0 -> ok
    end,
    stop(Reactor).

%% One connection for each way to fail, and one that succeeds. Failures are logged, except that a peer only closes.
what_comes_of_headers_is_told(_Config) ->
    Self = self(),
    Tell = fun(_Event, #{duration := Duration}, Metadata, _) when is_integer(Duration) -> Self ! {handshake, Metadata}
    end,
    ok = weir_event:attach(?MODULE, [weir, handshake, stop], Tell, []),
    Log = fun
        (#{level := Level, msg := {report, #{what := _, peer := Peer, reason := Reason}}}, _) ->
            Self ! {logged, Level, Peer, Reason},
            stop;
        (_, _) ->
            ignore
    end,
    ok = logger:add_primary_filter(?MODULE, {Log, []}),
    try
        Patient = start(#{}),
        _Normal = told_of_header(normal, none, fun(Peer) -> ok = gen_tcp:send(Peer, header()) end, Patient),
        told_of_header(not_proxy, warning, fun(Peer) -> ok = gen_tcp:send(Peer, "GET / HTTP/1.1\r\n\r\n") end, Patient),
        told_of_header(closed, none, fun(Peer) -> ok = gen_tcp:shutdown(Peer, write) end, Patient),
        has_counted(#{connections => 1, failed_handshakes => 2}, Patient),
        Impatient = start(#{}, [], #{handshake_timeout => 50}),
        told_of_header(timeout, warning, fun(_Peer) -> ok end, Impatient),
        has_counted(#{connections => 0, failed_handshakes => 1}, Impatient)
    after
        ok = weir_event:detach(?MODULE),
        ok = logger:remove_primary_filter(?MODULE)
    end.

has_counted(Counts, {Reactor, _Port}) ->
    ?waitEqual(Counts, maps:with(maps:keys(Counts), element(2, weir_reactor:info(Reactor)))),
    stop(Reactor).

told_of_header(Reason, Level, Act, {Reactor, Port}) ->
    Peer = connect_raw(Port),
    {ok, Address} = inet:sockname(Peer),
    ok = Act(Peer),
    receive
        {handshake, #{reason := Reason} = Metadata} ->
            ?assertEqual(
                #{name => undefined, kind => proxy, peer => Address, pid => Reactor, reason => Reason}, Metadata
            )
    after patience() -> ct:fail({not_told, Reason})
    end,
    case Level of
        none ->
            Peer;
        _ ->
            receive
                {logged, Level, Address, Reason} -> Peer
            after patience() -> ct:fail({not_logged, Reason})
            end
    end.

%% The sum over all its reactors.
failures_of_a_listener_are_counted(_Config) ->
    Options = #{ip => {127, 0, 0, 1}, proxy_protocol => true, handshake_timeout => infinity},
    {ok, _} = weir:start_listener(?MODULE, Options, reactor_probe, #{tell => self()}),
    ?assertMatch(#{failed_handshakes := 0}, weir:info(?MODULE)),
    Port = weir:get_port(?MODULE),
    lists:foreach(fun(_) ->
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, "no header at all\r\n"),
        ?assertEqual(<<>>, recv_all(Peer))
    end, lists:seq(1, 8)),
    wait_until(fun() -> maps:get(failed_handshakes, weir:info(?MODULE)) =:= 8 end),
    ok = weir:stop_listener(?MODULE).

ticks_and_messages_wait_for_init(_Config) ->
    Tick = fun(Socket, State = #{tell := Pid}) -> Pid ! {ticked, Socket}, {ok, State} end,
    {Reactor, Port} = start(#{tick => Tick}, [], #{tick => 10}),
    Peer = connect_raw(Port),
    <<First:14/binary, Rest/binary>> = header(),
    _ = send_apart(Peer, [First]),
    %% Ticks have occurred for another connection.
    Other = connect_raw(Port),
    ok = gen_tcp:send(Other, header()),
    {init, OtherSocket} = told(init),
    [{ticked, OtherSocket} = told(ticked) || _ <- lists:seq(1, 3)],
    ok = gen_tcp:send(Peer, Rest),
    {init, Socket} = told(init),
    ok = weir_reactor:send(Socket, now),
    ?assertEqual(now, told(info, Socket)),
    {ticked, Socket} = told_of(ticked, Socket),
    stop(Reactor).

resets_in_headers(_Config) ->
    {Reactor, Port} = start(#{}),
    Storm = fun() ->
        lists:foreach(fun(N) ->
            {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
            ok = gen_tcp:send(Peer, binary:part(header(), 0, N rem byte_size(header()))),
            reset(Peer)
        end, lists:seq(1, 100))
    end,
    [ok = await(Each) || Each <- [async(Storm) || _ <- lists:seq(1, 3)]],
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, header()),
    ?assertEqual(<<1:16>>, recv_exactly(Peer, 2)),
    wait_until(fun() -> map_size(sys:get_state(Reactor)) =:= 1 end),
    stop(Reactor).

killed_in_headers(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 20)],
    lists:foreach(fun(Peer) -> ok = gen_tcp:send(Peer, binary:part(header(), 0, 10)) end, Peers),
    #{} = sys:get_state(Reactor),
    kill_reactor(Reactor),
    [gen_tcp:close(Peer) || Peer <- Peers],
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).
