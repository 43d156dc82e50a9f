%% Peers that misbehave, and sockets that are closed, copied or on another node.
-module(weir_misfortune_peers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, connect_raw/1, socket_pair/2, reset/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [
    wait_until/1, next_message/0, assert_no_message/0, messages_of/1, recv_all/1, recv_exactly/2, patience/0
]).
-import(weir_test_streams, [start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_test_node, [on_node/4]).
-import(weir_misfortune_test, [is_open/1, stingy_pair/2]).

-include("engine_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, peers},
        {group, handles}
    ].

groups() ->
    [
        {peers, [], [
            storm_of_resets,
            reader_that_never_reads,
            no_descriptors_left
        ]},
        {handles, [], [
            used_after_close,
            used_on_another_node,
            monitor_tells_of_the_close,
            cancelled_monitor_is_silent,
            subscribers_killed
        ]}
    ].

%% Peers that misbehave -----------------------------------------------------------

storm_of_resets(Config) ->
    {_Listener, Port} = start_echo(Config, [passive, once, true, 5]),
    Streams = start_streams(Port, 5),
    Storm = [
        async(fun() -> [open_and_reset(Port, N) || N <- lists:seq(1, 200)] end)
     || _ <- lists:seq(1, 4)
    ],
    assert_streams_go_on(Streams),
    [weir_test_peer:await(Resets, 3 * patience()) || Resets <- Storm],
    assert_streams_go_on(Streams),
    stop_streams(Streams).

open_and_reset(Port, N) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()),
    _ = [gen_tcp:send(Peer, <<"request">>) || N rem 2 =:= 0],
    reset(Peer).

%% Twenty sockets whose peers do not read, five senders each.
reader_that_never_reads(Config) ->
    {_Listener, Port} = start_echo(Config, [once]),
    Streams = start_streams(Port, 2),
    Size = 10000,
    High = 16384,
    Options = [{high_watermark, High}, {low_watermark, 8192}, {send_timeout, 10}],
    Sockets = [element(1, stingy_pair(Config, Options)) || _ <- lists:seq(1, 20)],
    Before = erlang:memory(binary),
    Senders = [async(fun() -> send_in_vain(Socket, Size) end) || Socket <- Sockets, _ <- lists:seq(1, 5)],
    assert_streams_go_on(Streams),
    {Timeouts, Pending} = lists:unzip([await(Sender) || Sender <- Senders]),
    ?assert(lists:min(Timeouts) > 0),
    ?assert(lists:max(Pending) =< High + Size),
    ?assert(lists:max(Pending) > 0),
    %% Without a limit the queues would hold twenty megabytes.
    wait_until(fun() ->
        true = erlang:garbage_collect(),
        More = erlang:memory(binary) - Before,
        More < 4_000_000 orelse {more_memory, More}
    end),
    assert_streams_go_on(Streams),
    stop_streams(Streams).

