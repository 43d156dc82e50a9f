%% Faults on purpose: processes killed, sockets closed and descriptors used up at the worst moment. After each case
%% the numbers of descriptors and sockets and the pollsets' counts are as before.
-module(weir_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, connect_raw/1, socket_pair/2, keep/1, listener_with_full_backlog/0, async/1, await/1, kill/1, pid/1
]).
-import(weir_test_wait, [wait_until/1, next_message/0, recv_all/1, recv_exactly/2, patience/0]).
-import(weir_misfortune_test, [
    info/1,
    is_open/1,
    stingy_pair/1,
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

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        {group, owner_killed}].

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
            closer_killed_before_the_owner
        ]}
    ].

%% A process that only holds what it is given.
idle() ->
    async(fun() -> ok end).

%% The owner killed ------------------------------------------------------------

killed_in_accept(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    in_wait(Acceptor),
    ok = kill(Acceptor),
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ok = gen_tcp:send(Socket, <<"served">>),
    ?assertEqual(<<"served">>, recv_exactly(Peer, 6)).

%% Acceptors are killed before, while and after a connection is given to them. Each connection is closed or served:
%% none is lost.
killed_while_connections_come(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 1024}]),
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
    lists:foreach(fun weir_misfortune_test:in_wait/1, Acceptors),
    ok = kill(Owner),
    [?assertEqual({error, closed}, await(Acceptor)) || Acceptor <- Acceptors].

%% Dead acceptors are removed from the list of waiting ones.
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

%% A dead receiver takes no data from the owner.
killed_in_recv_of_another_owner(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receive = fun() ->
        Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
        in_wait(Receiver),
        ok = kill(Receiver)
    end,
    Receive(),
    ok = gen_tcp:send(Peer, <<"one">>),
    ?assertEqual({ok, <<"one">>}, gen_tcp:recv(Socket, 3, patience())),
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
    %% It was queued, so it is sent.
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

%% Both processes die, and whichever owns the socket then, it closes.
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

%% Closing waits for the queue, and the socket sends it even if the closing process dies.
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
