%% Channels on the nodes of an Erlang cluster: what is published on one is published on all that are connected.
-module(weir_pubsub_pg_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test_redis, [on/4]).
-import(weir_test_wait, [wait_until/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [in_all_nodes, at_most_once].

init_per_testcase(_Case, Config) ->
    Parent = self(),
    Holder = spawn(fun() ->
        Nodes = [{A, _}, {B, Name}] = [cluster_node(), cluster_node()],
        true = on(A, net_kernel, connect_node, [Name]),
        ok = wait_until(fun() -> lists:all(fun(Node) -> length(members(Node)) =:= 2 end, [A, B]) end),
        Parent ! {self(), Nodes},
        receive
            stop -> [peer:stop(Node) || {Node, _} <- Nodes]
        end
    end),
    receive
        {Holder, Nodes} -> [{holder, Holder}, {nodes, Nodes} | Config]
    after 2 * weir_test_wait:patience() -> error(no_nodes)
    end.

end_per_testcase(_Case, Config) ->
    Holder = proplists:get_value(holder, Config),
    Monitor = monitor(process, Holder),
    Holder ! stop,
    receive
        {'DOWN', Monitor, _, _, _} -> ok
    after weir_test_wait:patience() -> exit(Holder, kill)
    end.

cluster_node() ->
    Name = "n" ++ integer_to_list(weir_test_port:claim()),
    Epmd = [
        "-start_epmd",
        "false",
        "-epmd_module",
        "weir_pubsub_test_epmd",
        "-setcookie",
        "weir_test",
        "-connect_all",
        "false"
    ],
    Peer = weir_pubsub_test_redis:node(#{kind => pg}, [
        "-name", Name ++ "@127.0.0.1", "-kernel", "inet_dist_use_interface", "{127,0,0,1}" | Epmd
    ]),
    {Peer, list_to_atom(Name ++ "@127.0.0.1")}.

members(Node) -> on(Node, pg, get_members, [weir_pubsub_cluster, nodes]).

in_all_nodes(Config) ->
    [{A, _}, {B, _}] = proplists:get_value(nodes, Config),
    {ok, Here} = on(A, weir_pubsub_follower, start, [<<"news">>, new]),
    {ok, There} = on(B, weir_pubsub_follower, start, [<<"news">>, new]),
    Texts = [integer_to_binary(N) || N <- lists:seq(1, 50)],
    _ = [{ok, _} = on(A, weir_pubsub, publish, [<<"news">>, Text]) || Text <- Texts],
    ok = wait_until(fun() -> texts(B, There) =:= Texts end),
    ?assertEqual(Texts, texts(A, Here)),
    {ok, _} = on(B, weir_pubsub, publish, [<<"news">>, <<"back">>]),
    ok = wait_until(fun() -> lists:last(texts(A, Here)) =:= <<"back">> end),
    %% Each has its own ids.
    ?assertEqual([], [Wrong || {wrong, _, _} = Wrong <- log(A, Here) ++ log(B, There)]),
    {ok, _} = on(A, weir_pubsub, delete, [<<"news">>]),
    ok = wait_until(fun() -> lists:last(log(B, There)) =:= {closed, deleted} end).

%% A node that is not connected gets nothing of that time, neither then nor later.
at_most_once(Config) ->
    [{A, _}, {B, Name}] = proplists:get_value(nodes, Config),
    {ok, There} = on(B, weir_pubsub_follower, start, [<<"news">>, new]),
    true = on(A, erlang, disconnect_node, [Name]),
    ok = wait_until(fun() -> length(members(A)) =:= 1 end),
    {ok, _} = on(A, weir_pubsub, publish, [<<"news">>, <<"lost">>]),
    true = on(A, net_kernel, connect_node, [Name]),
    ok = wait_until(fun() -> length(members(A)) =:= 2 end),
    {ok, _} = on(A, weir_pubsub, publish, [<<"news">>, <<"here">>]),
    ok = wait_until(fun() -> texts(B, There) =:= [<<"here">>] end).

log(Node, Follower) -> element(2, on(Node, weir_pubsub_follower, log, [Follower])).

texts(Node, Follower) -> [Text || {message, _, Text} <- log(Node, Follower)].
