%% HTTP over TLS: the cases of the other suites with a TLS client, and cases of TLS alone.
-module(weir_http_tls_SUITE).

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
        requests,
        processes,
        bodies,
        files,
        sizes,
        times,
        readers,
        a_client_that_takes_little_is_not_closed,
        streams,
        held,
        curl_is_served,
        the_protocol_is_http_1_1,
        what_cannot_work_is_refused,
        handlers_see_the_socket_of_ssl,
        messages_for_the_socket_of_ssl,
        failed_handshakes_are_counted,
        a_slow_handshake_is_cut_off,
        a_drain_answers_what_has_begun_and_closes_what_is_idle,
        a_killed_connection_ends_its_request,
        a_connection_ends_after_its_listener,
        a_proxy_header_comes_first,
        an_idle_connection_does_nothing,
        a_connection_is_no_member_of_a_group,
        messages_for_a_client_that_does_not_read_are_bounded
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    ok = weir_http_client:with_tls(),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = [weir_http:stop_listener(Name) || Name <- weir:listeners()],
    ok.

%%% Cases of other suites.

%% Runs each case in its own process, like common_test.
run(Suite, Cases, Config) ->
    ?assertEqual([], lists:append([ended(started(Suite, Case, Config)) || Case <- Cases])).

%% For groups that run in parallel without TLS too: most of the time they wait.
run_parallel(Suite, Cases, Config) ->
    Started = [started(Suite, Case, Config) || Case <- Cases],
    ?assertEqual([], lists:append([ended(Each) || Each <- Started])).

started(Suite, Case, Config) ->
    ct:log("~p:~p", [Suite, Case]),
    {_, Monitor} = spawn_monitor(fun() ->
        ok = weir_http_client:with_tls(),
        CaseConfig =
            case erlang:function_exported(Suite, init_per_testcase, 2) of
                true -> Suite:init_per_testcase(Case, Config);
                false -> Config
            end,
        try
            Suite:Case(CaseConfig)
        after
            erlang:function_exported(Suite, end_per_testcase, 2) andalso Suite:end_per_testcase(Case, CaseConfig)
        end
    end),
    {Suite, Case, Monitor}.

ended({Suite, Case, Monitor}) ->
    receive
        {'DOWN', Monitor, process, _, normal} -> [];
        {'DOWN', Monitor, process, _, Reason} -> [{Suite, Case, Reason}]
    after 2 * weir_test_wait:patience() -> [{Suite, Case, does_not_end}]
    end.

all_of(Suite) ->
    {module, Suite} = code:ensure_loaded(Suite),
    lists:flatmap(
        fun
            ({group, Group}) -> element(3, lists:keyfind(Group, 1, Suite:groups()));
            (Case) -> [Case]
        end,
        Suite:all()
    ).

requests(Config) -> run(weir_http_SUITE, all_of(weir_http_SUITE), Config).

processes(Config) ->
    %% One inspects the engine's send queue; the WebSocket client does not support TLS.
    Others = [a_stream_waits_for_its_client, a_websocket],
    run(weir_http_process_SUITE, all_of(weir_http_process_SUITE) -- Others, Config),
    run(weir_http_process_ends_SUITE, all_of(weir_http_process_ends_SUITE), Config).

bodies(Config) -> run(weir_http_process_bodies_SUITE, all_of(weir_http_process_bodies_SUITE), Config).

files(Config) ->
    Directory = filename:join(?config(priv_dir, Config), "tls"),
    ok = filelib:ensure_dir(filename:join(Directory, "file")),
    %% These inspect the engine's send queue, or the cache of open files, and do not depend on the kind of connection.
    Others = [
        a_file_waits_for_its_client,
        requests_behind_a_file_wait,
        a_replaced_file_is_seen_after_a_second,
        more_files_than_are_kept_open
    ],
    Within = [{priv_dir, Directory} | Config],
    run(weir_http_files_SUITE, all_of(weir_http_files_SUITE), Within),
    run(weir_http_files_sent_SUITE, all_of(weir_http_files_sent_SUITE) -- Others, Within).

group_of_limits(Group) -> element(3, lists:keyfind(Group, 1, weir_http_limits_SUITE:groups())).

