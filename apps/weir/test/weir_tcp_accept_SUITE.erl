%% gen_tcp:accept/1,2 and the options that an accepted socket inherits.
-module(weir_tcp_accept_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, connect_raw/1, connect_raw/2, wait_for_queued/2, keep/1, async/1, await/1, assert_waits/1, kill/1, pid/1,
    reset/1, socket_pair/2
]).
-import(weir_test_wait, [
    patience/0, messages_of/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, timed/1,
    wait_until/1
]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

cases() ->
    [
        waits_for_a_connection,
        takes_queued_connections,
        takes_a_queued_connection_with_timeout_zero,
        times_out,
        timeout_loses_no_connection,
        every_acceptor_gets_one,
        acceptors_of_different_patience,
        many_connections_few_acceptors,
        killed_acceptor_loses_no_connection,
        killed_acceptor_is_no_longer_accepting,
        on_a_closed_listener,
        listener_closed_while_waiting,
        listener_closed_with_queued_connections,
        accepted_outlive_the_listener,
        on_something_that_does_not_listen,
        with_a_wrong_timeout,
        by_any_process,
        acceptor_owns_what_it_accepts,
        data_sent_before_passive,
        data_sent_before_active,
        peer_that_is_gone_already,
        peer_that_has_reset_already,
        addresses,
        options_are_inherited,
        options_set_on_the_listener_later_are_inherited,
        counts_are_inherited_and_separate
    ].

accept(Listener) ->
    keep(gen_tcp:accept(Listener)).

accept(Listener, Timeout) ->
    keep(gen_tcp:accept(Listener, Timeout)).

%% Both ends of the same connection.
assert_connected(Socket, Peer) ->
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)),
    ?assertEqual(inet:peername(Peer), inet:sockname(Socket)).

waits_for_a_connection(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    assert_waits(Acceptor),
    Peer = connect_raw(Port),
    {ok, Socket} = await(Acceptor),
    assert_connected(Socket, Peer).

takes_queued_connections(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 16}]),
    Peers = [
        begin
            Peer = connect_raw(Port),
            wait_for_queued(Listener, Number),
            Peer
        end
     || Number <- lists:seq(1, 10)
    ],
    Sockets = [
        begin
            {ok, Socket} = accept(Listener),
            Socket
        end
     || _ <- Peers
    ],
    lists:zipwith(fun assert_connected/2, Sockets, Peers),
    ?assertEqual({error, timeout}, accept(Listener, 0)).

takes_a_queued_connection_with_timeout_zero(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    ?assertEqual({error, timeout}, accept(Listener, 0)),
    Peer = connect_raw(Port),
    wait_for_queued(Listener, 1),
    {ok, Socket} = accept(Listener, 0),
    assert_connected(Socket, Peer).

times_out(Config) ->
    {Listener, _Port} = listen(Config, []),
    {Elapsed, Result} = timed(fun() -> accept(Listener, 60) end),
    ?assertEqual({error, timeout}, Result),
    ?assert(Elapsed >= 59),
    ?assertEqual({error, timeout}, accept(Listener, 1)),
    ?assertEqual({error, timeout}, accept(Listener, 0)),
    assert_no_message().

timeout_loses_no_connection(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    [?assertEqual({error, timeout}, accept(Listener, 5)) || _ <- lists:seq(1, 5)],
    Peer = connect_raw(Port),
    {ok, Socket} = accept(Listener, patience()),
    assert_connected(Socket, Peer),
    ?assertEqual({error, timeout}, accept(Listener, 5)).

every_acceptor_gets_one(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Acceptors = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 8)],
    _ = [assert_waits(Acceptor) || Acceptor <- [hd(Acceptors), lists:last(Acceptors)]],
    Peers = [connect_raw(Port) || _ <- Acceptors],
    Sockets = [
        begin
            {ok, Socket} = await(Acceptor),
            Socket
        end
     || Acceptor <- Acceptors
    ],
    ?assertEqual(
        lists:sort([inet:sockname(Peer) || Peer <- Peers]),
        lists:sort([inet:peername(Socket) || Socket <- Sockets])
    ).

acceptors_of_different_patience(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Patient = async(fun() -> gen_tcp:accept(Listener) end),
    assert_waits(Patient),
    Impatient = async(fun() -> gen_tcp:accept(Listener, 30) end),
    Last = async(fun() -> gen_tcp:accept(Listener, 2 * patience()) end),
    ?assertEqual({error, timeout}, await(Impatient)),
    assert_waits(Last),
    assert_waits(Patient),
    Peers = [connect_raw(Port), connect_raw(Port)],
    {ok, First} = await(Patient),
    {ok, Second} = await(Last),
    ?assertEqual(
        lists:sort([inet:sockname(Peer) || Peer <- Peers]),
        lists:sort([inet:peername(First), inet:peername(Second)])
    ).

many_connections_few_acceptors(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 128}]),
    Acceptors = [
        async(fun() ->
            [
                begin
                    {ok, Socket} = gen_tcp:accept(Listener),
                    {ok, Name} = inet:peername(Socket),
                    ok = gen_tcp:close(Socket),
                    Name
                end
             || _ <- lists:seq(1, 25)
            ]
        end)
     || _ <- lists:seq(1, 4)
    ],
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 100)],
    Names = [
        begin
            {ok, Name} = inet:sockname(Peer),
            Name
        end
     || Peer <- Peers
    ],
    ?assertEqual(
        lists:sort(Names), lists:sort(lists:append([await(Acceptor) || Acceptor <- Acceptors]))
    ).

