%% Pollers killed, stopped, frozen with their scheduler and robbed of their
%% sockets, under load: every byte arrives, once and in its place.
-module(weir_poller_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, socket_pair/2, start_echo/2, start_streams/2, stop_streams/1,
    assert_streams_go_on/1, on_node/4, wait_until/1, next_message/0, recv_all/1, recv_exactly/2
]).

suite() ->
    [{timetrap, {seconds, 60}}].

all() ->
    [
        pollers_killed,
        pollers_killed_while_they_sleep,
        server_killed,
        fewer_schedulers_online,
        moved_under_load,
        active_on_another_scheduler
    ].

init_per_suite(Config) ->
    ok = weir_test_peer:silence_pollers(),
    weir_test_peer:init_group(weir, Config).

end_per_suite(_Config) ->
    weir_test_peer:unsilence_pollers().

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

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

%% Without the VM's polling by schedulers, which forgets descriptors for seconds on OTP 29 when schedulers go offline: see
%% docs/internals.md, What it does not bear.
fewer_schedulers_online(_Config) ->
    on_node(?MODULE, change_schedulers_online, "", ["+S", "4:4", "+IOs", "false"]).

change_schedulers_online(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {nodelay, true}]),
    [accept_on(Listener, Scheduler) || Scheduler <- lists:seq(1, 4), _ <- lists:seq(1, 3)],
    Streams = start_streams(Port, 12),
    assert_streams_go_on(Streams),
    [?assert(Sockets >= 3) || #{sockets := Sockets} <- weir:pollsets()],
    lists:foreach(
        fun(Online) ->
            _ = erlang:system_flag(schedulers_online, Online),
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

%% The connection belongs to the scheduler's pollset, and its process to none.
accept_on(Listener, Scheduler) ->
    spawn_opt(
        fun() ->
            {ok, Socket} = gen_tcp:accept(Listener),
            Echo = spawn(fun() ->
                receive
                    go -> weir_test_peer:begin_echo(Socket, once)
                end
            end),
            ok = gen_tcp:controlling_process(Socket, Echo),
            Echo ! go
        end,
        [{scheduler, Scheduler}]
    ).

moved_under_load(_Config) ->
    on_node(?MODULE, move_under_load, "", ["+S", "4:4"]).

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

active_on_another_scheduler(_Config) ->
    on_node(?MODULE, activate_from_another_scheduler, "", ["+S", "4:4"]).

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
                    Self ! count_messages(Socket, Active, 500)
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
             || N <- lists:seq(1, 500)
            ],
            ?assertEqual({counted, 500}, next_message()),
            ?assertEqual({<<>>, closed}, recv_all(Peer))
        end,
        [{Owner, Pollset, Active} || Owner <- [1, 3], Pollset <- [2, 4], Active <- [once, 1, 7, true]]
    ).

%% Each message is answered, and has to be asked for where the mode says so.
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
