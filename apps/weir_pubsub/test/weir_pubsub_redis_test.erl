%% Two nodes that share a Redis, for suites.
-module(weir_pubsub_redis_test).

-export([init_suite/1]).
-export([end_suite/1]).
-export([init_case/1]).
-export([begin_again/2]).
-export([restart/2]).
-export([nodes_of/1]).
-export([subscribers/1]).
-export([publish_many/2]).
-export([listen/0]).
-export([pace/1]).
-export([paced/2]).
-export([paced/1]).
-export([kill/1]).
-export([call/3]).
-export([publish/3]).
-export([publish_id/3]).
-export([follow/3]).
-export([log/2]).
-export([messages/2]).
-export([has_gap/2]).
-export([log_of/3]).
-export([ends/3]).
-export([connected/1]).
-export([is_connected/0]).
-export([stop_all/0]).
-export([told/4]).
-export([cut/1]).
-export([suspend/1]).
-export([resume/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub_shard.hrl").

-import(weir_pubsub_test_redis, [on/4]).
-import(weir_test_wait, [wait_until/1]).

%% A process owns the nodes and the Redis of a suite. They end with this virtual machine, however that ends.
init_suite(Config) ->
    Parent = self(),
    {Holder, Monitor} = spawn_monitor(fun() -> hold(Parent) end),
    receive
        {Holder, Things} ->
            true = demonitor(Monitor, [flush]),
            [{holder, Holder} | Things] ++ Config;
        {'DOWN', Monitor, process, Holder, Reason} ->
            error(Reason)
    after 2 * weir_test_wait:patience() -> error(no_nodes)
    end.

%% Each case has an empty Redis, and nodes that have just started the application.
init_case(Config) ->
    Nodes = proplists:get_value(nodes, Config),
    Port = proplists:get_value(port, Config),
    _ = [ok = on(Node, ?MODULE, stop_all, []) || Node <- Nodes],
    <<"OK">> = weir_pubsub_test_redis:ask(Port, ["FLUSHALL"]),
    _ = [ok = begin_again(Node, #{kind => redis, port => Port}) || Node <- Nodes],
    Config.

%% Starts the application on a node again, with that broker. Faster than another node.
begin_again(Node, Broker) ->
    ok = on(Node, ?MODULE, stop_all, []),
    ok = on(Node, application, set_env, [weir_pubsub, broker, Broker]),
    {ok, _} = on(Node, application, ensure_all_started, [weir_pubsub]),
    ok.

%% On a node: stops what a case has started.
stop_all() ->
    _ = weir_http:stop_listener(push),
    _ = weir_event:detach(told),
    ok = application:unset_env(weir_pubsub, told),
    _ = application:stop(weir_pubsub),
    ok.

hold(Parent) ->
    Port = weir_test_port:claim(),
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

end_suite(Config) ->
    Holder = proplists:get_value(holder, Config),
    Holder ! {stop, self()},
    receive
        {Holder, stopped} -> ok
    after weir_test_wait:patience() -> exit(Holder, kill)
    end.

%% Kills Redis. When the fun has returned there is another one, without data.
restart(Config, Between) ->
    Ref = make_ref(),
    proplists:get_value(holder, Config) ! {restart, self(), Ref, Between},
    receive
        Ref -> ok
    after 2 * weir_test_wait:patience() -> error(no_restart)
    end.

nodes_of(Config) ->
    [A, B] = proplists:get_value(nodes, Config),
    ok = connected(A),
    ok = connected(B),
    {A, B}.

subscribers(Node) ->
    {ok, #{subscribers := Count}} = call(Node, usage, [total]),
    Count.

publish_many(Channel, Count) ->
    _ = [{ok, _} = weir_pubsub:publish(Channel, integer_to_binary(N)) || N <- lists:seq(1, Count)],
    ok.

listen() ->
    {ok, _} = weir_http:start_listener(push, #{port => 0, ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(#{})),
    weir:get_port(push).

%% A subscriber with a window of one, which confirms each message at once.
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
    after weir_test_wait:patience() -> error(no_log)
    end.

%% Returns when the process is dead, so that it is not taken for the next one.
kill(Name) ->
    case whereis(Name) of
        undefined ->
            ok;
        Pid ->
            Monitor = monitor(process, Pid),
            exit(Pid, kill),
            receive
                {'DOWN', Monitor, process, Pid, _} -> ok
            after weir_test_wait:patience() -> error({still_alive, Name})
            end
    end.

call(Node, Function, Arguments) -> on(Node, weir_pubsub, Function, Arguments).

publish(Node, Channel, Data) -> call(Node, publish, [Channel, Data]).

%% Publishes as soon as there is a Redis.
publish_id(Node, Channel, Data) ->
    {ok, #{id := Id}} = ?waitMatch({ok, _}, publish(Node, Channel, Data)),
    {ok, Id}.

follow(Node, Channel, From) ->
    {ok, Follower} = on(Node, weir_pubsub_follower, start, [Channel, From]),
    Follower.

log(Node, Follower) -> element(2, on(Node, weir_pubsub_follower, log, [Follower])).

messages(Node, Follower) -> [Message || {message, _, _} = Message <- log(Node, Follower)].

has_gap(Node, Follower) -> [Gap || {gap, _, _} = Gap <- log(Node, Follower)] =/= [].

%% Returns what it has got, as soon as it has that message.
log_of(Node, Follower, Id) ->
    ok = wait_until(fun() -> lists:keymember(Id, 2, messages(Node, Follower)) end),
    log(Node, Follower).

%% Its subscription has ended, or it has the last message.
ends(Node, Follower, Id) ->
    Log = log(Node, Follower),
    lists:keymember(closed, 1, Log) orelse lists:keymember(wrong, 1, Log) orelse lists:keymember(Id, 2, Log).

%% After a shard was killed the nodes connect again, and then fetch its channels.
connected(Node) -> wait_until(fun() -> on(Node, ?MODULE, is_connected, []) end).

is_connected() ->
    weir_pubsub_broker:status() =:= #{kind => redis, away => 0} andalso lists:all(fun has_its_channels/1, [1, 2]).

has_its_channels(Index) ->
    try sys:get_state(weir_pubsub_shards:name(Index), weir_test_wait:patience()) of
        #shard{connection = Connection, opening = Opening} -> Connection =:= connected andalso map_size(Opening) =:= 0
    catch
        %% It is starting.
        exit:_ -> false
    end.

cut(Config) ->
    Port = proplists:get_value(port, Config),
    _ = [
        weir_pubsub_test_redis:ask(Port, ["CLIENT", "KILL", "TYPE", Type, "SKIPME", "yes"])
     || Type <- ["normal", "pubsub"]
    ],
    ok.

%% A handler of events on a node: keeps their names.
told([weir, broker, What], #{count := 1}, #{shard := _}, _) ->
    application:set_env(weir_pubsub, told, [What | application:get_env(weir_pubsub, told, [])]).

suspend(Node) -> each_broker(Node, suspend).

resume(Node) -> each_broker(Node, resume).

each_broker(Node, Function) ->
    _ = [
        ok = on(Node, sys, Function, [on(Node, weir_pubsub_broker, name, [Index]), weir_test_wait:patience()])
     || Index <- [1, 2]
    ],
    ok.
