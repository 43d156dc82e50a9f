%% Shared by the suites weir_tcp_send_SUITE and weir_tcp_send_ends_SUITE.
-module(weir_tcp_send_test).

-export([narrow_pair/2]).
-export([pending/1]).
-export([send_until_error/3]).

-import(weir_test_peer, [socket_pair/3]).

%% A socket with small kernel buffers, so that output soon has to wait.
narrow_pair(Config, Options) ->
    socket_pair(Config, [binary, {active, false}, {sndbuf, 4096} | Options], [{recbuf, 4096}]).

pending(Socket) ->
    {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
    Pending.

send_until_error(Socket, Data, Sent) ->
    case gen_tcp:send(Socket, Data) of
        ok -> send_until_error(Socket, Data, Sent + 1);
        {error, _} = Error -> {Sent, Error}
    end.