killed_acceptor_loses_no_connection(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Killed = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 3)],
    _ = [assert_waits(Acceptor) || Acceptor <- Killed],
    _ = [ok = kill(Acceptor) || Acceptor <- Killed],
    Peer = connect_raw(Port),
    {ok, Socket} = accept(Listener, patience()),
    assert_connected(Socket, Peer).

killed_acceptor_is_no_longer_accepting(Config) ->
    {Listener, _Port} = listen(Config, []),
    IsAccepting = fun() -> lists:member(accepting, maps:get(states, inet:info(Listener))) end,
    ?assertNot(IsAccepting()),
    Killed = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 2)],
    ok = wait_until(IsAccepting),
    _ = [ok = kill(Acceptor) || Acceptor <- Killed],
    ok = wait_until(fun() -> not IsAccepting() end).

on_a_closed_listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    ok = gen_tcp:close(Listener),
    ?assertEqual({error, closed}, gen_tcp:accept(Listener)),
    ?assertEqual({error, closed}, gen_tcp:accept(Listener, 100)),
    ?assertEqual({error, closed}, gen_tcp:accept(Listener, 0)).

listener_closed_while_waiting(Config) ->
    {Listener, _Port} = listen(Config, []),
    Acceptors = [
        async(fun() -> gen_tcp:accept(Listener, Timeout) end)
     || Timeout <- [infinity, 20000, infinity]
    ],
    _ = [assert_waits(Acceptor) || Acceptor <- Acceptors],
    ok = gen_tcp:close(Listener),
    [?assertEqual({error, closed}, await(Acceptor)) || Acceptor <- Acceptors].

listener_closed_with_queued_connections(Config) ->
    {Listener, Port} = listen(Config, []),
    Peers = [connect_raw(Port, [{show_econnreset, true}]) || _ <- [1, 2, 3]],
    ok = gen_tcp:close(Listener),
    [?assertEqual({error, econnreset}, gen_tcp:recv(Peer, 0, patience())) || Peer <- Peers].

