%% @doc As `simple', but the receiving process passes the answer to one of a few sending processes.
-module(weir_example_simple_responders).

-export([start/1]).

-define(RESPONDERS, 200).
-define(TIMEOUT, 5000).

%% @doc Starts the server. Options: see {@link weir_example_passive_connections:start/3}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Listen = maps:get(listen, Options, []) ++ [{send_timeout, 0}],
    weir_example_passive_connections:start(Options#{listen => Listen}, 1, fun() ->
        Responders = list_to_tuple([spawn_link(fun respond/0) || _ <- lists:seq(1, ?RESPONDERS)]),
        Turn = counters:new(1, []),
        fun(Socket) ->
            ok = counters:add(Turn, 1, 1),
            Responder = element(counters:get(Turn, 1) rem ?RESPONDERS + 1, Responders),
            _ = spawn(fun() -> receive_from(Socket, Responder) end),
            ok
        end
    end).

receive_from(Socket, Responder) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, _Request} ->
            Responder ! {answer, Socket},
            receive_from(Socket, Responder);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

respond() ->
    receive
        {answer, Socket} ->
            _ = gen_tcp:send(Socket, <<"ok">>),
            respond()
    end.
