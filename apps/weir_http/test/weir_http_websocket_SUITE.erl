%% WebSockets: handshakes, what handlers may do, what clients may not, and how they end.
-module(weir_http_websocket_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, response/1, is_closed/1]).
-import(weir_http_websocket_client, [open/1, open/2, upgrade/2, handshake/1, send/2, send/3, frame/2, text/1, recv/1, recv/2, closes/1]).
-import(weir_http_serving, [told/0, until/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {seconds, 60}}].

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
        open_comes_first,
        a_group_from_the_beginning,
        frames_of_all_kinds,
        frames_that_may_not_be_sent,
        any_process_sends,
        messages_for_a_handler,
        a_handler_closes,
        the_client_closes,
        the_client_is_gone,
        the_listener_stops,
        a_handler_that_fails,
        a_close_that_is_not_answered,
        broken_protocol,
        limits,
        pings_and_silence,
        a_drain,
        a_client_that_does_not_read,
        a_client_that_does_not_read_what_it_asked_for,
        frames_are_dropped,
        a_process,
        a_process_that_is_slow,
        a_process_ends,
        a_process_is_told_of_the_end,
        a_process_whose_reactor_is_killed_ends,
        the_same_with_tls
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?LISTENER),
    ok.

start(Funs) -> start(Funs, #{}).

start(Funs, Options) -> weir_http_websocket_handler:start(?LISTENER, Funs, Options).

with(Options) -> #{options => Options}.

%% What a case hears of the end of its WebSocket.
telling(Funs) ->
    Self = self(),
    Funs#{closed => fun(Reason, _) -> Self ! {told, Reason} end}.

telling_open(Funs) ->
    Self = self(),
    Funs#{open => fun(Socket, State) -> Self ! {told, Socket}, {ok, State} end}.

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Handshakes.

a_handshake(_Config) ->
    Port = start(with(#{fields => [{<<"set-cookie">>, <<"a=b">>}]})),
    Client = connect(Port),
    {101, Fields} = upgrade(Client, ""),
    ?assertMatch(#{<<"set-cookie">> := <<"a=b">>, <<"upgrade">> := <<"websocket">>, <<"connection">> := <<"upgrade">>}, Fields),
    ?assertNot(is_map_key(<<"content-length">>, Fields)),
    ok = send(Client, text("Hello")),
    {text, <<"Hello">>} = recv(Client),
    1 = counter(websockets),
    1 = counter(websocket_messages).

no_handshake(_Config) ->
    Client = connect(start(#{})),
    [
        begin
            ok = gen_tcp:send(Client, Request),
            ?assertMatch({Status, _, _}, response(Client), Request)
        end
     || {Status, Request} <- [
            {426, weir_http_client:get("/websocket")},
            {426, asking("Upgrade: websocket\r\nConnection: close-not\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
            {426, asking("Upgrade: other\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
            {426, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
            {426, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
            {400, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n")},
            {400, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n")}
        ]
    ],
    ok = gen_tcp:send(Client, asking("Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 7\r\n")),
    {426, #{<<"sec-websocket-version">> := <<"13">>, <<"upgrade">> := <<"websocket">>, <<"connection">> := <<"upgrade">>}, _} =
        response(Client),
    ok = gen_tcp:send(Client, "HEAD /websocket HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    {426, _, <<>>} = weir_http_client:response(Client, #{is_head => true}),
    %% Names and tokens have no case, and lists more than one.
    {101, _} = upgrade_by(Client, "UPGRADE: other, WebSocket\r\nConnection: keep-alive,  Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
    0 = counter(crashes).

asking(Fields) -> weir_http_client:get("/websocket", Fields).

upgrade_by(Client, Fields) ->
    ok = gen_tcp:send(Client, asking(Fields)),
    {Status, Found, <<>>} = switched(response_head(Client)),
    {Status, Found}.

response_head(Client) ->
    {ok, Bytes} = gen_tcp:recv(Client, 0, 10000),
    [Head, <<>>] = binary:split(Bytes, <<"\r\n\r\n">>),
    Head.

switched(<<"HTTP/1.1 101 ", _/binary>> = Head) -> {101, Head, <<>>}.

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
        {any, "https://example.org", 101},
        {[<<"https://example.org">>], "https://EXAMPLE.org", 101},
        {[<<"https://example.org">>], "http://localhost", 403}
    ],
    Port = start(#{}),
    [
        begin
            ok = weir_http:set_routes(?LISTENER, [{"/websocket", weir_http_websocket_handler, with(#{origins => Origins})}]),
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
    %% The client would fail the connection.
    ok = weir_http:set_routes(?LISTENER, [{"/websocket", weir_http_websocket_handler, with(#{protocol => <<"v9">>})}]),
    {500, _} = upgrade(connect(Port), "Sec-WebSocket-Protocol: v2\r\n").

options_that_are_wrong(_Config) ->
    [
        ?assertError({bad_option, Name, Value, _}, weir_http_websocket_options:settings(#{Name => Value}), {Name, Value})
     || {Name, Value} <- [
            {max_message, 0}, {max_pending, -1}, {slow, sometimes}, {idle_timeout, 0}, {ping_interval, "1"}, {close_timeout, infinity},
            {drain_code, 1000}, {origins, all}, {deflate, 7}, {deflate, #{level => 10}}, {deflate, #{window_bits => 8}},
            {protocol, "v1"}, {fields, none}, {other, 1}
        ]
    ],
    Port = start(with(#{max_messages => 7})),
    {500, _} = upgrade(connect(Port), ""),
    ok = weir_http:set_routes(?LISTENER, [{"/websocket", weir_http_websocket_handler, #{
        handle => fun(_) -> {websocket, lists, none} end
    }}]),
    {500, _} = upgrade(connect(Port), "").

what_comes_behind_a_handshake(_Config) ->
    Client = connect(start(#{})),
    ok = send(Client, [handshake(""), text("one"), text("two"), binary:part(text("three"), 0, 4)]),
    {101, _} = upgraded(Client),
    [{text, <<"one">>}, {text, <<"two">>}] = recv(Client, 2),
    ok = send(Client, binary:part(text("three"), 11, -7)),
    {text, <<"three">>} = recv(Client).

upgraded(Client) ->
    put({rest, Client}, <<>>),
    upgraded(Client, <<>>).

upgraded(Client, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [<<"HTTP/1.1 101 ", _/binary>> = Head, Rest] ->
            put({rest, Client}, Rest),
            {101, Head};
        [_] ->
            {ok, More} = gen_tcp:recv(Client, 0, 10000),
            upgraded(Client, <<Bytes/binary, More/binary>>)
    end.

a_handshake_behind_requests(_Config) ->
    Client = connect(start(#{})),
    ok = send(Client, [weir_http_client:get("/direct"), handshake(""), text("behind")]),
    {200, _, <<"direct">>} = response(Client),
    {101, _} = upgraded(Client, erlang:get({rest, Client})),
    {text, <<"behind">>} = recv(Client).

%%% Handlers.

open_comes_first(_Config) ->
    Self = self(),
    Port = start(#{
        handle => fun(Request) ->
            ok = weir_http_websocket:tell(weir_http_request:socket(Request), hello),
            {websocket, weir_http_websocket_handler, #{
                open => fun(_, State) -> Self ! {told, open}, {send, {text, "welcome"}, State} end,
                info => fun(Message, State) -> Self ! {told, Message}, {send, {text, "info"}, State} end
            }}
        end
    }),
    Client = connect(Port),
    ok = send(Client, [handshake(""), text("message")]),
    {101, _} = upgraded(Client),
    [{text, <<"welcome">>}, {text, <<"info">>}, {text, <<"message">>}] = recv(Client, 3),
    open = told(),
    hello = told().

a_group_from_the_beginning(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Frame = weir_http_websocket:frame({text, "news"}),
    Port = start((with(#{deflate => true}))#{
        open => fun(Socket, State) ->
            ok = weir_group:join(Group, Socket),
            {ok, _} = weir_group:broadcast(Group, Frame),
            {ok, State}
        end
    }),
    One = open(Port),
    {text, <<"news">>} = recv(One),
    Two = open(Port, "Sec-WebSocket-Extensions: permessage-deflate\r\n"),
    [{text, <<"news">>} = recv(Client) || Client <- [One, Two]],
    ok = send(One, text("still there")),
    {text, <<"still there">>} = recv(One).

frames_of_all_kinds(_Config) ->
    Large = binary:copy(<<"x">>, 70000),
    Frames = [
        {text, ["a", <<"b">>, [$c]]}, {binary, <<255>>}, {ping, "p"}, {pong, ""}, {text, Large}, {binary, binary:copy(<<0>>, 300)},
        {framed, weir_http_websocket:frame({text, "made before"})}
    ],
    Port = start(#{message => fun(_, State) -> {send, Frames, State} end}),
    Client = open(Port),
    ok = send(Client, text("go")),
    ?assertEqual(
        [
            {text, <<"abc">>}, {binary, <<255>>}, {ping, <<"p">>}, {pong, <<>>}, {text, Large}, {binary, binary:copy(<<0>>, 300)},
            {text, <<"made before">>}
        ],
        recv(Client, 7)
    ).

frames_that_may_not_be_sent(_Config) ->
    [
        begin
            ?assertError({bad_frame, Frame}, weir_http_websocket:frame(Frame)),
            ?assertError({bad_frame, Frame}, weir_http_websocket:send(not_looked_at, [Frame]))
        end
     || Frame <- [
            {text, <<255>>}, {text, [300]}, {ping, binary:copy(<<0>>, 126)}, {close, <<>>}, {framed, "list"}, text, {other, <<>>}
        ]
    ],
    Port = start(telling(#{message => fun(_, State) -> {send, {text, <<255>>}, State} end})),
    Client = open(Port),
    ok = send(Client, text("go")),
    {close, 1011, _} = recv(Client),
    {crashed, {error, {bad_frame, {text, <<255>>}}}} = told().

any_process_sends(_Config) ->
    Port = start(telling_open(#{})),
    Client = open(Port),
    Socket = told(),
    ok = weir_http_websocket:send(Socket, {text, "one"}),
    ok = weir_http_websocket:send(Socket, [{text, "two"}, {binary, "three"}]),
    [{text, <<"one">>}, {text, <<"two">>}, {binary, <<"three">>}] = recv(Client, 3),
    ok = gen_tcp:close(Client),
    until(fun() -> weir_http_websocket:send(Socket, {text, "late"}) =:= {error, closed} end).

messages_for_a_handler(_Config) ->
    Port = start(telling_open(#{
        info => fun
            ({{weir_reactor, _}, _, process, _, Reason}, State) -> {send, {text, atom_to_list(Reason)}, State};
            ({watch, Pid}, State = #{socket := Socket}) ->
                _ = monitor(process, Pid, [{tag, {weir_reactor, Socket}}]),
                {send, {text, "watching"}, State};
            ({is, Socket}, State) -> {ok, State#{socket => Socket}}
        end
    })),
    Client = open(Port),
    Socket = told(),
    Pid = spawn(fun() -> receive Reason -> exit(Reason) end end),
    ok = weir_http_websocket:tell(Socket, {is, Socket}),
    ok = weir_http_websocket:tell(Socket, {watch, Pid}),
    {text, <<"watching">>} = recv(Client),
    Pid ! done,
    {text, <<"done">>} = recv(Client).

%%% Ends.

a_handler_closes(_Config) ->
    Port = start(telling(#{
        message => fun
            ({text, <<"close">>}, State) -> {close, State};
            ({text, Text}, State) -> {close, 4321, Text, State}
        end
    })),
    [
        begin
            Client = open(Port),
            %% What comes behind is not for the handler any more.
            ok = send(Client, [text(Text), text("more"), frame(16#89, "ping")]),
            {close, Code, Said} = recv(Client),
            {closed, Code, Said} = told(),
            ok = send(Client, 16#88, <<Code:16>>),
            true = is_closed(Client)
        end
     || {Text, Code, Said} <- [{"close", 1000, <<>>}, {"so it is", 4321, <<"so it is">>}]
    ],
    2 = counter(websocket_messages).

the_client_closes(_Config) ->
    Port = start(telling(#{})),
    [
        begin
            Client = open(Port),
            ok = send(Client, [text("last"), frame(16#88, Payload)]),
            {text, <<"last">>} = recv(Client),
            Code = closes(Client),
            {peer, Code, Text} = told()
        end
     || {Payload, Code, Text} <- [
            {<<>>, none, <<>>}, {<<1000:16, "bye">>, 1000, <<"bye">>}, {<<4999:16>>, 4999, <<>>}
        ]
    ],
    until(fun() -> counter(connections) =:= 0 end).

the_client_is_gone(_Config) ->
    Port = start(telling(#{})),
    Client = open(Port),
    ok = send(Client, text("one")),
    {text, <<"one">>} = recv(Client),
    ok = gen_tcp:close(Client),
    {lost, closed} = told().

the_listener_stops(_Config) ->
    Port = start(telling(#{})),
    Client = open(Port),
    ok = send(Client, text("one")),
    {text, <<"one">>} = recv(Client),
    ok = weir_http:stop_listener(?LISTENER),
    {lost, shutdown} = told().

a_handler_that_fails(_Config) ->
    Port = start(telling(#{
        message => fun
            ({text, <<"raise">>}, _) -> error(on_purpose);
            ({text, <<"return">>}, _) -> wrong;
            ({text, <<"code">>}, State) -> {close, 1005, <<>>, State};
            ({text, <<"text">>}, State) -> {close, 1000, <<255>>, State}
        end
    })),
    [
        begin
            Client = open(Port),
            ok = send(Client, text(Text)),
            {close, 1011, <<>>} = recv(Client),
            ?assertEqual({crashed, {error, Reason}}, told())
        end
     || {Text, Reason} <- [
            {"raise", on_purpose}, {"return", {bad_return_value, wrong}}, {"code", {bad_close, 1005, <<>>}},
            {"text", {bad_close, 1000, <<255>>}}
        ]
    ],
    4 = counter(crashes).

a_close_that_is_not_answered(_Config) ->
    Port = start((with(#{close_timeout => 50}))#{message => fun(_, State) -> {close, State} end}, #{idle_timeout => 100}),
    Client = open(Port),
    ok = send(Client, text("close")),
    1000 = closes(Client).

%%% Clients that break the rules.

broken_protocol(_Config) ->
    Port = start(telling(#{})),
    [
        begin
            Client = open(Port),
            ok = send(Client, [text("before"), Bytes]),
            {text, <<"before">>} = recv(Client),
            ?assertEqual(Code, closes(Client), Bytes),
            ?assertMatch({failed, Code, _}, told())
        end
     || {Code, Bytes} <- [
            {1002, frame(16#91, "a")}, {1002, frame(16#a1, "a")}, {1002, frame(16#c1, "a")}, {1002, frame(16#83, "a")},
            {1002, frame(16#8b, "a")}, {1002, frame(16#80, "a")}, {1002, [frame(16#01, "a"), frame(16#81, "b")]},
            {1002, <<16#81, 1, "a">>}, {1002, <<16#81, 16#fe, 5:16, 0:32, "hello">>}, {1002, frame(16#09, "a")},
            {1002, frame(16#89, binary:copy(<<"a">>, 126))}, {1002, frame(16#88, "a")}, {1002, frame(16#88, <<1005:16>>)},
            {1007, frame(16#88, <<1000:16, 255>>)}, {1007, text(<<255>>)}, {1007, [frame(16#01, <<"a", 16#ce>>), frame(16#80, "")]}
        ]
    ],
    16 = counter(websocket_failures).

limits(_Config) ->
    Port = start(with(#{max_message => 1000})),
    Right = open(Port),
    Most = binary:copy(<<"x">>, 1000),
    ok = send(Right, [frame(16#01, binary:part(Most, 0, 400)), frame(16#89, "ping"), frame(16#80, binary:part(Most, 0, 600))]),
    [{pong, <<"ping">>}, {text, Most}] = recv(Right, 2),
    [
        begin
            Client = open(Port),
            ok = send(Client, Bytes),
            ?assertEqual(1009, closes(Client))
        end
     || Bytes <- [text([Most, "x"]), <<16#82, 16#ff, (1 bsl 40):64, 0:32>>, [frame(16#02, Most), frame(0, "x")]]
    ].

%%% Time.

pings_and_silence(_Config) ->
    Port = start(telling(with(#{ping_interval => 50, idle_timeout => 1000})), #{idle_timeout => 100}),
    Client = open(Port),
    %% Who answers stays.
    [
        begin
            {ping, <<>>} = recv(Client),
            ok = send(Client, 16#8a, "")
        end
     || _ <- lists:seq(1, 8)
    ],
    {ping, <<>>} = recv(Client),
    timeout = told(),
    1001 = last_code(Client),
    true = is_closed(Client),
    1 = counter(timeouts).

last_code(Client) ->
    case recv(Client) of
        {ping, <<>>} -> last_code(Client);
        {close, Code, _} -> Code
    end.

a_drain(_Config) ->
    Port = start(telling(with(#{drain_code => 1012})), #{idle_timeout => 100}),
    Client = open(Port),
    ok = send(Client, text("one")),
    {text, <<"one">>} = recv(Client),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, 10000)} end),
    {close, 1012, <<>>} = recv(Client),
    {closed, 1012, <<>>} = told(),
    ok = send(Client, 16#88, <<1012:16>>),
    receive {drained, Drained} -> ok = Drained end,
    true = is_closed(Client).

%%% Back-pressure.

%% A client that takes nothing of what others send is closed, and its memory is bounded.
a_client_that_does_not_read(_Config) ->
    Port = start(telling(telling_open(with(#{max_pending => 100000, close_timeout => 50}))), #{
        idle_timeout => 100, socket_opts => [{sndbuf, 10000}]
    }),
    Client = open(Port),
    Socket = told(),
    Frame = {binary, binary:copy(<<0>>, 10000)},
    until(fun() -> weir_http_websocket:send(Socket, Frame) =:= {error, closed} end),
    slow = told(),
    1 = counter(websocket_slow),
    ok = gen_tcp:close(Client).

frames_are_dropped(_Config) ->
    Port = start(telling_open(with(#{max_pending => 100000, slow => drop})), #{socket_opts => [{sndbuf, 10000}]}),
    Client = open(Port),
    Socket = told(),
    Frames = [{binary, <<N:32, (binary:copy(<<0>>, 10000))/binary>>} || N <- lists:seq(1, 1000)],
    [ok = weir_http_websocket:send(Socket, Frame) || Frame <- Frames],
    until(fun() -> counter(websocket_dropped) > 0 end),
    ok = send(Client, text("end")),
    Numbers = until_end(Client, []),
    ?assertEqual(1000, length(Numbers) + counter(websocket_dropped)),
    ?assertEqual(Numbers, lists:usort(Numbers)).

until_end(Client, Numbers) ->
    case recv(Client) of
        {binary, <<N:32, _/binary>>} -> until_end(Client, [N | Numbers]);
        {text, <<"end">>} -> lists:reverse(Numbers)
    end.

%% Each message asks for much more: they are answered as fast as that is taken.
a_client_that_does_not_read_what_it_asked_for(_Config) ->
    Large = {binary, binary:copy(<<0>>, 50000)},
    Port = start(telling_open(#{message => fun(_, State) -> {send, Large, State} end})),
    Client = open(Port),
    Socket = told(),
    Count = 400,
    ok = send(Client, binary:copy(text("more"), Count)),
    until(fun() -> counter(websocket_messages) > 1 end),
    Pending = fun() -> {ok, [{send_pend, Bytes}]} = inet:getstat(Socket, [send_pend]), Bytes end,
    [?assert(Pending() < 200000) || _ <- lists:seq(1, 100)],
    ?assert(counter(websocket_messages) < Count),
    [?assertMatch({binary, <<0:400000>>}, recv(Client)) || _ <- lists:seq(1, Count)],
    Count = counter(websocket_messages).

%%% Processes.

processing(Fun) -> telling(#{open => fun(_, _) -> {process, Fun} end}).

a_process(_Config) ->
    Port = start(processing(fun echo/1)),
    Client = open(Port),
    [ok = send(Client, text(integer_to_list(N))) || N <- lists:seq(1, 100)],
    ?assertEqual([{text, integer_to_binary(N)} || N <- lists:seq(1, 100)], recv(Client, 100)),
    ok = send(Client, 16#88, <<1000:16>>),
    1000 = closes(Client).

echo(Socket) ->
    case weir_http_websocket:recv(Socket) of
        {closed, _} ->
            ok;
        Message ->
            ok = weir_http_websocket:send(Socket, Message),
            echo(Socket)
    end.

a_process_that_is_slow(_Config) ->
    Self = self(),
    Port = start(processing(fun(Socket) ->
        timeout = weir_http_websocket:recv(Socket, 0),
        Self ! {told, {self(), Socket}},
        receive go -> echo(Socket) end
    end)),
    Client = open(Port),
    {Pid, Socket} = told(),
    Frame = frame(16#82, binary:copy(<<0>>, 10000)),
    ok = inet:setopts(Client, [{send_timeout, 100}]),
    Sent = send_until_full(Client, Frame, 0),
    {ok, [{active, false}]} = inet:getopts(Socket, [active]),
    %% It has asked for one.
    {message_queue_len, 1} = process_info(Pid, message_queue_len),
    Pid ! go,
    %% Not the result of the case: that is printed.
    lists:foreach(fun(_) -> {binary, <<0:80000>>} = recv(Client) end, lists:seq(1, Sent)).

%% Until nobody takes more: how many were sent whole.
send_until_full(Client, Frame, Sent) ->
    case gen_tcp:send(Client, Frame) of
        ok when Sent < 10000 -> send_until_full(Client, Frame, Sent + 1);
        {error, timeout} -> Sent
    end.

a_process_ends(_Config) ->
    Port = start(processing(fun(Socket) ->
        case weir_http_websocket:recv(Socket) of
            {text, <<"normal">>} -> ok;
            {text, <<"fail">>} -> exit(on_purpose)
        end
    end)),
    [
        begin
            Client = open(Port),
            ok = send(Client, text(Text)),
            {close, Code, _} = recv(Client)
        end
     || {Text, Code} <- [{"normal", 1000}, {"fail", 1011}]
    ].

a_process_is_told_of_the_end(_Config) ->
    Self = self(),
    Port = start(processing(fun(Socket) ->
        Self ! {told, self()},
        receive go -> ok end,
        Self ! {told, [weir_http_websocket:recv(Socket) || _ <- lists:seq(1, 3)]}
    end)),
    Client = open(Port),
    Pid = told(),
    ok = send(Client, [text("one"), text("two"), frame(16#88, <<4000:16, "bye">>)]),
    4000 = closes(Client),
    Pid ! go,
    [{text, <<"one">>}, {text, <<"two">>}, {closed, {peer, 4000, <<"bye">>}}] = told().

a_process_whose_reactor_is_killed_ends(_Config) ->
    Self = self(),
    Port = start(#{open => fun(_, _) ->
        Reactor = self(),
        {process, fun(Socket) ->
            Self ! {told, {self(), Reactor}},
            echo(Socket)
        end}
    end}),
    _Client = open(Port),
    {Pid, Reactor} = told(),
    Monitor = monitor(process, Pid),
    exit(Reactor, kill),
    receive {'DOWN', Monitor, process, Pid, Reason} -> {shutdown, client_gone} = Reason after 10000 -> error(lives) end.

the_same_with_tls(_Config) ->
    ok = weir_http_client:with_tls(),
    Port = start(telling_open(#{}), weir_http_client:options(#{})),
    Client = connect(Port),
    ok = ssl:send(Client, handshake("")),
    {ok, <<"HTTP/1.1 101 ", _/binary>>} = ssl:recv(Client, 0, 10000),
    Socket = told(),
    ok = ssl:send(Client, text("Hello")),
    {ok, <<16#81, 5, "Hello">>} = ssl:recv(Client, 7, 10000),
    ok = weir_http_websocket:send(Socket, {text, "unasked"}),
    {ok, <<16#81, 7, "unasked">>} = ssl:recv(Client, 9, 10000),
    ok = ssl:send(Client, frame(16#88, <<1000:16>>)),
    {ok, <<16#88, 2, 1000:16>>} = ssl:recv(Client, 4, 10000),
    {error, closed} = ssl:recv(Client, 0, 10000),
    {error, closed} = weir_http_websocket:send(Socket, {text, "late"}).
