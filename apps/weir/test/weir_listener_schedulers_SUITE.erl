%% On which schedulers connections run, how they are balanced, and what happens without schedulers or descriptors.
-module(weir_listener_schedulers_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_listener_test, [connect/1, echo/2, handler/1, is_served/1, start/2, still_serves/1]).

-include("listener_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        connections_run_where_their_sockets_are,
        bound_processes_are_bound,
        descriptors_run_out,
        connections_migrate_while_data_flows,
        loads_are_balanced,
        schedulers_go_offline,
        listeners_stop_at_once_without_their_schedulers,
        a_killed_stop_leaves_the_schedulers_as_they_were,
        schedulers_are_set_while_a_listener_stops,
        reactors_begin_on_all_schedulers_that_are_online,
        few_connections_are_spread_over_reactors,
        a_reactor_that_stands_still_has_its_connections_later
    ].

connections_run_where_their_sockets_are(Config) ->
    Self = self(),
    Handler = fun(Socket = {_, _, Handle}, _) ->
        {ok, #{pollset := Pollset}} = weir_nif:info(Handle),
        Self ! {runs, Pollset, erlang:system_info(scheduler_id)},
        echo(Socket, [])
    end,
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => ?LOOPBACK, affinity => bound}, Handler, []),
    Port = weir:get_port(?config(name, Config)),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    [receive {runs, Pollset, Scheduler} -> ?assertEqual(Pollset, Scheduler) end || _ <- lists:seq(1, 20)].

bound_processes_are_bound(Config) ->
    Self = self(),
    Handler = fun(_Socket, _) -> Self ! {bound, process_flag(scheduler, 0), erlang:system_info(scheduler_id)} end,
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => ?LOOPBACK, affinity => bound}, Handler, []),
    _ = connect(weir:get_port(?config(name, Config))),
    receive {bound, Bound, Scheduler} -> ?assertEqual(Scheduler, Bound) end.

%% On another node with few descriptors.
descriptors_run_out(_Config) ->
    weir_test_node:on_node(?MODULE, with_few_descriptors, "ulimit -n 120;", ["+S", "2"]).

