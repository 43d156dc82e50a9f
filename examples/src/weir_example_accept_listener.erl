%% @doc One request and one reply on each connection, as `accept', with Weir's listener instead of an accept loop.
-module(weir_example_accept_listener).

-export([start/1]).

-define(TIMEOUT, 5000).

%% @doc Starts the server. Options: see {@link weir_example_listeners:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    weir_example_listeners:start(Options, fun(Socket, _Args) ->
        case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
            {ok, _Request} -> _ = gen_tcp:send(Socket, <<"ok">>), ok;
            {error, _} -> ok
        end,
        gen_tcp:close(Socket)
    end).
