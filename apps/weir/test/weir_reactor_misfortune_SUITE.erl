%% What goes wrong for reactors on purpose: callbacks that fail in every way, processes and peers that die at any moment.
%% After each case descriptors and sockets are back to what they were.
-module(weir_reactor_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, connect_raw/2, reset/1, async/1, await/1, wait_until/1, recv_exactly/2,
    socket_pair/3]).
-import(reactor_probe, [start/1, start/2, start/3, start_on/3, listen/1, client/1, stop/1, kill_reactor/1, told/1, told/2,
    told_of/2, recv_all/1, exchange/2, reports/1]).

-include("reactor_suite.hrl").

suite() ->
    [{timetrap, {seconds, 90}}].

all() ->
    [
        {group, callbacks},
        {group, deaths},
        {group, peers}
    ].

groups() ->
    [
        {callbacks, [], [
            each_callback_may_fail,
            what_cannot_be_sent_closes,
            a_bad_result_names_its_callback,
            what_cannot_be_sent_closes_on_the_way_out,
            nobody_to_hand_off_to,
            a_long_message_or_tick_is_named
        ]},
        {deaths, [], [
            killed_reactor_closes_its_connections,
            killed_reactor_leaves_the_backlog,
            killed_while_data_flies,
            killed_again_and_again,
            killed_while_it_connects,
            killed_with_output_for_a_peer_that_sends,
            killed_in_a_callback,
            other_reactors_and_pollers_are_not_touched,
            handoffs_to_processes_that_die,
            anything_dies_at_any_moment,
            a_callback_that_does_not_return_holds_up_no_stop
        ]},
        {peers, [], [
            storm_of_resets,
            storm_of_resets_with_output,
            peers_die_while_they_are_told,
            an_adopted_queue_that_was_full,
            replies_go_out_before_an_end_that_comes_meanwhile,
            no_descriptors_left
        ]}
    ].

%%% Callbacks.

%% Each callback in each way: its connection is closed and terminated, and the one beside it notices nothing.
each_callback_may_fail(_Config) ->
    ok = logger:set_module_level([weir_reactor_callbacks], none),
    try
        [fails(Callback, How) || Callback <- [init, data, writable, info, tick, close, terminate], How <- ways(Callback)]
    after
        logger:unset_module_level(weir_reactor_callbacks)
    end.

ways(Callback) -> [raise, exit, throw] ++ [Way || Callback =/= terminate, Way <- [garbage, nothing, unsendable]].

fail(raise, _State) -> error(on_purpose);
fail(exit, _State) -> exit(on_purpose);
fail(throw, _State) -> throw(on_purpose);
fail(garbage, _State) -> garbage;
fail(nothing, _State) -> {};
fail(unsendable, State) -> {send, [256], State}.

%% A connection fails when its peer has it do so.
fails(Callback, How) ->
    Bad = fun(_, State) -> fail(How, State) end,
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"fail">>, State) when Callback =:= data ->
            fail(How, State);
        (Socket, <<"fail">>, State) ->
            ok = weir:notify_writable(Socket),
            ok = weir_reactor:send(Socket, now),
            {send, <<"will">>, State#{Callback => Bad}};
        (_Socket, Data, State) ->
            {send, Data, State}
    end}, [], #{tick => 5}),
    Good = connect_raw(Port),
    {init, GoodSocket} = told(init),
    exchange(Good, "before"),
    Victim = victim(Callback, Reactor, Port, Bad),
    %% A state that was never there is not terminated.
    case {Callback, How} of
        {init, Way} when Way =/= unsendable -> ok;
        {terminate, _} -> _ = told(terminated, Victim);
        _ -> ?assertMatch({Callback, How, {error, {_, _, _}}}, {Callback, How, told(terminated, Victim)})
    end,
    exchange(Good, "after"),
    wait_until(fun() -> maps:keys(sys:get_state(Reactor)) =:= [GoodSocket] end),
    receive
        {terminated, Victim, Again} -> ct:fail({terminated_twice, Callback, How, Again})
    after 0 -> ok
    end,
    stop(Reactor),
    flush().

