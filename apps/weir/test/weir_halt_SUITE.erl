%% What is sent when the VM ends, and whether it ends: `halt`, `init:stop`, schedulers offline.
%%
%% Each case starts a VM that ends by itself.
-module(weir_halt_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_wait, [wait_until/1, recv_all/1, patience/0]).
-import(weir_test_peer, [async/1, await/1]).
-import(weir_test_node, [start_vm/4, ended/2]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(BYTES, 6_000_000).
-define(SUCCESSORS, 4).
%% Milliseconds that a peer waits before it reads, so that the VM can begin to end. A shorter pause can only hide a
%% fault.
-define(PAUSE, 100).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, vm}].

groups() ->
    [
        {vm, [], [
            halt_sends_what_was_confirmed,
            stop_sends_what_was_confirmed,
            a_server_sends_what_was_confirmed,
            a_stop_after_members_that_ended_while_they_moved,
            a_halt_does_not_wait_for_ever,
            stops_with_schedulers_offline
        ]}
    ].

halt_sends_what_was_confirmed(_Config) ->
    ?assertEqual(?BYTES, sent_by_a_client(halt)).

stop_sends_what_was_confirmed(_Config) ->
    ?assertEqual(?BYTES, sent_by_a_client(stop)).

%% Returns the number of bytes that a client's peer gets, if it pauses before it reads.
sent_by_a_client(End) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Vm = start_vm(?MODULE, [], send_and_end, [Port, End]),
    {ok, Socket} = gen_tcp:accept(Listener, patience()),
    timer:sleep(?PAUSE),
    {Received, closed} = recv_all(Socket),
    ?assertEqual(<<>>, ended(Vm, patience())),
    byte_size(Received).

send_and_end(Port, End) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{tcp_module, weir_tcp}, binary]),
    ok = gen_tcp:send(Socket, binary:copy(<<"x">>, ?BYTES)),
    end_vm(End).

end_vm(halt) -> erlang:halt(0);
end_vm(stop) -> init:stop().

a_server_sends_what_was_confirmed(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Vm = start_vm(?MODULE, [], serve_and_end, [Port]),
    {ok, Told} = gen_tcp:accept(Listener, patience()),
    {ok, <<Served:16>>} = gen_tcp:recv(Told, 2, patience()),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Served, [binary, {active, false}]),
    timer:sleep(?PAUSE),
    {Received, closed} = recv_all(Socket),
    ?assertEqual(?BYTES, byte_size(Received)),
    ?assertEqual(<<>>, ended(Vm, patience())).

serve_and_end(Port) ->
    {ok, _} = application:ensure_all_started(weir),
    Serve = fun(Socket, _) ->
        ok = gen_tcp:send(Socket, binary:copy(<<"y">>, ?BYTES)),
        init:stop(),
        timer:sleep(infinity)
    end,
    {ok, _} = weir:start_listener(last, #{port => 0}, Serve, []),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, []),
    ok = gen_tcp:send(Socket, <<(weir:get_port(last)):16>>).

%% The sockets that reuse the slots of ended members are flushed like all others.
a_stop_after_members_that_ended_while_they_moved(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Vm = start_vm(?MODULE, ["+S", "2:2"], end_members_and_stop, [Port]),
    Sockets = [begin {ok, Socket} = gen_tcp:accept(Listener, patience()), Socket end || _ <- lists:seq(1, ?SUCCESSORS)],
    Received = [byte_size(Bytes) || {Bytes, closed} <- recv_all_at_once(Sockets)],
    ?assertEqual(lists:duplicate(?SUCCESSORS, ?BYTES), Received),
    ?assertEqual(<<>>, ended(Vm, patience())).

%% Reads all sockets at the same time: each read returns when its socket is closed, perhaps only when the VM is gone,
%% and the VM waits for the other readers only for a limited time.
recv_all_at_once(Sockets) ->
    Readers = [async(fun() -> recv_all(Socket) end) || Socket <- Sockets],
    [await(Reader) || Reader <- Readers].

end_members_and_stop(Port) ->
    {ok, Group} = weir_group:new(#{}),
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, true}, {ip, ?LOOPBACK}]),
    {ok, Own} = inet:port(Listener),
    Pairs = [
        begin
            {ok, Peer} = gen_tcp:connect(?LOOPBACK, Own, [{linger, {true, 0}}]),
            {ok, Socket} = gen_tcp:accept(Listener),
            ok = weir_group:join(Group, Socket),
            {Socket, Peer}
        end
     || _ <- lists:seq(1, ?SUCCESSORS)
    ],
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    [ok = gen_tcp:close(Peer) || {_, Peer} <- Pairs],
    {ok, _} = weir_group:broadcast(Group, "hello"),
    [catch weir:migrate(Socket, Scheduler) || {Socket, _} <- Pairs, Scheduler <- [1, 2]],
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    [
        begin
            {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{tcp_module, weir_tcp}, binary]),
            ok = gen_tcp:send(Socket, binary:copy(<<"x">>, ?BYTES))
        end
     || _ <- Pairs
    ],
    init:stop().

%% The peer does not read. Queued data is given up after some seconds.
a_halt_does_not_wait_for_ever(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Vm = start_vm(?MODULE, [], send_and_end, [Port, halt]),
    {ok, Socket} = gen_tcp:accept(Listener, patience()),
    ?assertEqual(<<>>, ended(Vm, patience())),
    gen_tcp:close(Socket).

%% Processes that are bound to an offline scheduler do not run, so they cannot end.
stops_with_schedulers_offline(_Config) ->
    ?assertEqual(<<>>, ended(start_vm(?MODULE, ["+S", "4:4"], lower_and_stop, []), patience())).

lower_and_stop() ->
    {ok, _} = application:ensure_all_started(weir),
    Serve = fun(Socket, _) -> gen_tcp:recv(Socket, 0) end,
    {ok, _} = weir:start_listener(bound, #{port => 0, affinity => bound}, Serve, []),
    Connect = fun(_) -> gen_tcp:connect(?LOOPBACK, weir:get_port(bound), [{active, false}]) end,
    Peers = lists:map(Connect, lists:seq(1, 20)),
    wait_until(fun() -> length(weir:connections(bound)) =:= length(Peers) end),
    _ = erlang:system_flag(schedulers_online, 1),
    wait_until(fun() -> lists:usort([Home || {_, Home} <- maps:values(weir_pollsets:pollers())]) =:= [1] end),
    init:stop(),
    timer:sleep(infinity).
