%% Changes of a proxy's configuration, and the end of its connections.
-module(weir_proxy_change_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [start/2, proxy/1, proxy/2, change/1, connect/1, name/1, echo/2, wait_for_sessions/1]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, changes}, {group, ends}].

groups() ->
    [
        {changes, [], [
            a_wrong_option_is_told_with_its_path,
            options_that_could_not_work_are_refused,
            an_address_in_use_leaves_nothing,
            a_change_keeps_connections_and_sockets,
            a_wrong_change_changes_nothing,
            an_address_moves_to_another_frontend,
            clients_of_a_frontend_that_is_renamed_are_served,
            an_address_that_was_left_may_be_taken,
            each_leaving_has_its_own_time,
            what_is_set_stays_over_a_change,
            what_is_as_it_was_is_left_alone,
            names_that_are_not_there,
            changes_while_servers_die
        ]},
        {ends, [], [
            silence_ends_a_session,
            the_longest_life_ends_a_session,
            numbers_return_to_zero,
            stop_waits_for_connections,
            stop_waits_for_connections_without_a_server,
            nobody_who_is_accepted_is_reset
        ]}
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) -> weir_proxy_test:end_case().

%%% Changes.

%% Each option would have no effect, or make every check or connection fail.
options_that_could_not_work_are_refused(_Config) ->
    New = fun(Options) ->
        Web = maps:merge(#{servers => ["127.0.0.1:1", "unix:/s", "name:1"]}, Options),
        case weir_proxy_config:new(#{frontends => #{}, backends => #{web => Web}}) of
            {ok, _} -> ok;
            {error, {bad_option, [backends, <<"web">> | Path], Value, _}} -> {Path, Value}
        end
    end,
    [
        ?assertEqual({Options, Result}, {Options, New(Options)})
     || {Options, Result} <- of_backends()
    ],
    Path = lists:duplicate(108, $x),
    All = fun(Options) ->
        Web = #{listen => maps:get(listen, Options, "unix:/same"), backend => web},
        Whole = maps:merge(
            #{frontends => #{web => Web}, backends => #{web => #{servers => []}}}, maps:remove(listen, Options)
        ),
        case weir_proxy_config:new(Whole) of
            {ok, _} -> ok;
            {error, {bad_option, Where, _, _}} -> Where
        end
    end,
    ?assertEqual([frontends, <<"web">>, listen], All(#{listen => "unix:" ++ Path})),
    ?assertEqual([control], All(#{control => Path})),
    ?assertEqual(ok, All(#{control => tl(Path)})),
    ?assertEqual([frontends, <<"web">>, listen], All(#{control => "/same"})),
    ?assertEqual([frontends, <<"web">>, listen], All(#{listen => ":9", statistics => ":9"})),
    ?assertEqual(ok, All(#{listen => ":0", statistics => ":0"})),
    Ruled = fun(Rule) -> #{frontends => #{web => #{listen => ":9", rules => [Rule]}}} end,
    Keyed = #{backends => #{web => #{servers => [], balance => hash, hash_key => rule}}},
    ?assertEqual([backends, <<"web">>, hash_key], All(maps:merge(Keyed, Ruled(#{backend => web})))),
    ?assertEqual(ok, All(maps:merge(Keyed, Ruled(#{module => weir_proxy_rules_SUITE, args => 1})))),
    ?assertEqual([frontends, <<"web">>, rules, 1, args], All(Ruled(#{backend => web, args => 1}))).

%% {Options of a backend, ok or which of them is refused}.
of_backends() ->
    Long = lists:duplicate(16#4001, $x),
    [
        {#{source => "127.0.0.9"}, ok},
        {#{source => "::1"}, {[source], <<"::1">>}},
        {#{unique_id => true, send_proxy => v2}, ok},
        {#{unique_id => true, send_proxy => v1}, {[unique_id], true}},
        {#{unique_id => true}, {[unique_id], true}},
        {#{hash_key => sni, balance => hash}, ok},
        {#{hash_key => sni, stick => "1m"}, ok},
        {#{hash_key => sni}, {[hash_key], sni}},
        {#{hash_load => 200, balance => hash}, ok},
        {#{hash_load => 200, stick => "1m"}, {[hash_load], 200}},
        {#{agent => #{port => 9}, servers => ["unix:/s"]}, {[agent, port], 9}},
        {#{source => "127.0.0.9", servers => ["unix:/s"]}, {[source], <<"127.0.0.9">>}},
        {#{slow_start => "5s", health => #{}}, ok},
        {#{slow_start => "5s", agent => #{port => 9}}, ok},
        {#{slow_start => "5s"}, {[slow_start], 5000}},
        {#{on_down => close, health => #{}}, ok},
        {#{on_down => close}, {[on_down], close}},
        {#{health => #{kind => http, path => "/health?deep=1", host => "a.org:80"}}, ok},
        {#{health => #{kind => http, path => <<"health">>}}, {[health, path], <<"health">>}},
        {#{health => #{kind => http, path => <<"/a b">>}}, {[health, path], <<"/a b">>}},
        {#{health => #{kind => http, host => <<"a.org\r\nX: y">>}}, {[health, host], <<"a.org\r\nX: y">>}},
        {#{connect_timeout => "5s", queue_timeout => <<"5s">>}, ok},
        {#{connect_timeout => "5s\n"}, {[connect_timeout], "5s\n"}},
        {#{health => #{kind => send_expect, expect => "PONG"}}, ok},
        {#{health => #{kind => send_expect, expect => tl(Long)}}, ok},
        {#{health => #{kind => send_expect, expect => Long}}, {[health, expect], Long}},
        {#{health => #{kind => send_expect, send => "PING"}}, {[health, expect], undefined}},
        {#{health => #{send => "PING", expect => "PONG"}}, {[health, expect], "PONG"}},
        {#{health => #{kind => tls, path => "/"}}, {[health, path], "/"}},
        {#{health => tcp}, {[health], tcp}},
        {#{servers => ["127.0.0.1:0"]}, {[servers, 1], "127.0.0.1:0"}},
        {#{servers => [#{address => "name:0"}]}, {[servers, 1, address], "name:0"}},
        {#{servers => [#{address => "127.0.0.1:1", name => "a\nb"}]}, {[servers, 1, name], "a\nb"}}
    ].

a_wrong_option_is_told_with_its_path(_Config) ->
    Wrong = fun(Config) ->
        {error, {bad_option, Path, Value, Allowed}} = weir_proxy:start(proxy, Config),
        ct:log("~ts", [Allowed]),
        {Path, Value}
    end,
    Backends = #{web => #{servers => ["127.0.0.1:1"]}},
    ?assertEqual({[frontends], undefined}, Wrong(#{backends => Backends})),
    ?assertEqual({[surplus], 1}, Wrong(#{surplus => 1, frontends => #{}, backends => Backends})),
    ?assertEqual(
        {[frontends, <<"f">>, backend], <<"other">>},
        Wrong(#{frontends => #{f => #{listen => ":0", backend => other}}, backends => Backends})
    ),
    ?assertEqual(
        {[backends, <<"web">>, servers, 2], "here"},
        Wrong(#{frontends => #{}, backends => #{web => #{servers => ["127.0.0.1:1", "here"]}}})
    ),
    ?assertEqual(
        {[backends, <<"web">>, servers, 1, weight], 257},
        Wrong(#{frontends => #{}, backends => #{web => #{servers => [#{address => "127.0.0.1:1", weight => 257}]}}})
    ),
    ?assertEqual(
        {[frontends, <<"f">>, idle_timeout], <<"5x">>},
        Wrong(#{frontends => #{f => #{listen => ":0", backend => web, idle_timeout => <<"5x">>}}, backends => Backends})
    ),
    ?assertEqual(
        {[frontends, <<"g">>, listen], <<"127.0.0.1:0">>},
        Wrong(#{
            frontends => maps:from_list([{Name, #{listen => "127.0.0.1:0", backend => web}} || Name <- [f, g]]),
            backends => Backends
        })
    ),
    ?assertEqual([], weir_proxy:proxies()).

an_address_in_use_leaves_nothing(_Config) ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Taken} = inet:port(Listen),
    Free = weir_test_port:claim(),
    Front = #{listen => [{{127, 0, 0, 1}, Free}, {{127, 0, 0, 1}, Taken}]},
    ?assertMatch({error, {listen, _, eaddrinuse}}, start(#{servers => ["127.0.0.1:1"]}, Front)),
    ?assertEqual([], weir_proxy:proxies()),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Free, [])),
    ?assertEqual({error, {no_backend, <<"web">>}}, weir_proxy:servers(proxy, web)).

a_change_keeps_connections_and_sockets(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{servers => [?SERVER:address(A)]}),
    Old = connect(Port),
    <<"a">> = name(Old),
    [Listener] = weir:listeners(),
    ok = change(#{servers => [?SERVER:address(B)]}),
    ?assertEqual(<<"b">>, name(connect(Port))),
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ?assertMatch(#{accepted := 2}, weir:info(Listener)),
    ?assertEqual(2, length(weir_proxy:sessions(proxy))).

a_wrong_change_changes_nothing(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    {error, {bad_option, _, _, _}} = change(#{servers => [<<"nowhere">>]}),
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Taken} = inet:port(Listen),
    {error, {listen, _, eaddrinuse}} = weir_proxy:change(proxy, #{
        frontends => #{front => #{listen => [{{127, 0, 0, 1}, Port}, {{127, 0, 0, 1}, Taken}], backend => other}},
        backends => #{other => #{servers => ["127.0.0.1:1"]}}
    }),
    ?assertEqual(<<"a">>, name(connect(Port))),
    ?assertEqual({error, {no_backend, <<"other">>}}, weir_proxy:servers(proxy, other)).

an_address_moves_to_another_frontend(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{servers => [?SERVER:address(A)]}),
    Old = connect(Port),
    <<"a">> = name(Old),
    Backends = #{web => #{servers => [?SERVER:address(A)]}, other => #{servers => [?SERVER:address(B)]}},
    Listen = [{{127, 0, 0, 1}, Port}],
    ok = weir_proxy:change(proxy, #{
        frontends => #{moved => #{listen => Listen, backend => other}}, backends => Backends
    }),
    ?assertEqual(<<"b">>, name(connect(Port))),
    ok = weir_proxy:change(proxy, #{frontends => #{}, backends => Backends}),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ok = weir_proxy:change(proxy, #{frontends => #{back => #{listen => Listen, backend => web}}, backends => Backends}),
    ?assertEqual(<<"a">>, name(connect(Port))).

%% Also clients that were accepted under the old name.
clients_of_a_frontend_that_is_renamed_are_served(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun(Name) ->
        #{
            frontends => #{Name => #{listen => {{127, 0, 0, 1}, Port}, backend => web}},
            backends => #{web => #{servers => [?SERVER:address(Server)]}}
        }
    end,
    ok = weir_proxy:start(proxy, Config(one)),
    Clients = [spawn_monitor(fun() -> until_stopped(Port) end) || _ <- lists:seq(1, 8)],
    [ok = weir_proxy:change(proxy, Config(Name)) || _ <- lists:seq(1, 25), Name <- [two, one]],
    [Pid ! stop || {Pid, _} <- Clients],
    [
        receive
            {'DOWN', Monitor, _, Pid, Reason} -> ?assertEqual(normal, Reason)
        after patience() -> ct:fail(timeout)
        end
     || {Pid, Monitor} <- Clients
    ].

until_stopped(Port) ->
    receive
        stop -> ok
    after 0 ->
        true = is_served(Port),
        until_stopped(Port)
    end.

%% Another program may listen on a removed address.
an_address_that_was_left_may_be_taken(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun(Listen) ->
        #{frontends => #{front => #{listen => [{{127, 0, 0, 1}, Each} || Each <- Listen], backend => web}},
            backends => #{web => #{servers => [?SERVER:address(Server)]}}}
    end,
    ok = weir_proxy:start(proxy, Config([0, Port])),
    ok = weir_proxy:change(proxy, Config([0])),
    {ok, Taken} = gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]),
    {ok, {Proxy, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    %% Also waits for processes that the failed change has started.
    ok = weir_proxy_test:with_all_that_it_spawns(Proxy, fun() ->
        ?assertMatch({error, {listen, _, eaddrinuse}}, weir_proxy:change(proxy, Config([0, Port]))),
        ok = gen_tcp:close(Taken),
        ok = weir_proxy:change(proxy, Config([0, Port]))
    end),
    ?assertEqual(<<"a">>, name(connect(Port))).

%% The timer of an earlier removal must not shorten the time after the next one.
each_leaving_has_its_own_time(_Config) ->
    Port = proxy(#{servers => []}),
    Other = weir_test_port:claim(),
    Config = fun(Others) ->
        Address = {{127, 0, 0, 1}, Other},
        Fronts = [
            {front, #{listen => {{127, 0, 0, 1}, Port}, backend => web}}
            | [{other, #{listen => Address, backend => web}} || Others]
        ],
        #{frontends => maps:from_list(Fronts), backends => #{web => #{servers => []}}}
    end,
    {ok, {Proxy, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    [With, Without] = [Config(Others) || Others <- [true, false]],
    1 = erlang:trace(Proxy, true, [call]),
    Trace = fun(What) ->
        [1 = erlang:trace_pattern({erlang, Start, 3}, What, []) || Start <- [send_after, start_timer]]
    end,
    _ = Trace([{[60_000, '_', '_'], [], [{return_trace}]}]),
    [ok = weir_proxy:change(proxy, Each) || Each <- [With, Without, With, Without]],
    Timers = [
        receive
            {trace, Proxy, return_from, _, Timer} -> Timer
        after patience() -> ct:fail(no_timer)
        end
     || _ <- lists:seq(1, 4)
    ],
    _ = Trace(false),
    %% One timer of the address and one of the frontend.
    ?assertEqual([false, false, true, true], [is_integer(erlang:read_timer(Timer)) || Timer <- Timers]),
    ok = weir_proxy:change(proxy, With),
    ?assertEqual([false], lists:usort([erlang:read_timer(Timer) || Timer <- Timers])).

what_is_set_stays_over_a_change(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Servers = [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}],
    Port = proxy(#{servers => Servers}),
    ok = weir_proxy:drain(proxy, web, a),
    ok = weir_proxy:set_weight(proxy, web, b, 7),
    ok = change(#{servers => Servers, retries => 1}),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])),
    {ok, [#{state := drain}, #{weight := 7}]} = weir_proxy:servers(proxy, web),
    ?assertMatch(
        {error, {bad_option, [backends, <<"web">>, servers, <<"b">>, weight], 257, _}},
        weir_proxy:set_weight(proxy, web, b, 257)
    ).

%% Publishing another balancer makes the VM scan all processes.
what_is_as_it_was_is_left_alone(_Config) ->
    Servers = [[?SERVER:address(?SERVER:start(Name))] || Name <- ["a", "b", "c"]],
    Configured = fun([Web, Other]) ->
        #{
            frontends => #{
                front => #{
                    listen => "127.0.0.1:0", backend => web, rules => [#{from => "10.0.0.0/8", backend => other}]
                }
            },
            backends => #{web => #{servers => Web}, other => #{servers => Other}}
        }
    end,
    [A, B, C] = Servers,
    ok = weir_proxy:start(proxy, Configured([A, B])),
    Published = fun() -> [weir_proxy_store:backend(proxy, Name) || Name <- [<<"web">>, <<"other">>]] end,
    [Web, Other] = Published(),
    ok = weir_proxy:change(proxy, Configured([A, C])),
    [Web, Another] = Published(),
    ?assertNotEqual(Other, Another),
    ok = weir_proxy:change(proxy, Configured([A, C])),
    ?assertEqual([Web, Another], Published()),
    [#{name := Name}] = servers(web),
    ok = weir_proxy:enable(proxy, web, Name),
    ?assertEqual([Web, Another], Published()).

servers(Backend) ->
    {ok, Servers} = weir_proxy:servers(proxy, Backend),
    Servers.

names_that_are_not_there(_Config) ->
    ?assertEqual({error, {no_proxy, nobody}}, weir_proxy:stop(nobody)),
    ?assertEqual({error, {no_proxy, nobody}}, weir_proxy:change(nobody, #{frontends => #{}, backends => #{}})),
    _ = proxy(#{servers => []}),
    ?assertEqual({error, {no_server, <<"x">>}}, weir_proxy:drain(proxy, web, x)),
    ?assertEqual({error, {no_backend, <<"x">>}}, weir_proxy:drain(proxy, x, x)),
    ?assertEqual({error, {already_started, proxy}}, weir_proxy:start(proxy, #{frontends => #{}, backends => #{}})).

%% Compares every byte of every connection, both ways, while the configuration changes and servers are killed. Only
%% connections of a killed server end, and no client is refused. `make soak' runs longer.
changes_while_servers_die(_Config) -> weir_proxy_storm:run(60, 24).

%%% Ends of sessions.

silence_ends_a_session(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)]}, #{idle_timeout => 200})),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual(1, ?SERVER:connections(Server)).

the_longest_life_ends_a_session(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)]}, #{longest_life => 200})),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())),
    ?assertEqual(1, ?SERVER:connections(Server)).

numbers_return_to_zero(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 50)],
    [<<"a">> = name(Socket) || Socket <- Sockets],
    wait_for_sessions(50),
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    wait_for_sessions(0),
    {ok, #{backends := #{<<"web">> := #{sessions_total := 50, bytes_out := 100}}}} = weir_proxy:info(proxy).

stop_waits_for_connections(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    Test = self(),
    spawn_link(fun() -> Test ! {stopped, weir_proxy:stop(proxy, patience())} end),
    ?waitEqual(false, is_served(Port)),
    ?assertEqual(<<"still">>, echo(Socket, <<"still">>)),
    ok = gen_tcp:close(Socket),
    receive {stopped, Result} -> ?assertEqual(ok, Result) after patience() -> ct:fail(timeout) end.

stop_waits_for_connections_without_a_server(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)]}, #{
        rules => [#{sni => "other", backend => web}], first_bytes_timeout => patience()
    }),
    Socket = connect(Port),
    ?waitMatch({ok, #{frontends := #{<<"front">> := #{current_sessions := 1}}}}, weir_proxy:info(proxy)),
    ?assertEqual({error, {timeout, 1}}, weir_proxy:stop(proxy, 0)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

%% A frontend moves from one port to another, and is removed at last.
nobody_who_is_accepted_is_reset(_Config) ->
    Server = ?SERVER:start("a"),
    Config = fun(Listen) ->
        #{
            frontends => #{front => #{listen => [Listen], backend => web}},
            backends => #{web => #{servers => [?SERVER:address(Server)]}}
        }
    end,
    Ports = [weir_test_port:claim() || _ <- lists:seq(1, 3)],
    Address = fun(Port) -> iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]) end,
    Test = self(),
    Clients = fun(Port) ->
        All = [
            spawn_monitor(fun() ->
                true = is_served(Port),
                Test ! {served, self()},
                until_refused(Port)
            end)
         || _ <- lists:seq(1, 8)
        ],
        %% From now on each client connects again and again.
        [
            receive
                {served, Pid} -> ok
            after patience() -> ct:fail(not_served)
            end
         || {Pid, _} <- All
        ],
        All
    end,
    ok = weir_proxy:start(proxy, Config(Address(hd(Ports)))),
    All = lists:append([
        begin
            Here = Clients(Port),
            ok =
                case Next of
                    none -> weir_proxy:stop(proxy, patience());
                    _ -> weir_proxy:change(proxy, Config(Address(Next)))
                end,
            Here
        end
     || {Port, Next} <- lists:zip(Ports, tl(Ports) ++ [none])
    ]),
    [
        receive
            {'DOWN', Monitor, _, Pid, Reason} -> ?assertEqual(normal, Reason)
        after patience() -> ct:fail(timeout)
        end
     || {Pid, Monitor} <- All
    ].

until_refused(Port) ->
    case is_served(Port) of
        true -> until_refused(Port);
        false -> ok
    end.

is_served(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], patience()) of
        {ok, Socket} ->
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket),
            true;
        {error, econnrefused} ->
            false
    end.
