%% @doc What the examples share that receive by messages: what to do after each of them.
-module(weir_example_active).

-export([received/3]).

%% @doc Called after each message. `{active, once}' asks for the next one, so that nothing piles up in the mailbox while
%% the process is busy; the other modes go on by themselves. `Module' is `inet', or `ssl' for its sockets.
-spec received(inet | ssl, gen_tcp:socket() | ssl:sslsocket(), once | true | false | 1..32767) -> ok.
received(Module, Socket, once) ->
    _ = Module:setopts(Socket, [{active, once}]),
    ok;
received(_Module, _Socket, _Active) ->
    ok.
