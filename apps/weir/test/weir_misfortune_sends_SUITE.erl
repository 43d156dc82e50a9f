%% Owners that are killed while data is being sent, and sockets that other processes close.
-module(weir_misfortune_sends_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, listen/3, socket_pair/2, keep/1, listener_with_full_backlog/0, async/1, await/1, kill/1, pid/1
]).
-import(weir_test_wait, [wait_until/1, recv_all/1, recv_exactly/2, patience/0]).
-import(weir_misfortune_test, [
    info/1,
    is_open/1,
    stingy_pair/1, stingy_pair/2,
    left_behind/1,
    assert_arrives/2,
    in_close/1,
    in_wait/1,
    owned/2,
    plenty/0,
    send_until_closed/2,
    spin/1
]).

-include("engine_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).
%% More than the kernel takes, so that most of it is in the send queue. No two parts are alike.
-define(PLENTY, 2000000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, owner_killed},
        {group, closed_by_another}].

groups() ->
    [
        {owner_killed, [], [
            what_was_queued_arrives,
            lingering_socket_is_closed,
            lingering_socket_is_received_from,
            lingering_unix_socket_is_given_up,
            others_wait_to_receive,
            others_wait_to_send,
            others_wait_to_send_behind_a_file
        ]},
        {closed_by_another, [], [
            closed_during_recv,
            closed_during_send,
            closed_during_accept,
            closed_during_connect,
            closed_while_senders_finish
        ]}
    ].

what_was_queued_arrives(Config) ->
    {Socket, Peer, Data} = left_behind(Config),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

lingering_socket_is_closed(Config) ->
    {Socket, Peer, Data} = left_behind(Config),
    %% It is closed for all processes, but its queue is still sent.
    ok = gen_tcp:close(Socket),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

%% The end of the peer's stream is reported to no process, and the queue is still sent.
lingering_socket_is_received_from(Config) ->
    {Socket, Peer, Data} = left_behind(Config),
    ok = gen_tcp:shutdown(Peer, write),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    ?assertEqual({error, closed}, await(Receiver)),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

%% After 30 s in which the peer has read nothing. The test does not wait: it changes the reaper's timestamps.
lingering_unix_socket_is_given_up(Config) ->
    {Socket = {_, _, Handle}, Peer} = lingering_unix_pair(Config),
    wait_until(fun() -> is_map_key(Handle, sys:get_state(weir_reaper)) end),
    Left = weir_nif:left_behind(Handle),
    look_after(1, Left),
    true = is_open(Socket),
    %% Any read of the peer restarts the time.
    _ = recv_exactly(Peer, ?PLENTY div 2),
    wait_until(fun() -> weir_nif:left_behind(Handle) < Left end),
    look_after(30, Left),
    true = is_open(Socket),
    ok = restart_reaper(),
    give_up(Socket).

%% When the peer has read a part, the kernel may take more from the queue only now. Then the time restarts.
give_up(Socket = {_, _, Handle}) ->
    Left = weir_nif:left_behind(Handle),
    look_after(1, Left),
    true = is_open(Socket),
    look_after(30, Left),
    case is_open(Socket) of
        false ->
            ok;
        true ->
            ?assert(weir_nif:left_behind(Handle) < Left),
            give_up(Socket)
    end.

lingering_unix_pair(Config) ->
    Path = filename:join("/tmp", "weir-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive]))),
    {ok, Listener} = listen(Config, 0, [binary, {active, false}, {ifaddr, {local, Path}}]),
    {ok, Peer} = keep(gen_tcp:connect({local, Path}, 0, [local, binary, {active, false}])),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ok = file:delete(Path),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, plenty()) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    {Socket, Peer}.

%% Makes the reaper believe that it saw this many bytes left this many seconds earlier, and rescan.
look_after(Seconds, Left) ->
    sys:replace_state(weir_reaper, fun(Lingering) ->
        maps:map(fun(_, {_, Since}) -> {Left, Since - Seconds * 1000} end, Lingering)
    end),
    weir_reaper ! look,
    %% It has scanned when it answers.
    _ = sys:get_state(weir_reaper),
    ok.

restart_reaper() ->
    Old = whereis(weir_reaper),
    exit(Old, kill),
    wait_until(fun() -> is_pid(whereis(weir_reaper)) andalso whereis(weir_reaper) =/= Old end).

