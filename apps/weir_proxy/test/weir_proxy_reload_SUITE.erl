%% Clients that are on their way to a server when the configuration changes go on with the new configuration.
-module(weir_proxy_reload_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [busy_address/1, busy_server/0, refuse/1, connect/1, name/1, echo/2]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        who_says_nothing_yet_goes_where_the_rules_of_now_say,
        who_waits_in_a_queue_waits_in_that_of_the_renamed_backend,
        who_waits_waits_on_where_a_backend_was_removed_and_is_there_again,
        who_connects_goes_to_a_server_of_now,
        what_a_module_has_said_stays,
        who_waits_is_served_by_a_server_that_is_added,
        limits_that_are_lowered_close_nobody,
        who_has_no_backend_any_more_is_told_in_the_log,
        sessions_outlive_an_address_that_was_left,
        who_says_nothing_yet_outlives_an_address_that_was_left,
        numbers_of_a_renamed_frontend_are_those_of_its_sessions
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) -> weir_proxy_test:end_case().

%% A configuration with a frontend and a backend of these names.
named(Port, Front, Back, Frontend, Backend) ->
    Listen = #{listen => {{127, 0, 0, 1}, Port}, backend => Back},
    #{frontends => #{Front => maps:merge(Listen, Frontend)}, backends => #{Back => Backend}}.

