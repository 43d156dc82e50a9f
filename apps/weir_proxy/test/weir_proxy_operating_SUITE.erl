%% Operating a proxy: checks of servers, the file, the control socket, the log, metrics and the page.
-module(weir_proxy_operating_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").

-compile([export_all, nowarn_export_all]).

-define(SERVER, weir_proxy_backend_double).
-define(PATIENCE, 10_000).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [
        rise_and_fall, a_server_goes_down_and_comes_back, sessions_of_a_server_that_goes_down_are_ended,
        a_disabled_server_is_not_checked, a_slow_start, probes,
        what_an_agent_says, an_agent, a_client_sticks_to_its_server, sticks_are_bounded_and_forgotten,
        a_file, a_wrong_file, a_reload_keeps_connections, commands, sessions_end_within_a_time, a_successor, a_successor_of_nobody, a_line_for_a_session, a_format_of_ones_own, a_log_by_syslog, a_line_for_a_client_without_a_server, who_has_reset_a_session, events, counters_are_in_the_table, metrics, the_page
    ].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_proxy),
    {ok, More} = application:ensure_all_started(inets),
    [{started, Started ++ More} | Config].

end_per_suite(Config) ->
    [ok = application:stop(Application) || Application <- lists:reverse(proplists:get_value(started, Config))],
    ok.

end_per_testcase(_Case, _Config) ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    ok.

%%% Checks.

rise_and_fall(_Config) ->
    {Changes, _} = lists:mapfoldl(
        fun(Ok, Health) -> weir_proxy_health:checked(Ok, Health) end,
        weir_proxy_health:new(#{rise => 2, fall => 3}),
        [false, false, true, false, false, false, false, true, false, true, true, true]
    ),
    ?assertEqual([same, same, same, same, same, down, same, same, same, same, up, same], Changes).

health(More) -> maps:merge(#{interval => 20, timeout => 500, rise => 1, fall => 1}, More).

a_server_goes_down_and_comes_back(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}], health => health(#{})}),
    ok = ?SERVER:stop(A),
    wait_for(fun() -> state(a) =:= down end),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])),
    _ = ?SERVER:start("a", [{port, ?SERVER:port(A)}]),
    wait_for(fun() -> state(a) =:= up end),
    ?assertEqual([<<"a">>, <<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])).

sessions_of_a_server_that_goes_down_are_ended(_Config) ->
    Server = ?SERVER:start("a"),
    %% Checks are made elsewhere, so that the server itself goes on.
    Checked = ?SERVER:start("checked"),
    Backend = #{servers => [#{name => a, address => ?SERVER:address(Server)}], health => health(#{port => ?SERVER:port(Checked)}), on_down => close},
    Socket = connect(proxy(Backend)),
    <<"a">> = name(Socket),
    ok = ?SERVER:stop(Checked),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)).

