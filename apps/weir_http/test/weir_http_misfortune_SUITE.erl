%% Processes are killed or end while requests are served: which clients are answered, and which are affected.
-module(weir_http_misfortune_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, close/1, response/1, request/2, is_closed/1, get/1]).
-import(weir_http_serving, [told/0, watch/1, watched/0]).
-import(weir_test_wait, [wait_until/1]).

-define(LISTENER, ?MODULE).
-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_drain_under_load_loses_no_request,
        a_drain_answers_what_is_pipelined,
        a_killed_reactor_ends_its_requests_at_once,
        a_process_that_traps_exits_is_told_of_a_killed_reactor,
        processes_that_are_no_requests_stay,
        a_killed_watcher_is_replaced,
        killed_reactors_under_load,
        killed_requests_under_load,
        a_killed_listener_serves_again,
        a_killed_listener_of_a_supervisor_serves_again,
        killed_writers_under_load,
        without_the_application
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    _ = persistent_term:erase(?MODULE),
    _ = weir_event:detach(?MODULE),
    _ = [weir_http:stop_listener(Name) || Name <- weir:listeners()],
    ok.

start() -> start(#{}).

start(Options) ->
    {ok, _} = weir_http:start_listener(?LISTENER, Options#{ip => ?LOOPBACK}, routes()),
    weir:get_port(?LISTENER).

routes() ->
    [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}},
        {"/echo", weir_http_echo, echo},
        {"/serve", weir_http_serving, fun(_) ->
            timer:sleep(5),
            {reply, 200, [], <<"served">>}
        end},
        {"/wait", weir_http_serving, fun(Request) ->
            case persistent_term:get(?MODULE, none) of
                none -> ok;
                Pid -> Pid ! {told, self()}, watched()
            end,
            wait(weir_http_request:query(Request))
        end}
    ].

wait(<<"trap">>) ->
    process_flag(trap_exit, true),
    [{_, Pid}] = [{persistent_term, persistent_term:get(?MODULE)}],
    receive {'EXIT', _, Reason} -> Pid ! {told, {Reason, weir_http_process:read_body()}} end,
    {reply, 200, [], <<>>};
wait(_) ->
    receive never -> ok end.

%% Sends a request whose handler waits. Returns the socket, and what the handler reports.
waiting(Port, Path) ->
    ok = persistent_term:put(?MODULE, self()),
    Socket = connect(Port),
    ok = send(Socket, get(Path)),
    {Socket, told()}.

reactors() -> lists:usort([Pid || {_, Pid} <- weir:connections(?LISTENER)]).

%%% Clients under load: the outcome of each request.

%% Sends requests until one is not answered, or a response closes the connection. Returns how many were answered, and
%% how it ended.
keep_alive(Port, Request) ->
    Socket = connect(Port),
    keep_alive(Socket, Request, 0).

%% Sends requests until the test is over. The connection must not end before that.
keep_alive_while(Socket, Request, Going) ->
    case is_over(Going) of
        true ->
            {Socket, stopped};
        false ->
            ok = send(Socket, Request),
            {200, _, _} = response(Socket),
            keep_alive_while(Socket, Request, Going)
    end.

keep_alive(Socket, Request, Answered) ->
    case send(Socket, Request) of
        ok ->
            case answer(Socket) of
                {ok, _, keep} -> keep_alive(Socket, Request, Answered + 1);
                {ok, _, close} -> {Answered + 1, closed};
                lost -> {Answered, lost}
            end;
        {error, _} ->
            {Answered, lost}
    end.

%% Uses a connection per request, until the server cannot be reached.
short(Port, Request) -> short(Port, Request, 0).

short(Port, Request, Answered) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], weir_test_wait:patience()) of
        {ok, Socket} ->
            put({rest, Socket}, <<>>),
            Outcome =
                case send(Socket, Request) of
                    ok -> answer(Socket);
                    {error, _} -> lost
                end,
            _ = gen_tcp:close(Socket),
            case Outcome of
                {ok, _, _} -> short(Port, Request, Answered + 1);
                lost -> {Answered, lost}
            end;
        {error, _} ->
            {Answered, closed}
    end.

