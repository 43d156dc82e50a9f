%% gen_tcp:send/2: accepted data, when it waits, and how long.
-module(weir_tcp_send_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, assert_waits/1]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, recv_all/1, recv_exactly/2]).
-import(weir_tcp_send_test, [narrow_pair/2, pending/1, send_until_error/3]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

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
        others_are_not_delayed_by_a_reader_that_never_reads
    ].

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
    %% More parts than one writev takes, and each too long to be copied.
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

%% Stock OTP 29 returns ok for a bare number, and sends nothing.
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
    %% Nothing was sent, and the socket is as before.
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
    Data = rand:bytes(4 * 1024 * 1024),
    Sender = async(fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:shutdown(Socket, write)
    end),
    ?assert(Data =:= read_slowly(Peer, [])),
    ?assertEqual(ok, await(Sender)).

%% Pauses at times, so that the buffers fill up.
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
    case gen_tcp:recv(Peer, 0, patience()) of
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

%% Each send consists of the sender's byte, repeated: the stream must consist of complete sends, and keep each
%% sender's order.
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

%% With an empty queue a send of any size returns at once.
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
    wait_until(fun() -> pending(Socket) > 0 end),
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
