%% HTTP listeners: changes of routes, drains, stops and failures, observed by a raw client.
-module(weir_http_listener_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, request/2, is_closed/1, get/1]).
-import(weir_test_wait, [wait_until/1]).

-define(LISTENER, ?MODULE).
-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        all_code_is_loaded_at_the_start,
        routes_change_under_connections,
        routes_change_under_load,
        a_drain_answers_what_has_begun,
        a_drain_closes_what_is_idle,
        a_listener_is_stopped_and_started_again,
        a_listener_is_stopped_by_several_at_once,
        nothing_is_kept_of_a_listener_whose_routes_change_while_it_stops,
        a_listener_is_stopped_while_it_is_started,
        a_name_is_taken_once,
        an_option_that_there_is_not,
        a_supervisor_starts_it,
        a_unix_socket,
        the_source_of_a_proxy_header_is_the_peer,
        requests_are_counted,
        a_reactor_that_is_killed_is_replaced,
        a_log_is_opened_again_while_its_writer_is_killed
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

%% A restarted listener needs a fixed port.
init_per_testcase(Case, Config) when Case =:= a_listener_is_stopped_and_started_again ->
    init_with(#{port => weir_test_port:claim()}, Config);
init_per_testcase(_Case, Config) ->
    init_with(#{}, Config).

init_with(Options, Config) ->
    {ok, _} = weir_http:start_listener(?LISTENER, Options#{ip => ?LOOPBACK}, routes()),
    [{port, weir:get_port(?LISTENER)} | Config].

end_per_testcase(_Case, _Config) ->
    _ = [weir_http:stop_listener(Name) || Name <- weir:listeners()],
    ok.

routes() ->
    [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}, #{methods => [<<"GET">>]}},
        {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>]}},
        {"/describe", weir_http_echo, describe}
    ].

port(Config) -> proplists:get_value(port, Config).

described({200, _, Body}) -> binary_to_term(Body).

