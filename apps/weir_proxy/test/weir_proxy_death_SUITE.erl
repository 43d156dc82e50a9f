%% Connections and counters when processes are killed.
-module(weir_proxy_death_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [
    proxy/1, proxy/2,
    change/1,
    state/1,
    busy_address/1,
    busy_server/0,
    connect/1,
    name/1,
    echo/2,
    wait_for_sessions/1,
    wait_for_queue/1
]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        connections_that_are_killed_give_back_what_they_count_for,
        a_rule_that_is_killed_is_told_in_the_log,
        a_relay_that_cannot_begin_is_not_the_clients_fault,
        keepers_look_at_no_living_session,
        each_scheduler_has_a_keeper,
        a_killed_keeper_loses_no_session,
        a_killed_keeper_forgets_no_end,
        a_killed_backend_keeps_its_state,
        a_killed_supervisor_has_a_successor_with_the_same_children,
        a_place_is_given_on_behind_a_killed_backend,
        who_waits_waits_on_behind_a_killed_backend,
        who_waits_waits_on_when_address_and_backend_are_removed,
        a_killed_proxy_keeps_its_listeners,
        a_backend_that_is_busy_is_waited_for
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) -> weir_proxy_test:end_case().

%% The first is killed while it connects to a server that does not answer, the second when it has just got the place of
%% the first, the third while it waits for a place.
connections_that_are_killed_give_back_what_they_count_for(_Config) ->
    Server = #{address => busy_address(busy_server()), max_connections => 1},
    Port = proxy(#{servers => [Server], connect_timeout => 10 * patience(), queue_timeout => 10 * patience()}),
    Come = fun(Waiting) ->
        Before = processes_of_connections(),
        Socket = connect(Port),
        [Pid] = ?waitMatch([_], processes_of_connections() -- Before),
        wait_for_queue(Waiting),
        {Socket, Pid}
    end,
    {_, First} = Come(0),
    ?waitMatch({ok, [#{current_sessions := 1}]}, weir_proxy:servers(proxy, web)),
    [{_, Second}, {_, Third}] = [Come(1), Come(2)],
    %% So that it does not see that it has got the place.
    true = erlang:suspend_process(Second),
    exit(First, kill),
    wait_for_queue(1),
    exit(Third, kill),
    exit(Second, kill),
    wait_for_queue(0),
    wait_for_sessions(0).

processes_of_connections() ->
    [Pid || Listener <- weir:listeners(), {_, Pid} <- weir:connections(Listener), is_process_alive(Pid)].

%% For instance through a link of the module. Its connection is uncounted.
a_rule_that_is_killed_is_told_in_the_log(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "killed.log"),
    Rules = #{rules => [#{module => ?MODULE, args => self()}], backend => undefined},
    Socket = connect(
        weir_proxy_test:proxy(#{servers => []}, Rules, #{
            log => #{file => iolist_to_binary(File), format => <<"%b %ts">>}
        })
    ),
    Pid =
        receive
            {routes, Route} -> Route
        after patience() -> ct:fail(not_asked)
        end,
    exit(Pid, kill),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    wait_for_sessions(0),
    ?waitEqual({ok, <<"front PR\n">>}, file:read_file(File)).

%% A rule that never returns.
route(_Socket, _Facts, Test) ->
    Test ! {routes, self()},
    timer:sleep(infinity).

%% Here because the keeper that would own it was killed and has no successor yet.
a_relay_that_cannot_begin_is_not_the_clients_fault(Config) ->
    Server = ?SERVER:start("a"),
    File = filename:join(proplists:get_value(priv_dir, Config), "no_relay.log"),
    More = #{log => #{file => iolist_to_binary(File), format => <<"%b %ts">>}},
    Port = weir_proxy_test:proxy(#{servers => [?SERVER:address(Server)]}, #{}, More),
    Keepers = [Id || {Id = {weir_proxy_sessions, _}, _, _, _} <- supervisor:which_children(weir_proxy_sup)],
    [ok = supervisor:terminate_child(weir_proxy_sup, Id) || Id <- Keepers],
    try
        ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())),
        ?waitEqual({ok, <<"web PR\n">>}, file:read_file(File))
    after
        [{ok, _} = supervisor:restart_child(weir_proxy_sup, Id) || Id <- Keepers]
    end,
    wait_for_sessions(0),
    ?assertEqual(<<"a">>, name(connect(Port))).

%% Idle sessions cost nothing: looking at each of them would take about 3,000 reductions. After a look that finds no
%% session of a dead keeper, there is no other.
keepers_look_at_no_living_session(_Config) ->
    Server = ?SERVER:start("a"),
    Sockets = [connect(Port) || Port <- [proxy(#{servers => [?SERVER:address(Server)]})], _ <- lists:seq(1, 200)],
    wait_for_sessions(200),
    Keepers = keepers(),
    [ok = gen_server:cast(Keeper, orphans) || Keeper <- Keepers],
    Looks = [{Keeper, sys:get_state(Keeper)} || Keeper <- Keepers],
    Reductions = fun() -> lists:sum([element(2, process_info(Pid, reductions)) || Pid <- Keepers]) end,
    Before = Reductions(),
    [Keeper ! {timeout, Look, orphans} || {Keeper, Look} <- Looks],
    ?assertEqual([none], lists:usort([sys:get_state(Keeper) || Keeper <- Keepers])),
    ?assert(Reductions() - Before < 1000 * length(Keepers), Reductions() - Before),
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    wait_for_sessions(0).

%% A VM with 24 schedulers, two of them online. All keepers may be killed at once.
each_scheduler_has_a_keeper(_Config) ->
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Server, _} = peer:start(#{
        connection => standard_io, wait_boot => patience(), env => [{"ERL_FLAGS", ""}], args => ["+S", "24:2" | Paths]
    }),
    try
        ok = peer:call(Server, ?MODULE, kill_keepers, [], infinity)
    after
        peer:stop(Server)
    end.

kill_keepers() ->
    {ok, _} = application:ensure_all_started(weir_proxy),
    Killed = keepers(),
    ?assertEqual(24, length(Killed)),
    _ = [exit(Keeper, kill) || Keeper <- Killed],
    ?waitEqual(24, length([Keeper || Keeper <- keepers(), is_pid(Keeper), not lists:member(Keeper, Killed)])),
    ?assert(lists:member(weir_proxy_sessions:keeper(), keepers())),
    application:stop(weir_proxy).

keepers() -> [Pid || {{weir_proxy_sessions, _}, Pid, _, _} <- supervisor:which_children(weir_proxy_sup)].

a_killed_keeper_loses_no_session(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 10)],
    [<<"a">> = name(Socket) || Socket <- Sockets],
    ?waitEqual(10, length(weir_proxy:sessions(proxy))),
    [exit(Keeper, kill) || Keeper <- keepers()],
    [?assertEqual(<<"still">>, echo(Socket, <<"still">>)) || Socket <- Sockets],
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    wait_for_sessions(0).

a_killed_keeper_forgets_no_end(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)]}, #{longest_life => 500})),
    ?waitEqual(1, ?SERVER:connections(Server)),
    [exit(Keeper, kill) || Keeper <- keepers()],
    ?assertMatch({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    %% Have each living keeper look now, instead of in two seconds.
    [Keeper ! {timeout, sys:get_state(Keeper), orphans} || Keeper <- keepers()],
    wait_for_sessions(0).

a_killed_backend_keeps_its_state(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}]
    }),
    ok = weir_proxy:drain(proxy, web, a),
    ok = kill_backend(),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])),
    ?assertEqual(drain, state(a)).

