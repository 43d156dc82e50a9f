%% A server for tests: sends its name to each connection, then echoes. `reset me' resets the connection, `close me'
%% closes it. It ends with the process that started it, except with the option `of_suite'.
-module(weir_proxy_backend_double).

-export([start/1, start/2, stop/1, port/1, address/1, connections/1]).

-import(weir_test_wait, [wait_until/1]).

%% Options: {port, P}, silent (no name), {path, Path} (a unix socket), of_suite (ends only by stop/1). The caller keeps
%% the port after the server has ended: it refuses connections, and another server can be started there.
start(Name) -> start(Name, []).

start(Name, Options) ->
    Test = self(),
    Accepted = counters:new(1, []),
    {Where, Port} =
        case Options of
            [{path, Path}] -> {{local, Path}, 0};
            [{port, Given}] -> {{127, 0, 0, 1}, Given};
            _ -> {{127, 0, 0, 1}, weir_test_port:claim()}
        end,
    {Pid, Monitor} = spawn_monitor(fun() ->
        Owner = case lists:member(of_suite, Options) of true -> none; false -> monitor(process, Test) end,
        {ok, Listen} = gen_tcp:listen(Port, [
            binary, {active, false}, {ip, Where}, {reuseaddr, true}, {backlog, 4096}, {exit_on_close, false}
        ]),
        Test ! {listens, self()},
        Greeting = case lists:member(silent, Options) of true -> <<>>; false -> [Name, "\n"] end,
        Me = self(),
        [spawn_link(fun() -> accept(Me, Accepted, Listen, Greeting) end) || _ <- lists:seq(1, 4)],
        receive {'DOWN', Owner, process, _, _} -> exit(owner_ended) end
    end),
    receive
        {listens, Pid} -> demonitor(Monitor, [flush]), {Pid, Port, Accepted};
        {'DOWN', Monitor, process, Pid, Reason} -> error({no_server, Name, Reason})
    end.

accept(Me, Accepted, Listen, Greeting) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    ok = counters:add(Accepted, 1, 1),
    Pid = spawn(fun() ->
        receive go -> ok end,
        link(Me),
        _ = Greeting =:= <<>> orelse gen_tcp:send(Socket, Greeting),
        echo(Socket)
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Me, Accepted, Listen, Greeting).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"reset me">>} -> ok = inet:setopts(Socket, [{linger, {true, 0}}]), gen_tcp:close(Socket);
        {ok, <<"close me">>} -> gen_tcp:close(Socket);
        {ok, Data} -> _ = gen_tcp:send(Socket, Data), echo(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

%% Also closes its connections and its listening socket, the socket a moment later.
stop({Pid, Port, _}) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    wait_until(fun() -> Port =:= 0 orelse refuses(Port) end).

refuses(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [{tcp_module, inet_tcp}]) of
        {ok, Socket} -> gen_tcp:close(Socket), false;
        {error, _} -> true
    end.

port({_, Port, _}) -> Port.

address({_, Port, _}) -> iolist_to_binary(["127.0.0.1:", integer_to_binary(Port)]).

%% The number of connections it has accepted. Each is counted before the name is sent.
connections({_, _, Accepted}) -> counters:get(Accepted, 1).
