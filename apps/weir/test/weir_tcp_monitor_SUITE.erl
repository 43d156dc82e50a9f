%% Monitors of sockets: `inet:monitor/1` and `inet:cancel_monitor/1`.
-module(weir_tcp_monitor_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, socket_pair/2, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [next_message/0, assert_no_message/0]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

cases() ->
    [
        monitor_tells_of_close,
        monitor_tells_of_the_end_of_the_peer,
        monitor_tells_of_the_end_of_the_owner,
        monitor_of_a_listener,
        monitor_by_another_process,
        monitor_of_a_closed_socket,
        several_monitors,
        cancel_monitor,
        monitor_of_something_else
    ].

monitor_tells_of_close(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Monitor = inet:monitor(Socket),
    ?assert(is_reference(Monitor)),
    assert_no_message(),
    ok = gen_tcp:close(Socket),
    ?assertMatch({'DOWN', Monitor, _, Socket, normal}, next_message()),
    assert_no_message().

monitor_tells_of_the_end_of_the_peer(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Monitor = inet:monitor(Socket),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertMatch({'DOWN', Monitor, _, Socket, normal}, next_message()),
    %% A passive socket exists until it is closed on this side, too.
    {Passive, Other} = socket_pair(Config, [binary, {active, false}]),
    Second = inet:monitor(Passive),
    ok = gen_tcp:close(Other),
    ?assertEqual({error, closed}, gen_tcp:recv(Passive, 0)),
    assert_no_message(),
    ok = gen_tcp:close(Passive),
    ?assertMatch({'DOWN', Second, _, Passive, normal}, next_message()).

monitor_tells_of_the_end_of_the_owner(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Monitor = inet:monitor(Socket),
    Owner = async(fun() -> ok end),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    ok = kill(Owner),
    ?assertMatch({'DOWN', Monitor, _, Socket, _}, next_message()).

monitor_of_a_listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    Monitor = inet:monitor(Listener),
    ok = gen_tcp:close(Listener),
    ?assertMatch({'DOWN', Monitor, _, Listener, normal}, next_message()).

monitor_by_another_process(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Self = self(),
    Watcher = async(fun() ->
        Monitor = inet:monitor(Socket),
        Self ! watching,
        receive
            {'DOWN', Monitor, _, Socket, Reason} -> Reason
        end
    end),
    ?assertEqual(watching, next_message()),
    ok = gen_tcp:close(Socket),
    ?assertEqual(normal, await(Watcher)),
    assert_no_message().

monitor_of_a_closed_socket(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Socket),
    Monitor = inet:monitor(Socket),
    ?assertMatch({'DOWN', Monitor, _, Socket, noproc}, next_message()),
    ?assertEqual(false, inet:cancel_monitor(Monitor)).

several_monitors(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    First = inet:monitor(Socket),
    Second = inet:monitor(Socket),
    Third = inet:monitor(Socket),
    ?assertEqual(true, inet:cancel_monitor(Second)),
    ok = gen_tcp:close(Socket),
    Downs = [next_message(), next_message()],
    ?assertEqual(lists:sort([First, Third]), lists:sort([element(2, Down) || Down <- Downs])),
    assert_no_message().

cancel_monitor(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Monitor = inet:monitor(Socket),
    ?assertEqual(true, inet:cancel_monitor(Monitor)),
    ?assertEqual(false, inet:cancel_monitor(Monitor)),
    ok = gen_tcp:close(Socket),
    assert_no_message(),
    ?assertEqual(false, inet:cancel_monitor(make_ref())).

monitor_of_something_else(_Config) ->
    [?assertError(badarg, inet:monitor(Other)) || Other <- [foo, 1, {'$inet', 1, 2}]],
    ?assertError(badarg, inet:cancel_monitor(foo)).
