%% The modes {active, true | once | N} and the messages of a socket.
-module(weir_tcp_active_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, pid/1]).
-import(weir_test_wait, [
    patience/0, wait_for_messages/1, messages/0, next_message/0, assert_no_message/0, collect_active/2,
    recv_exactly/2
]).
-import(weir_tcp_test, [active_of/1, collect_rearming/3]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        true_delivers_as_it_comes,
        once_delivers_one_message,
        once_delivers_data_that_waited,
        once_may_be_set_again_and_again,
        true_delivers_data_that_waited,
        unknown_mode,
        false_stops_delivery,
        messages_keep_the_order_of_the_stream,
        large_stream_with_true,
        large_stream_with_once,
        messages_are_bounded_by_buffer,
        messages_hold_lists_or_binaries,
        mode_changes_in_the_middle,
        echo_with_once,
        passive_and_active_in_turn,
        mode_set_by_another_process,
        closed_comes_after_the_data,
        closed_comes_once_in_every_mode,
        closed_is_not_told_while_passive,
        nothing_comes_after_close
    ].

true_delivers_as_it_comes(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    [
        begin
            ok = gen_tcp:send(Peer, Data),
            ?assertEqual({tcp, Socket, Data}, next_message())
        end
     || Data <- [<<"one">>, <<"two">>, <<0>>, <<"three">>]
    ],
    ?assertEqual(true, active_of(Socket)).

once_delivers_one_message(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}]),
    ?assertEqual(once, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({tcp, Socket, <<"one">>}, next_message()),
    ?assertEqual(false, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"two">>),
    assert_no_message(),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp, Socket, <<"two">>}, next_message()),
    assert_no_message().

once_delivers_data_that_waited(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"a waited">>),
    ?assertEqual(<<"a">>, recv_exactly(Socket, 1)),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp, Socket, <<" waited">>}, next_message()),
    ?assertEqual(false, active_of(Socket)).

once_may_be_set_again_and_again(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [ok = inet:setopts(Socket, [{active, once}]) || _ <- lists:seq(1, 10)],
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({tcp, Socket, <<"one">>}, next_message()),
    ?assertEqual(false, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"two">>),
    assert_no_message().

true_delivers_data_that_waited(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"a waited">>),
    ?assertEqual(<<"a">>, recv_exactly(Socket, 1)),
    ok = inet:setopts(Socket, [{active, true}]),
    ?assertEqual({tcp, Socket, <<" waited">>}, next_message()).

unknown_mode(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, once}]),
    [
        begin
            ?assertEqual({error, einval}, inet:setopts(Socket, [{active, Mode}])),
            ?assertEqual(once, active_of(Socket))
        end
     || Mode <- [foo, "true", 1.0, {once}]
    ].

false_stops_delivery(Config) ->
    lists:foreach(
        fun(Before) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Before}]),
            ok = inet:setopts(Socket, [{active, false}]),
            ok = gen_tcp:send(Peer, <<"kept">>),
            assert_no_message(),
            ?assertEqual({ok, <<"kept">>}, gen_tcp:recv(Socket, 4, patience()))
        end,
        [true, once, 7]
    ).

messages_keep_the_order_of_the_stream(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Stream = <<<<N:32>> || N <- lists:seq(1, 5000)>>,
    Sender = async(fun() -> [ok = gen_tcp:send(Peer, <<N:32>>) || N <- lists:seq(1, 5000)] end),
    ?assert(Stream =:= collect_active(Socket, byte_size(Stream))),
    _ = await(Sender).

large_stream_with_true(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Data = rand:bytes(4 * 1024 * 1024),
    Sender = async(fun() -> gen_tcp:send(Peer, Data) end),
    ?assert(Data =:= collect_active(Socket, byte_size(Data))),
    ?assertEqual(ok, await(Sender)),
    assert_no_message().

large_stream_with_once(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}]),
    Data = rand:bytes(1024 * 1024),
    Sender = async(fun() ->
        ok = gen_tcp:send(Peer, Data),
        gen_tcp:close(Peer)
    end),
    ?assert(Data =:= collect_rearming(Socket, {tcp, once}, [])),
    ?assertEqual(ok, await(Sender)).

messages_are_bounded_by_buffer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}, {buffer, 100}]),
    Data = rand:bytes(1000),
    ok = gen_tcp:send(Peer, Data),
    {tcp, Socket, First} = next_message(),
    ?assert(byte_size(First) =< 100),
    ok = inet:setopts(Socket, [{active, true}]),
    ?assert(Data =:= <<First/binary, (collect_active(Socket, 1000 - byte_size(First)))/binary>>).

