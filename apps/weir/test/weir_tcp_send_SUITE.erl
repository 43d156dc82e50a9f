%% gen_tcp:send/2: what it takes, when it waits, and how long.
-module(weir_tcp_send_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    socket_pair/2, socket_pair/3, async/1, await/1, assert_waits/1, wait_until/1, kill/1,
    next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, reset/1, timed/1
]).

suite() ->
    [{timetrap, {seconds, 30}}].

all() ->
    [{group, inet}, {group, weir}].

groups() ->
    weir_test_peer:by_backend(cases()).

init_per_group(Group, Config) ->
    weir_test_peer:init_group(Group, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

cases() ->
    [
        every_shape_of_iodata,
        many_small_parts,
        nothing,
        what_is_not_iodata,
        many_sends_keep_their_order,
        both_directions_at_once,
        large_with_a_slow_reader,
        by_another_process,
        concurrent_sends_stay_whole,
        concurrent_sends_that_wait_stay_whole,
        first_send_is_taken_whole,
        waits_above_the_high_watermark,
        goes_on_below_the_low_watermark,
        does_not_wait_below_the_high_watermark,
        others_are_not_delayed_by_a_reader_that_never_reads,
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

%% A socket whose kernel buffers are small, so that output soon has to wait.
narrow_pair(Config, Options) ->
    socket_pair(Config, [binary, {active, false}, {sndbuf, 4096} | Options], [{recbuf, 4096}]).

pending(Socket) ->
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    Pending.

every_shape_of_iodata(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Large = binary:copy(<<"large">>, 50000),
    Sub = binary:part(Large, 3, 1000),
    lists:foreach(
        fun(Data) ->
            ?assertEqual(ok, gen_tcp:send(Socket, Data)),
            ?assert(iolist_to_binary(Data) =:= recv_exactly(Peer, iolist_size(Data)))
        end,
        [
            "string",
            <<"binary">>,
            Sub,
            [0, 255, $a],
            ["nested", [[["list"], <<"s">>], []], $!],
            [<<"improper">> | <<" tail">>],
            [$a, [$b | <<"c">>] | <<"d">>],
            ["small", Large, "small", Sub, [Large | Sub]],
            [[], [[]], <<>>, "x", <<>>]
        ]
    ).

many_small_parts(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    %% More parts than one writev takes; each too long to be copied together.
    Data = [binary:copy(<<N:32>>, 50) || N <- lists:seq(1, 3000)],
    Sender = async(fun() -> gen_tcp:send(Socket, Data) end),
    ?assert(iolist_to_binary(Data) =:= recv_exactly(Peer, iolist_size(Data))),
    ?assertEqual(ok, await(Sender)).

nothing(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [?assertEqual(ok, gen_tcp:send(Socket, Nothing)) || Nothing <- [[], <<>>, [[], <<>>]]],
    ok = gen_tcp:send(Socket, <<"something">>),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<"something">>, closed}, recv_all(Peer)).

%% Stock OTP 29 says ok to a bare number, and sends nothing.
numbers(Config) ->
    case proplists:get_value(backend, Config) of
        [] -> [];
        _ -> [1]
    end.

what_is_not_iodata(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, gen_tcp:send(Socket, Bad))
     || Bad <- [a, [a], [256], [-1], [1 | 2], {}, <<1:3>>, ["good", {bad}] | numbers(Config)]
    ],
    %% None of it went out, and the socket is as before.
    ok = gen_tcp:send(Socket, <<"good">>),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<"good">>, closed}, recv_all(Peer)).

