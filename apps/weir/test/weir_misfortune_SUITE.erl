%% What goes wrong on purpose: processes killed, sockets closed and descriptors
%% used up at the worst moment. After each case the descriptors, the sockets
%% and the pollsets' counts of them are what they were before.
-module(weir_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, listen/3, connect_raw/1, socket_pair/2, socket_pair/3, keep/1, reset/1,
    listener_with_full_backlog/0, async/1, await/1, kill/1, pid/1,
    start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1, on_node/4,
    wait_until/1, next_message/0, assert_no_message/0, messages_of/1, recv_all/1, recv_exactly/2
]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(PATIENCE, 10000).

suite() ->
    [{timetrap, {seconds, 60}}].

all() ->
    [
        {group, owner_killed},
        {group, closed_by_another},
        {group, peers},
        {group, handles}
    ].

groups() ->
    [
        {owner_killed, [], [
            killed_in_accept,
            killed_while_connections_come,
            killed_after_accept,
            owner_of_the_listener_killed,
            ten_thousand_killed_in_accept,
            killed_in_recv,
            killed_in_recv_of_another_owner,
            killed_in_send,
            killed_in_connect,
            killed_while_data_flies,
            killed_while_it_hands_over,
            killed_in_close,
            closer_killed_before_the_owner,
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
        ]},
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

init_per_group(_Group, Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

%% A process that does nothing but hold what it is given.
idle() ->
    async(fun() -> ok end).

%% Hands a socket of the caller's to a process and has that run a function.
owned(Socket, Fun) ->
    Owner = async(fun() ->
        receive
            go -> Fun()
        end
    end),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    pid(Owner) ! go,
    Owner.

wait_for_process_in(Async, Function) ->
    wait_until(fun() ->
        case process_info(pid(Async), [status, current_function]) of
            [{status, waiting}, {current_function, Function}] -> true;
            _ -> false
        end
    end).

in_wait(Async) ->
    wait_for_process_in(Async, {weir_operation, await_until, 4}).

in_close(Async) ->
    wait_for_process_in(Async, {weir_flush, await_flush, 4}).

info({'$inet', weir_tcp, Handle}) ->
    case weir_nif:info(Handle) of
        {ok, Info} -> Info;
        {error, closed} -> closed
    end.

is_open(Socket) ->
    info(Socket) =/= closed.

%% More than the kernel takes, so that most of it is in the send queue. No two
%% parts of it are alike.
-define(PLENTY, 2000000).

plenty() ->
    <<<<N:32>> || N <- lists:seq(1, ?PLENTY div 4)>>.

%% The peer gets all of it, and then the end. (Megabytes are not compared by a
%% macro that prints them.)
assert_arrives(Data, Peer) ->
    {Received, End} = recv_all(Peer),
    ?assertEqual({byte_size(Data), closed}, {byte_size(Received), End}),
    ?assert(Received =:= Data).

stingy_pair(Config) ->
    stingy_pair(Config, []).

stingy_pair(Config, Options) ->
    socket_pair(Config, [binary, {active, false}, {sndbuf, 8192} | Options], [{recbuf, 8192}]).

%% The owner killed ------------------------------------------------------------

killed_in_accept(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    in_wait(Acceptor),
    ok = kill(Acceptor),
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    ok = gen_tcp:send(Socket, <<"served">>),
    ?assertEqual(<<"served">>, recv_exactly(Peer, 6)).

%% Acceptors are killed before, while and after a connection is given to them.
%% Each connection is closed or served: none is forgotten.
killed_while_connections_come(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 128}]),
    Peers = [
        begin
            {Acceptor, Monitor} = spawn_monitor(fun() ->
                {ok, _} = gen_tcp:accept(Listener),
                receive
                    never -> ok
                end
            end),
            Peer = connect_raw(Port),
            spin(rand:uniform(3000)),
            exit(Acceptor, kill),
            receive
                {'DOWN', Monitor, process, Acceptor, killed} -> ok
            end,
            Peer
        end
     || _ <- lists:seq(1, 200)
    ],
    Last = async(fun() -> refuse_all(Listener) end),
    Ends = [recv_all(Peer) || Peer <- Peers],
    ?assertEqual([], [End || End <- Ends, End =/= {<<>>, closed}]),
    ok = kill(Last).

refuse_all(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Socket),
    refuse_all(Listener).

spin(0) -> ok;
spin(N) -> spin(N - 1).

killed_after_accept(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    {ok, Socket} = await(Acceptor),
    ok = kill(Acceptor),
    ?assertEqual({<<>>, closed}, recv_all(Peer)),
    wait_until(fun() -> not is_open(Socket) end).

owner_of_the_listener_killed(Config) ->
    {Listener, _Port} = listen(Config, [binary]),
    Owner = owned(Listener, fun() -> ok end),
    Acceptors = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 5)],
    lists:foreach(fun in_wait/1, Acceptors),
    ok = kill(Owner),
    [?assertEqual({error, closed}, await(Acceptor)) || Acceptor <- Acceptors].

