%% file:sendfile/2,5: which bytes, in which order with other output, and how it ends when the socket, the file or a
%% process ends first.
-module(weir_tcp_sendfile_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, assert_waits/1]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2]).
-import(weir_tcp_send_test, [narrow_pair/2]).
-import(weir_tcp_sendfile_test, [
    assert_refused/2, contents/1, file/2, is_weir/1, open/2, open_with/2, pair/1, send_whole/2, stuck/2
]).
-import(weir_tcp_test, [assert_told_closed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        empty_file,
        small_file,
        by_name,
        large_file,
        large_file_to_a_slow_reader,
        ranges,
        beyond_the_end,
        numbers_out_of_range,
        position_stays,
        file_that_gives_lists,
        file_with_a_cache,
        file_that_is_compressed,
        file_in_memory,
        file_of_a_server,
        closed_file,
        file_that_cannot_be_read,
        directory,
        chunk_size_is_not_seen,
        active_socket,
        packet_length_is_not_added,
        statistics,
        behind_what_is_queued,
        before_what_others_send,
        others_wait_behind_it,
        others_time_out_behind_it,
        options_meanwhile
    ].

pending(Socket) ->
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    Pending.

empty_file(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<>>),
    ?assertEqual({ok, 0}, send_whole(File, Socket)),
    ok = file:close(File),
    ok = gen_tcp:send(Socket, <<"after">>),
    ?assertEqual(<<"after">>, recv_exactly(Peer, 5)).

small_file(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<"a small file">>),
    ?assertEqual({ok, 12}, send_whole(File, Socket)),
    ok = file:close(File),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<"a small file">>, closed}, recv_all(Peer)).

by_name(Config) ->
    {Socket, Peer} = pair(Config),
    ?assertEqual({ok, 7}, file:sendfile(file(Config, <<"by name">>), Socket)),
    ?assertEqual({error, enoent}, file:sendfile("/nonexistent/file", Socket)),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<"by name">>, closed}, recv_all(Peer)).

large_file(Config) ->
    {Socket, Peer} = pair(Config),
    Contents = contents(12 * 1024 * 1024 + 3),
    File = open(Config, Contents),
    Reader = async(fun() -> recv_all(Peer) end),
    ?assertEqual({ok, byte_size(Contents)}, send_whole(File, Socket)),
    ok = file:close(File),
    ok = gen_tcp:close(Socket),
    ?assert({Contents, closed} =:= await(Reader)).

