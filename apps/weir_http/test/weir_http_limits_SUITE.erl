%% Each limit of a listener: requests within it are served, those beyond it get a clear status and a close, and other
%% clients are not affected.
-module(weir_http_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [
    connect/1, connect/2, send/2, close/1, response/1, request/2, responses/2, is_closed/1, is_closed/2, get/1, get/2
]).
-import(weir_http_serving, [in_time/1]).
-import(weir_test_wait, [wait_until/1]).

-define(LISTENER, ?MODULE).
-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
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

%% Starts a listener for one case.
start(Options) ->
    Name = make_ref(),
    {ok, _} = weir_http:start_listener(Name, weir_http_client:options(Options#{ip => ?LOOPBACK}), [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}, #{methods => [<<"GET">>]}},
        {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>]}},
        {"/small", weir_http_echo, echo, #{methods => [<<"POST">>], max_body => 10}},
        {"/large", weir_http_echo, {reply, 200, [], binary:copy(<<"x">>, 1_000_000)}},
        {"/larger", weir_http_echo, {reply, 200, [], binary:copy(<<"x">>, 4_000_000)}},
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
    %% "GET / HTTP/1.1" has 14 bytes.
    {200, _, _} = request(Port, get(["/", lists:duplicate(86, $a)])),
    refused(Port, 414, line_too_long, get(["/", lists:duplicate(87, $a)])),
    refused(Port, 414, line_too_long, ["GET /", lists:duplicate(100, $a)]).

the_head(_Config) ->
    {_, Port} = start(#{max_head => 200}),
    Used = iolist_size(get("/", "X: \r\n")),
    {200, _, _} = request(Port, get("/", ["X: ", lists:duplicate(200 - Used, $a), "\r\n"])),
    refused(Port, 431, fields_too_large, get("/", ["X: ", lists:duplicate(201 - Used, $a), "\r\n"])),
    refused(Port, 431, fields_too_large, ["GET / HTTP/1.1\r\nX: ", lists:duplicate(200, $a)]),
    %% In pieces too. With TLS the connection may be closed before all are sent, so sends may fail.
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
    %% As soon as the length is known, also without a route.
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
    ?assertEqual([none, none, <<"close">>], [
        maps:get(<<"connection">>, Fields, none)
     || Fields <- [First, Second, Third]
    ]),
    ?assert(is_closed(Socket)).

connections(_Config) ->
    {Name, Port} = start(#{max_connections => 2}),
    [First, Second] = [connect(Port) || _ <- [1, 2]],
    [begin ok = send(Socket, get("/")), {200, _, _} = response(Socket) end || Socket <- [First, Second]],
    Third = connect(Port),
    ok = send(Third, get("/")),
    ?assertNot(is_closed(Third, 40)),
    ok = close(First),
    {200, _, _} = response(Third),
    ?waitMatch(#{connections := 2}, weir_http:info(Name)).

%%% Limits of connections. They are those of `weir:start_listener/4', and apply to HTTP too.

served(Socket) ->
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    Socket.

%% The reset may arrive before connect/3 has returned.
is_reset(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]) of
        {ok, Socket} ->
            lists:member(gen_tcp:recv(Socket, 0, weir_test_wait:patience()), [{error, econnreset}, {error, closed}]);
        {error, Reason} ->
            Reason =:= econnreset
    end.

connections_beyond_the_limit_are_reset(_Config) ->
    {Name, Port} = start(#{max_connections => 1, overload => reset}),
    _ = served(connect(Port)),
    ?assert(is_reset(Port)),
    ?waitMatch(#{overload := 1, connections := 1}, weir_http:info(Name)).

connections_in_a_second(_Config) ->
    {Name, Port} = start(#{max_rate => 5}),
    %% No pause is needed if the machine takes more than a second for these, so repeat.
    ok = wait_until(fun() ->
        _ = [served(Socket) || Socket <- [connect(Port) || _ <- lists:seq(1, 8)]],
        map_get(rate_pauses, weir_http:info(Name)) > 0
    end).

connections_of_an_address(_Config) ->
    {Name, Port} = start(#{per_address => 2}),
    [First, _] = [served(connect(Port)) || _ <- [1, 2]],
    ?assert(is_reset(Port)),
    _ = served(connect(Port, [{ip, {127, 0, 0, 2}}])),
    ?waitMatch(#{crowded := 1, connections := 3}, weir_http:info(Name)),
    ok = close(First),
    ?waitEqual(2, map_get(connections, weir_http:info(Name))),
    _ = served(connect(Port)).

addresses_that_are_denied(_Config) ->
    {Name, Port} = start(#{deny => ["127.0.0.0/8"], allow => ["127.0.0.2"]}),
    ?assert(is_reset(Port)),
    _ = served(connect(Port, [{ip, {127, 0, 0, 2}}])),
    ?waitMatch(#{denied := 1, requests := 1}, weir_http:info(Name)).

a_proxy_header_that_does_not_come(_Config) ->
    {Name, Port} = start(#{proxy_protocol => true, handshake_timeout => 300}),
    Socket = connect(Port),
    _ = send(Socket, "PROXY TCP4 10.1.2.3 "),
    ?assert(is_closed(Socket)),
    ?waitEqual(1, map_get(failed_handshakes, weir_http:info(Name))).

%%% Times.

a_client_that_says_nothing(_Config) ->
    {Name, Port} = start(#{header_timeout => 300}),
    Socket = connect(Port),
    ?assert(is_closed(Socket)),
    ?waitMatch(#{timeouts := 1, requests := 0}, weir_http:info(Name)).

a_head_that_does_not_end(_Config) ->
    ?assertEqual([408], refused_late("GET / HTTP/1.1\r\nHost")),
    %% Also for the second request of a connection.
    ?assertEqual([200, 408], refused_late([get("/"), "GET / HT"])).

%% Returns the statuses of the responses to a head that does not end.
refused_late(Begin) ->
    in_time(fun(Limit) ->
        {_, Port} = start(#{header_timeout => Limit}),
        {Took, Socket} = weir_test_wait:timed(fun() ->
            Socket = connect(Port),
            _ = send(Socket, Begin),
            Socket
        end),
        Text = weir_http_client:recv_all(Socket),
        _ =
            Took =< Limit div 2 andalso
                ?assertMatch({match, _}, re:run(Text, "\r\nconnection: close\r\n(?s:.*)timeout\n$")),
        {Took, weir_http_client:statuses(Text)}
    end).

a_head_that_comes_slowly(_Config) ->
    {_, Port} = start(#{header_timeout => 500}),
    Socket = connect(Port),
    _ = send(Socket, "GET / HTTP/1.1\r\n"),
    drip(Socket, "X: y\r\n").

%% Sends the same data repeatedly until sending fails.
drip(Socket, Data) ->
    timer:sleep(50),
    send(Socket, Data) =:= ok andalso drip(Socket, Data).

a_body_that_does_not_end(_Config) ->
    {_, Port} = start(#{body_timeout => 100}),
    refused(Port, 408, timeout, post("/echo", "Content-Length: 5\r\n", "hell")),
    refused(Port, 408, timeout, post("/echo", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n")).

a_body_that_comes_at_the_least_rate(_Config) ->
    %% The rate extends the time to minutes: a body that ends long after body_timeout is served.
    {_, Port} = start(#{body_timeout => 100, min_body_rate => 40}),
    Socket = connect(Port),
    ok = send(Socket, post("/echo", "Content-Length: 10000\r\n", lists:duplicate(9999, $a))),
    timer:sleep(400),
    ok = send(Socket, "a"),
    {200, _, _} = response(Socket),
    %% A fiftieth of the required rate.
    {_, SlowPort} = start(#{body_timeout => 200, min_body_rate => 1000}),
    Slow = connect(SlowPort),
    ok = send(Slow, post("/echo", "Content-Length: 4000\r\n", "")),
    drip(Slow, "0").

a_connection_without_requests(_Config) ->
    {Name, Port} = start(#{idle_timeout => 300}),
    Socket = connect(Port),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    ?assert(is_closed(Socket)),
    %% The client sees the close before the server counts it.
    ?waitEqual(0, map_get(connections, weir_http:info(Name))),
    ?assertMatch(#{timeouts := 0}, weir_http:info(Name)).

a_client_that_stays_after_a_refusal(_Config) ->
    {Name, Port} = start(#{body_timeout => 100}),
    Socket = connect(Port),
    ok = send(Socket, "nonsense\r\n\r\n"),
    {400, _, _} = response(Socket),
    ?assert(is_closed(Socket)),
    %% The client neither closes nor stops sending.
    drip(Socket, "nonsense"),
    ?waitEqual(0, map_get(connections, weir_http:info(Name))).

honest_clients_are_served_beside(_Config) ->
    {_, Port} = start(#{}),
    Bad = [connect(Port) || _ <- lists:seq(1, 300)],
    [
        _ = send(Socket, Begun)
     || {Socket, Begun} <- lists:zip(
            Bad,
            lists:flatten(
                lists:duplicate(100, [
                    <<"GET / HTTP/1.1\r\nX">>,
                    <<"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nx">>,
                    <<"\r\n">>
                ])
            )
        )
    ],
    Honest = connect(Port),
    [
        begin
            ok = send(Honest, get("/")),
            {200, _, <<"hello">>} = response(Honest)
        end
     || _ <- lists:seq(1, 200)
    ].

%%% Readers.

%% Responses that the client does not read are made only in part.
responses_that_are_not_taken_bound_the_requests(_Config) ->
    {Name, Port} = start(#{socket_opts => [{sndbuf, 65536}]}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    ok = wait_until(fun() -> map_get(requests, weir_http:info(Name)) > 0 end),
    timer:sleep(40),
    ?assert(map_get(requests, weir_http:info(Name)) < 10),
    %% All are made once the client reads.
    ok = weir_http_client:take_more(Socket),
    [?assertMatch({200, _, _}, response(Socket)) || _ <- lists:seq(1, 20)],
    ?waitMatch(#{requests := 20}, weir_http:info(Name)).

requests_that_are_not_answered_yet_are_bounded(_Config) ->
    {_, Port} = start(#{}),
    Socket = connect(Port, [{recbuf, 4096}, {send_timeout, 200}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    %% Far more than the buffers of both kernels hold: the connection is no longer read.
    Requests = lists:duplicate(1000, get("/", ["X: ", lists:duplicate(4000, $a), "\r\n"])),
    ?assertMatch({error, timeout}, lists:foldl(
        fun(_, ok) -> send(Socket, Requests); (_, Error) -> Error end, ok, lists:seq(1, 20)
    )),
    ok = weir_http_client:take_more(Socket),
    [{200, _, _} = Response || Response <- responses(Socket, 20)],
    {200, _, <<"hello">>} = response(Socket).

a_client_that_takes_nothing_is_closed(_Config) ->
    {Name, Port} = start(#{idle_timeout => 400}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, lists:duplicate(20, get("/large"))),
    ok = wait_until(fun() -> map_get(requests, weir_http:info(Name)) > 0 end),
    %% With TLS the socket itself closes after that time, without counting it.
    ok = wait_until(fun() ->
        #{timeouts := Timeouts, connections := Connections} = weir_http:info(Name),
        Timeouts =:= 1 orelse Connections =:= 0
    end),
    %% Unsent bytes linger in the kernel for half a minute, unless the client resets.
    _ = is_port(Socket) andalso inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = close(Socket),
    ?waitEqual(0, map_get(connections, weir_http:info(Name))).

a_client_that_takes_little_is_not(_Config) ->
    ?assert(in_time(fun(Limit) -> take_little("/large", 4096, 10, Limit) end) > 1_000_000).

%% Reads a response slowly, with that pause in milliseconds between reads. Returns the longest time for Window bytes,
%% and the number of bytes read.
take_little(Path, Window, Pause, Limit) ->
    %% Small buffers, so that the server notices each read.
    {_, Port} = start(#{idle_timeout => Limit, socket_opts => [{sndbuf, 4096}]}),
    Socket = connect(Port, [{recbuf, 4096}, {buffer, 4096}]),
    ok = send(Socket, get(Path, "Connection: close\r\n")),
    Now = erlang:monotonic_time(millisecond),
    sip(Socket, {Window, Pause, Now + 2 * Limit}, {Now, 0}, 0).

%% Reads slowly until a time, and then at full speed.
sip(Socket, {Window, Pause, Until} = How, {Since, Longest}, Taken) ->
    erlang:monotonic_time(millisecond) < Until andalso timer:sleep(Pause),
    Got = weir_http_client:recv(Socket, weir_test_wait:patience()),
    Now = erlang:monotonic_time(millisecond),
    case Got of
        {ok, Bytes} when (Taken + byte_size(Bytes)) div Window > Taken div Window ->
            sip(Socket, How, {Now, max(Longest, Now - Since)}, Taken + byte_size(Bytes));
        {ok, Bytes} ->
            sip(Socket, How, {Since, Longest}, Taken + byte_size(Bytes));
        {error, _} ->
            {max(Longest, Now - Since), Taken}
    end.
