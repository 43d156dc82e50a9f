%% @doc Echoes data, as `echo' with `{active, once}', with Weir's listener, which serves each connection on the
%% scheduler that polls its socket.
-module(weir_example_echo_listener).

-export([start/1]).

%% @doc Starts the server. `work' is the microseconds of computation for each message (default: 0). Other options: see
%% {@link weir_example_listeners:start/2}.
-spec start(#{work => non_neg_integer(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Work = weir_example_work:of_options(Options),
    weir_example_listeners:start(Options, fun(Socket, _Args) ->
        _ = inet:setopts(Socket, [{active, once}]),
        echo(Socket, Work)
    end).

echo(Socket, Work) ->
    receive
        {tcp, Socket, Data} ->
            ok = weir_example_work:do(Work),
            case gen_tcp:send(Socket, Data) of
                ok ->
                    _ = inet:setopts(Socket, [{active, once}]),
                    echo(Socket, Work);
                {error, _} ->
                    gen_tcp:close(Socket)
            end;
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.
