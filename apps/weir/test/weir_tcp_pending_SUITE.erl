%% The end of a connection while bytes are queued: shutdown, half-close, linger, close and death of the owner.
-module(weir_tcp_pending_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, listen/2, async/1, await/1, assert_waits/1, reset/1]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2]).
-import(weir_tcp_test, [pending/2, assert_whole/2, assert_cut/2, assert_told_closed/1]).

-include("drop_in_suite.hrl").

-define(SIZE, 1000000).

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        shutdown_read_write,
        shutdown_read_write_then_write,
        shutdown_write_repeated,
        shutdown_write_while_active,
        shutdown_write_then_close,
        shutdown_write_while_somebody_waits,
        shutdown_write_then_reset,
        shutdown_write_then_reset_active,
        send_after_shutdown_write,
        send_after_shutdown_write_shown,
        send_after_shutdown_write_with_nothing_pending_shown,
        shutdown_read,
        shutdown_read_after_data,
        shutdown_read_that_is_survived,
        end_of_input_is_told_once,
        unrecv_after_the_end_of_input,
        shutdown_of_a_listener,
        shutdown_after_the_peer_closed,
        shutdown_after_a_reset,
        half_close_drops_it,
        half_close_drops_it_active,
        half_close_that_is_survived,
        half_close_then_shutdown_write,
        half_close_then_sends
    ].

shutdown_read_write(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read_write)),
    %% Reading works until then.
    ok = gen_tcp:send(Peer, <<"meanwhile">>),
    ?assertEqual({ok, <<"meanwhile">>}, gen_tcp:recv(Socket, 9, patience())),
    assert_whole(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)).

