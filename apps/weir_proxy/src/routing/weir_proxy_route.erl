%% @doc A rule in Erlang: a module that chooses the backend of a connection. It may talk to the client first.
%%
%% `route/3' is called in the connection's own process. The socket is passive. The module can receive all bytes from
%% the first on, even those that rules have looked at. Bytes that it does not receive go to the server.
%% `gen_tcp:send/2' answers the client, `gen_tcp:unrecv/2' puts bytes back. The call must return within the frontend's
%% `first_bytes_timeout'; otherwise the connection is closed. If it raises, the connection is closed and a report is
%% logged.
%%
%% ```
%% -module(by_line).
%% -behaviour(weir_proxy_route).
%% -export([route/3]).
%%
%% route(Socket, _Facts, Password) ->
%%     ok = inet:setopts(Socket, [{packet, line}, {packet_size, 1024}]),
%%     {ok, Line} = gen_tcp:recv(Socket, 0),
%%     ok = inet:setopts(Socket, [{packet, raw}]),
%%     case string:trim(Line) of
%%         Password -> {backend, <<"web">>};
%%         _ -> reject
%%     end.
%% '''
-module(weir_proxy_route).

-export_type([facts/0, result/0]).

-type facts() :: weir_proxy_rules:facts().
%% The facts known about the connection: `address' of the client, the local `port', and, if an earlier rule needed the
%% first bytes, `protocol' and the facts in those.

-type result() ::
    {backend, atom() | iodata()}
    | {backend, atom() | iodata(), #{key => term(), prefix => iodata()}}
    | reject.
%% `key' is hashed by a backend whose `hash_key' is `rule'. `prefix' is sent to the server first, as if the client had
%% sent it.

-callback route(Socket :: weir_tcp:socket(), facts(), Args :: term()) -> result().
