%% Faults of reactors on purpose: callbacks that fail in every way, processes and peers that die at any moment. After
%% each case the numbers of descriptors and sockets are as before.
-module(weir_reactor_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, connect_raw/2, reset/1, async/1, await/1, socket_pair/3]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [
    start/1, start/2, start/3, client/1, stop/1, told/1, told/2, told_of/2, recv_all/1, exchange/2, reports/1
]).

-include("reactor_suite.hrl").
suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, callbacks},
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
            a_long_message_or_tick_is_named,
            a_long_beginning_or_end_is_named
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

%% Every callback fails in every way: its connection is closed and terminated, and another one is not affected.
each_callback_may_fail(_Config) ->
    ok = logger:set_module_level([weir_reactor_callbacks], none),
    try
        [
            fails(Callback, How)
         || Callback <- [init, data, writable, info, tick, close, terminate], How <- ways(Callback)
        ]
    after
        logger:unset_module_level(weir_reactor_callbacks)
    end.

ways(Callback) -> [raise, exit, throw] ++ [Way || Callback =/= terminate, Way <- [garbage, nothing, unsendable]].

%% A connection fails when its peer requests it.
fails(Callback, How) ->
    Bad = fun(_, State) -> reactor_probe:fail(How, State) end,
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"fail">>, State) when Callback =:= data ->
            reactor_probe:fail(How, State);
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
    %% Without an initial state there is no terminate.
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

