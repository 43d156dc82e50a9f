%% Close, linger and the death of the owner while bytes are still queued.
-module(weir_tcp_pending_close_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/3, async/1, await/1, assert_waits/1, pid/1]).
-import(weir_test_wait, [patience/0, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, timed/1]).
-import(weir_tcp_test, [pending/2, assert_whole/2, assert_cut/3]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("drop_in_suite.hrl").

-define(SIZE, 1000000).
-define(SOL_SOCKET, 1).
-define(SO_LINGER, 13).

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        close_on_both_ends,
        close_by_two,
        closer_killed,
        closer_killed_when_all_is_sent,
        close_while_receiving,
        close_while_data_comes,
        close_with_input_unread,
        linger_gives_up,
        linger_zero_after_shutdown_write,
        linger_zero_as_a_raw_option,
        linger_zero_as_a_raw_option_of_the_listener,
        owner_exit_with_linger,
        owner_exit_with_linger_zero
    ].

raw_linger(On, Seconds) ->
    {raw, ?SOL_SOCKET, ?SO_LINGER, <<On:32/native, Seconds:32/native>>}.

close_on_both_ends(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Back = rand:bytes(?SIZE),
    ok = gen_tcp:send(Peer, Back),
    Reader = async(fun() -> recv_exactly(Socket, ?SIZE) end),
    ?assert(Back =:= await(Reader)),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_whole(Peer, Data),
    ?assertEqual(ok, await(Closer)),
    ?assertEqual(ok, gen_tcp:close(Peer)).

close_by_two(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Closers = [async(fun() -> gen_tcp:close(Socket) end) || _ <- [1, 2]],
    [assert_waits(Closer) || Closer <- Closers],
    assert_whole(Peer, Data),
    [?assertEqual(ok, await(Closer)) || Closer <- Closers].

%% The socket is as before the close.
closer_killed(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_waits(Closer),
    ok = weir_test_peer:kill(Closer),
    Sender = async(fun() -> gen_tcp:send(Socket, <<"more">>) end),
    assert_waits(Sender),
    ?assertEqual([Data, <<"more">>], [recv_exactly(Peer, byte_size(Data)), recv_exactly(Peer, 4)]),
    ?assertEqual(ok, await(Sender)),
    ok = gen_tcp:send(Peer, <<"back">>),
    ?assertEqual(<<"back">>, recv_exactly(Socket, 4)),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

closer_killed_when_all_is_sent(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_waits(Closer),
    true = erlang:suspend_process(pid(Closer)),
    ?assert(Data =:= recv_exactly(Peer, byte_size(Data))),
    ?waitMatch({ok, [{send_pend, 0}]}, inet:getstat(Socket, [send_pend])),
    ok = weir_test_peer:kill(Closer),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"more">>)),
    ?assertEqual(<<"more">>, recv_exactly(Peer, 4)),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

close_while_receiving(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_waits(Closer),
    assert_waits(Receiver),
    assert_whole(Peer, Data),
    ?assertEqual(ok, await(Closer)),
    ?assertEqual({error, closed}, await(Receiver)).

close_while_data_comes(Config) ->
    {Socket, Peer, Data} = pending(Config, [{active, true}]),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    assert_waits(Closer),
    ok = gen_tcp:send(Peer, <<"late">>),
    ?assertEqual({tcp, Socket, <<"late">>}, next_message()),
    assert_whole(Peer, Data),
    ?assertEqual(ok, await(Closer)),
    assert_no_message().

%% The kernel resets a connection that is closed with unread input.
close_with_input_unread(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}], [{show_econnreset, true}]),
    ok = gen_tcp:send(Peer, <<"ab">>),
    ?assertEqual({ok, <<"a">>}, gen_tcp:recv(Socket, 1, patience())),
    ok = gen_tcp:send(Peer, <<"unread">>),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    ?assertMatch({<<>>, econnreset}, recv_all(Peer)).

%% close returns after the linger time, and all data still arrives. Monitors see the socket as closed while data is
%% still being sent. No scheduler blocks, even if linger is set as a raw option.
linger_gives_up(Config) ->
    Closing = [
        begin
            {Socket, Peer, Data} = pending(Config, [Option]),
            ?assertEqual({ok, [{linger, {true, 1}}]}, inet:getopts(Socket, [linger])),
            Closer = async(fun() -> timed(fun() -> gen_tcp:close(Socket) end) end),
            {Socket, Peer, Data, inet:monitor(Socket), Closer}
        end
     || Option <- [{linger, {true, 1}}, raw_linger(1, 1)]
    ],
    lists:foreach(
        fun({Socket, Peer, Data, Monitor, Closer}) ->
            {Elapsed, Result} = await(Closer),
            ?assertEqual(ok, Result),
            ?assert(Elapsed >= 990),
            %% The other socket may be closed first.
            receive
                {'DOWN', Monitor, _, _, Reason} -> ?assertEqual(normal, Reason)
            after patience() -> error(no_down)
            end,
            ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
            assert_whole(Peer, Data)
        end,
        Closing
    ).

linger_zero_after_shutdown_write(Config) ->
    {Socket, Peer, Data} = pending(Config, []),
    ok = inet:setopts(Peer, [{show_econnreset, true}]),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, write)),
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    assert_cut(Peer, Data, econnreset).

linger_zero_as_a_raw_option(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}], [{show_econnreset, true}]),
    ok = inet:setopts(Socket, [raw_linger(1, 0)]),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<>>, econnreset}, recv_all(Peer)).

linger_zero_as_a_raw_option_of_the_listener(Config) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, raw_linger(1, 0)], [{show_econnreset, true}]
    ),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<>>, econnreset}, recv_all(Peer)).

owner_exit_with_linger(Config) ->
    {Peer, Data} = abandoned(Config, [{linger, {true, 1}}]),
    assert_whole(Peer, Data).

owner_exit_with_linger_zero(Config) ->
    {Peer, Data} = abandoned(Config, [{linger, {true, 0}}]),
    ok = inet:setopts(Peer, [{show_econnreset, true}]),
    assert_cut(Peer, Data, econnreset).

%% The owner of the socket has died and left unsent bytes.
abandoned(Config, Options) ->
    {Socket, Peer, Data} = pending(Config, Options),
    {Owner, Monitor} = spawn_monitor(fun() -> receive go -> ok end end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    receive
        {'DOWN', Monitor, process, Owner, normal} -> ok
    end,
    {Peer, Data}.
