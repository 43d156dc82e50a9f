%% Packet types: `{packet, _}', `packet_size', `line_delimiter', `header' and `deliver'.
%%
%% The results are compared with `erlang:decode_packet/3', which is independent of sockets, and with stock gen_tcp, on
%% which the same cases run.
-module(weir_tcp_packet_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1]).
-import(weir_test_wait, [next_message/0, assert_no_message/0]).
-import(weir_tcp_test, [take/1, received/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        passive_takes_packet_after_packet,
        active_delivers_packet_after_packet,
        once_delivers_one_packet,
        count_counts_packets,
        packets_come_in_pieces,
        packets_of_every_size,
        large_packets,
        lists_instead_of_binaries,
        length_is_sent_in_front,
        packets_both_ways,
        packet_type_changes_with_data_waiting,
        packet_type_changes_in_active_mode,
        http_message_then_body,
        http_state_is_kept_by_the_socket,
        line_delimiter,
        header_of_a_list,
        deliver_as_a_port,
        statistics_count_packets,
        listener_hands_options_on,
        options_and_their_values
    ].

%% Packet types with packets in wire format, some of them invalid where the type has a term for that.
types() ->
    [
        {1, [<<0>>, <<3, "abc">>, <<255, (noise(255))/binary>>]},
        {2, [<<0, 0>>, <<0, 3, "abc">>, <<2, 1, (noise(513))/binary>>]},
        {4, [<<0:32>>, <<3:32, "abc">>, <<2000:32, (noise(2000))/binary>>]},
        {sunrm, [<<0:32>>, <<16#80000003:32, "abc">>, <<300:32, (noise(300))/binary>>]},
        {asn1, [
            <<5, 0>>, <<16#30, 3, "abc">>, <<16#30, 16#82, 300:16, (noise(300))/binary>>, <<16#3f, 16#81, 1, 2, "ab">>
        ]},
        {cdr, [<<"GIOP", 1, 0, 0, 0, 3:32, "abc">>, <<"GIOP", 1, 0, 1, 0, 300:32/little, (noise(300))/binary>>]},
        {fcgi, [<<1, 1, 1:16, 3:16, 2, 0, "abc__">>, <<1, 5, 1:16, 300:16, 0, 0, (noise(300))/binary>>]},
        {tpkt, [<<3, 0, 4:16>>, <<3, 0, 7:16, "abc">>, <<3, 0, 304:16, (noise(300))/binary>>]},
        {line, [<<"\n">>, <<"abc\r\n">>, <<(binary:copy(<<"x">>, 300))/binary, "\n">>]},
        {http, http()},
        {http_bin, http()},
        {httph, http_fields()},
        {httph_bin, http_fields()}
    ].

http() ->
    [<<"GET /a?b=c HTTP/1.1\r\n">> | http_fields()] ++
        [<<"HTTP/1.1 404 Not Found\r\n">>, <<"\r\n">>] ++
        lists:append([
            [<<Line/binary, "\r\n">>, <<"A: b\r\n">>, <<"\r\n">>]
         || Line <- [
                <<"OPTIONS * HTTP/1.0">>, <<"GET http://example.org:8080/x HTTP/1.1">>, <<"CONNECT h:443 HTTP/1.1">>,
                <<"PATCH https://example.org HTTP/2.0">>, <<"GET /old">>, <<"HTTP/1.0 204">>
            ]
        ]) ++
        [<<"no HTTP\r\n">>, <<"\r\n">>, <<"POST / HTTP/1.1\n">>, <<"\n">>].

http_fields() ->
    [
        <<"Host: example.org\r\n">>, <<"content-LENGTH:5\r\n">>, <<"x-OWN--name:\t v \r\n">>,
        <<"Folded: one\r\n two\r\n\tthree\r\n">>, <<"no field\r\n">>, <<": nameless\r\n">>,
        <<(binary:copy(<<"n">>, 60))/binary, ": long\r\n">>, <<"\r\n">>
    ].

%% Bytes that resemble no delimiter.
noise(Size) ->
    << <<(128 + (Byte * 7) rem 100)>> || Byte <- lists:seq(1, Size) >>.

%% The stream as erlang:decode_packet/3 splits it, with HTTP header fields recognised.
decoded(Type, Packets) -> decoded(Type, iolist_to_binary(Packets), []).

decoded(_Type, <<>>, Decoded) ->
    lists:reverse(Decoded);
decoded(Type, Bytes, Decoded) ->
    {ok, Packet, Rest} = erlang:decode_packet(Type, Bytes, []),
    decoded(next_type(Type, Packet), Rest, [Packet | Decoded]).

next_type(http, Line) when element(1, Line) =:= http_request; element(1, Line) =:= http_response -> httph;
next_type(http_bin, Line) when element(1, Line) =:= http_request; element(1, Line) =:= http_response -> httph_bin;
%% A socket of type httph stays httph; here only types that began as http return to it.
next_type(Type, _) -> Type.

%% For the types http and http_bin, header fields end with the message. The decoder above does not remember its first
%% type.
expected(Type, Packets) when Type =:= http; Type =:= http_bin ->
    expected_http(Type, Type, iolist_to_binary(Packets), []);
expected(Type, Packets) ->
    decoded(Type, Packets).

expected_http(_Start, _Type, <<>>, Decoded) ->
    lists:reverse(Decoded);
expected_http(Start, Type, Bytes, Decoded) ->
    {ok, Packet, Rest} = erlang:decode_packet(Type, Bytes, []),
    Next =
        case Packet of
            http_eoh -> Start;
            _ -> next_type(Type, Packet)
        end,
    expected_http(Start, Next, Rest, [Packet | Decoded]).

tag(Type) when Type =:= http; Type =:= httph; Type =:= http_bin; Type =:= httph_bin -> http;
tag(_Type) -> tcp.

for_every_type(Fun) ->
    lists:foreach(fun({Type, Packets}) -> Fun(Type, Packets, expected(Type, Packets)) end, types()).

passive_takes_packet_after_packet(Config) ->
    for_every_type(fun(Type, Packets, Expected) ->
        {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, Type}]),
        ok = gen_tcp:send(Peer, Packets),
        ?assertEqual({Type, Expected}, {Type, [received(Socket) || _ <- Expected]}),
        ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 0))
    end).

active_delivers_packet_after_packet(Config) ->
    for_every_type(fun(Type, Packets, Expected) ->
        {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, Type}]),
        ok = gen_tcp:send(Peer, Packets),
        Tag = tag(Type),
        ?assertEqual([{Tag, Socket, Packet} || Packet <- Expected], take(length(Expected)))
    end).

once_delivers_one_packet(Config) ->
    for_every_type(fun(Type, Packets, Expected) ->
        {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, Type}]),
        ok = gen_tcp:send(Peer, Packets),
        Tag = tag(Type),
        lists:foreach(
            fun(Packet) ->
                ok = inet:setopts(Socket, [{active, once}]),
                ?assertEqual({Tag, Socket, Packet}, next_message()),
                ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active]))
            end,
            Expected
        )
    end),
    assert_no_message().

count_counts_packets(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, 2}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<1, "a", 1, "b", 1, "c">>),
    ?assertEqual(
        [{tcp, Socket, <<"a">>}, {tcp, Socket, <<"b">>}, {tcp_passive, Socket}],
        take(3)
    ),
    ?assertEqual({ok, <<"c">>}, gen_tcp:recv(Socket, 0)).

packets_come_in_pieces(Config) ->
    for_every_type(fun(Type, Packets, Expected) ->
        {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {packet, Type}], [{nodelay, true}]),
        [ok = gen_tcp:send(Peer, [Byte]) || <<Byte>> <= iolist_to_binary(Packets)],
        Tag = tag(Type),
        ?assertEqual([{Tag, Socket, Packet} || Packet <- Expected], take(length(Expected)))
    end).

%% Sizes around those of heap binaries, reads, and the buffers of both implementations.
packets_of_every_size(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 4}], [{packet, 4}]),
    Sizes = [0, 1, 63, 64, 65, 1455, 1456, 1457, 1460, 16379, 16380, 16384, 65531, 65532, 65533, 65536, 131072],
    Packets = [noise_of(Size) || Size <- Sizes],
    Sender = async(fun() -> [ok = gen_tcp:send(Peer, Packet) || Packet <- Packets] end),
    [?assert(received(Socket) =:= Packet) || Packet <- Packets],
    await(Sender).

noise_of(Size) -> binary:part(binary:copy(noise(255), Size div 255 + 1), 0, Size).

large_packets(Config) ->
    lists:foreach(
        fun(Mode) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Mode}, {packet, 4}], [{packet, 4}]),
            Packets = [noise_of(Size) || Size <- [3_000_000, 5, 262_140, 262_144, 1_000_000]],
            Sender = async(fun() -> [ok = gen_tcp:send(Peer, Packet) || Packet <- Packets] end),
            lists:foreach(
                fun(Packet) ->
                    Got =
                        case Mode of
                            false -> received(Socket);
                            true -> element(3, next_message())
                        end,
                    ?assert(Got =:= Packet)
                end,
                Packets
            ),
            await(Sender)
        end,
        [false, true]
    ).

lists_instead_of_binaries(Config) ->
    {Socket, Peer} = socket_pair(Config, [list, {active, false}, {packet, 2}]),
    ok = gen_tcp:send(Peer, <<3:16, "abc", 0:16>>),
    ?assertEqual(["abc", ""], [received(Socket), received(Socket)]).

length_is_sent_in_front(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 1}]),
    [
        begin
            ok = inet:setopts(Socket, [{packet, Type}]),
            ok = gen_tcp:send(Socket, Data),
            ?assertEqual({ok, Wire}, gen_tcp:recv(Peer, byte_size(Wire)))
        end
     || {Type, Data, Wire} <- [
            {1, <<"abc">>, <<3, "abc">>},
            {1, [], <<0>>},
            {2, ["a", <<"b">>, [[]], $c], <<0, 3, "abc">>},
            {4, [binary:copy(<<Byte>>, 100) || Byte <- lists:seq(1, 100)],
                <<10000:32, << <<(binary:copy(<<Byte>>, 100))/binary>> || Byte <- lists:seq(1, 100) >>/binary>>},
            {line, <<"as it is">>, <<"as it is">>},
            {asn1, <<1, 2, 3>>, <<1, 2, 3>>}
        ]
    ].

packets_both_ways(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}, {packet, 4}], [{packet, 4}, {active, false}]),
    Echo = fun Loop(N) ->
        receive
            {tcp, Socket, Data} ->
                ok = gen_tcp:send(Socket, Data),
                ok = inet:setopts(Socket, [{active, once}]),
                N > 1 andalso Loop(N - 1)
        end
    end,
    Packets = [noise_of(N * N * 13) || N <- lists:seq(0, 60)],
    Client = async(fun() ->
        [ok = gen_tcp:send(Peer, Packet) || Packet <- Packets],
        [?assert(received(Peer) =:= Packet) || Packet <- Packets]
    end),
    Echo(length(Packets)),
    await(Client).

packet_type_changes_with_data_waiting(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, line}]),
    ok = gen_tcp:send(Peer, <<"5\nhello", 2, "ab", 0, 1, "x", "rest">>),
    ?assertEqual(<<"5\n">>, received(Socket)),
    ok = inet:setopts(Socket, [{packet, raw}]),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 5)),
    ok = inet:setopts(Socket, [{packet, 1}]),
    ?assertEqual(<<"ab">>, received(Socket)),
    ok = inet:setopts(Socket, [{packet, 2}]),
    ?assertEqual(<<"x">>, received(Socket)),
    ok = inet:setopts(Socket, [{packet, 0}]),
    ?assertEqual(<<"rest">>, received(Socket)).

packet_type_changes_in_active_mode(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}, {packet, line}]),
    ok = gen_tcp:send(Peer, <<"first\n", 2, "ab", 3, "c">>),
    ?assertEqual({tcp, Socket, <<"first\n">>}, next_message()),
    ok = inet:setopts(Socket, [{active, true}, {packet, 1}]),
    ?assertEqual({tcp, Socket, <<"ab">>}, next_message()),
    assert_no_message(),
    ok = gen_tcp:send(Peer, <<"de">>),
    ?assertEqual({tcp, Socket, <<"cde">>}, next_message()).

%% The sequence of every HTTP server on gen_tcp.
http_message_then_body(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, http_bin}]),
    ok = gen_tcp:send(Peer, <<"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nsome bodyGET / HTTP/1.1\r\n\r\n">>),
    ?assertEqual({http_request, 'POST', {abs_path, <<"/">>}, {1, 1}}, received(Socket)),
    ?assertMatch({http_header, 38, 'Content-Length', _, <<"9">>}, received(Socket)),
    ?assertEqual(http_eoh, received(Socket)),
    ok = inet:setopts(Socket, [{packet, raw}]),
    ?assertEqual({ok, <<"some body">>}, gen_tcp:recv(Socket, 9)),
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    ?assertEqual({http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}, received(Socket)),
    ?assertEqual(http_eoh, received(Socket)).

http_state_is_kept_by_the_socket(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, http}]),
    ok = gen_tcp:send(Peer, <<"GET / HTTP/1.1\r\nline\nA: b\r\n\r\n">>),
    ?assertMatch({http_request, 'GET', _, _}, received(Socket)),
    ok = inet:setopts(Socket, [{packet, line}]),
    ?assertEqual(<<"line\n">>, received(Socket)),
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    ?assertEqual({http_header, 0, <<"A">>, <<"A">>, <<"b">>}, received(Socket)),
    ?assertEqual(http_eoh, received(Socket)).

line_delimiter(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, line}]),
    %% Stock accepts this option in connect and setopts, not in listen.
    ok = inet:setopts(Socket, [{line_delimiter, $;}]),
    ok = gen_tcp:send(Peer, <<"one;two\nmore;">>),
    ?assertEqual([<<"one;">>, <<"two\nmore;">>], [received(Socket), received(Socket)]).

header_of_a_list(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 1}, {header, 2}]),
    ok = gen_tcp:send(Peer, <<4, "abcd", 2, "ab">>),
    ?assertEqual([[$a, $b | <<"cd">>], [$a, $b | <<>>]], [received(Socket), received(Socket)]),
    ok = inet:setopts(Socket, [{active, true}, {packet, raw}]),
    ok = gen_tcp:send(Peer, <<"xyz">>),
    ?assertEqual({tcp, Socket, [$x, $y | <<"z">>]}, next_message()).

deliver_as_a_port(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, once}, {deliver, port}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<3, "abc", 1, "d">>),
    %% Stock's ports deliver lists if they were accepted, and binaries if they connected.
    {Socket, {data, Data}} = next_message(),
    ?assertEqual(<<"abc">>, iolist_to_binary(Data)),
    assert_no_message(),
    ok = inet:setopts(Socket, [{deliver, term}, {active, once}]),
    ?assertEqual({tcp, Socket, <<"d">>}, next_message()).

statistics_count_packets(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 1}]),
    ok = gen_tcp:send(Peer, <<3, "abc", 1, "d", 9>>),
    [<<"abc">>, <<"d">>] = [received(Socket), received(Socket)],
    ok = gen_tcp:send(Socket, <<"ab">>),
    Expected = [{recv_oct, 6}, {recv_cnt, 2}, {recv_max, 4}, {send_oct, 3}, {send_cnt, 1}, {send_max, 3}],
    ?assertEqual({ok, Expected}, inet:getstat(Socket, [Name || {Name, _} <- Expected])).

listener_hands_options_on(Config) ->
    Options = [{packet, line}, {packet_size, 100}, {header, 1}, {deliver, port}],
    {Socket, Peer} = socket_pair(Config, [binary, {active, false} | Options]),
    Names = [packet, packet_size, header, deliver],
    ?assertEqual({ok, [lists:keyfind(Name, 1, Options) || Name <- Names]}, inet:getopts(Socket, Names)),
    ok = inet:setopts(Socket, [{active, true}, {deliver, term}]),
    ok = gen_tcp:send(Peer, <<"ab\n">>),
    ?assertEqual({tcp, Socket, [$a | <<"b\n">>]}, next_message()).

options_and_their_values(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Defaults = [{packet, 0}, {packet_size, 0}, {header, 0}, {deliver, term}],
    ?assertEqual({ok, Defaults}, inet:getopts(Socket, [packet, packet_size, header, deliver])),
    [
        begin
            ?assertEqual({Option, ok}, {Option, inet:setopts(Socket, [Option])}),
            ?assertEqual({ok, [Option]}, inet:getopts(Socket, [element(1, Option)]))
        end
     || Option <-
            [{packet, Type} || Type <- [1, 2, 4 | [Type || {Type, _} <- types(), is_atom(Type)]]] ++
                [{packet_size, 1}, {packet_size, 16#ffffffff}, {header, 7}, {deliver, port}]
    ],
    [
        ?assertEqual({Option, {error, einval}}, {Option, inet:setopts(Socket, [Option])})
     || Option <- [
            {packet, 3}, {packet, 8}, {packet, -1}, {packet, lines}, {packet, "line"}, {packet_size, -1},
            {packet_size, big}, {line_delimiter, "x"}, {header, -1}, {header, x}, {deliver, x}
        ]
    ],
    %% Options that can be set but not read.
    ok = inet:setopts(Socket, [{line_delimiter, $x}]),
    ?assertEqual({error, einval}, inet:getopts(Socket, [line_delimiter])).
