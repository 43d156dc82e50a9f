%% Handlers in their own process: replies, streams, and results that continue in the reactor.
-module(weir_http_process_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [
    connect/1, connect/2, send/2, response/1, response/2, request/2, is_closed/1, get/1, head/1, chunk/1
]).
-import(weir_http_serving, [told/0, told/1, watch/1, watched/0]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        it_waits_and_others_are_served,
        requests_stay_in_order,
        a_stream_in_chunks,
        a_stream_for_an_old_client,
        a_stream_for_head,
        a_stream_waits_for_its_client,
        a_large_piece_is_one_chunk,
        responses_that_are_not_taken_stop_the_next_process,
        a_websocket,
        an_event_stream,
        a_held_request,
        what_cannot_go_on_is_a_500,
        wrong_calls_fail,
        a_direct_handler_goes_on_with_its_bindings,
        stopping_the_listener_ends_processes
    ].

serve(Fun) -> serve(Fun, #{}, #{}).

serve(Fun, RouteOptions, Options) -> weir_http_serving:start(?LISTENER, Fun, RouteOptions, Options).

%%% Responses.

it_waits_and_others_are_served(_Config) ->
    Self = self(),
    Port = serve(fun(_) ->
        Self ! {told, self()},
        receive {answer, Text} -> {reply, 200, [], Text} end
    end),
    Waiting = connect(Port),
    ok = send(Waiting, get("/serve")),
    Pid = told(),
    {200, _, <<"direct">>} = request(Port, get("/direct")),
    Pid ! {answer, <<"at last">>},
    {200, _, <<"at last">>} = response(Waiting),
    ok = send(Waiting, get("/direct")),
    {200, _, <<"direct">>} = response(Waiting).

requests_stay_in_order(_Config) ->
    Port = serve(fun(Request) ->
        Number = weir_http_request:query(Request),
        timer:sleep(binary_to_integer(Number) rem 3),
        {reply, 200, [], Number}
    end),
    Socket = connect(Port),
    Numbers = [integer_to_binary(N) || N <- lists:seq(1, 100)],
    ok = send(Socket, [[get(["/serve?", N]), get("/direct")] || N <- Numbers]),
    [
        begin
            ?assertMatch({200, _, N}, response(Socket)),
            ?assertMatch({200, _, <<"direct">>}, response(Socket))
        end
     || N <- Numbers
    ],
    ?waitMatch(#{requests := 200}, weir_http:info(?LISTENER)).

a_stream_in_chunks(_Config) ->
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, [{<<"content-type">>, <<"text/plain">>}]),
        [
            ok = weir_http_process:send(Piece)
         || Piece <- [<<"one">>, [], ["t", $w, <<"o">>], <<>>, binary:copy(<<"x">>, 300)]
        ],
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, [get("/serve"), get("/direct")]),
    ?assertMatch(
        {200, #{<<"content-type">> := <<"text/plain">>, <<"transfer-encoding">> := <<"chunked">>, <<"date">> := _}},
        head(Socket)
    ),
    ?assertEqual([<<"one">>, <<"two">>, binary:copy(<<"x">>, 300), done], [chunk(Socket) || _ <- lists:seq(1, 4)]),
    {200, _, <<"direct">>} = response(Socket).

a_stream_for_an_old_client(_Config) ->
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        ok = weir_http_process:send(<<"one">>),
        ok = weir_http_process:send(<<"two">>),
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, "GET /serve HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    Text = weir_http_client:recv_all(Socket),
    ?assertMatch({match, _}, re:run(Text, "\r\nconnection: close\r\n\r\nonetwo$")),
    ?assertEqual(nomatch, re:run(Text, "transfer-encoding|content-length")).

a_stream_for_head(_Config) ->
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        ok = weir_http_process:send(<<"nobody sees this">>),
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, ["HEAD /serve HTTP/1.1\r\nHost: a\r\n\r\n", get("/direct")]),
    {200, #{<<"transfer-encoding">> := <<"chunked">>}, <<>>} = response(Socket, #{is_head => true}),
    {200, _, <<"direct">>} = response(Socket).

a_stream_waits_for_its_client(_Config) ->
    Self = self(),
    Piece = binary:copy(<<"x">>, 10000),
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        lists:foreach(fun(N) -> ok = weir_http_process:send(Piece), Self ! {sent, N} end, lists:seq(1, 2000)),
        streamed
    end),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/serve")),
    told({sent, 1}),
    %% 20 MB to send. When the buffers of both kernels are full, the process waits.
    ?assert(when_it_stops(0) < 1900),
    [{Connection, _}] = weir:connections(?LISTENER),
    ?assertMatch({ok, [{send_pend, Pending}]} when Pending < 200000, inet:getstat(Connection, [send_pend])),
    ok = weir_http_client:take_more(Socket),
    {200, _} = head(Socket),
    ?assertEqual([Piece], lists:usort([chunk(Socket) || _ <- lists:seq(1, 2000)])),
    done = chunk(Socket).

