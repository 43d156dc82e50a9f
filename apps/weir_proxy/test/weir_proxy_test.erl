%% Shared by the suites of the proxy: a proxy with one frontend and one backend, and its clients.
-module(weir_proxy_test).

-include_lib("weir_testing/include/weir_test.hrl").

-export([begin_suite/2, end_suite/1, end_case/0]).
-export([start/2, start/3, proxy/1, proxy/2, proxy/3, change/1, port/0, state/1, numbers/0, queued/0, path/1]).
-export([wait_for_sessions/1, wait_for_state/2, wait_for_queue/1, wait_for_more/2]).
-export([with_all_that_it_spawns/2]).
-export([busy_server/0, busy_address/1, refuse/1, connect/1, name/1, echo/2, until/2]).

-import(weir_test_wait, [patience/0]).

%% Starts weir_proxy and these applications.
begin_suite(Applications, Config) ->
    Start = fun(Application) -> {ok, Started} = application:ensure_all_started(Application), Started end,
    [{started, lists:append([Start(Each) || Each <- [weir_proxy | Applications]])} | Config].

end_suite(Config) ->
    [ok = application:stop(Application) || Application <- lists:reverse(proplists:get_value(started, Config))],
    ok.

end_case() ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    _ = file:del_dir_r(directory()),
    ok.

%% Starts a proxy with the name `proxy'. `More' has options beside frontends and backends. The case keeps the port
%% after the proxy has stopped.
start(Backend, Frontend) -> start(Backend, Frontend, #{}).

start(Backend, Frontend, More) ->
    _ = put({?MODULE, listen}, [{{127, 0, 0, 1}, weir_test_port:claim()}]),
    weir_proxy:start(proxy, maps:merge(config(Backend, Frontend), More)).

config(Backend, Frontend) ->
    #{
        frontends => #{front => maps:merge(#{listen => get({?MODULE, listen}), backend => web}, Frontend)},
        backends => #{web => Backend}
    }.

%% Starts a proxy and returns its port.
proxy(Backend) -> proxy(Backend, #{}).

proxy(Backend, Frontend) -> proxy(Backend, Frontend, #{}).

proxy(Backend, Frontend, More) ->
    ok = start(Backend, Frontend, More),
    port().

change(Backend) -> weir_proxy:change(proxy, config(Backend, #{})).

port() ->
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(proxy),
    binary_to_integer(Port).

%% The state of a server.
state(Name) ->
    Wanted = atom_to_binary(Name),
    {ok, Servers} = weir_proxy:servers(proxy, web),
    [State] = [State || #{name := Each, state := State} <- Servers, Each =:= Wanted],
    State.

wait_for_state(Name, State) -> ?waitEqual(State, state(Name)).

%% The sessions of the frontend, the backend, the proxy and all servers.
numbers() ->
    {ok, #{
        frontends := #{<<"front">> := #{current_sessions := F}}, backends := #{<<"web">> := Backend}, sessions := All
    }} =
        weir_proxy:info(proxy),
    #{current_sessions := B, servers := Servers} = Backend,
    [F, B, All, lists:sum([S || #{current_sessions := S} <- Servers])].

%% Waits until each of them has N sessions.
wait_for_sessions(N) -> ?waitEqual([N, N, N, N], numbers()).

%% The number of connections in the queue.
queued() ->
    {ok, #{backends := #{<<"web">> := #{queue_current := Queued}}}} = weir_proxy:info(proxy),
    Queued.

wait_for_queue(N) -> ?waitEqual(N, queued()).

%% Waits until a number is greater than Least.
wait_for_more(Least, Number) ->
    weir_test_wait:wait_until(fun() ->
        Now = Number(),
        Now > Least orelse {number, Now, not_more_than, Least}
    end).

%% The path of a file that is deleted when the case has ended. Short, because the path of a socket has at most 107
%% bytes.
path(Name) ->
    Path = filename:join(directory(), Name),
    ok = filelib:ensure_dir(Path),
    iolist_to_binary(Path).

directory() -> "/tmp/weir-proxy-" ++ os:getpid().

%% Calls Function. Returns when all processes that Pid has spawned during the call have ended.
with_all_that_it_spawns(Pid, Function) ->
    1 = erlang:trace(Pid, true, [procs]),
    _ = Function(),
    1 = erlang:trace(Pid, false, [procs]),
    Delivered = erlang:trace_delivered(Pid),
    receive
        {trace_delivered, Pid, Delivered} -> ok
    end,
    _ = [
        weir_test_wait:wait_for_end(Spawned)
     || {trace, By, spawn, Spawned, _} <- weir_test_wait:messages(), By =:= Pid
    ],
    ok.

%% A server whose kernel does not answer connects while the caller lives: its backlog is full.
busy_server() ->
    {ok, Listen} = gen_tcp:listen(weir_test_port:claim(), [{ip, {127, 0, 0, 1}}, {backlog, 0}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Listen),
    ok = fill(Listen, Port),
    Listen.

%% TCP_INFO of tcp(7): for a listening socket, `unacked' is the number of connections in the backlog, `sacked' its
%% limit.
fill(Listen, Port) ->
    {ok, _Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [], patience()),
    case inet:getopts(Listen, [{raw, 6, 11, 32}]) of
        {ok, [{raw, 6, 11, <<_:24/binary, Waiting:32/native, Most:32/native>>}]} when Waiting > Most -> ok;
        {ok, _} -> fill(Listen, Port)
    end.

busy_address(Listen) ->
    {ok, Port} = inet:port(Listen),
    {{127, 0, 0, 1}, Port}.

%% Refuses new connects from now on, and pending ones when their kernel retransmits.
refuse(Listen) -> ok = gen_tcp:close(Listen).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], patience()),
    Socket.

%% Reads the name that a weir_proxy_backend_double sends first.
name(Socket) ->
    Line = until(Socket, <<"\n">>),
    binary:part(Line, 0, byte_size(Line) - 1).

echo(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    weir_test_wait:recv_exactly(Socket, byte_size(Data)).

until(Socket, End) -> until(Socket, End, <<>>).

until(Socket, End, Before) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, patience()),
    All = <<Before/binary, Data/binary>>,
    case binary:longest_common_suffix([All, End]) =:= byte_size(End) of
        true -> All;
        false -> until(Socket, End, All)
    end.