%% A connection whose init fails is one that the reactor opens to itself, because connect takes arguments.
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
    %% None of these can be sent, even inside a list.
    Bad = [
        close,
        ok,
        1,
        1.0,
        {<<"a">>},
        #{},
        [<<"a">> | close],
        [[<<"a">>], [256]],
        [<<"a">>, atom],
        self(),
        <<1:1>>,
        Large,
        [Large, Large]
    ],
    Data = fun
        (_Socket, <<"good">>, State) -> {send, <<"good">>, State};
        (_Socket, <<N>>, State) -> {send, lists:nth(N, Bad), State}
    end,
    lists:foreach(
        fun(N) ->
            %% A reactor logs at most ten reports a second, and each of these is awaited.
            {Reactor, Port} = start(#{data => Data}, [{packet, 1}]),
            Good = connect_raw(Port, [{packet, 1}]),
            {init, _} = told(init),
            Peer = connect_raw(Port, [{packet, 1}]),
            {init, Socket} = told(init),
            %% Valid data before it is sent, nothing after it.
            Reports = reports(fun() ->
                ok = gen_tcp:send(Peer, "good"),
                {ok, <<"good">>} = gen_tcp:recv(Peer, 0, patience()),
                ok = gen_tcp:send(Peer, <<N>>),
                ?assertEqual({N, {error, closed}}, {N, gen_tcp:recv(Peer, 0, patience())}),
                {error, {error, {Reason, {send, _}}, _}} = told(terminated, Socket),
                ?assert(lists:member(Reason, [badarg, emsgsize]))
            end),
            ?assertMatch([_ | _], [
                Report || Report <- Reports, string:find(Report, "{reactor_probe,send}") =/= nomatch
            ]),
            ok = gen_tcp:send(Good, "good"),
            {ok, <<"good">>} = gen_tcp:recv(Good, 0, patience()),
            stop(Reactor)
        end,
        lists:seq(1, length(Bad))
    ).

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

%% Invalid data with `close', and invalid data before a connection leaves.
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
    Slow = fun(_, State = #{tell := Pid}) -> timer:sleep(20), Pid ! slow, {ok, State} end,
    lists:foreach(fun(Callback) ->
        Reports = reports(fun() ->
            {Reactor, Port} = start(#{Callback => Slow}, [], #{long_callback_ms => 10, tick => 20}),
            Peer = connect_raw(Port),
            {init, Socket} = told(init),
            ok = weir_reactor:send(Socket, take_your_time),
            exchange(Peer, "served"),
            _ = told(info, Socket),
            receive slow -> ok after patience() -> ct:fail(not_called) end,
            stop(Reactor)
        end),
        Name = "handle_" ++ atom_to_list(Callback),
        ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, Name) =/= nomatch])
    end, [info, tick]).

%% A batch is timed as a whole; if it took long, its init and close callbacks are timed as well.
a_long_beginning_or_end_is_named(_Config) ->
    Slow = fun(_, State) -> timer:sleep(20), {ok, State} end,
    lists:foreach(fun({Callback, Name}) ->
        Reports = reports(fun() ->
            {Reactor, Port} = start(#{Callback => Slow}, [], #{long_callback_ms => 10}),
            lists:foreach(fun(_) ->
                Peer = connect_raw(Port),
                exchange(Peer, "served"),
                ok = gen_tcp:close(Peer),
                told(terminated)
            end, [1, 2]),
            stop(Reactor)
        end),
        ?assertMatch([_ | _], [Report || Report <- Reports, string:find(Report, Name ++ " for ") =/= nomatch])
    end, [{init, "init"}, {close, "handle_close"}]).

%%% Peers.

storm_of_resets(_Config) ->
    {Reactor, Port} = start(#{}),
    Storm = fun() ->
        lists:foreach(fun(_) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()),
            _ = gen_tcp:send(Peer, "bye"),
            reset(Peer)
        end, lists:seq(1, 200))
    end,
    Storms = [async(Storm) || _ <- lists:seq(1, 4)],
    [ok = await(Each) || Each <- Storms],
    exchange(connect_raw(Port), "calm"),
    wait_until(fun() -> map_size(sys:get_state(Reactor)) =< 1 end),
    stop(Reactor).

%% The peers request much data and reset before they have read it.
storm_of_resets_with_output(_Config) ->
    Bytes = rand:bytes(300000),
    {Reactor, Port} = start(#{data => fun(_Socket, _Data, State) -> {send, Bytes, State} end}),
    Storm = fun() ->
        lists:foreach(fun(N) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {recbuf, 4096}], patience()),
            _ = gen_tcp:send(Peer, "much"),
            [_ = gen_tcp:recv(Peer, 1000, patience()) || N rem 2 =:= 0],
            reset(Peer)
        end, lists:seq(1, 100))
    end,
    [ok = await(Each) || Each <- [async(Storm) || _ <- lists:seq(1, 4)]],
    wait_until(fun() -> map_size(sys:get_state(Reactor)) =:= 0 end),
    stop(Reactor).

peers_die_while_they_are_told(_Config) ->
    World = binary:copy(<<"w">>, 5000),
    %% Slow survivors must not be closed.
    Options = #{tick => 2, max_send_queue => 1 bsl 30},
    {Reactor, Port} = start(#{tick => fun(_Socket, State) -> {send, World, State} end}, [], Options),
    Survivors = [connect_raw(Port) || _ <- lists:seq(1, 3)],
    Player = fun() ->
        lists:foreach(fun(_) ->
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, true}], patience()),
            %% One to ten ticks.
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

%% The queue is full and a send has timed out. A reactor accepts whatever its callbacks send.
an_adopted_queue_that_was_full(Config) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, {send_timeout, 50}, {sndbuf, 4096}], [{recbuf, 4096}]
    ),
    Sent = fill(Socket, 0),
    Reactor = client(#{}),
    Greet = #{tell => self(), init => fun(_Socket, State) -> {send, <<"end">>, State} end},
    {ok, Socket} = weir_reactor:adopt(Reactor, Socket, Greet),
    {init, Socket} = told(init),
    ?assertEqual(<<"end">>, binary:part(recv_exactly(Peer, Sent + 3), Sent, 3)),
    stop(Reactor).

%% Returns how much was accepted until the queue was full.
fill(Socket, Sent) ->
    case gen_tcp:send(Socket, binary:copy(<<"x">>, 100000)) of
        ok -> fill(Socket, Sent + 100000);
        {error, timeout} -> Sent + 100000
    end.

%% More packets than a turn handles, and the connection ends meanwhile: both the ready list and the kernel name the
%% socket for the next turn.
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
    Node = weir_test_node:start_node("ulimit -n 200;", []),
    try
        ok = peer:call(Node, reactor_probe, prepare, []),
        ok = peer:call(Node, weir_test_node, run_case, [?MODULE, exhaust_descriptors], infinity)
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
    %% The first two were accepted before; this one waits.
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