%% Data that the reader has not taken stays in the file, not in memory.
large_file_to_a_slow_reader(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(3 * 1024 * 1024),
    Name = file(Config, Contents),
    Before = erlang:memory(binary),
    Sender = stuck(Socket, Name),
    ?assertEqual(0, pending(Socket)),
    ?assert(erlang:memory(binary) - Before < 1024 * 1024),
    Reader = async(fun() -> read_slowly(Peer, byte_size(Contents), []) end),
    ?assertEqual({ok, byte_size(Contents)}, await(Sender)),
    ?assert(Contents =:= await(Reader)).

read_slowly(_Peer, 0, Parts) ->
    iolist_to_binary(lists:reverse(Parts));
read_slowly(Peer, Size, Parts) ->
    receive
        never_sent -> ok
    after 1 -> ok
    end,
    Length = min(Size, 100000),
    read_slowly(Peer, Size - Length, [recv_exactly(Peer, Length) | Parts]).

ranges(Config) ->
    {Socket, Peer} = pair(Config),
    Contents = contents(100000),
    File = open(Config, Contents),
    lists:foreach(
        fun({Offset, Bytes, Sent}) ->
            ?assertEqual({ok, Sent}, file:sendfile(File, Socket, Offset, Bytes, [])),
            ?assert(binary:part(Contents, Offset, Sent) =:= recv_exactly(Peer, Sent))
        end,
        [
            {0, 1, 1},
            {0, 100000, 100000},
            {99999, 1, 1},
            {99999, 0, 1},
            {50000, 0, 50000},
            {12345, 54321, 54321},
            {99000, 5000, 1000},
            {10, 1 bsl 62, 99990}
        ]
    ),
    ok = file:close(File).

beyond_the_end(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<"short">>),
    [
        ?assertEqual({ok, 0}, file:sendfile(File, Socket, Offset, Bytes, []))
     || Offset <- [5, 6, 1 bsl 32], Bytes <- [0, 1, 1000]
    ],
    ok = file:close(File),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

numbers_out_of_range(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<"unharmed">>),
    lists:foreach(
        fun({Offset, Bytes, Reason}) ->
            ?assertEqual({error, Reason}, file:sendfile(File, Socket, Offset, Bytes, []))
        end,
        [
            {-1, 0, einval},
            {0, -1, einval},
            {-1, -1, einval},
            {1 bsl 63, 1, einval},
            {0, 1 bsl 63, einval},
            {1 bsl 70, 0, einval},
            {a, 0, badarg},
            {0, 1.0, badarg}
        ]
    ),
    ?assertEqual({ok, 8}, send_whole(File, Socket)),
    ok = file:close(File),
    ?assertEqual(<<"unharmed">>, recv_exactly(Peer, 8)).

position_stays(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<"0123456789">>),
    {ok, <<"012">>} = file:read(File, 3),
    ?assertEqual({ok, 5}, file:sendfile(File, Socket, 5, 0, [])),
    ?assertEqual({ok, <<"345">>}, file:read(File, 3)),
    ok = file:close(File),
    ?assertEqual(<<"56789">>, recv_exactly(Peer, 5)).

file_that_gives_lists(Config) ->
    {Socket, Peer} = pair(Config),
    File = open_with(file(Config, <<"lists">>), [read, raw]),
    ?assertEqual({ok, 4}, file:sendfile(File, Socket, 1, 0, [])),
    ok = file:close(File),
    ?assertEqual(<<"ists">>, recv_exactly(Peer, 4)).

file_with_a_cache(Config) ->
    lists:foreach(
        fun(Modes) ->
            {Socket, Peer} = pair(Config),
            File = open_with(file(Config, <<"cached">>), [raw, binary | Modes]),
            ?assertEqual({ok, 6}, send_whole(File, Socket)),
            ok = file:close(File),
            ?assertEqual(<<"cached">>, recv_exactly(Peer, 6))
        end,
        [[read, read_ahead], [read, {read_ahead, 100}], [read, write, {delayed_write, 1000, 1000}]]
    ).

file_that_is_compressed(Config) ->
    {Socket, Peer} = pair(Config),
    Contents = binary:copy(<<"plain ">>, 10000),
    File = open_with(file(Config, zlib:gzip(Contents)), [read, raw, binary, compressed]),
    ?assertEqual({ok, 60000}, send_whole(File, Socket)),
    ?assertEqual({ok, 6}, file:sendfile(File, Socket, 6, 6, [])),
    ok = file:close(File),
    ?assert(<<Contents/binary, "plain ">> =:= recv_exactly(Peer, 60006)).

%% Stock crashes: these files do not support sendfile.
file_in_memory(Config) ->
    {Socket, Peer} = pair(Config),
    File = open_with(<<"in memory">>, [ram, read, binary]),
    case is_weir(Config) of
        true ->
            ?assertEqual({ok, 9}, send_whole(File, Socket)),
            ?assertEqual(<<"in memory">>, recv_exactly(Peer, 9));
        false ->
            ?assertError(undef, send_whole(File, Socket))
    end,
    ok = file:close(File).

file_of_a_server(Config) ->
    {Socket, _Peer} = pair(Config),
    File = open_with(file(Config, <<"served">>), [read, binary]),
    ?assertEqual({error, badarg}, send_whole(File, Socket)),
    ok = file:close(File).

closed_file(Config) ->
    {Socket, Peer} = pair(Config),
    File = open(Config, <<"closed">>),
    ok = file:close(File),
    ?assertEqual({error, badarg}, send_whole(File, Socket)),
    ok = gen_tcp:send(Socket, <<"unharmed">>),
    ?assertEqual(<<"unharmed">>, recv_exactly(Peer, 8)).

%% An error of the file is one of the connection.
file_that_cannot_be_read(Config) ->
    {Socket, Peer} = pair(Config),
    File = open_with(file(Config, <<"write only">>), [append, raw, binary]),
    ?assertEqual({error, ebadf}, send_whole(File, Socket)),
    ok = file:close(File),
    assert_refused(Config, Socket),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

directory(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, true}]),
    File = open_with(proplists:get_value(priv_dir, Config), [read, raw, directory]),
    ?assertEqual({error, einval}, send_whole(File, Socket)),
    ok = file:close(File),
    assert_told_closed(Socket),
    assert_no_message(),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

