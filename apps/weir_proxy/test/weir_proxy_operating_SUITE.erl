%% Operating a proxy: the file, the control socket and take-overs.
-module(weir_proxy_operating_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include_lib("kernel/include/file.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [proxy/1, proxy/3, port/0, state/1, wait_for_more/2, path/1, connect/1, name/1, echo/2]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        all_code_is_loaded_at_the_start,
        a_file,
        a_wrong_file,
        a_reload_keeps_connections,
        reloads_at_once_end_with_the_newest_text,
        commands,
        a_control_socket_is_its_users_alone,
        a_control_socket_that_cannot_be_made_changes_nothing,
        sessions_end_within_a_time,
        a_successor,
        a_successor_of_nobody,
        a_successor_that_is_refused_loses_nobody,
        a_successor_that_is_not_answered_serves,
        a_successor_without_a_control_socket_serves
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

end_per_testcase(_Case, _Config) -> weir_proxy_test:end_case().

%%% Files and commands.

file(Config, Text) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "proxy.toml"),
    ok = file:write_file(File, Text),
    File.

text(Servers) ->
    [
        "[frontends.front]\nlisten = '127.0.0.1:0'\nbackend = 'web'\nidle_timeout = '10m'\n"
        "[backends.web]\nbalance = 'least_connections'\nservers = [",
        lists:join(", ", [[$', ?SERVER:address(Server), $'] || Server <- Servers]),
        "]\n"
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
    ?assertMatch(
        "4: backends.web.retries is -1; allowed: " ++ _,
        Explained(["[frontends]\n[backends.web]\nservers = []\nretries = -1\n"])
    ),
    ?assertMatch("2: " ++ _, Explained(["[frontends]\n]"])),
    %% Values as they were written in the file.
    Rule = fun(Line) ->
        Explained(["[backends]\n[frontends.front]\nlisten = ':0'\n[[frontends.front.rules]]\n", Line])
    end,
    ?assertMatch("5: frontends.front.rules.1.from is \"10.0.0.0/33\"; allowed: " ++ _, Rule("from = '10.0.0.0/33'")),
    ?assertMatch("4: frontends.front.rules.1 is {\"sni\":\"a\"}; allowed: " ++ _, Rule("sni = 'a'")),
    ?assertEqual(
        "2: frontends.front.backend: needed: the name of a backend",
        Explained("[backends]\n[frontends.front]\nlisten = ':0'\n")
    ),
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
    ?assertEqual({ok, <<"still">>}, gen_tcp:recv(Old, 5, patience())).

%% The first reload has begun to read an older text, and is suspended when that comes.
reloads_at_once_end_with_the_newest_text(Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    File = file(Config, text([A])),
    ok = weir_proxy_file:start(proxy, File),
    ok = file:delete(File),
    [] = os:cmd("mkfifo " ++ File),
    {First, Monitor} = spawn_monitor(fun() -> exit({result, weir_proxy_file:reload(proxy)}) end),
    %% Opening the pipe for writing succeeds when the other side has opened it for reading.
    {ok, Pipe} = file:open(File, [write, raw]),
    true = erlang:suspend_process(First),
    ok = file:write(Pipe, text([A])),
    ok = file:close(Pipe),
    ok = file:delete(File),
    File = file(Config, text([B])),
    ok = weir_proxy_file:reload(proxy),
    true = erlang:resume_process(First),
    receive
        {'DOWN', Monitor, process, First, Result} -> ?assertEqual({result, ok}, Result)
    after patience() -> ct:fail(timeout)
    end,
    ?assertEqual(<<"b">>, name(connect(port()))).

commands(_Config) ->
    Path = path("control"),
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{control => Path}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    Ask = fun(Words) -> {ok, Answer} = weir_proxy_control:ask(Path, Words), Answer end,
    ?assertMatch(#{<<"ok">> := #{<<"web">> := [#{<<"state">> := <<"up">>, <<"name">> := <<"a">>}]}}, Ask(["servers"])),
    ?waitMatch(#{<<"ok">> := [_]}, Ask(["sessions"])),
    ?assertEqual(#{<<"ok">> => true}, Ask(["drain", "web", "a"])),
    ?assertEqual(drain, state(a)),
    ?assertEqual(#{<<"ok">> => true}, Ask(["enable", "web", "a"])),
    ?assertEqual(#{<<"ok">> => true}, Ask(["set-weight", "web", "a", "5"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["set-weight", "web", "a", "many"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["drain", "web", "x"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["reload"])),
    ?assertMatch(#{<<"error">> := _}, Ask(["whatever"])),
    ?assertEqual(#{<<"ok">> => 1}, Ask(["close-sessions", "web", "a"])),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())).

%% Also after the listener was killed and started again.
a_control_socket_is_its_users_alone(_Config) ->
    Path = path("mode"),
    _ = proxy(#{servers => []}, #{}, #{control => Path}),
    Mode = fun() -> {ok, #file_info{mode = Mode}} = file:read_file_info(Path), Mode band 8#777 end,
    ?assertEqual(8#600, Mode()),
    [{Listener, Before}] = control_listeners(),
    exit(Before, kill),
    ?waitEqual([Listener], [Name || {Name, Pid} <- control_listeners(), Pid =/= Before]),
    ?assertMatch({ok, #{<<"ok">> := _}}, weir_proxy_control:ask(Path, ["status"])),
    ?assertEqual(8#600, Mode()).

control_listeners() ->
    [
        {Name, Pid}
     || Name <- weir:listeners(),
        element(1, Name) =:= weir_proxy_control,
        #{pid := Pid, status := running} <- [weir:info(Name)]
    ].

a_control_socket_that_cannot_be_made_changes_nothing(_Config) ->
    [Path, Other] = [path(Name) || Name <- ["one", "other"]],
    Page = weir_test_port:claim(),
    Given = #{frontends => #{}, backends => #{web => #{servers => []}}, control => Path},
    ok = weir_proxy:start(proxy, Given),
    ?assertMatch(
        {error, {listen, <<"unix:/nowhere/socket">>, enoent}},
        weir_proxy:change(proxy, Given#{control => <<"/nowhere/socket">>, statistics => {{127, 0, 0, 1}, Page}})
    ),
    ?assertMatch({ok, #{<<"ok">> := _}}, weir_proxy_control:ask(Path, ["status"])),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Page, [])),
    ok = weir_proxy:change(proxy, Given#{control => Other}),
    ?assertMatch({ok, #{<<"ok">> := _}}, weir_proxy_control:ask(Other, ["status"])),
    ?assertEqual({error, econnrefused}, weir_proxy_control:ask(Path, ["status"])).

sessions_end_within_a_time(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Sockets = [connect(Port) || _ <- lists:seq(1, 5)],
    [<<"a">> = name(Socket) || Socket <- Sockets],
    ?waitEqual(5, length(weir_proxy:sessions(proxy))),
    Start = erlang:monotonic_time(millisecond),
    ?assertEqual({ok, 5}, weir_proxy:drain(proxy, web, a, 300)),
    ?assertEqual(drain, state(a)),
    [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())) || Socket <- Sockets],
    ?assert(erlang:monotonic_time(millisecond) - Start >= 300),
    ?assertMatch({error, {bad_option, [within], -1, _}}, weir_proxy:drain(proxy, web, a, -1)),
    ?assertEqual({error, {no_server, <<"x">>}}, weir_proxy:drain(proxy, web, x, 1)).

%% Clients connect all the time. None is refused, and none loses its connection.
a_successor(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Config = #{
        frontends => #{front => #{listen => iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]), backend => web}},
        backends => #{web => #{servers => [#{name => a, address => ?SERVER:address(Server)}]}},
        control => path("successor"),
        statistics => iolist_to_binary(["127.0.0.1:", integer_to_list(weir_test_port:claim())])
    },
    ok = weir_proxy:start(old, Config),
    Test = self(),
    Waiter = spawn_link(fun() -> Test ! {self(), weir_proxy:await_successor(old)} end),
    Old = connect(Port),
    <<"a">> = name(Old),
    Stop = counters:new(1, []),
    Served = counters:new(4, []),
    Clients = [
        spawn_monitor(fun() -> exit({done, clients(Port, Stop, Served, Number)}) end)
     || Number <- lists:seq(1, 4)
    ],
    ok = each_is_served(Served),
    %% A proxy that fails to start does not take over.
    ?assertMatch({error, {log, _, enoent}}, weir_proxy:take_over(new, Config#{log => #{file => <<"/nowhere/log">>}})),
    {ok, Taken} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, TakenPort} = inet:port(Taken),
    ?assertMatch(
        {error, {listen, _, eaddrinuse}}, weir_proxy:take_over(new, Config#{statistics => {{127, 0, 0, 1}, TakenPort}})
    ),
    {ok, #{<<"ok">> := _}} = weir_proxy_control:ask(maps:get(control, Config), ["status"]),
    ok = weir_proxy:take_over(new, Config),
    receive
        {Waiter, Left} -> ?assertEqual(ok, Left)
    after patience() -> ct:fail(nobody_told)
    end,
    ok = each_is_served(Served),
    ok = counters:add(Stop, 1, 1),
    Results = [
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> Reason
        after patience() -> timeout
        end
     || {Pid, Monitor} <- Clients
    ],
    ?assertEqual([], [Result || Result <- Results, not is_tuple(Result) orelse element(1, Result) =/= done]),
    %% New connections go to the new proxy, and the control socket is its own.
    Before = total(new),
    [<<"a">> = name(connect(Port)) || _ <- lists:seq(1, 10)],
    ?assertEqual(Before + 10, total(new)),
    {ok, #{<<"ok">> := true}} = weir_proxy_control:ask(maps:get(control, Config), ["drain", "web", "a"]),
    {ok, [#{state := drain}]} = weir_proxy:servers(new, web),
    {ok, [#{state := up}]} = weir_proxy:servers(old, web),
    ok = gen_tcp:send(Old, <<"still">>),
    ?assertEqual({ok, <<"still">>}, gen_tcp:recv(Old, 5, patience())),
    ok = gen_tcp:close(Old),
    ok = weir_proxy:stop(old, patience()).

clients(Port, Stop, Served, Number) ->
    case counters:get(Stop, 1) of
        1 -> ok;
        0 ->
            Socket = connect(Port),
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket),
            ok = counters:add(Served, Number, 1),
            clients(Port, Stop, Served, Number)
    end.

%% Waits until each client was served twice: the second time it has connected after this call.
each_is_served(Served) ->
    Before = [counters:get(Served, Number) || Number <- lists:seq(1, 4)],
    [wait_for_more(Count + 1, fun() -> counters:get(Served, Number) end) || {Number, Count} <- lists:enumerate(Before)],
    ok.

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
    ok = weir_proxy:take_over(proxy, Config#{control => path("nobody")}),
    ?assertEqual(<<"a">>, name(connect(port()))).

%% Clients connect while both listen. Connections of the new proxy are served to their end. The old proxy goes on, on
%% its unix socket too.
a_successor_that_is_refused_loses_nobody(_Config) ->
    Server = ?SERVER:start("a"),
    Port = weir_test_port:claim(),
    Local = path("local"),
    Config = #{
        frontends => #{front => #{listen => [{{127, 0, 0, 1}, Port}, <<"unix:", Local/binary>>], backend => web}},
        backends => #{web => #{servers => [?SERVER:address(Server)]}}
    },
    ok = weir_proxy:start(old, Config#{control => path("old")}),
    Path = path("refuses"),
    Other = program(Path, fun() -> "{\"error\": \"not now\"}" end),
    {New, Monitor} = spawn_monitor(fun() -> exit({result, weir_proxy:take_over(new, Config#{control => Path})}) end),
    receive
        {asked, Other} -> ok
    after patience() -> ct:fail(not_asked)
    end,
    Sockets = [connect_local(Local) | until_one_is_of_the_new(Port)],
    ?assertEqual([<<"a">>], lists:usort([name(Socket) || Socket <- Sockets])),
    Other ! answer,
    ?waitEqual([], [
        Listener
     || Listener = {weir_proxy, new, _} <- weir:listeners(), #{status := running} <- [weir:info(Listener)]
    ]),
    ?assertEqual(<<"a">>, name(connect(Port))),
    ?assertEqual(<<"a">>, name(connect_local(Local))),
    [?assertEqual(<<"still">>, echo(Socket, <<"still">>)) || Socket <- Sockets],
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    receive
        {'DOWN', Monitor, process, New, Result} ->
            ?assertEqual({result, {error, {take_over, Path, <<"not now">>}}}, Result)
    after patience() -> ct:fail(no_result)
    end,
    ?assertEqual([old], weir_proxy:proxies()),
    ?assertEqual({error, enoent}, file:read_link_info(<<Local/binary, ".before">>)).

%% The kernel decides which of the two gets a connection.
until_one_is_of_the_new(Port) ->
    Socket = connect(Port),
    <<"a">> = weir_test_wait:recv_exactly(Socket, 1),
    ok = gen_tcp:unrecv(Socket, <<"a">>),
    case counted(new) of
        0 -> [Socket | until_one_is_of_the_new(Port)];
        _ -> [Socket]
    end.

%% The connections of a frontend; works while the proxy is still starting.
counted(Proxy) -> weir_proxy_counters:get(element(4, weir_proxy_store:frontend(Proxy, <<"front">>)), current_sessions).

connect_local(Path) ->
    {ok, Socket} = gen_tcp:connect({local, Path}, 0, [binary, {active, false}], patience()),
    Socket.

%% The other program may have left although it did not answer.
a_successor_that_is_not_answered_serves(_Config) ->
    Path = path("silent"),
    serves_after(Path, fun() -> "" end),
    ?assertMatch({ok, #{<<"ok">> := _}}, weir_proxy_control:ask(Path, ["status"])).

a_successor_without_a_control_socket_serves(_Config) ->
    Path = path("taken"),
    serves_after(Path, fun() -> ok = file:delete(Path), ok = file:make_dir(Path), "{\"ok\": true}" end),
    ?assertMatch({error, _}, weir_proxy_control:ask(Path, ["status"])),
    ok = file:del_dir(Path),
    ?waitMatch({ok, #{<<"ok">> := _}}, weir_proxy_control:ask(Path, ["status"])).

serves_after(Path, Answer) ->
    Server = ?SERVER:start("a"),
    Config = #{
        frontends => #{front => #{listen => "127.0.0.1:0", backend => web}},
        backends => #{web => #{servers => [?SERVER:address(Server)]}},
        control => Path
    },
    Other = program(Path, Answer),
    Other ! answer,
    ok = weir_proxy:take_over(proxy, Config),
    ?assertEqual(<<"a">>, name(connect(port()))).

%% Another program that gets the command `leave', and answers with the result of Answer.
program(Path, Answer) ->
    Test = self(),
    Pid = spawn_link(fun() ->
        {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {packet, line}, {ip, {local, Path}}]),
        Test ! {listens, self()},
        {ok, Socket} = gen_tcp:accept(Listen),
        {ok, <<"leave\n">>} = gen_tcp:recv(Socket, 0, patience()),
        ok = gen_tcp:close(Listen),
        Test ! {asked, self()},
        receive answer -> ok end,
        ok = gen_tcp:send(Socket, Answer()),
        ok = gen_tcp:close(Socket)
    end),
    receive {listens, Pid} -> Pid end.

%% If run queues are long, loading code at the first call takes long.
all_code_is_loaded_at_the_start(_Config) ->
    {ok, Modules} = application:get_key(weir_proxy, modules),
    ?assertEqual([], [Module || Module <- Modules, code:is_loaded(Module) =:= false]).
