%% @doc One request and one reply on each connection: the cost of a server whose clients always open a new connection.
-module(weir_example_accept).

-export([start/1]).

-define(TIMEOUT, 5000).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `false'). Other options: see {@link
%% weir_example_acceptors:start/2}.
-spec start(#{active => active(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, false),
    weir_example_acceptors:start(Options, fun(Socket) ->
        case request(Socket, Active) of
            {ok, _Request} -> _ = gen_tcp:send(Socket, <<"ok">>), ok;
            {error, _} -> ok
        end,
        gen_tcp:close(Socket)
    end).

request(Socket, false) ->
    gen_tcp:recv(Socket, 0, ?TIMEOUT);
request(Socket, Active) ->
    _ = inet:setopts(Socket, [{active, Active}]),
    receive
        {tcp, Socket, Request} -> {ok, Request};
        {tcp_error, Socket, Reason} -> {error, Reason};
        {tcp_closed, Socket} -> {error, closed}
    after ?TIMEOUT ->
        {error, timeout}
    end.
