%% Channels of two nodes that share a Redis, while Redis is away or restarted, nodes are cut off and processes are
%% killed.
-module(weir_pubsub_redis_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_redis_test, [
    begin_again/2,
    restart/2,
    nodes_of/1,
    call/3,
    publish/3,
    publish_id/3,
    follow/3,
    log/2,
    has_gap/2,
    log_of/3,
    ends/3,
    connected/1,
    cut/1,
    suspend/1,
    resume/1
]).
-import(weir_pubsub_test_redis, [on/4]).
-import(weir_test_wait, [wait_until/1]).

-include("redis_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        cut_off_and_caught_up,
        cut_off_for_too_long,
        away,
        a_shard_is_killed,
        the_broker_process_is_killed,
        before_the_first_connection,
        random
    ].

%% Cases -------------------------------------------------------------------------------

%% Connections are cut, and messages are published before they are back: all come, in order, without a gap.
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

%% The same with more messages than are kept: there is a gap.
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
        [
            {message, First, <<"1">>},
            {gap, 7, {Epoch, 8}}
            | [{message, {Epoch, N}, integer_to_binary(N)} || N <- [9, 10, 11]]
        ],
        log_of(A, Here, {Epoch, 11})
    ).

%% Redis is gone: the node reports it, keeps its subscribers and its copy, and refuses to publish. When Redis is back
%% without its data, subscribers get a gap and the later messages.
away(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := First}} = publish(A, <<"news">>, <<"1">>),
    [_] = log_of(A, Here, First),
    ok = on(A, weir_event, attach_many, [
        told, [[weir, broker, start], [weir, broker, stop]], {weir_pubsub_redis_test, told}, []
    ]),
    ok = restart(Config, fun() ->
        ?waitEqual(#{kind => redis, away => 2}, on(A, weir_pubsub_broker, status, [])),
        ?assertEqual({error, unavailable}, publish(A, <<"news">>, <<"lost">>)),
        ?assertMatch({ok, #{messages := [{message, First, <<"1">>, #{}}]}}, call(A, history, [<<"news">>, #{}])),
        Meanwhile = follow(A, <<"news">>, oldest),
        ?assertEqual([{message, First, <<"1">>}], log_of(A, Meanwhile, First)),
        %% A channel that was not in use.
        {ok, _} = on(A, weir_pubsub_follower, start, [<<"other">>, new])
    end),
    {A, B} = nodes_of(Config),
    {_, Second} = publish_id(B, <<"news">>, <<"2">>),
    ?assertMatch([{message, First, <<"1">>}, {gap, unknown, _}, {message, Second, <<"2">>}], log_of(A, Here, Second)),
    #{broker_losses := Losses} = call(A, counters, []),
    ?assert(Losses >= 2),
    ?assertEqual([start, stop], lists:usort(on(A, application, get_env, [weir_pubsub, told, []]))).

a_shard_is_killed(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(B, <<"news">>, <<"1">>),
    [_] = log_of(A, Here, {Epoch, 1}),
    _ = [on(A, weir_pubsub_redis_test, kill, [on(A, weir_pubsub_shards, name, [Index])]) || Index <- [1, 2]],
    ok = wait_until(fun() -> has_gap(A, Here) end),
    ok = connected(A),
    {_, Id} = publish_id(B, <<"news">>, <<"2">>),
    Log = log_of(A, Here, Id),
    ?assertEqual([{message, {Epoch, 1}, <<"1">>}, {message, Id, <<"2">>}], [
        Message || {message, _, _} = Message <- Log
    ]).

the_broker_process_is_killed(Config) ->
    {A, B} = nodes_of(Config),
    Here = follow(A, <<"news">>, new),
    {ok, #{id := {Epoch, 1}}} = publish(B, <<"news">>, <<"1">>),
    _ = [on(A, weir_pubsub_redis_test, kill, [on(A, weir_pubsub_broker, name, [Index])]) || Index <- [1, 2]],
    _ = [publish_id(B, <<"news">>, integer_to_binary(N)) || N <- lists:seq(2, 5)],
    ?assertEqual([{message, {Epoch, N}, integer_to_binary(N)} || N <- lists:seq(1, 5)], log_of(A, Here, {Epoch, 5})).

%% A client that comes while a node begins to connect waits for that, and gets what is kept.
before_the_first_connection(Config) ->
    {A, Node} = nodes_of(Config),
    Ids = [element(2, publish_id(A, <<"news">>, integer_to_binary(N))) || N <- [1, 2, 3]],
    {ok, Gate} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, true}]),
    {ok, GatePort} = inet:port(Gate),
    ok = begin_again(Node, #{kind => redis, port => GatePort}),
    Test = self(),
    _ = spawn_link(fun() ->
        Test ! {log, log_of(Node, follow(Node, <<"news">>, oldest), lists:last(Ids))},
        receive stop -> ok end
    end),
    %% The request is with its shard: it waits, or the shard has the channel.
    ok = wait_until(fun() -> has_come(Node, <<"news">>) end),
    _ = spawn_link(fun() ->
        _ = [through(Gate, proplists:get_value(port, Config)) || _ <- [1, 2]],
        pass(#{})
    end),
    Expected = [{message, Id, integer_to_binary(N)} || {{_, N} = Id, N} <- lists:zip(Ids, [1, 2, 3])],
    ?assertEqual(Expected, receive {log, Log} -> Log after weir_test_wait:patience() -> nothing end).

has_come(Node, Channel) ->
    Shards = [
        on(Node, sys, get_state, [on(Node, weir_pubsub_shards, name, [Index]), weir_test_wait:patience()])
     || Index <- [1, 2]
    ],
    lists:any(fun(#shard{opening = Opening}) -> is_map_key(Channel, Opening) end, Shards) orelse
        call(Node, info, [Channel]) =/= {error, no_channel}.

%% Forwards the connections of a gate to Redis.
through(Gate, Port) ->
    {ok, Client} = gen_tcp:accept(Gate, weir_test_wait:patience()),
    {ok, Server} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, true}]),
    self() ! {peers, Client, Server}.

pass(Peers) ->
    receive
        {peers, Client, Server} -> pass(Peers#{Client => Server, Server => Client});
        {tcp, From, Data} when is_map_key(From, Peers) -> _ = gen_tcp:send(map_get(From, Peers), Data), pass(Peers);
        {tcp_closed, _} -> pass(Peers)
    end.

%% Random publications, subscriptions and deletions on both nodes, while Redis is restarted and connections are cut:
%% no subscriber sees a message twice or out of order, each gap is announced, an id means one message for all, and at
%% the end all are at the end.
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
            ok = wait_until(fun() -> ends(Node, Follower, maps:get(Channel, Last)) end),
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
            From = one_of([
                new,
                oldest,
                {last, 1},
                {7, 7}
                | [element(1, on(At, weir_pubsub_follower, log, [F])) || {At, C, F} <- Followers, C =:= Channel]
            ]),
            case on(Node, weir_pubsub_follower, start, [Channel, From]) of
                {ok, Follower} -> [{Node, Channel, Follower} | Followers];
                {error, _} -> Followers
            end;
        R when R =< 82 ->
            ok = cut(Config),
            Followers;
        R when R =< 83 ->
            ok = restart(Config, fun() -> away_for_a_while(Node) end),
            Followers;
        R when R =< 84 ->
            _ = call(Node, delete, [Channel]),
            Followers;
        85 ->
            ok = on(Node, weir_pubsub_redis_test, kill, [on(Node, weir_pubsub_shards, name, [rand:uniform(2)])]),
            Followers;
        _ ->
            ok = connected(Node),
            Followers
    end.

%% Nodes have noticed it, or they have not.
away_for_a_while(Node) ->
    case rand:uniform(2) of
        1 -> ok;
        2 -> ?waitEqual(2, maps:get(away, on(Node, weir_pubsub_broker, status, [])))
    end.

one_of(List) -> lists:nth(rand:uniform(length(List)), List).
