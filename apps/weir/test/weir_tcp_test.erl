%% Shared by the suites of the drop-in, besides weir_test_peer.
-module(weir_tcp_test).

-export([pending/2]).
-export([assert_whole/2]).
-export([assert_cut/2]).
-export([assert_cut/3]).
-export([assert_told_closed/1]).
-export([assert_closed/1]).
-export([take/1]).
-export([received/1]).
-export([active_of/1]).
-export([collect_rearming/3]).
-export([default_buffer/1]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/3]).
-import(weir_test_wait, [wait_until/1, next_message/0, assert_no_message/0, recv_all/1]).

%% Ends -------------------------------------------------------------------------

%% A socket with more output than the kernel takes from an unread connection.
pending(Config, Options) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, {sndbuf, 4096} | Options], [{recbuf, 4096}]
    ),
    Data = rand:bytes(1_000_000),
    ok = gen_tcp:send(Socket, Data),
    ?assertMatch({ok, [{send_pend, Pending}]} when Pending > 0, inet:getstat(Socket, [send_pend])),
    {Socket, Peer, Data}.

assert_whole(Peer, Data) ->
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(closed, Reason),
    ?assert(Data =:= Received).

assert_cut(Peer, Data) ->
    assert_cut(Peer, Data, closed).

assert_cut(Peer, Data, Expected) ->
    {Received, Reason} = recv_all(Peer),
    ?assertEqual(Expected, Reason),
    ?assert(byte_size(Received) < byte_size(Data)),
    ?assert(Received =:= binary:part(Data, 0, byte_size(Received))).

%% The port of a stock socket ends a moment after its message. Until then calls return `einval'.
assert_told_closed(Socket) ->
    ?assertEqual({tcp_closed, Socket}, next_message()),
    wait_until(fun() -> not is_port(Socket) orelse erlang:port_info(Socket) =:= undefined end).

%% Calls of gen_tcp return `closed', those of inet `einval', for any other arguments.
assert_closed(Socket) ->
    Self = self(),
    lists:foreach(
        fun({Expected, Call}) -> ?assertEqual({Expected, Call}, {Call(), Call}) end,
        [
            {{error, closed}, fun() -> gen_tcp:send(Socket, <<"x">>) end},
            {{error, closed}, fun() -> gen_tcp:send(Socket, []) end},
            {{error, closed}, fun() -> gen_tcp:send(Socket, [bad]) end},
            {{error, closed}, fun() -> gen_tcp:recv(Socket, 0) end},
            {{error, closed}, fun() -> gen_tcp:recv(Socket, 5, 100) end},
            {{error, closed}, fun() -> gen_tcp:unrecv(Socket, <<"x">>) end},
            {{error, closed}, fun() -> gen_tcp:shutdown(Socket, read) end},
            {{error, closed}, fun() -> gen_tcp:shutdown(Socket, write) end},
            {{error, closed}, fun() -> gen_tcp:shutdown(Socket, read_write) end},
            {{error, closed}, fun() -> gen_tcp:accept(Socket) end},
            {{error, closed}, fun() -> gen_tcp:accept(Socket, 100) end},
            {{error, closed}, fun() -> gen_tcp:controlling_process(Socket, Self) end},
            {{error, closed}, fun() -> gen_tcp:controlling_process(Socket, whereis(init)) end},
            {{error, einval}, fun() -> inet:setopts(Socket, [{active, once}]) end},
            {{error, einval}, fun() -> inet:setopts(Socket, []) end},
            {{error, einval}, fun() -> inet:getopts(Socket, [active]) end},
            {{error, einval}, fun() -> inet:getopts(Socket, []) end},
            {{error, einval}, fun() -> inet:sockname(Socket) end},
            {{error, einval}, fun() -> inet:socknames(Socket) end},
            {{error, einval}, fun() -> inet:peername(Socket) end},
            {{error, einval}, fun() -> inet:port(Socket) end},
            {{error, einval}, fun() -> inet:getstat(Socket) end},
            {{error, einval}, fun() -> inet:getstat(Socket, [recv_cnt]) end},
            {#{states => [closed]}, fun() -> inet:info(Socket) end},
            {ok, fun() -> gen_tcp:close(Socket) end},
            {ok, fun() -> inet:close(Socket) end}
        ]
    ),
    assert_no_message().

%% Packets and modes ------------------------------------------------------------

take(Count) ->
    [next_message() || _ <- lists:seq(1, Count)].

received(Socket) ->
    {ok, Packet} = gen_tcp:recv(Socket, 0),
    Packet.

active_of(Socket) ->
    {ok, [{active, Active}]} = inet:getopts(Socket, [active]),
    Active.

%% Reads to the end of the stream and sets the mode again after each message of this kind.
collect_rearming(Socket, {Kind, Active} = When, Data) ->
    Message = next_message(),
    ?assertEqual(Socket, element(2, Message)),
    _ = [ok = inet:setopts(Socket, [{active, Active}]) || element(1, Message) =:= Kind],
    case Message of
        {tcp, Socket, Part} -> collect_rearming(Socket, When, [Part | Data]);
        {tcp_passive, Socket} -> collect_rearming(Socket, When, Data);
        {tcp_closed, Socket} -> iolist_to_binary(lists:reverse(Data))
    end.

%% Options ----------------------------------------------------------------------

%% An intended difference: fewer and larger messages if the option is not set.
default_buffer(Config) ->
    case proplists:get_value(backend, Config) of
        [] -> stock_buffer();
        [{tcp_module, weir_tcp}] -> 65536
    end.

%% The value has changed between releases of OTP.
stock_buffer() ->
    {ok, Listener} = gen_tcp:listen(0, []),
    {ok, [{buffer, Size}]} = inet:getopts(Listener, [buffer]),
    ok = gen_tcp:close(Listener),
    Size.