answer(Socket) ->
    try response(Socket) of
        {Status, #{<<"connection">> := <<"close">>}, _} -> {ok, Status, close};
        {Status, _, _} -> {ok, Status, keep}
    catch
        error:{no_response, _} -> lost
    end.

clients(Funs) ->
    Self = self(),
    [spawn_link(fun() -> Self ! {self(), Fun()} end) || Fun <- Funs].

outcomes(Pids) ->
    [
        receive
            {Pid, Outcome} -> Outcome
        after weir_test_wait:patience() -> error({no_outcome, process_info(Pid, current_stacktrace)})
        end
     || Pid <- Pids
    ].

a_drain_under_load_loses_no_request(_Config) ->
    Port = start(#{idle_timeout => 4000, body_timeout => infinity}),
    Slow = connect(Port),
    ok = send(Slow, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"),
    Kinds = [
        fun() -> keep_alive(Port, get("/")) end,
        fun() -> keep_alive(Port, get("/serve")) end,
        fun() -> short(Port, get("/")) end,
        fun() -> short(Port, get("/serve")) end
    ],
    Clients = clients(lists:append(lists:duplicate(15, Kinds))),
    ok = wait_until(fun() -> map_get(requests, weir_http:info(?LISTENER)) > 500 end),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience())} end),
    Outcomes = outcomes(Clients),
    ok = send(Slow, "lo"),
    {200, #{<<"connection">> := <<"close">>}, <<"hello">>} = response(Slow),
    receive {drained, Result} -> ?assertEqual(ok, Result) end,
    ?assertEqual([], [Outcome || Outcome = {_, lost} <- Outcomes]),
    ?assert(lists:sum([Answered || {Answered, _} <- Outcomes]) > 400).

a_drain_answers_what_is_pipelined(_Config) ->
    Port = start(),
    Socket = connect(Port),
    ok = send(Socket, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"),
    ?waitEqual(1, map_get(requests, weir_http:info(?LISTENER))),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience())} end),
    ?waitEqual(suspended, map_get(status, weir_http:info(?LISTENER))),
    ok = send(Socket, ["lo", get("/"), get("/serve"), get("/")]),
    Responses = [
        {Status, maps:get(<<"connection">>, Fields, none), Body}
     || {Status, Fields, Body} <- weir_http_client:responses(Socket, 4)
    ],
    ?assertEqual(
        [
            {200, none, <<"hello">>},
            {200, none, <<"hello">>},
            {200, none, <<"served">>},
            {200, <<"close">>, <<"hello">>}
        ],
        Responses
    ),
    ?assert(is_closed(Socket)),
    receive
        {drained, Result} -> ?assertEqual(ok, Result)
    end.

%%% Reactors.

a_killed_reactor_ends_its_requests_at_once(_Config) ->
    Port = start(),
    {Socket, Pid} = waiting(Port, "/wait"),
    Monitor = watch(Pid),
    [Reactor] = reactors(),
    true = exit(Reactor, kill),
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({shutdown, client_gone}, Reason) end,
    ?assert(is_closed(Socket)),
    ok = wait_until(fun() -> try request(Port, get("/")) of {200, _, _} -> true catch error:_ -> false end end).

a_process_that_traps_exits_is_told_of_a_killed_reactor(_Config) ->
    Port = start(),
    {_, Pid} = waiting(Port, "/wait?trap"),
    _ = watch(Pid),
    [Reactor] = reactors(),
    true = exit(Reactor, kill),
    ?assertMatch({{shutdown, client_gone}, {done, <<>>, []}}, told()).

%% Other processes started by a handler are left alone.
processes_that_are_no_requests_stay(_Config) ->
    Self = self(),
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => ?LOOPBACK}, [
        {"/spawn", weir_http_echo, {call, fun(_) ->
            Self ! {told, spawn(fun() -> receive never -> ok end end)},
            {reply, 200, [], <<>>}
        end}}
        | routes()
    ]),
    Port = weir:get_port(?LISTENER),
    Socket = connect(Port),
    ok = send(Socket, get("/spawn")),
    {200, _, _} = response(Socket),
    Other = told(),
    ok = persistent_term:put(?MODULE, self()),
    ok = send(Socket, get("/wait")),
    Monitor = watch(told()),
    [Reactor] = reactors(),
    true = exit(Reactor, kill),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    ?assert(is_process_alive(Other)),
    true = exit(Other, kill).

