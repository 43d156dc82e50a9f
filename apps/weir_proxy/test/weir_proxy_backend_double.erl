%% A server for tests: says its name to each connection, then sends back what comes. `reset me' resets the connection, `close me'
%% closes it.
-module(weir_proxy_backend_double).

-export([start/1, start/2, stop/1, port/1, address/1, connections/1]).

%% {Pid, Port}. Options: {port, P}, silent (no name), {ip, Address}.
start(Name) -> start(Name, []).

start(Name, Options) ->
    Self = self(),
    Pid = spawn(fun() ->
        Where = proplists:get_value(ip, Options, {127, 0, 0, 1}),
        {ok, Listen} = gen_tcp:listen(proplists:get_value(port, Options, 0), [
            binary, {active, false}, {ip, Where}, {reuseaddr, true}, {backlog, 4096}, {exit_on_close, false}
        ]),
        Port = case inet:port(Listen) of {ok, P} -> P; _ -> 0 end,
        Self ! {self(), Port},
        Greeting = case lists:member(silent, Options) of true -> <<>>; false -> [Name, "\n"] end,
        Me = self(),
        [spawn_link(fun() -> accept(Me, Listen, Greeting) end) || _ <- lists:seq(1, 4)],
        loop(0)
    end),
    receive {Pid, Port} -> {Pid, Port} end.

loop(Count) ->
    receive
        accepted -> loop(Count + 1);
        {count, From} -> From ! {self(), Count}, loop(Count)
    end.

accept(Me, Listen, Greeting) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Me ! accepted,
    Pid = spawn(fun() ->
        receive go -> ok end,
        link(Me),
        _ = Greeting =:= <<>> orelse gen_tcp:send(Socket, Greeting),
        echo(Socket)
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Me, Listen, Greeting).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"reset me">>} -> ok = inet:setopts(Socket, [{linger, {true, 0}}]), gen_tcp:close(Socket);
        {ok, <<"close me">>} -> gen_tcp:close(Socket);
        {ok, Data} -> _ = gen_tcp:send(Socket, Data), echo(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

%% Its connections and its listening socket end with it.
stop({Pid, _}) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

port({_, Port}) -> Port.

address({_, Port}) -> iolist_to_binary(["127.0.0.1:", integer_to_binary(Port)]).

connections({Pid, _}) ->
    Pid ! {count, self()},
    receive {Pid, Count} -> Count end.