shutdown_read_write_then_write(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read_write)),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    assert_whole(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

shutdown_write_repeated(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    [?assertEqual(ok, gen_tcp:shutdown(Socket, How)) || How <- [write, read_write, write]],
    assert_whole(Peer, Data).

shutdown_write_while_active(Config) ->
    {Socket, Peer, Data} = pending(Config, [{active, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ok = gen_tcp:send(Peer, <<"meanwhile">>),
    ?assertEqual({tcp, Socket, <<"meanwhile">>}, next_message()),
    assert_whole(Peer, Data),
    assert_told_closed(Socket),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    assert_no_message().

shutdown_write_then_close(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_whole(Peer, Data),
    ?assertEqual(ok, await(Closer)).

%% A waiting send came before the shutdown, so it is sent.
shutdown_write_while_somebody_waits(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    More = rand:bytes(?SIZE),
    Sender = async(fun() -> gen_tcp:send(Socket, More) end),
    assert_waits(Sender),
    wait_until(fun() -> inet:getstat(Socket, [send_oct]) =:= {ok, [{send_oct, 2 * ?SIZE}]} end),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    assert_whole(Peer, <<Data/binary, More/binary>>),
    ?assertEqual(ok, await(Sender)).

shutdown_write_then_reset(Config) ->
    {Socket, Peer, _Data} = pending(Config, [{show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ok = reset(Peer),
    %% A recv that waits when the write fails returns the reason; the next one returns it, too.
    ?assert(lists:member(econnreset, reasons_of_recv(Socket))),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)).

reasons_of_recv(Socket) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {error, enotconn} -> [];
        {error, Reason} -> [Reason | reasons_of_recv(Socket)]
    end.

shutdown_write_then_reset_active(Config) ->
    {Socket, Peer, _Data} = pending(Config, [{active, true}, {show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ok = reset(Peer),
    ?assertEqual({tcp_error, Socket, econnreset}, next_message()),
    assert_told_closed(Socket),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

%% This is an error of the connection, and drops the queue.
send_after_shutdown_write(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0, patience())),
    assert_cut(Peer, Data).

send_after_shutdown_write_shown(Config) ->
    {Socket, Peer, Data} = pending(Config, [{show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0, patience())),
    assert_cut(Peer, Data).

%% With show_econnreset, a broken pipe counts as a reset.
send_after_shutdown_write_with_nothing_pending_shown(Config) ->
    {Passive, _} = socket_pair(Config, [binary, {active, false}, {show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Passive, write)),
    ?assertEqual({error, econnreset}, gen_tcp:send(Passive, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Passive, <<"x">>)),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Passive, 0, patience())),
    {Active, _} = socket_pair(Config, [binary, {active, true}, {show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Active, write)),
    ?assertEqual({error, econnreset}, gen_tcp:send(Active, <<"x">>)),
    ?assertEqual({tcp_error, Active, econnreset}, next_message()),
    assert_told_closed(Active),
    ?assertEqual({error, closed}, gen_tcp:send(Active, <<"x">>)).

%% The end of input closes the socket, unless `exit_on_close' is false.
shutdown_read(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    assert_cut(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

shutdown_read_after_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"before">>),
    ?assertEqual({ok, <<"be">>}, gen_tcp:recv(Socket, 2, patience())),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assertEqual({ok, <<"fore">>}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

shutdown_read_that_is_survived(Config) ->
    {Socket, Peer, Data} = pending(Config, [{exit_on_close, false}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assert(Data =:= recv_exactly(Peer, ?SIZE)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"more">>)),
    ?assertEqual(<<"more">>, recv_exactly(Peer, 4)).

%% By one message; results of recv do not count.
end_of_input_is_told_once(Config) ->
    Ends = [
        fun(Socket, _Peer) -> gen_tcp:shutdown(Socket, read) end,
        fun(_Socket, Peer) -> gen_tcp:shutdown(Peer, write) end
    ],
    lists:foreach(
        fun({End, Active}) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}, {exit_on_close, false}]),
            ?assertEqual(ok, End(Socket, Peer)),
            case Active of
                false ->
                    [?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())) || _ <- [1, 2]],
                    ?assertEqual(ok, inet:setopts(Socket, [{active, once}]));
                _ ->
                    ok
            end,
            ?assertEqual({tcp_closed, Socket}, next_message()),
            [
                ?assertEqual(ok, inet:setopts(Socket, [{active, Mode}]))
             || Mode <- [true, once, false, true, false, once]
            ],
            assert_no_message()
        end,
        [{End, Active} || End <- Ends, Active <- [true, once, 3, false]]
    ).

unrecv_after_the_end_of_input(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {exit_on_close, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual(ok, gen_tcp:unrecv(Socket, <<"back">>)),
    ?assertEqual({tcp, Socket, <<"back">>}, next_message()),
    assert_no_message().

shutdown_of_a_listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    [?assertEqual({error, enotconn}, gen_tcp:shutdown(Listener, How)) || How <- [read, write, read_write]].

shutdown_after_the_peer_closed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    wait_until(fun() -> gen_tcp:shutdown(Socket, write) =:= {error, enotconn} end),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

shutdown_after_a_reset(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = reset(Peer),
    wait_until(fun() -> gen_tcp:shutdown(Socket, write) =:= {error, enotconn} end),
    ?assertEqual({error, enotconn}, gen_tcp:shutdown(Socket, read)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

half_close_drops_it(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    assert_cut(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

half_close_drops_it_active(Config) ->
    {Socket, Peer, Data} = pending(Config, [{active, true}]),
    ok = gen_tcp:shutdown(Peer, write),
    assert_told_closed(Socket),
    assert_cut(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

half_close_that_is_survived(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer, Data} = pending(Config, [{exit_on_close, false}, {active, Active}]),
            ok = gen_tcp:shutdown(Peer, write),
            case Active of
                false -> ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience()));
                _ -> ?assertEqual({tcp_closed, Socket}, next_message())
            end,
            Closer = async(fun() -> gen_tcp:close(Socket) end),
            assert_whole(Peer, Data),
            ?assertEqual(ok, await(Closer))
        end,
        [false, true, once, 3]
    ).

half_close_then_shutdown_write(Config) ->
    {Socket, Peer, Data} = pending(Config, [{exit_on_close, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    assert_whole(Peer, Data),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

%% send first returns its own failure, and then still reports the half-close.
half_close_then_sends(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {exit_on_close, false}]),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"reply">>)),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ?assertEqual({<<"reply">>, closed}, recv_all(Peer)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)).
