%% What the suites of the proxy share: a proxy with one frontend and one backend, and clients of it.
-module(weir_proxy_test).

-include_lib("weir_testing/include/weir_test.hrl").

-export([begin_suite/2, end_suite/1, end_case/0]).
-export([start/2, start/3, proxy/1, proxy/2, proxy/3, change/1, port/0, state/1, numbers/0, queued/0, path/1]).
-export([wait_for_sessions/1, wait_for_state/2, wait_for_queue/1, wait_for_more/2]).
-export([with_all_that_it_spawns/2]).
-export([busy_server/0, busy_address/1, refuse/1, connect/1, name/1, echo/2, until/2]).

-import(weir_test_wait, [patience/0]).

%% With these applications besides.
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

%% Starts a proxy called `proxy'. `More' stands beside its frontends and backends. Its port belongs to the case: when the proxy has stopped,
%% nobody else listens there.
start(Backend, Frontend) -> start(Backend, Frontend, #{}).

start(Backend, Frontend, More) ->
    _ = put({?MODULE, listen}, [{{127, 0, 0, 1}, weir_test_port:claim()}]),
    weir_proxy:start(proxy, maps:merge(config(Backend, Frontend), More)).

config(Backend, Frontend) ->
    #{frontends => #{front => maps:merge(#{listen => get({?MODULE, listen}), backend => web}, Frontend)}, backends => #{web => Backend}}.

%% The same, and returns its port.
proxy(Backend) -> proxy(Backend, #{}).

proxy(Backend, Frontend) -> proxy(Backend, Frontend, #{}).

proxy(Backend, Frontend, More) ->
    ok = start(Backend, Frontend, More),
    port().

change(Backend) -> weir_proxy:change(proxy, config(Backend, #{})).

port() ->
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(proxy),
    binary_to_integer(Port).

%% The state of one of its servers.
state(Name) ->
    Wanted = atom_to_binary(Name),
    {ok, Servers} = weir_proxy:servers(proxy, web),
    [State] = [State || #{name := Each, state := State} <- Servers, Each =:= Wanted],
    State.

wait_for_state(Name, State) -> ?waitEqual(State, state(Name)).

%% How many sessions the frontend, the backend, the proxy and all servers have.
numbers() ->
    {ok, #{frontends := #{<<"front">> := #{current_sessions := F}}, backends := #{<<"web">> := Backend}, sessions := All}} =
        weir_proxy:info(proxy),
    #{current_sessions := B, servers := Servers} = Backend,
    [F, B, All, lists:sum([S || #{current_sessions := S} <- Servers])].

%% Until there are so many sessions everywhere.
wait_for_sessions(N) -> ?waitEqual([N, N, N, N], numbers()).

%% How many wait for a place.
queued() ->
    {ok, #{backends := #{<<"web">> := #{queue_current := Queued}}}} = weir_proxy:info(proxy),
    Queued.

wait_for_queue(N) -> ?waitEqual(N, queued()).

%% Until a number is more than this.
wait_for_more(Least, Number) ->
    weir_test_wait:wait_until(fun() ->
        Now = Number(),
        Now > Least orelse {number, Now, not_more_than, Least}
    end).

%% A file that is gone when the case has ended. Short: a path of a socket has 107 bytes at most.
path(Name) ->
    Path = filename:join(directory(), Name),
    ok = filelib:ensure_dir(Path),
    iolist_to_binary(Path).

directory() -> "/tmp/weir-proxy-" ++ os:getpid().

%% Calls the function, and returns when all processes have ended that a process has spawned meanwhile.
with_all_that_it_spawns(Pid, Function) ->
    1 = erlang:trace(Pid, true, [procs]),
    _ = Function(),
    1 = erlang:trace(Pid, false, [procs]),
    Delivered = erlang:trace_delivered(Pid),
    receive {trace_delivered, Pid, Delivered} -> ok end,
    _ = [weir_test_wait:wait_for_end(Spawned) || {trace, By, spawn, Spawned, _} <- weir_test_wait:messages(), By =:= Pid],
    ok.

%% A server whose kernel answers no more, while the caller lives.
busy_server() ->
    {ok, Listen} = gen_tcp:listen(weir_test_port:claim(), [{ip, {127, 0, 0, 1}}, {backlog, 0}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Listen),
    ok = fill(Listen, Port),
    Listen.

%% TCP_INFO of tcp(7): of a socket that listens, `unacked' is how many wait to be accepted, and `sacked' how many may.
fill(Listen, Port) ->
    {ok, _Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [], patience()),
    case inet:getopts(Listen, [{raw, 6, 11, 32}]) of
        {ok, [{raw, 6, 11, <<_:24/binary, Waiting:32/native, Most:32/native>>}]} when Waiting > Most -> ok;
        {ok, _} -> fill(Listen, Port)
    end.

busy_address(Listen) ->
    {ok, Port} = inet:port(Listen),
    {{127, 0, 0, 1}, Port}.

%% What connects to it is refused from now on, and what does already, when its kernel asks again.
refuse(Listen) -> ok = gen_tcp:close(Listen).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], patience()),
    Socket.

%% What a server of weir_proxy_backend_double says first.
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
