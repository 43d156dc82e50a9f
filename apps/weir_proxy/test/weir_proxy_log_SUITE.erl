%% The access log, events, counters, metrics and statistics of a proxy.
-module(weir_proxy_log_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [proxy/1, proxy/3, change/1, port/0, connect/1, name/1, echo/2]).
-import(weir_test_wait, [messages_of/1, next_message/0, patience/0, wait_for_end/1, wait_until/1]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        a_line_for_a_session,
        a_format_of_ones_own,
        a_log_by_syslog,
        a_line_for_a_client_without_a_server,
        a_killed_log_is_written_again,
        a_log_that_cannot_be_written,
        lines_that_the_disk_does_not_take_are_counted,
        a_pipe_that_nobody_reads,
        who_has_reset_a_session,
        who_has_ended_a_session,
        events,
        what_listeners_refuse_is_counted,
        counters_are_in_the_table,
        metrics,
        the_page,
        replies_are_measured,
        replies_of_each_server_are_measured
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([inets], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

end_per_testcase(_Case, _Config) ->
    _ = weir_event:detach(?MODULE),
    weir_proxy_test:end_case().

%%% The log.

a_line_for_a_session(Config) ->
    Server = ?SERVER:start("a"),
    [
        begin
            File = iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Format))),
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{
                log => #{file => File, format => Format}
            }),
            Socket = connect(Port),
            <<"a">> = name(Socket),
            {ok, {_, Mine}} = inet:sockname(Socket),
            ok = gen_tcp:close(Socket),
            ?waitEqual(1, lines(File)),
            {ok, Line} = file:read_file(File),
            case Format of
                json ->
                    {ok, #{<<"server">> := <<"a">>, <<"bytes_out">> := 2, <<"bytes_in">> := 0}} = weir_json:decode(
                        Line
                    );
                haproxy ->
                    Fields =
                        "^127[.]0[.]0[.]1:" ++ integer_to_list(Mine) ++
                            " \\[\\d\\d/[A-Z][a-z]{2}/\\d{4}:\\d\\d:\\d\\d:\\d\\d[.]\\d{3}\\]"
                            " front web/a \\d+/\\d+/\\d+ 2 -- \\d+/\\d+/\\d+/\\d+/0 0/0\n$",
                    ?assertMatch({match, _}, re:run(Line, Fields))
            end,
            ok = weir_proxy:stop(proxy)
        end
     || Format <- [haproxy, json]
    ].

