%% Files sent by reactors, from the side of stock gen_tcp sockets.
-module(weir_reactor_files_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, connect_raw/2, reset/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [start/1, start/2, start/3, stop/1, kill_reactor/1, told/1, told/2, recv_all/1]).
-import(reactor_files, [file_of/2, open_files/1, part/3, write/3]).

-include("reactor_suite.hrl").

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, sent}, {group, broken}, {group, leaving}].

groups() ->
    [
        {sent, [], [
            bytes_and_files_keep_their_order,
            a_slow_reader_gets_every_byte,
            files_of_a_hundred_connections,
            close_comes_after_the_file,
            files_do_not_count_as_memory,
            who_asked_is_told_when_the_file_is_gone
        ]},
        {broken, [], [
            a_reset_in_the_middle_closes_the_file,
            a_killed_reactor_leaves_no_descriptor,
            a_file_that_becomes_shorter_closes_the_connection,
            a_replaced_file_is_sent_as_it_was,
            what_is_no_part_of_a_file_is_reported,
            packets_have_no_files
        ]},
        {leaving, [], [
            a_connection_is_handed_off_behind_a_file,
            no_relay_behind_a_file
        ]}
    ].

%%% Sent.

bytes_and_files_keep_their_order(Config) ->
    {File, Bytes} = file_of(Config, 300000),
    Part = fun(Offset, Length) -> {sendfile, File, Offset, Length} end,
    Answer = fun
        ($a) -> [<<"head">>, Part(0, 300000)];
        ($b) -> [Part(10, 5), <<"-">>, ["x", [<<"y">>]], Part(20, 0), Part(299999, 1), Part(0, 1)];
        ($c) -> [<<"plain">>]
    end,
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"c">>, State) -> {send, <<"plain">>, State};
        %% On a slow machine several requests arrive together.
        (_Socket, Requests, State) -> {send, lists:flatmap(Answer, binary_to_list(Requests)), State}
    end}),
    Peer = connect_raw(Port),
    %% One after the other, and all at once: data after a file waits for it.
    Expected = #{
        <<"a">> => <<"head", Bytes/binary>>,
        <<"b">> => <<(part(Bytes, 10, 5))/binary, "-xy", (part(Bytes, 299999, 1))/binary, (part(Bytes, 0, 1))/binary>>,
        <<"c">> => <<"plain">>
    },
    lists:foreach(
        fun(Request) ->
            ok = gen_tcp:send(Peer, Request),
            ?assert(map_get(Request, Expected) =:= recv_exactly(Peer, byte_size(map_get(Request, Expected))))
        end,
        [<<"a">>, <<"b">>, <<"c">>]
    ),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 3)],
    lists:foreach(fun(One) -> [ok = gen_tcp:send(One, R) || R <- [<<"a">>, <<"c">>, <<"b">>, <<"a">>]] end, Peers),
    All = iolist_to_binary([map_get(R, Expected) || R <- [<<"a">>, <<"c">>, <<"b">>, <<"a">>]]),
    [?assert(All =:= recv_exactly(One, byte_size(All))) || One <- Peers],
    stop(Reactor).

a_slow_reader_gets_every_byte(Config) ->
    {File, Bytes} = file_of(Config, 5000000),
    Answer = fun(_Socket, _Data, State) -> {send, [<<"head">>, {sendfile, File, 0, 5000000}, <<"tail">>], State} end,
    {Reactor, Port} = start(#{data => Answer}, [{sndbuf, 65536}]),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, <<"go">>),
    %% The kernel's buffers are full; from now on there is room for a part at a time.
    wait_until(fun() -> pending(Socket) > 0 end),
    Slowly = fun
        Read(0) -> [];
        Read(Left) ->
            Some = recv_exactly(Peer, min(Left, 40000)),
            [Some | Read(Left - byte_size(Some))]
    end,
    ?assert(<<"head", Bytes/binary, "tail">> =:= iolist_to_binary(Slowly(5000008))),
    stop(Reactor).

files_of_a_hundred_connections(Config) ->
    {File, Bytes} = file_of(Config, 200000),
    {Reactor, Port} = start(#{
        data => fun(_Socket, <<From:32>>, State) -> {send, [<<From:32>>, {sendfile, File, From, 100000}], State} end
    }),
    Peers = [{N * 1000, connect_raw(Port)} || N <- lists:seq(0, 99)],
    [
        begin
            [ok = gen_tcp:send(Peer, <<From:32>>) || {From, Peer} <- Peers],
            [
                ?assert(<<From:32, (part(Bytes, From, 100000))/binary>> =:= recv_exactly(Peer, 100004))
             || {From, Peer} <- Peers
            ]
        end
     || _ <- [1, 2, 3]
    ],
    stop(Reactor).

close_comes_after_the_file(Config) ->
    {File, Bytes} = file_of(Config, 4000000),
    {Reactor, Port} = start(#{
        data => fun(_Socket, _Data, State) -> {close, [{sendfile, File, 0, 4000000}], State} end
    }),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    ok = gen_tcp:send(Peer, <<"go">>),
    {terminated, _, normal} = told(terminated),
    ?assert(Bytes =:= recv_all(Peer)),
    stop(Reactor).