sizes(Config) ->
    %% A TLS client is not connected before it is accepted.
    run_parallel(weir_http_limits_SUITE, group_of_limits(sizes) -- [connections], Config).

times(Config) ->
    %% So many handshakes can take longer than the timeouts.
    run_parallel(weir_http_limits_SUITE, group_of_limits(times) -- [honest_clients_are_served_beside], Config).

readers(Config) ->
    run_parallel(weir_http_limits_SUITE, group_of_limits(readers) -- [a_client_that_takes_little_is_not], Config).

%% ssl reads a hundred buffers at once, and then nothing until its user has read them: 25 records, which this client
%% reads one by one. Until then the server sees no progress.
a_client_that_takes_little_is_not_closed(_Config) ->
    ok = weir_http_client:with_tls(),
    Outcome = weir_http_serving:in_time(1000, fun(Limit) ->
        weir_http_limits_SUITE:take_little("/larger", 32 * 16384, Limit div 100, Limit)
    end),
    ?assert(Outcome > 4_000_000).

%% A TLS connection cannot be a member of a group, and its output does not wait in the engine.
streams(Config) ->
    Others = [
        messages_from_before_it_is_open_come_after,
        bytes_in_place_of_events,
        a_client_that_takes_nothing_is_closed,
        a_group_that_disconnects,
        a_slow_client_is_closed,
        a_handler_hears_when_all_is_written,
        events_for_a_slow_client_are_dropped,
        what_exceeds_the_send_queue_closes_it,
        nothing_is_written_while_something_waits
    ],
    run(weir_http_streams_SUITE, all_of(weir_http_streams_SUITE) -- Others, Config),
    Processes = [
        a_process_goes_on, a_process_goes_on_for_an_old_client, a_process_whose_client_is_gone, a_process_that_fails
    ],
    run(weir_http_stream_groups_SUITE, [the_listener_stops | Processes], Config).

held(Config) ->
    run(weir_http_held_SUITE, all_of(weir_http_held_SUITE) -- [answered_before_it_is_held], Config),
    Others = [requests_behind_it_wait, many_requests_behind_it, a_drain_answers_all, the_listener_stops],
    run(weir_http_held_groups_SUITE, Others, Config).

%%% Cases of TLS alone.

