%% The protocol at `/ws', frame by frame.
-module(weir_pubsub_ws_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_ws_test, [
    start/1, start/2, port/0, connect/0, say/2, say_text/2, frame/1, hear/1, hear_all/1, ask/2, subscribe/3
]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        subscribe_and_publish,
        many_channels,
        unsubscribed,
        from_where,
        a_gap,
        a_position_to_come_back_to,
        bytes_that_are_no_text,
        meta,
        presence,
        what_processes_say_of_themselves,
        slow_in_many_channels,
        history,
        ping,
        wrong_frames,
        who_may,
        limits,
        asked_too_much,
        subscribed_twice,
        deleted,
        a_shard_is_killed,
        asked_of_a_shard_that_is_killed,
        who_may_is_said_later,
        gone_when_closed,
        a_drain,
        other_sites,
        options_that_are_wrong
    ].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{
        channels => [
            {<<"small">>, #{max_messages => 2}},
            {<<"room">>, #{presence => true}},
            {<<"full">>, #{max_subscribers => 0, max_message => 5}}
        ]
    }),
    start(#{}),
    Config.

end_per_testcase(_Case, _Config) ->
    ok = weir_pubsub_ws_test:stop(),
    ok = application:stop(weir_pubsub).

publish(Channel, Data) ->
    {ok, #{id := Id}} = weir_pubsub:publish(Channel, Data),
    weir_pubsub_id:to_text(Id).

-define(MESSAGE(Channel, Data), #{<<"type">> := <<"message">>, <<"channel">> := Channel, <<"data">> := Data}).
-define(ERROR(Code), #{<<"type">> := <<"error">>, <<"code">> := Code, <<"text">> := _}).

subscribe_and_publish(_Config) ->
    [A, B] = [connect(), connect()],
    [subscribe(Socket, <<"a">>, new) || Socket <- [A, B]],
    say(A, #{type => publish, ref => <<"p">>, channel => <<"a">>, data => <<"hello">>}),
    Both = [hear(A), hear(A)],
    [#{<<"id">> := Id, <<"subscribers">> := 2}] = [
        Frame
     || #{<<"type">> := <<"published">>, <<"ref">> := <<"p">>} = Frame <- Both
    ],
    [#{<<"id">> := Id}] = [Frame || ?MESSAGE(<<"a">>, <<"hello">>) = Frame <- Both],
    #{<<"id">> := Id} = hear(B).

%% Subscriptions change while it is open; each channel is in order.
many_channels(_Config) ->
    Socket = connect(),
    Channels = [<<"c", (integer_to_binary(Number))/binary>> || Number <- lists:seq(1, 300)],
    [subscribe(Socket, Channel, new) || Channel <- Channels],
    [publish(Channel, integer_to_binary(Number)) || Number <- [1, 2, 3], Channel <- Channels],
    Got = [{Channel, Data} || _ <- lists:seq(1, 900), ?MESSAGE(Channel, Data) <- [hear(Socket)]],
    [?assertEqual([<<"1">>, <<"2">>, <<"3">>], [Data || {Of, Data} <- Got, Of =:= Channel]) || Channel <- Channels].

unsubscribed(_Config) ->
    Socket = connect(),
    [subscribe(Socket, Channel, new) || Channel <- [<<"a">>, <<"b">>]],
    ?assertMatch(
        #{<<"type">> := <<"unsubscribed">>, <<"channel">> := <<"a">>},
        ask(Socket, #{type => unsubscribe, channel => <<"a">>})
    ),
    _ = publish(<<"a">>, <<"1">>),
    _ = publish(<<"b">>, <<"2">>),
    ?MESSAGE(<<"b">>, <<"2">>) = hear(Socket),
    ?assertMatch(?ERROR(<<"not_subscribed">>), ask(Socket, #{type => unsubscribe, channel => <<"a">>})),
    subscribe(Socket, <<"a">>, oldest),
    ?MESSAGE(<<"a">>, <<"1">>) = hear(Socket).

from_where(_Config) ->
    [_, Second, _] = [publish(<<"a">>, Data) || Data <- [<<"1">>, <<"2">>, <<"3">>]],
    [
        begin
            Socket = connect(),
            subscribe(Socket, <<"a">>, From),
            ?assertEqual(Data, [maps:get(<<"data">>, hear(Socket)) || _ <- Data])
        end
     || {From, Data} <- [{oldest, [<<"1">>, <<"2">>, <<"3">>]}, {1, [<<"3">>]}, {Second, [<<"3">>]}]
    ].

a_gap(_Config) ->
    [First | _] = [publish(<<"small">>, Data) || Data <- [<<"1">>, <<"2">>, <<"3">>, <<"4">>, <<"5">>]],
    Socket = connect(),
    subscribe(Socket, <<"small">>, First),
    #{<<"type">> := <<"gap">>, <<"channel">> := <<"small">>, <<"missed">> := 2, <<"id">> := _} = hear(Socket),
    [?MESSAGE(<<"small">>, _), ?MESSAGE(<<"small">>, _)] = [hear(Socket), hear(Socket)],
    %% It is unknown how many messages another life of the channel had.
    Other = connect(),
    subscribe(Other, <<"small">>, <<"1:5">>),
    #{<<"type">> := <<"gap">>, <<"missed">> := null} = hear(Other).

a_position_to_come_back_to(_Config) ->
    First = publish(<<"a">>, <<"1">>),
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    #{<<"type">> := <<"position">>, <<"channel">> := <<"a">>, <<"id">> := First} = hear_all(Socket).

bytes_that_are_no_text(_Config) ->
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    say(Socket, #{type => publish, channel => <<"a">>, base64 => base64:encode(<<255, 0>>)}),
    Both = [hear(Socket), hear(Socket)],
    Bytes = base64:encode(<<255, 0>>),
    ?assertMatch([_], [Frame || #{<<"type">> := <<"message">>, <<"base64">> := Is} = Frame <- Both, Is =:= Bytes]),
    {ok, #{messages := [{message, _, <<255, 0>>, _}]}} = weir_pubsub:history(<<"a">>, #{}).

meta(_Config) ->
    Socket = connect(),
    _ = ask(Socket, #{
        type => publish, channel => <<"a">>, data => <<"x">>, event => <<"e">>, content_type => <<"text/x">>
    }),
    {ok, #{messages := [{message, _, <<"x">>, #{event := <<"e">>, type := <<"text/x">>}}]}} = weir_pubsub:history(
        <<"a">>, #{}
    ),
    subscribe(Socket, <<"a">>, oldest),
    #{<<"event">> := <<"e">>, <<"content_type">> := <<"text/x">>} = hear(Socket),
    %% It would be a line of its own in an event stream.
    ?ERROR(<<"bad_request">>) = ask(Socket, #{
        type => publish, channel => <<"a">>, data => <<"x">>, event => <<"e\ndata: 1">>
    }).

presence(_Config) ->
    [A, B] = [connect(), connect()],
    _ = ask(A, #{type => subscribe, channel => <<"room">>, info => #{name => <<"Ann">>}}),
    _ = ask(B, #{type => subscribe, channel => <<"room">>}),
    %% From then on presence shows them.
    [#{<<"type">> := <<"position">>} = hear_all(Socket) || Socket <- [A, B]],
    #{<<"present">> := Present} = ask(A, #{type => presence, channel => <<"room">>}),
    ?assertEqual(
        [null, #{<<"name">> => <<"Ann">>}], lists:sort([Info || #{<<"info">> := Info, <<"age">> := _} <- Present])
    ),
    subscribe(A, <<"a">>, new),
    #{<<"type">> := <<"position">>, <<"channel">> := <<"a">>} = hear_all(A),
    ?ERROR(<<"no_presence">>) = ask(A, #{type => presence, channel => <<"a">>}),
    ?ERROR(<<"bad_request">>) = ask(A, #{type => subscribe, channel => <<"b">>, info => binary:copy(<<"x">>, 1025)}).

%% The `info' of a process may be any term, and is returned if it is JSON. A client may send any JSON.
what_processes_say_of_themselves(_Config) ->
    Client = connect(),
    _ = ask(Client, #{type => subscribe, channel => <<"room">>, info => [1, #{a => true}]}),
    #{<<"type">> := <<"position">>} = hear_all(Client),
    Test = self(),
    NoJson = [undefined, #{pid => Test}, {name, ann}, <<255>>, [1, {2}], [a | b], #{1 => 2}, #{<<255>> => 1}],
    Json = [#{name => ann, list => [1, true, null]}, [], true, 1.5],
    Processes = [
        spawn_link(fun() ->
            {ok, _} = weir_pubsub:subscribe(<<"room">>, #{info => Info}),
            Test ! subscribed,
            receive
                stop -> ok
            end
        end)
     || Info <- NoJson ++ Json
    ],
    [
        receive
            subscribed -> ok
        after weir_test_wait:patience() -> ct:fail(not_subscribed)
        end
     || _ <- Processes
    ],
    #{<<"present">> := Present} = ask(Client, #{type => presence, channel => <<"room">>}),
    Told = [
        #{<<"name">> => <<"ann">>, <<"list">> => [1, true, null]},
        [],
        true,
        1.5,
        [1, #{<<"a">> => true}]
        | [null || _ <- NoJson]
    ],
    ?assertEqual(lists:sort(Told), lists:sort([Info || #{<<"info">> := Info} <- Present])),
    [Process ! stop || Process <- Processes].

%% It leaves each group for a while, and only the channel of that group is asked to take it back.
slow_in_many_channels(_Config) ->
    ok = weir_pubsub:configure(#{
        channels => [{<<"*">>, #{max_queue => 1, max_messages => 10, max_bytes => 10000000}}]
    }),
    Channels = [<<"c", (integer_to_binary(Number))/binary>> || Number <- lists:seq(1, 20)],
    %% Sockets hold far less than what is published, and that is little.
    start(#{}, #{socket_opts => [{sndbuf, 65536}]}),
    Socket = connect(),
    ok = inet:setopts(Socket, [{recbuf, 65536}]),
    [subscribe(Socket, Channel, new) || Channel <- Channels],
    #{lagged := Before} = weir_pubsub:counters(),
    Data = binary:copy(<<"x">>, 10000),
    _ = erlang:trace(all, true, [call]),
    1 = erlang:trace_pattern({weir_pubsub_socket, rejoin, 3}, true, []),
    Numbers = [integer_to_binary(Number) || Number <- lists:seq(1, 8)],
    [publish(Channel, <<Number/binary, $:, Data/binary>>) || Number <- Numbers, Channel <- Channels],
    Got = [
        {Channel, hd(binary:split(Text, <<":">>))}
     || _ <- lists:seq(1, length(Numbers) * length(Channels)), ?MESSAGE(Channel, Text) <- [hear(Socket)]
    ],
    _ = erlang:trace_pattern({weir_pubsub_socket, rejoin, 3}, false, []),
    _ = erlang:trace(all, false, [call]),
    Delivered = erlang:trace_delivered(all),
    receive
        {trace_delivered, all, Delivered} -> ok
    after weir_test_wait:patience() -> ct:fail(trace_not_delivered)
    end,
    [
        ?assertEqual({Channel, Numbers}, {Channel, [Number || {Of, Number} <- Got, Of =:= Channel]})
     || Channel <- Channels
    ],
    #{lagged := After} = weir_pubsub:counters(),
    ?assert(After - Before > 1),
    ?assertEqual(After - Before, asked_to_rejoin(0)).

asked_to_rejoin(Count) ->
    receive
        {trace, _, call, {weir_pubsub_socket, rejoin, _}} -> asked_to_rejoin(Count + 1)
    after 0 -> Count
    end.

history(_Config) ->
    Socket = connect(),
    ?ERROR(<<"no_channel">>) = ask(Socket, #{type => history, channel => <<"small">>}),
    [First, _, Third] = [publish(<<"small">>, Data) || Data <- [<<"1">>, <<"2">>, <<"3">>]],
    ?assertMatch(
        #{
            <<"type">> := <<"history">>,
            <<"missed">> := 0,
            <<"last_id">> := Third,
            <<"messages">> := [#{<<"data">> := <<"2">>}]
        },
        ask(Socket, #{type => history, channel => <<"small">>, limit => 1})
    ),
    _ = publish(<<"small">>, <<"4">>),
    #{<<"missed">> := 1} = ask(Socket, #{type => history, channel => <<"small">>, from => First}).

ping(_Config) ->
    Socket = connect(),
    ?assertEqual(#{<<"type">> => <<"pong">>}, ask(Socket, #{type => ping})).

wrong_frames(_Config) ->
    Socket = connect(),
    [
        begin
            say_text(Socket, Text),
            ?assertMatch({Text, ?ERROR(<<"bad_request">>)}, {Text, hear(Socket)})
        end
     || Text <- [
            <<"">>,
            <<"{">>,
            <<"[]">>,
            <<"{}">>,
            <<"{\"type\":1}">>,
            <<"{\"type\":\"fly\"}">>,
            <<"{\"type\":\"subscribe\"}">>,
            <<"{\"type\":\"subscribe\",\"channel\":\"\"}">>,
            <<"{\"type\":\"subscribe\",\"channel\":\"a\",\"from\":\"x\"}">>,
            <<"{\"type\":\"subscribe\",\"channel\":\"a\",\"from\":-1}">>,
            <<"{\"type\":\"subscribe\",\"channel\":\"a\",\"from\":\"1:-1\"}">>,
            <<"{\"type\":\"publish\",\"channel\":\"a\"}">>,
            <<"{\"type\":\"publish\",\"channel\":\"a\",\"data\":1}">>,
            <<"{\"type\":\"publish\",\"channel\":\"a\",\"base64\":\"?\"}">>,
            <<"{\"type\":\"history\",\"channel\":\"a\",\"limit\":1001}">>,
            iolist_to_binary(["{\"type\":\"presence\",\"channel\":\"", lists:duplicate(1025, $x), "\"}"])
        ]
    ],
    ok = weir_pubsub_nchan:send_frame(Socket, 2, <<"x">>),
    {8, <<1003:16, _/binary>>} = frame(Socket).

who_may(_Config) ->
    start(#{
        may => fun(Right, Request, Channel) ->
            undefined =:= weir_http_request:field(<<"origin">>, Request) andalso
                binary:match(Channel, atom_to_binary(Right)) =/= nomatch
        end
    }),
    Socket = connect(),
    [
        begin
            Told = ask(Socket, Frame#{type => Type, channel => Channel}),
            ?assertEqual(
                {Frame, Type, Channel, May},
                {Frame, Type, Channel, maps:get(<<"code">>, Told, none) =/= <<"forbidden">>}
            )
        end
     || {May, Type, Channel, Frame} <- [
            {false, subscribe, <<"x">>, #{}},
            {true, subscribe, <<"subscribe">>, #{}},
            {false, subscribe, <<"subscribe2">>, #{from => oldest}},
            {true, subscribe, <<"subscribe,history">>, #{from => oldest}},
            {false, publish, <<"subscribe">>, #{data => <<"x">>}},
            {true, publish, <<"publish">>, #{data => <<"x">>}},
            {false, presence, <<"publish">>, #{}},
            {true, presence, <<"presence">>, #{}},
            {false, history, <<"publish">>, #{}},
            {true, history, <<"history">>, #{}}
        ]
    ].

who_may_is_said_later(_Config) ->
    start(#{
        may => fun(_, _, Channel) ->
            {wait, fun() ->
                Channel =/= <<"failing">> orelse error(failing),
                Channel =:= <<"open">>
            end}
        end
    }),
    Socket = connect(),
    subscribe(Socket, <<"open">>, new),
    ?ERROR(<<"forbidden">>) = ask(Socket, #{type => subscribe, channel => <<"closed">>}),
    ?ERROR(<<"forbidden">>) = ask(Socket, #{type => publish, channel => <<"failing">>, data => <<"x">>}),
    say(Socket, #{type => publish, channel => <<"open">>, data => <<"x">>, ref => 1}),
    Types = lists:sort([maps:get(<<"type">>, hear(Socket)) || _ <- [published, message]]),
    ?assertEqual([<<"message">>, <<"published">>], Types).

limits(_Config) ->
    start(#{max_channels => 2}),
    Socket = connect(),
    [subscribe(Socket, Channel, new) || Channel <- [<<"a">>, <<"b">>]],
    ?ERROR(<<"too_many">>) = ask(Socket, #{type => subscribe, channel => <<"c">>}),
    _ = ask(Socket, #{type => unsubscribe, channel => <<"a">>}),
    ?ERROR(<<"limit">>) = ask(Socket, #{type => subscribe, channel => <<"full">>}),
    %% A subscription that was refused does not exist.
    subscribe(Socket, <<"c">>, new),
    ?ERROR(<<"too_large">>) = ask(Socket, #{type => publish, channel => <<"full">>, data => <<"123456">>}).

%% A request that was refused has no effect.
asked_too_much(_Config) ->
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    Shard = weir_pubsub_test:shard_of(<<"b">>),
    ok = weir_pubsub_test:suspend(Shard),
    [say(Socket, #{type => publish, channel => <<"b">>, data => <<"x">>}) || _ <- lists:seq(1, 1000)],
    ?ERROR(<<"too_many">>) = ask(Socket, #{type => unsubscribe, channel => <<"a">>}),
    ok = sys:resume(Shard, weir_test_wait:patience()),
    [#{<<"type">> := <<"published">>} = hear(Socket) || _ <- lists:seq(1, 1000)],
    #{<<"type">> := <<"unsubscribed">>} = ask(Socket, #{type => unsubscribe, channel => <<"a">>}).

subscribed_twice(_Config) ->
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    ?ERROR(<<"subscribed">>) = ask(Socket, #{type => subscribe, channel => <<"a">>}),
    _ = publish(<<"a">>, <<"1">>),
    _ = publish(<<"a">>, <<"2">>),
    [?MESSAGE(_, <<"1">>), ?MESSAGE(_, <<"2">>)] = [hear(Socket), hear(Socket)].

deleted(_Config) ->
    Socket = connect(),
    [subscribe(Socket, Channel, new) || Channel <- [<<"a">>, <<"b">>]],
    {ok, _} = weir_pubsub:delete(<<"a">>),
    ?assertEqual(#{<<"type">> => <<"closed">>, <<"channel">> => <<"a">>, <<"reason">> => <<"deleted">>}, hear(Socket)),
    _ = publish(<<"b">>, <<"1">>),
    ?MESSAGE(<<"b">>, <<"1">>) = hear(Socket).

a_shard_is_killed(_Config) ->
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    ok = weir_pubsub_test:kill_shard_of(<<"a">>),
    #{<<"type">> := <<"closed">>, <<"reason">> := <<"unavailable">>} = hear(Socket),
    subscribe(Socket, <<"a">>, new).

%% Requests in its mailbox are answered, each once.
asked_of_a_shard_that_is_killed(_Config) ->
    Socket = connect(),
    subscribe(Socket, <<"a">>, new),
    Index = fun(Channel) -> erlang:phash2(Channel, weir_pubsub_shards:count()) + 1 end,
    [Other | _] = [
        Name
     || Number <- lists:seq(1, 1000), Name <- [integer_to_binary(Number)], Index(Name) =:= Index(<<"a">>)
    ],
    Shard = whereis(weir_pubsub_shards:name(Index(<<"a">>))),
    ok = weir_pubsub_test:suspend(Shard),
    say(Socket, #{type => subscribe, channel => Other, ref => 1}),
    say(Socket, #{type => publish, channel => <<"a">>, data => <<"x">>, ref => 2}),
    say(Socket, #{type => unsubscribe, channel => <<"a">>, ref => 3}),
    ok = weir_pubsub_test:until_asked([<<"a">>, Other], 3),
    true = exit(Shard, kill),
    Answers = [
        {Ref, Type, maps:get(<<"code">>, Frame, none)}
     || _ <- [1, 2, 3], #{<<"ref">> := Ref, <<"type">> := Type} = Frame <- [hear(Socket)]
    ],
    ?assertEqual(
        [{1, <<"error">>, <<"unavailable">>}, {2, <<"error">>, <<"unavailable">>}, {3, <<"unsubscribed">>, none}],
        lists:sort(Answers)
    ),
    subscribe(Socket, Other, new),
    _ = publish(Other, <<"1">>),
    ?MESSAGE(Other, <<"1">>) = hear(Socket).

gone_when_closed(_Config) ->
    Socket = connect(),
    Channels = [<<"a">>, <<"b">>],
    [subscribe(Socket, Channel, new) || Channel <- Channels],
    ok = gen_tcp:close(Socket),
    [?waitMatch({ok, #{subscribers := 0}}, weir_pubsub:info(Channel)) || Channel <- Channels].

a_drain(_Config) ->
    Socket = connect(),
    spawn_link(fun() -> weir_http:drain_listener(weir_pubsub_ws_test, 3600000) end),
    {8, <<1012:16, _/binary>>} = frame(Socket).

other_sites(_Config) ->
    start(#{origins => [<<"http://site.example">>]}),
    ?assertMatch(<<"HTTP/1.1 101", _/binary>>, handshake("http://site.example")),
    ?assertMatch(<<"HTTP/1.1 403", _/binary>>, handshake("http://other.example")).

handshake(Origin) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: ",
        Origin,
        "\r\n\r\n"
    ]),
    {ok, Answer} = gen_tcp:recv(Socket, 12, weir_test_wait:patience()),
    Answer.

options_that_are_wrong(_Config) ->
    ?assertError({bad_option, may, any, "a fun of three arguments"}, weir_pubsub_ws:route(#{may => any})),
    ?assertError({bad_option, max_channels, 0, "an integer from 1 on"}, weir_pubsub_ws:route(#{max_channels => 0})),
    ?assertError({bad_option, colour, 1, _}, weir_pubsub_ws:route(#{colour => 1})).