%% One that fails at the beginning is connected, as that takes arguments; to the reactor itself.
victim(init, Reactor, Port, Bad) ->
    {ok, Socket} = weir_reactor:connect(Reactor, ?LOOPBACK, Port, [{args, #{tell => self(), init => Bad}}]),
    {init, Socket} = told_of(init, Socket),
    Socket;
victim(Callback, _Reactor, Port, _Bad) ->
    Peer = connect_raw(Port),
    {init, Socket} = told(init),
    ok = gen_tcp:send(Peer, "fail"),
    [<<"will">> = recv_exactly(Peer, 4) || Callback =/= data],
    case lists:member(Callback, [close, terminate]) of
        true -> ok = gen_tcp:close(Peer);
        false -> <<>> = recv_all(Peer)
    end,
    Socket.

flush() ->
    receive
        _ -> flush()
    after 0 -> ok
    end.

what_cannot_be_sent_closes(_Config) ->
    Large = binary:copy(<<"x">>, 300),
    %% None of this is a thing to send, whatever stands around it.
    Bad = [close, ok, 1, 1.0, {<<"a">>}, #{}, [<<"a">> | close], [[<<"a">>], [256]], [<<"a">>, atom], self(), <<1:1>>, Large, [Large, Large]],
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"good">>, State) -> {send, <<"good">>, State};
        (_Socket, <<N>>, State) -> {send, lists:nth(N, Bad), State}
    end}, [{packet, 1}]),
    Good = connect_raw(Port, [{packet, 1}]),
    lists:foreach(fun(N) ->
        Peer = connect_raw(Port, [{packet, 1}]),
        %% What is in order goes out first, and nothing behind what is not.
        Reports = reports(fun() ->
            ok = gen_tcp:send(Peer, "good"),
            {ok, <<"good">>} = gen_tcp:recv(Peer, 0, ?PATIENCE),
            ok = gen_tcp:send(Peer, <<N>>),
            ?assertEqual({N, {error, closed}}, {N, gen_tcp:recv(Peer, 0, ?PATIENCE)}),
            {terminated, _, {error, {error, {Reason, {send, _}}, _}}} = told(terminated),
            ?assert(lists:member(Reason, [badarg, emsgsize]))
        end),
        ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, "{reactor_probe,send}") =/= nomatch]),
        ok = gen_tcp:send(Good, "good"),
        {ok, <<"good">>} = gen_tcp:recv(Good, 0, ?PATIENCE)
    end, lists:seq(1, length(Bad))),
    stop(Reactor).

a_bad_result_names_its_callback(_Config) ->
    [
        begin
            Reports = reports(fun() ->
                {Reactor, Port} = start(#{Name => Fun}),
                Peer = connect_raw(Port),
                ok = gen_tcp:send(Peer, "go"),
                ?assertEqual(<<>>, recv_all(Peer)),
                stop(Reactor)
            end),
            Callback = lists:flatten(io_lib:format("callback={reactor_probe,~p}", [Expected])),
            ?assertMatch({_, [_ | _]}, {Callback, [
                Report
             || Report <- Reports,
                string:find(Report, Callback) =/= nomatch,
                string:find(Report, "{bad_return_value,a_bad_one}") =/= nomatch
            ]})
        end
     || {Name, Expected, Fun} <- [
            {init, init, fun(_Socket, _Args) -> a_bad_one end},
            {data, handle_data, fun(_Socket, _Data, _State) -> a_bad_one end}
        ]
    ].

%% Last words that are none, and what was sent before a connection leaves.
what_cannot_be_sent_closes_on_the_way_out(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"close\n">>, State) -> {close, atom, State};
        (_Socket, <<"bad\n">>, State) -> {send, [256], State};
        (_Socket, <<"leave\n">>, State) -> {handoff, Self, State};
        (_Socket, Data, State) -> {send, Data, State}
    end}, [{packet, line}]),
    Good = connect_raw(Port),
    lists:foreach(fun(Lines) ->
        Peer = connect_raw(Port),
        ok = gen_tcp:send(Peer, Lines),
        ?assertEqual({Lines, <<>>}, {Lines, recv_all(Peer)}),
        _ = told(terminated),
        exchange(Good, "good\n")
    end, ["close\n", "bad\nbad\n", "bad\nclose\n", "bad\nleave\n", "close\nbad\n"]),
    stop(Reactor).

nobody_to_hand_off_to(_Config) ->
    Reports = reports(fun() ->
        lists:foreach(fun(Nobody) ->
            {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {handoff, Nobody(), State} end}),
            Peer = connect_raw(Port),
            ok = gen_tcp:send(Peer, "go"),
            ?assertEqual(<<>>, recv_all(Peer)),
            {terminated, _, {error, _}} = told(terminated),
            stop(Reactor)
        end, [fun() -> self() end, fun() -> a_name end])
    end),
    ?assertEqual(2, length([Report || Report <- Reports, string:find(Report, "bad_return_value") =/= nomatch])).

