%% @doc A rule in Erlang: a module that says where a connection goes, after talking to the client if it likes.
%%
%% `route/3' is called in a process of the connection's own. The socket is passive; what the client has sent is there to be
%% received, from its first byte on, also where rules have looked at it before. What is not received goes to the server.
%% `gen_tcp:send/2' answers the client, `gen_tcp:unrecv/2' puts bytes back. The call must return within the frontend's `first_bytes_timeout';
%% otherwise the connection is closed. One that raises closes the connection, with a report in the log.
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
%% What is known of the connection: `address' and `port' of the client; `protocol' and what the first bytes say, if a rule before
%% has asked for them.

-type result() ::
    {backend, atom() | iodata()}
    | {backend, atom() | iodata(), #{key => term(), prefix => iodata()}}
    | reject.
%% `key' is what a backend with `hash_key' `rule' hashes. `prefix' goes to the server before anything else, as if the client had
%% sent it.

-callback route(Socket :: weir_tcp:socket(), facts(), Args :: term()) -> result().
