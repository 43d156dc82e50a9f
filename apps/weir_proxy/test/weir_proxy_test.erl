%% What the suites of the proxy share: a proxy with one frontend and one backend, and clients of it.
-module(weir_proxy_test).

-export([begin_suite/2, end_suite/1, end_case/0]).
-export([start/2, start/3, proxy/1, proxy/2, proxy/3, change/1, port/0, state/1, numbers/1, queued/0]).
-export([free_port/0, busy_port/0, connect/1, name/1, echo/2, until/2, wait_for/1]).

-define(PATIENCE, 10_000).

%% With these applications besides.
begin_suite(Applications, Config) ->
    Start = fun(Application) -> {ok, Started} = application:ensure_all_started(Application), Started end,
    [{started, lists:append([Start(Each) || Each <- [weir_proxy | Applications]])} | Config].

end_suite(Config) ->
    [ok = application:stop(Application) || Application <- lists:reverse(proplists:get_value(started, Config))],
    ok.

end_case() ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    ok.

%% Starts a proxy called `proxy'. `More' stands beside its frontends and backends.
start(Backend, Frontend) -> start(Backend, Frontend, #{}).

start(Backend, Frontend, More) -> weir_proxy:start(proxy, maps:merge(config(Backend, Frontend), More)).

config(Backend, Frontend) ->
    #{frontends => #{front => maps:merge(#{listen => ["127.0.0.1:0"], backend => web}, Frontend)}, backends => #{web => Backend}}.

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

%% Whether there are so many sessions everywhere.
numbers(N) ->
    {ok, #{frontends := #{<<"front">> := #{current_sessions := F}}, backends := #{<<"web">> := Backend}, sessions := All}} =
        weir_proxy:info(proxy),
    #{current_sessions := B, servers := Servers} = Backend,
    [N, N, N, N] =:= [F, B, All, lists:sum([S || #{current_sessions := S} <- Servers])].

%% How many wait for a place.
queued() ->
    {ok, #{backends := #{<<"web">> := #{queue_current := Queued}}}} = weir_proxy:info(proxy),
    Queued.

%% Of a server whose kernel answers no more, while the caller lives.
busy_port() ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {backlog, 0}]),
    {ok, Port} = inet:port(Listen),
    ok = fill(Port),
    Port.

fill(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [], 500) of
        {ok, _Socket} -> fill(Port);
        {error, timeout} -> ok
    end.

free_port() ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    ok = gen_tcp:close(Listen),
    Port.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?PATIENCE),
    Socket.

%% What a server of weir_proxy_backend_double says first.
name(Socket) ->
    Line = until(Socket, <<"\n">>),
    binary:part(Line, 0, byte_size(Line) - 1).

echo(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    {ok, Back} = gen_tcp:recv(Socket, byte_size(Data), ?PATIENCE),
    Back.

until(Socket, End) -> until(Socket, End, <<>>).

until(Socket, End, Before) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    All = <<Before/binary, Data/binary>>,
    case binary:longest_common_suffix([All, End]) =:= byte_size(End) of
        true -> All;
        false -> until(Socket, End, All)
    end.

wait_for(Fun) -> wait_for(Fun, erlang:monotonic_time(millisecond) + ?PATIENCE).

wait_for(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse ct:fail(waited_too_long),
            timer:sleep(10),
            wait_for(Fun, Deadline)
    end.
