%% Each limit of a listener: what is within is served, what is beyond gets a clear status and a close, and others notice
%% nothing.
-module(weir_http_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, connect/2, send/2, close/1, response/1, request/2, responses/2, is_closed/1, is_closed/2, get/1, get/2]).
-import(weir_http_serving, [until/1]).

-define(LISTENER, ?MODULE).
-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        idle_connections_cost_no_ticks,
        {group, sizes},
        {group, numbers},
        {group, times},
        {group, readers}
    ].

groups() ->
    [
        {sizes, [parallel], [
            the_request_line,
            the_head,
            the_number_of_fields,
            the_body_of_a_length,
            the_body_in_chunks,
            the_body_of_a_route,
            trailers,
            requests_of_a_connection,
            connections
        ]},
        {numbers, [parallel], [
            connections_beyond_the_limit_are_reset,
            connections_in_a_second,
            connections_of_an_address,
            addresses_that_are_denied,
            a_proxy_header_that_does_not_come
        ]},
        {times, [parallel], [
            a_client_that_says_nothing,
            a_head_that_does_not_end,
            a_head_that_comes_slowly,
            a_body_that_does_not_end,
            a_body_that_comes_at_the_least_rate,
            a_connection_without_requests,
            a_client_that_stays_after_a_refusal,
            honest_clients_are_served_beside
        ]},
        {readers, [parallel], [
            responses_that_are_not_taken_bound_the_requests,
            requests_that_are_not_answered_yet_are_bounded,
            a_client_that_takes_nothing_is_closed,
            a_client_that_takes_little_is_not
        ]}
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) ->
    lists:foreach(fun(Name) -> ok = weir_http:stop_listener(Name) end, weir:listeners()).

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
    Options = #{ip => ?LOOPBACK, header_timeout => 200, idle_timeout => Long},
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
    until(fun() -> hd(Calls()) >= Before + N end).

%% A listener of the case's own.
start(Options) ->
    Name = make_ref(),
    {ok, _} = weir_http:start_listener(Name, weir_http_client:options(Options#{ip => ?LOOPBACK}), [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}, #{methods => [<<"GET">>]}},
        {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>]}},
        {"/small", weir_http_echo, echo, #{methods => [<<"POST">>], max_body => 10}},
        {"/large", weir_http_echo, {reply, 200, [], binary:copy(<<"x">>, 1000000)}},
        {"/*path", weir_http_echo, {reply, 200, [], <<"other">>}}
    ]),
    {Name, weir:get_port(Name)}.