a_format_of_ones_own(_Config) ->
    Log = fun(Format) ->
        weir_proxy_config:new(#{frontends => #{}, backends => #{}, log => #{file => "x", format => Format}})
    end,
    {ok, #{log := #{format := Format}}} = Log("%ci|%cp|%b/%s|%Tc|%B+%U|%ts|%%|%Ts.%ms"),
    Session = weir_proxy_test_session:new(#{
        client => {{10, 0, 0, 1}, 80}, backend => <<"b">>, server => <<"s">>, accepted => 1700000000042, connected => 7
    }),
    Statistics = #{
        a_to_b => #{bytes => 3}, b_to_a => #{bytes => 4}, duration_us => 5000, first_byte_us => 1, failed => b
    },
    Line = fun(Result) -> iolist_to_binary(weir_proxy_log_line:text(Format, Session, Result, Statistics)) end,
    ?assertEqual(<<"10.0.0.1|80|b/s|7|4+3|SD|%|1700000000.042\n">>, Line({error, econnreset})),
    [
        ?assertMatch(
            {error, {bad_option, [log, format], _, "haproxy, json, or text with the fields %Ts " ++ _}}, Log(Wrong)
        )
     || Wrong <- ["nothing", "%zz", "%", "%bi", "%Tq", "%ci%sslv", "%{+Q}s"]
    ],
    New = fun(Options) -> weir_proxy_config:new(#{frontends => #{}, backends => #{}, log => Options}) end,
    [
        ?assertMatch({error, {bad_option, [log], _, "one of file and syslog"}}, New(Wrong))
     || Wrong <- [#{}, #{file => "x", syslog => "127.0.0.1:514"}]
    ].

a_log_by_syslog(_Config) ->
    Server = ?SERVER:start("a"),
    Path = weir_proxy_test:path("syslog"),
    {ok, Udp} = gen_udp:open(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, UdpPort} = inet:port(Udp),
    {ok, Local} = gen_udp:open(0, [local, binary, {active, false}, {ifaddr, {local, Path}}]),
    [
        begin
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{
                log => #{syslog => Where, format => "%b/%s %ts"}
            }),
            Socket = connect(Port),
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket),
            {ok, {_, _, Line}} = gen_udp:recv(Receiver, 0, patience()),
            ?assertMatch(
                {match, _},
                re:run(Line, "^<134>[A-Z][a-z]{2} [ \\d]\\d \\d\\d:\\d\\d:\\d\\d weir-proxy\\[\\d+\\]: web/a --\n$")
            ),
            ok = weir_proxy:stop(proxy)
        end
     || {Where, Receiver} <- [
            {iolist_to_binary(["127.0.0.1:", integer_to_list(UdpPort)]), Udp}, {<<"unix:", Path/binary>>, Local}
        ]
    ].

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
        _ = [?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())) || _ <- lists:seq(1, Count)],
        ?waitEqual(Count, lines(File)),
        ok = weir_proxy:stop(proxy),
        {ok, Text} = file:read_file(File),
        Text
    end,
    Fields = fun(Text, Route, State, Retries) ->
        ?assertMatch(
            {match, _},
            re:run(Text, ["\\] ", Route, "/<NOSRV> \\d+/-1/\\d+ 0 ", State, " \\d+/\\d+/0/0/", Retries, " 0/0\n"])
        )
    end,
    Fields(Lines("refused", #{retries => 1, connect_timeout => 10}, [], 1), "front web", "SC", "1"),
    Fields(Lines("none", #{servers => []}, [], 1), "front web", "SC", "0"),
    Fields(Lines("rejected", #{}, [#{from => "127.0.0.1", reject => true}], 2), "front front", "PR", "0").

%% At first the file cannot be opened again, then it can.
a_killed_log_is_written_again(Config) ->
    Server = ?SERVER:start("a"),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "logs"),
    Moved = Directory ++ ".moved",
    File = iolist_to_binary(filename:join(Directory, "killed")),
    ok = filelib:ensure_dir(File),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{log => #{file => File}}),
    ok = file:rename(Directory, Moved),
    {ok, {Log, _, _}} = weir_proxy_store:saved({log, proxy}),
    exit(Log, kill),
    _ = wait_for_end(Log),
    ok = file:rename(Moved, Directory),
    wait_until(fun() -> {ok, {Pid, _, _}} = weir_proxy_store:saved({log, proxy}), is_process_alive(Pid) end),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    ok = gen_tcp:close(Socket),
    ?waitEqual(1, lines(File)).

a_log_that_cannot_be_written(Config) ->
    File = iolist_to_binary(filename:join([proplists:get_value(priv_dir, Config), "nowhere", "log"])),
    Error = weir_proxy:start(proxy, #{frontends => #{}, backends => #{}, log => #{file => File}}),
    ?assertEqual({error, {log, File, enoent}}, Error),
    ?assertEqual(
        <<"cannot write the log ", File/binary, ": no such file or directory">>,
        iolist_to_binary(weir_proxy_file:explain(element(2, Error)))
    ).

lines_that_the_disk_does_not_take_are_counted(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{
        log => #{file => "/dev/full"}
    }),
    [
        begin
            Socket = connect(Port),
            <<"a">> = name(Socket),
            ok = gen_tcp:close(Socket)
        end
     || _ <- lists:seq(1, 5)
    ],
    ?waitMatch({ok, #{log_dropped := 5}}, weir_proxy:info(proxy)),
    ?assertMatch(
        {_, _},
        binary:match(iolist_to_binary(weir_proxy_metrics:text()), <<"\nhaproxy_process_dropped_logs_total 5\n">>)
    ).

%% Sessions, changes and the end of the proxy do not wait for the log.
a_pipe_that_nobody_reads(Config) ->
    Pipe = filename:join(proplists:get_value(priv_dir, Config), "pipe"),
    "" = os:cmd("mkfifo " ++ Pipe),
    %% Opens the pipe and reads nothing, until the port is closed. Without a reader the log cannot be opened.
    Reader = open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", "exec cat 3< \"$0\"", Pipe]}]),
    Server = ?SERVER:start("a"),
    Log = #{log => #{file => Pipe, format => iolist_to_binary(["%ci", lists:duplicate(4096, $.)])}},
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, Log),
    Asked = fun() ->
        Socket = connect(Port),
        <<"a">> = name(Socket),
        ok = gen_tcp:close(Socket)
    end,
    %% More than a pipe holds.
    [Asked() || _ <- lists:seq(1, 40)],
    {ok, {Writer, _, _}} = weir_proxy_store:saved({log, proxy}),
    _ = messages_of(Writer),
    {ok, {Process, _, _}} = weir_proxy_store:saved({proxy, proxy}),
    #{frontends := Frontends, backends := Backends} = config(Server),
    ?assertMatch(
        {error, {log, _, timeout}},
        weir_proxy:change(proxy, maps:merge(#{frontends => Frontends, backends => Backends}, Log))
    ),
    ?assertMatch({ok, {Process, _, _}}, weir_proxy_store:saved({proxy, proxy})),
    Asked(),
    ok = weir_proxy:stop(proxy),
    true = port_close(Reader),
    ok.

config(Server) ->
    #{
        frontends => #{front => #{listen => ["127.0.0.1:0"], backend => web}},
        backends => #{web => #{servers => [#{name => a, address => ?SERVER:address(Server)}]}}
    }.

who_has_ended_a_session(Config) ->
    Server = ?SERVER:start("a", [silent]),
    [
        begin
            File = iolist_to_binary(
                filename:join(proplists:get_value(priv_dir, Config), "ended-" ++ binary_to_list(State))
            ),
            Backend = #{
                servers => [#{name => a, address => ?SERVER:address(Server)}],
                on_down => close,
                health => #{fall => 1, interval => "1h"}
            },
            Port = proxy(Backend, #{}, #{log => #{file => File, format => "%b/%s %ts %B"}}),
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, <<"x">>),
            {ok, <<"x">>} = gen_tcp:recv(Socket, 1, patience()),
            ?waitEqual(1, length(weir_proxy:sessions(proxy))),
            _ = End(),
            ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience())),
            ?waitEqual(1, lines(File)),
            ?assertEqual({ok, <<"web/a ", State/binary, " 1\n">>}, file:read_file(File)),
            ok = weir_proxy:stop(proxy)
        end
     || {State, End} <- [
            %% As the timer of `longest_life' does.
            {<<"cD">>, fun() ->
                [Session] = weir_proxy_sessions:list(proxy),
                weir_proxy_sessions:end_later(element(2, Session), 1)
            end},
            {<<"KD">>, fun() -> weir_proxy:close_sessions(proxy, web, a) end},
            {<<"DD">>, fun() ->
                [{_, Pid, _, _}] = supervisor:which_children(weir_proxy_backends),
                Pid ! {weir_proxy_check, <<"a">>, {error, timeout}, 1}
            end}
        ]
    ].

who_has_reset_a_session(Config) ->
    Server = ?SERVER:start("a", [silent]),
    [
        begin
            File = iolist_to_binary(filename:join(proplists:get_value(priv_dir, Config), State)),
            Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}, #{}, #{
                log => #{file => File, format => json}
            }),
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, <<"x">>),
            {ok, <<"x">>} = gen_tcp:recv(Socket, 1, patience()),
            ok = Reset(Socket),
            ?waitEqual(1, lines(File)),
            {ok, Line} = file:read_file(File),
            ?assertMatch({ok, #{<<"state">> := State}}, weir_json:decode(Line)),
            ok = weir_proxy:stop(proxy)
        end
     || {State, Reset} <- [
            {<<"CD">>, fun(Socket) ->
                ok = inet:setopts(Socket, [{linger, {true, 0}}]),
                gen_tcp:close(Socket)
            end},
            {<<"SD">>, fun(Socket) -> gen_tcp:send(Socket, <<"reset me">>) end}
        ]
    ].

events(_Config) ->
    Server = ?SERVER:start("a"),
    Test = self(),
    Names = [[weir, proxy, What] || What <- [session, refuse, server]],
    ok = weir_event:attach_many(
        ?MODULE, Names, fun(Name, Measured, About, _) -> Test ! {lists:last(Name), Measured, About} end, none
    ),
    Port = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    {ok, Mine} = inet:sockname(Socket),
    ok = gen_tcp:close(Socket),
    {session, #{bytes_in := 0, bytes_out := 2, duration := _, queued := 0, connected := _}, Session} = next_message(),
    ?assertEqual(
        #{
            proxy => proxy,
            frontend => <<"front">>,
            backend => <<"web">>,
            server => <<"a">>,
            peer => Mine,
            reason => normal
        },
        Session
    ),
    ok = weir_proxy:drain(proxy, web, a),
    ?assertEqual(
        {server, #{count => 1}, #{
            proxy => proxy, backend => <<"web">>, server => <<"a">>, before => up, state => drain
        }},
        next_message()
    ),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?assertMatch({refuse, #{count := 1, queued := 0}, #{backend := <<"web">>, reason := none}}, next_message()).

counters_are_in_the_table(_Config) ->
    Server = ?SERVER:start("a"),
    _ = proxy(#{servers => [#{name => a, address => ?SERVER:address(Server)}]}),
    {ok, #{frontends := #{<<"front">> := Front}, backends := #{<<"web">> := Back = #{servers := [One]}}}} =
        weir_proxy:info(proxy),
    [
        ?assertEqual(
            [Name || #{subject := Of, name := Name} <- weir_proxy_counters:table(), Of =:= Subject],
            [Name || {Name, Value} <- weir_proxy_counters:values(Subject, Info), is_integer(Value)]
        )
     || {Subject, Info} <- [{proxy_frontend, Front}, {proxy_backend, Back}, {proxy_server, One}]
    ].

what_listeners_refuse_is_counted(_Config) ->
    Server = ?SERVER:start("a"),
    Backend = #{servers => [#{name => a, address => ?SERVER:address(Server)}]},
    Counted = fun(Frontend, Said, Wanted) ->
        Port = proxy(Backend, Frontend, #{}),
        %% The connection may be reset before connect returns.
        case gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, Said),
                ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience()));
            {error, econnreset} -> ok
        end,
        ?waitEqual(Wanted, refused()),
        Text = iolist_to_binary(weir_proxy_metrics:text()),
        ok = weir_proxy:stop(proxy),
        Text
    end,
    Denied = Counted(#{deny => ["127.0.0.1"]}, "x", #{denied => 1, failed_headers => 0}),
    ?assertMatch({_, _}, binary:match(Denied, <<"\nhaproxy_frontend_denied_connections_total{proxy=\"front\"} 1\n">>)),
    Failed = Counted(#{proxy_protocol => true}, "GET / HTTP/1.1\r\n\r\n", #{denied => 0, failed_headers => 1}),
    ?assertMatch({_, _}, binary:match(Failed, <<"\nweir_proxy_frontend_failed_headers_total{proxy=\"front\"} 1\n">>)).

refused() ->
    {ok, #{frontends := #{<<"front">> := Numbers}}} = weir_proxy:info(proxy),
    maps:with([denied, failed_headers], Numbers).

metrics(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{name => <<"a\"b">>, address => ?SERVER:address(Server)}]}),
    Socket = connect(Port),
    <<"a">> = name(Socket),
    ?waitEqual(1, length(weir_proxy:sessions(proxy))),
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
    Port = weir_test_port:claim(),
    Server = ?SERVER:start("a"),
    Address = ["127.0.0.1:", integer_to_list(Port)],
    _ = proxy(#{servers => [#{name => <<"<a>">>, address => ?SERVER:address(Server)}]}, #{}, #{
        statistics => iolist_to_binary(Address)
    }),
    Get = fun(Path) ->
        {ok, {{_, 200, _}, _, Body}} = httpc:request(get, {lists:flatten(["http://", Address, Path]), []}, [], [
            {body_format, binary}
        ]),
        Body
    end,
    ?assertNotEqual(nomatch, binary:match(Get("/"), <<"&lt;a>">>)),
    ok = weir_proxy:start(second, #{frontends => #{}, backends => #{web => #{servers => []}}}),
    %% Only its own metrics, although the other proxy has the same names.
    ?assertMatch([_], binary:matches(Get("/metrics"), <<"haproxy_backend_current_queue{proxy=\"web\"}">>)),
    ?assertNotEqual(nomatch, binary:match(Get("/metrics"), <<"haproxy_server_status">>)),
    ?assertMatch({ok, #{<<"backends">> := _}}, weir_json:decode(Get("/info"))).

%% The option of a frontend is turned on and off by a change.
replies_are_measured(_Config) ->
    Server = ?SERVER:start("a"),
    Given = fun(Measure) ->
        #{
            frontends => #{front => #{listen => "127.0.0.1:0", backend => web, measure => Measure}},
            backends => #{web => #{servers => [?SERVER:address(Server)]}}
        }
    end,
    ok = weir_proxy:start(proxy, Given(true)),
    [Listener] = weir:listeners(),
    Socket = connect(port()),
    <<"a">> = name(Socket),
    [<<"x">> = echo(Socket, <<"x">>) || _ <- lists:seq(1, 5)],
    ?waitMatch(#{replies := 5}, weir:latency(Listener)),
    ok = weir_proxy:change(proxy, Given(false)),
    ?assertMatch(#{measured := false}, weir:latency(Listener)).

%% The option of a backend. `weir_scope' shows differences of the same counters.
replies_of_each_server_are_measured(_Config) ->
    Servers = [#{name => Name, address => ?SERVER:address(?SERVER:start(atom_to_list(Name)))} || Name <- [a, b]],
    Port = proxy(#{servers => Servers, measure => true}),
    Sockets = [{name(Socket), Socket} || Socket <- [connect(Port), connect(Port)]],
    Ask = fun(Name, Times) ->
        {Name, Socket} = lists:keyfind(Name, 1, Sockets),
        [<<"x">> = echo(Socket, <<"x">>) || _ <- lists:seq(1, Times)]
    end,
    {ok, View} = weir_scope:open(node(), #{}),
    _ = [Ask(<<"a">>, 3), Ask(<<"b">>, 2)],
    Seen = fun() ->
        maps:map(fun(_, #{replies := Replies}) -> Replies end, maps:get(<<"web">>, weir_proxy:latency(proxy)))
    end,
    ?waitEqual(#{<<"a">> => 3, <<"b">> => 2}, Seen()),
    {ok, [#{name := <<"a">>, replies := 3, reply_ns := Time}, #{replies := 2}]} = weir_proxy:servers(proxy, web),
    ?assert(Time > 0),
    ?assertNotEqual(
        nomatch,
        binary:match(
            iolist_to_binary(weir_proxy_metrics:text()),
            <<"\nweir_proxy_server_reply_seconds_count{proxy=\"web\",server=\"a\"} 3\n">>
        )
    ),
    ?waitEqual([{<<"a">>, 3}, {<<"b">>, 2}], sampled(View)),
    ok = weir_scope:close(View),
    ok = change(#{servers => Servers}),
    ?assertEqual(#{}, weir_proxy:latency(proxy)),
    ?assertEqual(#{}, weir_proxy:latency(nobody)).

sampled(View) ->
    {ok, #{weir := #{servers := Sampled}}} = weir_scope:sample(View),
    [
        {Server, Replies}
     || #{proxy := proxy, backend := <<"web">>, server := Server, totals := #{replies := Replies}} <- Sampled
    ].

lines(File) ->
    {ok, Text} = file:read_file(File),
    length(binary:matches(Text, <<"\n">>)).
