%% @doc Receives data and drops it: the service of RFC 863.
-module(weir_example_discard).

-export([start/1]).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `once'). Other options: see {@link
%% weir_example_acceptors:start/2}.
-spec start(#{active => active(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, once),
    weir_example_acceptors:start(Options, fun(Socket) -> serve(Socket, Active) end).

serve(Socket, false) ->
    passive(Socket);
serve(Socket, Active) ->
    _ = inet:setopts(Socket, [{active, Active}]),
    active(Socket, Active).

passive(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, _Data} -> passive(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

active(Socket, Active) ->
    receive
        {tcp, Socket, _Data} ->
            weir_example_active:received(inet, Socket, Active),
            active(Socket, Active);
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Active}]),
            active(Socket, Active);
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.
