%% gen_tcp:recv/2,3 and gen_tcp:unrecv/2 on passive sockets.
-module(weir_tcp_passive_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, assert_waits/1]).
-import(weir_test_wait, [patience/0, next_message/0, recv_all/1, recv_exactly/2, timed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        recv_of_length_zero_returns_what_is_there,
        recv_waits_for_data,
        recv_of_a_length_joins_segments,
        recv_of_a_length_leaves_the_rest,
        recv_of_a_length_beyond_the_end_is_closed,
        recv_of_a_large_length,
        recv_of_a_stream_in_pieces,
        recv_is_bounded_by_buffer,
        recv_of_a_length_is_not_bounded_by_buffer,
        recv_of_too_large_a_length,
        recv_times_out,
        recv_with_timeout_zero,
        recv_timeout_leaves_the_data,
        recv_timeout_leaves_the_data_to_active,
        recv_with_wrong_arguments,
        recv_on_an_active_socket,
        second_recv_is_refused,
        recv_by_another_process,
        recv_returns_the_data_and_then_closed,
        recv_ends_when_the_peer_closes,
        recv_ends_when_the_socket_is_closed,
        recv_returns_lists_or_binaries,
        unrecv_puts_data_before_what_comes,
        unrecv_twice,
        unrecv_and_a_part,
        unrecv_then_active,
        unrecv_while_active,
        unrecv_of_bad_data
    ].

recv_of_length_zero_returns_what_is_there(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 0)),
    ok = gen_tcp:send(Peer, <<"again">>),
    ?assertEqual({ok, <<"again">>}, gen_tcp:recv(Socket, 0, infinity)).

recv_waits_for_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    ok = gen_tcp:send(Peer, <<"late">>),
    ?assertEqual({ok, <<"late">>}, await(Receiver)).

recv_of_a_length_joins_segments(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 10, patience()) end),
    ok = gen_tcp:send(Peer, <<"0123">>),
    assert_waits(Receiver),
    ok = gen_tcp:send(Peer, <<"456">>),
    assert_waits(Receiver),
    ok = gen_tcp:send(Peer, <<"789">>),
    ?assertEqual({ok, <<"0123456789">>}, await(Receiver)).

recv_of_a_length_leaves_the_rest(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"abcdef">>),
    ?assertEqual({ok, <<"a">>}, gen_tcp:recv(Socket, 1)),
    ?assertEqual({ok, <<"bc">>}, gen_tcp:recv(Socket, 2)),
    ?assertEqual({ok, <<"def">>}, gen_tcp:recv(Socket, 3)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 1, 0)).

recv_of_a_length_beyond_the_end_is_closed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"abc">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 5)).

recv_of_a_large_length(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Data = rand:bytes(3 * 1024 * 1024),
    Sender = async(fun() -> gen_tcp:send(Peer, Data) end),
    ?assert(Data =:= recv_exactly(Socket, byte_size(Data))),
    ?assertEqual(ok, await(Sender)).

recv_of_a_stream_in_pieces(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Data = rand:bytes(300000),
    Sender = async(fun() ->
        lists:foreach(
            fun(At) -> ok = gen_tcp:send(Peer, binary:part(Data, At, 1000)) end,
            lists:seq(0, byte_size(Data) - 1000, 1000)
        ),
        gen_tcp:shutdown(Peer, write)
    end),
    %% Exact lengths and any available data, in turn.
    First = recv_exactly(Socket, 1),
    Second = recv_exactly(Socket, 70001),
    {ok, Third} = gen_tcp:recv(Socket, 0),
    Fourth = recv_exactly(Socket, 1234),
    {Rest, closed} = recv_all(Socket),
    ?assertEqual(ok, await(Sender)),
    ?assert(Data =:= <<First/binary, Second/binary, Third/binary, Fourth/binary, Rest/binary>>).

recv_is_bounded_by_buffer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {buffer, 100}]),
    Data = rand:bytes(1000),
    ok = gen_tcp:send(Peer, Data),
    ok = gen_tcp:shutdown(Peer, write),
    {ok, First} = gen_tcp:recv(Socket, 0),
    ?assert(byte_size(First) =< 100),
    {Rest, closed} = recv_all(Socket),
    ?assert(Data =:= <<First/binary, Rest/binary>>).

recv_of_a_length_is_not_bounded_by_buffer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {buffer, 100}]),
    Data = rand:bytes(1000),
    ok = gen_tcp:send(Peer, Data),
    ?assertEqual({ok, Data}, gen_tcp:recv(Socket, 1000, patience())).

recv_of_too_large_a_length(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Limit = 64 * 1024 * 1024,
    ?assertEqual({error, enomem}, gen_tcp:recv(Socket, Limit + 1, patience())),
    ?assertEqual({error, enomem}, gen_tcp:recv(Socket, 16#7fffffff, patience())),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, Limit, 1)),
    ok = gen_tcp:send(Peer, <<"still here">>),
    ?assertEqual({ok, <<"still here">>}, gen_tcp:recv(Socket, 0, patience())).

recv_times_out(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    {Elapsed, Result} = timed(fun() -> gen_tcp:recv(Socket, 0, 60) end),
    ?assertEqual({error, timeout}, Result),
    ?assert(Elapsed >= 59).

recv_with_timeout_zero(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 0)),
    ok = gen_tcp:send(Peer, <<"abcd">>),
    %% After one byte was received, the others are known to have arrived.
    ?assertEqual({ok, <<"a">>}, gen_tcp:recv(Socket, 1)),
    ?assertEqual({ok, <<"bcd">>}, gen_tcp:recv(Socket, 0, 0)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 0)).

recv_timeout_leaves_the_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"abc">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 5, 30)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 4, 1)),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(Socket, 0, patience())),
    ok = gen_tcp:send(Peer, <<"de">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 5, 30)),
    ok = gen_tcp:send(Peer, <<"fgh">>),
    ?assertEqual({ok, <<"defgh">>}, gen_tcp:recv(Socket, 5, patience())).