chunk_size_is_not_seen(Config) ->
    {Socket, Peer} = pair(Config),
    Contents = contents(50000),
    File = open(Config, Contents),
    ?assertEqual({ok, 50000}, file:sendfile(File, Socket, 0, 0, [{chunk_size, 7}])),
    ?assertEqual({ok, 5}, file:sendfile(File, Socket, 0, 5, [{use_threads, true}])),
    ?assertEqual({error, badarg}, file:sendfile(File, Socket, 0, 0, [{chunk_size, a}])),
    ok = file:close(File),
    ?assert(Contents =:= recv_exactly(Peer, 50000)).

active_socket(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:send(Peer, <<"request">>),
            ?assertEqual({tcp, Socket, <<"request">>}, next_message()),
            ?assertEqual({ok, 5}, file:sendfile(file(Config, <<"reply">>), Socket)),
            ?assertEqual(<<"reply">>, recv_exactly(Peer, 5)),
            assert_no_message()
        end,
        [true, once, 3]
    ).

packet_length_is_not_added(Config) ->
    {Socket, Peer} = pair(Config),
    ok = inet:setopts(Socket, [{packet, 4}]),
    ?assertEqual({ok, 5}, file:sendfile(file(Config, <<"plain">>), Socket)),
    ok = gen_tcp:send(Socket, <<"framed">>),
    ?assertEqual(<<"plain", 6:32, "framed">>, recv_exactly(Peer, 15)).

%% Bytes of files are not counted as sent.
statistics(Config) ->
    {Socket, Peer} = pair(Config),
    ok = gen_tcp:send(Socket, <<"12345">>),
    ?assertEqual({ok, 10}, file:sendfile(file(Config, <<"0123456789">>), Socket)),
    _ = recv_exactly(Peer, 15),
    ?assertEqual({ok, [{send_oct, 5}, {send_cnt, 1}]}, inet:getstat(Socket, [send_oct, send_cnt])).

behind_what_is_queued(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Data = rand:bytes(500000),
    Contents = contents(500000),
    ok = gen_tcp:send(Socket, Data),
    ?assert(pending(Socket) > 0),
    Reader = async(fun() -> recv_exactly(Peer, 1000000) end),
    ?assertEqual({ok, 500000}, file:sendfile(file(Config, Contents), Socket)),
    ?assertEqual(0, pending(Socket)),
    ?assert(<<Data/binary, Contents/binary>> =:= await(Reader)).

before_what_others_send(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    %% Below the high watermark, so it is queued.
    ?assertEqual(ok, gen_tcp:send(Socket, <<"after">>)),
    ?assertEqual(5, pending(Socket)),
    ?assert(<<Contents/binary, "after">> =:= recv_exactly(Peer, 500005)),
    ?assertEqual({ok, 500000}, await(Sender)),
    wait_until(fun() -> pending(Socket) =:= 0 end).

others_wait_behind_it(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Data = rand:bytes(100000),
    Sender = stuck(Socket, file(Config, Contents)),
    Other = async(fun() -> [gen_tcp:send(Socket, Data), gen_tcp:send(Socket, <<"last">>)] end),
    assert_waits(Other),
    ?assert(<<Contents/binary, Data/binary, "last">> =:= recv_exactly(Peer, 600004)),
    ?assertEqual({ok, 500000}, await(Sender)),
    ?assertEqual([ok, ok], await(Other)).

others_time_out_behind_it(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 50}]),
    Contents = contents(500000),
    Data = rand:bytes(100000),
    Sender = stuck(Socket, file(Config, Contents)),
    ?assertEqual({error, timeout}, gen_tcp:send(Socket, Data)),
    ?assert(<<Contents/binary, Data/binary>> =:= recv_exactly(Peer, 600000)),
    ?assertEqual({ok, 500000}, await(Sender)).

options_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    ?assertEqual(ok, inet:setopts(Socket, [{nodelay, true}, {high_watermark, 20000}])),
    ?assertMatch({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    ?assertMatch({ok, _}, inet:peername(Socket)),
    %% The other direction still works.
    ok = gen_tcp:send(Peer, <<"request">>),
    ?assertEqual({ok, <<"request">>}, gen_tcp:recv(Socket, 7, patience())),
    assert_waits(Sender),
    ?assert(Contents =:= recv_exactly(Peer, 500000)),
    ?assertEqual({ok, 500000}, await(Sender)).
