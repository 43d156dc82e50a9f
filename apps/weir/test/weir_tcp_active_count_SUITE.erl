%% The mode {active, N}: N messages, then `tcp_passive`.
-module(weir_tcp_active_count_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1]).
-import(weir_test_wait, [next_message/0, assert_no_message/0, recv_exactly/2]).
-import(weir_tcp_test, [active_of/1, collect_rearming/3]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        count_delivers_so_many_and_tells,
        count_delivers_data_that_waited,
        count_can_be_raised,
        count_can_be_lowered,
        count_lowered_to_nothing_is_passive,
        count_of_zero,
        count_replaces_once_and_true,
        count_is_replaced_by_the_others,
        count_out_of_range,
        count_at_its_limits,
        large_stream_with_count,
        closed_after_the_count_ran_out
    ].

count_delivers_so_many_and_tells(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 3}]),
    lists:foreach(
        fun(Left) ->
            ?assertEqual(Left, active_of(Socket)),
            ok = gen_tcp:send(Peer, <<Left>>),
            ?assertEqual({tcp, Socket, <<Left>>}, next_message())
        end,
        [3, 2, 1]
    ),
    ?assertEqual({tcp_passive, Socket}, next_message()),
    ?assertEqual(false, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"more">>),
    assert_no_message(),
    ok = inet:setopts(Socket, [{active, 1}]),
    ?assertEqual({tcp, Socket, <<"more">>}, next_message()),
    ?assertEqual({tcp_passive, Socket}, next_message()),
    assert_no_message().

count_delivers_data_that_waited(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"a waited">>),
    ?assertEqual(<<"a">>, recv_exactly(Socket, 1)),
    ok = inet:setopts(Socket, [{active, 2}]),
    ?assertEqual({tcp, Socket, <<" waited">>}, next_message()),
    ?assertEqual(1, active_of(Socket)).

count_can_be_raised(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = inet:setopts(Socket, [{active, 3}]),
    ok = inet:setopts(Socket, [{active, 4}]),
    ?assertEqual(7, active_of(Socket)),
    assert_no_message().

count_can_be_lowered(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 5}]),
    ok = inet:setopts(Socket, [{active, -3}]),
    ?assertEqual(2, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({tcp, Socket, <<"one">>}, next_message()),
    ?assertEqual(1, active_of(Socket)),
    assert_no_message().

count_lowered_to_nothing_is_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun({Up, Down}) ->
            ok = inet:setopts(Socket, [{active, Up}]),
            ok = inet:setopts(Socket, [{active, Down}]),
            ?assertEqual({tcp_passive, Socket}, next_message()),
            ?assertEqual(false, active_of(Socket))
        end,
        [{6, -6}, {3, -7}, {1, -32768}]
    ),
    ok = gen_tcp:send(Peer, <<"passive">>),
    ?assertEqual(<<"passive">>, recv_exactly(Socket, 7)),
    assert_no_message().

count_of_zero(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    %% A count of 0 makes the socket passive, with a message each time.
    [
        begin
            ok = inet:setopts(Socket, [{active, Count}]),
            ?assertEqual({tcp_passive, Socket}, next_message()),
            ?assertEqual(false, active_of(Socket))
        end
     || Count <- [0, -1, -32768, 0]
    ],
    ok = inet:setopts(Socket, [{active, 2}]),
    ok = inet:setopts(Socket, [{active, 0}]),
    ?assertEqual(2, active_of(Socket)),
    assert_no_message().

count_replaces_once_and_true(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun(Before) ->
            ok = inet:setopts(Socket, [{active, Before}]),
            ok = inet:setopts(Socket, [{active, 2}]),
            ?assertEqual(2, active_of(Socket)),
            [
                begin
                    ok = inet:setopts(Socket, [{active, Before}]),
                    ok = inet:setopts(Socket, [{active, Count}]),
                    ?assertEqual({tcp_passive, Socket}, next_message()),
                    ?assertEqual(false, active_of(Socket))
                end
             || Count <- [0, -1]
            ]
        end,
        [once, true]
    ).

count_is_replaced_by_the_others(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun(After) ->
            ok = inet:setopts(Socket, [{active, 5}]),
            ok = inet:setopts(Socket, [{active, After}]),
            ?assertEqual(After, active_of(Socket)),
            %% The earlier count does not matter.
            ok = inet:setopts(Socket, [{active, 2}]),
            ?assertEqual(2, active_of(Socket)),
            ok = inet:setopts(Socket, [{active, false}])
        end,
        [once, true, false]
    ),
    %% None of this was a count that reached 0.
    assert_no_message().

count_out_of_range(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        begin
            ?assertEqual({error, einval}, inet:setopts(Socket, [{active, Count}])),
            ?assertEqual(false, active_of(Socket))
        end
     || Count <- [32768, -32769, 1 bsl 40]
    ],
    ok = inet:setopts(Socket, [{active, 1}]),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{active, 32767}])),
    ?assertEqual(1, active_of(Socket)),
    assert_no_message().

count_at_its_limits(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 32767}]),
    ?assertEqual(32767, active_of(Socket)),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{active, 1}])),
    ?assertEqual(32767, active_of(Socket)),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({tcp, Socket, <<"one">>}, next_message()),
    ok = inet:setopts(Socket, [{active, 1}]),
    ?assertEqual(32767, active_of(Socket)),
    ok = inet:setopts(Socket, [{active, -32768}]),
    ?assertEqual({tcp_passive, Socket}, next_message()),
    ?assertEqual(false, active_of(Socket)).

large_stream_with_count(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 7}]),
    Data = rand:bytes(1024 * 1024),
    Sender = async(fun() ->
        ok = gen_tcp:send(Peer, Data),
        gen_tcp:close(Peer)
    end),
    ?assert(Data =:= collect_rearming(Socket, {tcp_passive, 7}, [])),
    ?assertEqual(ok, await(Sender)).

closed_after_the_count_ran_out(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 1}]),
    ok = gen_tcp:send(Peer, <<"last">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp, Socket, <<"last">>}, next_message()),
    ?assertEqual({tcp_passive, Socket}, next_message()),
    assert_no_message(),
    ok = inet:setopts(Socket, [{active, 5}]),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_no_message().
