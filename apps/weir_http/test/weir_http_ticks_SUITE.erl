%% Waiting connections cost nothing: ticks of their reactor skip them.
-module(weir_http_ticks_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, get/1]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

%% Called at each tick of a reactor, and for each connection that does not sleep.
-define(TICK, {weir_http_connection, begin_tick, 1}).
-define(CALL, {weir_http_connection, handle_tick, 2}).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [idle_connections_cost_no_ticks].

%% With each kind of waiting connection: ticks pass, and handle_tick/2 is not called.
idle_connections_cost_no_ticks(_Config) ->
    Long = 1000000,
    Directly = fun(Result) -> {weir_http_echo, {call, fun(_) -> Result end}} end,
    Routes = [
        {Path, Handler, State}
     || {Path, {Handler, State}} <- [
            {"/", Directly({reply, 200, [], <<>>})},
            {"/held", Directly({hold, weir_http_funs, #{tell => self()}, #{timeout => Long}})},
            {"/events", Directly({events, weir_http_funs, #{tell => self()}, #{heartbeat => Long}})},
            {"/websocket",
                Directly({websocket, weir_http_websocket_handler, #{}, #{ping_interval => Long, idle_timeout => Long}})}
        ]
    ],
    %% The shortest timeout sets the tick. There are no bodies, so it has no other effect.
    Options = #{ip => {127, 0, 0, 1}, header_timeout => Long, body_timeout => 100, idle_timeout => Long},
    {ok, _} = weir_http:start_listener(?LISTENER, Options, Routes),
    Port = weir:get_port(?LISTENER),
    KeptAlive = connect(Port),
    ok = send(KeptAlive, get("/")),
    {200, _, _} = response(KeptAlive),
    Others = [connect(Port), connect(Port)],
    [ok = send(Socket, get(Path)) || {Socket, Path} <- lists:zip(Others, ["/held", "/events"])],
    WebSocket = weir_http_websocket_client:open(Port),
    Reactors = [Reactor || #{reactor := Reactor, module := weir_http_connection} <- weir:reactors()],
    [1 = erlang:trace(Reactor, true, [call]) || Reactor <- Reactors],
    1 = erlang:trace_pattern(?TICK, true, [call_time]),
    1 = erlang:trace_pattern(?CALL, true, [call_count]),
    Calls = fun() ->
        {call_count, Count} = erlang:trace_info(?CALL, call_count),
        Count
    end,
    try
        %% Ticks reach the connections until they are found idle.
        Quiet = until_quiet(Calls, Calls(), Reactors),
        wait_for_ticks(10, Reactors),
        ?assertEqual(Quiet, Calls()),
        %% The connections still work.
        ok = weir_http_websocket_client:send(WebSocket, 16#81, "still here"),
        ?assertEqual({16#81, <<"still here">>}, weir_http_websocket_client:recv_frame(WebSocket)),
        ok = send(KeptAlive, get("/")),
        ?assertMatch({200, _, _}, response(KeptAlive))
    after
        1 = erlang:trace_pattern(?TICK, false, [call_time]),
        1 = erlang:trace_pattern(?CALL, false, [call_count])
    end,
    lists:foreach(fun weir_http_client:close/1, [KeptAlive, WebSocket | Others]).

until_quiet(Calls, Before, Reactors) ->
    wait_for_ticks(5, Reactors),
    case Calls() of
        Before -> Before;
        More -> until_quiet(Calls, More, Reactors)
    end.

%% Waits for each reactor: on a busy machine one may be far behind another.
wait_for_ticks(N, Reactors) ->
    Before = ticks(),
    Ticked = fun(Reactor, Now) -> maps:get(Reactor, Now, 0) >= maps:get(Reactor, Before, 0) + N end,
    ok = wait_until(fun() -> Now = ticks(), lists:all(fun(Reactor) -> Ticked(Reactor, Now) end, Reactors) end).

ticks() ->
    {call_time, Calls} = erlang:trace_info(?TICK, call_time),
    maps:from_list([{Reactor, Count} || {Reactor, Count, _, _} <- Calls]).