start() -> start(#{}, []).

start(Options, Routes) ->
    {ok, _} = weir_http:start_listener(?LISTENER, weir_http_client:options(Options#{ip => ?LOOPBACK}), [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}},
        {"/echo", weir_http_echo, echo}
        | Routes
    ]),
    weir:get_port(?LISTENER).

curl_is_served(_Config) ->
    case os:find_executable("curl") of
        false ->
            {skip, "curl is not installed"};
        Curl ->
            Port = start(),
            Url = io_lib:format("https://127.0.0.1:~b", [Port]),
            ?assertEqual("hellohello", os:cmd([Curl, " -sk ", Url, "/ ", Url, "/"])),
            ?assertEqual(
                "1.1 200 1",
                os:cmd([Curl, " -sk -o /dev/null -w '%{http_version} %{http_code} %{num_connects}' ", Url, "/"])
            ),
            ?assertEqual("abc", os:cmd([Curl, " -sk -d abc ", Url, "/echo"]))
    end.

the_protocol_is_http_1_1(_Config) ->
    Port = start(),
    Connect = fun(Protocols) ->
        ssl:connect(
            ?LOOPBACK, Port, [{verify, verify_none}, {alpn_advertised_protocols, Protocols}], weir_test_wait:patience()
        )
    end,
    {ok, Socket} = Connect([<<"h2">>, <<"http/1.1">>]),
    ?assertEqual({ok, <<"http/1.1">>}, ssl:negotiated_protocol(Socket)),
    ?assertMatch({error, {tls_alert, {no_application_protocol, _}}}, Connect([<<"h2">>])).

what_cannot_work_is_refused(_Config) ->
    #{tls := Tls} = weir_http_client:options(#{}),
    {error, {bad_option, tls, {certfile, "/none"}, _}} =
        weir_http:start_listener(?LISTENER, #{tls => [{certfile, "/none"}, {keyfile, "/none"}]}, []),
    {error, {bad_option, tls, no_list, _}} = weir_http:start_listener(?LISTENER, #{tls => no_list}, []),
    {error, {bad_option, tls, {alpn_preferred_protocols, _}, _}} =
        weir_http:start_listener(?LISTENER, #{tls => [{alpn_preferred_protocols, [<<"h2">>]} | Tls]}, []),
    {error, {bad_option, reactor, _, _}} = weir_http:start_listener(
        ?LISTENER, #{tls => Tls, reactor => #{affinity => bound}}, []
    ),
    ?assertEqual([], weir:listeners()).

handlers_see_the_socket_of_ssl(_Config) ->
    Self = self(),
    Port = start(#{}, [
        {"/call", weir_http_echo,
            {call, fun(Request) ->
                Self !
                    {told, {
                        ssl:connection_information(weir_http_request:socket(Request), [protocol]),
                        weir_http_request:peer(Request)
                    }},
                {reply, 204, [], <<>>}
            end}}
    ]),
    {204, _, _} = request(Port, get("/call")),
    ?assertMatch({{ok, [{protocol, 'tlsv1.3'}]}, {ok, {?LOOPBACK, _}}}, told()).

%% Same as for a connection of a reactor.
messages_for_the_socket_of_ssl(_Config) ->
    Port = weir_http_funs:start(?LISTENER, hold, #{
        handle => fun(Request, State) ->
            Open = fun(_Held, _) ->
                self() ! {{weir_reactor, weir_http_request:socket(Request)}, said},
                {ok, State}
            end,
            {hold, weir_http_funs, State#{open => Open}}
        end,
        info => fun({{weir_reactor, _}, said}, _State) -> {reply, 200, [], <<"heard">>} end
    }),
    ?assertMatch({200, _, <<"heard">>}, request(Port, get("/go"))).

failed_handshakes_are_counted(_Config) ->
    Port = start(),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{active, false}]),
    ok = gen_tcp:send(Socket, get("/")),
    _ = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    ?waitEqual(1, map_get(failed_handshakes, weir_http:info(?LISTENER))),
    ?assertMatch(#{requests := 0}, weir_http:info(?LISTENER)).

a_slow_handshake_is_cut_off(_Config) ->
    Port = start(#{handshake_timeout => 200}, []),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{active, false}]),
    ok = gen_tcp:send(Socket, <<22, 3, 1>>),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())),
    ?waitEqual(0, map_get(connections, weir_http:info(?LISTENER))),
    %% Counted once its process has noticed the close.
    ?waitEqual(1, map_get(failed_handshakes, weir_http:info(?LISTENER))).

a_drain_answers_what_has_begun_and_closes_what_is_idle(_Config) ->
    Port = start(),
    Idle = connect(Port),
    ok = send(Idle, get("/")),
    {200, _, <<"hello">>} = response(Idle),
    Socket = connect(Port),
    ok = send(Socket, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"),
    ?waitEqual(2, map_get(requests, weir_http:info(?LISTENER))),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience())} end),
    ?assert(is_closed(Idle)),
    ok = send(Socket, "lo"),
    {200, #{<<"connection">> := <<"close">>}, <<"hello">>} = response(Socket),
    ?assert(is_closed(Socket)),
    receive {drained, Result} -> ?assertEqual(ok, Result) end.

%% ssl has closed the socket, but the process gets that message, or another, only after the listener was stopped.
a_connection_ends_after_its_listener(_Config) ->
    [
        begin
            Funs = #{open => fun(_, State) -> {ok, State} end},
            Port = weir_http_funs:start(?LISTENER, Kind, Funs),
            Socket = connect(Port),
            ok = send(Socket, get("/go")),
            _ = weir_http_funs:opened(),
            [{_, Connection}] = weir:connections(?LISTENER),
            Monitor = monitor(process, Connection),
            true = erlang:suspend_process(Connection),
            _ = [Connection ! Message || Message <- Before],
            ok = close(Socket),
            ?waitEqual([], weir:connections(?LISTENER)),
            ok = weir_http:stop_listener(?LISTENER),
            true = erlang:resume_process(Connection),
            ?assertEqual(normal, receive {'DOWN', Monitor, process, _, Reason} -> Reason end),
            {lost, _} = weir_http_funs:closed()
        end
     || Kind <- [hold, events], Before <- [[], [weir_http_drain], [weir_http_writable]]
    ].

a_killed_connection_ends_its_request(_Config) ->
    Self = self(),
    Port = weir_http_serving:start(
        ?LISTENER,
        fun(_) ->
            Self ! {told, self()},
            watched(),
            receive
                never -> ok
            end
        end,
        #{},
        #{}
    ),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Monitor = watch(told()),
    [{_, Connection}] = weir:connections(?LISTENER),
    true = exit(Connection, kill),
    receive
        {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({shutdown, client_gone}, Reason)
    end,
    {200, _, <<"direct">>} = request(Port, get("/direct")).

a_proxy_header_comes_first(_Config) ->
    Port = start(#{proxy_protocol => true}, [{"/describe", weir_http_echo, describe}]),
    {ok, Tcp} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Tcp, "PROXY TCP4 10.1.2.3 10.4.5.6 1234 443\r\n"),
    {ok, Socket} = ssl:connect(Tcp, [{verify, verify_none}], weir_test_wait:patience()),
    put({rest, Socket}, <<>>),
    ok = send(Socket, get("/describe")),
    {200, _, Described} = response(Socket),
    ?assertMatch(#{peer := {ok, {{10, 1, 2, 3}, 1234}}}, binary_to_term(Described)).

%% It has no ticks, and its garbage is collected.
an_idle_connection_does_nothing(_Config) ->
    %% A tick would be 50 milliseconds.
    Port = start(#{body_timeout => 200}, []),
    Socket = connect(Port),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    [{_, Pid}] = weir:connections(?LISTENER),
    ok = wait_until(fun() ->
        Before = process_info(Pid, reductions),
        timer:sleep(200),
        Before =:= process_info(Pid, reductions)
    end),
    ok = send(Socket, get("/")),
    {200, _, _} = response(Socket),
    ok = close(Socket),
    ?waitEqual(0, map_get(connections, weir_http:info(?LISTENER))).

a_connection_is_no_member_of_a_group(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Self = self(),
    Port = weir_http_websocket_handler:start(
        ?LISTENER,
        #{
            open => fun(Socket, State) ->
                Self ! {told, weir_group:join(Group, Socket)},
                {ok, State}
            end
        },
        weir_http_client:options(#{})
    ),
    Client = connect(Port),
    ok = send(Client, weir_http_websocket_client:handshake("")),
    ?assertMatch({error, {bad_socket, _, "a socket of Weir, without TLS"}}, told()).

messages_for_a_client_that_does_not_read_are_bounded(_Config) ->
    Self = self(),
    Port = weir_http_websocket_handler:start(
        ?LISTENER,
        #{
            open => fun(Socket, State) ->
                Self ! {told, Socket},
                {ok, State}
            end
        },
        weir_http_client:options(#{idle_timeout => 1000})
    ),
    Client = weir_http_client:connect(Port, [{recbuf, 4096}]),
    ok = send(Client, weir_http_websocket_client:handshake("")),
    Socket = told(),
    [{_, Pid}] = weir:connections(?LISTENER),
    Monitor = monitor(process, Pid),
    Frame = {text, binary:copy(<<"x">>, 50000)},
    Waiting = fill(Socket, Frame, Pid, 0),
    ?assert(Waiting =< 1001, Waiting),
    {error, closed} = weir_http_websocket:send(Socket, Frame),
    receive
        {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason)
    after weir_test_wait:patience() -> error(lives)
    end,
    ?waitEqual(0, map_get(connections, weir_http:info(?LISTENER))).

%% Sends until the connection is closed. Returns the most messages that waited.
fill(Socket, Frame, Pid, Most) ->
    case {weir_http_websocket:send(Socket, Frame), process_info(Pid, message_queue_len)} of
        {ok, {message_queue_len, Waiting}} -> fill(Socket, Frame, Pid, max(Waiting, Most));
        {ok, undefined} -> fill(Socket, Frame, Pid, Most);
        {{error, closed}, _} -> Most
    end.
