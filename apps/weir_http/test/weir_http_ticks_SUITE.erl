%% Connections that only wait cost nothing: the ticks of their reactor pass them by.
-module(weir_http_ticks_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, get/1]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [idle_connections_cost_no_ticks].

%% A connection of each kind that waits: ticks pass, and none of them is called.
idle_connections_cost_no_ticks(_Config) ->
    Long = 1000000,
    Directly = fun(Result) -> {weir_http_echo, {call, fun(_) -> Result end}} end,
    Routes = [
        {Path, Handler, State}
     || {Path, {Handler, State}} <- [
            {"/", Directly({reply, 200, [], <<>>})},
            {"/held", Directly({hold, weir_http_funs, #{tell => self()}, #{timeout => Long}})},
            {"/events", Directly({events, weir_http_funs, #{tell => self()}, #{heartbeat => Long}})},
            {"/websocket", Directly({websocket, weir_http_websocket_handler, #{}, #{ping_interval => Long, idle_timeout => Long}})}
        ]
    ],
    %% The shortest time decides how often ticks come, and there are no bodies.
    Options = #{ip => {127, 0, 0, 1}, header_timeout => Long, body_timeout => 100, idle_timeout => Long},
    {ok, _} = weir_http:start_listener(?LISTENER, Options, Routes),
    Port = weir:get_port(?LISTENER),
    KeptAlive = connect(Port),
    ok = send(KeptAlive, get("/")),
    {200, _, _} = response(KeptAlive),
    Others = [connect(Port), connect(Port)],
    [ok = send(Socket, get(Path)) || {Socket, Path} <- lists:zip(Others, ["/held", "/events"])],
    WebSocket = weir_http_websocket_client:open(Port),
    [1 = erlang:trace_pattern({weir_http_connection, Function, Arity}, true, [call_count]) || {Function, Arity} <- traced()],
    Calls = fun() -> [Count || {F, A} <- traced(), {_, Count} <- [erlang:trace_info({weir_http_connection, F, A}, call_count)]] end,
    try
        %% They are called until they are found silent.
        Quiet = until_quiet(Calls, Calls()),
        wait_for_ticks(Calls, 10),
        [_, Called] = Calls(),
        ?assertEqual(Quiet, Called),
        %% And they are all there.
        ok = weir_http_websocket_client:send(WebSocket, 16#81, "still here"),
        ?assertEqual({16#81, <<"still here">>}, weir_http_websocket_client:recv_frame(WebSocket)),
        ok = send(KeptAlive, get("/")),
        ?assertMatch({200, _, _}, response(KeptAlive))
    after
        [1 = erlang:trace_pattern({weir_http_connection, Function, Arity}, false, [call_count]) || {Function, Arity} <- traced()]
    end,
    lists:foreach(fun weir_http_client:close/1, [KeptAlive, WebSocket | Others]).

traced() -> [{begin_tick, 1}, {handle_tick, 2}].

until_quiet(Calls, [_, Before]) ->
    wait_for_ticks(Calls, 5),
    case Calls() of
        [_, Before] -> Before;
        More -> until_quiet(Calls, More)
    end.

wait_for_ticks(Calls, N) ->
    [Before, _] = Calls(),
    ok = wait_until(fun() -> hd(Calls()) >= Before + N end).
