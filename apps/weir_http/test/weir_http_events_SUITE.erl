%% Events of requests and connections, request ids, and CORS.
-module(weir_http_events_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, close/1, response/1, request/2, get/1, get/2]).
-import(weir_http_serving, [in_time/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_request_stops,
        a_request_of_a_process_stops,
        a_client_that_is_gone,
        a_handler_that_fails,
        what_is_refused,
        a_connection_that_is_given_up,
        connections_begin_and_end,
        nothing_is_measured_for_nobody,
        requests_have_names,
        names_are_taken_if_they_can_stand_anywhere,
        a_page_of_another_origin,
        a_preflight,
        origins_are_compared_byte_by_byte,
        any_origin,
        wrong_cors
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_event:detach(?MODULE),
    _ = weir_http:stop_listener(?LISTENER),
    ok.

start(Options) -> start(Options, []).

start(Options, Routes) ->
    {ok, _} = weir_http:start_listener(?LISTENER, Options#{ip => {127, 0, 0, 1}}, [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}},
        {"/raise", weir_http_echo, {call, fun(_) -> error(on_purpose) end}},
        {"/serve", weir_http_serving, fun(Request) ->
            case weir_http_request:query(Request) of
                <<"wait">> -> receive never -> ok end;
                <<"raise">> -> throw(on_purpose);
                <<>> -> {reply, 201, [], <<"made">>}
            end
        end}
        | Routes
    ]),
    weir:get_port(?LISTENER).

attach(Events) ->
    Self = self(),
    ok = weir_event:attach_many(
        ?MODULE, Events, fun(Event, Measurements, Metadata, _) -> Self ! {event, Event, Measurements, Metadata} end, []
    ).

event() ->
    receive
        {event, Event, Measurements, Metadata} -> {Event, Measurements, Metadata}
    after weir_test_wait:patience() -> error(no_event)
    end.

%%% Events.

a_request_stops(_Config) ->
    attach([[weir, request, stop]]),
    Port = start(#{request_ids => make}),
    {200, #{<<"x-request-id">> := Id}, _} = request(Port, get("/?a")),
    {Event, Measurements, Metadata} = event(),
    ?assertEqual([weir, request, stop], Event),
    ?assertMatch(#{bytes := 5, monotonic_time := _}, Measurements),
    ?assert(map_get(duration, Measurements) >= 0),
    ?assertMatch(
        #{
            name := ?LISTENER, method := <<"GET">>, path := <<"/">>, status := 200, request_id := Id, reason := normal,
            peer := {{127, 0, 0, 1}, _}, socket := _, pid := _
        },
        Metadata
    ),
    {404, _, _} = request(Port, get("/nowhere")),
    ?assertMatch({_, #{bytes := 0}, #{status := 404}}, event()).

a_request_of_a_process_stops(_Config) ->
    attach([[weir, request, stop]]),
    Port = start(#{}),
    {201, _, _} = request(Port, get("/serve")),
    ?assertMatch(
        {_, #{bytes := 4}, #{status := 201, reason := normal, path := <<"/serve">>, request_id := undefined}}, event()
    ).

a_client_that_is_gone(_Config) ->
    attach([[weir, request, stop]]),
    Port = start(#{}),
    Socket = connect(Port),
    ok = send(Socket, get("/serve?wait")),
    ?waitEqual(1, map_get(requests, weir_http:info(?LISTENER))),
    ok = close(Socket),
    ?assertMatch({_, #{bytes := 0}, #{status := 499, reason := client_gone}}, event()).

a_handler_that_fails(_Config) ->
    attach([[weir, request, exception], [weir, request, stop]]),
    Port = start(#{}),
    {500, _, _} = request(Port, get("/raise")),
    ?assertMatch(
        {[weir, request, exception], #{count := 1}, #{
            kind := error, reason := on_purpose, path := <<"/raise">>, stacktrace := [_ | _]
        }},
        event()
    ),
    ?assertMatch({[weir, request, stop], _, #{status := 500}}, event()),
    {500, _, _} = request(Port, get("/serve?raise")),
    ?assertMatch({[weir, request, exception], _, #{kind := throw, reason := on_purpose}}, event()),
    ?assertMatch({[weir, request, stop], _, #{status := 500}}, event()).

what_is_refused(_Config) ->
    attach([[weir, request, refuse], [weir, request, timeout]]),
    Port = start(#{max_body => 10}),
    {400, _, Text} = request(Port, "nonsense\r\n\r\n"),
    {_, #{count := 1}, #{status := 400, reason := Reason, peer := {{127, 0, 0, 1}, _}}} = event(),
    ?assertEqual(Text, <<(atom_to_binary(Reason))/binary, "\n">>),
    {413, _, _} = request(Port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"),
    ?assertMatch({_, _, #{status := 413, reason := body_too_large}}, event()),
    ok = weir_http:stop_listener(?LISTENER),
    ?assertMatch(#{status := 408, reason := timeout}, in_time(fun refused_late/1)).

%% Returns the event of a request whose head does not end. A client that is too slow is not refused.
refused_late(Limit) ->
    Late = start(#{header_timeout => Limit}),
    {Took, Socket} = weir_test_wait:timed(fun() ->
        Socket = connect(Late),
        _ = send(Socket, "GET / HTTP"),
        Socket
    end),
    {_, _, Metadata} = event(),
    ok = close(Socket),
    ok = weir_http:stop_listener(?LISTENER),
    {Took, Metadata}.

a_connection_that_is_given_up(_Config) ->
    attach([[weir, request, timeout]]),
    Port = start(#{header_timeout => 300}),
    Socket = connect(Port),
    ?assertMatch({_, #{count := 1}, #{name := ?LISTENER, peer := {{127, 0, 0, 1}, _}}}, event()),
    ok = close(Socket).

connections_begin_and_end(_Config) ->
    attach([[weir, connection, start], [weir, connection, stop]]),
    Port = start(#{body_timeout => 200}),
    Socket = connect(Port),
    {ok, {_, Mine}} = inet:sockname(Socket),
    {[weir, connection, start], #{system_time := _}, #{peer := {_, Mine}, name := ?LISTENER}} = event(),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    ok = close(Socket),
    {[weir, connection, stop], #{duration := _}, #{peer := {_, Mine}, reason := closed}} = event(),
    %% A connection closed by the server, and one whose last response was a refusal.
    {200, _, _} = request(Port, get("/", "Connection: close\r\n")),
    [{[weir, connection, start], _, _}, {[weir, connection, stop], _, _}] = [event(), event()],
    {400, _, _} = request(Port, "nonsense\r\n\r\n"),
    [{[weir, connection, start], _, _}, {[weir, connection, stop], _, _}] = [event(), event()],
    %% A client that stays connected after a refusal.
    Stays = connect(Port),
    ok = send(Stays, "nonsense\r\n\r\n"),
    [{[weir, connection, start], _, _}, {[weir, connection, stop], _, #{reason := normal}}] = [event(), event()],
    ok = close(Stays).

nothing_is_measured_for_nobody(_Config) ->
    Port = start(#{}, [{"/begun", weir_http_echo, {call, fun(Request) ->
        {reply, 200, [], atom_to_binary(weir_http_request:begun(Request))}
    end}}]),
    ?assertMatch({200, _, <<"undefined">>}, request(Port, get("/begun"))).

%%% Request ids.

requests_have_names(_Config) ->
    Port = start(#{request_ids => make}, [
        {"/id", weir_http_echo, {call, fun(Request) -> {reply, 200, [], weir_http_request:id(Request)} end}}
    ]),
    Socket = connect(Port),
    ok = send(Socket, [
        get("/id", "X-Request-Id: given\r\n"), get("/id"), get("/nowhere"), get("/raise"), get("/serve")
    ]),
    {200, #{<<"x-request-id">> := First}, First} = response(Socket),
    {200, #{<<"x-request-id">> := Second}, Second} = response(Socket),
    Others = [Id || {_, #{<<"x-request-id">> := Id}, _} <- weir_http_client:responses(Socket, 3)],
    ?assertEqual(5, length(lists:usort([First, Second | Others]))),
    ?assertMatch({match, _}, re:run(First, "^[0-9A-F]{24}$")).

names_are_taken_if_they_can_stand_anywhere(_Config) ->
    Port = start(#{request_ids => take}),
    Answered = fun(Given) ->
        {200, #{<<"x-request-id">> := Id}, _} = request(Port, get("/", ["X-Request-Id: ", Given, "\r\n"])),
        Id
    end,
    [
        ?assertEqual(iolist_to_binary(Given), Answered(Given))
     || Given <- ["a", "4bf92f35-77b3/4d:a6+a3=", lists:duplicate(128, $a)]
    ],
    [
        ?assertMatch({match, _}, re:run(Answered(Given), "^[0-9A-F]{24}$"))
     || Given <- ["", "a b", "a\"b", "a,b", [233], lists:duplicate(129, $a), "a\r\nX-Request-Id: b"]
    ],
    {error, {bad_option, request_ids, true, _}} = weir_http:start_listener(other, #{request_ids => true}, []).

%%% CORS.

with_cors(Cors) ->
    start(#{}, [
        {"/api", weir_http_echo, {reply, 200, [], <<"api">>}, #{methods => [<<"GET">>], cors => Cors}},
        {"/api", weir_http_serving, fun(_) -> error(on_purpose) end, #{methods => [<<"PUT">>], cors => Cors}},
        {"/api", weir_http_echo, {reply, 200, [], <<"post">>}, #{methods => [<<"POST">>]}}
    ]).

about_access(Fields) ->
    maps:filter(
        fun
            (<<"access-control-", _/binary>>, _) -> true;
            (Name, _) -> Name =:= <<"vary">>
        end,
        Fields
    ).

a_page_of_another_origin(_Config) ->
    Port = with_cors(#{
        origins => [<<"https://a.example">>], credentials => true, expose => [<<"x-total">>, <<"etag">>]
    }),
    Allowed = #{
        <<"access-control-allow-origin">> => <<"https://a.example">>,
        <<"access-control-allow-credentials">> => <<"true">>,
        <<"access-control-expose-headers">> => <<"x-total, etag">>,
        <<"vary">> => <<"origin">>
    },
    {200, Fields, <<"api">>} = request(Port, get("/api", "Origin: https://a.example\r\n")),
    ?assertEqual(Allowed, about_access(Fields)),
    %% The page may see that the request failed.
    {500, Failed, _} = request(
        Port, "PUT /api HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\nContent-Length: 0\r\n\r\n"
    ),
    ?assertEqual(Allowed, about_access(Failed)),
    %% Caches must not use this response for other origins.
    {200, Without, _} = request(Port, get("/api")),
    ?assertEqual(#{<<"vary">> => <<"origin">>}, about_access(Without)),
    {200, Elsewhere, _} = request(Port, get("/", "Origin: https://a.example\r\n")),
    ?assertEqual(#{}, about_access(Elsewhere)).

preflight(Port, Origin, Method, Fields) ->
    request(Port, [
        "OPTIONS /api HTTP/1.1\r\nHost: a\r\nOrigin: ",
        Origin,
        "\r\nAccess-Control-Request-Method: ",
        Method,
        "\r\n",
        Fields,
        "\r\n"
    ]).

a_preflight(_Config) ->
    Port = with_cors(#{
        origins => [<<"https://a.example">>], headers => [<<"content-type">>, <<"x-token">>], max_age => 60
    }),
    {204, Fields, <<>>} = preflight(Port, "https://a.example", "PUT", "Access-Control-Request-Headers: x-token\r\n"),
    ?assertEqual(
        #{
            <<"access-control-allow-origin">> => <<"https://a.example">>,
            <<"access-control-allow-methods">> => <<"PUT">>,
            <<"access-control-allow-headers">> => <<"content-type, x-token">>,
            <<"access-control-max-age">> => <<"60">>,
            <<"vary">> => <<"origin, access-control-request-method, access-control-request-headers">>
        },
        about_access(Fields)
    ),
    %% The route for that method has no such option, or does not exist.
    [
        ?assertMatch({204, #{<<"allow">> := _}, <<>>}, preflight(Port, "https://a.example", Method, ""))
     || Method <- ["POST", "DELETE"]
    ],
    {204, Post, _} = preflight(Port, "https://a.example", "POST", ""),
    ?assertEqual(#{}, about_access(Post)),
    %% An OPTIONS request that is not a preflight.
    {204, #{<<"allow">> := <<"GET, HEAD, PUT, POST, OPTIONS">>}, _} = request(
        Port, "OPTIONS /api HTTP/1.1\r\nHost: a\r\n\r\n"
    ).

origins_are_compared_byte_by_byte(_Config) ->
    Port = with_cors(#{origins => [<<"https://a.example">>, <<"http://localhost:8080">>]}),
    [
        begin
            {200, Fields, _} = request(Port, get("/api", ["Origin: ", Origin, "\r\n"])),
            ?assertEqual(#{<<"vary">> => <<"origin">>}, about_access(Fields), Origin),
            {204, Preflight, _} = preflight(Port, Origin, "GET", ""),
            ?assertNot(is_map_key(<<"access-control-allow-origin">>, Preflight))
        end
     || Origin <- [
            "https://b.example",
            "http://a.example",
            "https://a.example.evil",
            "https://a.example:444",
            "null",
            "https://A.example"
        ]
    ],
    {200, #{<<"access-control-allow-origin">> := <<"http://localhost:8080">>}, _} =
        request(Port, get("/api", "Origin: http://localhost:8080\r\n")).

any_origin(_Config) ->
    Port = with_cors(#{origins => any, headers => any}),
    {200, Fields, _} = request(Port, get("/api", "Origin: https://whoever\r\n")),
    ?assertEqual(#{<<"access-control-allow-origin">> => <<"*">>}, about_access(Fields)),
    {204, #{<<"access-control-allow-headers">> := <<"x-a,x-b">>, <<"access-control-allow-origin">> := <<"*">>}, _} =
        preflight(Port, "https://whoever", "GET", "Access-Control-Request-Headers: x-a,x-b\r\n").

wrong_cors(_Config) ->
    [
        ?assertMatch(
            {error, {bad_option, routes, {cors, Wrong}, [_ | _]}},
            weir_http:start_listener(?LISTENER, #{}, [{"/", weir_http_echo, echo, #{cors => Cors}}])
        )
     || {Wrong, Cors} <- [
            {#{origins => any, credentials => true}, #{origins => any, credentials => true}},
            {#{credentials => true}, #{credentials => true}},
            {on, on},
            {{origins, [<<"https://a.example/">>]}, #{origins => [<<"https://a.example/">>]}},
            {{origins, [<<"a.example">>]}, #{origins => [<<"a.example">>]}},
            {{origins, [<<"*">>]}, #{origins => [<<"*">>]}},
            {{origins, ["https://a.example"]}, #{origins => ["https://a.example"]}},
            {{headers, [<<"a\r\nb: c">>]}, #{origins => any, headers => [<<"a\r\nb: c">>]}},
            {{max_age, -1}, #{origins => any, max_age => -1}},
            {{methods, []}, #{origins => any, methods => []}}
        ]
    ].
