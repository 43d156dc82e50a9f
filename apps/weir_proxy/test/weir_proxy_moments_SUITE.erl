%% Rare races: processes are late or killed at a certain moment. Counters stay right, and changes are completed.
-module(weir_proxy_moments_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [
    proxy/1, proxy/2, proxy/3, state/1, connect/1, name/1, echo/2, wait_for_sessions/1, wait_for_state/2
]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, sessions}, {group, numbers}, {group, processes}].

groups() ->
    [
        {sessions, [], [
            a_session_whose_process_is_late_is_counted_to_its_end,
            a_connection_killed_behind_the_start_of_its_relay_counts_for_nothing,
            a_connection_killed_when_its_session_had_begun_is_counted_once,
            a_life_that_is_over_while_there_is_no_keeper_ends,
            a_drain_that_is_due_while_there_is_no_keeper_is_done,
            connections_wait_for_a_keeper,
            sessions_that_end_without_a_keeper_are_told_in_the_log
        ]},
        {numbers, [], [
            the_most_sessions_are_those_of_the_moment_with_the_most, a_place_that_is_refused_is_not_taken_for_a_moment
        ]},
        {processes, [], [
            a_failing_server_comes_back_behind_a_killed_backend,
            a_proxy_is_asked_while_its_backends_are_killed,
            a_change_that_was_cut_short_is_done,
            lines_of_a_killed_log_are_counted
        ]}
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_event:detach(?MODULE),
    _ = [supervisor:restart_child(weir_proxy_sup, Id) || Id <- keepers()],
    weir_proxy_test:end_case().

keepers() -> [Id || {Id = {weir_proxy_sessions, _}, _, _, _} <- supervisor:which_children(weir_proxy_sup)].

living() -> [Pid || {{weir_proxy_sessions, _}, Pid, _, _} <- supervisor:which_children(weir_proxy_sup)].

%% Calls a function while there are no keepers.
without_keepers(Function) ->
    [ok = supervisor:terminate_child(weir_proxy_sup, Id) || Id <- keepers()],
    Result = Function(),
    [{ok, _} = supervisor:restart_child(weir_proxy_sup, Id) || Id <- keepers()],
    Result.

%% Connections notify this process when their relay has begun, and wait.
hold_at_the_relay() ->
    Test = self(),
    Hold = fun(_Event, _Measurements, #{relay := Relay}, _Config) ->
        Test ! {relays, self(), Relay},
        receive go -> ok end
    end,
    ok = weir_event:attach(?MODULE, [weir, relay, start], Hold, none).

held() -> receive {relays, Pid, Relay} -> {Pid, Relay} after patience() -> ct:fail(no_relay) end.

%%% Sessions.

%% The relay ends long before the session is inserted. A keeper looks for the session as long as one may come.
a_session_whose_process_is_late_is_counted_to_its_end(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    ok = hold_at_the_relay(),
    First = connect(Port),
    <<"a">> = name(First),
    {Pid, Relay} = held(),
    [1 = erlang:trace(Keeper, true, ['receive']) || Keeper <- living()],
    ok = gen_tcp:close(First),
    [
        receive
            {trace, _, 'receive', {again, Relay, _, _, _}} -> ok
        after patience() -> ct:fail(not_looked_for)
        end
     || _ <- lists:seq(1, 101)
    ],
    [1 = erlang:trace(Keeper, false, ['receive']) || Keeper <- living()],
    ok = weir_event:detach(?MODULE),
    Pid ! go,
    ?assertEqual(<<"a">>, name(connect(Port))),
    wait_for_sessions(1),
    ?assertMatch(
        {ok, #{frontends := #{<<"front">> := #{sessions_total := 2, bytes_out := 2}}}}, weir_proxy:info(proxy)
    ).

%% Its relay is stopped, because it would be in no list.
a_connection_killed_behind_the_start_of_its_relay_counts_for_nothing(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    ok = hold_at_the_relay(),
    First = connect(Port),
    <<"a">> = name(First),
    {Pid, Relay} = held(),
    ok = weir_event:detach(?MODULE),
    exit(Pid, kill),
    ?assertMatch({error, _}, gen_tcp:recv(First, 0, patience())),
    ?assertEqual({error, closed}, weir:relay_info(Relay)),
    Second = connect(Port),
    ?assertEqual(<<"a">>, name(Second)),
    ok = gen_tcp:close(Second),
    wait_for_sessions(0).

%% Killed before it could remove its pending row: one while its session lives, the other after that has ended.
a_connection_killed_when_its_session_had_begun_is_counted_once(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Test = self(),
    _ = erlang:trace(new, true, [call]),
    1 = erlang:trace_pattern({weir_proxy_admissions, relayed, 1}, true, [local]),
    Clients = [connect(Port) || _ <- [1, 2]],
    Pids = [
        receive
            {trace, _, call, {weir_proxy_admissions, relayed, [Pid]}} -> Pid
        after patience() -> Test ! no
        end
     || _ <- Clients
    ],
    _ = erlang:trace(new, false, [call]),
    wait_for_sessions(2),
    [Numbers] = [Of || #{numbers := Of} <- [numbers_of_the_proxy()]],
    [
        true = ets:insert(
            weir_proxy_admissions, erlang:append_element(erlang:insert_element(1, Numbers, Pid), server())
        )
     || Pid <- Pids
    ],
    ?waitEqual([], weir_proxy_admissions:remaining(Pids)),
    wait_for_sessions(2),
    [
        true = ets:insert(
            weir_proxy_admissions, erlang:append_element(erlang:insert_element(1, Numbers, Pid), server())
        )
     || Pid <- Pids
    ],
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for_sessions(0),
    ?waitEqual([], weir_proxy_admissions:remaining(Pids)),
    wait_for_sessions(0).

numbers_of_the_proxy() ->
    Frontend = weir_proxy_store:frontend(proxy, <<"front">>),
    Backend = weir_proxy_store:backend(proxy, <<"web">>),
    #{numbers => {element(4, Frontend), {proxy, <<"web">>, element(4, Backend)}}}.

%% The counters of the only server.
server() ->
    [Session | _] = ets:tab2list(weir_proxy_sessions),
    [{_, _, Numbers}] = [
        Value
     || Value = {_, _, _} <- tuple_to_list(Session), is_reference(element(1, Value)), is_reference(element(3, Value))
    ],
    Numbers.

a_life_that_is_over_while_there_is_no_keeper_ends(_Config) ->
    Server = ?SERVER:start("a"),
    Client = connect(proxy(#{servers => [?SERVER:address(Server)]}, #{longest_life => 300})),
    <<"a">> = name(Client),
    wait_for_sessions(1),
    Timers = timers(),
    without_keepers(fun() -> ?waitEqual([false], lists:usort([erlang:read_timer(Timer) || Timer <- Timers])) end),
    ?assertMatch({error, _}, gen_tcp:recv(Client, 0, patience())),
    ok = look_for_orphans(),
    wait_for_sessions(0).

timers() -> [element(tuple_size(Session) - 1, Session) || Session <- ets:tab2list(weir_proxy_sessions)].

%% Have keepers look now, instead of in two seconds.
look_for_orphans() ->
    [Keeper ! {timeout, sys:get_state(Keeper), orphans} || Keeper <- living()],
    ok.

a_drain_that_is_due_while_there_is_no_keeper_is_done(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Clients = [connect(Port) || _ <- lists:seq(1, 10)],
    [<<"a">> = name(Client) || Client <- Clients],
    wait_for_sessions(10),
    ok = without_keepers(fun() ->
        {ok, 10} = weir_proxy:drain(proxy, web, a, 50),
        %% Set after their timers, and due after them.
        _ = erlang:send_after(60, self(), all_due),
        receive all_due -> ok end
    end),
    [?assertMatch({error, _}, gen_tcp:recv(Client, 0, patience())) || Client <- Clients],
    ok = look_for_orphans(),
    wait_for_sessions(0).

connections_wait_for_a_keeper(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Client = without_keepers(fun() ->
        Socket = connect(Port),
        ?waitMatch({ok, [#{current_sessions := 1}]}, weir_proxy:servers(proxy, web)),
        Socket
    end),
    ?assertEqual(<<"a">>, name(Client)),
    ok = gen_tcp:close(Client),
    wait_for_sessions(0).

sessions_that_end_without_a_keeper_are_told_in_the_log(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Clients = [connect(Port) || _ <- lists:seq(1, 5)],
    [<<"a">> = name(Client) || Client <- Clients],
    wait_for_sessions(5),
    Test = self(),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => Test}),
    try
        without_keepers(fun() -> [ok = gen_tcp:close(Client) || Client <- Clients], ?waitEqual([], weir:relays()) end),
        ok = look_for_orphans(),
        ok = wait_for_told(5),
        wait_for_sessions(0)
    after
        ok = logger:remove_handler(?MODULE)
    end.

%% Each keeper reports how many sessions it has found.
wait_for_told(0) ->
    ok;
wait_for_told(Left) when Left > 0 ->
    receive
        {logged, #{msg := {report, #{sessions := Sessions}}}} -> wait_for_told(Left - Sessions)
    after patience() -> error({not_told_of, Left})
    end.

log(Event, #{config := Test}) -> Test ! {logged, Event}.

%%% Counters.

%% Each process may have read a smaller maximum, and write its own last.
the_most_sessions_are_those_of_the_moment_with_the_most(_Config) ->
    Rounds = 500,
    Numbers = [weir_proxy_counters:new() || _ <- lists:seq(1, Rounds)],
    Go = atomics:new(Rounds, []),
    Workers = [
        spawn_monitor(fun() ->
            lists:foldl(
                fun(Of, Round) ->
                    ok = atomics:add(Go, Round, 1),
                    ok = spin(Go, Round),
                    ok = weir_proxy_counters:begun(Of),
                    Round + 1
                end,
                1,
                Numbers
            )
        end)
     || _ <- [1, 2]
    ],
    [ended(Worker) || Worker <- Workers],
    ?assertEqual([], [Seen || Of <- Numbers, Seen <- [weir_proxy_counters:get(Of, max_sessions)], Seen =/= 2]).

ended({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason)
    after patience() -> ct:fail(timeout)
    end.

spin(Go, Round) ->
    case atomics:get(Go, Round) of
        2 -> ok;
        _ -> spin(Go, Round)
    end.

a_place_that_is_refused_is_not_taken_for_a_moment(_Config) ->
    Numbers = weir_proxy_counters:new(),
    true = weir_proxy_counters:take(Numbers, 1),
    Stop = atomics:new(1, []),
    Takers = [spawn_monitor(fun() -> refused(Numbers, Stop) end) || _ <- [1, 2]],
    Most = lists:max([weir_proxy_counters:get(Numbers, current_sessions) || _ <- lists:seq(1, 50_000)]),
    ok = atomics:put(Stop, 1, 1),
    [ended(Taker) || Taker <- Takers],
    ?assertEqual(1, Most).

refused(Numbers, Stop) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            false = weir_proxy_counters:take(Numbers, 1),
            refused(Numbers, Stop)
    end.

%%% Processes of the proxy.

kill_backend() ->
    {ok, Pid} = backend(),
    exit(Pid, kill),
    ?waitEqual(false, backend() =:= {ok, Pid}),
    ok.

backend() -> {ok, element(3, weir_proxy_store:backend(proxy, <<"web">>))}.

instance() ->
    {ok, {Pid, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    Pid.

%% Nothing else makes it publish another balancer.
a_failing_server_comes_back_behind_a_killed_backend(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(Server)}], passive => #{fall => 1, back_off => 300}
    }),
    {ok, Backend} = backend(),
    ok = weir_proxy_backend:failing(Backend, <<"a">>),
    wait_for_state(a, failing),
    ok = kill_backend(),
    %% Its state follows the clock; the balancer is published a moment later.
    wait_for_state(a, up),
    ?waitMatch({ok, _}, weir_proxy_balancer:find(element(5, weir_proxy_store:backend(proxy, <<"web">>)), <<"a">>)),
    ?assertEqual(<<"a">>, name(connect(Port))).

a_proxy_is_asked_while_its_backends_are_killed(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Proxy = instance(),
    lists:foreach(
        fun(_) ->
            {ok, Pid} = backend(),
            exit(Pid, kill),
            ?assertMatch({ok, #{backends := #{<<"web">> := #{servers := [_]}}}}, weir_proxy:info(proxy)),
            ?assertMatch({ok, [_]}, weir_proxy:servers(proxy, web)),
            ?assertEqual(ok, weir_proxy:drain(proxy, web, a)),
            ?assertEqual(drain, state(a))
        end,
        lists:seq(1, 5)
    ),
    ?assertEqual(Proxy, instance()).

%% The proxy's process is killed while it waits for a backend. The caller of the change waits for its successor.
a_change_that_was_cut_short_is_done(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    [Left, Stays, New] = [weir_test_port:claim() || _ <- [1, 2, 3]],
    Config = fun(Front, Ports, Servers, Others) ->
        Backends = #{web => #{servers => [?SERVER:address(Each) || Each <- Servers]}},
        #{
            frontends => #{Front => #{listen => [{{127, 0, 0, 1}, Port} || Port <- Ports], backend => web}},
            backends => maps:merge(Backends, Others)
        }
    end,
    ok = weir_proxy:start(proxy, Config(one, [Left, Stays], [A], #{old => #{servers => []}})),
    Old = connect(Left),
    <<"a">> = name(Old),
    {ok, Backend} = backend(),
    ok = sys:suspend(Backend),
    {Changer, Monitor} = spawn_monitor(fun() ->
        exit(weir_proxy:change(proxy, Config(two, [Stays, New], [B], #{new => #{servers => []}})))
    end),
    ?waitMatch({ok, _}, gen_tcp:connect({127, 0, 0, 1}, New, [])),
    Killed = instance(),
    exit(Killed, kill),
    ?waitMatch(false, is_process_alive(Killed)),
    ok = sys:resume(Backend),
    receive
        {'DOWN', Monitor, process, Changer, Result} -> ?assertEqual(ok, Result)
    after patience() -> ct:fail(timeout)
    end,
    {ok, #{frontends := Frontends, backends := Backends}} = weir_proxy:info(proxy),
    ?assertEqual({[<<"two">>], [<<"new">>, <<"web">>]}, {maps:keys(Frontends), maps:keys(Backends)}),
    ?assertEqual([<<"new">>, <<"web">>], lists:sort(weir_proxy_store:backends(proxy))),
    [?assertEqual(<<"b">>, name(connect(Port))) || Port <- [Stays, New]],
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Left, [])),
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)).

lines_of_a_killed_log_are_counted(Config) ->
    Server = ?SERVER:start("a"),
    File = filename:join(proplists:get_value(priv_dir, Config), "lines.log"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}, #{}, #{
        log => #{file => iolist_to_binary(File), format => <<"%b">>}
    }),
    {ok, {Log, _, _}} = weir_proxy_store:saved({log, proxy}),
    ok = sys:suspend(Log),
    Clients = [connect(Port) || _ <- lists:seq(1, 5)],
    [<<"a">> = name(Client) || Client <- Clients],
    [ok = gen_tcp:close(Client) || Client <- Clients],
    wait_for_sessions(0),
    exit(Log, kill),
    ?waitMatch({ok, #{log_dropped := 5}}, weir_proxy:info(proxy)),
    ok = gen_tcp:close(connect(Port)),
    ?waitEqual({ok, <<"web\n">>}, file:read_file(File)).