routes_change_under_connections(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    ok = weir_http:set_routes(?LISTENER, [{"/", weir_http_echo, {reply, 200, [], <<"other">>}}]),
    ok = send(Socket, get("/")),
    {200, _, <<"other">>} = response(Socket),
    {error, {bad_option, routes, _, _}} = weir_http:set_routes(?LISTENER, [nonsense]),
    ok = send(Socket, get("/")),
    {200, _, <<"other">>} = response(Socket),
    ?assertError({no_listener, nobody}, weir_http:set_routes(nobody, [])).

nothing_is_kept_of_a_listener_whose_routes_change_while_it_stops(_Config) ->
    Before = kept(),
    [
        begin
            {ok, _} = weir_http:start_listener(short, #{ip => ?LOOPBACK}, routes()),
            Changes = [weir_test_peer:async(fun() -> set_routes_until_it_is_gone(short) end) || _ <- [1, 2]],
            erlang:yield(),
            ok = weir_http:stop_listener(short),
            [ok = weir_test_peer:await(Change) || Change <- Changes]
        end
     || _ <- lists:seq(1, 50)
    ],
    ?assertEqual(Before, kept()).

set_routes_until_it_is_gone(Name) ->
    try weir_http:set_routes(Name, routes()) of
        ok -> set_routes_until_it_is_gone(Name)
    catch
        error:{no_listener, Name} -> ok
    end.

%% Returns the keys of the terms that connections look up.
kept() -> lists:sort([Key || {Key = {weir_http_listener, _}, _} <- persistent_term:get()]).

%% Whichever call wins: a running listener is known and serves, and a stopped one leaves no terms.
a_listener_is_stopped_while_it_is_started(_Config) ->
    Before = kept(),
    [
        begin
            Calls = [
                fun() -> weir_http:start_listener(short, #{ip => ?LOOPBACK}, routes()) end,
                fun() -> weir_http:start_listener(short, #{ip => ?LOOPBACK}, routes()) end,
                fun() -> weir_http:stop_listener(short) end,
                fun() -> weir_http:stop_listener(short) end
            ],
            Results = [weir_test_peer:await(Call) || Call <- [weir_test_peer:async(Call) || Call <- Calls]],
            case lists:member(short, weir:listeners()) of
                true ->
                    {200, _, <<"hello">>} = request(weir:get_port(short), get("/")),
                    ?assertMatch(#{requests := 1}, weir_http:info(short)),
                    ok = weir_http:stop_listener(short);
                false ->
                    ok
            end,
            ?assertEqual({Results, Before}, {Results, kept()})
        end
     || _ <- lists:seq(1, 5)
    ].

a_listener_is_stopped_by_several_at_once(_Config) ->
    [
        begin
            {ok, _} = weir_http:start_listener(several, #{ip => ?LOOPBACK}, routes()),
            Stops = [
                spawn_monitor(fun() -> exit({said, weir_http:stop_listener(several)}) end)
             || _ <- lists:seq(1, 8)
            ],
            Said = [
                receive
                    {'DOWN', Monitor, process, Pid, Reason} -> Reason
                end
             || {Pid, Monitor} <- Stops
            ],
            ?assert(lists:member({said, ok}, Said), Said),
            ?assertEqual([], [
                Other
             || Other <- Said, Other =/= {said, ok}, Other =/= {said, {error, {no_listener, several}}}
            ])
        end
     || _ <- lists:seq(1, 30)
    ],
    ok.

%% Each request is served by the old or the new routes, and no connection is closed.
routes_change_under_load(Config) ->
    Clients = [spawn_monitor(fun() -> ask(connect(port(Config)), 300) end) || _ <- lists:seq(1, 4)],
    Ways = [
        {"/", weir_http_echo, {reply, 200, [], <<"direct">>}},
        {"/", weir_http_serving, fun(_) -> {reply, 200, [], <<"process">>} end}
    ],
    change(Clients, Ways).

ask(_Socket, 0) ->
    ok;
ask(Socket, Left) ->
    ok = send(Socket, get("/")),
    {200, _, Body} = response(Socket),
    true = lists:member(Body, [<<"hello">>, <<"direct">>, <<"process">>]),
    ask(Socket, Left - 1).

change([], _Ways) ->
    ok;
change(Clients, [Way, Other]) ->
    ok = weir_http:set_routes(?LISTENER, [Way]),
    receive
        {'DOWN', Monitor, process, _, Reason} ->
            ?assertEqual(normal, Reason),
            change(lists:keydelete(Monitor, 2, Clients), [Other, Way])
    after 1 -> change(Clients, [Other, Way])
    end.

a_drain_answers_what_has_begun(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"),
    ?waitEqual(1, map_get(requests, weir_http:info(?LISTENER))),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience())} end),
    ?waitEqual(suspended, map_get(status, weir_http:info(?LISTENER))),
    ok = send(Socket, "lo"),
    {200, #{<<"connection">> := <<"close">>}, <<"hello">>} = response(Socket),
    ?assert(is_closed(Socket)),
    receive {drained, Result} -> ?assertEqual(ok, Result) end.

a_drain_closes_what_is_idle(Config) ->
    Asked = connect(port(Config)),
    ok = send(Asked, get("/")),
    {200, _, <<"hello">>} = response(Asked),
    New = connect(port(Config)),
    ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()),
    ?assert(is_closed(Asked)),
    ?assert(is_closed(New)).

a_listener_is_stopped_and_started_again(Config) ->
    Socket = connect(port(Config)),
    ok = weir_http:stop_listener(?LISTENER),
    ?assert(is_closed(Socket)),
    {error, {no_listener, ?LISTENER}} = weir_http:stop_listener(?LISTENER),
    ?assertError({no_listener, ?LISTENER}, weir_http:info(?LISTENER)),
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => ?LOOPBACK, port => port(Config)}, routes()),
    {200, _, <<"hello">>} = request(port(Config), get("/")).

a_name_is_taken_once(Config) ->
    {error, {already_started, _}} = weir_http:start_listener(?LISTENER, #{ip => ?LOOPBACK}, []),
    {200, _, <<"hello">>} = request(port(Config), get("/")).

%% The error names the valid options, of HTTP and of any listener.
an_option_that_there_is_not(_Config) ->
    {error, {bad_option, max_bodies, 5, Allowed}} = weir_http:start_listener(other, #{max_bodies => 5}, routes()),
    [
        ?assertMatch({match, _}, re:run(Allowed, "[ ,]" ++ Name ++ ","), {Name, Allowed})
     || Name <- ["max_body", "gzip", "max_connections"]
    ].

a_supervisor_starts_it(_Config) ->
    Spec = weir_http:child_spec(supervised, #{ip => ?LOOPBACK, port => weir_test_port:claim()}, routes()),
    {ok, Supervisor} = weir_http_supervisor:start_link([Spec]),
    Port = weir:get_port(supervised),
    {200, _, <<"hello">>} = request(Port, get("/")),
    exit(map_get(pid, weir_http:info(supervised)), kill),
    ok = wait_until(fun() -> try request(Port, get("/")) of {200, _, _} -> true catch _:_ -> false end end),
    ok = gen_server:stop(Supervisor),
    ?assertError({bad_option, max_head, -1, _}, weir_http:child_spec(supervised, #{max_head => -1}, [])).

a_unix_socket(_Config) ->
    Path = iolist_to_binary([0, ?MODULE_STRING, os:getpid(), integer_to_list(erlang:unique_integer([positive]))]),
    {ok, _} = weir_http:start_listener(local, #{ip => {local, Path}}, routes()),
    {ok, Socket} = gen_tcp:connect({local, Path}, 0, [binary, {active, false}]),
    put({rest, Socket}, <<>>),
    ok = send(Socket, get("/describe")),
    ?assertMatch(#{peer := {ok, {local, _}}}, described(response(Socket))),
    ok = weir_http:stop_listener(local).

the_source_of_a_proxy_header_is_the_peer(_Config) ->
    {ok, _} = weir_http:start_listener(behind_proxy, #{ip => ?LOOPBACK, proxy_protocol => true}, routes()),
    Socket = connect(weir:get_port(behind_proxy)),
    ok = send(Socket, ["PROXY TCP4 10.1.2.3 10.4.5.6 1234 80\r\n", get("/describe")]),
    ?assertMatch(#{peer := {ok, {{10, 1, 2, 3}, 1234}}}, described(response(Socket))),
    ok = send(Socket, get("/describe")),
    ?assertMatch(#{peer := {ok, {{10, 1, 2, 3}, 1234}}}, described(response(Socket))),
    ok = weir_http:stop_listener(behind_proxy).

requests_are_counted(Config) ->
    {200, _, _} = request(port(Config), get("/")),
    {404, _, _} = request(port(Config), get("/nowhere")),
    {400, _, _} = request(port(Config), "nonsense\r\n\r\n"),
    ?assertMatch(
        #{requests := 2, refused := 1, crashes := 0, timeouts := 0, accepted := 3, status := running, port := _},
        weir_http:info(?LISTENER)
    ),
    %% For exporters, like those of every listener.
    Values = weir_http_counters:values(http_listener, weir_http:info(?LISTENER)),
    ?assertMatch(
        [{requests, 2}, {refused, 1}, {timeouts, 0}, {crashes, 0}, {cut_off, 0}, {log_dropped, 0} | _], Values
    ),
    Rows = weir_http_counters:table(),
    ?assertEqual([Name || {Name, _} <- Values], [Name || #{name := Name} <- Rows]),
    [?assertEqual(maps:keys(Row), maps:keys(hd(weir_counters:table()))) || Row <- Rows].

a_reactor_that_is_killed_is_replaced(Config) ->
    lists:foreach(
        fun(_) ->
            Socket = connect(port(Config)),
            ok = send(Socket, [get("/"), "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"]),
            {200, _, <<"hello">>} = response(Socket),
            [exit(Reactor, kill) || {_, Reactor} <- weir:connections(?LISTENER)],
            ?assert(is_closed(Socket))
        end,
        lists:seq(1, 3)
    ),
    {200, _, <<"hello">>} = request(port(Config), get("/")).

% On a busy node, a first call that loads code waits for a long time.
all_code_is_loaded_at_the_start(_Config) ->
    {ok, Modules} = application:get_key(weir_http, modules),
    ?assertEqual([], [Module || Module <- Modules, code:is_loaded(Module) =:= false]).

%% The request is repeated to the next writer, which may have opened the file before it was moved away.
a_log_is_opened_again_while_its_writer_is_killed(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "access.log"),
    {ok, _} = weir_http:start_listener(log, #{ip => ?LOOPBACK, access_log => #{to => {file, File}}}, []),
    [{_, Writer, _, _}] = supervisor:which_children(weir_http_log_sup),
    Monitor = monitor(process, Writer),
    ok = sys:suspend(weir_http_log_sup),
    true = exit(Writer, kill),
    receive {'DOWN', Monitor, process, Writer, _} -> ok end,
    ok = file:rename(File, File ++ ".1"),
    Reopening = weir_test_peer:async(fun() -> weir_http:reopen_log(log) end),
    ok = sys:resume(weir_http_log_sup),
    ok = weir_test_peer:await(Reopening),
    {404, _, _} = request(weir:get_port(log), get("/")),
    ok = weir_http:stop_listener(log),
    ?assertMatch({ok, <<"127.0.0.1 ", _/binary>>}, file:read_file(File)).