many_sends_keep_their_order(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Stream = <<<<N:32>> || N <- lists:seq(1, 20000)>>,
    Sender = async(fun() ->
        lists:foreach(fun(N) -> ok = gen_tcp:send(Socket, <<N:32>>) end, lists:seq(1, 20000)),
        gen_tcp:shutdown(Socket, write)
    end),
    ?assert({Stream, closed} =:= recv_all(Peer)),
    ?assertEqual(ok, await(Sender)).

both_directions_at_once(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Out = rand:bytes(1000000),
    In = rand:bytes(1000000),
    Senders = [
        async(fun() -> gen_tcp:send(From, Data) end)
     || {From, Data} <- [{Socket, Out}, {Peer, In}]
    ],
    Reader = async(fun() -> recv_exactly(Socket, byte_size(In)) end),
    ?assert(Out =:= recv_exactly(Peer, byte_size(Out))),
    ?assert(In =:= await(Reader)),
    ?assertEqual([ok, ok], [await(Sender) || Sender <- Senders]).

large_with_a_slow_reader(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Data = rand:bytes(10 * 1024 * 1024),
    Sender = async(fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:shutdown(Socket, write)
    end),
    ?assert(Data =:= read_slowly(Peer, [])),
    ?assertEqual(ok, await(Sender)).

%% Pauses now and then, for the buffers in between to fill up.
read_slowly(Peer, Data) ->
    case recv_parts(Peer, 100, Data) of
        {more, More} ->
            receive
                never_sent -> ok
            after 1 -> read_slowly(Peer, More)
            end;
        {closed, All} ->
            iolist_to_binary(lists:reverse(All))
    end.

recv_parts(_Peer, 0, Data) ->
    {more, Data};
recv_parts(Peer, Count, Data) ->
    case gen_tcp:recv(Peer, 0, 10000) of
        {ok, Part} -> recv_parts(Peer, Count - 1, [Part | Data]);
        {error, closed} -> {closed, Data}
    end.

by_another_process(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ?assertEqual(ok, await(async(fun() -> gen_tcp:send(Socket, <<"from afar">>) end))),
    ?assertEqual(<<"from afar">>, recv_exactly(Peer, 9)),
    ok = gen_tcp:send(Peer, <<"reply">>),
    ?assertEqual({tcp, Socket, <<"reply">>}, next_message()).

concurrent_sends_stay_whole(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    assert_concurrent_sends_stay_whole(Socket, Peer, 8, 200, 100).

concurrent_sends_that_wait_stay_whole(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    assert_concurrent_sends_stay_whole(Socket, Peer, 4, 20, 15000).

%% Each send is one byte, the sender's, so many times: the stream must be made
%% of whole ones, each sender's in its order.
assert_concurrent_sends_stay_whole(Socket, Peer, Senders, Sends, Size) ->
    Running = [
        async(fun() ->
            lists:foreach(
                fun(N) ->
                    ok = gen_tcp:send(Socket, [<<Sender, N>>, binary:copy(<<Sender>>, Size - 2)])
                end,
                lists:seq(1, Sends)
            )
        end)
     || Sender <- lists:seq(1, Senders)
    ],
    Stream = recv_exactly(Peer, Senders * Sends * Size),
    Parts = [
        begin
            <<Sender, N, Rest/binary>> = Part,
            ?assert(Rest =:= binary:copy(<<Sender>>, Size - 2)),
            {Sender, N}
        end
     || <<Part:Size/binary>> <= Stream
    ],
    [
        ?assertEqual(lists:seq(1, Sends), [N || {From, N} <- Parts, From =:= Sender])
     || Sender <- lists:seq(1, Senders)
    ],
    _ = [ok = await(Sender) || Sender <- Running],
    ok.

%% With an empty queue a send never waits, however large it is.
first_send_is_taken_whole(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{high_watermark, 1000}, {low_watermark, 500}]),
    Data = rand:bytes(500000),
    Sender = async(fun() -> gen_tcp:send(Socket, Data) end),
    ?assertEqual(ok, await(Sender)),
    ?assert(pending(Socket) > 1000),
    ?assert(Data =:= recv_exactly(Peer, byte_size(Data))),
    wait_until(fun() -> pending(Socket) =:= 0 end).

waits_above_the_high_watermark(Config) ->
    High = 20000,
    Size = 1000,
    {Socket, Peer} = narrow_pair(Config, [{high_watermark, High}, {low_watermark, 5000}]),
    Data = rand:bytes(Size),
    Count = 500,
    Sender = async(fun() ->
        [ok = gen_tcp:send(Socket, Data) || _ <- lists:seq(1, Count)],
        ok
    end),
    assert_waits(Sender),
    Pending = pending(Socket),
    ?assert(Pending > 0),
    ?assert(Pending =< High + Size),
    ?assert(binary:copy(Data, Count) =:= recv_exactly(Peer, Size * Count)),
    ?assertEqual(ok, await(Sender)).

goes_on_below_the_low_watermark(Config) ->
    Low = 3000,
    {Socket, Peer} = narrow_pair(Config, [{high_watermark, 10000}, {low_watermark, Low}]),
    ok = gen_tcp:send(Socket, binary:copy(<<1>>, 100000)),
    Sender = async(fun() ->
        ok = gen_tcp:send(Socket, binary:copy(<<2>>, 50000)),
        pending(Socket)
    end),
    assert_waits(Sender),
    Reader = async(fun() -> recv_exactly(Peer, 150000) end),
    ?assert(await(Sender) =< Low),
    ?assert(
        <<(binary:copy(<<1>>, 100000))/binary, (binary:copy(<<2>>, 50000))/binary>> =:=
            await(Reader)
    ).

does_not_wait_below_the_high_watermark(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{high_watermark, 1000000}]),
    Data = rand:bytes(10000),
    Sender = async(fun() -> [ok = gen_tcp:send(Socket, Data) || _ <- lists:seq(1, 50)] end),
    _ = await(Sender),
    ?assert(pending(Socket) > 0),
    ?assert(binary:copy(Data, 50) =:= recv_exactly(Peer, 500000)).

others_are_not_delayed_by_a_reader_that_never_reads(Config) ->
    {Stuck, _Silent} = narrow_pair(Config, []),
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Sender = async(fun() -> send_until_error(Stuck, rand:bytes(100000), 0) end),
    assert_waits(Sender),
    [
        begin
            ok = gen_tcp:send(Socket, <<N:32>>),
            ?assertEqual(<<N:32>>, recv_exactly(Peer, 4))
        end
     || N <- lists:seq(1, 100)
    ],
    assert_waits(Sender).

send_until_error(Socket, Data, Sent) ->
    case gen_tcp:send(Socket, Data) of
        ok -> send_until_error(Socket, Data, Sent + 1);
        {error, _} = Error -> {Sent, Error}
    end.

send_timeout(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 60}]),
    Data = rand:bytes(100000),
    {Elapsed, {Sent, Error}} = timed(fun() -> send_until_error(Socket, Data, 0) end),
    ?assert(Elapsed >= 59),
    Accepted = [binary:copy(Data, Sent), accepted(Data, Error)],
    %% The socket lives on and still refuses.
    {Again, Second} = timed(fun() -> gen_tcp:send(Socket, <<"again">>) end),
    ?assert(Again >= 59),
    Expected = iolist_to_binary([Accepted, accepted(<<"again">>, Second)]),
    Reader = async(fun() -> recv_all(Peer) end),
    wait_until(fun() -> pending(Socket) =:= 0 end),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"recovered">>)),
    ok = gen_tcp:close(Socket),
    ?assert({<<Expected/binary, "recovered">>, closed} =:= await(Reader)).

