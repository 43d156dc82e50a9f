%% The servers of a backend: checks, agents and stickiness.
-module(weir_proxy_health_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [proxy/1, state/1, connect/1, name/1, wait_for_sessions/1, wait_for_state/2, wait_for_more/2]).
-import(weir_test_wait, [patience/0, wait_for_end/1]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        rise_and_fall, a_server_goes_down_and_comes_back, sessions_of_a_server_that_goes_down_are_ended,
        a_disabled_server_is_not_checked, a_server_by_name_is_checked, a_check_that_crashes_is_started_again,
        a_slow_start, weights_grow_by_one_timer, a_failing_server_is_told_once, a_server_that_resets_is_a_failing_one,
        a_server_that_closes_early_is_a_failing_one, a_shortage_of_this_machine_is_no_fault_of_a_server, probes,
        checks_begin_as_connections_do, what_an_agent_says, an_agent,
        a_client_sticks_to_its_server, sticks_are_bounded_and_forgotten, sticks_are_forgotten_when_they_are_turned_off
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

end_per_testcase(_Case, _Config) ->
    ok = weir_proxy_test:end_case(),
    _ = [weir:stop_listener(Listener) || Listener <- [an_agent, checked]],
    ok.

%%% Checks.

rise_and_fall(_Config) ->
    {Changes, _} = lists:mapfoldl(
        fun(Ok, Health) -> weir_proxy_health:checked(Ok, Health) end,
        weir_proxy_health:new(#{rise => 2, fall => 3}),
        [false, false, true, false, false, false, false, true, false, true, true, true]
    ),
    ?assertEqual([same, same, same, same, same, down, same, same, same, same, up, same], Changes).

health(More) -> maps:merge(#{interval => 20, timeout => patience(), rise => 1, fall => 1}, More).

a_server_goes_down_and_comes_back(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}],
        health => health(#{})
    }),
    ok = ?SERVER:stop(A),
    wait_for_state(a, down),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])),
    _ = ?SERVER:start("a", [{port, ?SERVER:port(A)}]),
    wait_for_state(a, up),
    ?assertEqual([<<"a">>, <<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])).

sessions_of_a_server_that_goes_down_are_ended(_Config) ->
    Server = ?SERVER:start("a"),
    %% Checks go to another server, so that this one keeps running.
    Checked = ?SERVER:start("checked"),
    Backend = #{
        servers => [#{name => a, address => ?SERVER:address(Server)}],
        health => health(#{port => ?SERVER:port(Checked)}),
        on_down => close
    },
    Socket = connect(proxy(Backend)),
    <<"a">> = name(Socket),
    ok = ?SERVER:stop(Checked),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())).

a_disabled_server_is_not_checked(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}], health => health(#{})}),
    wait_for_more(2, fun() -> ?SERVER:connections(Server) end),
    ok = weir_proxy:disable(proxy, web, a),
    %% The check has ended, and no process is left to start another.
    ?waitEqual([], checks()),
    Then = ?SERVER:connections(Server),
    ok = weir_proxy:enable(proxy, web, a),
    wait_for_more(Then, fun() -> ?SERVER:connections(Server) end).

%% The name is resolved only after the backend has started.
a_server_by_name_is_checked(_Config) ->
    Server = ?SERVER:start("a"),
    Address = iolist_to_binary(["localhost:", integer_to_binary(?SERVER:port(Server))]),
    _ = proxy(#{servers => [#{name => a, address => Address}], health => health(#{})}),
    wait_for_state(a, up),
    wait_for_more(2, fun() -> ?SERVER:connections(Server) end),
    ok = ?SERVER:stop(Server),
    wait_for_state(a, down).

a_check_that_crashes_is_started_again(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}], health => health(#{})}),
    wait_for_more(0, fun() -> ?SERVER:connections(Server) end),
    Checks = [_ | _] = checks(),
    [exit(Pid, kill) || Pid <- Checks],
    _ = [wait_for_end(Pid) || Pid <- Checks],
    Then = ?SERVER:connections(Server),
    wait_for_more(Then + 2, fun() -> ?SERVER:connections(Server) end).

%% The processes that the backend's process has started.
checks() ->
    {links, Links} = process_info(backend(), links),
    [Pid || Pid <- Links, Pid =/= whereis(weir_proxy_backends)].

backend() -> element(3, weir_proxy_store:backend(proxy, <<"web">>)).

%% Sets a weight many times during a slow start.
weights_grow_by_one_timer(_Config) ->
    Server = ?SERVER:start("a"),
    ok = ?SERVER:stop(Server),
    _ = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(Server)}], health => health(#{}), slow_start => <<"1m">>
    }),
    wait_for_state(a, down),
    _ = ?SERVER:start("a", [{port, ?SERVER:port(Server)}]),
    wait_for_state(a, up),
    [ok = weir_proxy:set_weight(proxy, web, a, 1 + Turn rem 2) || Turn <- lists:seq(1, 300)],
    Begin = erlang:monotonic_time(millisecond),
    Published = published(fun() -> timer:sleep(400) end),
    %% Five per second. If each change had its own timer, there would be 300 times as many.
    ?assert(Published =< 10 + (erlang:monotonic_time(millisecond) - Begin) div 100, Published).

