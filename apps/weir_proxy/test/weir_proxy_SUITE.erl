%% Connections of a proxy: routing, servers that refuse, limits and queues.
-module(weir_proxy_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [
    start/2,
    proxy/1, proxy/2,
    change/1,
    state/1,
    queued/0,
    busy_address/1,
    busy_server/0,
    refuse/1,
    connect/1,
    name/1,
    echo/2,
    until/2,
    wait_for_sessions/1,
    wait_for_state/2,
    wait_for_queue/1
]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, ways}, {group, servers}, {group, limits}].

groups() ->
    [
        {ways, [], [
            bytes_go_both_ways_and_half_closes_pass,
            pairs_of_streams_are_exact,
            both_families_on_a_port,
            unix_sockets_on_both_sides,
            a_proxy_header_goes_out,
            a_proxy_header_with_values_goes_out,
            a_proxy_header_comes_in,
            from_a_source_address
        ]},
        {servers, [], [
            round_robin_follows_the_weights,
            a_client_keeps_its_server_by_hash,
            a_server_that_refuses_is_skipped,
            no_server_closes_the_client,
            a_server_that_is_back_is_tried_again,
            a_backup_serves_when_the_others_are_gone,
            a_failing_server_is_left_alone, a_failing_server_is_tried_again,
            a_drained_server_keeps_its_connections,
            a_name_is_resolved, a_server_stays_at_an_address_of_its_name,
            changes_do_not_multiply_questions_for_a_name
        ]},
        {limits, [], [
            connections_above_the_limit_wait_in_order,
            a_wait_ends_with_its_timeout,
            a_queue_is_bounded,
            a_long_queue_is_as_cheap_as_a_short_one,
            a_place_of_a_failed_connection_is_given_on
        ]}
    ].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_event:detach(?MODULE),
    weir_proxy_test:end_case().

%%% Relaying.

bytes_go_both_ways_and_half_closes_pass(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)]})),
    Data = crypto:strong_rand_bytes(1_000_000),
    spawn_link(fun() -> ok = gen_tcp:send(Socket, Data), ok = gen_tcp:shutdown(Socket, write) end),
    ?assertEqual({ok, Data}, gen_tcp:recv(Socket, byte_size(Data), patience())),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())).