%% Those who died are taken off the list of those who wait.
ten_thousand_killed_in_accept(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Longest = lists:max([
        begin
            Acceptors = [spawn(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 100)],
            lists:foreach(
                fun(Acceptor) ->
                    wait_until(fun() -> process_info(Acceptor, status) =:= {status, waiting} end),
                    exit(Acceptor, kill)
                end,
                Acceptors
            ),
            maps:get(acceptors, info(Listener))
        end
     || _ <- lists:seq(1, 100)
    ]),
    ?assert(Longest =< 512),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    in_wait(Acceptor),
    _Peer = connect_raw(Port),
    {ok, Socket} = await(Acceptor),
    ?assert(is_open(Socket)).

killed_in_recv(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Owner = owned(Socket, fun() -> gen_tcp:recv(Socket, 0) end),
    in_wait(Owner),
    ok = kill(Owner),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

%% The receiver that died takes nothing from the owner.
killed_in_recv_of_another_owner(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receive = fun() ->
        Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
        in_wait(Receiver),
        ok = kill(Receiver)
    end,
    Receive(),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({ok, <<"one">>}, gen_tcp:recv(Socket, 3, ?PATIENCE)),
    Receive(),
    ok = inet:setopts(Socket, [{active, once}]),
    ok = gen_tcp:send(Peer, <<"two">>),
    ?assertEqual({tcp, Socket, <<"two">>}, next_message()).

killed_in_send(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:send(Socket, <<"and more">>)
    end),
    in_wait(Owner),
    ok = kill(Owner),
    %% It was in the queue, so it is sent.
    assert_arrives(<<Data/binary, "and more">>, Peer).

killed_in_connect(Config) ->
    Port = listener_with_full_backlog(),
    Before = weir:sockets(),
    Backend = proplists:get_value(backend, Config),
    Connector = async(fun() -> gen_tcp:connect(?LOOPBACK, Port, Backend) end),
    in_wait(Connector),
    [Socket] = weir:sockets() -- Before,
    ?assertMatch(#{state := connecting}, info(Socket)),
    ok = kill(Connector),
    wait_until(fun() -> not is_open(Socket) end).

killed_while_data_flies(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
            Reader = owned(Socket, fun() -> swallow(Socket, Active) end),
            Writer = async(fun() ->
                receive
                    go -> send_until_closed(Peer, binary:copy(<<"flying">>, 10000))
                end
            end),
            ok = gen_tcp:controlling_process(Peer, pid(Writer)),
            pid(Writer) ! go,
            wait_until(fun() ->
                {ok, [{recv_oct, Received}]} = inet:getstat(Socket, [recv_oct]),
                Received > 100000
            end),
            ok = kill(Reader),
            ?assertMatch({error, _}, await(Writer)),
            wait_until(fun() -> not is_open(Socket) end)
        end,
        [true, once, 10]
    ).

swallow(Socket, Active) ->
    ok = inet:setopts(Socket, [{active, Active}]),
    swallow_messages(Socket, Active).

swallow_messages(Socket, Active) ->
    receive
        {tcp, Socket, _} when Active =:= once -> swallow(Socket, Active);
        {tcp, Socket, _} -> swallow_messages(Socket, Active);
        {tcp_passive, Socket} -> swallow(Socket, Active)
    end.

send_until_closed(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> send_until_closed(Socket, Data);
        Error -> Error
    end.

%% Whoever has it when both are dead: it closes.
killed_while_it_hands_over(Config) ->
    lists:foreach(
        fun(Round) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
            New = idle(),
            Old = owned(Socket, fun() -> gen_tcp:controlling_process(Socket, pid(New)) end),
            ok = gen_tcp:send(Peer, <<"in between">>),
            spin(Round * 40),
            {First, Second} =
                case Round rem 2 of
                    0 -> {Old, New};
                    1 -> {New, Old}
                end,
            ok = kill(First),
            spin(rand:uniform(1000)),
            ok = kill(Second),
            {<<>>, _} = recv_all(Peer),
            wait_until(fun() -> not is_open(Socket) end)
        end,
        lists:seq(1, 100)
    ).

%% Closing waits for the queue, and the socket goes on without who waited.
killed_in_close(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:close(Socket)
    end),
    in_close(Owner),
    ok = kill(Owner),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

closer_killed_before_the_owner(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    Closer = async(fun() -> gen_tcp:close(Socket) end),
    in_close(Closer),
    ok = kill(Closer),
    ok = kill(Owner),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

what_was_queued_arrives(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

lingering_socket_is_closed(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    %% It is closed to all, and takes nothing from what is still to be sent.
    ok = gen_tcp:close(Socket),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

%% The end of the peer's stream is nobody's news any more, and takes nothing
%% from what is still to be sent.
lingering_socket_is_received_from(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    ok = gen_tcp:shutdown(Peer, write),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    ?assertEqual({error, closed}, await(Receiver)),
    assert_arrives(Data, Peer),
    wait_until(fun() -> not is_open(Socket) end).

%% After 30 s in which the peer has taken nothing, which the clock of this case counts faster.
lingering_unix_socket_is_given_up(Config) ->
    {Socket, Peer} = lingering_unix_pair(Config),
    age_lingering(20),
    true = is_open(Socket),
    %% What the peer takes begins the time anew.
    _ = recv_exactly(Peer, ?PLENTY div 2),
    age_lingering(30),
    true = is_open(Socket),
    ok = restart_reaper(),
    age_lingering(20),
    true = is_open(Socket),
    age_lingering(10),
    false = is_open(Socket).

lingering_unix_pair(Config) ->
    Path = filename:join("/tmp", "weir-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive]))),
    {ok, Listener} = listen(Config, 0, [binary, {active, false}, {ifaddr, {local, Path}}]),
    {ok, Peer} = keep(gen_tcp:connect({local, Path}, 0, [local, binary, {active, false}])),
    {ok, Socket} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    ok = file:delete(Path),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, plenty()) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    {Socket, Peer}.

%% Has the reaper find that so many seconds have passed.
age_lingering(Seconds) ->
    sys:replace_state(weir_reaper, fun(Lingering) ->
        maps:map(fun(_, {Left, Since}) -> {Left, Since - Seconds * 1000} end, Lingering)
    end),
    weir_reaper ! look,
    %% It has looked when it answers.
    _ = sys:get_state(weir_reaper),
    ok.

restart_reaper() ->
    Old = whereis(weir_reaper),
    exit(Old, kill),
    wait_until(fun() -> is_pid(whereis(weir_reaper)) andalso whereis(weir_reaper) =/= Old end).

%% (A port of OTP's leaves them waiting.)
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
    lists:foreach(fun in_wait/1, Senders),
    ok = kill(Owner),
    {Received, closed} = recv_all(Peer),
    ?assert(binary:part(Received, 0, ?PLENTY) =:= Data),
    Results = [await(Sender) || Sender <- Senders],
    %% What was said to be sent was.
    Sent = [ok || ok <- Results],
    ?assert(byte_size(Received) >= ?PLENTY + 4 * length(Sent)),
    ?assertEqual([], [Result || Result <- Results, Result =/= ok, Result =/= {error, closed}]).

%% The owner has a large table, so its exit takes long: the call that sends the file ends in the middle of it, when the
%% VM sends nothing for the process any more.
others_wait_to_send_behind_a_file(Config) ->
    %% The kernel does not tell of this file system what is in memory: such files go on a dirty scheduler.
    Name = "/dev/shm/weir_misfortune-" ++ os:getpid(),
    ok = file:write_file(Name, binary:copy(<<0>>, 3000000)),
    try
        lists:foreach(fun(Round) -> killed_in_sendfile(Config, Name, Round) end, lists:seq(1, 40))
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
    lists:foreach(fun in_wait/1, Senders),
    ok = gen_tcp:close(Socket),
    [?assertEqual({error, closed}, await(Sender)) || Sender <- Senders].

closed_during_accept(Config) ->
    {Listener, _Port} = listen(Config, [binary]),
    Acceptors = [async(fun() -> gen_tcp:accept(Listener) end) || _ <- lists:seq(1, 3)],
    lists:foreach(fun in_wait/1, Acceptors),
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
    %% It was taken before the close.
    assert_arrives(<<Data/binary, "more">>, Peer),
    ?assertEqual(ok, await(Sender)),
    ?assertEqual(ok, await(Closer)).

%% Peers that misbehave -----------------------------------------------------------

storm_of_resets(Config) ->
    {_Listener, Port} = start_echo(Config, [passive, once, true, 5]),
    Streams = start_streams(Port, 5),
    Storm = [
        async(fun() -> [open_and_reset(Port, N) || N <- lists:seq(1, 500)] end)
     || _ <- lists:seq(1, 4)
    ],
    assert_streams_go_on(Streams),
    lists:foreach(fun weir_test_peer:await/1, Storm),
    assert_streams_go_on(Streams),
    stop_streams(Streams).

open_and_reset(Port, N) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], ?PATIENCE),
    _ = [gen_tcp:send(Peer, <<"request">>) || N rem 2 =:= 0],
    reset(Peer).

%% Twenty sockets whose peers take nothing, five senders to each.
reader_that_never_reads(Config) ->
    {_Listener, Port} = start_echo(Config, [once]),
    Streams = start_streams(Port, 2),
    Size = 10000,
    High = 16384,
    Options = [{high_watermark, High}, {low_watermark, 8192}, {send_timeout, 50}],
    Sockets = [element(1, stingy_pair(Config, Options)) || _ <- lists:seq(1, 20)],
    Before = erlang:memory(binary),
    Senders = [async(fun() -> send_in_vain(Socket, Size) end) || Socket <- Sockets, _ <- lists:seq(1, 5)],
    assert_streams_go_on(Streams),
    {Timeouts, Pending} = lists:unzip([await(Sender) || Sender <- Senders]),
    ?assert(lists:min(Timeouts) > 0),
    ?assert(lists:max(Pending) =< High + Size),
    ?assert(lists:max(Pending) > 0),
    %% Were the queues not bounded, they would hold twenty megabytes.
    ?assert(erlang:memory(binary) - Before < 4000000),
    assert_streams_go_on(Streams),
    stop_streams(Streams).

%% How many sends timed out, and the most bytes that were seen to wait.
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

%% A machine of its own has 200 descriptors.
no_descriptors_left(_Config) ->
    on_node(?MODULE, exhaust_descriptors, "ulimit -n 200;", []).

exhaust_descriptors(Config) ->
    Warnings = count_warnings(),
    {_EchoListener, EchoPort} = start_echo(Config, [once]),
    Streams = start_streams(EchoPort, 2),
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    _Early = [connect_raw(Port) || _ <- lists:seq(1, 3)],
    assert_streams_go_on(Streams),
    %% Connections wait when the first accept is called.
    First = hoard(),
    Count = counters:new(2, []),
    _Acceptor = async(fun() -> accept_patiently(Listener, Count) end),
    wait_until(fun() -> refused(Count) >= 3 end),
    assert_streams_go_on(Streams),
    ?assertEqual({0, 1}, {accepted(Count), counters:get(Warnings, 1)}),
    RefusedFirst = release(First, Count),
    %% One try may have been on its way: the next one succeeds.
    wait_until(fun() -> accepted(Count) =:= 3 end),
    ?assert(refused(Count) - RefusedFirst =< 1),
    %% The acceptor waits when the next connection comes.
    [Last | Second] = hoard(),
    ok = file:close(Last),
    _Late = connect_raw(Port),
    RefusedBefore = refused(Count),
    wait_until(fun() -> refused(Count) >= RefusedBefore + 2 end),
    assert_streams_go_on(Streams),
    %% Within a minute of the first this is not told again.
    ?assertEqual({3, 1}, {accepted(Count), counters:get(Warnings, 1)}),
    RefusedSecond = release(Second, Count),
    wait_until(fun() -> accepted(Count) =:= 4 end),
    ?assert(refused(Count) - RefusedSecond =< 1),
    ?assertEqual(1, counters:get(Warnings, 1)),
    stop_streams(Streams),
    logger:remove_handler(?MODULE).

%% All descriptors that there are.
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
            after 100 -> accept_patiently(Listener, Count)
            end;
        {error, closed} ->
            ok
    end.

accepted(Count) -> counters:get(Count, 1).

refused(Count) -> counters:get(Count, 2).

%% Counts what is logged at this level by Weir from now on.
count_warnings() ->
    Warnings = counters:new(1, []),
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => warning, config => #{warnings => Warnings}}),
    %% What logging needs is loaded while there are descriptors.
    logger:warning("a warning of ~p", [?MODULE]),
    Warnings.

log(#{level := warning, msg := {"weir: " ++ _, _}}, #{config := #{warnings := Warnings}}) ->
    counters:add(Warnings, 1, 1);
log(#{level := warning, msg := {report, #{what := _}}}, #{config := #{warnings := Warnings}}) ->
    counters:add(Warnings, 1, 1);
log(_Event, _Handler) ->
    ok.

%% Handles --------------------------------------------------------------------------

%% Every function says of a closed socket what it says of one of OTP's, and the
%% socket that lives in its slot now is not touched.
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
    ?assertEqual({error, closed}, weir_nif:set_owner(Handle, self())),
    ?assertEqual({error, replied}, weir_nif:cancel(Handle, 1)),
    ?assertEqual(false, weir_nif:demonitor(Handle, make_ref())),
    ?assertEqual(#{states => [closed]}, weir_tcp:info(Old)),
    ?assertEqual({ok, [{active, false}, {nodelay, false}]}, inet:getopts(New, [active, nodelay])),
    ok = gen_tcp:send(Peer, <<"ping">>),
    ?assertEqual({ok, <<"ping">>}, gen_tcp:recv(New, 0, ?PATIENCE)),
    ok = gen_tcp:send(New, <<"pong">>),
    ?assertEqual(<<"pong">>, recv_exactly(Peer, 4)),
    assert_no_message().

%% A socket that lives where a closed one did.
in_slot_of(_Old, _Config, 0) ->
    ct:fail(slot_is_not_used_again);
in_slot_of(Old, Config, Attempts) ->
    {New, Peer} = socket_pair([{role, connected} | Config], [binary, {active, false}]),
    case slot(New) =:= slot(Old) of
        true -> {New, Peer};
        false -> in_slot_of(Old, Config, Attempts - 1)
    end.

slot({'$inet', weir_tcp, Handle}) -> Handle band 16#ffffff.

%% Names of one node name nothing on another, where other things have been opened in the same order.
used_on_another_node(Config) ->
    Node = weir_test_peer:start_node("", []),
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
