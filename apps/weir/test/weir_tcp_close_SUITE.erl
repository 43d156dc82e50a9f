%% The end of a connection: closed by us or by the peer, half-closed, or reset.
-module(weir_tcp_close_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, socket_pair/3, listen/2, async/1, await/1, assert_waits/1]).
-import(weir_test_wait, [
    patience/0, wait_for_messages/1, messages/0, next_message/0, assert_no_message/0, recv_all/1,
    recv_exactly/2
]).
-import(weir_tcp_test, [pending/2, assert_closed/1, assert_told_closed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        close_ends_the_stream_of_the_peer,
        close_may_be_repeated,
        close_takes_back_the_notice,
        inet_close,
        calls_on_a_closed_socket,
        calls_on_a_closed_listener,
        calls_after_the_peer_closed_active,
        calls_after_the_peer_closed_passive,
        send_before_the_end_is_known,
        close_by_another_process,
        close_delivers_what_is_pending,
        close_with_linger_delivers_what_is_pending,
        close_with_linger_zero_resets,
        close_with_linger_zero_drops_what_is_pending,
        owner_exit_delivers_what_is_pending,
        half_close_ends_an_active_socket,
        half_close_is_survived_passive,
        half_close_is_survived_active,
        half_close_is_told_once_when_active_is_set,
        half_close_then_our_end,
        shutdown_write_ends_the_stream_of_the_peer,
        shutdown_write_ends_sending,
        shutdown_write_after_what_is_pending,
        shutdown_read_write,
        shutdown_read,
        shutdown_read_while_active,
        shutdown_of_something_else
    ].

close_ends_the_stream_of_the_peer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"bye">>),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    ?assertEqual({<<"bye">>, closed}, recv_all(Peer)).

close_may_be_repeated(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, true}]),
    ?assertEqual([ok, ok, ok], [gen_tcp:close(Socket) || _ <- [1, 2, 3]]),
    ?assertEqual(ok, inet:close(Socket)),
    assert_no_message().

close_takes_back_the_notice(Config) ->
    lists:foreach(
        fun(Close) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
            ok = gen_tcp:send(Peer, <<"data">>),
            wait_for_messages(1),
            ok = gen_tcp:close(Peer),
            wait_for_messages(2),
            ok = Close(Socket),
            ?assertEqual([{tcp, Socket, <<"data">>}], messages())
        end,
        [fun gen_tcp:close/1, fun inet:close/1]
    ).

inet_close(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"bye">>),
    ?assertEqual(ok, inet:close(Socket)),
    ?assertEqual({<<"bye">>, closed}, recv_all(Peer)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"more">>)).

calls_on_a_closed_socket(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, _Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:close(Socket),
            assert_closed(Socket)
        end,
        [false, true]
    ).

calls_on_a_closed_listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    ok = gen_tcp:close(Listener),
    assert_closed(Listener).

calls_after_the_peer_closed_active(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:close(Peer),
    assert_told_closed(Socket),
    assert_closed(Socket).

%% Each direction returns `closed' once. Then the socket counts as not connected, until an active mode is set, which
%% sends `tcp_closed' and closes it.
calls_after_the_peer_closed_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 1, 100)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:unrecv(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:shutdown(Socket, write)),
    ?assertEqual({error, enotconn}, inet:peername(Socket)),
    ?assertMatch({error, _}, inet:sockname(Socket)),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    assert_no_message(),
    ?assertEqual(ok, inet:setopts(Socket, [{active, once}])),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_closed(Socket).

send_before_the_end_is_known(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"still open that way">>)),
    ?assertEqual(<<"still open that way">>, recv_exactly(Peer, 19)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)).

close_by_another_process(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    ?assertEqual(ok, await(async(fun() -> gen_tcp:close(Socket) end))),
    ?assertEqual({error, closed}, await(Receiver)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

close_delivers_what_is_pending(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(closed, Reason),
    ?assert(Data =:= Received),
    ?assertEqual(ok, await(Closer)).

close_with_linger_delivers_what_is_pending(Config) ->
    %% If this takes longer than a second, close returns before (weir_tcp_pending_close_SUITE).
    {Socket, Peer, Data} = pending(Config, [{linger, {true, 1}}]),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(closed, Reason),
    ?assert(Data =:= Received),
    ?assertEqual(ok, await(Closer)).

close_with_linger_zero_resets(Config) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, {linger, {true, 0}}], [{show_econnreset, true}]
    ),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Peer, 0, patience())).