with_few_descriptors(Config) ->
    Self = self(),
    Tell = fun(Event, _, Metadata, _) -> Self ! {lists:last(Event), Metadata} end,
    ok = weir_event:attach_many(few, [[weir, listener, exhausted], [weir, listener, recover]], Tell, []),
    {ok, _} = weir:start_listener(few, #{ip => ?LOOPBACK}, handler(function), args),
    Port = weir:get_port(few),
    %% The clients use descriptors of the same node. When all are used, one more is freed for a client, and none is
    %% left for its connection.
    [Spare | Spares] = [open_file() || _ <- lists:seq(1, 5)],
    First = connect_all(Port, []),
    ok = file:close(Spare),
    Connected = connect_all(Port, First),
    receive
        {exhausted, #{name := few, reason := Reason}} -> ?assertEqual(emfile, Reason)
    after patience() -> ct:fail(not_told)
    end,
    {Sockets, Left} = with_one_that_waits(Port, Connected, Spares),
    lists:foreach(fun file:close/1, Left),
    [ok = weir_test_peer:reset(Socket) || Socket <- Sockets],
    receive {recover, #{name := few}} -> ok after patience() -> ct:fail(not_recovered) end,
    still_serves(Port),
    wait_until(fun() -> maps:get(connections, weir:info(few)) =:= 0 end),
    ok = weir_event:detach(few),
    ok = weir:stop_listener(few),
    Config.

%% Loading a module may have freed a descriptor for a moment, so that all were served. Then another client connects.
with_one_that_waits(Port, Sockets, Spares) ->
    case maps:get(connections, weir:info(few)) < length(Sockets) of
        true ->
            {Sockets, Spares};
        false ->
            ok = file:close(hd(Spares)),
            with_one_that_waits(Port, connect_all(Port, Sockets), tl(Spares))
    end.

open_file() ->
    {ok, File} = file:open(code:which(?MODULE), [read, raw]),
    File.

connect_all(Port, Sockets) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()) of
        {ok, Socket} -> connect_all(Port, [Socket | Sockets]);
        {error, _} -> Sockets
    end.

%% The streams check every byte in both directions. Each connection migrates itself with its process, and all are also
%% moved from outside.
connections_migrate_while_data_flows(Config) ->
    Pollsets = weir_pollsets:all(),
    Wander = fun Loop(Socket, Args) ->
        case gen_tcp:recv(Socket, 0) of
            {ok, Data} ->
                ok = gen_tcp:send(Socket, Data),
                _ = rand:uniform(4) =:= 1 andalso (ok = weir:migrate(Socket, rand:uniform(length(Pollsets)))),
                Loop(Socket, Args);
            {error, _} ->
                ok
        end
    end,
    Name = ?config(name, Config),
    {ok, _} = weir:start_listener(Name, #{ip => ?LOOPBACK}, Wander, []),
    Streams = weir_test_streams:start_streams(weir:get_port(Name), 4),
    [
        begin
            Connections = weir:connections(Name),
            [weir:migrate(Socket, rand:uniform(length(Pollsets))) || _ <- lists:seq(1, 10), {Socket, _} <- Connections],
            weir_test_streams:assert_streams_go_on(Streams)
        end
     || _ <- lists:seq(1, 50)
    ],
    weir_test_streams:stop_streams(Streams).

%% All connections begin on one pollset, and are distributed by their load.
loads_are_balanced(Config) ->
    Name = ?config(name, Config),
    Port = start(Config, #{balance => #{interval => 20, threshold => 20}}),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    [ok = weir:migrate(Socket, 1) || {Socket, _} <- weir:connections(Name)],
    case length(weir_pollsets:all()) of
        1 ->
            {skip, one_scheduler};
        _ ->
            wait_until(fun() ->
                [is_served(Socket) || Socket <- Sockets],
                Pollsets = [
                    P
                 || {{_, _, Handle}, _} <- weir:connections(Name), {ok, #{pollset := P}} <- [weir_nif:info(Handle)]
                ],
                length([P || P <- Pollsets, P =/= 1]) >= 4
            end)
    end.

schedulers_go_offline(Config) ->
    Port = start(Config, #{}),
    Online = erlang:system_info(schedulers_online),
    try
        erlang:system_flag(schedulers_online, 1),
        [still_serves(Port) || _ <- lists:seq(1, 20)],
        ok = weir_test_schedulers:set_online(Online),
        [still_serves(Port) || _ <- lists:seq(1, 20)]
    after
        ok = weir_test_schedulers:set_online(Online)
    end.

%% Listeners of separate supervisors stop at the same time.
listeners_stop_at_once_without_their_schedulers(_Config) ->
    weir_test_node:on_node(?MODULE, stop_without_schedulers, "unset ERL_FLAGS;", ["+S", "4:4"]).

%% The first listener sets all schedulers online. It ends while the second still waits for a process of a scheduler
%% that was offline.
stop_without_schedulers(_Config) ->
    Names = [one, other],
    Supervisors = [embedded([Name], #{shutdown => infinity, affinity => bound}, fun stubborn/2) || Name <- Names],
    [One, Other] = [bound_beyond(2, Name) || Name <- Names],
    ok = go_offline(2),
    [OneStops, OtherStops] = [
        begin
            Listener = weir_listener_names:whereis_name(Name),
            Monitor = stop_supervisor(Supervisor),
            wait_until(fun() -> is_waiting_for_all_schedulers(Listener) end),
            Monitor
        end
     || {Name, Supervisor} <- lists:zip(Names, Supervisors)
    ],
    [Pid ! finish || Pid <- One],
    ok = has_stopped(OneStops),
    ?assertEqual(4, erlang:system_info(schedulers_online)),
    [Pid ! finish || Pid <- Other],
    ok = has_stopped(OtherStops),
    ?assertEqual(2, erlang:system_info(schedulers_online)),
    4 = come_online(4).

%% Connects until a connection is bound to a scheduler above this number, and returns the processes of all.
bound_beyond(Scheduler, Name) ->
    _ = connect(weir:get_port(Name)),
    case receive_serving() of
        {Pid, Bound} when Bound > Scheduler -> [Pid];
        {Pid, _} -> [Pid | bound_beyond(Scheduler, Name)]
    end.

is_waiting_for_all_schedulers(Listener) ->
    {current_stacktrace, Stack} = process_info(Listener, current_stacktrace),
    lists:keymember(await_or_kill, 2, Stack).

a_killed_stop_leaves_the_schedulers_as_they_were(_Config) ->
    weir_test_node:on_node(?MODULE, killed_without_schedulers, "unset ERL_FLAGS;", ["+S", "4:4"]).

%% A connection ignores the request to end, so its listener waits with all schedulers online, and is then killed.
killed_without_schedulers(_Config) ->
    Supervisor = embedded([stubborn], #{shutdown => infinity}, fun stubborn/2),
    _ = connect(weir:get_port(stubborn)),
    {Stubborn, _} = receive_serving(),
    Listener = weir_listener_names:whereis_name(stubborn),
    ok = go_offline(2),
    Monitor = stop_supervisor(Supervisor),
    wait_until(fun() -> erlang:system_info(schedulers_online) =:= 4 end),
    exit(Listener, kill),
    wait_until(fun() -> erlang:system_info(schedulers_online) =:= 2 end),
    ok = has_stopped(Monitor),
    exit(Stubborn, kill),
    4 = come_online(4).

schedulers_are_set_while_a_listener_stops(_Config) ->
    weir_test_node:on_node(?MODULE, set_meanwhile, "unset ERL_FLAGS;", ["+S", "4:4"]).

set_meanwhile(_Config) ->
    Supervisor = embedded([stubborn], #{shutdown => infinity}, fun stubborn/2),
    _ = connect(weir:get_port(stubborn)),
    {Stubborn, _} = receive_serving(),
    ok = go_offline(2),
    Monitor = stop_supervisor(Supervisor),
    wait_until(fun() -> erlang:system_info(schedulers_online) =:= 4 end),
    _ = erlang:system_flag(schedulers_online, 3),
    wait_until(fun() -> erlang:system_info(schedulers_online) =:= 4 end),
    exit(Stubborn, kill),
    ok = has_stopped(Monitor),
    ?assertEqual(3, erlang:system_info(schedulers_online)),
    4 = come_online(4).

stubborn(_Socket, Test) ->
    process_flag(trap_exit, true),
    Test ! {serving, {self(), erlang:system_info(scheduler_id)}},
    receive finish -> ok end.

receive_serving() ->
    receive
        {serving, Serving} -> Serving
    after patience() -> ct:fail(not_served)
    end.

%% A listener under a supervisor that is not linked to the test.
embedded(Names, Options, Handler) ->
    Specs = [weir:child_spec(Name, Options#{ip => ?LOOPBACK}, Handler, self()) || Name <- Names],
    {ok, Supervisor} = weir_listener_supervisor:start_link(Specs),
    unlink(Supervisor),
    Supervisor.

stop_supervisor(Supervisor) ->
    Monitor = monitor(process, Supervisor),
    exit(Supervisor, shutdown),
    Monitor.

has_stopped(Monitor) ->
    receive
        {'DOWN', Monitor, process, _, _} -> ok
    after patience() -> ct:fail(does_not_stop)
    end.

%% Returns when the pollers have moved.
go_offline(Online) ->
    _ = erlang:system_flag(schedulers_online, Online),
    wait_until(fun() -> lists:usort([Home || #{scheduler := Home} <- weir:pollsets()]) =:= lists:seq(1, Online) end).

come_online(Online) ->
    ok = weir_test_schedulers:set_online(Online),
    erlang:system_info(schedulers_online).

%% Reactors stay on their first schedulers.
reactors_begin_on_all_schedulers_that_are_online(_Config) ->
    weir_test_node:on_node(?MODULE, reactors_begin, "unset ERL_FLAGS;", ["+S", "4:4"]).

%% The kernel chooses a listening socket by a hash of the addresses.
few_connections_are_spread_over_reactors(_Config) ->
    weir_test_node:on_node(?MODULE, spread, "unset ERL_FLAGS;", ["+S", "4:4"]).

spread(_Config) ->
    {ok, _} = weir:start_listener(spread, #{ip => ?LOOPBACK}, handler(reactor), args),
    Port = weir:get_port(spread),
    Connect = fun(_) ->
        Client = connect(Port),
        is_served(Client),
        Client
    end,
    Clients = lists:map(Connect, lists:seq(1, 16)),
    ?assertEqual([4, 4, 4, 4], of_each_reactor(spread)),
    %% A reactor that dies closes its connections, and its successor gets the next ones.
    Leaving = hd([Reactor || {_, Reactor} <- weir:connections(spread)]),
    true = exit(Leaving, kill),
    wait_until(fun() -> length(of_each_reactor(spread)) =:= 3 andalso length(weir:reactors()) =:= 4 end),
    More = lists:map(Connect, lists:seq(1, 4)),
    wait_until(fun() -> of_each_reactor(spread) =:= [4, 4, 4, 4] end),
    ok = weir:stop_listener(spread),
    lists:foreach(fun gen_tcp:close/1, Clients ++ More).

%% Other reactors give it connections while it is suspended, and the listening sockets are closed before it resumes.
a_reactor_that_stands_still_has_its_connections_later(_Config) ->
    weir_test_node:on_node(?MODULE, stand_still, "unset ERL_FLAGS;", ["+S", "4:4"]).

stand_still(_Config) ->
    {ok, _} = weir:start_listener(still, #{ip => ?LOOPBACK}, handler(reactor), args),
    Port = weir:get_port(still),
    {_, Reactor} = first_connection(Port),
    true = erlang:suspend_process(Reactor),
    Clients = [connect(Port) || _ <- lists:seq(1, 40)],
    wait_until(fun() ->
        #{connections := Accepted, backlog := Backlog} = weir:info(still),
        Accepted + Backlog =:= 1 + length(Clients) orelse {Accepted, Backlog}
    end),
    Given = [
        Peer
     || {Socket, Owner} <- weir:connections(still), Owner =:= Reactor, {ok, {_, Peer}} <- [weir_tcp:peername(Socket)]
    ],
    ?assertMatch([_, _ | _], Given),
    ok = weir:suspend_listener(still),
    true = erlang:resume_process(Reactor),
    %% The kernel resets what was left in the backlogs.
    [
        ?assert(has_an_answer(Client))
     || Client <- Clients, {ok, ClientPort} <- [inet:port(Client)], lists:member(ClientPort, Given)
    ],
    ok = weir:stop_listener(still).

has_an_answer(Client) ->
    gen_tcp:send(Client, <<"hello">>) =:= ok andalso gen_tcp:recv(Client, 5, patience()) =:= {ok, <<"hello">>}.

first_connection(Port) ->
    is_served(connect(Port)),
    [Connection] = weir:connections(still),
    Connection.

of_each_reactor(Name) ->
    Reactors = [Reactor || {_, Reactor} <- weir:connections(Name)],
    [length([one || Other <- Reactors, Other =:= Reactor]) || Reactor <- lists:usort(Reactors)].

reactors_begin(_Config) ->
    [
        begin
            ok = go_offline(2),
            4 = come_online(4),
            Options = #{ip => ?LOOPBACK, reactor => #{affinity => bound}},
            {ok, _} = weir:start_listener(bound, Options, handler(reactor), args),
            ?assertEqual([1, 2, 3, 4], lists:sort([Scheduler || #{scheduler := Scheduler} <- weir:reactors()])),
            ok = weir:stop_listener(bound)
        end
     || _ <- lists:seq(1, 5)
    ].
