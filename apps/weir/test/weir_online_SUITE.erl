%% Work is distributed over the schedulers that are online, and follows changes of their number. All cases run on a
%% machine with eight schedulers, two of them online at first, as in a container with a quota.
-module(weir_online_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_socket.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_listener_test, [ask/2, connect/1, handler/1, is_served/1]).
-import(weir_online_test, [change_under/1, listening/0, one_on_each/3, online/1, used/0, where/2, workers/1]).
-import(weir_test_machine, [on_machine/3]).
-import(weir_test_peer, [async/1, await/1, keep/1, pid/1, socket_pair/2]).
-import(weir_test_streams, [assert_streams_go_on/1, start_streams/2, stop_streams/1]).
-import(weir_test_wait, [patience/0]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        acceptors_follow,
        acceptors_of_modules_follow,
        acceptors_of_a_shared_listener_follow,
        acceptors_of_a_unix_socket_follow,
        connections_go_to_the_least_loaded_that_is_online,
        bound_connections_wait_and_go_on,
        no_connection_is_lost_while_schedulers_come_and_go,
        acceptors_are_replaced_before_they_run,
        a_suspended_listener_follows,
        a_listener_without_descriptors_follows_later,
        sockets_leave_schedulers_that_go_offline,
        sockets_are_opened_where_schedulers_are_online,
        schedulers_that_come_for_a_moment_are_not_used,
        a_number_that_is_set_meanwhile_stays,
        nothing_stands_still_on_schedulers_that_went,
        schedulers_come_and_go_many_times
    ].

init_per_suite(Config) ->
    [{machine, weir_online_test:start_machine()} | Config].