close_with_linger_zero_drops_what_is_pending(Config) ->
    {Socket, Peer, Data} = pending(Config, [{linger, {true, 0}}]),
    ok = inet:setopts(Peer, [{show_econnreset, true}]),
    %% close does not wait for the peer, which reads only after it.
    ok = gen_tcp:close(Socket),
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(econnreset, Reason),
    ?assert(byte_size(Received) < byte_size(Data)).

owner_exit_delivers_what_is_pending(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    {Owner, Monitor} = spawn_monitor(fun() -> receive go -> ok end end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    receive
        {'DOWN', Monitor, process, Owner, normal} -> ok
    end,
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(closed, Reason),
    ?assert(Data =:= Received).

half_close_ends_an_active_socket(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual({<<>>, closed}, recv_all(Peer)),
    assert_closed(Socket).

half_close_is_survived_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {exit_on_close, false}]),
    ok = gen_tcp:send(Peer, <<"request">>),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({<<"request">>, closed}, recv_all(Socket)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 5, 100)),
    ?assertMatch({ok, _}, inet:peername(Socket)),
    ?assertMatch({ok, _}, inet:sockname(Socket)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"reply ">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"and more">>)),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<"reply and more">>, closed}, recv_all(Peer)).

half_close_is_survived_active(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(
                Config, [binary, {active, Active}, {exit_on_close, false}]
            ),
            ok = gen_tcp:shutdown(Peer, write),
            ?assertEqual({tcp_closed, Socket}, next_message()),
            ?assertEqual({ok, [{active, Active}]}, inet:getopts(Socket, [active])),
            ?assertEqual({error, einval}, gen_tcp:recv(Socket, 0, 100)),
            ?assertMatch({ok, _}, inet:peername(Socket)),
            ?assertEqual(ok, gen_tcp:send(Socket, <<"reply ">>)),
            ?assertEqual(ok, gen_tcp:send(Socket, <<"and more">>)),
            assert_no_message(),
            ok = gen_tcp:close(Socket),
            ?assertEqual({<<"reply and more">>, closed}, recv_all(Peer))
        end,
        [true, once, 5]
    ).

half_close_is_told_once_when_active_is_set(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {exit_on_close, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_no_message(),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"reply">>)),
    ?assertEqual(<<"reply">>, recv_exactly(Peer, 5)).

half_close_then_our_end(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {exit_on_close, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"reply">>)),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ?assertEqual({<<"reply">>, closed}, recv_all(Peer)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"too late">>)).

shutdown_write_ends_the_stream_of_the_peer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"request">>),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ok = gen_tcp:send(Peer, <<"reply">>),
    ?assertEqual({ok, <<"reply">>}, gen_tcp:recv(Socket, 5, patience())),
    ok = inet:setopts(Peer, [{exit_on_close, false}]),
    ?assertEqual({<<"request">>, closed}, recv_all(Peer)),
    ok = gen_tcp:send(Peer, <<"more">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual({<<"more">>, closed}, recv_all(Socket)).

shutdown_write_ends_sending(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:shutdown(Socket, write),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

shutdown_write_after_what_is_pending(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(closed, Reason),
    ?assert(Data =:= Received).

shutdown_read_write(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"bye">>),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read_write)),
    ?assertEqual({<<"bye">>, closed}, recv_all(Peer)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

shutdown_read(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"still sending">>)),
    ?assertEqual(<<"still sending">>, recv_exactly(Peer, 13)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

shutdown_read_while_active(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_no_message().

shutdown_of_something_else(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [?assertError(_, gen_tcp:shutdown(Socket, How)) || How <- [both, 1, "read"]],
    ok = gen_tcp:send(Socket, <<"unharmed">>),
    ?assertEqual(<<"unharmed">>, recv_exactly(Peer, 8)).
