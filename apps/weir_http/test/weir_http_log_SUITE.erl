%% The access log: the contents of lines, no forged lines, no waiting for the writer, and failures.
-module(weir_http_log_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, close/1, response/1, request/2, get/1, get/2]).
-import(weir_http_serving, [told/0, in_time/1]).
-import(weir_test_wait, [wait_until/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_combined_line,
        a_line_of_json,
        every_request_has_its_line,
        nobody_forges_a_line,
        what_was_refused_is_logged,
        a_client_that_goes_away_is_a_499,
        a_process_and_a_stream,
        websockets_and_held_requests,
        requests_of_tls,
        lines_of_a_unix_socket,
        to_the_logger,
        a_rotation,
        a_writer_that_is_killed,
        a_writer_that_is_killed_when_its_listener_stops,
        writers_that_are_killed_too_often,
        a_writer_that_does_not_keep_up,
        a_drained_listener_has_written_all,
        wrong_options
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) ->
    [{file, filename:join(?config(priv_dir, Config), atom_to_list(Case) ++ ".log")} | Config].

end_per_testcase(_Case, _Config) ->
    _ = logger:remove_handler(?MODULE),
    _ = [weir_http:stop_listener(Name) || Name <- weir:listeners()],
    ok.

start(Config, Format) -> start(Config, Format, #{}).

start(Config, Format, Options) ->
    {ok, _} = weir_http:start_listener(
        ?LISTENER,
        maps:merge(
            #{
                ip => {127, 0, 0, 1}, access_log => #{format => Format, to => {file, ?config(file, Config)}}
            },
            Options
        ),
        [
            {"/", weir_http_echo, {reply, 200, [], <<"hello">>}},
            {"/none", weir_http_echo, {reply, 204, [], <<>>}},
            {"/large", weir_http_echo, {reply, 200, [], binary:copy(<<"x">>, 100000)}},
            {"/held", weir_http_funs, #{
                kind => hold,
                tell => self(),
                open => fun(Held, State) -> {ok, State#{held => Held}} end,
                info => fun joining/2
            }},
            {"/websocket", weir_http_websocket_handler, #{}},
            {"/serve", weir_http_serving, fun serving/1}
        ]
    ),
    weir:get_port(?LISTENER).

joining({join, Group}, State = #{held := Held}) ->
    ok = weir_http_held:join(Group, Held),
    {ok, State}.

serving(Request) ->
    case weir_http_request:query(Request) of
        <<"reply">> ->
            {reply, 201, [], <<"made">>};
        <<"stream">> ->
            ok = weir_http_process:stream(Request, 200, []),
            [ok = weir_http_process:send(<<"0123456789">>) || _ <- lists:seq(1, 10)],
            streamed;
        <<"raise">> ->
            error(on_purpose);
        <<"wait">> ->
            receive never -> ok end
    end.

%% Waits for that many lines and returns all.
lines(Config, Count) ->
    ok = wait_until(fun() -> length(lines(Config)) >= Count end),
    Lines = lines(Config),
    ?assertEqual(Count, length(Lines), Lines),
    Lines.

lines(Config) ->
    {ok, Bytes} = file:read_file(?config(file, Config)),
    binary:split(Bytes, <<"\n">>, [global, trim]).

-define(TIME, "\\d\\d/(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)/20\\d\\d:\\d\\d:\\d\\d:\\d\\d \\+0000").

%%% Contents of lines.

a_combined_line(Config) ->
    Port = start(Config, combined),
    Socket = connect(Port),
    ok = send(Socket, [get("/?a=b", "User-Agent: test/1.0\r\nReferer: http://a/\r\n"), get("/nowhere")]),
    [{200, _, _}, {404, _, _}] = weir_http_client:responses(Socket, 2),
    [Line, Other] = lines(Config, 2),
    ?assertMatch({match, _}, re:run(Line,
        "^127\\.0\\.0\\.1 - - \\[" ?TIME "\\] \"GET /\\?a=b HTTP/1\\.1\" 200 5 \"http://a/\" \"test/1\\.0\"$")),
    ?assertMatch({match, _}, re:run(Other, "\"GET /nowhere HTTP/1\\.1\" 404 0 \"-\" \"-\"$")).

a_line_of_json(Config) ->
    Port = start(Config, json, #{request_ids => take}),
    {200, _, _} = request(Port, get("/?a=b", "User-Agent: \"x\\y\"\r\nX-Request-Id: this-one\r\n")),
    [Line] = lines(Config, 1),
    ?assertMatch(
        {match, _},
        re:run(
            Line,
            "^{\"time\":\"20\\d\\d-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d\\d\\dZ\","
            "\"peer\":\"127\\.0\\.0\\.1\",\"method\":\"GET\",\"path\":\"/\",\"query\":\"a=b\","
            "\"protocol\":\"HTTP/1\\.1\",\"status\":200,\"bytes\":5,\"duration_us\":\\d+,\"request_id\":\"this-one\","
            "\"user_agent\":\"\\\\\"x\\\\\\\\y\\\\\"\"}$"
        )
    ).

every_request_has_its_line(Config) ->
    Port = start(Config, combined),
    Socket = connect(Port),
    ok = send(Socket, [get(["/?", integer_to_list(N)]) || N <- lists:seq(1, 500)]),
    [{200, _, _} = response(Socket) || _ <- lists:seq(1, 500)],
    Lines = lines(Config, 500),
    [
        ?assertMatch({match, _}, re:run(Line, ["\"GET /\\?", integer_to_list(N), " HTTP"]))
     || {N, Line} <- lists:zip(lists:seq(1, 500), Lines)
    ].

nobody_forges_a_line(Config) ->
    Port = start(Config, combined),
    Bytes = [Byte || Byte <- lists:seq(1, 255), Byte =/= $\r, Byte =/= $\n],
    Fields = ["User-Agent: a\" 200 1 \"", [Byte || Byte <- Bytes, Byte >= 32 orelse Byte =:= 9, Byte =/= 127], "\r\n"],
    {200, _, _} = request(Port, get("/", Fields)),
    [Line] = lines(Config, 1),
    ?assertEqual([], [Byte || <<Byte>> <= Line, Byte < 32 orelse Byte > 126]),
    %% Three quoted strings, not ended by their contents.
    ?assertEqual(6, length(binary:matches(Line, <<"\"">>))),
    ?assertMatch({match, _}, re:run(Line, "\"a\\\\x22 200 1 \\\\x22")).

what_was_refused_is_logged(Config) ->
    Port = start(Config, combined),
    {400, _, _} = request(Port, "nonsense\r\n\r\n"),
    [First] = lines(Config, 1),
    ok = weir_http:stop_listener(?LISTENER),
    Second = in_time(fun(Limit) ->
        Late = start(Config, combined, #{header_timeout => Limit}),
        {Took, Socket} = weir_test_wait:timed(fun() ->
            Socket = connect(Late),
            _ = send(Socket, "GET / HTTP"),
            Socket
        end),
        _ = weir_http_client:recv_all(Socket),
        %% A client that was too slow is not refused, and has no line.
        ok = weir_http:stop_listener(?LISTENER),
        {Took, lists:last(lines(Config))}
    end),
    ?assertMatch({match, _}, re:run(First, "^127\\.0\\.0\\.1 - - \\[" ?TIME "\\] \"-\" 400 0 \"-\" \"-\"$")),
    ?assertMatch({match, _}, re:run(Second, "\"-\" 408 0")).

a_client_that_goes_away_is_a_499(Config) ->
    Port = start(Config, combined),
    Socket = connect(Port),
    ok = send(Socket, get("/serve?wait")),
    ?waitEqual(1, map_get(requests, weir_http:info(?LISTENER))),
    ok = close(Socket),
    [Line] = lines(Config, 1),
    ?assertMatch({match, _}, re:run(Line, "\"GET /serve\\?wait HTTP/1\\.1\" 499 0 ")).

%% One line when it is over, with the status that the client got, whichever process answered.
websockets_and_held_requests(Config) ->
    Port = start(Config, combined),
    WebSocket = weir_http_websocket_client:open(Port),
    ok = weir_http_websocket_client:send(WebSocket, 16#88, <<1000:16>>),
    1000 = weir_http_websocket_client:closes(WebSocket),
    {ok, Group} = weir_group:new(#{}),
    Socket = connect(Port),
    lists:foreach(
        fun(Answer) ->
            ok = send(Socket, get("/held")),
            Held = receive {open, Known} -> Known after weir_test_wait:patience() -> error(not_open) end,
            Answer(Held),
            {200, _, <<"answer">>} = weir_http_client:response(Socket)
        end,
        [
            fun(Held) -> ok = weir_http_held:reply(Held, {reply, 200, [], <<"answer">>}) end,
            fun(Held) ->
                ok = weir_http_held:tell(Held, {join, Group}),
                ?waitEqual(1, weir_group:size(Group)),
                {ok, 1} = weir_group:broadcast(Group, weir_http_held:frame({reply, 200, [], <<"answer">>}))
            end
        ]
    ),
    [Switched, Replied, Broadcast] = lines(Config, 3),
    ?assertMatch({match, _}, re:run(Switched, "\"GET /websocket HTTP/1\\.1\" 101 \\d+ ")),
    ?assertMatch({match, _}, re:run(Replied, "\"GET /held HTTP/1\\.1\" 200 6 ")),
    ?assertMatch({match, _}, re:run(Broadcast, "\"GET /held HTTP/1\\.1\" 200 ")).

a_process_and_a_stream(Config) ->
    Port = start(Config, combined),
    Socket = connect(Port),
    ok = send(Socket, [get("/serve?reply"), get("/large"), get("/none"), get("/serve?raise")]),
    [201, 200, 204, 500] = [Status || {Status, _, _} <- weir_http_client:responses(Socket, 4)],
    ok = send(Socket, "GET /serve?stream HTTP/1.0\r\n\r\n"),
    _ = weir_http_client:recv_all(Socket),
    Lines = lines(Config, 5),
    ?assertEqual(
        [<<"201 4">>, <<"200 100000">>, <<"204 0">>, <<"500 0">>, <<"200 100">>],
        [
            Numbers
         || Line <- Lines, {match, [Numbers]} <- [re:run(Line, "HTTP/1\\.\\d\" (\\d+ \\d+) ", [{capture, [1], binary}])]
        ]
    ).

requests_of_tls(Config) ->
    ok = weir_http_client:with_tls(),
    Port = start(Config, combined, weir_http_client:options(#{})),
    {200, _, _} = request(Port, get("/")),
    [Line] = lines(Config, 1),
    ?assertMatch({match, _}, re:run(Line, "^127\\.0\\.0\\.1 .* 200 5 ")).

lines_of_a_unix_socket(Config) ->
    %% The path of the case's directory would be too long for a unix socket.
    Path = filename:join("/tmp", lists:concat(["weir_http_log_", os:getpid(), "_", erlang:unique_integer([positive])])),
    _ = start(Config, combined, #{ip => {local, Path}}),
    {ok, Socket} = gen_tcp:connect({local, Path}, 0, [binary, {active, false}]),
    put({rest, Socket}, <<>>),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    [Line] = lines(Config, 1),
    ?assertMatch({match, _}, re:run(Line, "^unix: - - ")),
    ok = file:delete(Path).

to_the_logger(Config) ->
    Self = self(),
    ok = logger:add_primary_filter(
        ?MODULE,
        {
            fun
                (#{meta := #{domain := [weir, http, access]}, level := Level, msg := {"~ts", [Line]}}, _) ->
                    Self ! {told, {Level, Line}},
                    stop;
                (Event, _) ->
                    Event
            end,
            []
        }
    ),
    try
        Port = start(Config, combined, #{access_log => #{}}),
        {200, _, _} = request(Port, get("/")),
        ?assertMatch({notice, <<"127.0.0.1 - - [", _/binary>>}, told())
    after
        logger:remove_primary_filter(?MODULE)
    end.

%%% Files and writers.

a_rotation(Config) ->
    Port = start(Config, combined),
    File = ?config(file, Config),
    {200, _, _} = request(Port, get("/?before")),
    [_] = lines(Config, 1),
    ok = file:rename(File, File ++ ".1"),
    ok = weir_http:reopen_log(?LISTENER),
    {200, _, _} = request(Port, get("/?after")),
    [After] = lines(Config, 1),
    ?assertMatch({match, _}, re:run(After, "/\\?after")),
    {ok, Before} = file:read_file(File ++ ".1"),
    ?assertMatch({match, _}, re:run(Before, "^[^\n]*/\\?before[^\n]*\n$")),
    ok = weir_http:set_routes(?LISTENER, []),
    ok = weir_http:stop_listener(?LISTENER),
    {ok, _} = weir_http:start_listener(?LISTENER, #{}, []),
    {error, no_access_log} = weir_http:reopen_log(?LISTENER).

writer() ->
    [{_, Pid, _, _}] = supervisor:which_children(weir_http_log_sup),
    Pid.

a_writer_that_is_killed(Config) ->
    Port = start(Config, combined),
    {200, _, _} = request(Port, get("/?before")),
    [_] = lines(Config, 1),
    Before = writer(),
    true = exit(Before, kill),
    ok = wait_until(fun() -> is_pid(writer()) andalso writer() =/= Before end),
    {200, _, _} = request(Port, get("/?after")),
    [_, After] = lines(Config, 2),
    ?assertMatch({match, _}, re:run(After, "/\\?after")).

%% Lines are counted as dropped, and the successor of the killed writer ends, because nothing else would close it.
a_writer_that_is_killed_when_its_listener_stops(Config) ->
    Port = start(Config, combined),
    Writer = writer(),
    Monitor = monitor(process, Writer),
    ok = sys:suspend(weir_http_log_sup),
    true = exit(Writer, kill),
    receive {'DOWN', Monitor, process, Writer, _} -> ok end,
    {200, _, _} = request(Port, get("/")),
    ?waitEqual(1, map_get(log_dropped, weir_http:info(?LISTENER))),
    ok = weir_http:stop_listener(?LISTENER),
    ok = sys:resume(weir_http_log_sup),
    ?waitEqual([], supervisor:which_children(weir_http_log_sup)).

%% Their supervisor gives up, and the next one restarts all writers. This is logged, and each line is written or
%% counted.
writers_that_are_killed_too_often(Config) ->
    Port = start(Config, combined),
    {ok, _} = weir_http:start_listener(
        other, #{ip => {127, 0, 0, 1}, access_log => #{to => {file, ?config(file, Config) ++ ".other"}}}, []
    ),
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => error, config => #{pid => self()}}),
    Monitor = monitor(process, weir_http_log_sup),
    ok = kill_writers(Monitor),
    Told =
        receive
            {log, #{msg := {report, #{listeners := Listeners}}}} -> Listeners
        after weir_test_wait:patience() -> error(not_told)
        end,
    ok = logger:remove_handler(?MODULE),
    ?assertEqual([], [other, ?LISTENER] -- Told),
    {200, _, _} = request(Port, get("/?after")),
    ?waitEqual(1, length(lines(Config)) + map_get(log_dropped, weir_http:info(?LISTENER))),
    %% That line may have gone to a writer that was just killed. By now there is a new one.
    ok = wait_until(fun() ->
        {200, _, _} = request(Port, get("/?after")),
        lines(Config) =/= []
    end),
    ok = weir_http:reopen_log(other),
    ok = weir_http:stop_listener(other),
    ok = weir_http:stop_listener(?LISTENER),
    %% A writer that was restarted last may still have to notice that its listener is gone.
    ?waitEqual([], supervisor:which_children(weir_http_log_sup)).

kill_writers(Monitor) ->
    receive
        {'DOWN', Monitor, process, _, _} -> ok
    after 0 ->
        _ = [exit(Pid, kill) || {_, Pid, _, _} <- writers(), is_pid(Pid)],
        kill_writers(Monitor)
    end.

writers() ->
    try
        supervisor:which_children(weir_http_log_sup)
    catch
        exit:_ -> []
    end.

%% Reactors answer as before, and lost lines are counted.
a_writer_that_does_not_keep_up(Config) ->
    Port = start(Config, combined),
    Writer = writer(),
    ok = sys:suspend(Writer),
    Socket = connect(Port),
    Agent = ["User-Agent: ", lists:duplicate(4000, $a), "\r\n"],
    lists:foreach(
        fun(_) ->
            ok = send(Socket, lists:duplicate(10, get("/", Agent))),
            [{200, _, _} = response(Socket) || _ <- lists:seq(1, 10)]
        end,
        lists:seq(1, 150)
    ),
    ok = wait_until(fun() -> map_get(log_dropped, weir_http:info(?LISTENER)) > 0 end),
    {memory, Memory} = process_info(Writer, memory),
    ?assert(Memory < 10000000),
    ok = sys:resume(Writer),
    ok = close(Socket),
    ?waitEqual(1500, length(lines(Config)) + map_get(log_dropped, weir_http:info(?LISTENER))),
    {200, _, _} = request(Port, get("/?after")),
    ok = wait_until(fun() -> re:run(lists:last(lines(Config)), "/\\?after") =/= nomatch end).

a_drained_listener_has_written_all(Config) ->
    Port = start(Config, combined),
    Socket = connect(Port),
    ok = send(Socket, lists:duplicate(100, get("/"))),
    [{200, _, _} = response(Socket) || _ <- lists:seq(1, 100)],
    ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()),
    ok = weir_http:stop_listener(?LISTENER),
    ?assertEqual(100, length(lines(Config))),
    ?assertEqual([], supervisor:which_children(weir_http_log_sup)).

wrong_options(Config) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => error, config => #{pid => self()}}),
    Start = fun(Log) -> weir_http:start_listener(?LISTENER, #{access_log => Log}, []) end,
    [
        ?assertMatch({error, {bad_option, access_log, Wrong, [_ | _]}}, Start(Log))
     || {Wrong, Log} <- [
            {on, on},
            {{format, xml}, #{format => xml}},
            {{to, stdout}, #{to => stdout}},
            {{level, info}, #{level => info}},
            {{to, {file, "/none/access.log"}}, #{to => {file, "/none/access.log"}}}
        ]
    ],
    ?assertEqual([], supervisor:which_children(weir_http_log_sup)),
    %% The error is returned without crash reports. The supervisor would have logged them before it returned. Ignore
    %% other events.
    ?assertEqual([], [
        Event
     || Event <- events(), re:run(io_lib:format("~p", [Event]), "weir_http_log(_sup)?[,}]") =/= nomatch
    ]),
    ok = logger:remove_handler(?MODULE),
    %% A listener that could not listen leaves no writer.
    Port = start(Config, combined),
    {error, eaddrinuse} = weir_http:start_listener(
        other,
        #{
            port => Port, ip => {127, 0, 0, 1}, access_log => #{to => {file, ?config(file, Config) ++ ".other"}}
        },
        []
    ),
    ?assertMatch([_], supervisor:which_children(weir_http_log_sup)).

log(Event, #{config := #{pid := Pid}}) -> Pid ! {log, Event}.

%% Returns the events logged so far.
events() -> receive {log, Event} -> [Event | events()] after 0 -> [] end.
