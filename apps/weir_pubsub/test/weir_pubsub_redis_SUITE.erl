%% Channels of two nodes that share a Redis: the same messages with the same ids for the subscribers of both, also while Redis is away.
-module(weir_pubsub_redis_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-define(PATIENCE, 15000).

suite() -> [{timetrap, {seconds, 90}}].

all() ->
    [
        one_channel_for_both,
        what_was_published_before,
        one_order_for_both,
        cut_off_and_caught_up,
        cut_off_for_too_long,
        away,
        deleted_by_another_node,
        a_shard_is_killed,
        the_broker_process_is_killed,
        nothing_is_kept,
        many_at_once,
        a_stream_is_told,
        a_poll_of_another_node,
        paced_is_told,
        apart,
        with_a_password,
        a_password_is_in_no_log,
        before_the_first_connection,
        what_other_programs_write,
        random
    ].

init_per_suite(Config) ->
    case weir_pubsub_test_redis:is_there() of
        true -> Config;
        false -> {skip, "neither redis-server nor valkey-server is there: scripts/setup test"}
    end.

end_per_suite(_Config) -> ok.

%% What ends with a case ends however it does.
init_per_testcase(_Case, Config) ->
    Parent = self(),
    Holder = spawn(fun() -> hold(Parent) end),
    receive
        {Holder, Things} -> [{holder, Holder} | Things] ++ Config
    after 60000 -> error(no_nodes)
    end.

hold(Parent) ->
    Port = weir_pubsub_test_redis:free_port(),
    Redis = weir_pubsub_test_redis:start(Port),
    Broker = #{kind => redis, port => Port},
    Nodes = [weir_pubsub_test_redis:node(Broker), weir_pubsub_test_redis:node(Broker)],
    Parent ! {self(), [{port, Port}, {nodes, Nodes}]},
    hold(Port, Redis, Nodes).

hold(Port, Redis, Nodes) ->
    receive
        {restart, From, Ref, Between} ->
            ok = weir_pubsub_test_redis:kill(Redis),
            Between(),
            Next = weir_pubsub_test_redis:start(Port),
            From ! Ref,
            hold(Port, Next, Nodes);
        {stop, From} ->
            _ = [peer:stop(Node) || Node <- Nodes],
            ok = weir_pubsub_test_redis:kill(Redis),
            From ! {self(), stopped}
    end.

end_per_testcase(_Case, Config) ->
    Holder = proplists:get_value(holder, Config),
    Holder ! {stop, self()},
    receive
        {Holder, stopped} -> ok
    after 30000 -> exit(Holder, kill)
    end.

%% Redis is killed; when the fun has returned there is another, with nothing in it.
restart(Config, Between) ->
    Ref = make_ref(),
    proplists:get_value(holder, Config) ! {restart, self(), Ref, Between},
    receive
        Ref -> ok
    after 60000 -> error(no_restart)
    end.

nodes_of(Config) ->
    [A, B] = proplists:get_value(nodes, Config),
    ok = connected(A),
    ok = connected(B),
    {A, B}.

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

%% A node in which nobody has used the channel.
what_was_published_before(Config) ->
    {A, B} = nodes_of(Config),
    Ids = [element(2, publish_id(A, <<"news">>, integer_to_binary(N))) || N <- lists:seq(1, 5)],
    {ok, #{messages := Kept, missed := none}} = call(B, history, [<<"news">>, #{}]),
    ?assertEqual(Ids, [Id || {message, Id, _, _} <- Kept]),
    Third = lists:nth(3, Ids),
    Last = lists:last(Ids),
    There = follow(B, <<"news">>, Third),
    ?assertEqual([{message, Id, integer_to_binary(N)} || {_, N} = Id <- Ids, N > 3], log_of(B, There, Last)),
    %% With what was said about it.
    {ok, #{id := Said}} = call(A, publish, [<<"said">>, <<"x">>, #{type => <<"text/html">>, event => <<"e">>}]),
    {ok, #{messages := [Message]}} = call(B, history, [<<"said">>, #{}]),
    ?assertEqual({message, Said, <<"x">>, #{type => <<"text/html">>, event => <<"e">>}}, Message).

one_order_for_both(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    There = follow(B, <<"news">>, new),
    _ = [ok = peer:cast(Node, ?MODULE, publish_many, [<<"news">>, 300]) || Node <- [A, B]],
    ok = until(fun() -> length(messages(A, Here)) =:= 600 andalso length(messages(B, There)) =:= 600 end),
    ?assertEqual(log(A, Here), log(B, There)),
    ?assertEqual(lists:seq(1, 600), [Number || {message, {_, Number}, _} <- messages(A, Here)]).

%% Connections are cut, messages are published meanwhile: all come, in order, and there is no gap.
cut_off_and_caught_up(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(B, <<"news">>, <<"1">>),
    ok = suspend(A),
    ok = cut(Config),
    ok = connected(B),
    _ = [publish_id(B, <<"news">>, integer_to_binary(N)) || N <- lists:seq(2, 9)],
    ok = resume(A),
    ?assertEqual([{message, {Epoch, N}, integer_to_binary(N)} || N <- lists:seq(1, 9)], log_of(A, Here, {Epoch, 9})).

%% The same with more than is kept: the hole is told.
cut_off_for_too_long(Config) ->
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"*">>, #{max_messages => 3}}]}]) || Node <- [A, B]],
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1} = First}} = publish(B, <<"news">>, <<"1">>),
    ?assertEqual([{message, First, <<"1">>}], log_of(A, Here, First)),
    ok = suspend(A),
    ok = cut(Config),
    ok = connected(B),
    _ = [publish_id(B, <<"news">>, integer_to_binary(N)) || N <- lists:seq(2, 11)],
    ok = resume(A),
    ?assertEqual(
        [{message, First, <<"1">>}, {gap, 7, {Epoch, 8}} | [{message, {Epoch, N}, integer_to_binary(N)} || N <- [9, 10, 11]]],
        log_of(A, Here, {Epoch, 11})
    ).

%% Redis is gone: the node says so, keeps its subscribers and what it has, and refuses to publish. When it is back, without what it
%% had, subscribers are told, and get what comes.
away(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := First}} = publish(A, <<"news">>, <<"1">>),
    [_] = log_of(A, Here, First),
    ok = restart(Config, fun() ->
        ok = until(fun() -> peer:call(A, weir_pubsub_broker, status, []) =:= #{kind => redis, away => 2} end),
        ?assertEqual({error, unavailable}, publish(A, <<"news">>, <<"lost">>)),
        ?assertMatch({ok, #{messages := [{message, First, <<"1">>, #{}}]}}, call(A, history, [<<"news">>, #{}])),
        Meanwhile = follow(A, <<"news">>, oldest),
        ?assertEqual([{message, First, <<"1">>}], log_of(A, Meanwhile, First)),
        %% One that nobody has used.
        {ok, _} = peer:call(A, weir_pubsub_follower, start, [<<"other">>, new])
    end),
    {A, B} = nodes_of(Config),
    {_, Second} = publish_id(B, <<"news">>, <<"2">>),
    ?assertMatch([{message, First, <<"1">>}, {gap, unknown, _}, {message, Second, <<"2">>}], log_of(A, Here, Second)),
    #{broker_losses := Losses} = call(A, counters, []),
    ?assert(Losses >= 2).

deleted_by_another_node(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := Id}} = publish(B, <<"news">>, <<"1">>),
    ?assertMatch({ok, #{last_id := Id, messages := 1}}, call(B, delete, [<<"news">>])),
    ok = until(fun() -> [{message, Id, <<"1">>}, {closed, deleted}] =:= log(A, Here) end),
    ?assertEqual({error, no_channel}, call(A, delete, [<<"news">>])),
    {ok, #{id := {Epoch, 1}}} = publish(A, <<"news">>, <<"2">>),
    ?assertNotEqual(element(1, Id), Epoch).

a_shard_is_killed(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(B, <<"news">>, <<"1">>),
    [_] = log_of(A, Here, {Epoch, 1}),
    _ = [peer:call(A, ?MODULE, kill, [peer:call(A, weir_pubsub_shards, name, [Index])]) || Index <- [1, 2]],
    ok = until(fun() -> [Gap || {gap, unknown, {E, 0}} = Gap <- log(A, Here), E =:= Epoch] =/= [] orelse has_gap(A, Here) end),
    ok = connected(A),
    {_, Id} = publish_id(B, <<"news">>, <<"2">>),
    Log = log_of(A, Here, Id),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, Id, <<"2">>}], [Message || {message, _, _} = Message <- Log]).

the_broker_process_is_killed(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(B, <<"news">>, <<"1">>),
    _ = [peer:call(A, ?MODULE, kill, [peer:call(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]],
    _ = [publish_id(B, <<"news">>, integer_to_binary(N)) || N <- lists:seq(2, 5)],
    ?assertEqual([{message, {Epoch, N}, integer_to_binary(N)} || N <- lists:seq(1, 5)], log_of(A, Here, {Epoch, 5})).

nothing_is_kept(Config) ->
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"*">>, #{max_messages => 0}}]}]) || Node <- [A, B]],
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}, messages := 0}} = publish(B, <<"news">>, <<"1">>),
    {ok, #{id := {Epoch, 2}}} = publish(B, <<"news">>, <<"2">>),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, {Epoch, 2}, <<"2">>}], log_of(A, Here, {Epoch, 2})),
    ?assertMatch({ok, #{messages := []}}, call(B, history, [<<"news">>, #{}])).

%% Channels that nobody uses any more are left, and found again with what they had.
many_at_once(Config) ->
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"*">>, #{idle_timeout => 1}}]}]) || Node <- [A, B]],
    Names = [<<"room ", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 200)],
    Ids = [publish_id(A, Name, Name) || Name <- Names],
    _ = [?assertMatch({ok, #{messages := [{message, Id, Name, #{}}]}}, call(B, history, [Name, #{}])) || {Name, {_, Id}} <- lists:zip(Names, Ids)],
    ok = until(fun() -> call(B, channels, [#{}]) =:= {ok, []} end),
    ok = until(fun() -> weir_pubsub_test_redis:ask(proplists:get_value(port, Config), ["PUBSUB", "CHANNELS"]) =:= [] end),
    ?assertMatch({ok, #{messages := [_]}}, call(B, history, [<<"room 7">>, #{}])).

%% Sockets get messages of the other node, and the gap when Redis has lost what it had.
a_stream_is_told(Config) ->
    {A, B} = nodes_of(Config),
    Port = peer:call(A, ?MODULE, listen, []),
    Stream = ask(Port, ["GET /sub/news HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"]),
    Begin = read_until(Stream, <<": hi">>, <<>>),
    {_, _} = publish_id(B, <<"news">>, <<"before">>),
    One = read_until(Stream, <<"data: before">>, Begin),
    ok = restart(Config, fun() ->
        ok = until(fun() -> peer:call(A, weir_pubsub_broker, status, []) =:= #{kind => redis, away => 2} end),
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

%% A client that has polled here polls there.
a_poll_of_another_node(Config) ->
    {A, B} = nodes_of(Config),
    [Here, There] = [peer:call(Node, ?MODULE, listen, []) || Node <- [A, B]],
    _ = [publish_id(A, <<"news">>, Text) || Text <- [<<"one">>, <<"two">>, <<"three">>]],
    {First, <<"one">>} = poll(Here, []),
    {Second, <<"two">>} = poll(There, First),
    {Third, <<"three">>} = poll(Here, Second),
    Waiting = ask(There, ["GET /sub/news HTTP/1.1\r\nHost: a\r\n", Third, "\r\n"]),
    ok = until(fun() -> subscribers(B) =:= 1 end),
    {_, _} = publish_id(A, <<"news">>, <<"four">>),
    {_, <<"four">>} = answer(Waiting, <<>>).

subscribers(Node) ->
    {ok, #{subscribers := Count}} = call(Node, usage, [total]),
    Count.

%% Who takes so many messages at a time is told of a gap where it is.
paced_is_told(Config) ->
    {A, B} = nodes_of(Config),
    Paced = peer:call(A, ?MODULE, pace, [<<"news">>]),
    ok = until(fun() -> subscribers(A) =:= 1 end),
    {_, {Epoch, 1}} = publish_id(B, <<"news">>, <<"1">>),
    ok = until(fun() -> [{message, {Epoch, 1}}] =:= peer:call(A, ?MODULE, paced, [Paced]) end),
    ok = restart(Config, fun() -> ok end),
    {A, B} = nodes_of(Config),
    {_, Next} = publish_id(B, <<"news">>, <<"2">>),
    ok = until(fun() ->
        case peer:call(A, ?MODULE, paced, [Paced]) of
            [{message, {Epoch, 1}}, {gap, unknown, _}, {message, Next}] -> true;
            _ -> false
        end
    end).

%% Other prefixes and other databases are other channels.
apart(Config) ->
    {A, _} = nodes_of(Config),
    Port = proplists:get_value(port, Config),
    {_, Id} = publish_id(A, <<"news">>, <<"here">>),
    lists:foreach(
        fun(Other) ->
            Node = weir_pubsub_test_redis:node(maps:merge(#{kind => redis, port => Port}, Other)),
            ok = connected(Node),
            There = follow(Node, <<"news">>, oldest),
            {_, Own} = publish_id(Node, <<"news">>, <<"there">>),
            ?assertEqual([{message, Own, <<"there">>}], log_of(Node, There, Own)),
            ?assertMatch({ok, #{messages := [{message, Id, <<"here">>, #{}}]}}, call(A, history, [<<"news">>, #{}])),
            ok = peer:stop(Node)
        end,
        [#{prefix => <<"other">>}, #{database => 1}]
    ).

with_a_password(_Config) ->
    Port = weir_pubsub_test_redis:free_port(),
    Redis = weir_pubsub_test_redis:start(Port, ["--requirepass", "secret"]),
    try
        Right = weir_pubsub_test_redis:node(#{kind => redis, port => Port, password => <<"secret">>}),
        ok = connected(Right),
        {ok, _} = publish_id(Right, <<"news">>, <<"1">>),
        Wrong = weir_pubsub_test_redis:node(#{kind => redis, port => Port, password => <<"guessed">>}),
        ?assertEqual({error, unavailable}, publish(Wrong, <<"news">>, <<"1">>)),
        ?assertEqual(#{kind => redis, away => 2}, peer:call(Wrong, weir_pubsub_broker, status, [])),
        _ = [peer:stop(Node) || Node <- [Right, Wrong]]
    after
        weir_pubsub_test_redis:kill(Redis)
    end.

%% Supervisors tell the arguments of a child that has ended, and a process that fails tells its state.
a_password_is_in_no_log(_Config) ->
    Password = <<"a very secret word">>,
    Node = weir_pubsub_test_redis:node(#{kind => redis, port => weir_pubsub_test_redis:free_port(), password => Password}),
    Name = peer:call(Node, weir_pubsub_broker, name, [1]),
    Shown = io_lib:format("~p", [
        {
            [peer:call(Node, supervisor, get_childspec, [weir_pubsub_sup, Name])],
            peer:call(Node, sys, get_status, [Name])
        }
    ]),
    ?assertEqual(nomatch, string:find(Shown, Password)),
    ok = peer:stop(Node).

%% Who comes while a node begins to connect waits for that, and gets what is kept.
before_the_first_connection(Config) ->
    {A, _} = nodes_of(Config),
    Ids = [element(2, publish_id(A, <<"news">>, integer_to_binary(N))) || N <- [1, 2, 3]],
    {ok, Gate} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, true}]),
    {ok, GatePort} = inet:port(Gate),
    Node = weir_pubsub_test_redis:node(#{kind => redis, port => GatePort}),
    Test = self(),
    _ = spawn_link(fun() ->
        Test ! {log, log_of(Node, follow(Node, <<"news">>, oldest), lists:last(Ids))},
        receive stop -> ok end
    end),
    %% It is with its shard: it waits, or has been given a channel.
    ok = until(fun() -> has_come(Node, <<"news">>) end),
    _ = spawn_link(fun() ->
        _ = [through(Gate, proplists:get_value(port, Config)) || _ <- [1, 2]],
        pass(#{})
    end),
    Expected = [{message, Id, integer_to_binary(N)} || {{_, N} = Id, N} <- lists:zip(Ids, [1, 2, 3])],
    ?assertEqual(Expected, receive {log, Log} -> Log after ?PATIENCE -> nothing end),
    ok = peer:stop(Node).

has_come(Node, Channel) ->
    Shards = [peer:call(Node, sys, get_state, [peer:call(Node, weir_pubsub_shards, name, [Index])]) || Index <- [1, 2]],
    lists:any(fun(#shard{opening = Opening}) -> is_map_key(Channel, Opening) end, Shards) orelse
        call(Node, info, [Channel]) =/= {error, no_channel}.

%% Connections to a gate go on to Redis.
through(Gate, Port) ->
    {ok, Client} = gen_tcp:accept(Gate, ?PATIENCE),
    {ok, Server} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
    self() ! {peers, Client, Server}.

pass(Peers) ->
    receive
        {peers, Client, Server} -> pass(Peers#{Client => Server, Server => Client});
        {tcp, From, Data} when is_map_key(From, Peers) -> _ = gen_tcp:send(map_get(From, Peers), Data), pass(Peers);
        {tcp_closed, _} -> pass(Peers)
    end.

%% It is left out, and costs nothing that is ours.
what_other_programs_write(Config) ->
    {A, B} = nodes_of(Config),
    Port = proplists:get_value(port, Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(A, <<"news">>, <<"1">>),
    Brokers = [peer:call(A, erlang, whereis, [peer:call(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]],
    Texts = [<<>>, <<"x">>, <<"m">>, <<"m1">>, <<"m1 2">>, <<"mx y z">>, <<"d">>, <<"dx">>, <<"m1 2 ", 1, 255>>],
    _ = [true = 0 < weir_pubsub_test_redis:ask(Port, ["PUBLISH", "weir:0:news", Text]) || Text <- Texts],
    _ = weir_pubsub_test_redis:ask(Port, ["XADD", "weir:{news}:history", "1-1", "other", "entry"]),
    {ok, #{id := {Epoch, 2} = Last}} = publish(A, <<"news">>, <<"2">>),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, Last, <<"2">>}], log_of(A, Here, Last)),
    ?assertEqual(Brokers, [peer:call(A, erlang, whereis, [peer:call(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]]),
    ?assertMatch({ok, #{messages := [{message, Last, <<"2">>, _}]}}, call(B, history, [<<"news">>, #{}])).

ask(Port, Request) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?PATIENCE),
    ok = gen_tcp:send(Socket, Request),
    Socket.

read_until(Socket, Part, Bytes) ->
    case binary:match(Bytes, Part) of
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, ?PATIENCE),
            read_until(Socket, Part, <<Bytes/binary, More/binary>>);
        _ ->
            Bytes
    end.

poll(Port, Behind) -> answer(ask(Port, ["GET /sub/news HTTP/1.1\r\nHost: a\r\n", Behind, "\r\n"]), <<>>).

%% The fields that the next poll has, and what was said.
answer(Socket, Bytes) ->
    case re:run(Bytes, "^HTTP/1.1 200 .*?content-length: (\\d+)\r\n.*?\r\n\r\n(.*)$", [dotall, caseless, {capture, all_but_first, binary}]) of
        {match, [Length, Body]} ->
            case byte_size(Body) =:= binary_to_integer(Length) of
                true ->
                    [Modified, Tag] = [
                        begin
                            {match, [Value]} = re:run(Bytes, Name ++ ": (.*?)\r\n", [caseless, {capture, all_but_first, binary}]),
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
    {ok, More} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    answer(Socket, <<Bytes/binary, More/binary>>).

%% Random publications, subscriptions and deletions in both nodes, while Redis is restarted and connections are cut: no subscriber
%% sees a message twice or out of order, each hole is told, an id means one message for all, and at the end everybody is at the end.
random(Config) ->
    Seed = {erlang:unique_integer([positive]), erlang:phash2(make_ref()), 1},
    ct:log("seed ~p", [Seed]),
    _ = rand:seed(exsss, Seed),
    {A, B} = nodes_of(Config),
    _ = [ok = call(Node, configure, [#{channels => [{<<"few">>, #{max_messages => 2}}]}]) || Node <- [A, B]],
    Channels = [<<"one">>, <<"two">>, <<"few">>],
    Followers = lists:foldl(fun(N, Before) -> step(N, Config, [A, B], Channels, Before) end, [], lists:seq(1, 600)),
    {A, B} = nodes_of(Config),
    Last = maps:from_list([{Channel, element(2, publish_id(A, Channel, <<"last">>))} || Channel <- Channels]),
    Logs = [
        begin
            ok = until(fun() -> ends(Node, Follower, maps:get(Channel, Last)) end),
            {Channel, log(Node, Follower)}
        end
     || {Node, Channel, Follower} <- Followers
    ],
    ?assertEqual([], [{Wrong, Log} || {_, Log} <- Logs, {wrong, _, _} = Wrong <- Log]),
    [
        ?assertEqual([], Ids -- lists:usort(Ids), Log)
     || {_, Log} <- Logs, Ids <- [[Id || {message, Id, _} <- Log]]
    ],
    Meanings = lists:usort([{Channel, Id, Data} || {Channel, Log} <- Logs, {message, Id, Data} <- Log]),
    ?assertEqual(length(Meanings), length(lists:usort([{Channel, Id} || {Channel, Id, _} <- Meanings]))),
    ct:log("~b followers, ~b messages, ~b gaps", [
        length(Logs), length(Meanings), length([Gap || {_, Log} <- Logs, {gap, _, _} = Gap <- Log])
    ]).

step(N, Config, Nodes, Channels, Followers) ->
    Node = one_of(Nodes),
    Channel = one_of(Channels),
    case rand:uniform(100) of
        R when R =< 70 ->
            ok = peer:cast(Node, weir_pubsub, publish, [Channel, integer_to_binary(N)]),
            Followers;
        R when R =< 80 ->
            From = one_of([new, oldest, {last, 1}, {7, 7} | [element(1, peer:call(At, weir_pubsub_follower, log, [F])) || {At, C, F} <- Followers, C =:= Channel]]),
            case peer:call(Node, weir_pubsub_follower, start, [Channel, From], 20000) of
                {ok, Follower} -> [{Node, Channel, Follower} | Followers];
                {error, _} -> Followers
            end;
        R when R =< 82 ->
            ok = cut(Config),
            Followers;
        R when R =< 83 ->
            ok = restart(Config, fun() -> timer:sleep(rand:uniform(150)) end),
            Followers;
        R when R =< 84 ->
            _ = call(Node, delete, [Channel]),
            Followers;
        85 ->
            ok = peer:call(Node, ?MODULE, kill, [peer:call(Node, weir_pubsub_shards, name, [rand:uniform(2)])]),
            Followers;
        _ ->
            ok = connected(Node),
            Followers
    end.

one_of(List) -> lists:nth(rand:uniform(length(List)), List).

%% On a node ---------------------------------------------------------------------------

publish_many(Channel, Count) ->
    _ = [{ok, _} = weir_pubsub:publish(Channel, integer_to_binary(N)) || N <- lists:seq(1, Count)],
    ok.

listen() ->
    {ok, _} = weir_http:start_listener(push, #{port => 0, ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(#{})),
    weir:get_port(push).

%% A subscriber with a window of one, which takes each message at once.
pace(Channel) ->
    spawn(fun() ->
        {ok, _} = weir_pubsub:subscribe(Channel, #{window => 1}),
        paced(Channel, [])
    end).

paced(Channel, Log) ->
    receive
        {weir_pubsub, Channel, {message, Id, _, _}} ->
            ok = weir_pubsub:taken(Channel, 1),
            paced(Channel, [{message, Id} | Log]);
        {weir_pubsub, Channel, Other} ->
            paced(Channel, [Other | Log]);
        {log, From} ->
            From ! {self(), lists:reverse(Log)},
            paced(Channel, Log)
    end.

paced(Pid) ->
    Pid ! {log, self()},
    receive
        {Pid, Log} -> Log
    after ?PATIENCE -> error(no_log)
    end.

kill(Name) ->
    case whereis(Name) of
        undefined -> ok;
        Pid -> exit(Pid, kill), ok
    end.

%% Helps -------------------------------------------------------------------------------

call(Node, Function, Arguments) -> peer:call(Node, weir_pubsub, Function, Arguments, 20000).

publish(Node, Channel, Data) -> call(Node, publish, [Channel, Data]).

%% As soon as there is a Redis.
publish_id(Node, Channel, Data) ->
    case publish(Node, Channel, Data) of
        {ok, #{id := Id}} -> {ok, Id};
        {error, unavailable} -> timer:sleep(20), publish_id(Node, Channel, Data)
    end.

follow(Node, Channel, From) ->
    {ok, Follower} = peer:call(Node, weir_pubsub_follower, start, [Channel, From]),
    Follower.

log(Node, Follower) -> element(2, peer:call(Node, weir_pubsub_follower, log, [Follower])).

messages(Node, Follower) -> [Message || {message, _, _} = Message <- log(Node, Follower)].

has_gap(Node, Follower) -> [Gap || {gap, _, _} = Gap <- log(Node, Follower)] =/= [].

%% What it has got when it has got that message.
log_of(Node, Follower, Id) ->
    ok = until(fun() -> lists:keymember(Id, 2, messages(Node, Follower)) end),
    log(Node, Follower).

%% Its subscription has ended, or it has the last message.
ends(Node, Follower, Id) ->
    Log = log(Node, Follower),
    lists:keymember(closed, 1, Log) orelse lists:keymember(wrong, 1, Log) orelse lists:keymember(Id, 2, Log).

connected(Node) ->
    until(fun() -> peer:call(Node, weir_pubsub_broker, status, []) =:= #{kind => redis, away => 0} end).

cut(Config) ->
    Port = proplists:get_value(port, Config),
    _ = [weir_pubsub_test_redis:ask(Port, ["CLIENT", "KILL", "TYPE", Type, "SKIPME", "yes"]) || Type <- ["normal", "pubsub"]],
    ok.

suspend(Node) -> each_broker(Node, suspend).
resume(Node) -> each_broker(Node, resume).

each_broker(Node, Function) ->
    _ = [ok = peer:call(Node, sys, Function, [peer:call(Node, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]],
    ok.

until(Is) -> until(Is, erlang:monotonic_time(millisecond) + ?PATIENCE).

until(Is, End) ->
    case Is() of
        true -> ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < End, "it did not come to that"),
            timer:sleep(20),
            until(Is, End)
    end.
