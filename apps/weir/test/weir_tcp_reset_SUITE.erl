%% The end of a connection by a reset: when it is reported, and when it is shown as econnreset.
-module(weir_tcp_reset_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, assert_waits/1, reset/1, wait_for_reset/1]).
-import(weir_test_wait, [next_message/0, assert_no_message/0, recv_all/1]).
-import(weir_tcp_test, [assert_closed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        reset_while_passive,
        reset_while_passive_shown,
        reset_while_active,
        reset_while_active_shown,
        reset_while_receiving,
        reset_found_by_send,
        reset_found_by_send_shown,
        reset_found_by_send_told_when_active_is_set,
        reset_is_not_shown_for_an_orderly_end,
        reset_after_data
    ].

reset_while_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = reset(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)).

reset_while_passive_shown(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {show_econnreset, true}]),
    ok = reset(Peer),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    assert_no_message().

reset_while_active(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = reset(Peer),
            ?assertEqual({tcp_closed, Socket}, next_message()),
            assert_closed(Socket)
        end,
        [true, once, 5]
    ).

reset_while_active_shown(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(
                Config, [binary, {active, Active}, {show_econnreset, true}]
            ),
            ok = reset(Peer),
            ?assertEqual({tcp_error, Socket, econnreset}, next_message()),
            ?assertEqual({tcp_closed, Socket}, next_message()),
            assert_closed(Socket)
        end,
        [true, once, 5]
    ).

reset_while_receiving(Config) ->
    lists:foreach(
        fun({Show, Reason}) ->
            {Socket, Peer} = socket_pair(
                Config, [binary, {active, false}, {show_econnreset, Show}]
            ),
            Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
            assert_waits(Receiver),
            ok = reset(Peer),
            ?assertEqual({error, Reason}, await(Receiver))
        end,
        [{false, closed}, {true, econnreset}]
    ).

reset_found_by_send(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = reset(Peer),
    wait_for_reset(Socket),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)).

reset_found_by_send_shown(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {show_econnreset, true}]),
    ok = reset(Peer),
    wait_for_reset(Socket),
    ?assertEqual({error, econnreset}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)).

reset_found_by_send_told_when_active_is_set(Config) ->
    lists:foreach(
        fun({Show, Told}) ->
            {Socket, Peer} = socket_pair(
                Config, [binary, {active, false}, {show_econnreset, Show}]
            ),
            ok = reset(Peer),
            wait_for_reset(Socket),
            {error, _} = gen_tcp:send(Socket, <<"x">>),
            ?assertEqual(ok, inet:setopts(Socket, [{active, once}])),
            _ = [?assertEqual({tcp_error, Socket, econnreset}, next_message()) || Told],
            ?assertEqual({tcp_closed, Socket}, next_message()),
            assert_closed(Socket)
        end,
        [{false, false}, {true, true}]
    ).

reset_is_not_shown_for_an_orderly_end(Config) ->
    {Passive, Peer} = socket_pair(Config, [binary, {active, false}, {show_econnreset, true}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(Passive, 0)),
    {Active, Other} = socket_pair(Config, [binary, {active, true}, {show_econnreset, true}]),
    ok = gen_tcp:close(Other),
    ?assertEqual({tcp_closed, Active}, next_message()),
    assert_no_message().

%% Data before the reset is either lost or delivered first; nothing else is possible.
reset_after_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {show_econnreset, true}]),
    ok = gen_tcp:send(Peer, <<"abc">>),
    ok = reset(Peer),
    {Data, Reason} = recv_all(Socket),
    ?assertEqual(econnreset, Reason),
    ?assert(lists:member(Data, [<<>>, <<"abc">>])).
