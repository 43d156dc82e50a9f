%% Listeners have a reactor for each online scheduler, and follow changes of their number. Runs on a machine with
%% eight schedulers, two of them online at first.
-module(weir_reactor_online_SUITE).
-behaviour(weir_reactor).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_socket.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_listener_test, [connect/1, handler/1, is_served/1]).
-import(weir_online_test, [
    change_under/1, listening/0, one_on_each/3, online/1, pollsets_of/1, schedulers_of_reactors/0, used/0
]).
-import(weir_test_machine, [on_machine/3]).
-import(weir_test_peer, [keep/1]).
-import(weir_test_streams, [assert_streams_go_on/1, start_streams/2, stop_streams/1]).
-import(weir_test_wait, [patience/0]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        reactors_follow,
        connections_of_bound_reactors_wait_and_new_ones_do_not,
        no_connection_of_reactors_is_lost_while_schedulers_come_and_go,
        a_reactor_that_is_killed_has_a_successor_with_all_its_sockets,
        a_reactor_begins_where_a_scheduler_is_online,
        a_connection_leaves_a_reactor_for_a_scheduler_that_is_online
    ].

init_per_suite(Config) ->
    [{machine, weir_online_test:start_machine()} | Config].

end_per_suite(Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

init_per_testcase(_Case, Config) ->
    ok = on_machine(weir_online_test, two_online, Config),
    Config.

end_per_testcase(_Case, _Config) -> ok.

start(Options) ->
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOOPBACK}, handler(reactor), args),
    weir:get_port(?MODULE).

reactors_follow(Config) -> on_machine(?MODULE, follow_with_reactors, Config).

follow_with_reactors(_Config) ->
    Port = start(#{}),
    ?assertEqual({2, [1, 2]}, {length(listening()), schedulers_of_reactors()}),
    Streams = streams_in(2, Port, start_streams(Port, 8)),
    ok = online(4),
    ?waitEqual({4, [1, 2, 3, 4]}, {length(listening()), schedulers_of_reactors()}),
    More = streams_in(4, Port, Streams),
    ok = online(1),
    %% The other reactors keep their connections, and get no new ones.
    Had = wait_until_one_listens(),
    Most = start_streams(Port, 20) ++ More,
    assert_streams_go_on(Most),
    ?waitEqual(tl(Had), tl(connections_of_reactors())),
    ?assertEqual(hd(Had) + 20, hd(connections_of_reactors())),
    ok = online(4),
    ?waitEqual(4, length(lists:usort(pollsets_of(listening())))),
    ?assertEqual([1, 2, 3, 4], schedulers_of_reactors()),
    stop_streams(Most),
    ok = weir:stop_listener(?MODULE).

%% Connections of each reactor, in the order of their first schedulers.
connections_of_reactors() ->
    Reactors = lists:sort([{Scheduler, Reactor} || #{scheduler := Scheduler, reactor := Reactor} <- weir:reactors()]),
    [Connections || {_, Reactor} <- Reactors, {ok, #{connections := Connections}} <- [weir_reactor:info(Reactor)]].

%% Starts more streams until this many reactors have connections.
streams_in(Count, Port, Streams) ->
    assert_streams_go_on(Streams),
    case [Connections || Connections <- connections_of_reactors(), Connections > 0] of
        Serving when length(Serving) =:= Count -> Streams;
        _ -> streams_in(Count, Port, start_streams(Port, 1) ++ Streams)
    end.

%% Waits until all listening sockets are on the pollset of one reactor, which gets all new connections.
wait_until_one_listens() ->
    ?waitMatch([_], lists:usort(pollsets_of(listening()))),
    connections_of_reactors().

a_reactor_that_is_killed_has_a_successor_with_all_its_sockets(Config) -> on_machine(?MODULE, kill_reactor, Config).

kill_reactor(_Config) ->
    Port = start(#{}),
    ok = online(4),
    ?waitEqual([1, 2, 3, 4], schedulers_of_reactors()),
    ok = online(1),
    _ = wait_until_one_listens(),
    [First] = [Reactor || #{scheduler := 1, reactor := Reactor} <- weir:reactors()],
    exit(First, kill),
    ?waitMatch([_], [Reactor || #{scheduler := 1, reactor := Reactor} <- weir:reactors(), Reactor =/= First]),
    [is_served(connect(Port)) || _ <- lists:seq(1, 40)],
    ok = weir:stop_listener(?MODULE).

a_reactor_begins_where_a_scheduler_is_online(Config) -> on_machine(?MODULE, begin_reactors, Config).

begin_reactors(_Config) ->
    [
        begin
            {ok, Reactor} = weir_reactor:start_link(#{
                module => weir_listener_reactor, args => args, scheduler => 8, affinity => Affinity
            }),
            ?assertMatch([#{scheduler := 2}], [About || #{reactor := Pid} = About <- weir:reactors(), Pid =:= Reactor]),
            unlink(Reactor),
            exit(Reactor, shutdown)
        end
     || Affinity <- [soft, bound]
    ],
    ?waitEqual([], weir:reactors()).

a_connection_leaves_a_reactor_for_a_scheduler_that_is_online(Config) -> on_machine(?MODULE, leave_reactor, Config).

%% The callbacks of this module's reactors: a connection leaves the reactor on request.
init(_Socket, Test) -> {ok, Test}.

handle_data(_Socket, <<"leave">>, Test) -> {handoff, Test, Test};
handle_data(_Socket, Data, Test) -> {send, Data, Test}.

handle_close(_Socket, _Reason, Test) -> {ok, Test}.

leave_reactor(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOOPBACK}, ?MODULE, self()),
    ok = online(8),
    ?waitEqual(8, length(weir:reactors())),
    Peers = [is_served(connect(weir:get_port(?MODULE))) || _ <- lists:seq(1, 60)],
    ok = online(2),
    [
        begin
            ok = gen_tcp:send(Peer, <<"leave">>),
            receive
                {weir_reactor, handoff, Socket} ->
                    {ok, Socket} = keep({ok, Socket}),
                    ?assertEqual({ok, <<"leave">>}, gen_tcp:recv(Socket, 5))
            after patience() -> ct:fail(does_not_leave)
            end
        end
     || Peer <- Peers
    ],
    ?assertEqual([1, 2], used()),
    ok = weir:stop_listener(?MODULE).

connections_of_bound_reactors_wait_and_new_ones_do_not(Config) -> on_machine(?MODULE, wait_in_bound_reactors, Config).

wait_in_bound_reactors(_Config) ->
    ok = online(4),
    Port = start(#{reactor => #{affinity => bound}}),
    Peers = #{} = one_on_each(4, ?MODULE, #{}),
    ok = online(2),
    ?waitEqual(2, length(lists:usort(pollsets_of(listening())))),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    [ok = gen_tcp:send(Peer, <<"still">>) || Peer <- maps:values(Peers)],
    ok = online(4),
    [?assertEqual({ok, <<"still">>}, gen_tcp:recv(Peer, 5, patience())) || Peer <- maps:values(Peers)],
    ?waitEqual(4, length(lists:usort(pollsets_of(listening())))),
    ok = weir:stop_listener(?MODULE).

no_connection_of_reactors_is_lost_while_schedulers_come_and_go(Config) ->
    on_machine(?MODULE, change_reactors_under_connects, Config).

change_reactors_under_connects(_Config) ->
    ok = change_under(start(#{})),
    ok = weir:stop_listener(?MODULE).
