%% Channels of two nodes that share a Redis: the same messages with the same ids for the subscribers of both.
-module(weir_pubsub_redis_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_redis_test, [
    begin_again/2,
    restart/2,
    nodes_of/1,
    subscribers/1,
    call/3,
    publish/3,
    publish_id/3,
    follow/3,
    log/2,
    messages/2,
    log_of/3,
    connected/1
]).
-import(weir_pubsub_test_redis, [on/4]).
-import(weir_test_wait, [wait_until/1]).

-include("redis_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        one_channel_for_both,
        what_was_published_before,
        one_order_for_both,
        deleted_by_another_node,
        nothing_is_kept,
        many_at_once,
        a_stream_is_told,
        a_poll_of_another_node,
        paced_is_told,
        apart,
        with_a_password,
        a_password_is_in_no_log,
        what_other_programs_write
    ].

%% Cases -------------------------------------------------------------------------------

one_channel_for_both(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    There = follow(B, <<"news">>, new),
    {ok, #{id := Id, messages := 1}} = publish(A, <<"news">>, <<"Hello">>),
    {ok, #{id := Next, messages := 2}} = publish(B, <<"news">>, <<"again">>),
    Both = [{message, Id, <<"Hello">>}, {message, Next, <<"again">>}],
    ?assertEqual(Both, log_of(A, Here, Next)),
    ?assertEqual(Both, log_of(B, There, Next)).

%% A node on which the channel is not in use.
what_was_published_before(Config) ->
    {A, B} = nodes_of(Config),
    Ids = [element(2, publish_id(A, <<"news">>, integer_to_binary(N))) || N <- lists:seq(1, 5)],
    {ok, #{messages := Kept, missed := none}} = call(B, history, [<<"news">>, #{}]),
    ?assertEqual(Ids, [Id || {message, Id, _, _} <- Kept]),
    Third = lists:nth(3, Ids),
    Last = lists:last(Ids),
    There = follow(B, <<"news">>, Third),
    ?assertEqual([{message, Id, integer_to_binary(N)} || {_, N} = Id <- Ids, N > 3], log_of(B, There, Last)),
    %% With its metadata.
    {ok, #{id := Said}} = call(A, publish, [<<"said">>, <<"x">>, #{type => <<"text/html">>, event => <<"e">>}]),
    {ok, #{messages := [Message]}} = call(B, history, [<<"said">>, #{}]),
    ?assertEqual({message, Said, <<"x">>, #{type => <<"text/html">>, event => <<"e">>}}, Message).

one_order_for_both(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    There = follow(B, <<"news">>, new),
    _ = [ok = peer:cast(Node, weir_pubsub_redis_test, publish_many, [<<"news">>, 300]) || Node <- [A, B]],
    ok = wait_until(fun() -> length(messages(A, Here)) =:= 600 andalso length(messages(B, There)) =:= 600 end),
    ?assertEqual(log(A, Here), log(B, There)),
    ?assertEqual(lists:seq(1, 600), [Number || {message, {_, Number}, _} <- messages(A, Here)]).

deleted_by_another_node(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := Id}} = publish(B, <<"news">>, <<"1">>),
    ?assertMatch({ok, #{last_id := Id, messages := 1}}, call(B, delete, [<<"news">>])),
    ok = wait_until(fun() -> [{message, Id, <<"1">>}, {closed, deleted}] =:= log(A, Here) end),
    ?assertEqual({error, no_channel}, call(A, delete, [<<"news">>])),
    {ok, #{id := {Epoch, 1}}} = publish(A, <<"news">>, <<"2">>),
    ?assertNotEqual(element(1, Id), Epoch).

nothing_is_kept(Config) ->
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"*">>, #{max_messages => 0}}]}]) || Node <- [A, B]],
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}, messages := 0}} = publish(B, <<"news">>, <<"1">>),
    {ok, #{id := {Epoch, 2}}} = publish(B, <<"news">>, <<"2">>),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, {Epoch, 2}, <<"2">>}], log_of(A, Here, {Epoch, 2})),
    ?assertMatch({ok, #{messages := []}}, call(B, history, [<<"news">>, #{}])).

%% Channels that are no longer in use are left, and found again with their messages.
many_at_once(Config) ->
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"*">>, #{idle_timeout => 1}}]}]) || Node <- [A, B]],
    Names = [<<"room ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 200)],
    Ids = [publish_id(A, Name, Name) || Name <- Names],
    _ = [
        ?assertMatch({ok, #{messages := [{message, Id, Name, #{}}]}}, call(B, history, [Name, #{}]))
     || {Name, {_, Id}} <- lists:zip(Names, Ids)
    ],
    ok = wait_until(fun() -> call(B, channels, [#{}]) =:= {ok, []} end),
    ok = wait_until(fun() ->
        weir_pubsub_test_redis:ask(proplists:get_value(port, Config), ["PUBSUB", "CHANNELS"]) =:= []
    end),
    ?assertMatch({ok, #{messages := [_]}}, call(B, history, [<<"room 7">>, #{}])).

%% Sockets get messages of the other node, and a gap when Redis has lost its data.
a_stream_is_told(Config) ->
    {A, B} = nodes_of(Config),
    Port = on(A, weir_pubsub_redis_test, listen, []),
    Stream = ask(Port, ["GET /sub/news HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"]),
    Begin = read_until(Stream, <<": hi">>, <<>>),
    {_, _} = publish_id(B, <<"news">>, <<"before">>),
    One = read_until(Stream, <<"data: before">>, Begin),
    ok = restart(Config, fun() ->
        ?waitEqual(#{kind => redis, away => 2}, on(A, weir_pubsub_broker, status, [])),
        Refused = ask(Port, ["POST /pub/news HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"]),
        _ = read_until(Refused, <<"HTTP/1.1 503 ">>, <<>>)
    end),
    {A, B} = nodes_of(Config),
    {_, _} = publish_id(B, <<"news">>, <<"after">>),
    All = read_until(Stream, <<"data: after">>, One),
    ?assertMatch([_, _], binary:split(All, <<"event: gap">>)),
    [Before, After] = binary:split(All, <<"event: gap">>),
    ?assertNotEqual(nomatch, binary:match(Before, <<"data: before">>)),
    ?assertEqual(nomatch, binary:match(After, <<"data: before">>)).

%% A client that has polled one node polls the other.
a_poll_of_another_node(Config) ->
    {A, B} = nodes_of(Config),
    [Here, There] = [on(Node, weir_pubsub_redis_test, listen, []) || Node <- [A, B]],
    _ = [publish_id(A, <<"news">>, Text) || Text <- [<<"one">>, <<"two">>, <<"three">>]],
    {First, <<"one">>} = poll(Here, []),
    {Second, <<"two">>} = poll(There, First),
    {Third, <<"three">>} = poll(Here, Second),
    Waiting = ask(There, ["GET /sub/news HTTP/1.1\r\nHost: a\r\n", Third, "\r\n"]),
    ok = wait_until(fun() -> subscribers(B) =:= 1 end),
    {_, _} = publish_id(A, <<"news">>, <<"four">>),
    {_, <<"four">>} = answer(Waiting, <<>>).

%% A subscriber with a window gets a gap in its place.
paced_is_told(Config) ->
    {A, B} = nodes_of(Config),
    Paced = on(A, weir_pubsub_redis_test, pace, [<<"news">>]),
    ok = wait_until(fun() -> subscribers(A) =:= 1 end),
    {_, {Epoch, 1}} = publish_id(B, <<"news">>, <<"1">>),
    ok = wait_until(fun() -> [{message, {Epoch, 1}}] =:= on(A, weir_pubsub_redis_test, paced, [Paced]) end),
    ok = restart(Config, fun() -> ok end),
    {A, B} = nodes_of(Config),
    {_, Next} = publish_id(B, <<"news">>, <<"2">>),
    ?waitEqual(
        [{message, {Epoch, 1}}, {gap, unknown}, {message, Next}],
        without_positions(on(A, weir_pubsub_redis_test, paced, [Paced]))
    ).

without_positions(Log) ->
    lists:map(
        fun
            ({gap, Missed, _Position}) -> {gap, Missed};
            (Message) -> Message
        end,
        Log
    ).

%% Other prefixes and other databases are other channels.
apart(Config) ->
    {A, Node} = nodes_of(Config),
    Port = proplists:get_value(port, Config),
    {_, Id} = publish_id(A, <<"news">>, <<"here">>),
    lists:foreach(
        fun(Other) ->
            ok = begin_again(Node, Other#{kind => redis, port => Port}),
            ok = connected(Node),
            There = follow(Node, <<"news">>, oldest),
            {_, Own} = publish_id(Node, <<"news">>, <<"there">>),
            ?assertEqual([{message, Own, <<"there">>}], log_of(Node, There, Own)),
            ?assertMatch({ok, #{messages := [{message, Id, <<"here">>, #{}}]}}, call(A, history, [<<"news">>, #{}]))
        end,
        [#{prefix => <<"other">>}, #{database => 1}]
    ).

with_a_password(Config) ->
    {Right, Wrong} = nodes_of(Config),
    Port = weir_test_port:claim(),
    Redis = weir_pubsub_test_redis:start(Port, ["--requirepass", "secret"]),
    try
        ok = begin_again(Right, #{kind => redis, port => Port, password => <<"secret">>}),
        ok = connected(Right),
        {ok, _} = publish_id(Right, <<"news">>, <<"1">>),
        ok = begin_again(Wrong, #{kind => redis, port => Port, password => <<"guessed">>}),
        ?assertEqual({error, unavailable}, publish(Wrong, <<"news">>, <<"1">>)),
        ?waitEqual(#{kind => redis, away => 2}, on(Wrong, weir_pubsub_broker, status, []))
    after
        weir_pubsub_test_redis:kill(Redis)
    end.

%% Supervisors log the arguments of a child that has ended, and a process that fails logs its state.
a_password_is_in_no_log(Config) ->
    {Node, _} = nodes_of(Config),
    Password = <<"a very secret word">>,
    ok = begin_again(Node, #{kind => redis, port => weir_test_port:claim(), password => Password}),
    Name = on(Node, weir_pubsub_broker, name, [1]),
    Shown = io_lib:format("~p", [
        {
            [on(Node, supervisor, get_childspec, [weir_pubsub_sup, Name])],
            on(Node, sys, get_status, [Name])
        }
    ]),
    ?assertEqual(nomatch, string:find(Shown, Password)).

%% Entries of other programs are left out, and cost no message of ours.
what_other_programs_write(Config) ->
    {A, B} = nodes_of(Config),
    Port = proplists:get_value(port, Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(A, <<"news">>, <<"1">>),
    Brokers = [on(A, erlang, whereis, [on(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]],
    Texts = [<<>>, <<"x">>, <<"m">>, <<"m1">>, <<"m1 2">>, <<"mx y z">>, <<"d">>, <<"dx">>, <<"m1 2 ", 1, 255>>],
    _ = [true = 0 < weir_pubsub_test_redis:ask(Port, ["PUBLISH", "weir:0:news", Text]) || Text <- Texts],
    _ = weir_pubsub_test_redis:ask(Port, ["XADD", "weir:{news}:history", "1-1", "other", "entry"]),
    {ok, #{id := {Epoch, 2} = Last}} = publish(A, <<"news">>, <<"2">>),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, Last, <<"2">>}], log_of(A, Here, Last)),
    ?assertEqual(Brokers, [on(A, erlang, whereis, [on(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]]),
    ?assertMatch({ok, #{messages := [{message, Last, <<"2">>, _}]}}, call(B, history, [<<"news">>, #{}])).

ask(Port, Request) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], weir_test_wait:patience()),
    ok = gen_tcp:send(Socket, Request),
    Socket.

read_until(Socket, Part, Bytes) ->
    case binary:match(Bytes, Part) of
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            read_until(Socket, Part, <<Bytes/binary, More/binary>>);
        _ ->
            Bytes
    end.

poll(Port, Behind) -> answer(ask(Port, ["GET /sub/news HTTP/1.1\r\nHost: a\r\n", Behind, "\r\n"]), <<>>).

%% The fields for the next poll, and the body.
answer(Socket, Bytes) ->
    case
        re:run(Bytes, "^HTTP/1.1 200 .*?content-length: (\\d+)\r\n.*?\r\n\r\n(.*)$", [
            dotall, caseless, {capture, all_but_first, binary}
        ])
    of
        {match, [Length, Body]} ->
            case byte_size(Body) =:= binary_to_integer(Length) of
                true ->
                    [Modified, Tag] = [
                        begin
                            {match, [Value]} = re:run(Bytes, Name ++ ": (.*?)\r\n", [
                                caseless, {capture, all_but_first, binary}
                            ]),
                            Value
                        end
                     || Name <- ["last-modified", "etag"]
                    ],
                    {["If-Modified-Since: ", Modified, "\r\nIf-None-Match: ", Tag, "\r\n"], Body};
                false ->
                    more(Socket, Bytes)
            end;
        nomatch ->
            more(Socket, Bytes)
    end.

more(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    answer(Socket, <<Bytes/binary, More/binary>>).
