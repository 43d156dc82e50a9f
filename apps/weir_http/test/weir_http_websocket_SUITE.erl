%% WebSockets: results of handlers, violations by clients, and how they end.
-module(weir_http_websocket_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, is_closed/1]).
-import(weir_http_websocket_client, [
    open/1, open/2, upgraded/1, handshake/1, send/2, send/3, frame/2, text/1, recv/1, recv/2, closes/1
]).
-import(weir_http_websocket_handler, [with/1, telling/1, telling_open/1]).
-import(weir_http_serving, [told/0]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        open_comes_first,
        a_group_from_the_beginning,
        frames_of_all_kinds,
        frames_that_may_not_be_sent,
        any_process_sends,
        messages_for_a_handler,
        a_handler_hears_of_what_is_written,
        nothing_is_written_while_something_waits,
        a_handler_closes,
        the_client_closes,
        the_client_is_gone,
        the_listener_stops,
        a_handler_that_fails,
        a_close_that_is_not_answered,
        broken_protocol,
        limits,
        pings_and_silence,
        a_drain
    ].

start(Funs) -> start(Funs, #{}).

start(Funs, Options) -> weir_http_websocket_handler:start(?LISTENER, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

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
        {text, ["a", <<"b">>, [$c]]},
        {binary, <<255>>},
        {ping, "p"},
        {pong, ""},
        {text, Large},
        {binary, binary:copy(<<0>>, 300)},
        {framed, weir_http_websocket:frame({text, "made before"})}
    ],
    Port = start(#{message => fun(_, State) -> {send, Frames, State} end}),
    Client = open(Port),
    ok = send(Client, text("go")),
    ?assertEqual(
        [
            {text, <<"abc">>},
            {binary, <<255>>},
            {ping, <<"p">>},
            {pong, <<>>},
            {text, Large},
            {binary, binary:copy(<<0>>, 300)},
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
            {text, <<255>>},
            {text, [300]},
            {ping, binary:copy(<<0>>, 126)},
            {close, <<>>},
            {framed, "list"},
            text,
            {other, <<>>}
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
    ?waitEqual({error, closed}, weir_http_websocket:send(Socket, {text, "late"})).

messages_for_a_handler(_Config) ->
    Port = start(telling_open(#{
        info => fun
            %% The process may end before the monitor is set: then the reason is `noproc'.
            ({{weir_reactor, _}, _, process, _, _Reason}, State) -> {send, {text, "gone"}, State};
            ({watch, Pid}, State = #{socket := Socket}) ->
                _ = monitor(process, Pid, [{tag, {weir_reactor, Socket}}]),
                {send, {text, "watching"}, State};
            ({is, Socket}, State) -> {ok, State#{socket => Socket}}
        end
    })),
    Client = open(Port),
    Socket = told(),
    Pid = spawn(fun() -> receive stop -> ok end end),
    ok = weir_http_websocket:tell(Socket, {is, Socket}),
    ok = weir_http_websocket:tell(Socket, {watch, Pid}),
    {text, <<"watching">>} = recv(Client),
    Pid ! stop,
    {text, <<"gone">>} = recv(Client).

%%% Ends.

%% Also if the connection waited for the same notification, with further frames to handle.
a_handler_hears_of_what_is_written(_Config) ->
    Answer = binary:copy(<<"x">>, 100000),
    Port = start(#{
        open => fun(Socket, State) -> {ok, State#{socket => Socket}} end,
        message => fun(_, State = #{socket := Socket}) ->
            _ = weir:notify_writable(Socket),
            {send, {binary, Answer}, State}
        end,
        written => fun(_, State) -> {send, {text, "written"}, State} end
    }),
    Client = open(Port),
    ok = send(Client, [text("large"), frame(16#89, "behind")]),
    [{binary, Answer}, Said, Other] = recv(Client, 3),
    ?assertEqual([{pong, <<"behind">>}, {text, <<"written">>}], lists:sort([Said, Other])).

%% Not called when the queue of a slow client has only fallen to the low watermark and reading resumes.
nothing_is_written_while_something_waits(_Config) ->
    Self = self(),
    Answer = binary:copy(<<"x">>, 300_000),
    Funs = #{
        open => fun(Socket, State) -> {ok, State#{socket => Socket}} end,
        message => fun(_, State = #{socket := Socket}) ->
            ok = weir:notify_writable(Socket),
            {send, {binary, Answer}, State}
        end,
        written => fun(Socket, State) ->
            Self ! {pending, weir_http_socket:pending(Socket)},
            {ok, State}
        end
    },
    Small = #{socket_opts => [{sndbuf, 4096}, {high_watermark, 65536}, {low_watermark, 65536}]},
    Client = open(weir_http_websocket_handler:start(?LISTENER, Funs, Small)),
    ok = send(Client, text("large")),
    ?assertEqual({binary, Answer}, recv(Client)),
    ?assertEqual({pending, 0}, weir_test_wait:next_message()).

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
            %% Later frames no longer reach the handler.
            ok = send(Client, [text(Text), text("more"), frame(16#89, "ping")]),
            {close, Code, Said} = recv(Client),
            {closed, Code, Said} = told(),
            ok = send(Client, 16#88, <<Code:16>>),
            true = is_closed(Client)
        end
     || {Text, Code, Said} <- [{"close", 1000, <<>>}, {"so it is", 4321, <<"so it is">>}]
    ],
    ?waitEqual(2, counter(websocket_messages)).

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
    ?waitEqual(0, counter(connections)).

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
    ?waitEqual(4, counter(crashes)).

a_close_that_is_not_answered(_Config) ->
    Handler = with(#{close_timeout => 50}),
    Port = start(Handler#{message => fun(_, State) -> {close, State} end}, #{idle_timeout => 100}),
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
            {1002, frame(16#91, "a")},
            {1002, frame(16#a1, "a")},
            {1002, frame(16#c1, "a")},
            {1002, frame(16#83, "a")},
            {1002, frame(16#8b, "a")},
            {1002, frame(16#80, "a")},
            {1002, [frame(16#01, "a"), frame(16#81, "b")]},
            {1002, <<16#81, 1, "a">>},
            {1002, <<16#81, 16#fe, 5:16, 0:32, "hello">>},
            {1002, frame(16#09, "a")},
            {1002, frame(16#89, binary:copy(<<"a">>, 126))},
            {1002, frame(16#88, "a")},
            {1002, frame(16#88, <<1005:16>>)},
            {1007, frame(16#88, <<1000:16, 255>>)},
            {1007, text(<<255>>)},
            {1007, [frame(16#01, <<"a", 16#ce>>), frame(16#80, "")]}
        ]
    ],
    ?waitEqual(16, counter(websocket_failures)).

limits(_Config) ->
    Port = start(with(#{max_message => 1000})),
    Right = open(Port),
    Most = binary:copy(<<"x">>, 1000),
    ok = send(Right, [
        frame(16#01, binary:part(Most, 0, 400)), frame(16#89, "ping"), frame(16#80, binary:part(Most, 0, 600))
    ]),
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
    {stays, Client} = weir_http_serving:in_time(fun(Limit) ->
        _ = weir_http:stop_listener(?LISTENER),
        _ = weir_test_wait:messages(),
        Port = start(telling(with(#{ping_interval => 50, idle_timeout => 2 * Limit})), #{idle_timeout => 100}),
        Client = open(Port),
        {Longest, What} = answer(Client, erlang:monotonic_time(millisecond) + 3 * Limit, 0),
        {Longest, {What, Client}}
    end),
    %% A client that answers stays connected; a silent one is closed.
    timeout = told(),
    1001 = last_code(Client),
    true = is_closed(Client),
    ?waitEqual(1, counter(timeouts)).

%% Answers pings until a time. Returns the longest delay of a ping and its answer beyond the interval.
answer(Client, Until, Longest) ->
    {Took, Got} = weir_test_wait:timed(fun() ->
        try recv(Client) of
            {ping, <<>>} -> send(Client, 16#8a, "")
        catch
            error:_ -> lost
        end
    end),
    NewLongest = max(Longest, Took - 50),
    case erlang:monotonic_time(millisecond) < Until of
        true when Got =:= ok -> answer(Client, Until, NewLongest);
        false when Got =:= ok -> {NewLongest, stays};
        _ -> {NewLongest, Got}
    end.

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
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience())} end),
    {close, 1012, <<>>} = recv(Client),
    {closed, 1012, <<>>} = told(),
    ok = send(Client, 16#88, <<1012:16>>),
    receive {drained, Drained} -> ok = Drained end,
    true = is_closed(Client).
