%% Sends that end early: timeouts, closes, resets; and delayed sends.
-module(weir_tcp_send_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1, assert_waits/1, kill/1, reset/1]).
-import(weir_test_wait, [
    patience/0, wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, timed/1
]).
-import(weir_tcp_send_test, [narrow_pair/2, pending/1, send_until_error/3]).
-import(weir_tcp_test, [assert_told_closed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

cases() ->
    [
        send_timeout,
        send_timeout_of_zero,
        send_timeout_is_not_reached,
        send_timeout_can_be_set_later,
        send_timeout_close,
        send_timeout_close_active,
        after_the_peer_closed,
        waiting_when_the_peer_resets,
        waiting_when_the_peer_resets_active,
        waiting_when_the_socket_is_closed,
        killed_while_waiting,
        delay_send_is_an_option,
        delayed_sends_keep_their_order,
        delayed_sends_go_out_before_the_end,
        delayed_sends_of_a_process_that_exits,
        delayed_send_waits_above_the_high_watermark,
        delayed_send_after_a_reset,
        delayed_send_after_a_reset_active,
        message_queue_watermarks,
        message_queue_watermarks_of_the_listener
    ].

send_timeout(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 60}]),
    Data = rand:bytes(100000),
    {Elapsed, {Sent, Error}} = timed(fun() -> send_until_error(Socket, Data, 0) end),
    ?assert(Elapsed >= 59),
    Accepted = [binary:copy(Data, Sent), accepted(Data, Error)],
    %% The socket stays open and still refuses.
    {Again, Second} = timed(fun() -> gen_tcp:send(Socket, <<"again">>) end),
    ?assert(Again >= 59),
    Expected = iolist_to_binary([Accepted, accepted(<<"again">>, Second)]),
    Reader = async(fun() -> recv_all(Peer) end),
    wait_until(fun() -> pending(Socket) =:= 0 end),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"recovered">>)),
    ok = gen_tcp:close(Socket),
    ?assert({<<Expected/binary, "recovered">>, closed} =:= await(Reader)).

%% The part of a send that will arrive after a timeout: all of it stays queued, or all but the rest in the error.
accepted(Data, {error, timeout}) ->
    Data;
accepted(Data, {error, {timeout, Rest}}) ->
    Accepted = byte_size(Data) - byte_size(Rest),
    ?assertEqual(Rest, binary:part(Data, Accepted, byte_size(Rest))),
    binary:part(Data, 0, Accepted).

send_timeout_of_zero(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 0}]),
    Data = rand:bytes(100000),
    {Sent, Error} = send_until_error(Socket, Data, 0),
    Expected = iolist_to_binary([binary:copy(Data, Sent), accepted(Data, Error)]),
    ?assert(Expected =:= recv_exactly(Peer, byte_size(Expected))),
    wait_until(fun() -> pending(Socket) =:= 0 end),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"recovered">>)),
    ?assertEqual(<<"recovered">>, recv_exactly(Peer, 9)).

send_timeout_is_not_reached(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 3_600_000}, {send_timeout_close, true}]),
    Data = rand:bytes(300000),
    Sender = async(fun() -> [gen_tcp:send(Socket, Data), gen_tcp:send(Socket, Data)] end),
    assert_waits(Sender),
    ?assert(<<Data/binary, Data/binary>> =:= recv_exactly(Peer, 600000)),
    ?assertEqual([ok, ok], await(Sender)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"alive">>)).

send_timeout_can_be_set_later(Config) ->
    {Socket, _Peer} = narrow_pair(Config, []),
    ok = gen_tcp:send(Socket, rand:bytes(100000)),
    ok = inet:setopts(Socket, [{send_timeout, 30}]),
    ?assertMatch({error, _}, gen_tcp:send(Socket, rand:bytes(100000))).

send_timeout_close(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 50}, {send_timeout_close, true}]),
    Data = rand:bytes(100000),
    {Sent, Error} = send_until_error(Socket, Data, 0),
    ?assertEqual({error, timeout}, Error),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0, 100)),
    ?assertEqual({error, enotconn}, inet:peername(Socket)),
    %% Queued data is dropped: the peer gets the beginning of the stream.
    {Received, closed} = recv_all(Peer),
    Stream = binary:copy(Data, Sent + 1),
    ?assert(byte_size(Received) < byte_size(Stream)),
    ?assert(Received =:= binary:part(Stream, 0, byte_size(Received))),
    assert_no_message().

send_timeout_close_active(Config) ->
    case {proplists:get_value(backend, Config), list_to_integer(erlang:system_info(otp_release))} of
        {[], Release} when Release > 25 ->
            {skip, "later releases of stock tell tcp_closed at once"};
        _ ->
            send_timeout_closes_silently(Config)
    end.

