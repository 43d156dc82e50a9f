%% Reactors and the schedulers that they run on: bound ones, and schedulers that go offline. All on a machine of their own
%% with four schedulers.
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

%% Descriptors of `enif_select' are polled by threads of their own, so that the pollers of an older VM's schedulers do not
%% have them.
init_per_suite(Config) ->
    [{machine, weir_test_machine:start("", ["+S", "4:4", "+IOs", "false"])} | Config].

end_per_suite(Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

%%% A reactor that sends back what comes, and says where it runs.

init(_Socket, _Args) -> {ok, no_state}.

handle_data(_Socket, <<"where?">>, State) -> {send, <<(erlang:system_info(scheduler_id)):8>>, State};
handle_data(_Socket, Data, State) -> {send, Data, State}.

handle_close(_Socket, _Reason, State) -> {ok, State}.

start(Affinity) ->
    %% What a case before has left when it failed.
    _ = weir:stop_listener(?MODULE),
    ok = weir_test_schedulers:set_online(4),
    %% A change is seen within a quarter of a second, and bound reactors stay where they begin.
    wait_until(fun() -> [Scheduler || #{scheduler := Scheduler} <- weir:pollsets()] =:= [1, 2, 3, 4] end),
    Options = #{ip => ?LOOPBACK, reactor => #{affinity => Affinity}},
    {ok, _} = weir:start_listener(?MODULE, Options, ?MODULE, no_args),
    weir:get_port(?MODULE).

stop() ->
    ok = weir:stop_listener(?MODULE),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% Connections until each scheduler has one, each asked where it is served.
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

%% They are taken to schedulers that are online, with all of their connections and with new ones.
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

%% As documented: no byte is lost, and none moves meanwhile.
bound_reactors_stand_still_and_go_on(Config) ->
    on_machine(?MODULE, change_schedulers_under_bound_reactors, Config).

change_schedulers_under_bound_reactors(_Config) ->
    Port = start(bound),
    #{1 := First, 4 := Last} = one_on_each(Port, #{}),
    Leaving = [Poller || #{pollset := Pollset, poller := Poller} <- weir:pollsets(), Pollset > 2],
    _ = erlang:system_flag(schedulers_online, 2),
    %% All are online once more for a moment, in which the pollers that stand still end.
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