files_do_not_count_as_memory(Config) ->
    {File, Bytes} = file_of(Config, 3000000),
    {Reactor, Port} = start(
        #{data => fun
            (_Socket, <<"file">>, State) -> {send, [{sendfile, File, 0, 3000000}], State};
            (_Socket, Data, State) -> {send, Data, State}
        end, info => fun(Data, State) -> {send, Data, State} end},
        [{sndbuf, 8192}],
        #{max_send_queue => 100000}
    ),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, <<"file">>),
    wait_until(fun() -> pending(Socket) > 2000000 end),
    %% The file exceeds the limit and does not count; 50,000 bytes are below it, 150,000 above.
    [ok = weir_reactor:send(Socket, <<0:8000>>) || _ <- lists:seq(1, 50)],
    ?assert(<<Bytes/binary, 0:400000>> =:= recv_exactly(Peer, 3050000)),
    ok = gen_tcp:send(Peer, <<"file">>),
    wait_until(fun() -> pending(Socket) > 2000000 end),
    [ok = weir_reactor:send(Socket, <<0:8000>>) || _ <- lists:seq(1, 150)],
    ?waitEqual(send_queue_full, closed_by_a_send(Socket)),
    stop(Reactor).

%% All sends of one turn are taken, and a slow reactor may get many in one turn. So a later send closes the connection.
closed_by_a_send(Socket) ->
    _ = weir_reactor:send(Socket, <<0:8000>>),
    receive {closed, Socket, Reason} -> Reason after 0 -> open end.

pending(Socket) ->
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    Pending.

who_asked_is_told_when_the_file_is_gone(Config) ->
    {File, Bytes} = file_of(Config, 3000000),
    {Reactor, Port} = start(
        #{
            data => fun(Socket, _Data, State) ->
                ok = weir:notify_writable(Socket),
                {send, [{sendfile, File, 0, 3000000}], State}
            end,
            writable => fun(Socket, State) -> {send, <<(pending(Socket)):32>>, State} end
        },
        [{high_watermark, 1 bsl 24}]
    ),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    ok = gen_tcp:send(Peer, <<"go">>),
    ?assert(<<Bytes/binary, 0:32>> =:= recv_exactly(Peer, 3000004)),
    stop(Reactor).

%%% Broken.

a_reset_in_the_middle_closes_the_file(Config) ->
    Path = write(Config, "file", rand:bytes(8000000)),
    {Reactor, Port} = start_sending(Path),
    Peers = [connect_raw(Port, [{recbuf, 8192}]) || _ <- lists:seq(1, 10)],
    [begin ok = gen_tcp:send(Peer, <<"go">>), _ = recv_exactly(Peer, 1000) end || Peer <- Peers],
    true = garbage_collect(Reactor),
    ?assertEqual(10, open_files(Path)),
    [reset(Peer) || Peer <- Peers],
    [{closed, _, econnreset} = told(closed) || _ <- Peers],
    no_descriptor_is_left(Path, Reactor),
    stop(Reactor).