%% Returns how many sends timed out, and the most bytes that were pending.
send_in_vain(Socket, Size) ->
    Results = [
        begin
            Result = gen_tcp:send(Socket, binary:copy(<<N>>, Size)),
            {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
            {is_timeout(Result), Pending}
        end
     || N <- lists:seq(1, 20)
    ],
    true = erlang:garbage_collect(),
    {Timeouts, Pending} = lists:unzip(Results),
    {length([true || true <- Timeouts]), lists:max(Pending)}.

is_timeout(ok) -> false;
is_timeout({error, timeout}) -> true;
is_timeout({error, {timeout, _Data}}) -> true.

%% Runs on another machine with 200 descriptors.
no_descriptors_left(_Config) ->
    on_node(?MODULE, exhaust_descriptors, "ulimit -n 200;", ["+S", "2:2"]).

exhaust_descriptors(Config) ->
    Warnings = count_warnings(),
    {_EchoListener, EchoPort} = start_echo(Config, [once]),
    Streams = start_streams(EchoPort, 2),
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    _Early = [connect_raw(Port) || _ <- lists:seq(1, 3)],
    assert_streams_go_on(Streams),
    %% Connections wait before the first accept is called.
    First = hoard(),
    Count = counters:new(2, []),
    _Acceptor = async(fun() -> accept_patiently(Listener, Count) end),
    wait_until(fun() -> refused(Count) >= 3 end),
    assert_streams_go_on(Streams),
    ?assertEqual({0, 1}, {accepted(Count), counters:get(Warnings, 1)}),
    RefusedFirst = release(First, Count),
    %% One attempt may have been under way: the next one succeeds.
    wait_until(fun() -> accepted(Count) =:= 3 end),
    ?assert(refused(Count) - RefusedFirst =< 1),
    %% The acceptor waits before the next connection arrives.
    [Last | Second] = hoard(),
    ok = file:close(Last),
    _Late = connect_raw(Port),
    RefusedBefore = refused(Count),
    wait_until(fun() -> refused(Count) >= RefusedBefore + 2 end),
    assert_streams_go_on(Streams),
    %% It is not logged again within a minute.
    ?assertEqual({3, 1}, {accepted(Count), counters:get(Warnings, 1)}),
    RefusedSecond = release(Second, Count),
    wait_until(fun() -> accepted(Count) =:= 4 end),
    ?assert(refused(Count) - RefusedSecond =< 1),
    ?assertEqual(1, counters:get(Warnings, 1)),
    stop_streams(Streams),
    logger:remove_handler(?MODULE).

%% Uses up all descriptors.
hoard() ->
    case file:open("/dev/null", [read, raw]) of
        {ok, File} -> [File | hoard()];
        {error, emfile} -> []
    end.

release(Hoard, Count) ->
    lists:foreach(fun file:close/1, Hoard),
    refused(Count).

accept_patiently(Listener, Count) ->
    case gen_tcp:accept(Listener) of
        {ok, _} ->
            counters:add(Count, 1, 1),
            accept_patiently(Listener, Count);
        {error, emfile} ->
            counters:add(Count, 2, 1),
            receive
            after 10 -> accept_patiently(Listener, Count)
            end;
        {error, closed} ->
            ok
    end.

accepted(Count) -> counters:get(Count, 1).

refused(Count) -> counters:get(Count, 2).

%% Counts Weir's log messages of this level from now on.
count_warnings() ->
    Warnings = counters:new(1, []),
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => warning, config => #{warnings => Warnings}}),
    %% Loads the logger's modules while there are descriptors.
    logger:warning("a warning of ~p", [?MODULE]),
    Warnings.

log(#{level := warning, msg := {"weir: " ++ _, _}}, #{config := #{warnings := Warnings}}) ->
    counters:add(Warnings, 1, 1);
log(#{level := warning, msg := {report, #{what := _}}}, #{config := #{warnings := Warnings}}) ->
    counters:add(Warnings, 1, 1);
log(_Event, _Handler) ->
    ok.

%% Handles --------------------------------------------------------------------------

%% Every function returns for a closed socket what it returns for OTP's, and does not touch the socket that reuses its
%% slot.
used_after_close(Config) ->
    {Old, _} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(Old),
    {New, Peer} = in_slot_of(Old, Config, 100),
    {Stock, _} = socket_pair([{backend, []} | Config], [binary, {active, false}]),
    ok = gen_tcp:close(Stock),
    Calls = #{
        send => fun(S) -> gen_tcp:send(S, <<"wrong">>) end,
        send_nothing => fun(S) -> gen_tcp:send(S, []) end,
        send_rubbish => fun(S) -> gen_tcp:send(S, [rubbish]) end,
        recv => fun(S) -> gen_tcp:recv(S, 0) end,
        recv_timeout => fun(S) -> gen_tcp:recv(S, 10, 10) end,
        accept => fun(S) -> gen_tcp:accept(S, 10) end,
        shutdown => fun(S) -> gen_tcp:shutdown(S, read_write) end,
        controlling_process => fun(S) -> gen_tcp:controlling_process(S, self()) end,
        setopts => fun(S) -> inet:setopts(S, [{active, true}, {nodelay, true}]) end,
        setopts_once => fun(S) -> inet:setopts(S, [{active, once}]) end,
        getopts => fun(S) -> inet:getopts(S, [active, nodelay]) end,
        getstat => fun(S) -> inet:getstat(S) end,
        sockname => fun(S) -> inet:sockname(S) end,
        peername => fun(S) -> inet:peername(S) end,
        port => fun(S) -> inet:port(S) end,
        close => fun(S) -> gen_tcp:close(S) end
    },
    maps:foreach(
        fun(Name, Call) -> ?assertEqual({Name, catch Call(Stock)}, {Name, catch Call(Old)}) end,
        Calls
    ),
    {_, _, Handle} = Old,
    ?assertEqual({error, closed}, weir:migrate(Old, 1)),
    ?assertEqual({error, closed}, weir_nif:unrecv(Handle, <<"wrong">>)),
    ?assertEqual({error, closed}, weir_nif:listen(Handle, 5)),
    ?assertEqual({error, closed}, weir_nif:bind(Handle, {?LOOPBACK, 0})),
    ?assertEqual({error, closed}, weir_nif:connect(Handle, {?LOOPBACK, 1})),
    ?assertEqual({error, closed}, weir_nif:set_owner(Handle, self(), false)),
    ?assertEqual({error, replied}, weir_nif:cancel(Handle, 1)),
    ?assertEqual(false, weir_nif:demonitor(Handle, make_ref())),
    ?assertEqual(#{states => [closed]}, weir_tcp:info(Old)),
    ?assertEqual({ok, [{active, false}, {nodelay, false}]}, inet:getopts(New, [active, nodelay])),
    ok = gen_tcp:send(Peer, <<"ping">>),
    ?assertEqual({ok, <<"ping">>}, gen_tcp:recv(New, 0, patience())),
    ok = gen_tcp:send(New, <<"pong">>),
    ?assertEqual(<<"pong">>, recv_exactly(Peer, 4)),
    assert_no_message().

%% A socket in the slot of a closed one.
in_slot_of(_Old, _Config, 0) ->
    ct:fail(slot_is_not_used_again);
in_slot_of(Old, Config, Attempts) ->
    {New, Peer} = socket_pair([{role, connected} | Config], [binary, {active, false}]),
    case slot(New) =:= slot(Old) of
        true -> {New, Peer};
        false -> in_slot_of(Old, Config, Attempts - 1)
    end.

slot({'$inet', weir_tcp, Handle}) -> Handle band 16#ffffff.

%% Handles of one node are unknown on another, where the same things were opened in the same order.
used_on_another_node(Config) ->
    Node = weir_test_node:start_node("", []),
    {Sockets, Groups, Relays} = peer:call(Node, ?MODULE, things, []),
    ok = peer:stop(Node),
    Pairs = [socket_pair(Config, [binary, {active, false}]) || _ <- Sockets],
    {OurSockets, OurGroups, OurRelays} = open_things(Config),
    [?assertError(badarg, gen_tcp:send(Socket, <<"stray">>)) || Socket <- Sockets],
    [?assertError(badarg, weir_group:broadcast(Group, <<"stray">>)) || Group <- Groups],
    [?assertError(badarg, weir:stop_relay(Relay)) || Relay <- Relays],
    [?assertEqual({error, timeout}, gen_tcp:recv(Peer, 0, 0)) || {_, Peer} <- Pairs],
    [?assertMatch({ok, _}, weir:relay_info(Relay)) || Relay <- OurRelays],
    [weir:stop_relay(Relay) || Relay <- OurRelays],
    [weir_group:delete(Group) || Group <- OurGroups],
    [gen_tcp:close(Socket) || Socket <- OurSockets].

things() ->
    Config = weir_test_peer:init_case(weir_test_peer:init_group(weir, [])),
    open_things(Config).

open_things(Config) ->
    Pair = fun() -> element(1, socket_pair(Config, [binary, {active, false}])) end,
    Relays = [
        begin
            {ok, Relay} = weir:relay(Pair(), Pair()),
            Relay
        end
     || _ <- lists:seq(1, 3)
    ],
    Groups = [
        begin
            {ok, Group} = weir_group:new(#{}),
            Group
        end
     || _ <- lists:seq(1, 3)
    ],
    {[Pair() || _ <- lists:seq(1, 30)], Groups, Relays}.

monitor_tells_of_the_close(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    References = [inet:monitor(Socket) || _ <- lists:seq(1, 3)],
    ok = gen_tcp:close(Socket),
    Downs = [next_message() || _ <- References],
    ?assertEqual(
        lists:sort([{'DOWN', Reference, socket, Socket, normal} || Reference <- References]),
        lists:sort(Downs)
    ),
    Late = inet:monitor(Socket),
    ?assertEqual({'DOWN', Late, socket, Socket, noproc}, next_message()),
    ?assertEqual({<<>>, closed}, recv_all(Peer)),
    assert_no_message().

cancelled_monitor_is_silent(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    References = [inet:monitor(Socket) || _ <- lists:seq(1, 1000)],
    {Cancelled, [Kept]} = lists:split(999, References),
    [?assert(inet:cancel_monitor(Reference)) || Reference <- Cancelled],
    ?assertNot(inet:cancel_monitor(hd(Cancelled))),
    ok = gen_tcp:close(Socket),
    ?assertEqual({'DOWN', Kept, socket, Socket, normal}, next_message()),
    ?assertNot(inet:cancel_monitor(Kept)),
    assert_no_message().

subscribers_killed(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Subscribers = [async(fun() -> inet:monitor(Socket) end) || _ <- lists:seq(1, 100)],
    References = [{Subscriber, await(Subscriber)} || Subscriber <- Subscribers],
    {Killed, Left} = lists:split(50, References),
    [ok = kill(Subscriber) || {Subscriber, _} <- Killed],
    ?assert(is_open(Socket)),
    ok = gen_tcp:close(Socket),
    [
        ?assertEqual([{'DOWN', Reference, socket, Socket, normal}], messages_of(pid(Subscriber)))
     || {Subscriber, Reference} <- Left
    ],
    ?assertEqual({<<>>, closed}, recv_all(Peer)).
