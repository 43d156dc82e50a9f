%% The kernel can end a read before all available data: at TCP's urgent mark, and on a Unix socket after a message
%% with descriptors. The rest must arrive without a further event.
-module(weir_tcp_early_stop_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, listen/3, with_urgent_peer/2, say_urgently/1]).
-import(weir_test_wait, [patience/0, collect_active/2, recv_exactly/2]).

-include("drop_in_suite.hrl").

%% SCM_RIGHTS of unix(7).
-define(RIGHTS, 1).

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend([
        urgent_active,
        urgent_passive,
        urgent_by_length,
        urgent_in_packets,
        urgent_after_a_pause,
        urgent_then_the_end,
        descriptors_active,
        descriptors_passive
    ]).

urgent_active(Config) ->
    urgent(Config, fun weir_test_peer:say_urgently/1, fun(Socket, _Peer) ->
        ok = inet:setopts(Socket, [{active, true}]),
        ?assertEqual(<<"abcefg">>, collect_active(Socket, 6))
    end).

urgent_passive(Config) ->
    urgent(Config, fun weir_test_peer:say_urgently/1, fun(Socket, _Peer) ->
        ?assertEqual(<<"abcefg">>, recv_parts(Socket, 6))
    end).

urgent_by_length(Config) ->
    urgent(Config, fun weir_test_peer:say_urgently/1, fun(Socket, _Peer) ->
        ?assertEqual(<<"abcefg">>, recv_exactly(Socket, 6))
    end).

urgent_in_packets(Config) ->
    Say = fun(Peer) ->
        ok = socket:send(Peer, <<3, "abc">>),
        ok = socket:send(Peer, <<"!">>, [oob]),
        ok = socket:send(Peer, <<3, "efg">>)
    end,
    urgent(Config, Say, fun(Socket, _Peer) ->
        ok = inet:setopts(Socket, [{packet, 1}, {active, true}]),
        ?assertEqual(<<"abcefg">>, collect_active(Socket, 6))
    end).

%% The pollset already watches the socket.
urgent_after_a_pause(Config) ->
    urgent(Config, fun(_Peer) -> ok end, fun(Socket, Peer) ->
        ok = inet:setopts(Socket, [{active, true}]),
        [
            begin
                ok = socket:send(Peer, <<"first">>),
                ?assertEqual(<<"first">>, collect_active(Socket, 5)),
                ok = inet:setopts(Socket, [{active, false}]),
                ok = say_urgently(Peer),
                ok = inet:setopts(Socket, [{active, true}]),
                ?assertEqual(<<"abcefg">>, collect_active(Socket, 6))
            end
         || _ <- lists:seq(1, 20)
        ]
    end).

urgent_then_the_end(Config) ->
    urgent(Config, fun weir_test_peer:say_urgently/1, fun(Socket, Peer) ->
        ok = socket:close(Peer),
        ?assertEqual(<<"abcefg">>, recv_parts(Socket, 6)),
        ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience()))
    end).

descriptors_active(Config) ->
    local(Config, fun(Socket) ->
        ok = inet:setopts(Socket, [{active, true}]),
        ?assertEqual(<<"onetwo">>, collect_active(Socket, 6))
    end).

descriptors_passive(Config) ->
    local(Config, fun(Socket) -> ?assertEqual(<<"onetwo">>, recv_parts(Socket, 6)) end).

%% Runs a case on a connection whose peer has sent something before any read.
urgent(Config, Say, Case) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    with_urgent_peer(Port, fun(Peer) ->
        ok = Say(Peer),
        Case(accept(Listener), Peer)
    end).

accept(Listener) ->
    {ok, Socket} = weir_test_peer:keep(gen_tcp:accept(Listener, patience())),
    Socket.

local(Config, Case) ->
    {ok, Listener} = listen(Config, 0, [binary, {active, false}, {ifaddr, {local, <<>>}}]),
    {ok, {local, Path}} = inet:sockname(Listener),
    {ok, Peer} = socket:open(local, stream),
    try
        ok = socket:connect(Peer, #{family => local, path => Path}),
        {ok, Descriptor} = socket:getopt(Peer, {otp, fd}),
        Rights = #{level => socket, type => ?RIGHTS, data => <<Descriptor:32/native>>},
        ok = socket:sendmsg(Peer, #{iov => [<<"one">>], ctrl => [Rights]}),
        ok = socket:send(Peer, <<"two">>),
        Case(accept(Listener))
    after
        socket:close(Peer)
    end.

recv_parts(_Socket, 0) -> <<>>;
recv_parts(Socket, Length) ->
    {ok, Part} = gen_tcp:recv(Socket, 0, patience()),
    <<Part/binary, (recv_parts(Socket, Length - byte_size(Part)))/binary>>.