a_long_message_or_tick_is_named(_Config) ->
    Slow = fun(_, State) -> timer:sleep(50), {ok, State} end,
    lists:foreach(fun(Callback) ->
        Reports = reports(fun() ->
            {Reactor, Port} = start(#{Callback => Slow}, [], #{long_callback_ms => 10, tick => 20}),
            Peer = connect_raw(Port),
            {init, Socket} = told(init),
            ok = weir_reactor:send(Socket, take_your_time),
            exchange(Peer, "served"),
            _ = told_of_info(Socket),
            exchange(Peer, "served again"),
            timer:sleep(200),
            stop(Reactor)
        end),
        Name = "handle_" ++ atom_to_list(Callback),
        ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, Name) =/= nomatch])
    end, [info, tick]).

told_of_info(Socket) -> told(info, Socket).

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
    %% These wait for somebody.
    Peers = [connect_raw(Port) || _ <- lists:seq(1, 20)],
    [ok = gen_tcp:send(Peer, "waits") || Peer <- Peers],
    Second = start_on(Listen, #{}, #{}),
    [?assertEqual(<<"waits">>, recv_exactly(Peer, 5)) || Peer <- Peers],
    exchange(connect_raw(Port), "second"),
    stop(Second).

killed_while_data_flies(_Config) ->
    {Reactor, Port} = start(#{}),
    Chatter = fun Chatter(Peer) ->
        case gen_tcp:send(Peer, binary:copy(<<"x">>, 10000)) of
            ok ->
                _ = gen_tcp:recv(Peer, 10000, ?PATIENCE),
                Chatter(Peer);
            {error, _} ->
                gen_tcp:close(Peer)
        end
    end,
    Chatters = [async(fun() -> Chatter(connect_raw(Port)) end) || _ <- lists:seq(1, 20)],
    timer:sleep(200),
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
    %% These hang.
    [{ok, _} = weir_reactor:connect(Reactor, ?LOOPBACK, Port, []) || _ <- lists:seq(1, 10)],
    #{} = sys:get_state(Reactor),
    kill_reactor(Reactor),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% Its output is still sent. A peer that has to get rid of its own before it reads can do so: nobody waits for the end of
%% the time that is for those who take nothing.
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
        after ?PATIENCE -> ct:fail(still_alive)
        end,
        %% What is still in the backlog is not the reactor's.
        [reset(Peer) || Peer <- Peers],
        wait_until(fun() -> weir_nif:abandoned() =:= [] end)
    end, [data, terminate]).

%% A process that takes connections dies again and again: each is with somebody who lives, or closed.
handoffs_to_processes_that_die(_Config) ->
    Taker = fun Taker() ->
        receive
            {weir_reactor, handoff, Socket} ->
                _ = gen_tcp:send(Socket, "taken"),
                Taker()
        end
    end,
    Keeper = spawn_link(fun() -> keep_alive(Taker, 50) end),
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
            case gen_tcp:recv(Peer, 5, ?PATIENCE) of
                {ok, <<"taken">>} -> ok;
                {error, Reason} when Reason =:= closed; Reason =:= econnreset -> ok
            end,
            gen_tcp:close(Peer)
        end, lists:seq(1, 50))
    end,
    [ok = await(Each) || Each <- [async(Ask) || _ <- lists:seq(1, 4)]],
    exit(Keeper, kill),
    kill_named(whereis(?MODULE)),
    stop(Reactor).

keep_alive(_Taker, 0) ->
    ok;
keep_alive(Taker, Left) ->
    {Pid, Monitor} = spawn_monitor(fun() -> register(?MODULE, self()), Taker() end),
    timer:sleep(rand:uniform(10)),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> keep_alive(Taker, Left - 1)
    end.

%% A listener's reactors, the listener, the reaper and pollers are killed while clients send, reset and come again. Each
%% byte that comes back is the right one, and in the end everything is served.
anything_dies_at_any_moment(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOOPBACK}, weir_listener_reactor, args),
    Port = weir:get_port(?MODULE),
    Stop = atomics:new(1, []),
    Clients = [async(fun() -> come_again(Port, Stop, 0) end) || _ <- lists:seq(1, 6)],
    lists:foreach(fun(Round) ->
        timer:sleep(rand:uniform(30)),
        kill_one(Round)
    end, lists:seq(1, 60)),
    atomics:put(Stop, 1, 1),
    ?assert(lists:sum([await(Client) || Client <- Clients]) > 0),
    wait_until(fun() ->
        {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], ?PATIENCE),
        _ = gen_tcp:send(Peer, "calm"),
        Answer = gen_tcp:recv(Peer, 4, 1000),
        ok = gen_tcp:close(Peer),
        Answer =:= {ok, <<"calm">>}
    end),
    ok = weir:stop_listener(?MODULE),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% A supervisor bears so many ends of its children: most are of what the listener looks after itself.