%% How often a backend was published during Fun.
published(Fun) ->
    Function = {weir_proxy_store, publish, 2},
    1 = erlang:trace_pattern(Function, true, [call_count]),
    _ = Fun(),
    {call_count, Count} = erlang:trace_info(Function, call_count),
    1 = erlang:trace_pattern(Function, false, [call_count]),
    Count.

%% Connections that were on their way when it began to fail report it, too.
a_failing_server_is_told_once(_Config) ->
    _ = proxy(#{
        servers => [#{name => a, address => <<"127.0.0.1:1">>}], passive => #{fall => 1, back_off => <<"1m">>}
    }),
    Fail = fun() ->
        [ok = weir_proxy_backend:failing(backend(), <<"a">>) || _ <- lists:seq(1, 100)],
        failing = state(a)
    end,
    ?assertEqual(1, published(Fail)).

%% Only if the option is set. A reset after an answer does not count.
a_server_that_resets_is_a_failing_one(_Config) -> unanswered(resets, <<"reset me">>).

a_server_that_closes_early_is_a_failing_one(_Config) -> unanswered(early_closes, <<"close me">>).

unanswered(Kind, Word) ->
    Server = ?SERVER:start("a", [silent]),
    Backend = fun(Counts) ->
        #{
            servers => [#{name => a, address => ?SERVER:address(Server)}],
            passive => #{fall => 2, back_off => <<"1m">>, Kind => Counts}
        }
    end,
    Port = proxy(Backend(false)),
    Say = fun(Words) ->
        Socket = connect(Port),
        [
            begin
                ok = gen_tcp:send(Socket, Each),
                _ = gen_tcp:recv(Socket, 0, patience())
            end
         || Each <- Words
        ],
        ok = gen_tcp:close(Socket),
        wait_for_sessions(0)
    end,
    InARow = fun() ->
        {ok, [#{Kind := Count}]} = weir_proxy:servers(proxy, web),
        Count
    end,
    [Say([Word]) || _ <- [1, 2, 3]],
    ?assertEqual({3, up}, {InARow(), state(a)}),
    ok = weir_proxy_test:change(Backend(true)),
    Say([<<"hello">>, Word]),
    ?assertEqual({0, up}, {InARow(), state(a)}),
    Say([Word]),
    ?assertEqual({1, up}, {InARow(), state(a)}),
    %% A client that leaves does not count for or against the server.
    Say([]),
    ?assertEqual({1, up}, {InARow(), state(a)}),
    Say([Word]),
    wait_for_state(a, failing).

a_slow_start(_Config) ->
    Config = #{
        name => <<"a">>, address => {{127, 0, 0, 1}, 1}, weight => 4, priority => 0, max_connections => infinity
    },
    Backend = #{health => #{rise => 1, fall => 1}, slow_start => 1000},
    New = weir_proxy_server:new(Config, Backend),
    Weight = fun(Now, Server) ->
        {0, Eligible} = weir_proxy_server:eligible(Now, Server),
        lists:last(tuple_to_list(Eligible))
    end,
    Whole = Weight(0, New),
    {down, Down} = weir_proxy_server:checked({error, timeout}, 1, 0, New),
    ?assertEqual(none, weir_proxy_server:eligible(0, Down)),
    {up, Up} = weir_proxy_server:checked(ok, 1, 5000, Down),
    Weights = [Weight(5000 + After, Up) || After <- [0, 250, 500, 750, 1000, 2000]],
    ?assertEqual([Whole div 16, Whole div 4, Whole div 2, 3 * Whole div 4, Whole, Whole], Weights).

probes(_Config) ->
    Ask = fun(Answer, Options) ->
        {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = inet:port(Listen),
        Pid = spawn(fun() ->
            {ok, Socket} = gen_tcp:accept(Listen),
            _ = maps:get(kind, Options) =:= smtp orelse gen_tcp:recv(Socket, 0, patience()),
            _ = [
                begin
                    ok = gen_tcp:send(Socket, <<Byte>>)
                end
             || <<Byte>> <= Answer
            ],
            receive
                done -> ok
            end
        end),
        ok = gen_tcp:controlling_process(Listen, Pid),
        Result = weir_proxy_probe:probe(
            {{127, 0, 0, 1}, Port}, health_options(Options#{timeout => maps:get(timeout, Options, patience())})
        ),
        exit(Pid, kill),
        Result
    end,
    ?assertEqual(ok, Ask(<<"HTTP/1.1 204 No Content\r\n\r\n">>, #{kind => http})),
    ?assertEqual({error, {status, <<"503">>}}, Ask(<<"HTTP/1.1 503 Unavailable\r\n\r\n">>, #{kind => http})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"SSH-2.0-openssh">>, #{kind => http})),
    ?assertEqual(ok, Ask(<<"220 mail ESMTP\r\n">>, #{kind => smtp})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"554 no\r\n">>, #{kind => smtp})),
    ?assertEqual(ok, Ask(<<"+PONG\r\n">>, #{kind => redis})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"-LOADING\r\n">>, #{kind => redis})),
    ?assertEqual(ok, Ask(<<"R", 0, 0, 0, 8, 0, 0, 0, 0>>, #{kind => postgres})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"hello">>, #{kind => postgres})),
    Refusal = fun(Code) ->
        Fields = <<"SFATAL", 0, "C", Code/binary, 0, "Mno", 0, 0>>,
        <<"E", (byte_size(Fields) + 4):32, Fields/binary>>
    end,
    ?assertEqual(ok, Ask(Refusal(<<"28000">>), #{kind => postgres})),
    ?assertEqual({error, {sqlstate, <<"57P03">>}}, Ask(Refusal(<<"57P03">>), #{kind => postgres})),
    ?assertEqual({error, {sqlstate, <<"53300">>}}, Ask(Refusal(<<"53300">>), #{kind => postgres})),
    ?assertEqual(ok, Ask(<<21, 3, 3, 0, 2, 2, 40>>, #{kind => tls})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"HTTP/1.1 400 Bad">>, #{kind => tls})),
    ?assertEqual(ok, Ask(<<"well, ready now">>, #{kind => send_expect, send => "?", expect => "ready"})),
    ?assertEqual(
        {error, timeout}, Ask(<<"not yet">>, #{kind => send_expect, send => "?", expect => "ready", timeout => 300})
    ),
    ?assertEqual({error, econnrefused}, weir_proxy_probe:probe({{127, 0, 0, 1}, 1}, health_options(#{}))).

%% A lack of descriptors on this machine must not mark servers as down, neither through checks nor through connections.
a_shortage_of_this_machine_is_no_fault_of_a_server(_Config) ->
    Config = #{
        name => <<"a">>, address => {{127, 0, 0, 1}, 1}, weight => 1, priority => 0, max_connections => infinity
    },
    Server = weir_proxy_server:new(Config, #{health => health_options(#{fall => 1}), slow_start => 0}),
    {same, Short} = weir_proxy_server:checked({error, emfile}, 0, 0, Server),
    ?assertMatch(
        #{state := up, checks_failed := 0, last_check := #{result := {error, emfile}}},
        weir_proxy_server:to_map(0, Short)
    ),
    ?assertMatch({down, _}, weir_proxy_server:checked({error, econnrefused}, 0, 0, Short)),

    Real = ?SERVER:start("a"),
    %% This machine does not have the source address, so connecting fails locally.
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(Real)}],
        source => "192.0.2.1",
        retries => 0,
        passive => #{fall => 1}
    }),
    ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitMatch({ok, #{frontends := #{<<"front">> := #{connection_errors := 1}}}}, weir_proxy:info(proxy)),
    ?assertMatch(
        {ok, [#{state := up, connection_errors := 0, failures := 0, current_sessions := 0}]},
        weir_proxy:servers(proxy, web)
    ).

%% Options of checks as they are in a backend.
health_options(Options) ->
    {ok, #{backends := #{<<"web">> := #{health := Health}}}} =
        weir_proxy_config:new(#{frontends => #{}, backends => #{web => #{servers => [], health => Options}}}),
    Health.

%% A server that expects a PROXY header expects it from checks, too. What listens on another port may not.
checks_begin_as_connections_do(_Config) ->
    Tell = fun(Socket, {Test, Turn}) ->
        {ok, Said} = gen_tcp:recv(Socket, 0, patience()),
        Test ! {Turn, Said}
    end,
    Said = fun(Backend, Health) ->
        Turn = make_ref(),
        {ok, _} = weir:start_listener(checked, #{ip => {127, 0, 0, 1}}, Tell, {self(), Turn}),
        Checked = weir:get_port(checked),
        Options =
            case Health(Checked) of
                #{kind := tcp} = Tcp -> Tcp;
                More -> More#{kind => send_expect, send => "?", expect => "!"}
            end,
        _ = proxy(Backend#{servers => [{{127, 0, 0, 1}, Checked}], health => health(Options)}),
        Words =
            receive
                {Turn, Heard} -> Heard
            after patience() -> ct:fail(no_check)
            end,
        ok = weir_proxy:stop(proxy),
        ok = weir:stop_listener(checked),
        Words
    end,
    Local = iolist_to_binary(weir_proxy_protocol:build(#{version => 2, command => local})),
    ?assertMatch({ok, #{command := local}, <<>>}, weir_proxy_protocol:parse(Local)),
    Here = fun(_) -> #{} end,
    There = fun(Port) -> #{port => Port} end,
    ?assertEqual(<<"?">>, Said(#{}, Here)),
    ?assertEqual(<<"PROXY UNKNOWN\r\n?">>, Said(#{send_proxy => v1}, Here)),
    ?assertEqual(<<Local/binary, "?">>, Said(#{send_proxy => v2}, Here)),
    ?assertEqual(<<"?">>, Said(#{send_proxy => v2}, There)),
    ?assertEqual(
        <<"PROXY UNKNOWN\r\n?">>, Said(#{send_proxy => v2}, fun(Port) -> #{port => Port, send_proxy => v1} end)
    ),
    ?assertEqual(<<"?">>, Said(#{send_proxy => v2}, fun(_) -> #{send_proxy => off} end)),
    ?assertEqual(Local, Said(#{send_proxy => v2}, fun(_) -> #{kind => tcp} end)).

%%% Agents.

what_an_agent_says(_Config) ->
    [
        ?assertEqual({Line, Said}, {Line, weir_proxy_agent:parse(Line)})
     || {Line, Said} <- [
            {<<"up">>, {ok, #{is_up => true}}},
            {<<"ready,up 75% maxconn:30">>,
                {ok, #{admin => ready, is_up => true, percent => 75, max_connections => 30}}},
            {<<"DOWN # the disk is full, 10%">>, {ok, #{is_up => false}}},
            {<<"drain\t0%">>, {ok, #{admin => drain, percent => 0}}},
            {<<>>, {ok, #{}}},
            {<<"fine">>, {error, {unexpected, <<"fine">>}}},
            {<<"up ", 255, 254>>, {error, {unexpected, <<255, 254>>}}},
            {<<"up -1%">>, {error, {unexpected, <<"-1%">>}}},
            {<<"maxconn:none">>, {error, {unexpected, <<"maxconn:none">>}}}
        ]
    ].

an_agent(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Line = ets:new(line, [public]),
    true = ets:insert(Line, {line, "up 100%\n"}),
    Answers = counters:new(1, []),
    {ok, _} = weir:start_listener(
        an_agent,
        #{ip => {127, 0, 0, 1}},
        fun(Socket, _) ->
            [{line, Text}] = ets:lookup(Line, line),
            ok = counters:add(Answers, 1, 1),
            gen_tcp:send(Socket, Text)
        end,
        none
    ),
    Say = fun(Text) -> true = ets:insert(Line, {line, Text}) end,
    %% Both servers have the same agent.
    Port = proxy(#{
        servers => [
            #{name => a, address => ?SERVER:address(A), weight => 100},
            #{name => b, address => ?SERVER:address(B), priority => 1}
        ],
        agent => #{port => weir:get_port(an_agent), interval => 20},
        on_down => close
    }),
    Old = connect(Port),
    <<"a">> = name(Old),
    Known = fun(Key) ->
        {ok, [#{agent := Agent} | _]} = weir_proxy:servers(proxy, web),
        maps:get(Key, Agent, none)
    end,
    ?waitEqual(100, Known(percent)),
    _ = Say("drain maxconn:7\n"),
    wait_for_state(a, drain),
    ?assertEqual({100, 7}, {Known(percent), Known(max_connections)}),
    _ = Say("gibberish\n"),
    %% A process asks again after it has reported an answer. With three answers, one of the two has reported at least
    %% one.
    Answered = counters:get(Answers, 1),
    wait_for_more(Answered + 3, fun() -> counters:get(Answers, 1) end),
    ?assertEqual(drain, state(a)),
    _ = Say("ready\n"),
    wait_for_state(a, up),
    ok = gen_tcp:send(Old, <<"x">>),
    {ok, <<"x">>} = gen_tcp:recv(Old, 1, patience()),
    _ = Say("down#for now\n"),
    wait_for_state(a, down),
    ?assertMatch({error, _}, gen_tcp:recv(Old, 0, patience())),
    _ = Say("up"),
    wait_for_state(a, up),
    ?assertEqual(<<"a">>, name(connect(Port))).

%%% Stickiness.

a_client_sticks_to_its_server(_Config) ->
    Servers = [?SERVER:start(Name) || Name <- ["a", "b", "c"]],
    Names = [a, b, c],
    Port = proxy(#{
        servers => [#{name => Name, address => ?SERVER:address(Server)} || {Name, Server} <- lists:zip(Names, Servers)],
        stick => <<"1m">>
    }),
    First = name(connect(Port)),
    ?assertEqual([First], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    %% The client moves to another server and stays there.
    ok = weir_proxy:drain(proxy, web, First),
    Second = name(connect(Port)),
    ?assertNotEqual(First, Second),
    ok = weir_proxy:enable(proxy, web, First),
    ?assertEqual([Second], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    {ok, #{backends := #{<<"web">> := #{sticks := 1}}}} = weir_proxy:info(proxy).

sticks_are_bounded_and_forgotten(_Config) ->
    Numbers = weir_proxy_counters:new(),
    Other = weir_proxy_counters:new(),
    %% The limit is for each backend.
    [
        ok = weir_proxy_sticks:remember(Of, Key, <<"a">>, 100)
     || {Of, Most} <- [{Other, 1000}, {Numbers, 200_100}], Key <- lists:seq(1, Most)
    ],
    ?assertEqual(200_000, weir_proxy_counters:get(Numbers, sticks)),
    ?assertEqual({ok, <<"a">>}, weir_proxy_sticks:server(Numbers, 1, 99)),
    ?assertEqual(none, weir_proxy_sticks:server(Numbers, 1, 100)),
    ?assertEqual(none, weir_proxy_sticks:server(Numbers, 200_100, 99)),
    ok = weir_proxy_sticks:remember(Numbers, 1, <<"b">>, 200),
    ok = weir_proxy_sticks:forget(Numbers, 150),
    ?assertEqual(1, weir_proxy_counters:get(Numbers, sticks)),
    ?assertEqual({ok, <<"b">>}, weir_proxy_sticks:server(Numbers, 1, 150)),
    [ok = weir_proxy_sticks:forget(Of, all) || Of <- [Numbers, Other]],
    ?assertEqual([0, 0], [weir_proxy_counters:get(Of, sticks) || Of <- [Numbers, Other]]).

sticks_are_forgotten_when_they_are_turned_off(_Config) ->
    Server = ?SERVER:start("a"),
    Servers = #{servers => [#{name => a, address => ?SERVER:address(Server)}]},
    <<"a">> = name(connect(proxy(Servers#{stick => 1}))),
    Sticks = fun() -> {ok, #{backends := #{<<"web">> := #{sticks := Count}}}} = weir_proxy:info(proxy), Count end,
    1 = Sticks(),
    ok = weir_proxy_test:change(Servers),
    %% The entry expires a millisecond later.
    ?waitEqual(0, begin _ = backend() ! forget, Sticks() end).
