%% Reactors that are killed, alone and together with other processes.
-module(weir_reactor_deaths_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, reset/1, async/1, await/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [
    start/1, start_on/3, listen/1, client/1, stop/1, kill_reactor/1, told/1, recv_all/1, exchange/2
]).

-include("reactor_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, deaths}].

groups() ->
    [
        {deaths, [], [
            killed_reactor_closes_its_connections,
            killed_reactor_leaves_the_backlog,
            killed_while_data_flies,
            killed_again_and_again,
            killed_while_it_connects,
            closed_while_it_connects,
            killed_with_output_for_a_peer_that_sends,
            killed_in_a_callback,
            other_reactors_and_pollers_are_not_touched,
            handoffs_to_processes_that_die,
            anything_dies_at_any_moment,
            a_callback_that_does_not_return_holds_up_no_stop
        ]}
    ].

%%% Deaths.

killed_reactor_closes_its_connections(_Config) ->
    {Reactor, Port} = start(#{}),
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 300)],
    [exchange(Peer, "there") || Peer <- Peers],
    kill_reactor(Reactor),
    [?assertEqual(<<>>, recv_all(Peer)) || Peer <- Peers],
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

killed_reactor_leaves_the_backlog(_Config) ->
    {Listen, Port} = listen([]),
    First = start_on(Listen, #{}, #{}),
    exchange(connect_raw(Port), "first"),
    kill_reactor(First),
    %% These wait in the backlog.
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 20)],
    [ok = gen_tcp:send(Peer, "waits") || Peer <- Peers],
    Second = start_on(Listen, #{}, #{}),
    [?assertEqual(<<"waits">>, recv_exactly(Peer, 5)) || Peer <- Peers],
    exchange(connect_raw(Port), "second"),
    stop(Second).

killed_while_data_flies(_Config) ->
    {Reactor, Port} = start(#{}),
    Echoes = counters:new(1, []),
    Chatter = fun Chatter(Peer) ->
        case gen_tcp:send(Peer, binary:copy(<<"x">>, 10000)) of
            ok ->
                _ = gen_tcp:recv(Peer, 10000, patience()),
                ok = counters:add(Echoes, 1, 1),
                Chatter(Peer);
            {error, _} ->
                gen_tcp:close(Peer)
        end
    end,
    Chatters = [async(fun() -> Chatter(connect_raw(Port)) end) || _ <- lists:seq(1, 20)],
    %% All connections must be accepted: those in the backlog would not be closed.
    [{init, _} = told(init) || _ <- Chatters],
    wait_until(fun() -> counters:get(Echoes, 1) > 200 orelse {echoes, counters:get(Echoes, 1)} end),
    kill_reactor(Reactor),
    [ok = await(Each) || Each <- Chatters].

killed_again_and_again(_Config) ->
    {Listen, Port} = listen([]),
    lists:foreach(fun(_) ->
        Reactor = start_on(Listen, #{}, #{}),
        Peers = [connect_raw(Port) || _ <- lists:seq(1, 5)],
        [exchange(Peer, "there") || Peer <- Peers],
        kill_reactor(Reactor),
        wait_until(fun() -> weir_nif:abandoned() =:= [] end),
        [gen_tcp:close(Peer) || Peer <- Peers]
    end, lists:seq(1, 30)).

other_reactors_and_pollers_are_not_touched(_Config) ->
    {First, FirstPort} = start(#{}),
    {Second, SecondPort} = start(#{}),
    Peers = [connect_raw(SecondPort) || _ <- lists:seq(1, 20)],
    _Others = [connect_raw(FirstPort) || _ <- lists:seq(1, 20)],
    [exchange(Peer, "before") || Peer <- Peers],
    #{1 := {Poller, _}} = weir_pollsets:pollers(),
    exit(Poller, kill),
    kill_reactor(First),
    [exchange(Peer, "after") || Peer <- Peers],
    stop(Second).

killed_while_it_connects(_Config) ->
    Port = weir_test_peer:listener_with_full_backlog(),
    Reactor = client(#{}),
    %% These do not complete.
    [{ok, _} = weir_reactor:connect(Reactor, ?LOOPBACK, Port, []) || _ <- lists:seq(1, 10)],
    #{} = sys:get_state(Reactor),
    kill_reactor(Reactor),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

closed_while_it_connects(_Config) ->
    Port = weir_test_peer:listener_with_full_backlog(),
    Reactor = client(#{}),
    {ok, Socket} = weir_reactor:connect(Reactor, ?LOOPBACK, Port, []),
    %% It does not complete.
    #{} = sys:get_state(Reactor),
    ok = gen_tcp:close(Socket),
    ?assertEqual({not_connected, Socket, closed}, told(not_connected)),
    ?assertNot(lists:member(Socket, weir:sockets())),
    stop(Reactor).

%% Its output is still sent. The peer sends before it reads, and its data must be accepted: otherwise it would have to
%% wait for the time limit of peers that do not read.
killed_with_output_for_a_peer_that_sends(_Config) ->
    {Reactor, Port} = start(#{}),
    Bytes = rand:bytes(20_000_000),
    Peer = connect_raw(Port),
    Sender = async(fun() -> gen_tcp:send(Peer, Bytes) end),
    {init, Socket} = told(init),
    wait_until(fun() -> element(2, hd(element(2, {ok, _} = inet:getstat(Socket, [send_pend])))) > 0 end),
    kill_reactor(Reactor),
    _ = await(Sender),
    Echoed = recv_all(Peer),
    ?assert(byte_size(Echoed) > 0),
    ?assert(Echoed =:= binary:part(Bytes, 0, byte_size(Echoed))),
    wait_until(fun() -> not lists:member(Socket, weir:sockets()) end).

killed_in_a_callback(_Config) ->
    lists:foreach(fun(Callback) ->
        Suicide = fun() -> exit(self(), kill) end,
        {Reactor, Port} = start(#{
            data => fun(_Socket, _Data, State) -> Callback =:= data andalso Suicide(), {close, <<"last">>, State} end,
            terminate => fun(_Reason, _State) -> Callback =:= terminate andalso Suicide() end
        }),
        Monitor = monitor(process, Reactor),
        Peers = [connect_raw(Port) || _ <- lists:seq(1, 10)],
        [gen_tcp:send(Peer, "go") || Peer <- Peers],
        receive
            {'DOWN', Monitor, process, Reactor, killed} -> ok
        after patience() -> ct:fail(still_alive)
        end,
        %% Connections in the backlog do not belong to the reactor.
        [reset(Peer) || Peer <- Peers],
        wait_until(fun() -> weir_nif:abandoned() =:= [] end)
    end, [data, terminate]).

%% A process that takes connections is killed repeatedly: each connection belongs to a living process or is closed.
handoffs_to_processes_that_die(_Config) ->
    Keeper = spawn_link(fun() ->
        process_flag(trap_exit, true),
        keep_alive()
    end),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) ->
        case whereis(?MODULE) of
            undefined -> {close, State};
            Pid -> {handoff, Pid, State}
        end
    end}),
    Ask = fun() ->
        lists:foreach(fun(_) ->
            Peer = connect_raw(Port),
            _ = gen_tcp:send(Peer, "go"),
            case gen_tcp:recv(Peer, 5, patience()) of
                {ok, <<"taken">>} -> ok;
                {error, Reason} when Reason =:= closed; Reason =:= econnreset -> ok
            end,
            gen_tcp:close(Peer)
        end, lists:seq(1, 50))
    end,
    [ok = await(Each) || Each <- [async(Ask) || _ <- lists:seq(1, 4)]],
    %% Its linked process dies, too.
    exit(Keeper, kill),
    wait_until(fun() -> whereis(?MODULE) =:= undefined end),
    stop(Reactor).

%% Starts a process that takes connections, kills it after a few, and starts the next.
keep_alive() ->
    Keeper = self(),
    Pid = spawn_link(fun() -> register(?MODULE, self()), take(Keeper) end),
    [receive {taken, Pid} -> ok end || _ <- lists:seq(1, rand:uniform(8))],
    exit(Pid, kill),
    receive {'EXIT', Pid, killed} -> keep_alive() end.

take(Keeper) ->
    receive
        {weir_reactor, handoff, Socket} ->
            Keeper ! {taken, self()},
            _ = gen_tcp:send(Socket, "taken"),
            take(Keeper)
    end.

%% A listener's reactors, the listener, the reaper and pollers are killed while clients send, reset and reconnect.
%% Every byte that comes back is correct, and in the end everything is served.
anything_dies_at_any_moment(_Config) ->
    ok = weir_fastpath_test:new_engine(),
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOOPBACK}, weir_listener_reactor, args),
    Port = weir:get_port(?MODULE),
    Stop = atomics:new(1, []),
    Served = counters:new(1, []),
    Clients = [async(fun() -> come_again(Port, Stop, Served) end) || _ <- lists:seq(1, 6)],
    %% A round finds no reactor while the last one that was killed is being replaced, so the number of rounds is not
    %% fixed.
    ok = kill_reactors(1, 0),
    wait_until(fun() -> counters:get(Served, 1) > 0 end),
    atomics:put(Stop, 1, 1),
    [ok = await(Client) || Client <- Clients],
    weir_listener_test:still_serves(Port),
    ok = weir:stop_listener(?MODULE),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% At least sixty rounds, and more until eleven of them have killed a reactor. If that never happens, the suite's time
%% limit ends it.
kill_reactors(Round, Killed) when Round > 60, Killed > 10 ->
    ok;
kill_reactors(Round, Killed) ->
    timer:sleep(rand:uniform(30)),
    case kill_one(Round) of
        reactor -> kill_reactors(Round + 1, Killed + 1);
        _ -> kill_reactors(Round + 1, Killed)
    end.

%% A supervisor gives up after too many deaths of its children, so most rounds kill processes that the listener
%% restarts itself.
kill_one(Round) when Round =:= 20; Round =:= 40 ->
    exit(whereis(weir_reaper), kill);
kill_one(Round) when Round =:= 30; Round =:= 50 ->
    kill_named(weir_listener_names:whereis_name(?MODULE));
kill_one(Round) when Round =< 60, Round rem 5 =:= 0 ->
    {Poller, _} = lists:nth(1, maps:values(weir_pollsets:pollers())),
    exit(Poller, kill);
kill_one(_Round) ->
    case reactors(weir_listener_names:whereis_name(?MODULE)) of
        [] ->
            nobody;
        Reactors ->
            true = exit(lists:nth(rand:uniform(length(Reactors)), Reactors), kill),
            reactor
    end.

kill_named(undefined) -> ok;
kill_named(Pid) -> exit(Pid, kill).

%% The reactors of a listener, if it is running.
reactors(undefined) ->
    [];
reactors(Listener) ->
    case process_info(Listener, links) of
        {links, Links} -> [Pid || Pid <- Links, is_pid(Pid), is_reactor(Pid)];
        undefined -> []
    end.

is_reactor(Pid) ->
    proc_lib:translate_initial_call(Pid) =:= {weir_reactor_process, init, 4}.

come_again(Port, Stop, Served) ->
    case atomics:get(Stop, 1) of
        1 ->
            ok;
        0 ->
            case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], 1000) of
                {ok, Peer} ->
                    ok = converse(Peer, rand:uniform(30), Served),
                    case rand:uniform(3) of
                        1 -> reset(Peer);
                        _ -> gen_tcp:close(Peer)
                    end,
                    come_again(Port, Stop, Served);
                %% No process listens for a moment.
                {error, _} ->
                    timer:sleep(5),
                    come_again(Port, Stop, Served)
            end
    end.