%% The only frontend, under any name.
frontend() ->
    {ok, #{frontends := Frontends}} = weir_proxy:info(proxy),
    [Frontend] = maps:values(Frontends),
    Frontend.

backend() ->
    {ok, #{backends := Backends}} = weir_proxy:info(proxy),
    [Backend] = maps:values(Backends),
    Backend.

wait_for_frontend(Count) -> ?waitEqual(Count, maps:get(current_sessions, frontend())).

wait_for_end(Sockets) ->
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    ?waitMatch(#{current_sessions := 0}, frontend()),
    ?waitMatch(#{current_sessions := 0, queue_current := 0, servers := [#{current_sessions := 0}]}, backend()),
    ?waitEqual(0, length(weir_proxy:sessions(proxy))).

%%% Clients on their way.

%% The frontend is renamed, then the backend, then both.
who_says_nothing_yet_goes_where_the_rules_of_now_say(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun({Front, Back}) ->
        named(Port, Front, Back, #{rules => [#{protocol => tls, backend => Back}]}, #{
            servers => [?SERVER:address(Server)]
        })
    end,
    ok = weir_proxy:start(proxy, Config({f, b})),
    Clients = [
        begin
            Client = connect(Port),
            wait_for_frontend(1),
            ok = weir_proxy:change(proxy, Config(Names)),
            ok = gen_tcp:send(Client, <<"hello">>),
            ?assertEqual(<<"a\nhello">>, weir_test_wait:recv_exactly(Client, 7)),
            wait_for_end([Client])
        end
     || Names <- [{f, c}, {g, c}, {h, d}]
    ],
    ?assertEqual(3, length(Clients)).

who_waits_in_a_queue_waits_in_that_of_the_renamed_backend(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun({Front, Back}) ->
        named(Port, Front, Back, #{}, #{
            servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
        })
    end,
    ok = weir_proxy:start(proxy, Config({f, b})),
    lists:foreach(
        fun(Names) ->
            First = connect(Port),
            <<"a">> = name(First),
            Others = [connect(Port) || _ <- lists:seq(1, 3)],
            ?waitMatch(#{queue_current := 3}, backend()),
            ok = weir_proxy:change(proxy, Config(Names)),
            %% One of them has the place in the new backend. It leaves, and the next gets the place.
            ?waitMatch(#{queue_current := 2, current_sessions := 3}, backend()),
            ?assertEqual(<<"still">>, echo(First, <<"still">>)),
            [
                begin
                    [Now] = ?waitMatch([_], [Each || Each <- Others, gen_tcp:recv(Each, 2, 10) =:= {ok, <<"a\n">>}]),
                    ok = gen_tcp:close(Now)
                end
             || _ <- Others
            ],
            wait_for_end([First])
        end,
        [{f, c}, {g, d}]
    ).

%% The new backend has another process and other counters, and is notified of free places at its servers.
who_waits_waits_on_where_a_backend_was_removed_and_is_there_again(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Backend = #{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    },
    [With, Without] = [named(Port, f, Back, #{}, Backend) || Back <- [b, c]],
    ok = weir_proxy:start(proxy, With),
    First = connect(Port),
    <<"a">> = name(First),
    Others = [connect(Port) || _ <- lists:seq(1, 3)],
    ?waitMatch(#{queue_current := 3}, backend()),
    Waiting = [Pid || {_, Pid} <- weir:connections(hd(weir:listeners())), is_process_alive(Pid)],
    ?assertEqual(3, length(Waiting)),
    %% So that they do not see the removal.
    [true = erlang:suspend_process(Pid) || Pid <- Waiting],
    ok = weir_proxy:change(proxy, Without),
    ok = weir_proxy:change(proxy, With),
    [true = erlang:resume_process(Pid) || Pid <- Waiting],
    [
        begin
            [Now] = ?waitMatch([_], [Each || Each <- Others, gen_tcp:recv(Each, 2, 10) =:= {ok, <<"a\n">>}]),
            ok = gen_tcp:close(Now)
        end
     || _ <- Others
    ],
    wait_for_end([First]).

%% The first server refuses only after its backend has got another name and another server.
who_connects_goes_to_a_server_of_now(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Busy = busy_server(),
    Config = fun(Back, Address) ->
        named(Port, f, Back, #{}, #{servers => [Address], connect_timeout => 10 * patience(), retries => 1})
    end,
    ok = weir_proxy:start(proxy, Config(b, busy_address(Busy))),
    Client = connect(Port),
    ?waitMatch(#{servers := [#{current_sessions := 1}]}, backend()),
    ok = weir_proxy:change(proxy, Config(c, ?SERVER:address(Server))),
    ok = refuse(Busy),
    ?assertEqual(<<"a">>, name(Client)),
    wait_for_end([Client]).

%% The module may have talked to the client.
what_a_module_has_said_stays(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun(Back) ->
        named(Port, f, Back, #{rules => [#{module => ?MODULE, args => self()}]}, #{
            servers => [?SERVER:address(Server)]
        })
    end,
    ok = weir_proxy:start(proxy, Config(b)),
    Client = connect(Port),
    Pid =
        receive
            {asks, Asked} -> Asked
        after patience() -> ct:fail(not_asked)
        end,
    ok = weir_proxy:change(proxy, Config(c)),
    Pid ! {backend, b},
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())),
    Other = connect(Port),
    receive
        {asks, Again} -> Again ! {backend, c}
    after patience() -> ct:fail(not_asked)
    end,
    ?assertEqual(<<"a">>, name(Other)),
    wait_for_end([Other]).

route(_Socket, _Facts, Test) ->
    Test ! {asks, self()},
    receive {backend, _} = Backend -> Backend end.

who_waits_is_served_by_a_server_that_is_added(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = weir_test_port:claim(),
    Config = fun(Servers) ->
        Each = [#{address => ?SERVER:address(Server), max_connections => 1} || Server <- Servers],
        named(Port, f, b, #{}, #{servers => Each, queue_timeout => 10 * patience()})
    end,
    ok = weir_proxy:start(proxy, Config([A])),
    First = connect(Port),
    <<"a">> = name(First),
    Second = connect(Port),
    ?waitMatch(#{queue_current := 1}, backend()),
    ok = weir_proxy:change(proxy, Config([B])),
    ?assertEqual(<<"b">>, name(Second)),
    ?assertEqual(<<"still">>, echo(First, <<"still">>)),
    wait_for_end([First, Second]).

%% The limits of the server, of the queue and of the frontend.
limits_that_are_lowered_close_nobody(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun(AtServer, InQueue, AtFrontend) ->
        Servers = [#{address => ?SERVER:address(Server), max_connections => AtServer}],
        Backend = #{servers => Servers, max_queue => InQueue, queue_timeout => 10 * patience()},
        named(Port, f, b, #{max_connections => AtFrontend}, Backend)
    end,
    ok = weir_proxy:start(proxy, Config(4, 10, 10)),
    Served = [connect(Port) || _ <- lists:seq(1, 4)],
    [?assertEqual(<<"a">>, name(Each)) || Each <- Served],
    Waiting = [connect(Port) || _ <- lists:seq(1, 4)],
    ?waitMatch(#{queue_current := 4}, backend()),
    ok = weir_proxy:change(proxy, Config(1, 1, 1)),
    [?assertEqual(<<"still">>, echo(Each, <<"still">>)) || Each <- Served],
    ?assertMatch(#{queue_current := 4}, backend()),
    [ok = gen_tcp:close(Each) || Each <- Served],
    [
        begin
            [Now] = ?waitMatch([_], [Each || Each <- Waiting, gen_tcp:recv(Each, 2, 10) =:= {ok, <<"a\n">>}]),
            ?waitMatch(#{servers := [#{current_sessions := 1}]}, backend()),
            ok = gen_tcp:close(Now)
        end
     || _ <- Waiting
    ],
    wait_for_end([]).

%% The new configuration has no route for this client.
who_has_no_backend_any_more_is_told_in_the_log(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "gone.log"),
    Port = weir_test_port:claim(),
    Log = #{log => #{file => iolist_to_binary(File), format => <<"%b %ts">>}},
    Rules = #{rules => [#{protocol => tls, backend => b}]},
    ok = weir_proxy:start(proxy, maps:merge(Log, named(Port, f, b, Rules, #{servers => []}))),
    [Client, Rejected] = [connect(Port), connect(Port)],
    wait_for_frontend(2),
    ok = weir_proxy:change(proxy, Log#{frontends => #{}, backends => #{}}),
    ok = gen_tcp:send(Client, <<"hello">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())),
    ?waitEqual({ok, <<"b SC\n">>}, file:read_file(File)),
    ok = weir_proxy:change(
        proxy,
        maps:merge(Log, named(Port, f, c, #{rules => [#{from => "127.0.0.1", reject => true}]}, #{servers => []}))
    ),
    ok = gen_tcp:send(Rejected, <<"hello">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Rejected, 0, patience())),
    ?waitMatch({ok, <<"b SC\n", _, _/binary>>}, file:read_file(File)),
    ?waitMatch(#{current_sessions := 0}, frontend()).

%%% Removed addresses.

%% They last longer than the minute after which the address is looked at.
sessions_outlive_an_address_that_was_left(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun(Each) -> named(Each, f, b, #{}, #{servers => [?SERVER:address(Server)]}) end,
    ok = weir_proxy:start(proxy, Config(Port)),
    Client = connect(Port),
    <<"a">> = name(Client),
    ok = weir_proxy:change(proxy, Config(weir_test_port:claim())),
    ok = pass_the_minute(),
    ?assertEqual(<<"still">>, echo(Client, <<"still">>)),
    ok = gen_tcp:close(Client),
    %% The listener is closed when the last connection has ended.
    ?waitMatch([_], begin ok = pass_the_minute(), weir:listeners() end),
    wait_for_end([]).

who_says_nothing_yet_outlives_an_address_that_was_left(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Rules = #{rules => [#{protocol => tls, backend => b}], first_bytes_timeout => 10 * patience()},
    Config = fun(Each) -> named(Each, f, b, Rules, #{servers => [?SERVER:address(Server)]}) end,
    ok = weir_proxy:start(proxy, Config(Port)),
    Client = connect(Port),
    wait_for_frontend(1),
    ok = weir_proxy:change(proxy, Config(weir_test_port:claim())),
    ok = pass_the_minute(),
    ok = gen_tcp:send(Client, <<"hello">>),
    ?assertEqual(<<"a\nhello">>, weir_test_wait:recv_exactly(Client, 7)),
    wait_for_end([Client]).

%% Ends the timers of removed addresses and frontends. Returns when the proxy has handled that.
pass_the_minute() ->
    {ok, {Proxy, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    [Leaving] = [
        Value
     || Value <- tuple_to_list(sys:get_state(Proxy)), is_map(Value), lists:any(fun is_reference/1, maps:values(Value))
    ],
    maps:foreach(fun(What, Timer) -> Proxy ! {timeout, Timer, What} end, Leaving),
    _ = sys:get_state(Proxy),
    ok.

numbers_of_a_renamed_frontend_are_those_of_its_sessions(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = fun({Front, Back}) ->
        named(Port, Front, Back, #{}, #{
            servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
        })
    end,
    ok = weir_proxy:start(proxy, Config({f, b})),
    First = connect(Port),
    <<"a">> = name(First),
    Second = connect(Port),
    ?waitMatch(#{queue_current := 1}, backend()),
    ok = weir_proxy:change(proxy, Config({g, c})),
    ?assertEqual(<<"a">>, name(Second)),
    Sessions = fun() ->
        lists:sort([{Frontend, Backend} || #{frontend := Frontend, backend := Backend} <- weir_proxy:sessions(proxy)])
    end,
    ?waitEqual([{<<"f">>, <<"b">>}, {<<"g">>, <<"c">>}], Sessions()),
    ?waitMatch(#{current_sessions := 1, sessions_total := 1}, frontend()),
    ?waitMatch(#{current_sessions := 1, sessions_total := 1}, backend()),
    wait_for_end([First, Second]).