refused(Port, Status, Reason, Request) ->
    Socket = connect(Port),
    _ = send(Socket, Request),
    Text = <<(atom_to_binary(Reason))/binary, "\n">>,
    ?assertMatch({Status, #{<<"connection">> := <<"close">>}, Text}, response(Socket)),
    ?assert(is_closed(Socket)),
    ok = close(Socket).

post(Path, Fields, Body) -> ["POST ", Path, " HTTP/1.1\r\nHost: localhost\r\n", Fields, "\r\n", Body].

%%% Sizes.

the_request_line(_Config) ->
    {_, Port} = start(#{max_request_line => 100}),
    %% GET / HTTP/1.1 are 14 bytes.
    {200, _, _} = request(Port, get(["/", lists:duplicate(86, $a)])),
    refused(Port, 414, line_too_long, get(["/", lists:duplicate(87, $a)])),
    refused(Port, 414, line_too_long, ["GET /", lists:duplicate(100, $a)]).

the_head(_Config) ->
    {_, Port} = start(#{max_head => 200}),
    Used = iolist_size(get("/", "X: \r\n")),
    {200, _, _} = request(Port, get("/", ["X: ", lists:duplicate(200 - Used, $a), "\r\n"])),
    refused(Port, 431, fields_too_large, get("/", ["X: ", lists:duplicate(201 - Used, $a), "\r\n"])),
    refused(Port, 431, fields_too_large, ["GET / HTTP/1.1\r\nX: ", lists:duplicate(200, $a)]),
    %% In pieces, too. With TLS the end of the connection may come while they are still sent: then they are not.
    Socket = connect(Port),
    _ = [send(Socket, Piece) || Piece <- ["GET / HTTP/1.1\r\nX: " | lists:duplicate(20, "0123456789")]],
    {431, _, _} = response(Socket).

the_number_of_fields(_Config) ->
    {_, Port} = start(#{max_fields => 10}),
    Fields = fun(N) -> lists:duplicate(N, "X: y\r\n") end,
    {200, _, _} = request(Port, get("/", Fields(9))),
    refused(Port, 431, fields_too_large, get("/", Fields(10))).

the_body_of_a_length(_Config) ->
    {_, Port} = start(#{max_body => 1000}),
    Body = lists:duplicate(1000, $a),
    {200, _, _} = request(Port, post("/echo", "Content-Length: 1000\r\n", Body)),
    %% As soon as it is announced, and also where nobody would read it.
    refused(Port, 413, body_too_large, post("/echo", "Content-Length: 1001\r\n", "")),
    refused(Port, 413, body_too_large, post("/echo", "Expect: 100-continue\r\nContent-Length: 1001\r\n", "")),
    refused(Port, 413, body_too_large, post("/nowhere", "Content-Length: 1001\r\n", [Body, $a])).

the_body_in_chunks(_Config) ->
    {_, Port} = start(#{max_body => 1000}),
    Chunk = ["3e8\r\n", lists:duplicate(1000, $a), "\r\n"],
    {200, _, _} = request(Port, post("/echo", "Transfer-Encoding: chunked\r\n", [Chunk, "0\r\n\r\n"])),
    refused(Port, 413, body_too_large, post("/echo", "Transfer-Encoding: chunked\r\n", [Chunk, "1\r\n"])),
    refused(Port, 413, body_too_large, post("/echo", "Transfer-Encoding: chunked\r\n", "3e9\r\n")).

the_body_of_a_route(_Config) ->
    {_, Port} = start(#{max_body => 1000}),
    {200, _, _} = request(Port, post("/small", "Content-Length: 10\r\n", "0123456789")),
    refused(Port, 413, body_too_large, post("/small", "Content-Length: 11\r\n", "0123456789a")).

trailers(_Config) ->
    {_, Port} = start(#{max_head => 500}),
    Last = "Transfer-Encoding: chunked\r\n",
    {200, _, _} = request(Port, post("/echo", Last, ["0\r\nX: ", lists:duplicate(450, $a), "\r\n\r\n"])),
    refused(Port, 431, fields_too_large, post("/echo", Last, ["0\r\nX: ", lists:duplicate(500, $a), "\r\n\r\n"])),
    refused(Port, 431, fields_too_large, post("/echo", Last, ["0\r\nX: ", lists:duplicate(500, $a)])).

requests_of_a_connection(_Config) ->
    {_, Port} = start(#{max_requests => 3}),
    Socket = connect(Port),
    ok = send(Socket, [get("/"), get("/"), get("/"), get("/")]),
    [{200, First, _}, {200, Second, _}, {200, Third, _}] = responses(Socket, 3),
    ?assertEqual([none, none, <<"close">>], [maps:get(<<"connection">>, Fields, none) || Fields <- [First, Second, Third]]),
    ?assert(is_closed(Socket)).

connections(_Config) ->
    {Name, Port} = start(#{max_connections => 2}),
    [First, Second] = [connect(Port) || _ <- [1, 2]],
    [begin ok = send(Socket, get("/")), {200, _, _} = response(Socket) end || Socket <- [First, Second]],
    Third = connect(Port),
    ok = send(Third, get("/")),
    ?assertNot(is_closed(Third, 300)),
    ok = close(First),
    {200, _, _} = response(Third),
    ?assertMatch(#{connections := 2}, weir_http:info(Name)).

%%% Numbers. They are those of `weir:start_listener/4', and reactors of HTTP keep to them.

served(Socket) ->
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    Socket.

%% The reset may be there before the client has seen that it is connected.
is_reset(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]) of
        {ok, Socket} -> lists:member(gen_tcp:recv(Socket, 0, 10000), [{error, econnreset}, {error, closed}]);
        {error, Reason} -> Reason =:= econnreset
    end.

connections_beyond_the_limit_are_reset(_Config) ->
    {Name, Port} = start(#{max_connections => 1, overload => reset}),
    _ = served(connect(Port)),
    ?assert(is_reset(Port)),
    ?assertMatch(#{overload := 1, connections := 1}, weir_http:info(Name)).

connections_in_a_second(_Config) ->
    {Name, Port} = start(#{max_rate => 5}),
    _ = [served(Socket) || Socket <- [connect(Port) || _ <- lists:seq(1, 8)]],
    ?assertMatch(#{requests := 8, rate_pauses := Pauses} when Pauses > 0, weir_http:info(Name)).

connections_of_an_address(_Config) ->
    {Name, Port} = start(#{per_address => 2}),
    [First, _] = [served(connect(Port)) || _ <- [1, 2]],
    ?assert(is_reset(Port)),
    _ = served(connect(Port, [{ip, {127, 0, 0, 2}}])),
    ?assertMatch(#{crowded := 1, connections := 3}, weir_http:info(Name)),
    ok = close(First),
    ok = until(fun() -> map_get(connections, weir_http:info(Name)) =:= 2 end),
    _ = served(connect(Port)).

addresses_that_are_denied(_Config) ->
    {Name, Port} = start(#{deny => ["127.0.0.0/8"], allow => ["127.0.0.2"]}),
    ?assert(is_reset(Port)),
    _ = served(connect(Port, [{ip, {127, 0, 0, 2}}])),
    ?assertMatch(#{denied := 1, requests := 1}, weir_http:info(Name)).

a_proxy_header_that_does_not_come(_Config) ->
    {Name, Port} = start(#{proxy_protocol => true, handshake_timeout => 300}),
    Socket = connect(Port),
    ok = send(Socket, "PROXY TCP4 10.1.2.3 "),
    ?assert(is_closed(Socket)),
    ok = until(fun() -> map_get(failed_handshakes, weir_http:info(Name)) =:= 1 end).

%%% Times.

a_client_that_says_nothing(_Config) ->
    {Name, Port} = start(#{header_timeout => 300}),
    Socket = connect(Port),
    ?assert(is_closed(Socket)),
    ?assertMatch(#{timeouts := 1, requests := 0}, weir_http:info(Name)).

a_head_that_does_not_end(_Config) ->
    {_, Port} = start(#{header_timeout => 300}),
    refused(Port, 408, timeout, "GET / HTTP/1.1\r\nHost"),
    %% The second of a connection as well.
    Socket = connect(Port),
    ok = send(Socket, [get("/"), "GET / HT"]),
    {200, _, _} = response(Socket),
    {408, _, _} = response(Socket),
    ?assert(is_closed(Socket)).

a_head_that_comes_slowly(_Config) ->
    {_, Port} = start(#{header_timeout => 500}),
    Socket = connect(Port),
    ok = send(Socket, "GET / HTTP/1.1\r\n"),
    ?assertEqual(closed, drip(Socket, "X: y\r\n", 50, 200)).

%% Sends the same again and again, until the other side does not take it.
drip(_Socket, _Data, _Pause, 0) ->
    open;
drip(Socket, Data, Pause, N) ->
    timer:sleep(Pause),
    case send(Socket, Data) of
        ok -> drip(Socket, Data, Pause, N - 1);
        {error, _} -> closed
    end.

a_body_that_does_not_end(_Config) ->
    {_, Port} = start(#{body_timeout => 300}),
    refused(Port, 408, timeout, post("/echo", "Content-Length: 5\r\n", "hell")),
    refused(Port, 408, timeout, post("/echo", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n")).

a_body_that_comes_at_the_least_rate(_Config) ->
    {_, Port} = start(#{body_timeout => 1000, min_body_rate => 100}),
    %% Many times the rate, so that a pause does no harm: longer than body_timeout, and served.
    Socket = connect(Port),
    ok = send(Socket, post("/echo", "Content-Length: 10000\r\n", "")),
    [begin timer:sleep(15), ok = send(Socket, lists:duplicate(100, $a)) end || _ <- lists:seq(1, 100)],
    {200, _, _} = response(Socket),
    %% A fifth of it.
    Slow = connect(Port),
    ok = send(Slow, post("/echo", "Content-Length: 4000\r\n", "")),
    ?assertEqual(closed, drip(Slow, "0", 50, 200)).

a_connection_without_requests(_Config) ->
    {Name, Port} = start(#{idle_timeout => 300}),
    Socket = connect(Port),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    ?assert(is_closed(Socket)),
    %% The peer sees the end before the server has counted it.
    ok = until(fun() -> map_get(connections, weir_http:info(Name)) =:= 0 end),
    ?assertMatch(#{timeouts := 0}, weir_http:info(Name)).

a_client_that_stays_after_a_refusal(_Config) ->
    {Name, Port} = start(#{header_timeout => 300}),
    Socket = connect(Port),
    ok = send(Socket, "nonsense\r\n\r\n"),
    {400, _, _} = response(Socket),
    ?assert(is_closed(Socket)),
    %% It neither closes nor stops sending.
    ?assertEqual(closed, drip(Socket, "nonsense", 50, 200)),
    ok = until(fun() -> map_get(connections, weir_http:info(Name)) =:= 0 end).

honest_clients_are_served_beside(_Config) ->
    {_, Port} = start(#{header_timeout => 2000, idle_timeout => 2000}),
    Bad = [connect(Port) || _ <- lists:seq(1, 300)],
    %% The first may be closed before the last is connected.
    [_ = send(Socket, Begun) || {Socket, Begun} <- lists:zip(Bad, lists:flatten(lists:duplicate(100, [
        <<"GET / HTTP/1.1\r\nX">>, <<"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nx">>, <<"\r\n">>])))],
    Honest = connect(Port),
    [begin ok = send(Honest, get("/")), {200, _, <<"hello">>} = response(Honest) end || _ <- lists:seq(1, 200)].

%%% Readers.

%% What a client asks for and does not take is made only in part.
responses_that_are_not_taken_bound_the_requests(_Config) ->
    {Name, Port} = start(#{}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    ok = until(fun() -> map_get(requests, weir_http:info(Name)) > 0 end),
    timer:sleep(300),
    ?assert(map_get(requests, weir_http:info(Name)) < 10),
    %% And all of them are made for one that does.
    [?assertMatch({200, _, _}, response(Socket)) || _ <- lists:seq(1, 20)],
    ?assertMatch(#{requests := 20}, weir_http:info(Name)).

requests_that_are_not_answered_yet_are_bounded(_Config) ->
    {_, Port} = start(#{}),
    Socket = connect(Port, [{recbuf, 4096}, {send_timeout, 1000}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    %% Far more than the buffers of both kernels take: the connection is not read any more.
    Requests = lists:duplicate(1000, get("/", ["X: ", lists:duplicate(4000, $a), "\r\n"])),
    ?assertMatch({error, timeout}, lists:foldl(
        fun(_, ok) -> send(Socket, Requests); (_, Error) -> Error end, ok, lists:seq(1, 20)
    )),
    [{200, _, _} = Response || Response <- responses(Socket, 20)],
    {200, _, <<"hello">>} = response(Socket).

a_client_that_takes_nothing_is_closed(_Config) ->
    {Name, Port} = start(#{idle_timeout => 400}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    ok = until(fun() -> map_get(requests, weir_http:info(Name)) > 0 end),
    %% With TLS the socket itself closes after that time, and nobody counts it.
    ok = until(fun() ->
        #{timeouts := Timeouts, connections := Connections} = weir_http:info(Name),
        Timeouts =:= 1 orelse Connections =:= 0
    end),
    %% What the kernel has not taken lingers for half a minute, unless the client is gone.
    _ = is_port(Socket) andalso inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = close(Socket),
    ok = until(fun() -> map_get(connections, weir_http:info(Name)) =:= 0 end).

a_client_that_takes_little_is_not(_Config) ->
    {_, Port} = start(#{idle_timeout => 1000}),
    Socket = connect(Port, [{recbuf, 4096}, {buffer, 4096}]),
    ok = send(Socket, get("/large", "Connection: close\r\n")),
    ?assert(sip(Socket, 0) > 1000000).

sip(Socket, Taken) when Taken < 300000 ->
    timer:sleep(20),
    {ok, Bytes} = weir_http_client:recv(Socket, 10000),
    sip(Socket, Taken + byte_size(Bytes));
sip(Socket, Taken) ->
    Taken + byte_size(weir_http_client:recv_all(Socket)).