%% Returns the number of messages when no more arrive. On a busy machine that may be too early, which does no harm.
when_it_stops(Before) ->
    timer:sleep(40),
    case process_info(self(), message_queue_len) of
        {message_queue_len, Before} -> Before;
        {message_queue_len, More} -> when_it_stops(More)
    end.

a_large_piece_is_one_chunk(_Config) ->
    Large = binary:copy(<<"0123456789">>, 30000),
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        ok = weir_http_process:send(<<"small">>),
        ok = weir_http_process:send(Large),
        ok = weir_http_process:send(Large),
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    {200, _} = head(Socket),
    ?assertMatch([<<"small">>, Large, Large, done], [chunk(Socket) || _ <- lists:seq(1, 4)]).

responses_that_are_not_taken_stop_the_next_process(_Config) ->
    Large = binary:copy(<<"x">>, 1000000),
    Port = serve(fun(_) -> {reply, 200, [], Large} end, #{}, #{socket_opts => [{sndbuf, 65536}]}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, lists:duplicate(20, get("/serve"))),
    ok = wait_until(fun() -> map_get(requests, weir_http:info(?LISTENER)) > 0 end),
    timer:sleep(40),
    ?assert(map_get(requests, weir_http:info(?LISTENER)) < 10),
    ok = weir_http_client:take_more(Socket),
    [?assertMatch({200, _, Large}, response(Socket)) || _ <- lists:seq(1, 20)].

%%% Results that continue in the reactor.

a_websocket(_Config) ->
    Port = serve(fun(_) -> {websocket, weir_http_websocket_handler, #{}} end),
    Client = connect(Port),
    Text = weir_http_websocket_client:text("early"),
    ok = send(Client, [string:replace(weir_http_websocket_client:handshake(""), "/websocket", "/serve"), Text]),
    {101, _, <<>>} = response(Client),
    ?assertEqual({text, <<"early">>}, weir_http_websocket_client:recv(Client)),
    ok = weir_http_websocket_client:send(Client, weir_http_websocket_client:text("late")),
    ?assertEqual({text, <<"late">>}, weir_http_websocket_client:recv(Client)),
    %% A request that is not a handshake is refused, and the connection stays usable.
    ?assertMatch({426, _, _}, request(Port, get("/serve"))).

an_event_stream(_Config) ->
    Self = self(),
    Open = fun(_, State) -> {close, #{data => "1"}, State} end,
    Port = serve(fun(_) -> {events, weir_http_funs, #{tell => Self, open => Open}} end),
    Client = connect(Port),
    ok = send(Client, get("/serve")),
    ?assertMatch({match, _}, re:run(weir_http_client:recv_all(Client), "text/event-stream.*data: 1", [dotall])).

a_held_request(_Config) ->
    Self = self(),
    Port = serve(fun(_) -> {hold, weir_http_funs, #{tell => Self}} end),
    Client = connect(Port),
    ok = send(Client, [get("/serve"), get("/direct")]),
    Held = receive {open, Known} -> Known after weir_test_wait:patience() -> error(not_open) end,
    ok = weir_http_held:reply(Held, {reply, 200, [], <<"at last">>}),
    ?assertMatch([{200, _, <<"at last">>}, {200, _, <<"direct">>}], weir_http_client:responses(Client, 2)).

what_cannot_go_on_is_a_500(_Config) ->
    Port = serve(fun(Request) ->
        case weir_http_request:method(Request) of
            <<"GET">> -> {events, no_such_module, none};
            %% The body was not read.
            <<"POST">> -> {hold, weir_http_funs, #{tell => self()}}
        end
    end, #{body => stream}, #{}),
    ?assertMatch({500, _, _}, request(Port, get("/serve"))),
    ?assertMatch({500, _, _}, request(Port, "POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")).

wrong_calls_fail(_Config) ->
    ?assertError(not_a_process_of_weir_http, weir_http_process:send(<<"a">>)),
    Self = self(),
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        Self ! {told, catch weir_http_process:stream(Request, 200, [])},
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    ?assertMatch({'EXIT', {response_has_begun, _}}, told()),
    {error, {bad_option, routes, {body, stream}, _}} =
        weir_http:set_routes(?LISTENER, [{"/", weir_http_echo, echo, #{body => stream}}]).

a_direct_handler_goes_on_with_its_bindings(_Config) ->
    Port = serve(fun(_) -> {reply, 200, [], <<>>} end),
    On = fun(_) ->
        {process, fun(Request) -> {reply, 200, [], maps:get(name, weir_http_request:bindings(Request))} end}
    end,
    ok = weir_http:set_routes(?LISTENER, [{"/hello/:name", weir_http_echo, {call, On}}]),
    Socket = connect(Port),
    ok = send(Socket, get("/hello/joe")),
    ?assertMatch({200, _, <<"joe">>}, response(Socket)).

stopping_the_listener_ends_processes(_Config) ->
    Self = self(),
    Port = serve(fun(_) -> Self ! {told, self()}, watched(), receive never -> ok end end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Monitor = watch(told()),
    ok = weir_http:stop_listener(?LISTENER),
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({shutdown, client_gone}, Reason) end,
    ?assert(is_closed(Socket)).
