%% A protocol in ranch's style that echoes.
-module(weir_listener_protocol).

-export([start_link/3, init/2]).

start_link(Name, Transport, args) ->
    {ok, proc_lib:spawn_link(?MODULE, init, [Name, Transport])}.

init(Name, Transport) ->
    {ok, Socket} = weir:handshake(Name),
    case weir:proxy_header() of
        {ok, #{src_address := Address}} -> ok = Transport:send(Socket, inet:ntoa(Address));
        _ -> ok
    end,
    loop(Socket, Transport).

loop(Socket, Transport) ->
    case Transport:recv(Socket, 0, infinity) of
        {ok, Data} ->
            _ = Transport:send(Socket, Data),
            loop(Socket, Transport);
        {error, _} ->
            Transport:close(Socket)
    end.