a_disabled_server_is_not_checked(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}], health => health(#{})}),
    wait_for(fun() -> ?SERVER:connections(Server) > 2 end),
    ok = weir_proxy:disable(proxy, web, a),
    timer:sleep(50),
    Then = ?SERVER:connections(Server),
    timer:sleep(200),
    ?assertEqual(Then, ?SERVER:connections(Server)),
    ok = weir_proxy:enable(proxy, web, a),
    wait_for(fun() -> ?SERVER:connections(Server) > Then end).

a_slow_start(_Config) ->
    Config = #{name => <<"a">>, address => {{127, 0, 0, 1}, 1}, weight => 4, priority => 0, max_connections => infinity},
    Backend = #{health => #{rise => 1, fall => 1}, slow_start => 1000},
    New = weir_proxy_server:new(Config, Backend),
    Weight = fun(Now, Server) -> {0, Eligible} = weir_proxy_server:eligible(Now, Server), lists:last(tuple_to_list(Eligible)) end,
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
            _ = maps:get(kind, Options) =:= smtp orelse gen_tcp:recv(Socket, 0, ?PATIENCE),
            _ = [begin ok = gen_tcp:send(Socket, <<Byte>>) end || <<Byte>> <= Answer],
            receive done -> ok end
        end),
        ok = gen_tcp:controlling_process(Listen, Pid),
        Defaults = weir_proxy_health:options([], maps:merge(#{timeout => ?PATIENCE}, Options)),
        Result = weir_proxy_probe:probe({{127, 0, 0, 1}, Port}, Defaults),
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
    Refusal = fun(Code) -> Fields = <<"SFATAL", 0, "C", Code/binary, 0, "Mno", 0, 0>>, <<"E", (byte_size(Fields) + 4):32, Fields/binary>> end,
    ?assertEqual(ok, Ask(Refusal(<<"28000">>), #{kind => postgres})),
    ?assertEqual({error, {sqlstate, <<"57P03">>}}, Ask(Refusal(<<"57P03">>), #{kind => postgres})),
    ?assertEqual({error, {sqlstate, <<"53300">>}}, Ask(Refusal(<<"53300">>), #{kind => postgres})),
    ?assertEqual(ok, Ask(<<21, 3, 3, 0, 2, 2, 40>>, #{kind => tls})),
    ?assertMatch({error, {unexpected, _}}, Ask(<<"HTTP/1.1 400 Bad">>, #{kind => tls})),
    ?assertEqual(ok, Ask(<<"well, ready now">>, #{kind => send_expect, send => "?", expect => "ready"})),
    ?assertEqual({error, timeout}, Ask(<<"not yet">>, #{kind => send_expect, send => "?", expect => "ready", timeout => 300})),
    ?assertEqual({error, econnrefused}, weir_proxy_probe:probe({{127, 0, 0, 1}, 1}, weir_proxy_health:options([], #{}))).

%%% Agents.

what_an_agent_says(_Config) ->
    [
        ?assertEqual({Line, Said}, {Line, weir_proxy_agent:parse(Line)})
     || {Line, Said} <- [
            {<<"up">>, {ok, #{is_up => true}}},
            {<<"ready,up 75% maxconn:30">>, {ok, #{admin => ready, is_up => true, percent => 75, max_connections => 30}}},
            {<<"DOWN # the disk is full, 10%">>, {ok, #{is_up => false}}},
            {<<"drain\t0%">>, {ok, #{admin => drain, percent => 0}}},
            {<<>>, {ok, #{}}},
            {<<"fine">>, {error, {unexpected, <<"fine">>}}},
            {<<"up -1%">>, {error, {unexpected, <<"-1%">>}}},
            {<<"maxconn:none">>, {error, {unexpected, <<"maxconn:none">>}}}
        ]
    ].

an_agent(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Line = ets:new(line, [public]),
    true = ets:insert(Line, {line, "up 100%\n"}),
    {ok, _} = weir:start_listener(an_agent, #{ip => {127, 0, 0, 1}}, fun(Socket, _) ->
        [{line, Text}] = ets:lookup(Line, line),
        gen_tcp:send(Socket, Text)
    end, none),
    Say = fun(Text) -> true = ets:insert(Line, {line, Text}) end,
    %% Both have the same agent.
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A), weight => 100}, #{name => b, address => ?SERVER:address(B), priority => 1}],
        agent => #{port => weir:get_port(an_agent), interval => 20}, on_down => close
    }),
    Old = connect(Port),
    <<"a">> = name(Old),
    Known = fun(Key) -> {ok, [#{agent := Agent} | _]} = weir_proxy:servers(proxy, web), maps:get(Key, Agent, none) end,
    wait_for(fun() -> Known(percent) =:= 100 end),
    _ = Say("drain maxconn:7\n"),
    wait_for(fun() -> state(a) =:= drain end),
    ?assertEqual({100, 7}, {Known(percent), Known(max_connections)}),
    _ = Say("gibberish\n"),
    timer:sleep(100),
    ?assertEqual(drain, state(a)),
    _ = Say("ready\n"),
    wait_for(fun() -> state(a) =:= up end),
    ok = gen_tcp:send(Old, <<"x">>),
    {ok, <<"x">>} = gen_tcp:recv(Old, 1, ?PATIENCE),
    _ = Say("down#for now\n"),
    wait_for(fun() -> state(a) =:= down end),
    ?assertMatch({error, _}, gen_tcp:recv(Old, 0, ?PATIENCE)),
    _ = Say("up"),
    wait_for(fun() -> state(a) =:= up end),
    ?assertEqual(<<"a">>, name(connect(Port))),
    ok = weir:stop_listener(an_agent).

%%% Stickiness.

a_client_sticks_to_its_server(_Config) ->
    Servers = [?SERVER:start(Name) || Name <- ["a", "b", "c"]],
    Names = [a, b, c],
    Port = proxy(#{servers => [#{name => Name, address => ?SERVER:address(Server)} || {Name, Server} <- lists:zip(Names, Servers)], stick => <<"1m">>}),
    First = name(connect(Port)),
    ?assertEqual([First], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    %% Another one, and that for good.
    ok = weir_proxy:drain(proxy, web, First),
    Second = name(connect(Port)),
    ?assertNotEqual(First, Second),
    ok = weir_proxy:enable(proxy, web, First),
    ?assertEqual([Second], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    {ok, #{backends := #{<<"web">> := #{sticks := 1}}}} = weir_proxy:info(proxy).

sticks_are_bounded_and_forgotten(_Config) ->
    Numbers = weir_proxy_numbers:new(),
    Other = weir_proxy_numbers:new(),
    [ok = weir_proxy_sticks:remember(Of, Key, <<"a">>, 100) || Of <- [Numbers, Other], Key <- lists:seq(1, 200_100)],
    ?assertEqual(200_000, weir_proxy_numbers:get(Numbers, sticks)),
    ?assertEqual({ok, <<"a">>}, weir_proxy_sticks:server(Numbers, 1, 99)),
    ?assertEqual(none, weir_proxy_sticks:server(Numbers, 1, 100)),
    ?assertEqual(none, weir_proxy_sticks:server(Numbers, 200_100, 99)),
    ok = weir_proxy_sticks:remember(Numbers, 1, <<"b">>, 200),
    ok = weir_proxy_sticks:forget(Numbers, 150),
    ?assertEqual(1, weir_proxy_numbers:get(Numbers, sticks)),
    ?assertEqual({ok, <<"b">>}, weir_proxy_sticks:server(Numbers, 1, 150)),
    [ok = weir_proxy_sticks:forget(Of, all) || Of <- [Numbers, Other]],
    ?assertEqual([0, 0], [weir_proxy_numbers:get(Of, sticks) || Of <- [Numbers, Other]]).

%%% Files and commands.

file(Config, Text) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "proxy.toml"),
    ok = file:write_file(File, Text),
    File.

text(Servers) ->
    [
        "[frontends.front]\nlisten = '127.0.0.1:0'\nbackend = 'web'\nidle_timeout = '10m'\n"
        "[backends.web]\nbalance = 'least_connections'\nservers = [", lists:join(", ", [[$', ?SERVER:address(Server), $'] || Server <- Servers]), "]\n"
    ].

a_file(Config) ->
    Server = ?SERVER:start("a"),
    ok = weir_proxy_file:start(proxy, file(Config, text([Server]))),
    ?assertEqual(<<"a">>, name(connect(port()))).

a_wrong_file(Config) ->
    Server = ?SERVER:start("a"),
    Explained = fun(Text) ->
        {error, Fault} = weir_proxy_file:start(proxy, file(Config, Text)),
        lists:last(string:split(unicode:characters_to_list(weir_proxy_file:explain(Fault)), "proxy.toml:", all))
    end,
    Unknown = Explained("[frontends.front]\nlisten = '127.0.0.1:0'\n\n\nidle = 1\n[backends]\n"),
    ?assertMatch("5: frontends.front.idle is 1; allowed: unknown option; valid: listen, " ++ _, Unknown),
    ?assertMatch("4: backends.web.retries is -1; allowed: " ++ _, Explained(["[frontends]\n[backends.web]\nservers = []\nretries = -1\n"])),
    ?assertMatch("2: " ++ _, Explained(["[frontends]\n]"])),
    ?assertEqual([], weir_proxy:proxies()),
    ?assertEqual({error, no_file}, weir_proxy_file:reload(proxy)),
    ok = ?SERVER:stop(Server).

a_reload_keeps_connections(Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    ok = weir_proxy_file:start(proxy, file(Config, text([A]))),
    Port = port(),
    Old = connect(Port),
    <<"a">> = name(Old),
    _ = file(Config, text([B])),
    ok = weir_proxy_file:reload(proxy),
    ?assertEqual(<<"b">>, name(connect(Port))),
    _ = file(Config, "nonsense"),
    {error, {file, _, 1, _}} = weir_proxy_file:reload(proxy),
    ?assertEqual(<<"b">>, name(connect(Port))),
    ok = gen_tcp:send(Old, <<"still">>),
    ?assertEqual({ok, <<"still">>}, gen_tcp:recv(Old, 5, ?PATIENCE)).

commands(_Config) ->
    Path = iolist_to_binary(["/tmp/weir-proxy-control-", os:getpid()]),
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{control => Path}),
    {ok, #file_info{mode = Mode}} = file:read_file_info(Path),
    ?assertEqual(8#600, Mode band 8#777),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    Ask = fun(Words) -> {ok, Answer} = weir_proxy_control:ask(Path, Words), Answer end,
    ?assertMatch(#{<<"ok">> := #{<<"web">> := [#{<<"state">> := <<"up">>, <<"name">> := <<"a">>}]}}, Ask(["servers"])),
    wait_for(fun() -> #{<<"ok">> := Sessions} = Ask(["sessions"]), length(Sessions) =:= 1 end),
    ?assertEqual(#{<<"ok">> => true}, Ask(["drain", "web", "a"])),
    ?assertEqual(drain, state(a)),
    ?assertEqual(#{<<"ok">> => true}, Ask(["enable", "web", "a"])),
    ?assertEqual(#{<<"ok">> => true}, Ask(["set-weight", "web", "a", "5"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["set-weight", "web", "a", "many"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["drain", "web", "x"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["reload"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["whatever"])),
    ?assertEqual(#{<<"ok">> => 1}, Ask(["close-sessions", "web", "a"])),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)).

sessions_end_within_a_time(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 5)],
    [<<"a">> = name(Socket) || Socket <- Sockets],
    wait_for(fun() -> length(weir_proxy:sessions(proxy)) =:= 5 end),
    Start = erlang:monotonic_time(millisecond),
    ?assertEqual({ok, 5}, weir_proxy:drain(proxy, web, a, 300)),
    ?assertEqual(drain, state(a)),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)) || Socket <- Sockets],
    ?assert(erlang:monotonic_time(millisecond) - Start >= 300),
    ?assertMatch({error, {bad_option, [within], -1, _}}, weir_proxy:drain(proxy, web, a, -1)),
    ?assertEqual({error, {no_server, <<"x">>}}, weir_proxy:drain(proxy, web, x, 1)).

%% Clients come all the time; none is refused, and none loses its connection.
a_successor(_Config) ->
    Server = ?SERVER:start("a"),
    Port = free_port(),
    Config = #{
        frontends => #{front => #{listen => iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]), backend => web}},
        backends => #{web => #{servers => [#{name => a, address => ?SERVER:address(Server)}]}},
        control => iolist_to_binary(["/tmp/weir-proxy-successor-", os:getpid()]),
        statistics => iolist_to_binary(["127.0.0.1:", integer_to_list(free_port())])
    },
    ok = weir_proxy:start(old, Config),
    Test = self(),
    Waiter = spawn_link(fun() -> Test ! {self(), weir_proxy:await_successor(old)} end),
    Old = connect(Port),
    <<"a">> = name(Old),
    Stop = counters:new(1, []),
    Clients = [spawn_monitor(fun() -> exit({done, clients(Port, Stop, 0)}) end) || _ <- lists:seq(1, 4)],
    timer:sleep(100),
    ok = weir_proxy:take_over(new, Config),
    receive {Waiter, Left} -> ?assertEqual(ok, Left) after ?PATIENCE -> ct:fail(nobody_told) end,
    timer:sleep(100),
    ok = counters:add(Stop, 1, 1),
    Results = [receive {'DOWN', Monitor, process, Pid, Reason} -> Reason after ?PATIENCE -> timeout end || {Pid, Monitor} <- Clients],
    ?assertEqual([], [Result || Result <- Results, not is_tuple(Result) orelse element(1, Result) =/= done]),
    %% All that comes now is the new one's, and so is the control socket.
    Before = total(new),
    [<<"a">> = name(connect(Port)) || _ <- lists:seq(1, 10)],
    ?assertEqual(Before + 10, total(new)),
    {ok, #{<<"ok">> := true}} = weir_proxy_control:ask(maps:get(control, Config), ["drain", "web", "a"]),
    {ok, [#{state := drain}]} = weir_proxy:servers(new, web),
    {ok, [#{state := up}]} = weir_proxy:servers(old, web),
    ok = gen_tcp:send(Old, <<"still">>),
    ?assertEqual({ok, <<"still">>}, gen_tcp:recv(Old, 5, ?PATIENCE)),
    ok = gen_tcp:close(Old),
    ok = weir_proxy:stop(old, ?PATIENCE).

clients(Port, Stop, Count) ->
    case counters:get(Stop, 1) of
        1 -> Count;
        0 ->
            Socket = connect(Port),
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket),
            clients(Port, Stop, Count + 1)
    end.

total(Proxy) ->
    {ok, #{frontends := #{<<"front">> := #{sessions_total := Total}}}} = weir_proxy:info(Proxy),
    Total.

a_successor_of_nobody(_Config) ->
    Server = ?SERVER:start("a"),
    Config = #{
        frontends => #{front => #{listen => "127.0.0.1:0", backend => web}},
        backends => #{web => #{servers => [?SERVER:address(Server)]}}
    },
    ?assertMatch({error, {bad_option, [control], off, _}}, weir_proxy:take_over(proxy, Config)),
    ok = weir_proxy:take_over(proxy, Config#{control => iolist_to_binary(["/tmp/weir-proxy-nobody-", os:getpid()])}),
    ?assertEqual(<<"a">>, name(connect(port()))).

free_port() ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    ok = gen_tcp:close(Listen),
    Port.

a_line_for_a_session(Config) ->
    Server = ?SERVER:start("a"),
    [
        begin
            File = iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Format))),
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{log => #{file => File, format => Format}}),
            Socket = connect(Port),
            <<"a">> = name(Socket),
            {ok, {_, Mine}} = inet:sockname(Socket),
            ok = gen_tcp:close(Socket),
            wait_for(fun() -> filelib:file_size(File) > 0 end),
            {ok, Line} = file:read_file(File),
            case Format of
                json ->
                    {ok, #{<<"server">> := <<"a">>, <<"bytes_out">> := 2, <<"bytes_in">> := 0}} = weir_json:decode(Line);
                haproxy ->
                    Fields = "^127[.]0[.]0[.]1:" ++ integer_to_list(Mine) ++
                        " \\[\\d\\d/[A-Z][a-z]{2}/\\d{4}:\\d\\d:\\d\\d:\\d\\d[.]\\d{3}\\] front web/a \\d+/\\d+/\\d+ 2 -- \\d+/\\d+/\\d+/\\d+/0 0/0\n$",
                    ?assertMatch({match, _}, re:run(Line, Fields))
            end,
            ok = weir_proxy:stop(proxy)
        end
     || Format <- [haproxy, json]
    ].

a_format_of_ones_own(_Config) ->
    Log = fun(Format) -> weir_proxy_config:new(#{frontends => #{}, backends => #{}, log => #{file => "x", format => Format}}) end,
    {ok, #{log := #{format := Format}}} = Log("%ci|%cp|%b/%s|%Tc|%B+%U|%ts|%%|%Ts.%ms"),
    Session = weir_proxy_test_session:new(#{client => {{10, 0, 0, 1}, 80}, backend => <<"b">>, server => <<"s">>, accepted => 1700000000042, connected => 7}),
    Statistics = #{a_to_b => #{bytes => 3}, b_to_a => #{bytes => 4}, duration_us => 5000, first_byte_us => 1, failed => b},
    Line = fun(Result) -> iolist_to_binary(weir_proxy_log_line:text(Format, Session, Result, Statistics)) end,
    ?assertEqual(<<"10.0.0.1|80|b/s|7|4+3|SD|%|1700000000.042\n">>, Line({error, econnreset})),
    [
        ?assertMatch({error, {bad_option, [log, format], _, "haproxy, json, or text with the fields %Ts " ++ _}}, Log(Wrong))
     || Wrong <- ["nothing", "%zz", "%"]
    ],
    New = fun(Options) -> weir_proxy_config:new(#{frontends => #{}, backends => #{}, log => Options}) end,
    [?assertMatch({error, {bad_option, [log], _, "one of file and syslog"}}, New(Wrong)) || Wrong <- [#{}, #{file => "x", syslog => "127.0.0.1:514"}]].

a_log_by_syslog(_Config) ->
    Server = ?SERVER:start("a"),
    Path = "/tmp/weir-proxy-syslog-" ++ os:getpid(),
    _ = file:delete(Path),
    {ok, Udp} = gen_udp:open(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, UdpPort} = inet:port(Udp),
    {ok, Local} = gen_udp:open(0, [local, binary, {active, false}, {ifaddr, {local, Path}}]),
    [
        begin
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{log => #{syslog => Where, format => "%b/%s %ts"}}),
            Socket = connect(Port),
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket),
            {ok, {_, _, Line}} = gen_udp:recv(Receiver, 0, ?PATIENCE),
            ?assertMatch({match, _}, re:run(Line, "^<134>[A-Z][a-z]{2} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d weir-proxy\\[\\d+\\]: web/a --\n$")),
            ok = weir_proxy:stop(proxy)
        end
     || {Where, Receiver} <- [{iolist_to_binary(["127.0.0.1:", integer_to_list(UdpPort)]), Udp}, {list_to_binary("unix:" ++ Path), Local}]
    ],
    ok = file:delete(Path).

a_line_for_a_client_without_a_server(Config) ->
    Server = ?SERVER:start("a"),
    ok = ?SERVER:stop(Server),
    Lines = fun(Name, Backend, Rules, Count) ->
        File = iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), Name)),
        ok = weir_proxy:start(proxy, #{
            frontends => #{front => #{listen => "127.0.0.1:0", backend => web, rules => Rules}},
            backends => #{web => maps:merge(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, Backend)},
            log => #{file => File}
        }),
        Port = port(),
        _ = [?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, ?PATIENCE)) || _ <- lists:seq(1, Count)],
        wait_for(fun() -> {ok, Text} = file:read_file(File), length(binary:matches(Text, <<"\n">>)) =:= Count end),
        ok = weir_proxy:stop(proxy),
        {ok, Text} = file:read_file(File),
        Text
    end,
    Fields = fun(Text, Route, State, Retries) ->
        ?assertMatch({match, _}, re:run(Text, ["\\] ", Route, "/<NOSRV> \\d+/-1/\\d+ 0 ", State, " \\d+/\\d+/0/0/", Retries, " 0/0\n"]))
    end,
    Fields(Lines("refused", #{retries => 1, connect_timeout => 10}, [], 1), "front web", "SC", "1"),
    Fields(Lines("none", #{servers => []}, [], 1), "front web", "SC", "0"),
    Fields(Lines("rejected", #{}, [#{from => "127.0.0.1", reject => true}], 2), "front front", "PR", "0").

who_has_reset_a_session(Config) ->
    Server = ?SERVER:start("a", [silent]),
    [
        begin
            File = iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), State)),
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{log => #{file => File, format => json}}),
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, <<"x">>),
            {ok, <<"x">>} = gen_tcp:recv(Socket, 1, ?PATIENCE),
            ok = Reset(Socket),
            wait_for(fun() -> filelib:file_size(File) > 0 end),
            {ok, Line} = file:read_file(File),
            ?assertMatch({ok, #{<<"state">> := State}}, weir_json:decode(Line)),
            ok = weir_proxy:stop(proxy)
        end
     || {State, Reset} <- [
            {<<"CD">>, fun(Socket) -> ok = inet:setopts(Socket, [{linger, {true, 0}}]), gen_tcp:close(Socket) end},
            {<<"SD">>, fun(Socket) -> gen_tcp:send(Socket, <<"reset me">>) end}
        ]
    ].

events(_Config) ->
    Server = ?SERVER:start("a"),
    Test = self(),
    Names = [[weir, proxy, What] || What <- [session, refuse, server]],
    ok = weir_event:attach_many(?MODULE, Names, fun(Name, Measured, About, _) -> Test ! {lists:last(Name), Measured, About} end, none),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    {ok, Mine} = inet:sockname(Socket),
    ok = gen_tcp:close(Socket),
    {session, #{bytes_in := 0, bytes_out := 2, duration := _, queued := 0, connected := _}, Session} = next(),
    ?assertEqual(#{proxy => proxy, frontend => <<"front">>, backend => <<"web">>, server => <<"a">>, peer => Mine, reason => normal}, Session),
    ok = weir_proxy:drain(proxy, web, a),
    ?assertEqual({server, #{count => 1}, #{proxy => proxy, backend => <<"web">>, server => <<"a">>, before => up, state => drain}}, next()),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, ?PATIENCE)),
    ?assertMatch({refuse, #{count := 1, queued := 0}, #{backend := <<"web">>, reason := none}}, next()),
    ok = weir_event:detach(?MODULE).

next() ->
    receive Message -> Message after ?PATIENCE -> ct:fail(nothing) end.

counters_are_in_the_table(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    {ok, #{frontends := #{<<"front">> := Front}, backends := #{<<"web">> := Back = #{servers := [One]}}}} = weir_proxy:info(proxy),
    [
        ?assertEqual(
            [Name || #{subject := Of, name := Name} <- weir_proxy_counters:table(), Of =:= Subject],
            [Name || {Name, Value} <- weir_proxy_counters:values(Subject, Info), is_integer(Value)]
        )
     || {Subject, Info} <- [{proxy_frontend, Front}, {proxy_backend, Back}, {proxy_server, One}]
    ].

metrics(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => <<"a\"b">>, address => ?SERVER:address(Server)}]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    wait_for(fun() -> length(weir_proxy:sessions(proxy)) =:= 1 end),
    Text = iolist_to_binary(weir_proxy_metrics:text()),
    [
        ?assertNotEqual(nomatch, binary:match(Text, Line))
     || Line <- [
            <<"\nhaproxy_frontend_current_sessions{proxy=\"front\"} 1\n">>,
            <<"\nhaproxy_server_sessions_total{proxy=\"web\",server=\"a\\\"b\"} 1\n">>,
            <<"\nhaproxy_server_status{proxy=\"web\",server=\"a\\\"b\",state=\"UP\"} 1\n">>,
            <<"\n# TYPE haproxy_backend_current_queue gauge\n">>
        ]
    ].

the_page(_Config) ->
    Port = free_port(),
    Server = ?SERVER:start("a"),
    Address = ["127.0.0.1:", integer_to_list(Port)],
    _ = proxy(#{servers => [#{name => <<"<a>">>, address => ?SERVER:address(Server)}]}, #{statistics => iolist_to_binary(Address)}),
    Get = fun(Path) ->
        {ok, {{_, 200, _}, _, Body}} = httpc:request(get, {lists:flatten(["http://", Address, Path]), []}, [], [{body_format, binary}]),
        Body
    end,
    ?assertNotEqual(nomatch, binary:match(Get("/"), <<"&lt;a>">>)),
    ok = weir_proxy:start(second, #{frontends => #{}, backends => #{web => #{servers => []}}}),
    %% Its own, and nothing of the other's, which has the same names.
    ?assertMatch([_], binary:matches(Get("/metrics"), <<"haproxy_backend_current_queue{proxy=\"web\"}">>)),
    ?assertNotEqual(nomatch, binary:match(Get("/metrics"), <<"haproxy_server_status">>)),
    ?assertMatch({ok, #{<<"backends">> := _}}, weir_json:decode(Get("/info"))).

%%% What cases share.

proxy(Backend) -> proxy(Backend, #{}).

proxy(Backend, More) ->
    ok = weir_proxy:start(proxy, More#{
        frontends => #{front => #{listen => "127.0.0.1:0", backend => web}}, backends => #{web => Backend}
    }),
    port().

port() ->
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(proxy),
    binary_to_integer(Port).

state(Name) ->
    Wanted = atom_to_binary(Name),
    {ok, Servers} = weir_proxy:servers(proxy, web),
    [State] = [State || #{name := Each, state := State} <- Servers, Each =:= Wanted],
    State.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?PATIENCE),
    Socket.

name(Socket) ->
    {ok, <<Name:1/binary, "\n">>} = gen_tcp:recv(Socket, 2, ?PATIENCE),
    Name.

wait_for(Fun) -> wait_for(Fun, erlang:monotonic_time(millisecond) + ?PATIENCE).

wait_for(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse ct:fail(waited_too_long),
            timer:sleep(10),
            wait_for(Fun, Deadline)
    end.