kill_one(Round) when Round =:= 20; Round =:= 40 -> exit(whereis(weir_reaper), kill);
kill_one(Round) when Round =:= 30; Round =:= 50 -> kill_named(weir_listener_names:whereis_name(?MODULE));
kill_one(Round) when Round rem 5 =:= 0 ->
    {Poller, _} = lists:nth(1, maps:values(weir_pollsets:pollers())),
    exit(Poller, kill);
kill_one(_Round) ->
    Reactors = reactors(weir_listener_names:whereis_name(?MODULE)),
    [exit(lists:nth(rand:uniform(length(Reactors)), Reactors), kill) || Reactors =/= []].

kill_named(undefined) -> ok;
kill_named(Pid) -> exit(Pid, kill).

%% Those of a listener, if it is there.
reactors(undefined) ->
    [];
reactors(Listener) ->
    case process_info(Listener, links) of
        {links, Links} -> [Pid || Pid <- Links, is_pid(Pid), is_reactor(Pid)];
        undefined -> []
    end.

is_reactor(Pid) ->
    proc_lib:translate_initial_call(Pid) =:= {weir_reactor_process, init, 3}.

come_again(Port, Stop, Served) ->
    case atomics:get(Stop, 1) of
        1 ->
            Served;
        0 ->
            case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], 1000) of
                {ok, Peer} ->
                    Now = converse(Peer, rand:uniform(30)),
                    case rand:uniform(3) of
                        1 -> reset(Peer);
                        _ -> gen_tcp:close(Peer)
                    end,
                    come_again(Port, Stop, Served + Now);
                %% Nobody listens for a moment.
                {error, _} ->
                    timer:sleep(5),
                    come_again(Port, Stop, Served)
            end
    end.

converse(_Peer, 0) ->
    1;
converse(Peer, Left) ->
    Bytes = rand:bytes(rand:uniform(20000)),
    case {gen_tcp:send(Peer, Bytes), gen_tcp:recv(Peer, byte_size(Bytes), 2000)} of
        {ok, {ok, Bytes}} -> converse(Peer, Left - 1);
        {ok, {ok, Other}} -> exit({wrong_bytes, byte_size(Bytes), byte_size(Other)});
        _ -> 0
    end.

