%% Reactors and their schedulers: bound reactors, and schedulers that go offline. Runs on another machine with four
%% schedulers.
-module(weir_reactor_schedulers_SUITE).
-behaviour(weir_reactor).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1]).
-import(weir_test_wait, [wait_until/1, recv_exactly/2]).
-import(weir_test_streams, [start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_test_machine, [on_machine/3]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        bound_reactors_are_bound,
        soft_reactors_serve_while_schedulers_go_offline,
        bound_reactors_stand_still_and_go_on
    ].

%% Separate threads poll the descriptors of `enif_select', so that on older VMs they do not depend on the pollers of
%% schedulers.
init_per_suite(Config) ->
    [{machine, weir_test_machine:start("", ["+S", "4:4", "+IOs", "false"])} | Config].

end_per_suite(Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

%%% A reactor that echoes, and says on which scheduler it runs.

init(_Socket, _Args) -> {ok, no_state}.

handle_data(_Socket, <<"where?">>, State) -> {send, <<(erlang:system_info(scheduler_id)):8>>, State};
handle_data(_Socket, Data, State) -> {send, Data, State}.

handle_close(_Socket, _Reason, State) -> {ok, State}.

start(Affinity) ->
    %% Cleans up after an earlier case that failed.
    _ = weir:stop_listener(?MODULE),
    ok = weir_test_schedulers:set_online(4),
    %% Weir notices a change within a quarter of a second, and bound reactors stay on their first scheduler.
    wait_until(fun() -> [Scheduler || #{scheduler := Scheduler} <- weir:pollsets()] =:= [1, 2, 3, 4] end),
    Options = #{ip => ?LOOPBACK, reactor => #{affinity => Affinity}},
    {ok, _} = weir:start_listener(?MODULE, Options, ?MODULE, no_args),
    weir:get_port(?MODULE).

stop() ->
    ok = weir:stop_listener(?MODULE),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% Opens connections until each scheduler has one, and asks each for its scheduler.
one_on_each(Port, Found) when map_size(Found) < 4 ->
    Peer = connect_raw(Port),
    one_on_each(Port, Found#{where(Peer) => Peer});
one_on_each(_Port, Found) ->
    Found.

where(Peer) ->
    ok = gen_tcp:send(Peer, "where?"),
    <<Scheduler>> = recv_exactly(Peer, 1),
    Scheduler.

bound_reactors_are_bound(Config) ->
    on_machine(?MODULE, ask_bound_reactors, Config).

ask_bound_reactors(_Config) ->
    Port = start(bound),
    Peers = one_on_each(Port, #{}),
    Busy = [spawn_link(fun Spin() -> Spin() end) || _ <- lists:seq(1, 4)],
    [?assertEqual(Scheduler, where(Peer)) || _ <- lists:seq(1, 3), {Scheduler, Peer} <- maps:to_list(Peers)],
    process_flag(trap_exit, true),
    [exit(Pid, kill) || Pid <- Busy],
    stop().

%% They move to online schedulers with all their connections, and get new ones.
soft_reactors_serve_while_schedulers_go_offline(Config) ->
    on_machine(?MODULE, change_schedulers_under_soft_reactors, Config).

change_schedulers_under_soft_reactors(_Config) ->
    Port = start(soft),
    Streams = start_streams(Port, 12),
    lists:foreach(fun(Online) ->
        ok = weir_test_schedulers:set_online(Online),
        assert_streams_go_on(Streams),
        New = start_streams(Port, 8),
        assert_streams_go_on(New),
        stop_streams(New)
    end, [2, 1, 4, 1, 3, 4]),
    stop_streams(Streams),
    stop().

%% As documented: no byte is lost, and no connection moves.
bound_reactors_stand_still_and_go_on(Config) ->
    on_machine(?MODULE, change_schedulers_under_bound_reactors, Config).

change_schedulers_under_bound_reactors(_Config) ->
    Port = start(bound),
    #{1 := First, 4 := Last} = one_on_each(Port, #{}),
    Leaving = [Poller || #{pollset := Pollset, poller := Poller} <- weir:pollsets(), Pollset > 2],
    _ = erlang:system_flag(schedulers_online, 2),
    %% All schedulers are online again for a moment, in which the suspended pollers end.
    ?waitEqual([], [Poller || Poller <- processes(), lists:member(Poller, Leaving)]),
    ?waitEqual({undefined, 2}, {whereis(weir_schedulers), erlang:system_info(schedulers_online)}),
    lists:foreach(fun(N) ->
        ok = gen_tcp:send(First, <<N:32>>),
        <<N:32>> = recv_exactly(First, 4),
        ok = gen_tcp:send(Last, <<N:32>>)
    end, lists:seq(1, 100)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Last, 4, 0)),
    ok = weir_test_schedulers:set_online(4),
    ?assertEqual(<<<<N:32>> || N <- lists:seq(1, 100)>>, recv_exactly(Last, 400)),
    stop().
