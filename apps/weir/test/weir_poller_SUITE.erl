%% Pollers that are killed, stopped, frozen with their scheduler or deprived of their sockets, under load: every byte
%% arrives once and in order.
-module(weir_poller_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, socket_pair/2, socket_pair/3, async/1, await/1, pid/1]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, recv_all/1, recv_exactly/2]).
-import(weir_test_streams, [start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_test_machine, [on_machine/3]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("poller_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        pollers_killed,
        pollers_killed_while_they_sleep,
        server_killed,
        poller_that_does_not_run,
        relays_without_a_poller,
        one_message_wakes,
        data_is_there_when_the_time_is_over,
        a_time_beyond_the_timers,
        {group, four_schedulers}
    ].

%% These cases share another machine.
groups() ->
    [
        {four_schedulers, [], [
            messages_in_order,
            fewer_schedulers_online,
            moved_under_load,
            active_on_another_scheduler
        ]}
    ].

init_per_group(four_schedulers, Config) ->
    [{machine, weir_test_machine:start("", ["+S", "4:4"])} | Config].

end_per_group(four_schedulers, Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

-define(MODES, [passive, once, true, 3, 100]).

pollers_killed(Config) ->
    {_Listener, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, 50),
    lists:foreach(
        fun(_) ->
            assert_streams_go_on(Streams),
            lists:foreach(fun kill_poller/1, weir:pollsets())
        end,
        lists:seq(1, 10)
    ),
    stop_streams(Streams).

kill_poller(#{pollset := Pollset, poller := Poller}) ->
    exit(Poller, kill),
    wait_until(fun() ->
        case lists:keyfind(Pollset, 1, [{N, Pid} || #{pollset := N, poller := Pid} <- weir:pollsets()]) of
            {Pollset, undefined} -> false;
            {Pollset, Pid} -> Pid =/= Poller
        end
    end).

pollers_killed_while_they_sleep(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    lists:foreach(
        fun(Number) ->
            [wait_until(fun() -> process_info(Poller, status) =:= {status, waiting} end)
             || #{poller := Poller} <- weir:pollsets()],
            lists:foreach(fun kill_poller/1, weir:pollsets()),
            ok = gen_tcp:send(Peer, <<Number>>),
            ?assertEqual({tcp, Socket, <<Number>>}, next_message())
        end,
        lists:seq(1, 5)
    ).

server_killed(Config) ->
    ok = weir_fastpath_test:new_engine(),
    {_Listener, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, 20),
    lists:foreach(
        fun(_) ->
            assert_streams_go_on(Streams),
            Server = whereis(weir_pollsets),
            exit(Server, kill),
            wait_until(fun() -> not lists:member(whereis(weir_pollsets), [undefined, Server]) end)
        end,
        lists:seq(1, 3)
    ),
    assert_streams_go_on(Streams),
    stop_streams(Streams).

%% Without the poller, asleep or awake, the pollset's thread accepts and serves passive sockets.
poller_that_does_not_run(Config) ->
    {_Listener, Port} = start_echo(Config, [passive]),
    Streams = start_streams(Port, 20),
    lists:foreach(
        fun(_) ->
            assert_streams_go_on(Streams),
            Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
            [true = erlang:suspend_process(Poller) || Poller <- Pollers],
            assert_streams_go_on(Streams),
            [true = erlang:resume_process(Poller) || Poller <- Pollers]
        end,
        lists:seq(1, 10)
    ),
    stop_streams(Streams).

relays_without_a_poller(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    {ok, Relay} = weir:relay(A, B),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    Data = rand:bytes(20_000_000),
    Sender = spawn_link(fun() ->
        ok = gen_tcp:send(Client, Data),
        ok = gen_tcp:shutdown(Client, write)
    end),
    ?assertEqual(Data, recv_exactly(Server, byte_size(Data))),
    wait_until(fun() -> not is_process_alive(Sender) end),
    ok = gen_tcp:close(Server),
    ?assertMatch({weir_relay, Relay, closed, #{}}, next_message()),
    [true = erlang:resume_process(Poller) || Poller <- Pollers].

%% However many sockets are put on the list of a sleeping poller.
one_message_wakes(Config) ->
    Pairs = [socket_pair(Config, [binary, {active, true}]) || _ <- lists:seq(1, 50)],
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    [wait_until(fun() -> process_info(Poller, status) =:= {status, waiting} end) || Poller <- Pollers],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    [
        ok = weir:migrate(Socket, Pollset)
     || _ <- [1, 2], Pollset <- weir_pollsets:all(), {Socket, _} <- Pairs
    ],
    [?assertMatch({message_queue_len, N} when N =< 1, process_info(Poller, message_queue_len)) || Poller <- Pollers],
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    [
        begin
            ok = gen_tcp:send(Peer, <<"there">>),
            ?assertEqual({tcp, Socket, <<"there">>}, next_message())
        end
     || {Socket, Peer} <- Pairs
    ].

%% A busy poller must not make a recv with a short timeout fail.
data_is_there_when_the_time_is_over(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 1)),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    ok = gen_tcp:send(Peer, <<"there">>),
    ?waitMatch({_, 5}, in_kernel(Socket)),
    ?assertEqual({ok, <<"there">>}, gen_tcp:recv(Socket, 0, 1)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 1)),
    ok = gen_tcp:send(Peer, <<"there">>),
    ?waitMatch({_, 5}, in_kernel(Socket)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 6, 1)),
    ok = gen_tcp:send(Peer, <<"!">>),
    ?waitMatch({_, 1}, in_kernel(Socket)),
    ?assertEqual({ok, <<"there!">>}, gen_tcp:recv(Socket, 6, 1)),
    ok = gen_tcp:close(Peer),
    ?waitMatch({close_wait, _}, in_kernel(Socket)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, 1)),
    [true = erlang:resume_process(Poller) || Poller <- Pollers].

%% The kernel's state of a connection and its number of unread bytes. A send may return before the bytes are there.
in_kernel(Socket) ->
    {ok, {_, Port}} = inet:sockname(Socket),
    {ok, {_, PeerPort}} = inet:peername(Socket),
    Line = io_lib:format(":~4.16.0B [0-9A-F]{8}:~4.16.0B (..) [0-9A-F]{8}:([0-9A-F]{8})", [Port, PeerPort]),
    {ok, Table} = file:read_file("/proc/net/tcp"),
    {match, [State, Unread]} = re:run(Table, Line, [{capture, all_but_first, list}]),
    {maps:get(State, #{"01" => established, "08" => close_wait}, State), list_to_integer(Unread, 16)}.

%% `receive' allows at most seven weeks, but other functions of gen_tcp allow more.
a_time_beyond_the_timers(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0, 1 bsl 40) end),
    Waits = {current_function, {weir_operation, await_until, 4}},
    wait_until(fun() -> process_info(pid(Receiver), current_function) =:= Waits end),
    ok = gen_tcp:send(Peer, <<"there">>),
    ?assertEqual({ok, <<"there">>}, await(Receiver)).

%% The owner's queue only keeps the order of each sender, and the poller and the thread are two senders.
messages_in_order(Config) ->
    on_machine(?MODULE, send_by_turns, Config).

send_by_turns(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {packet, 4}], [binary, {packet, 4}]),
    _ = erts_debug:set_internal_state(available_internal_state, true),
    Self = self(),
    Count = counters:new(1, []),
    Owner = spawn_link(fun() ->
        _ = process_flag(message_queue_data, off_heap),
        true = erts_debug:set_internal_state(proc_sig_buffers, true),
        receive
            go -> ok = inet:setopts(Socket, [{active, true}])
        end,
        Self ! {counted, count_in_order(Socket, Count)}
    end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    Sender = spawn_link(fun() -> send_numbers(Peer, 0) end),
    ok = gen_tcp:controlling_process(Peer, Sender),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    lists:foreach(
        fun(_) ->
            [true = erlang:suspend_process(Poller) || Poller <- Pollers],
            %% Long enough for the thread to take over, which cannot be observed.
            timer:sleep(20),
            [true = erlang:resume_process(Poller) || Poller <- Pollers],
            Before = counters:get(Count, 1),
            wait_until(fun() -> counters:get(Count, 1) > Before + 20 end)
        end,
        lists:seq(1, 30)
    ),
    Sender ! stop,
    receive
        {counted, ok} -> ok
    after patience() -> ct:fail(not_counted)
    end.

send_numbers(Peer, Number) ->
    ok = gen_tcp:send(Peer, <<Number:32>>),
    Pause =
        case Number rem 50 of
            0 -> 1;
            _ -> 0
        end,
    receive
        stop -> gen_tcp:close(Peer)
    after Pause -> send_numbers(Peer, Number + 1)
    end.

count_in_order(Socket, Count) ->
    Number = counters:get(Count, 1),
    %% Sometimes lets messages accumulate.
    Number rem 100 =:= 0 andalso timer:sleep(3),
    receive
        {tcp, Socket, <<Next:32>>} ->
            ?assertEqual(Number, Next),
            ok = counters:add(Count, 1, 1),
            count_in_order(Socket, Count);
        {tcp_closed, Socket} ->
            ok
    end.

fewer_schedulers_online(Config) ->
    on_machine(?MODULE, change_schedulers_online, Config).

change_schedulers_online(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {nodelay, true}]),
    [accept_on(Listener, Scheduler) || Scheduler <- lists:seq(1, 4), _ <- lists:seq(1, 3)],
    Streams = start_streams(Port, 12),
    assert_streams_go_on(Streams),
    [?assert(Sockets >= 3) || #{sockets := Sockets} <- weir:pollsets()],
    lists:foreach(
        fun(Online) ->
            ok = weir_test_schedulers:set_online(Online),
            assert_streams_go_on(Streams),
            Homes = [(Pollset - 1) rem Online + 1 || Pollset <- lists:seq(1, 4)],
            wait_until(fun() -> homes() =:= Homes end),
            assert_streams_go_on(Streams)
        end,
        [1, 4, 2, 3, 1, 4]
    ),
    stop_streams(Streams),
    ok = gen_tcp:close(Listener).

homes() ->
    [Scheduler || #{scheduler := Scheduler} <- weir:pollsets()].

%% The connection stays on the scheduler's pollset, and its process runs anywhere.
accept_on(Listener, Scheduler) ->
    spawn_opt(
        fun() ->
            {ok, Socket} = gen_tcp:accept(Listener),
            ok = weir:migrate(Socket, Scheduler),
            Echo = spawn(fun() ->
                receive
                    go -> weir_test_streams:begin_echo(Socket, once)
                end
            end),
            ok = gen_tcp:controlling_process(Socket, Echo),
            Echo ! go
        end,
        [{scheduler, Scheduler}]
    ).

moved_under_load(Config) ->
    on_machine(?MODULE, move_under_load, Config).

move_under_load(Config) ->
    {_Listener, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, 10),
    assert_streams_go_on(Streams),
    {In, Out} = moves(),
    lists:foreach(
        fun(Round) ->
            Sockets = weir:sockets(),
            [?assertEqual(ok, weir:migrate(Socket, rand:uniform(4))) || Socket <- Sockets],
            Round rem 50 =:= 0 andalso assert_streams_go_on(Streams)
        end,
        lists:seq(1, 200)
    ),
    {MovedIn, MovedOut} = moves(),
    ?assertEqual(MovedIn - In, MovedOut - Out),
    ?assert(MovedIn - In > 1000),
    stop_streams(Streams).

moves() ->
    Pollsets = weir:pollsets(),
    {lists:sum([N || #{moved_in := N} <- Pollsets]), lists:sum([N || #{moved_out := N} <- Pollsets])}.

active_on_another_scheduler(Config) ->
    on_machine(?MODULE, activate_from_another_scheduler, Config).

activate_from_another_scheduler(Config) ->
    lists:foreach(
        fun({Owner, Pollset, Active}) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
            ok = weir:migrate(Socket, Pollset),
            Self = self(),
            Pid = spawn_opt(
                fun() ->
                    receive
                        go -> ok
                    end,
                    Self ! count_messages(Socket, Active, 200)
                end,
                [{scheduler, Owner}]
            ),
            ok = gen_tcp:controlling_process(Socket, Pid),
            Pid ! go,
            [
                begin
                    ok = gen_tcp:send(Peer, <<N:32>>),
                    ?assertEqual(<<N:32>>, recv_exactly(Peer, 4))
                end
             || N <- lists:seq(1, 200)
            ],
            ?assertEqual({counted, 200}, next_message()),
            ?assertEqual({<<>>, closed}, recv_all(Peer))
        end,
        [{Owner, Pollset, Active} || Owner <- [1, 3], Pollset <- [2, 4], Active <- [once, 1, 7, true]]
    ).

%% Each message is answered, and the next one requested if the mode requires that.
count_messages(Socket, Active, Count) ->
    ok = inet:setopts(Socket, [{active, Active}]),
    count_messages(Socket, Active, Count, 0).

count_messages(_Socket, _Active, Count, Count) ->
    {counted, Count};
count_messages(Socket, Active, Count, Counted) ->
    receive
        {tcp, Socket, Data} ->
            ok = gen_tcp:send(Socket, Data),
            ok =
                case Active of
                    once -> inet:setopts(Socket, [{active, once}]);
                    _ -> ok
                end,
            count_messages(Socket, Active, Count, Counted + 1);
        {tcp_passive, Socket} ->
            ok = inet:setopts(Socket, [{active, Active}]),
            count_messages(Socket, Active, Count, Counted)
    end.