recv_timeout_leaves_the_data_to_active(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"abc">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 5, 30)),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp, Socket, <<"abc">>}, next_message()).

recv_with_wrong_arguments(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertError(_, gen_tcp:recv(Socket, Length, Timeout))
     || {Length, Timeout} <- [{-1, 10}, {a, 10}, {1.0, 10}, {0, foo}, {0, 1.0}]
    ],
    ok = gen_tcp:send(Peer, <<"unharmed">>),
    ?assertEqual({ok, <<"unharmed">>}, gen_tcp:recv(Socket, 0, patience())).

recv_on_an_active_socket(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun(Active) ->
            ok = inet:setopts(Socket, [{active, Active}]),
            ?assertEqual({error, einval}, gen_tcp:recv(Socket, 0, 10)),
            ?assertEqual({error, einval}, gen_tcp:recv(Socket, 5)),
            ok = inet:setopts(Socket, [{active, false}])
        end,
        [true, once, 5]
    ),
    ok = gen_tcp:send(Peer, <<"passive again">>),
    ?assertEqual({ok, <<"passive again">>}, gen_tcp:recv(Socket, 0, patience())).

second_recv_is_refused(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    First = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(First),
    ?assertEqual({error, ealready}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual({error, ealready}, gen_tcp:recv(Socket, 3)),
    assert_waits(First),
    ok = gen_tcp:send(Peer, <<"for the first">>),
    ?assertEqual({ok, <<"for the first">>}, await(First)),
    ok = gen_tcp:send(Peer, <<"and on">>),
    ?assertEqual({ok, <<"and on">>}, gen_tcp:recv(Socket, 0, patience())).

recv_by_another_process(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({ok, <<"one">>}, await(async(fun() -> gen_tcp:recv(Socket, 3) end))),
    ok = gen_tcp:send(Peer, <<"two">>),
    ?assertEqual({ok, <<"two">>}, gen_tcp:recv(Socket, 3)).

recv_returns_the_data_and_then_closed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"the last words">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual({<<"the last words">>, closed}, recv_all(Socket)).

recv_ends_when_the_peer_closes(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, await(Receiver)).

recv_ends_when_the_socket_is_closed(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, await(Receiver)).

recv_returns_lists_or_binaries(Config) ->
    {Socket, Peer} = socket_pair(Config, [list, {active, false}]),
    ok = gen_tcp:send(Peer, <<"list", 0, 255>>),
    ?assertEqual({ok, "list" ++ [0, 255]}, gen_tcp:recv(Socket, 6)),
    ok = gen_tcp:send(Peer, <<"listbinary">>),
    ?assertEqual({ok, "list"}, gen_tcp:recv(Socket, 4)),
    ok = inet:setopts(Socket, [{mode, binary}]),
    ?assertEqual({ok, <<"binary">>}, gen_tcp:recv(Socket, 6)),
    ok = inet:setopts(Socket, [list]),
    ok = gen_tcp:send(Peer, <<"list">>),
    ?assertEqual({ok, "list"}, gen_tcp:recv(Socket, 4)).

unrecv_puts_data_before_what_comes(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"header body">>),
    {ok, <<"header">>} = gen_tcp:recv(Socket, 6),
    ok = gen_tcp:unrecv(Socket, <<"header">>),
    ?assertEqual({ok, <<"header body">>}, gen_tcp:recv(Socket, 11, patience())).

unrecv_twice(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:unrecv(Socket, ["c", [<<"d">>]]),
    ok = gen_tcp:unrecv(Socket, <<"ab">>),
    ?assertEqual({ok, <<"abcd">>}, gen_tcp:recv(Socket, 4, patience())).

unrecv_and_a_part(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:unrecv(Socket, "abcd"),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(Socket, 3, patience())),
    ?assertEqual({ok, <<"d">>}, gen_tcp:recv(Socket, 0, 0)),
    ok = gen_tcp:unrecv(Socket, "last"),
    ok = gen_tcp:close(Peer),
    ?assertEqual({<<"last">>, closed}, recv_all(Socket)).

unrecv_then_active(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:unrecv(Socket, "first"),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual({tcp, Socket, <<"first">>}, next_message()),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    ok = gen_tcp:send(Peer, <<"second">>),
    ?assertEqual({ok, <<"second">>}, gen_tcp:recv(Socket, 0, patience())).

unrecv_while_active(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, once}]),
    ok = gen_tcp:unrecv(Socket, "at once"),
    ?assertEqual({tcp, Socket, <<"at once">>}, next_message()),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])).

unrecv_of_bad_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [?assertEqual({error, einval}, gen_tcp:unrecv(Socket, Bad)) || Bad <- [a, [a], [256]]],
    ok = gen_tcp:send(Peer, <<"unharmed">>),
    ?assertEqual({ok, <<"unharmed">>}, gen_tcp:recv(Socket, 0, patience())).