send_timeout_closes_silently(Config) ->
    {Socket, Peer} = narrow_pair(Config, [
        {active, true}, {send_timeout, 50}, {send_timeout_close, true}
    ]),
    {_Sent, {error, timeout}} = send_until_error(Socket, rand:bytes(100000), 0),
    %% OTP 25 returns enotconn, OTP 29 returns closed.
    {error, Refused} = gen_tcp:send(Socket, <<"x">>),
    ?assert(lists:member(Refused, [enotconn, closed])),
    %% No message follows until a mode is set.
    assert_no_message(),
    ?assertEqual(ok, inet:setopts(Socket, [{active, true}])),
    assert_told_closed(Socket),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    {_, closed} = recv_all(Peer).

after_the_peer_closed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    %% The first ones may succeed before the peer's answer is known.
    wait_until(fun() -> gen_tcp:send(Socket, <<"x">>) =:= {error, closed} end),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)).

waiting_when_the_peer_resets(Config) ->
    lists:foreach(
        fun({Show, Reason}) ->
            {Socket, Peer} = narrow_pair(Config, [{show_econnreset, Show}]),
            Sender = async(fun() -> send_until_error(Socket, rand:bytes(100000), 0) end),
            assert_waits(Sender),
            ok = reset(Peer),
            ?assertMatch({_, {error, Reason}}, await(Sender)),
            ?assertEqual({error, Reason}, gen_tcp:recv(Socket, 0, patience()))
        end,
        [{false, closed}, {true, econnreset}]
    ).

waiting_when_the_peer_resets_active(Config) ->
    lists:foreach(
        fun({Show, Reason}) ->
            {Socket, Peer} = narrow_pair(Config, [{active, true}, {show_econnreset, Show}]),
            Sender = async(fun() -> send_until_error(Socket, rand:bytes(100000), 0) end),
            assert_waits(Sender),
            ok = reset(Peer),
            ?assertMatch({_, {error, Reason}}, await(Sender)),
            _ = [?assertEqual({tcp_error, Socket, econnreset}, next_message()) || Show],
            ?assertEqual({tcp_closed, Socket}, next_message()),
            assert_no_message()
        end,
        [{false, closed}, {true, econnreset}]
    ).

waiting_when_the_socket_is_closed(Config) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]
    ),
    Data = rand:bytes(200000),
    Sender = async(fun() -> send_until_error(Socket, Data, 0) end),
    assert_waits(Sender),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    {Received, closed} = recv_all(Peer),
    {Sent, Reason} = await(Sender),
    ?assertEqual(ok, await(Closer)),
    %% A late sender finds that stock's port is gone.
    ?assert(lists:member(Reason, [{error, closed} | [{error, einval} || proplists:get_value(backend, Config) =:= []]])),
    %% Everything that send confirmed arrives, in order, and nothing that was not sent.
    ?assert(byte_size(Received) >= Sent * byte_size(Data)),
    ?assert(Received =:= binary:part(binary:copy(Data, Sent + 1), 0, byte_size(Received))).

%% Queued data of a dead sender is sent completely, before later sends of others.
killed_while_waiting(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Data = rand:bytes(100000),
    ok = gen_tcp:send(Socket, Data),
    Sender = async(fun() -> gen_tcp:send(Socket, Data) end),
    assert_waits(Sender),
    %% The first send has given a part of its bytes to the kernel.
    wait_until(fun() -> pending(Socket) >= byte_size(Data) orelse {pending, pending(Socket)} end),
    ok = kill(Sender),
    Reader = async(fun() -> recv_all(Peer) end),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"from the owner">>)),
    ok = gen_tcp:close(Socket),
    ?assert({<<Data/binary, Data/binary, "from the owner">>, closed} =:= await(Reader)).

%% Delayed sends --------------------------------------------------------------

delay_send_is_an_option(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    ?assertEqual({ok, [{delay_send, false}]}, inet:getopts(Socket, [delay_send])),
    ?assertEqual(ok, inet:setopts(Socket, [{delay_send, true}])),
    ?assertEqual({ok, [{delay_send, true}]}, inet:getopts(Socket, [delay_send])),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{delay_send, 1}])),
    {Accepted, _} = socket_pair(Config, [{delay_send, true}]),
    ?assertEqual({ok, [{delay_send, true}]}, inet:getopts(Accepted, [delay_send])).

delayed_pair(Config, Options) ->
    socket_pair(Config, [binary, {active, false}, {delay_send, true} | Options]).