messages_hold_lists_or_binaries(Config) ->
    {Socket, Peer} = socket_pair(Config, [list, {active, true}]),
    ok = gen_tcp:send(Peer, <<"list", 0, 255>>),
    ?assertEqual({tcp, Socket, "list" ++ [0, 255]}, next_message()),
    ok = inet:setopts(Socket, [binary]),
    ok = gen_tcp:send(Peer, <<"binary">>),
    ?assertEqual({tcp, Socket, <<"binary">>}, next_message()),
    ok = inet:setopts(Socket, [{mode, list}]),
    ok = gen_tcp:send(Peer, <<"list">>),
    ?assertEqual({tcp, Socket, "list"}, next_message()).

mode_changes_in_the_middle(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Data = rand:bytes(600000),
    Sender = async(fun() -> gen_tcp:send(Peer, Data) end),
    First = recv_exactly(Socket, 1000),
    ok = inet:setopts(Socket, [{active, once}]),
    {tcp, Socket, Second} = next_message(),
    Third = recv_exactly(Socket, 3333),
    ok = inet:setopts(Socket, [{active, 1}]),
    {tcp, Socket, Fourth} = next_message(),
    {tcp_passive, Socket} = next_message(),
    Fifth = recv_exactly(Socket, 1),
    ok = inet:setopts(Socket, [{active, true}]),
    Head = iolist_to_binary([First, Second, Third, Fourth, Fifth]),
    Tail = collect_active(Socket, byte_size(Data) - byte_size(Head)),
    ?assert(Data =:= <<Head/binary, Tail/binary>>),
    ?assertEqual(ok, await(Sender)).

echo_with_once(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}, {nodelay, true}]),
    lists:foreach(
        fun(N) ->
            ok = gen_tcp:send(Peer, <<N:64>>),
            {tcp, Socket, <<N:64>> = Data} = next_message(),
            ok = gen_tcp:send(Socket, Data),
            ok = inet:setopts(Socket, [{active, once}]),
            ?assertEqual(<<N:64>>, recv_exactly(Peer, 8))
        end,
        lists:seq(1, 300)
    ).

passive_and_active_in_turn(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun(N) ->
            ok = gen_tcp:send(Peer, <<N:16>>),
            case N rem 3 of
                0 ->
                    ?assertEqual(<<N:16>>, recv_exactly(Socket, 2));
                1 ->
                    ok = inet:setopts(Socket, [{active, once}]),
                    ?assertEqual(<<N:16>>, collect_active(Socket, 2));
                2 ->
                    ok = inet:setopts(Socket, [{active, true}]),
                    ?assertEqual(<<N:16>>, collect_active(Socket, 2)),
                    ok = inet:setopts(Socket, [{active, false}])
            end
        end,
        lists:seq(1, 150)
    ),
    assert_no_message().

mode_set_by_another_process(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Other = async(fun() -> inet:setopts(Socket, [{active, once}]) end),
    ?assertEqual(ok, await(Other)),
    ok = gen_tcp:send(Peer, <<"to the owner">>),
    ?assertEqual({tcp, Socket, <<"to the owner">>}, next_message()),
    ?assertEqual({messages, []}, process_info(pid(Other), messages)).

closed_comes_after_the_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Data = rand:bytes(200000),
    Sender = async(fun() ->
        ok = gen_tcp:send(Peer, Data),
        gen_tcp:close(Peer)
    end),
    ?assert(Data =:= collect_active(Socket, byte_size(Data))),
    ?assertEqual(ok, await(Sender)),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_no_message().

closed_comes_once_in_every_mode(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:close(Peer),
            ?assertEqual({tcp_closed, Socket}, next_message()),
            assert_no_message()
        end,
        [true, once, 1, 100]
    ).

closed_is_not_told_while_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}]),
    ok = gen_tcp:send(Peer, <<"last">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp, Socket, <<"last">>}, next_message()),
    assert_no_message(),
    ?assertEqual(false, active_of(Socket)),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{active, once}])),
    assert_no_message().

%% Messages from before the close stay in the mailbox, as with a port. After it none follows, and the notice of the
%% peer's close is withdrawn.
nothing_comes_after_close(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:send(Peer, <<"before">>),
            wait_for_messages(1),
            ok = gen_tcp:send(Peer, <<"may come">>),
            ok = gen_tcp:close(Peer),
            ok = gen_tcp:close(Socket),
            Messages = messages(),
            ?assertEqual({tcp, Socket, <<"before">>}, hd(Messages)),
            ?assertNot(lists:member({tcp_closed, Socket}, Messages)),
            assert_no_message()
        end,
        [true, 1, once]
    ).