converse(_Peer, 0, Served) ->
    counters:add(Served, 1, 1);
converse(Peer, Left, Served) ->
    Bytes = rand:bytes(rand:uniform(20000)),
    case {gen_tcp:send(Peer, Bytes), gen_tcp:recv(Peer, byte_size(Bytes), 2000)} of
        {ok, {ok, Bytes}} -> converse(Peer, Left - 1, Served);
        {ok, {ok, Other}} -> exit({wrong_bytes, byte_size(Bytes), byte_size(Other)});
        _ -> ok
    end.

%% The option `shutdown' applies to reactors, too.
a_callback_that_does_not_return_holds_up_no_stop(_Config) ->
    Options = #{ip => ?LOOPBACK, shutdown => 200},
    {ok, _} = weir:start_listener(?MODULE, Options, reactor_probe, #{
        tell => self(),
        data => fun(_Socket, _Data, #{tell := Pid}) -> Pid ! called, timer:sleep(infinity) end
    }),
    Peer = connect_raw(weir:get_port(?MODULE)),
    {init, _} = told(init),
    ok = gen_tcp:send(Peer, "wait"),
    receive called -> ok after patience() -> ct:fail(not_called) end,
    ok = weir:stop_listener(?MODULE),
    ?assertEqual(<<>>, recv_all(Peer)).