end_per_suite(Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

init_per_testcase(_Case, Config) ->
    ok = on_machine(weir_online_test, two_online, Config),
    Config.

end_per_testcase(_Case, _Config) -> ok.

start(Kind, Options) ->
    {ok, _} = weir:start_listener(?MODULE, maps:merge(#{ip => ?LOOPBACK}, Options), handler(Kind), args),
    weir:get_port(?MODULE).

%%% Listeners.

acceptors_follow(Config) -> on_machine(?MODULE, follow_with_funs, Config).

follow_with_funs(_Config) -> follow(start(function, #{})).

acceptors_of_modules_follow(Config) -> on_machine(?MODULE, follow_with_modules, Config).

follow_with_modules(_Config) -> follow(start(protocol, #{})).

acceptors_of_a_shared_listener_follow(Config) -> on_machine(?MODULE, follow_shared, Config).

follow_shared(_Config) -> follow(start(function, #{shared => true, port => weir_test_peer:free_port()})).

%% Listening sockets are assigned to pollsets of online schedulers, and their connections stay there.
follow(Port) ->
    ?assertEqual({2, 2}, {length(listening()), workers(?MODULE)}),
    ?assertEqual([1, 2], used()),
    Streams = streams_on([1, 2], Port, start_streams(Port, 8)),
    ok = online(4),
    ?waitEqual({4, 4}, {length(listening()), workers(?MODULE)}),
    More = streams_on([1, 2, 3, 4], Port, Streams),
    ok = online(1),
    ?waitEqual([1], used()),
    assert_streams_go_on(More),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ?assertEqual([1], used()),
    ok = online(3),
    Most = streams_on([1, 2, 3], Port, More),
    ?assertEqual([1, 2, 3], used()),
    ?assertEqual(4, length(listening())),
    stop_streams(Most),
    ok = weir:stop_listener(?MODULE).

%% Starts more streams until there are connections on all of these pollsets and no others.
streams_on(Pollsets, Port, Streams) ->
    assert_streams_go_on(Streams),
    Connections = [
        Pollset
     || {?SOCKET(Handle), _} <- weir:connections(?MODULE), {ok, #{pollset := Pollset}} <- [weir_nif:info(Handle)]
    ],
    case lists:usort(Connections) of
        Pollsets ->
            Streams;
        Fewer ->
            ?assertEqual([], Fewer -- Pollsets),
            streams_on(Pollsets, Port, start_streams(Port, 1) ++ Streams)
    end.

%% All its listening sockets share one backlog.
acceptors_of_a_unix_socket_follow(Config) -> on_machine(?MODULE, follow_local, Config).

follow_local(_Config) ->
    Path = <<0, "weir online ", (list_to_binary(os:getpid()))/binary>>,
    Address = {local, Path},
    {ok, _} = weir:start_listener(?MODULE, #{ip => Address}, handler(function), args),
    ?assertEqual([1, 2], used()),
    Old = [is_served(connect_local(Address)) || _ <- lists:seq(1, 20)],
    lists:foreach(
        fun(Online) ->
            ok = online(Online),
            ?waitEqual(lists:seq(1, Online), used()),
            [is_served(Socket) || Socket <- Old],
            [is_served(connect_local(Address)) || _ <- lists:seq(1, 20)]
        end,
        [4, 1, 2]
    ),
    ok = weir:stop_listener(?MODULE).

connect_local(Address) ->
    {ok, Socket} = keep(gen_tcp:connect(Address, 0, [local, binary, {active, false}], patience())),
    Socket.

connections_go_to_the_least_loaded_that_is_online(Config) -> on_machine(?MODULE, choose_least_loaded, Config).

choose_least_loaded(_Config) ->
    Port = start(function, #{placement => least_loaded}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ?assertEqual([1, 2], used()),
    ok = online(4),
    ?waitEqual({4, 4}, {length(listening()), workers(?MODULE)}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ?assertMatch([_, _, _, _], [Many || #{sockets := Many} <- weir:pollsets(), Many > 5]),
    ok = online(1),
    ?waitEqual([1], used()),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ?assertEqual([1], used()),
    ok = weir:stop_listener(?MODULE).

%%% Bound processes.

bound_connections_wait_and_go_on(Config) -> on_machine(?MODULE, wait_while_bound, Config).

%% As documented, no byte is lost, and no socket leaves its process. The connection may answer early, because all
%% schedulers are online for a moment while workers of the listener end.
wait_while_bound(_Config) ->
    ok = online(4),
    Port = start(function, #{affinity => bound}),
    Peers = #{1 := First, 4 := Last} = one_on_each(4, ?MODULE, #{}),
    ok = online(2),
    ok = gen_tcp:send(Last, <<"last">>),
    ?assertEqual({ok, <<"first">>}, ask(First, <<"first">>)),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ok = online(4),
    ?assertEqual({ok, <<"last">>}, gen_tcp:recv(Last, 4, patience())),
    [?assertEqual(Scheduler, where(Peer, ?MODULE)) || {Scheduler, Peer} <- maps:to_list(Peers)],
    ok = weir:stop_listener(?MODULE).

%%% Changes under load.

no_connection_is_lost_while_schedulers_come_and_go(Config) -> on_machine(?MODULE, change_under_connects, Config).

change_under_connects(_Config) ->
    ok = change_under(start(function, #{})),
    ok = weir:stop_listener(?MODULE).

%% An acceptor may be replaced before it has run, because its scheduler went offline at once.
acceptors_are_replaced_before_they_run(Config) -> on_machine(?MODULE, come_and_go_at_once, Config).

come_and_go_at_once(_Config) ->
    Port = start(function, #{}),
    [
        begin
            ok = weir_test_schedulers:set_online(8),
            _ = weir_pollsets:online(),
            ok = online(2),
            [gen_tcp:close(is_served(connect(Port))) || _ <- lists:seq(1, 32)]
        end
     || _ <- lists:seq(1, 200)
    ],
    ok = weir:stop_listener(?MODULE).

a_suspended_listener_follows(Config) -> on_machine(?MODULE, change_while_suspended, Config).

change_while_suspended(_Config) ->
    [
        begin
            ok = online(2),
            Port = start(Kind, #{}),
            ok = weir:suspend_listener(?MODULE),
            ok = online(4),
            ok = weir:resume_listener(?MODULE),
            ?waitEqual({4, 4}, {length(listening()), workers(?MODULE)}),
            [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
            ok = weir:suspend_listener(?MODULE),
            ok = online(1),
            ok = weir:resume_listener(?MODULE),
            ?assertEqual(1, length(listening())),
            [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
            ok = weir:stop_listener(?MODULE)
        end
     || Kind <- [function, reactor]
    ].

%% On another machine with few descriptors.
a_listener_without_descriptors_follows_later(_Config) ->
    weir_test_node:on_node(?MODULE, follow_later, "ulimit -n 200;", ["+S", "8:2"]).

follow_later(_Config) ->
    Port = start(function, #{}),
    %% Loads the modules that it needs while there are no descriptors.
    ok = code:ensure_modules_loaded([weir_online_test, weir_test_schedulers]),
    is_served(connect(Port)),
    Files = open_files(code:which(?MODULE), []),
    ok = online(8),
    %% It was notified, and has tried.
    ?assertEqual(2, length(listening())),
    _ = [file:close(File) || File <- Files],
    ?waitEqual({8, 8}, {length(listening()), workers(?MODULE)}),
    [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    ok = weir:stop_listener(?MODULE).

open_files(Name, Files) ->
    case file:open(Name, [read, raw]) of
        {ok, File} -> open_files(Name, [File | Files]);
        {error, emfile} -> Files
    end.

%%% Sockets of gen_tcp.

sockets_leave_schedulers_that_go_offline(Config) -> on_machine(?MODULE, leave_schedulers, Config).

%% All except sockets that were placed explicitly. Data that arrives meanwhile stays in order.
leave_schedulers(Config) ->
    ok = online(8),
    Pairs = [socket_pair([{role, accepted} | Config], [binary, {active, true}]) || _ <- lists:seq(1, 16)],
    [ok = weir_nif:move(Handle, 1 + Number rem 8) || {Number, {?SOCKET(Handle), _}} <- lists:enumerate(Pairs)],
    {Placed, PlacedPeer} = socket_pair([{role, accepted} | Config], [binary, {active, true}]),
    ok = weir:migrate(Placed, 7),
    Senders = [async(fun() -> send_numbers(Peer, 0) end) || {_, Peer} <- [{Placed, PlacedPeer} | Pairs]],
    ok = online(2),
    ?waitEqual([1, 2, 7], used()),
    ok = online(1),
    ?waitEqual([1, 7], used()),
    ?assertMatch(#{pollset := 7}, weir_tcp:info(Placed)),
    _ = [pid(Sender) ! stop || Sender <- Senders],
    Sent = [await(Sender) || Sender <- Senders],
    [
        ?assertEqual(numbers(Count), receive_bytes(Socket, 4 * Count, <<>>))
     || {{Socket, _}, Count} <- lists:zip([{Placed, PlacedPeer} | Pairs], Sent)
    ].

send_numbers(Peer, Number) ->
    receive
        stop -> Number
    after 0 ->
        ok = gen_tcp:send(Peer, <<Number:32>>),
        send_numbers(Peer, Number + 1)
    end.

numbers(Count) -> <<<<Number:32>> || Number <- lists:seq(0, Count - 1)>>.

receive_bytes(_Socket, Size, Got) when byte_size(Got) =:= Size -> Got;
receive_bytes(Socket, Size, Got) ->
    receive
        {tcp, Socket, Data} -> receive_bytes(Socket, Size, <<Got/binary, Data/binary>>)
    after patience() -> ct:fail({only, byte_size(Got), of_bytes, Size})
    end.

sockets_are_opened_where_schedulers_are_online(Config) -> on_machine(?MODULE, open_on_all, Config).

%% A caller may have read the number of a scheduler that has gone offline since.
open_on_all(_Config) ->
    Handles = [element(2, {ok, _} = weir_nif:open(weir_tcp, inet, Pollset)) || Pollset <- lists:seq(1, 8)],
    ?assertEqual([1, 2], used()),
    ok = online(8),
    Others = [element(2, {ok, _} = weir_nif:open(weir_tcp, inet, Pollset)) || Pollset <- lists:seq(1, 8)],
    ?assertEqual(lists:seq(1, 8), used()),
    [ok = weir_nif:close(Handle, now) || Handle <- Handles ++ Others].

%% weir_schedulers sets all schedulers online for a moment, for processes that are bound to offline ones.
schedulers_that_come_for_a_moment_are_not_used(Config) -> on_machine(?MODULE, bring_all_online, Config).

bring_all_online(_Config) ->
    _ = start(function, #{}),
    weir_schedulers:with_all_online(fun() ->
        ?assertEqual(8, erlang:system_info(schedulers_online)),
        ?assertEqual([1, 2], weir_pollsets:online()),
        ?assertEqual({2, 2}, {length(listening()), workers(?MODULE)})
    end),
    ?assertEqual(2, erlang:system_info(schedulers_online)),
    ?assertEqual([1, 2], weir_pollsets:online()),
    ok = weir:stop_listener(?MODULE).

%% At any moment: before all schedulers are set online, while they are, or while the earlier number is restored.
a_number_that_is_set_meanwhile_stays(Config) -> on_machine(?MODULE, set_meanwhile, Config).

set_meanwhile(_Config) ->
    Waiting = [async(fun bring_online_until_stopped/0) || _ <- [1, 2]],
    [
        begin
            _ = erlang:system_flag(schedulers_online, Number),
            ?waitEqual(Number, weir_schedulers:online())
        end
     || Round <- lists:seq(1, 100), Number <- [1 + Round rem 7]
    ],
    _ = erlang:system_flag(schedulers_online, 5),
    _ = [pid(Process) ! stop || Process <- Waiting],
    ?assertEqual([ok, ok], [await(Process) || Process <- Waiting]),
    ?assertEqual(5, weir_schedulers:online()),
    ?waitEqual({undefined, 5}, {whereis(weir_schedulers), erlang:system_info(schedulers_online)}).

%% Runs at high priority, so other processes need this pause to run.
bring_online_until_stopped() ->
    receive
        stop -> ok
    after 1 ->
        ok = weir_schedulers:with_all_online(fun() -> ok end),
        bring_online_until_stopped()
    end.

%%% Processes on schedulers that went offline.

%% `application:stop/1' asks all processes for their group leader, and a code purge asks them what they run. Both
%% would hang on processes of offline schedulers.
nothing_stands_still_on_schedulers_that_went(Config) -> on_machine(?MODULE, have_schedulers_go, Config).

have_schedulers_go(_Config) ->
    {ok, _} = application:ensure_all_started(inets),
    [have_schedulers_go_under(Kind) || Kind <- [function, protocol, reactor]],
    ok = application:stop(inets).

have_schedulers_go_under(Kind) ->
    Port = start(Kind, #{}),
    ok = online(8),
    Sockets = [is_served(connect(Port)) || _ <- lists:seq(1, 40)],
    lists:foldl(
        fun(Online, [Socket | Open]) ->
            ok = online(Online),
            ok = all_answer(),
            %% Its acceptor may have been on a scheduler that went offline.
            ok = gen_tcp:close(Socket),
            ?waitEqual(length(Open), length(weir:connections(?MODULE))),
            [is_served(Peer) || Peer <- Open],
            ok = all_answer(),
            ok = application:stop(inets),
            ok = application:start(inets),
            Open
        end,
        Sockets,
        [4, 1, 8, 2]
    ),
    ok = weir:stop_listener(?MODULE).

%% Garbage collection is queued behind earlier messages and signals.
all_answer() ->
    Asking = async(fun() ->
        [{process_info(Process, group_leader), erlang:garbage_collect(Process)} || Process <- processes()]
    end),
    _ = await(Asking),
    ok.

schedulers_come_and_go_many_times(Config) -> on_machine(?MODULE, change_many_times, Config).

change_many_times(_Config) ->
    Streams = start_streams(start(function, #{}), 8),
    [
        begin
            ok = online(1 + (Round * 5) rem 8),
            _ = Round rem 10 =:= 0 andalso assert_streams_go_on(Streams)
        end
     || Round <- lists:seq(1, 200)
    ],
    ok = online(2),
    assert_streams_go_on(Streams),
    ok = all_answer(),
    stop_streams(Streams),
    ok = weir:stop_listener(?MODULE).
