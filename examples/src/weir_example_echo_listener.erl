%% @doc Sends back what comes, as `echo' with `{active, once}'; with Weir's listener, which has each connection
%% served on the scheduler that its socket is polled on.
-module(weir_example_echo_listener).

-export([start/1]).

%% @doc Starts the server. The options are for {@link weir_example_listeners:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    weir_example_listeners:start(Options, fun(Socket, _Args) ->
        _ = inet:setopts(Socket, [{active, once}]),
        echo(Socket)
    end).

echo(Socket) ->
    receive
        {tcp, Socket, Data} ->
            case gen_tcp:send(Socket, Data) of
                ok ->
                    _ = inet:setopts(Socket, [{active, once}]),
                    echo(Socket);
                {error, _} ->
                    gen_tcp:close(Socket)
            end;
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.