a_killed_watcher_is_replaced(_Config) ->
    Port = start(),
    {First, _} = waiting(Port, "/wait"),
    Watcher = whereis(weir_http_orphans),
    true = exit(Watcher, kill),
    ok = wait_until(fun() -> is_pid(whereis(weir_http_orphans)) andalso whereis(weir_http_orphans) =/= Watcher end),
    ok = close(First),
    ?waitEqual([], reactors()),
    a_killed_reactor_ends_its_requests_at_once_on(Port).

a_killed_reactor_ends_its_requests_at_once_on(Port) ->
    {_, Pid} = waiting(Port, "/wait"),
    Monitor = watch(Pid),
    [Reactor] = reactors(),
    true = exit(Reactor, kill),
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({shutdown, client_gone}, Reason) end.

%% Clients that lost their connection reconnect, and all are answered in the end.
killed_reactors_under_load(_Config) ->
    Port = start(),
    Going = going(),
    Clients = clients([
        fun() -> persistent(Port, Request, 100, Going) end
     || Request <- [get("/"), get("/serve")], _ <- lists:seq(1, 10)
    ]),
    [ok = kill_one() || _ <- lists:seq(1, 5)],
    ok = stop(Going),
    ?assertEqual([ok], lists:usort(outcomes(Clients))),
    ?waitEqual(0, map_get(connections, weir_http:info(?LISTENER))),
    ?waitEqual([], workers()).

kill_one() ->
    ok = wait_for_requests(50),
    [Reactor | _] = ?waitMatch([_ | _], reactors()),
    true = exit(Reactor, kill),
    ok.

wait_for_requests(Count) ->
    Before = map_get(requests, weir_http:info(?LISTENER)),
    wait_until(fun() -> map_get(requests, weir_http:info(?LISTENER)) >= Before + Count end).

workers() -> [Pid || Pid <- processes(), proc_lib:translate_initial_call(Pid) =:= weir_http_worker:initial_call()].

%% A flag that keeps clients running beyond their number of requests.
going() -> atomics:new(1, []).

stop(Going) -> atomics:put(Going, 1, 1).

is_over(Going) -> atomics:get(Going, 1) =:= 1.

%% Sends requests until Left were answered, reconnecting as needed, and further ones until the test is over.
persistent(Port, Request, Left, Going) ->
    case Left =< 0 andalso is_over(Going) of
        true -> ok;
        false -> persist(Port, Request, Left, Going)
    end.

persist(Port, Request, Left, Going) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], weir_test_wait:patience()) of
        {ok, Socket} ->
            put({rest, Socket}, <<>>),
            NewLeft = persistent_on(Socket, Request, Left, Going),
            _ = gen_tcp:close(Socket),
            persistent(Port, Request, NewLeft, Going);
        %% The next listener has not started yet.
        {error, _} ->
            timer:sleep(10),
            persistent(Port, Request, Left, Going)
    end.

persistent_on(Socket, Request, Left, Going) ->
    case (Left > 0 orelse not is_over(Going)) andalso send(Socket, Request) =:= ok andalso answer(Socket) of
        {ok, 200, keep} -> persistent_on(Socket, Request, Left - 1, Going);
        {ok, 500, close} -> Left;
        _ -> Left
    end.

%%% Processes of requests.

%% The client of a killed process gets a 500; others are not affected.
killed_requests_under_load(_Config) ->
    Port = start(),
    Going = going(),
    Clients = clients([fun() -> persistent(Port, get("/serve"), 50, Going) end || _ <- lists:seq(1, 10)]),
    Others = clients([fun() -> {_, How} = keep_alive_while(connect(Port), get("/"), Going), How end]),
    ok = wait_until(fun() ->
        _ = [exit(Pid, kill) || Pid <- lists:sublist(workers(), 2)],
        map_get(crashes, weir_http:info(?LISTENER)) >= 20
    end),
    ok = stop(Going),
    ?assertEqual([ok], lists:usort(outcomes(Clients))),
    ?assertEqual([stopped], outcomes(Others)),
    ?waitEqual([], workers()).

%%% Listeners.