accepted_outlive_the_listener(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    {ok, Socket} = accept(Listener),
    ok = gen_tcp:close(Listener),
    ok = gen_tcp:send(Peer, <<"there">>),
    ?assertEqual(<<"there">>, recv_exactly(Socket, 5)),
    ok = gen_tcp:send(Socket, <<"back">>),
    ?assertEqual(<<"back">>, recv_exactly(Peer, 4)).

on_something_that_does_not_listen(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({error, einval}, gen_tcp:accept(Socket, 100)),
    ?assertEqual({error, einval}, gen_tcp:accept(Socket)).

with_a_wrong_timeout(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    [?assertError(_, gen_tcp:accept(Listener, Timeout)) || Timeout <- [foo, 1.0, "10"]],
    Peer = connect_raw(Port),
    {ok, Socket} = accept(Listener, patience()),
    assert_connected(Socket, Peer).

by_any_process(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    {ok, Socket} = await(async(fun() -> gen_tcp:accept(Listener) end)),
    assert_connected(Socket, Peer).

acceptor_owns_what_it_accepts(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, true}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    Peer = connect_raw(Port),
    {ok, Socket} = await(Acceptor),
    ?assertEqual({error, not_owner}, gen_tcp:controlling_process(Socket, self())),
    ok = gen_tcp:send(Peer, <<"yours">>),
    ?assertEqual([{tcp, Socket, <<"yours">>}], messages_of(pid(Acceptor))),
    assert_no_message(),
    ok = kill(Acceptor),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

data_sent_before_passive(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"early">>),
    {ok, Socket} = accept(Listener),
    ?assertEqual({ok, <<"early">>}, gen_tcp:recv(Socket, 5, patience())).

data_sent_before_active(Config) ->
    lists:foreach(
        fun(Active) ->
            {Listener, Port} = listen(Config, [binary, {active, Active}]),
            Peer = connect_raw(Port),
            ok = gen_tcp:send(Peer, <<"early">>),
            {ok, Socket} = accept(Listener),
            ?assertEqual({tcp, Socket, <<"early">>}, next_message())
        end,
        [true, once, 5]
    ).

peer_that_is_gone_already(Config) ->
    {Passive, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"hello">>),
    ok = gen_tcp:close(Peer),
    {ok, Socket} = accept(Passive),
    ?assertEqual({<<"hello">>, closed}, recv_all(Socket)),
    {Active, OtherPort} = listen(Config, [binary, {active, true}]),
    Other = connect_raw(OtherPort),
    ok = gen_tcp:send(Other, <<"hello">>),
    ok = gen_tcp:close(Other),
    {ok, Second} = accept(Active),
    ?assertEqual({tcp, Second, <<"hello">>}, next_message()),
    ?assertEqual({tcp_closed, Second}, next_message()).

peer_that_has_reset_already(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {show_econnreset, true}]),
    Gone = connect_raw(Port),
    wait_for_queued(Listener, 1),
    ok = reset(Gone),
    {ok, Socket} = accept(Listener, patience()),
    ?waitEqual({error, enotconn}, inet:peername(Socket)),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Socket, 0, patience())),
    Peer = connect_raw(Port),
    {ok, Second} = accept(Listener, patience()),
    assert_connected(Second, Peer).

addresses(Config) ->
    {Listener, Port} = listen(Config, []),
    Peer = connect_raw(Port),
    {ok, Socket} = accept(Listener),
    assert_connected(Socket, Peer),
    ?assertEqual({ok, {{127, 0, 0, 1}, Port}}, inet:sockname(Socket)),
    ?assertEqual({ok, Port}, inet:port(Socket)).

options_are_inherited(Config) ->
    Options = [
        {active, once},
        {mode, binary},
        {nodelay, true},
        {keepalive, true},
        {reuseaddr, true},
        {linger, {true, 3}},
        {buffer, 7777},
        {packet, 0},
        {send_timeout, 123},
        {send_timeout_close, true},
        {high_watermark, 55555},
        {low_watermark, 444},
        {exit_on_close, false},
        {show_econnreset, true}
    ],
    {Listener, Port} = listen(Config, [{recbuf, 20000}, {sndbuf, 30000} | Options]),
    _ = connect_raw(Port),
    {ok, Socket} = accept(Listener),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Socket, Names)),
    ?assertEqual({ok, Options}, inet:getopts(Listener, Names)),
    ?assertEqual({ok, [{recbuf, 40000}, {sndbuf, 60000}]}, inet:getopts(Socket, [recbuf, sndbuf])).

options_set_on_the_listener_later_are_inherited(Config) ->
    {Listener, Port} = listen(Config, [list, {active, true}]),
    Later = [
        {active, false},
        {mode, binary},
        {nodelay, true},
        {buffer, 8888},
        {keepalive, true},
        {send_timeout, 77},
        {exit_on_close, false}
    ],
    _ = connect_raw(Port),
    ok = inet:setopts(Listener, Later),
    {ok, Socket} = accept(Listener),
    ?assertEqual({ok, Later}, inet:getopts(Socket, [Name || {Name, _} <- Later])),
    ok = inet:setopts(Socket, [{buffer, 5}, list]),
    ?assertEqual({ok, [{buffer, 8888}, {mode, binary}]}, inet:getopts(Listener, [buffer, mode])).

counts_are_inherited_and_separate(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, 2}]),
    lists:foreach(
        fun(_) ->
            Peer = connect_raw(Port),
            {ok, Socket} = accept(Listener),
            ok = gen_tcp:send(Peer, <<"one">>),
            ?assertEqual({tcp, Socket, <<"one">>}, next_message()),
            ok = gen_tcp:send(Peer, <<"two">>),
            ?assertEqual({tcp, Socket, <<"two">>}, next_message()),
            ?assertEqual({tcp_passive, Socket}, next_message()),
            ?assertEqual({ok, [{active, 2}]}, inet:getopts(Listener, [active]))
        end,
        [first, second]
    ).