%% How much of a send that timed out will arrive: all of it stays queued, or
%% what the error does not give back.
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
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 10000}, {send_timeout_close, true}]),
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
    %% What was queued is dropped: the peer gets the beginning of the stream.
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
    %% OTP 25 says enotconn, OTP 29 says closed.
    {error, Refused} = gen_tcp:send(Socket, <<"x">>),
    ?assert(lists:member(Refused, [enotconn, closed])),
    %% Nobody is told until a mode is set.
    assert_no_message(),
    ?assertEqual(ok, inet:setopts(Socket, [{active, true}])),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    {_, closed} = recv_all(Peer).

after_the_peer_closed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Peer),
    %% The first ones may go out before the answer to them is known.
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
            ?assertEqual({error, Reason}, gen_tcp:recv(Socket, 0, 1000))
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
    %% Stock has no port to send to any more, if the sender comes late.
    ?assert(lists:member(Reason, [{error, closed} | [{error, einval} || proplists:get_value(backend, Config) =:= []]])),
    %% All that was confirmed arrives, in order, and nothing that was not sent.
    ?assert(byte_size(Received) >= Sent * byte_size(Data)),
    ?assert(Received =:= binary:part(binary:copy(Data, Sent + 1), 0, byte_size(Received))).

%% What a sender had queued when it died goes out whole, before what others
%% send after it.
killed_while_waiting(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Data = rand:bytes(100000),
    ok = gen_tcp:send(Socket, Data),
    Sender = async(fun() -> gen_tcp:send(Socket, Data) end),
    assert_waits(Sender),
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

%% The send is taken, the next one hears how it went.
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
    %% Whatever it says: the reset may have come first.
    _ = gen_tcp:send(Socket, <<"x">>),
    ?assertEqual({tcp_closed, Socket}, next_message()),
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