delayed_sends_keep_their_order(Config) ->
    {Socket, Peer} = delayed_pair(Config, []),
    [?assertEqual(ok, gen_tcp:send(Socket, <<N:32>>)) || N <- lists:seq(1, 1000)],
    ?assertEqual(ok, gen_tcp:send(Socket, <<>>)),
    ?assert(<<<<N:32>> || N <- lists:seq(1, 1000)>> =:= recv_exactly(Peer, 4000)),
    wait_until(fun() -> pending(Socket) =:= 0 end),
    ?assertEqual({ok, [{send_cnt, 1001}, {send_oct, 4000}]}, inet:getstat(Socket, [send_cnt, send_oct])).

delayed_sends_go_out_before_the_end(Config) ->
    lists:foreach(
        fun(End) ->
            {Socket, Peer} = delayed_pair(Config, []),
            ok = gen_tcp:send(Socket, <<"last ">>),
            ok = gen_tcp:send(Socket, <<"words">>),
            ?assertEqual(ok, End(Socket)),
            ?assertEqual({<<"last words">>, closed}, recv_all(Peer))
        end,
        [fun gen_tcp:close/1, fun(Socket) -> gen_tcp:shutdown(Socket, write) end]
    ).

delayed_sends_of_a_process_that_exits(Config) ->
    {Socket, Peer} = delayed_pair(Config, []),
    {Owner, Monitor} = spawn_monitor(fun() ->
        receive
            go -> ok = gen_tcp:send(Socket, <<"farewell">>)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    receive
        {'DOWN', Monitor, process, Owner, normal} -> ok
    end,
    ?assertEqual({<<"farewell">>, closed}, recv_all(Peer)).

delayed_send_waits_above_the_high_watermark(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{delay_send, true}]),
    Data = rand:bytes(300000),
    ?assertEqual(ok, gen_tcp:send(Socket, Data)),
    Sender = async(fun() -> gen_tcp:send(Socket, Data) end),
    assert_waits(Sender),
    ?assert(<<Data/binary, Data/binary>> =:= recv_exactly(Peer, 600000)),
    ?assertEqual(ok, await(Sender)).

%% The send is accepted; the next one returns its failure.
delayed_send_after_a_reset(Config) ->
    {Socket, Peer} = delayed_pair(Config, []),
    ok = reset(Peer),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"x">>)),
    wait_until(fun() -> inet:peername(Socket) =:= {error, enotconn} end),
    wait_until(fun() -> gen_tcp:send(Socket, <<"x">>) =:= {error, closed} end),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)).

delayed_send_after_a_reset_active(Config) ->
    {Socket, Peer} = delayed_pair(Config, [{active, true}]),
    ok = reset(Peer),
    %% Any result: the reset may have come first.
    _ = gen_tcp:send(Socket, <<"x">>),
    assert_told_closed(Socket),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    assert_no_message().

%% The watermarks of a port's message queue -----------------------------------

message_queue_watermarks(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    Values = fun() -> inet:getopts(Socket, [high_msgq_watermark, low_msgq_watermark]) end,
    ?assertEqual({ok, [{high_msgq_watermark, 8192}, {low_msgq_watermark, 4096}]}, Values()),
    lists:foreach(
        fun({Option, Result, High, Low}) ->
            ?assertEqual(Result, inet:setopts(Socket, [Option])),
            ?assertEqual({ok, [{high_msgq_watermark, High}, {low_msgq_watermark, Low}]}, Values())
        end,
        [
            {{low_msgq_watermark, 4000}, ok, 8192, 4000},
            {{high_msgq_watermark, 100}, ok, 100, 100},
            {{high_msgq_watermark, 8192}, ok, 8192, 100},
            {{low_msgq_watermark, 10000}, ok, 10000, 10000},
            {{high_msgq_watermark, 0}, {error, einval}, 10000, 10000},
            {{low_msgq_watermark, 0}, {error, einval}, 10000, 10000},
            {{low_msgq_watermark, -1}, {error, einval}, 10000, 10000},
            {{high_msgq_watermark, a}, {error, einval}, 10000, 10000},
            {{high_msgq_watermark, 1}, ok, 1, 1},
            {{low_msgq_watermark, 16#7fffffff}, ok, 16#7fffffff, 16#7fffffff},
            {{low_msgq_watermark, 5}, ok, 16#7fffffff, 5},
            {{high_msgq_watermark, 10}, ok, 10, 5},
            {{low_msgq_watermark, -7}, ok, 16#7fffffff, 16#7fffffff}
        ]
    ).

message_queue_watermarks_of_the_listener(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{high_msgq_watermark, 100}, {low_msgq_watermark, 50}]),
    ?assertEqual(
        {ok, [{high_msgq_watermark, 100}, {low_msgq_watermark, 50}]},
        inet:getopts(Socket, [high_msgq_watermark, low_msgq_watermark])
    ),
    ?assertEqual({error, einval}, weir_test_peer:listen(Config, 0, [{high_msgq_watermark, 0}])).
