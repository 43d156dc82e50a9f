%% WebSocket handshakes: which are answered, which are refused, and frames that follow them at once.
-module(weir_http_websocket_handshake_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, response/1]).
-import(weir_http_websocket_client, [upgrade/2, upgraded/1, handshake/1, send/2, text/1, recv/1, recv/2]).
-import(weir_http_websocket_handler, [with/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_handshake,
        no_handshake,
        a_handshake_that_is_refused,
        origins,
        subprotocols,
        options_that_are_wrong,
        what_comes_behind_a_handshake,
        a_handshake_behind_requests,
        values_need_not_be_utf8
    ].

start(Funs) -> start(Funs, #{}).

start(Funs, Options) -> weir_http_websocket_handler:start(?LISTENER, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Handshakes.

%% Field values that are not UTF-8 do not match, and do not crash the handler.
values_need_not_be_utf8(_Config) ->
    Port = start(with(#{deflate => true, origins => [<<"http://a">>]})),
    Statuses = fun(Origins, Fields) ->
        ok = weir_http:set_routes(?LISTENER, [
            {"/websocket", weir_http_websocket_handler, with(#{deflate => true, origins => Origins})}
        ]),
        [element(1, upgrade(connect(Port), [Name, ": ", Value, "\r\n"])) || {Name, Value} <- Fields]
    end,
    Bad = <<"a", 255, "\", ", 254>>,
    Lists = ["Upgrade", "Connection", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"],
    ?assertEqual([101, 101, 101, 101], Statuses(any, [{Name, Bad} || Name <- Lists])),
    Extension = "permessage-deflate; server_max_window_bits=",
    ?assertEqual(
        [101, 101],
        Statuses(any, [{"Sec-WebSocket-Extensions", [Extension, Value]} || Value <- [<<255>>, <<"\"", 255, "\"">>]])
    ),
    [
        ?assertEqual([403, 403], Statuses(Origins, [{"Origin", Bad}, {"Origin", ["http://", Bad]}]))
     || Origins <- [same, [<<"http://a">>]]
    ],
    ?assertEqual(0, counter(crashes)).

a_handshake(_Config) ->
    Port = start(with(#{fields => [{<<"set-cookie">>, <<"a=b">>}]})),
    Client = connect(Port),
    {101, Fields} = upgrade(Client, ""),
    ?assertMatch(
        #{<<"set-cookie">> := <<"a=b">>, <<"upgrade">> := <<"websocket">>, <<"connection">> := <<"upgrade">>}, Fields
    ),
    ?assertNot(is_map_key(<<"content-length">>, Fields)),
    ok = send(Client, text("Hello")),
    {text, <<"Hello">>} = recv(Client),
    ?waitEqual(1, counter(websockets)),
    ?waitEqual(1, counter(websocket_messages)).

no_handshake(_Config) ->
    Client = connect(start(#{})),
    [
        begin
            ok = gen_tcp:send(Client, Request),
            ?assertMatch({Status, _, _}, response(Client), Request)
        end
     || {Status, Request} <- [
            {426, weir_http_client:get("/websocket")},
            {426,
                asking(
                    "Upgrade: websocket\r\nConnection: close-not\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                )},
            {426,
                asking(
                    "Upgrade: other\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                )},
            {426,
                asking(
                    "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 8\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                )},
            {426,
                asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
            {400,
                asking(
                    "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n"
                )},
            {400, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n")}
        ]
    ],
    ok = gen_tcp:send(Client, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 7\r\n")),
    {426,
        #{<<"sec-websocket-version">> := <<"13">>, <<"upgrade">> := <<"websocket">>, <<"connection">> := <<"upgrade">>},
        _} =
        response(Client),
    ok = gen_tcp:send(Client, "HEAD /websocket HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    {426, _, <<>>} = weir_http_client:response(Client, #{is_head => true}),
    %% Names and tokens are case-insensitive, and lists have several elements.
    ok = gen_tcp:send(
        Client,
        asking(
            "UPGRADE: other, WebSocket\r\nConnection: keep-alive,  Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
    ),
    {101, _} = upgraded(Client),
    0 = counter(crashes).

asking(Fields) -> weir_http_client:get("/websocket", Fields).

a_handshake_that_is_refused(_Config) ->
    Port = start(#{handle => fun(_) -> {reply, 401, [], <<"who?">>} end}),
    Client = connect(Port),
    {401, _} = upgrade(Client, ""),
    0 = counter(websockets).

origins(_Config) ->
    Cases = [
        {same, "http://localhost", 101},
        {same, "http://localhost:80", 101},
        {same, "https://localhost", 101},
        {same, "http://localhost:8080", 403},
        {same, "https://example.org", 403},
        {same, "null", 403},
        {same, "http://localhost.example.org", 403},
        {same, "http://localhost@example.org", 403},
        {same, "HTTPS://LOCALHOST:443", 101},
        {same, "https://localhost:80", 403},
        {any, "https://example.org", 101},
        {[<<"https://example.org">>], "https://EXAMPLE.org", 101},
        {[<<"https://example.org">>], "http://localhost", 403}
    ],
    Port = start(#{}),
    [
        begin
            ok = weir_http:set_routes(?LISTENER, [
                {"/websocket", weir_http_websocket_handler, with(#{origins => Origins})}
            ]),
            ?assertMatch({Status, _}, upgrade(connect(Port), ["Origin: ", Origin, "\r\n"]), {Origins, Origin})
        end
     || {Origins, Origin, Status} <- Cases
    ].

subprotocols(_Config) ->
    Port = start(#{
        handle => fun(Request) ->
            Protocol = lists:last(weir_http_websocket:protocols(Request)),
            {websocket, weir_http_websocket_handler, #{}, #{protocol => Protocol}}
        end
    }),
    {101, #{<<"sec-websocket-protocol">> := <<"v1">>}} =
        upgrade(connect(Port), "Sec-WebSocket-Protocol: v2 , other\r\nSec-WebSocket-Protocol: v1\r\n"),
    %% A protocol that the client has not offered: clients fail the connection for that.
    ok = weir_http:set_routes(?LISTENER, [{"/websocket", weir_http_websocket_handler, with(#{protocol => <<"v9">>})}]),
    {500, _} = upgrade(connect(Port), "Sec-WebSocket-Protocol: v2\r\n").

options_that_are_wrong(_Config) ->
    [
        ?assertError(
            {bad_option, Name, Value, _}, weir_http_websocket_options:settings(#{Name => Value}), {Name, Value}
        )
     || {Name, Value} <- [
            {max_message, 0},
            {max_pending, -1},
            {slow, sometimes},
            {idle_timeout, 0},
            {ping_interval, "1"},
            {close_timeout, infinity},
            {drain_code, 1000},
            {origins, all},
            {deflate, 7},
            {deflate, #{level => 10}},
            {deflate, #{window_bits => 8}},
            {protocol, "v1"},
            {fields, none},
            {other, 1}
        ]
    ],
    Port = start(with(#{max_messages => 7})),
    {500, _} = upgrade(connect(Port), ""),
    ok = weir_http:set_routes(?LISTENER, [
        {"/websocket", weir_http_websocket_handler, #{
            handle => fun(_) -> {websocket, lists, none} end
        }}
    ]),
    {500, _} = upgrade(connect(Port), "").

what_comes_behind_a_handshake(_Config) ->
    Client = connect(start(#{})),
    ok = send(Client, [handshake(""), text("one"), text("two"), binary:part(text("three"), 0, 4)]),
    {101, _} = upgraded(Client),
    [{text, <<"one">>}, {text, <<"two">>}] = recv(Client, 2),
    ok = send(Client, binary:part(text("three"), 11, -7)),
    {text, <<"three">>} = recv(Client).

a_handshake_behind_requests(_Config) ->
    Client = connect(start(#{})),
    ok = send(Client, [weir_http_client:get("/direct"), handshake(""), text("behind")]),
    {200, _, <<"direct">>} = response(Client),
    {101, _} = upgraded(Client),
    {text, <<"behind">>} = recv(Client).
