%% @doc Answers any data with `ok': a first server on gen_tcp, with two common optimisations to try: more acceptors,
%% and receiving without a timeout.
-module(weir_example_simple).

-export([start/1]).

-define(TIMEOUT, 5000).

%% @doc Starts the server. `acceptors' is the number of acceptors (default: 1). With `sleep' connections do not block
%% in `gen_tcp:recv/3', which sets a timer for each message: they poll, and sleep for this many milliseconds if there
%% is no data. Other options: see {@link weir_example_passive_connections:start/3}.
-spec start(#{
    acceptors => pos_integer(), sleep => pos_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Serve =
        case Options of
            #{sleep := Pause} -> fun(Socket) -> poll(Socket, Pause) end;
            #{} -> fun wait/1
        end,
    weir_example_passive_connections:start(Options, maps:get(acceptors, Options, 1), fun() ->
        fun(Socket) -> _ = spawn(fun() -> Serve(Socket) end), ok end
    end).

wait(Socket) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, _Request} ->
            _ = gen_tcp:send(Socket, <<"ok">>),
            wait(Socket);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

poll(Socket, Pause) ->
    case gen_tcp:recv(Socket, 0, 0) of
        {ok, _Request} ->
            _ = gen_tcp:send(Socket, <<"ok">>),
            poll(Socket, Pause);
        {error, timeout} ->
            timer:sleep(Pause),
            poll(Socket, Pause);
        {error, _} ->
            gen_tcp:close(Socket)
    end.