%% The time of the option `shutdown' is for reactors too.
a_callback_that_does_not_return_holds_up_no_stop(_Config) ->
    Options = #{ip => ?LOOPBACK, shutdown => 200},
    {ok, _} = weir:start_listener(?MODULE, Options, reactor_probe, #{
        tell => self(),
        data => fun(_Socket, _Data, _State) -> timer:sleep(infinity) end
    }),
    Peer = connect_raw(weir:get_port(?MODULE)),
    {init, _} = told(init),
    ok = gen_tcp:send(Peer, "wait"),
    timer:sleep(50),
    ok = weir:stop_listener(?MODULE),
    ?assertEqual(<<>>, recv_all(Peer)).

%%% Peers.

storm_of_resets(_Config) ->
    {Reactor, Port} = start(#{}),
    Storm = fun() ->
        lists:foreach(fun(_) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], ?PATIENCE),
            _ = gen_tcp:send(Peer, "bye"),
            reset(Peer)
        end, lists:seq(1, 200))
    end,
    Storms = [async(Storm) || _ <- lists:seq(1, 4)],
    [ok = await(Each) || Each <- Storms],
    exchange(connect_raw(Port), "calm"),
    wait_until(fun() -> map_size(sys:get_state(Reactor)) =< 1 end),
    stop(Reactor).

%% They have asked for much and are gone before they have read it.
storm_of_resets_with_output(_Config) ->
    Bytes = rand:bytes(300000),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {send, Bytes, State} end}),
    Storm = fun() ->
        lists:foreach(fun(N) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {recbuf, 4096}], ?PATIENCE),
            _ = gen_tcp:send(Peer, "much"),
            [_ = gen_tcp:recv(Peer, 1000, ?PATIENCE) || N rem 2 =:= 0],
            reset(Peer)
        end, lists:seq(1, 100))
    end,
    [ok = await(Each) || Each <- [async(Storm) || _ <- lists:seq(1, 4)]],
    wait_until(fun() -> map_size(sys:get_state(Reactor)) =:= 0 end),
    stop(Reactor).

peers_die_while_they_are_told(_Config) ->
    World = binary:copy(<<"w">>, 5000),
    {Reactor, Port} = start(#{tick => fun(_Socket, State) -> {send, World, State} end}, [], #{tick => 2}),
    Survivors = [connect_raw(Port) || _ <- lists:seq(1, 3)],
    Player = fun() ->
        lists:foreach(fun(_) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, true}], ?PATIENCE),
            timer:sleep(rand:uniform(10)),
            case rand:uniform(2) of
                1 -> reset(Peer);
                2 -> gen_tcp:close(Peer)
            end
        end, lists:seq(1, 20))
    end,
    Players = [async(Player) || _ <- lists:seq(1, 5)],
    lists:foreach(fun(_) -> [?assertEqual(World, recv_exactly(Each, 5000)) || Each <- Survivors] end, lists:seq(1, 50)),
    [ok = await(Each) || Each <- Players],
    stop(Reactor).

%% A sender has given up at the queue, which took nothing more from then on. A reactor takes what its callbacks send.
an_adopted_queue_that_was_full(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {send_timeout, 50}, {sndbuf, 4096}], [{recbuf, 4096}]),
    Sent = fill(Socket, 0),
    Reactor = client(#{}),
    Greet = #{tell => self(), init => fun(_Socket, State) -> {send, <<"end">>, State} end},
    {ok, Socket} = weir_reactor:adopt(Reactor, Socket, Greet),
    {init, Socket} = told(init),
    ?assertEqual(<<"end">>, binary:part(recv_exactly(Peer, Sent + 3), Sent, 3)),
    stop(Reactor).

%% How much was taken until the queue took no more.
fill(Socket, Sent) ->
    case gen_tcp:send(Socket, binary:copy(<<"x">>, 100000)) of
        ok -> fill(Socket, Sent + 100000);
        {error, timeout} -> Sent + 100000
    end.

%% More packets than a turn takes, and the end of the connection comes while they are handled: the ready list and the kernel
%% both name the socket for the next turn.
replies_go_out_before_an_end_that_comes_meanwhile(_Config) ->
    First = <<"1\n">>,
    {Reactor, Port} = start(#{data => fun
        (_Socket, Line, State = #{tell := Pid}) when Line =:= First ->
            Pid ! {at_the_first, self()},
            receive go_on -> {send, Line, State} end;
        (_Socket, Line, State) ->
            {send, Line, State}
    end}, [{packet, line}]),
    Peer = connect_raw(Port),
    Lines = iolist_to_binary([[integer_to_binary(N), $\n] || N <- lists:seq(1, 20)]),
    ok = gen_tcp:send(Peer, Lines),
    Waiting = receive {at_the_first, Pid} -> Pid end,
    ok = gen_tcp:shutdown(Peer, write),
    Waiting ! go_on,
    ?assertEqual(Lines, recv_all(Peer)),
    stop(Reactor).

no_descriptors_left(_Config) ->
    Node = weir_test_peer:start_node("ulimit -n 200;", []),
    try
        ok = peer:call(Node, reactor_probe, prepare, []),
        ok = peer:call(Node, weir_test_peer, run_case, [?MODULE, exhaust_descriptors], 60000)
    after
        peer:stop(Node)
    end.

exhaust_descriptors(_Config) ->
    process_flag(trap_exit, true),
    {Reactor, Port} = start(#{}),
    Early = connect_raw(Port),
    exchange(Early, "early"),
    Peer = connect_raw(Port),
    {ok, Hoard} = hoard([]),
    %% The first two were accepted before: this one waits.
    exchange(Early, "meanwhile"),
    [ok = file:close(File) || File <- Hoard],
    exchange(Peer, "late"),
    Late = connect_raw(Port),
    exchange(Late, "later"),
    [gen_tcp:close(Each) || Each <- [Early, Peer, Late]],
    stop(Reactor).

hoard(Files) ->
    case file:open("/dev/null", [read, raw]) of
        {ok, File} -> hoard([File | Files]);
        {error, emfile} -> {ok, Files}
    end.