%% OTP's port leaves these processes waiting.
others_wait_to_receive(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    in_wait(Receiver),
    ok = kill(Owner),
    ?assertEqual({error, closed}, await(Receiver)),
    assert_arrives(Data, Peer).

others_wait_to_send(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    Senders = [async(fun() -> gen_tcp:send(Socket, <<"more">>) end) || _ <- lists:seq(1, 3)],
    lists:foreach(fun weir_misfortune_test:in_wait/1, Senders),
    ok = kill(Owner),
    {Received, closed} = recv_all(Peer),
    ?assert(binary:part(Received, 0, ?PLENTY) =:= Data),
    Results = [await(Sender) || Sender <- Senders],
    %% Every send that returned ok was sent.
    Sent = [ok || ok <- Results],
    ?assert(byte_size(Received) >= ?PLENTY + 4 * length(Sent)),
    ?assertEqual([], [Result || Result <- Results, Result =/= ok, Result =/= {error, closed}]).

%% The owner has a large table, so its exit takes long. The call that sends the file ends during the exit, when the VM
%% no longer sends messages for the process.
others_wait_to_send_behind_a_file(Config) ->
    %% The kernel does not report which pages of this file system are in memory, so its files are sent on a dirty
    %% scheduler.
    Name = "/dev/shm/weir_misfortune-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive])),
    ok = file:write_file(Name, binary:copy(<<0>>, 3000000)),
    try
        lists:foreach(fun(Round) -> killed_in_sendfile(Config, Name, 2 * Round) end, lists:seq(1, 20))
    after
        ok = file:delete(Name)
    end.

killed_in_sendfile(Config, Name, Round) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {high_watermark, 1}, {low_watermark, 0}]),
    Reader = async(fun() -> recv_all(Peer) end),
    Owner = owned(Socket, fun() ->
        Table = ets:new(large, []),
        true = ets:insert(Table, [{N} || N <- lists:seq(1, 50000)]),
        {ok, File} = file:open(Name, [read, raw, binary]),
        receive
            {ready, Runner} -> Runner ! ready
        end,
        file:sendfile(File, Socket, 0, 0, [])
    end),
    Senders = [async(fun() -> send_until_closed(Socket, <<"x">>) end) || _ <- lists:seq(1, 3)],
    pid(Owner) ! {ready, self()},
    receive ready -> ok end,
    spin(Round * 100),
    ok = kill(Owner),
    [?assertEqual({error, closed}, await(Sender)) || Sender <- Senders],
    await(Reader).

%% Closed by another process ----------------------------------------------------

closed_during_recv(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    in_wait(Receiver),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, await(Receiver)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

closed_during_send(Config) ->
    {Socket, _Peer} = stingy_pair(Config, [{linger, {true, 0}}]),
    ok = gen_tcp:send(Socket, plenty()),
    Senders = [async(fun() -> gen_tcp:send(Socket, <<"more">>) end) || _ <- lists:seq(1, 3)],
    lists:foreach(fun weir_misfortune_test:in_wait/1, Senders),
    ok = gen_tcp:close(Socket),
    [?assertEqual({error, closed}, await(Sender)) || Sender <- Senders].

closed_during_accept(Config) ->
    {Listener, _Port} = listen(Config, [binary]),
    Acceptors = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 3)],
    lists:foreach(fun weir_misfortune_test:in_wait/1, Acceptors),
    ok = gen_tcp:close(Listener),
    [?assertEqual({error, closed}, await(Acceptor)) || Acceptor <- Acceptors].

closed_during_connect(Config) ->
    Port = listener_with_full_backlog(),
    Before = weir:sockets(),
    Backend = proplists:get_value(backend, Config),
    Connector = async(fun() -> gen_tcp:connect(?LOOPBACK, Port, Backend) end),
    in_wait(Connector),
    [Socket] = weir:sockets() -- Before,
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, await(Connector)).

closed_while_senders_finish(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    ok = gen_tcp:send(Socket, Data),
    Sender = async(fun() -> gen_tcp:send(Socket, <<"more">>) end),
    in_wait(Sender),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    in_close(Closer),
    %% It was queued before the close.
    assert_arrives(<<Data/binary, "more">>, Peer),
    ?assertEqual(ok, await(Sender)),
    ?assertEqual(ok, await(Closer)).