%% All backends, or all proxies, end with their supervisor.
a_killed_supervisor_has_a_successor_with_the_same_children(_Config) ->
    Server = ?SERVER:start("a"),
    Backend = fun(Retries) ->
        #{
            servers => [#{name => a, address => ?SERVER:address(Server)}],
            health => #{interval => 50},
            retries => Retries
        }
    end,
    Port = proxy(Backend(1)),
    Old = connect(Port),
    <<"a">> = name(Old),
    [
        begin
            [Child] = children(Supervisor),
            exit(whereis(Supervisor), kill),
            ?waitMatch([_], [New || New <- children(Supervisor) -- [Child], is_pid(New)]),
            ?waitMatch({ok, _}, catch weir_proxy:info(proxy)),
            ok = weir_proxy:drain(proxy, web, a),
            ?assertEqual(drain, state(a)),
            ok = weir_proxy:enable(proxy, web, a),
            ok = change(Backend(Retries)),
            ?assertEqual(<<"a">>, name(connect(Port))),
            ?waitMatch({ok, [#{last_check := #{result := ok}}]}, weir_proxy:servers(proxy, web))
        end
     || {Supervisor, Retries} <- [{weir_proxy_backends, 2}, {weir_proxy_instances, 3}]
    ],
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ok = weir_proxy:stop(proxy),
    ?assertMatch({error, _}, gen_tcp:connect({127, 0, 0, 1}, Port, [])).

%% Empty while the supervisor is missing.
children(Supervisor) ->
    try
        [Pid || {_, Pid, _, _} <- supervisor:which_children(Supervisor)]
    catch
        exit:_ -> []
    end.

%% A session that began before the kill notifies the new process.
a_place_is_given_on_behind_a_killed_backend(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    First = connect(Port),
    <<"a">> = name(First),
    wait_for_sessions(1),
    ok = kill_backend(),
    Second = connect(Port),
    wait_for_queue(1),
    ok = gen_tcp:close(First),
    ?assertEqual(<<"a">>, name(Second)).

who_waits_waits_on_behind_a_killed_backend(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    First = connect(Port),
    <<"a">> = name(First),
    Second = connect(Port),
    wait_for_queue(1),
    ok = kill_backend(),
    ok = gen_tcp:close(First),
    ?assertEqual(<<"a">>, name(Second)),
    wait_for_sessions(1).

who_waits_waits_on_when_address_and_backend_are_removed(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    First = connect(Port),
    <<"a">> = name(First),
    Second = connect(Port),
    wait_for_queue(1),
    ok = weir_proxy:change(proxy, #{frontends => #{}, backends => #{}}),
    ok = gen_tcp:close(First),
    ?assertEqual(<<"a">>, name(Second)),
    {ok, {Proxy, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    %% End the minute of the removed frontend.
    [Leaving] = [
        Value
     || Value <- tuple_to_list(sys:get_state(Proxy)), is_map(Value), lists:any(fun is_reference/1, maps:values(Value))
    ],
    maps:foreach(fun(What, Timer) -> Proxy ! {timeout, Timer, What} end, Leaving),
    ?waitEqual([], weir_proxy_store:backends(proxy)),
    ?assertEqual([], weir_proxy_store:frontends(proxy)).

%% Returns when the process has a successor.
kill_backend() ->
    [Pid] = children(weir_proxy_backends),
    exit(Pid, kill),
    ?waitMatch([_], [New || New <- children(weir_proxy_backends) -- [Pid], is_pid(New)]),
    ok.

a_killed_proxy_keeps_its_listeners(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    [Pid] = children(weir_proxy_instances),
    exit(Pid, kill),
    ?waitMatch({ok, _}, catch weir_proxy:info(proxy)),
    ?assertEqual(<<"still">>, echo(Socket, <<"still">>)),
    ?assertEqual(<<"a">>, name(connect(Port))),
    ok = change(#{servers => []}),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())).

%% For longer than the default timeout of a call, which would kill the proxy's process and fail its callers.
a_backend_that_is_busy_is_waited_for(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    {ok, {Proxy, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    Backend = element(3, weir_proxy_store:backend(proxy, <<"web">>)),
    ok = sys:suspend(Backend),
    %% gen_server:call/2 is gen:call/3, with a timeout of 5 s; gen_server:call/3 is gen:call/4.
    [1 = erlang:trace_pattern({gen, call, Arity}, true, [local]) || Arity <- [3, 4]],
    Asked = [
        spawn_monitor(fun() ->
            receive
                go -> exit(Ask())
            end
        end)
     || Ask <- [
            fun() -> element(1, weir_proxy:info(proxy)) end,
            fun() -> element(1, weir_proxy:servers(proxy, web)) end,
            fun() -> weir_proxy:drain(proxy, web, ?SERVER:address(Server)) end
        ]
    ],
    [1 = erlang:trace(Pid, true, [call]) || Pid <- [Proxy | [Pid || {Pid, _} <- Asked]]],
    [Pid ! go || {Pid, _} <- Asked],
    %% One call of each, and one of the proxy for the first. The others call the backend themselves.
    Calls = [
        receive
            {trace, _, call, {gen, call, Arguments}} -> Arguments
        after patience() -> ct:fail(not_asked)
        end
     || _ <- [1, 2, 3, 4]
    ],
    ?assertEqual([infinity], lists:usort([Timeout || [_, _, _, Timeout] <- Calls]), Calls),
    ?assertEqual(4, length([asked || [_, _, _, _] <- Calls])),
    1 = erlang:trace(Proxy, false, [call]),
    [1 = erlang:trace_pattern({gen, call, Arity}, false, [local]) || Arity <- [3, 4]],
    ok = sys:resume(Backend),
    [
        receive
            {'DOWN', Monitor, _, Pid, Answer} -> ?assertEqual(ok, Answer)
        after patience() -> ct:fail(timeout)
        end
     || {Pid, Monitor} <- Asked
    ],
    ?assertMatch({ok, {Proxy, _, _}}, weir_proxy_store:saved({proxy, proxy})),
    ok = weir_proxy:enable(proxy, web, ?SERVER:address(Server)),
    ?assertEqual(<<"a">>, name(connect(Port))).