%% `make soak' runs 2,000 pairs.
pairs_of_streams_are_exact(_Config) ->
    Server = {_, Address} = weir_proxy_streams:start_server(),
    ok = weir_proxy_streams:run(proxy(#{servers => [Address]}), lists:seq(1, 60), 30),
    weir_proxy_streams:stop_server(Server).

both_families_on_a_port(_Config) ->
    case gen_tcp:listen(0, [inet6]) of
        {ok, Listen6} ->
            ok = gen_tcp:close(Listen6),
            Port = weir_test_port:claim(),
            Server = ?SERVER:start("a"),
            Listen = [lists:concat([Host, ":", Port]) || Host <- ["0.0.0.0", "[::]"]],
            ok = start(#{servers => [?SERVER:address(Server)]}, #{
                listen => Listen, rules => [#{from => "0.0.0.0/0", backend => web}], backend => undefined
            }),
            {ok, Four} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
            ?assertEqual({ok, <<"a\n">>}, gen_tcp:recv(Four, 2, patience())),
            %% No rule matches, so the connection is closed.
            {ok, Six} = gen_tcp:connect({0, 0, 0, 0, 0, 0, 0, 1}, Port, [inet6, binary, {active, false}]),
            ?assertEqual({error, closed}, gen_tcp:recv(Six, 0, patience()));
        {error, _} ->
            {skip, "no IPv6"}
    end.

unix_sockets_on_both_sides(_Config) ->
    [Front, Back] = [weir_proxy_test:path(Name) || Name <- ["front", "back"]],
    _ = ?SERVER:start("a", [{path, Back}]),
    ok = start(#{servers => [<<"unix:", Back/binary>>]}, #{listen => [<<"unix:", Front/binary>>]}),
    {ok, Socket} = gen_tcp:connect({local, Front}, 0, [binary, {active, false}]),
    ?assertEqual({ok, <<"a\n">>}, gen_tcp:recv(Socket, 2, patience())).

a_proxy_header_goes_out(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    [
        begin
            Port = proxy(#{servers => [?SERVER:address(Server)], send_proxy => Version}),
            Socket = connect(Port),
            {ok, {_, Mine}} = inet:sockname(Socket),
            ok = gen_tcp:send(Socket, <<"hello">>),
            {ok, Header, <<"hello">>} = weir_proxy_protocol:parse(until(Socket, <<"hello">>)),
            ?assertMatch(
                #{src_address := {127, 0, 0, 1}, src_port := Mine, dest_address := {127, 0, 0, 1}, dest_port := Port},
                Header
            ),
            ok = weir_proxy:stop(proxy)
        end
     || Version <- [v1, v2]
    ].

a_proxy_header_with_values_goes_out(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)], send_proxy => v2, unique_id => true})),
    ok = gen_tcp:send(Socket, <<"hello">>),
    {ok, #{unique_id := Unique}, <<"hello">>} = weir_proxy_protocol:parse(until(Socket, <<"hello">>)),
    ?assertEqual(32, byte_size(Unique)).

a_proxy_header_comes_in(_Config) ->
    Server = ?SERVER:start("a", [silent]),
    Socket = connect(proxy(#{servers => [?SERVER:address(Server)], send_proxy => v1}, #{proxy_protocol => true})),
    ok = gen_tcp:send(Socket, <<"PROXY TCP4 10.1.2.3 10.3.2.1 1111 80\r\nhello">>),
    ?assertEqual(<<"PROXY TCP4 10.1.2.3 10.3.2.1 1111 80\r\nhello">>, until(Socket, <<"hello">>)),
    [#{client := <<"10.1.2.3:1111">>}] = weir_proxy:sessions(proxy).

from_a_source_address(_Config) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Client = connect(proxy(#{servers => [{{127, 0, 0, 1}, Port}], source => <<"127.0.0.9">>})),
    {ok, Socket} = gen_tcp:accept(Listen, patience()),
    ?assertMatch({ok, {{127, 0, 0, 9}, _}}, inet:peername(Socket)),
    gen_tcp:close(Client).

%%% Servers.

round_robin_follows_the_weights(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(A), weight => 3}, #{address => ?SERVER:address(B), weight => 1}]
    }),
    Names = [name(connect(Port)) || _ <- lists:seq(1, 40)],
    ?assertEqual(30, length([Name || Name = <<"a">> <- Names])),
    ?assertEqual(10, length([Name || Name = <<"b">> <- Names])).

a_client_keeps_its_server_by_hash(_Config) ->
    Servers = [?SERVER:start(Name) || Name <- ["a", "b", "c"]],
    Port = proxy(#{servers => [?SERVER:address(Server) || Server <- Servers], balance => hash, hash_load => infinity}),
    ?assertMatch([_], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 20)])).

a_server_that_refuses_is_skipped(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{servers => [?SERVER:address(A), ?SERVER:address(B)]}),
    ok = ?SERVER:stop(A),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    {ok, Servers} = weir_proxy:servers(proxy, web),
    ?assertMatch([Errors] when Errors >= 1, [Errors || #{connection_errors := Errors} <- Servers, Errors > 0]).

no_server_closes_the_client(_Config) ->
    Server = ?SERVER:start("a"),
    Address = ?SERVER:address(Server),
    Port = proxy(#{servers => [Address], retries => 0}),
    ok = ?SERVER:stop(Server),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    wait_for_sessions(0).

a_server_that_is_back_is_tried_again(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [?SERVER:address(Server)], retries => 100, connect_timeout => 600}),
    ok = ?SERVER:stop(Server),
    Socket = connect(Port),
    _ = ?SERVER:start("again", [{port, ?SERVER:port(Server)}]),
    ?assertEqual(<<"again">>, name(Socket)).

a_backup_serves_when_the_others_are_gone(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [
            #{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B), priority => 1}
        ]
    }),
    ?assertEqual([<<"a">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 10)])),
    ok = weir_proxy:disable(proxy, web, a),
    ?assertEqual(<<"b">>, name(connect(Port))),
    ok = weir_proxy:enable(proxy, web, a),
    ?assertEqual(<<"a">>, name(connect(Port))).

a_failing_server_is_left_alone(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}],
        passive => #{fall => 2, back_off => <<"1h">>}
    }),
    ok = ?SERVER:stop(A),
    [?assertEqual(<<"b">>, name(connect(Port))) || _ <- lists:seq(1, 8)],
    wait_for_state(a, failing),
    Errors = fun() -> {ok, [#{connection_errors := Count}, _]} = weir_proxy:servers(proxy, web), Count end,
    Before = Errors(),
    [?assertEqual(<<"b">>, name(connect(Port))) || _ <- lists:seq(1, 8)],
    ?assertEqual(Before, Errors()).

%% The back-off ends at once.
a_failing_server_is_tried_again(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}],
        passive => #{fall => 1, back_off => 1}
    }),
    Test = self(),
    Told = fun(_, _, #{server := Server, state := State}, _) -> Test ! {Server, State} end,
    ok = weir_event:attach_many(?MODULE, [[weir, proxy, server]], Told, none),
    ok = ?SERVER:stop(A),
    [?assertEqual(<<"b">>, name(connect(Port))) || _ <- [1, 2]],
    ?assertEqual({<<"a">>, failing}, weir_test_wait:next_message()),
    _ = ?SERVER:start("a", [{port, ?SERVER:port(A)}]),
    wait_for_state(a, up),
    ?assertEqual({<<"a">>, up}, weir_test_wait:next_message()),
    ?assertEqual([<<"a">>, <<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])).

a_drained_server_keeps_its_connections(_Config) ->
    [A, B] = [?SERVER:start(Name) || Name <- ["a", "b"]],
    Port = proxy(#{
        servers => [#{name => a, address => ?SERVER:address(A)}, #{name => b, address => ?SERVER:address(B)}]
    }),
    Sockets = [{name(Socket), Socket} || Socket <- [connect(Port) || _ <- lists:seq(1, 4)]],
    ok = weir_proxy:drain(proxy, web, a),
    ?assertEqual([<<"b">>], lists:usort([name(connect(Port)) || _ <- lists:seq(1, 4)])),
    [?assertEqual(<<"still">>, echo(Socket, <<"still">>)) || {_, Socket} <- Sockets],
    ?assertEqual(drain, state(a)),
    2 = weir_proxy:close_sessions(proxy, web, a),
    [?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())) || {<<"a">>, Socket} <- Sockets].

a_name_is_resolved(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [iolist_to_binary(["localhost:", integer_to_list(?SERVER:port(Server))])]}),
    ?waitMatch({ok, [#{state := up}]}, weir_proxy:servers(proxy, web)),
    ?assertEqual(<<"a">>, name(connect(Port))).

%% DNS servers rotate their answers. Nothing listens on the second address.
a_server_stays_at_an_address_of_its_name(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [iolist_to_binary(["localhost:", integer_to_list(?SERVER:port(Server))])], retries => 0}),
    ?waitMatch({ok, [#{state := up}]}, weir_proxy:servers(proxy, web)),
    [{_, Backend, _, _}] = supervisor:which_children(weir_proxy_backends),
    Resolved = fun(Addresses) ->
        Backend ! {weir_proxy_resolved, <<"localhost">>, Addresses},
        {ok, [_]} = weir_proxy:servers(proxy, web)
    end,
    _ = Resolved([{127, 0, 0, 2}, {127, 0, 0, 1}]),
    ?assertEqual(<<"a">>, name(connect(Port))),
    _ = Resolved([{127, 0, 0, 2}]),
    ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())),
    _ = Resolved([{127, 0, 0, 1}, {127, 0, 0, 2}]),
    ?assertMatch({error, _}, gen_tcp:recv(connect(Port), 0, patience())),
    _ = Resolved([{127, 0, 0, 1}]),
    ?assertEqual(<<"a">>, name(connect(Port))).

%% A timer that fires resolves once and starts the next one. If several changes have each started a timer, only the
%% last counts.
changes_do_not_multiply_questions_for_a_name(_Config) ->
    Backend = #{servers => ["localhost:1"], resolve_interval => <<"1h">>},
    _ = proxy(Backend),
    [{_, Pid, _, _}] = supervisor:which_children(weir_proxy_backends),
    1 = erlang:trace_pattern({erlang, start_timer, 3}, [{[3_600_000, '_', resolve], [], [{return_trace}]}], []),
    1 = erlang:trace_pattern({weir_proxy_resolver, resolve, 1}, true, []),
    1 = erlang:trace(Pid, true, [call]),
    [ok = change(Backend#{retries => N}) || N <- lists:seq(1, 5)],
    Timers = [timer_of_question(Pid) || _ <- lists:seq(1, 5)],
    [Pid ! {timeout, Timer, resolve} || Timer <- Timers],
    _ = timer_of_question(Pid),
    {ok, [_]} = weir_proxy:servers(proxy, web),
    1 = erlang:trace(Pid, false, [call]),
    weir_test_wait:assert_no_message().

%% Each lookup comes before its timer starts.
timer_of_question(Pid) ->
    {trace, Pid, call, {weir_proxy_resolver, resolve, [<<"localhost">>]}} = weir_test_wait:next_message(),
    {trace, Pid, call, {erlang, start_timer, [_, _, _]}} = weir_test_wait:next_message(),
    {trace, Pid, return_from, {erlang, start_timer, 3}, Timer} = weir_test_wait:next_message(),
    Timer.

%%% Limits.

connections_above_the_limit_wait_in_order(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 10 * patience()
    }),
    First = connect(Port),
    <<"a">> = name(First),
    Waiting = [
        begin
            Socket = connect(Port),
            wait_for_queue(N),
            Socket
        end
     || N <- [1, 2, 3]
    ],
    lists:foldl(
        fun(Next, Before) ->
            ?assertEqual({error, timeout}, gen_tcp:recv(Next, 0, 20)),
            ok = gen_tcp:close(Before),
            ?assertEqual(<<"a">>, name(Next)),
            Next
        end,
        First,
        Waiting
    ),
    {ok, [#{max_sessions := 1}]} = weir_proxy:servers(proxy, web).

%% The second client waits for the place of the first, which never gets a connection. The second gets none either, and
%% is closed.
a_place_of_a_failed_connection_is_given_on(_Config) ->
    Busy = busy_server(),
    Server = #{address => busy_address(Busy), max_connections => 1},
    Port = proxy(#{
        servers => [Server], connect_timeout => 10 * patience(), retries => 0, queue_timeout => 10 * patience()
    }),
    First = connect(Port),
    ?waitMatch({ok, [#{current_sessions := 1}]}, weir_proxy:servers(proxy, web)),
    Second = connect(Port),
    wait_for_queue(1),
    ok = refuse(Busy),
    [?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())) || Socket <- [First, Second]].

a_wait_ends_with_its_timeout(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{servers => [#{address => ?SERVER:address(Server), max_connections => 1}], queue_timeout => 50}),
    First = connect(Port),
    <<"a">> = name(First),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?assertEqual(0, queued()),
    ?assertEqual(<<"x">>, echo(First, <<"x">>)).

%% Many clients come at once, and all of them time out at once.
a_long_queue_is_as_cheap_as_a_short_one(_Config) ->
    _ = proxy(#{servers => [], queue_timeout => 500}),
    Backend = element(3, weir_proxy_store:backend(proxy, <<"web">>)),
    Reductions = fun() ->
        {reductions, Count} = process_info(Backend, reductions),
        Count
    end,
    Before = Reductions(),
    Waiting = [spawn_monitor(fun() -> exit(weir_proxy_backend:wait(Backend, none)) end) || _ <- lists:seq(1, 3000)],
    [
        receive
            {'DOWN', Monitor, _, _, Reason} -> ?assertEqual({error, queue_timeout}, Reason)
        after patience() -> ct:fail(timeout)
        end
     || {_, Monitor} <- Waiting
    ],
    ?assertEqual(0, queued()),
    ?assert(Reductions() - Before < 1000 * length(Waiting), Reductions() - Before).

a_queue_is_bounded(_Config) ->
    Server = ?SERVER:start("a"),
    Port = proxy(#{
        servers => [#{address => ?SERVER:address(Server), max_connections => 1}],
        max_queue => 1,
        queue_timeout => 10 * patience()
    }),
    <<"a">> = name(connect(Port)),
    _Waiting = connect(Port),
    wait_for_queue(1),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())).