%% The kernel takes only a part of the file.
start_sending(Path) ->
    start(#{data => fun(_Socket, _Data, State) -> {send, parts_of(Path), State} end}, [{sndbuf, 65536}]).

%% Opens the file in a callback, which a reactor should not do, but a test may.
parts_of(Path) ->
    {ok, File, #{size := Size}} = weir_file:open(Path),
    [{sendfile, File, 0, Size}].

no_descriptor_is_left(Path, Process) ->
    wait_until(fun() ->
        _ = [erlang:garbage_collect(Pid) || Pid <- [Process, self()]],
        open_files(Path) =:= 0
    end).

a_killed_reactor_leaves_no_descriptor(Config) ->
    Bytes = rand:bytes(8000000),
    Path = write(Config, "file", Bytes),
    {Reactor, Port} = start_sending(Path),
    [Taker | Others] = [connect_raw(Port, [{recbuf, 8192}]) || _ <- lists:seq(1, 4)],
    [begin ok = gen_tcp:send(Peer, <<"go">>), _ = recv_exactly(Peer, 1000) end || Peer <- [Taker | Others]],
    kill_reactor(Reactor),
    %% Sent data is delivered although the connection has no owner any more.
    ?assert(part(Bytes, 1000, 7999000) =:= recv_all(Taker)),
    [reset(Peer) || Peer <- Others],
    no_descriptor_is_left(Path, self()).

a_file_that_becomes_shorter_closes_the_connection(Config) ->
    Path = write(Config, "file", rand:bytes(8000000)),
    {Reactor, Port} = start_sending(Path),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, <<"go">>),
    _ = recv_exactly(Peer, 1000),
    ok = file:write_file(Path, <<"short">>),
    ?assert(byte_size(recv_all(Peer)) < 7999000),
    ?assertEqual(enodata, told(closed, Socket)),
    ?assertMatch({ok, #{files_cut := Cut}} when Cut > 0, weir_reactor:info(Reactor)),
    stop(Reactor).

a_replaced_file_is_sent_as_it_was(Config) ->
    Bytes = rand:bytes(8000000),
    Path = write(Config, "file", Bytes),
    New = write(Config, "new", rand:bytes(100)),
    {Reactor, Port} = start_sending(Path),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    ok = gen_tcp:send(Peer, <<"go">>),
    Begin = recv_exactly(Peer, 1000),
    ok = file:rename(New, Path),
    ?assert(Bytes =:= <<Begin/binary, (recv_exactly(Peer, 7999000))/binary>>),
    stop(Reactor).

what_is_no_part_of_a_file_is_reported(Config) ->
    {File, _} = file_of(Config, 10),
    Wrong = [
        {sendfile, make_ref(), 0, 1},
        {sendfile, File, -1, 1},
        {sendfile, File, 0, 1 bsl 63},
        {sendfile, File, 0},
        {File, 0, 1},
        make_ref()
    ],
    {Reactor, Port} = start(#{
        data => fun(_Socket, <<N>>, State) -> {send, [<<"head">>, lists:nth(N, Wrong)], State} end
    }),
    unlogged(fun() ->
        [
            begin
                Peer = connect_raw(Port),
                {init, Socket} = told(init),
                ok = gen_tcp:send(Peer, <<N>>),
                ?assertEqual(<<>>, recv_all(Peer)),
                ?assertMatch({error, {error, {badarg, {send, _}}, []}}, told(terminated, Socket))
            end
         || N <- lists:seq(1, length(Wrong))
        ]
    end),
    exchange_again(Reactor, Port).

%% Log reports would keep the files open.
unlogged(Fun) ->
    #{level := Level} = logger:get_primary_config(),
    ok = logger:set_primary_config(level, none),
    try
        Fun()
    after
        logger:set_primary_config(level, Level)
    end.

exchange_again(Reactor, Port) ->
    Peer = connect_raw(Port),
    {init, _} = told(init),
    ok = gen_tcp:close(Peer),
    {closed, _, closed} = told(closed),
    stop(Reactor).

packets_have_no_files(Config) ->
    {File, _} = file_of(Config, 10),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {send, [{sendfile, File, 0, 10}], State} end}, [
        {packet, 4}
    ]),
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    unlogged(fun() ->
        ok = gen_tcp:send(Peer, <<1:32, "x">>),
        ?assertEqual(<<>>, recv_all(Peer)),
        ?assertMatch({error, {error, {einval, {send, _}}, []}}, told(terminated, Socket))
    end),
    stop(Reactor).

%%% Leaving.

a_connection_is_handed_off_behind_a_file(Config) ->
    {File, Bytes} = file_of(Config, 3000000),
    Self = self(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"file">>, State) -> {send, [{sendfile, File, 0, 3000000}], State};
        (_Socket, <<"off">>, State) -> {handoff, Self, <<"unread">>, State}
    end}),
    Peer = connect_raw(Port, [{recbuf, 8192}]),
    ok = gen_tcp:send(Peer, <<"file">>),
    Begin = recv_exactly(Peer, 1000),
    %% The reactor reads again when most of the file is sent; or this arrives in the same batch as the file's request.
    ok = gen_tcp:send(Peer, <<"off">>),
    ?assert(Bytes =:= <<Begin/binary, (recv_exactly(Peer, 2999000))/binary>>),
    Socket = receive {weir_reactor, handoff, S} -> S after patience() -> error(no_handoff) end,
    {ok, <<"unread">>} = gen_tcp:recv(Socket, 6),
    ok = gen_tcp:send(Socket, <<"bye">>),
    ok = gen_tcp:close(Socket),
    ?assertEqual(<<"bye">>, recv_all(Peer)),
    stop(Reactor).

no_relay_behind_a_file(Config) ->
    {File, _} = file_of(Config, 8000000),
    {Reactor, Port} = start(#{
        data => fun(_Socket, _Data, State) -> {send, [{sendfile, File, 0, 8000000}], State} end,
        info => fun(Other, State) -> {relay, Other, State} end
    }, [{sndbuf, 65536}]),
    [One, Other] = [connect_raw(Port, [{recbuf, 8192}]) || _ <- [1, 2]],
    [{init, First}, {init, Second}] = [told(init), told(init)],
    [ok = gen_tcp:send(Peer, <<"go">>) || Peer <- [One, Other]],
    wait_until(fun() -> pending(First) > 1000000 andalso pending(Second) > 1000000 end),
    unlogged(fun() ->
        ok = weir_reactor:send(First, Second),
        ?assertMatch({error, {error, {relay, {_, ebusy}}, []}}, told(terminated, First)),
        ?assertMatch({error, {error, {relay, {_, ebusy}}, []}}, told(terminated, Second))
    end),
    stop(Reactor).
