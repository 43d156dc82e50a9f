%% @doc The action after each received message, shared by examples in active mode.
-module(weir_example_active).

-export([received/3]).

%% @doc Call after each message. With `{active, once}' it requests the next one, so that messages do not pile up in
%% the mailbox of a busy process; other modes need nothing. `Module' is `inet', or `ssl' for its sockets.
-spec received(inet | ssl, gen_tcp:socket() | ssl:sslsocket(), once | true | false | 1..32767) -> ok.
received(Module, Socket, once) ->
    _ = Module:setopts(Socket, [{active, once}]),
    ok;
received(_Module, _Socket, _Active) ->
    ok.