a_killed_listener_serves_again(_Config) ->
    Port = start(#{port => weir_test_port:claim(), access_log => #{to => {file, "/dev/null"}}}),
    {200, _, _} = request(Port, get("/")),
    true = exit(map_get(pid, weir_http:info(?LISTENER)), kill),
    ok = wait_until(fun() -> try request(Port, get("/")) of {200, _, _} -> true catch error:_ -> false end end),
    ok = weir_http:set_routes(?LISTENER, [{"/", weir_http_echo, {reply, 200, [], <<"other">>}}]),
    {200, _, <<"other">>} = request(Port, get("/")),
    ?waitMatch(#{status := running}, weir_http:info(?LISTENER)).

%% With a log, whose writer ends with its listener.
a_killed_listener_of_a_supervisor_serves_again(_Config) ->
    Spec = weir_http:child_spec(
        supervised,
        #{ip => ?LOOPBACK, port => weir_test_port:claim(), access_log => #{to => {file, "/dev/null"}}},
        routes()
    ),
    {ok, Supervisor} = weir_http_supervisor:start_link([Spec]),
    Port = weir:get_port(supervised),
    Self = self(),
    ok = weir_event:attach(
        ?MODULE, [weir, request, exception], fun(_, _, Metadata, _) -> Self ! {exception, Metadata} end, []
    ),
    Going = going(),
    Clients = clients([fun() -> persistent(Port, get("/"), 100, Going) end || _ <- lists:seq(1, 5)]),
    ok = wait_until(fun() -> map_get(requests, weir_http:info(supervised)) > 50 end),
    Killed = map_get(pid, weir_http:info(supervised)),
    true = exit(Killed, kill),
    ok = wait_until(fun() ->
        try
            map_get(pid, weir_http:info(supervised)) =/= Killed
        catch
            error:_ -> false
        end
    end),
    ok = stop(Going),
    ?assertEqual([ok], lists:usort(outcomes(Clients))),
    ok = weir_event:detach(?MODULE),
    receive
        {exception, Metadata} -> error({exception, Metadata})
    after 0 -> ok
    end,
    ?waitEqual(1, length(supervisor:which_children(weir_http_log_sup))),
    ok = gen_server:stop(Supervisor),
    ?waitEqual([], supervisor:which_children(weir_http_log_sup)).

%%% The log.

killed_writers_under_load(Config) ->
    File = filename:join(?config(priv_dir, Config), "killed_writers.log"),
    Port = start(#{access_log => #{to => {file, File}}}),
    %% Writers of earlier listeners end some seconds after them. All together may be restarted ten times in ten
    %% seconds.
    ?waitEqual(1, length(supervisor:which_children(weir_http_log_sup))),
    Going = going(),
    Clients = clients([fun() -> persistent(Port, get("/"), 100, Going) end || _ <- lists:seq(1, 10)]),
    [
        begin
            ok = wait_for_requests(100),
            kill_writer()
        end
     || _ <- lists:seq(1, 5)
    ],
    ok = stop(Going),
    ?assertEqual([ok], lists:usort(outcomes(Clients))),
    %% Lines handed over to a killed writer without a successor are lost.
    ok = wait_until(fun() ->
        {200, _, _} = request(Port, get("/?last")),
        {ok, Bytes} = file:read_file(File),
        binary:match(Bytes, <<"/?last">>) =/= nomatch
    end),
    %% The lines that were written are complete.
    ok = weir_http:stop_listener(?LISTENER),
    {ok, Bytes} = file:read_file(File),
    [
        ?assertMatch({match, _}, re:run(Line, "^127\\.0\\.0\\.1 - - .*\"$"))
     || Line <- binary:split(Bytes, <<"\n">>, [global, trim])
    ].

kill_writer() ->
    _ = [exit(Pid, kill) || {_, Pid, _, _} <- supervisor:which_children(weir_http_log_sup), is_pid(Pid)],
    ok.

%% The listeners belong to weir: they continue to serve, and lines of the log are counted as dropped.
without_the_application(Config) ->
    File = filename:join(?config(priv_dir, Config), "without.log"),
    Port = start(#{access_log => #{to => {file, File}}}),
    {200, _, _} = request(Port, get("/")),
    ok = application:stop(weir_http),
    {200, _, _} = request(Port, get("/")),
    {200, _, <<"served">>} = request(Port, get("/serve")),
    ok = wait_until(fun() -> map_get(log_dropped, weir_http:info(?LISTENER)) >= 2 end),
    ok = weir_http:stop_listener(?LISTENER),
    {error, {not_started, weir_http}} = weir_http:start_listener(?LISTENER, #{access_log => #{}}, []).
