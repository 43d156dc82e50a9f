%% Packets that are incomplete, too large or wrong: results of `recv`, and messages.
-module(weir_tcp_packet_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2]).
-import(weir_test_wait, [next_message/0, assert_no_message/0]).
-import(weir_tcp_test, [take/1, received/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        unread_packets,
        recv_of_a_length_is_refused,
        half_a_packet_times_out_and_stays,
        half_a_packet_at_the_end,
        packet_larger_than_packet_size,
        packet_larger_than_packet_size_passive,
        packet_larger_than_packet_size_half_open,
        negative_length,
        line_longer_than_buffer,
        line_longer_than_packet_size,
        http_line_longer_than_buffer,
        asn1_tag_without_end,
        header_longer_than_the_data
    ].

unread_packets(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 2}]),
    ok = gen_tcp:unrecv(Socket, <<1:16, "u", 3:16, "v">>),
    ?assertEqual(<<"u">>, received(Socket)),
    ok = gen_tcp:send(Peer, <<"wx">>),
    ?assertEqual(<<"vwx">>, received(Socket)).

recv_of_a_length_is_refused(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 2}]),
    ok = gen_tcp:send(Peer, <<1:16, "u">>),
    ?assertEqual({error, einval}, gen_tcp:recv(Socket, 1)),
    ?assertEqual(<<"u">>, received(Socket)).

half_a_packet_times_out_and_stays(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 4}]),
    ok = gen_tcp:send(Peer, <<4:32, "ha">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 20)),
    ok = gen_tcp:send(Peer, <<"lf">>),
    ?assertEqual(<<"half">>, received(Socket)).

half_a_packet_at_the_end(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, 4}]),
    ok = gen_tcp:send(Peer, <<1:32, "a", 4:32, "ha">>),
    ?assertEqual({tcp, Socket, <<"a">>}, next_message()),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    assert_no_message().

packet_larger_than_packet_size(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, 4}, {packet_size, 10}]),
    ok = gen_tcp:send(Peer, <<10:32, "0123456789">>),
    ?assertEqual({tcp, Socket, <<"0123456789">>}, next_message()),
    ok = gen_tcp:send(Peer, <<11:32>>),
    ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

packet_larger_than_packet_size_passive(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 4}, {packet_size, 10}]),
    ok = gen_tcp:send(Peer, <<1:32, "a", 11:32>>),
    ?assertEqual(<<"a">>, received(Socket)),
    ?assertEqual({error, emsgsize}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Socket, 0)),
    ?assertEqual({error, enotconn}, gen_tcp:send(Socket, <<"x">>)).

packet_larger_than_packet_size_half_open(Config) ->
    Options = [binary, {active, true}, {packet, 4}, {packet_size, 10}, {exit_on_close, false}],
    {Socket, Peer} = socket_pair(Config, Options),
    ok = gen_tcp:send(Peer, <<11:32>>),
    ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2)),
    ok = gen_tcp:send(Socket, <<"still">>),
    ?assertEqual({ok, <<5:32, "still">>}, gen_tcp:recv(Peer, 9)).

negative_length(Config) ->
    [
        begin
            {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, Type}]),
            ok = gen_tcp:send(Peer, Bytes),
            ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2))
        end
     || {Type, Bytes} <- [
            {4, <<-1:32>>}, {4, <<16#80000000:32>>}, {tpkt, <<3, 0, 0:16>>}, {tpkt, <<2, 0, 4:16>>},
            {cdr, <<"GIOP", 1, 0, 0, 0, -5:32>>}, {cdr, <<"POIG12345678">>}, {fcgi, <<2, 0, 0, 0, 0, 0, 0, 0>>},
            {asn1, <<16#30, 16#85, 0, 0, 0, 0, 0>>}, {asn1, <<16#30, 16#84, -1:32>>}
        ]
    ].

line_longer_than_buffer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, line}, {buffer, 8}]),
    ok = gen_tcp:send(Peer, <<"0123456789\nab\n">>),
    ?assertEqual(
        [{tcp, Socket, Line} || Line <- [<<"01234567">>, <<"89\n">>, <<"ab\n">>]],
        take(3)
    ).

line_longer_than_packet_size(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, line}, {packet_size, 4}]),
    ok = gen_tcp:send(Peer, <<"abc\n">>),
    ?assertEqual({tcp, Socket, <<"abc\n">>}, next_message()),
    ok = gen_tcp:send(Peer, <<"abcde">>),
    ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2)).

http_line_longer_than_buffer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, http}, {buffer, 16}]),
    ok = gen_tcp:send(Peer, <<"GET /0123456789012345">>),
    ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2)).

asn1_tag_without_end(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, asn1}, {buffer, 100}]),
    ok = gen_tcp:send(Peer, binary:copy(<<255>>, 200)),
    ?assertEqual([{tcp_error, Socket, emsgsize}, {tcp_closed, Socket}], take(2)).

header_longer_than_the_data(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 1}, {header, 4}]),
    ok = gen_tcp:send(Peer, <<3, "abc", 0>>),
    ?assertEqual(["abc", ""], [received(Socket), received(Socket)]).
