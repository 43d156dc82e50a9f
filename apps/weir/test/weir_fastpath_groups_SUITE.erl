%% Groups when members, broadcasters, reactors and pollers die, several at once.
-module(weir_fastpath_groups_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    connect_raw/1, socket_pair/2, socket_pair/3, keep/1, reset/1, async/1, await/1, await/2, kill/1, pid/1
]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(weir_fastpath_test, [given/2, has_ended/1, is_over/1, kill_pollers/0, one_of/1, pause/0, stop/1]).

-include("fastpath_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, groups}].

groups() ->
    [
        {groups, [], [
            slow_members_of_every_policy_die,
            broadcasters_killed,
            members_move_and_close,
            groups_deleted_while_broadcasts_fly,
            everybody_joins_and_leaves_at_once,
            a_reactor_of_members_killed,
            members_become_relays
        ]}
    ].

%% Groups ----------------------------------------------------------------------

new_group(Options) ->
    {ok, Group} = weir_group:new(Options),
    Group.

%% A member, its peer, and the owners of both. Neither socket has much room.
member(Config, Group) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]),
    ok = weir_group:join(Group, Socket),
    Owner = given(Socket, fun(_) -> receive never -> ok end end),
    {Owner, Socket, Peer}.

reader(Peer) ->
    given(Peer, fun weir_test_wait:recv_all/1).

%% Messages are numbers, padded to this many bytes.
-define(BYTES, 500).

number(N) ->
    <<N:64, 0:((?BYTES - 8) * 8)>>.

numbers(Data) ->
    [N || <<N:64, _:(?BYTES - 8)/binary>> <= Data].

%% Broadcasts numbers until it is told to stop or the group is deleted; returns the count.
broadcaster(Group) ->
    broadcaster(Group, fun erlang:yield/0).

%% The same with a function that is called after each broadcast.
broadcaster(Group, Pause) ->
    async(fun() -> broadcast(Group, Pause, 1) end).

broadcast(Group, Pause, N) ->
    receive
        stop -> N - 1
    after 0 ->
        case weir_group:broadcast(Group, number(N)) of
            {ok, _} ->
                _ = Pause(),
                broadcast(Group, Pause, N + 1);
            {error, busy} ->
                erlang:yield(),
                broadcast(Group, Pause, N);
            {error, closed} ->
                N - 1
        end
    end.

%% A member gets messages in the order of the broadcasts, each once. A death may cut the last one.
is_in_order(Data) ->
    Numbers = numbers(Data),
    ?assertEqual(lists:usort(Numbers), Numbers).

broadcasts(Group) ->
    {ok, #{broadcasts := Count}} = weir_group:info(Group),
    Count.

%% For every policy there are members that read and members that do not. Some of each are killed, some reset, some
%% left alone. The policy limits the memory of those that do not read.
slow_members_of_every_policy_die(Config) ->
    [
        begin
            Group = new_group(#{policy => Policy, max_messages => 4}),
            Slow = [member(Config, Group) || _ <- lists:seq(1, 9)],
            Reading = [
                {Member, reader(Peer)}
             || {_, _, Peer} = Member <- [member(Config, Group) || _ <- lists:seq(1, 9)]
            ],
            Broadcaster = broadcaster(Group),
            wait_until(fun() -> broadcasts(Group) > 200 end),
            ?assert(queued(Slow) =< 9 * 5 * ?BYTES),
            [
                begin
                    pause(),
                    case N rem 3 of
                        0 -> kill(Owner);
                        1 -> reset(Peer);
                        2 -> ok
                    end
                end
             || {N, {Owner, _, Peer}} <- lists:zip(lists:seq(1, 9), Slow)
            ],
            [kill(Owner) || {N, {{Owner, _, _}, _}} <- lists:zip(lists:seq(1, 9), Reading), N rem 3 =:= 0],
            [kill(Reader) || {N, {_, Reader}} <- lists:zip(lists:seq(1, 9), Reading), N rem 3 =:= 1],
            Now = broadcasts(Group),
            wait_until(fun() -> broadcasts(Group) > Now + 100 end),
            _ = stop(Broadcaster),
            [kill(Owner) || {Owner, _, _} <- Slow],
            [kill(Owner) || {{Owner, _, _}, _} <- Reading],
            wait_until(fun() -> weir_group:size(Group) =:= 0 end),
            [
                begin
                    {Data, _} = await(Reader),
                    is_in_order(Data)
                end
             || {_, Reader} <- Reading, is_process_alive(pid(Reader))
            ],
            ok = weir_group:delete(Group)
        end
     || Policy <- [drop_oldest, drop_newest, conflate, disconnect, leave]
    ].

%% Bytes in the send queues of members.
queued(Members) ->
    lists:sum([
        Bytes
     || {_, Socket, _} <- Members,
        {ok, [{send_pend, Bytes}]} <- [inet:getstat(Socket, [send_pend])]
    ]).

%% The dead broadcasters get no notification when their broadcasts are delivered.
broadcasters_killed(Config) ->
    Group = new_group(#{}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 5)],
    Readers = [reader(Peer) || {_, _, Peer} <- Members],
    Insist = fun Insist() ->
        _ = weir_group:broadcast(Group, number(1), #{notify => make_ref()}),
        Insist()
    end,
    [
        begin
            Broadcaster = async(Insist),
            pause(),
            kill(Broadcaster)
        end
     || _ <- lists:seq(1, 30)
    ],
    wait_until(fun() -> {ok, #{pending := Pending}} = weir_group:info(Group), Pending =:= 0 end),
    [kill(Owner) || {Owner, _, _} <- Members],
    [?assertMatch({<<_:?BYTES/binary, _/binary>>, closed}, await(Reader, patience())) || Reader <- Readers].

members_move_and_close(Config) ->
    Group = new_group(#{}),
    Broadcaster = broadcaster(Group),
    Pollsets = weir_pollsets:all(),
    [
        begin
            {_Owner, Socket, Peer} = member(Config, Group),
            Reader = reader(Peer),
            Mover = async(fun() -> [weir:migrate(Socket, one_of(Pollsets)) || _ <- lists:seq(1, 50)] end),
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause(),
            ok = gen_tcp:close(Socket),
            _ = await(Mover),
            {Data, closed} = await(Reader, patience()),
            is_in_order(Data)
        end
     || N <- lists:seq(1, 60)
    ],
    ?assertEqual(0, weir_group:size(Group)),
    _ = stop(Broadcaster).

%% Members outlive their groups, and each message that they got is complete.
groups_deleted_while_broadcasts_fly(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Reader = reader(Peer),
    [
        begin
            Group = new_group(#{}),
            ok = weir_group:join(Group, Socket),
            Broadcasters = [broadcaster(Group) || _ <- [1, 2]],
            pause(),
            ok = weir_group:delete(Group),
            %% They end when they notice the deletion.
            [await(Broadcaster) || Broadcaster <- Broadcasters],
            ?assertEqual({error, closed}, weir_group:info(Group))
        end
     || _ <- lists:seq(1, 50)
    ],
    ok = gen_tcp:send(Socket, <<"open">>),
    ok = gen_tcp:close(Socket),
    {Data, closed} = await(Reader, patience()),
    ?assertEqual(4, byte_size(Data) rem ?BYTES),
    %% After it come only messages that a poller was writing when their group was deleted.
    {At, 4} = binary:match(Data, <<"open">>),
    ?assertEqual(0, At rem ?BYTES).

everybody_joins_and_leaves_at_once(Config) ->
    Groups = [new_group(#{policy => Policy}) || Policy <- [drop_oldest, drop_newest, conflate]],
    Pairs = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 8)],
    Readers = [reader(Peer) || {_, Peer} <- Pairs],
    Broadcasters = [broadcaster(Group) || Group <- Groups],
    Pollsets = weir_pollsets:all(),
    Joiners = [
        async(fun() ->
            [
                begin
                    ok = weir_group:join(one_of(Groups), Socket),
                    _ = weir:migrate(Socket, one_of(Pollsets)),
                    _ = weir_group:leave(one_of(Groups), Socket),
                    _ = weir_group:broadcast(one_of(Groups), number(0), #{except => Socket})
                end
             || _ <- lists:seq(1, 2000)
            ]
        end)
     || {Socket, _} <- Pairs,
        _ <- [1, 2]
    ],
    [await(Joiner, patience()) || Joiner <- Joiners],
    lists:foreach(fun weir_fastpath_test:stop/1, Broadcasters),
    [ok = gen_tcp:close(Socket) || {Socket, _} <- Pairs],
    [?assertMatch({_, closed}, await(Reader, patience())) || Reader <- Readers],
    ?assertEqual([0, 0, 0], [weir_group:size(Group) || Group <- Groups]).

%% Connections of the killed reactor are no longer members; those of processes are, and get everything.
a_reactor_of_members_killed(Config) ->
    process_flag(trap_exit, true),
    Group = new_group(#{max_messages => 10_000, max_bytes => 10_000 * ?BYTES}),
    {_, _, Peer} = Steady = member(Config, Group),
    Reader = reader(Peer),
    %% The broadcaster waits for the reader, because the group's policy would drop messages.
    Broadcaster = broadcaster(Group, fun() -> wait_until(fun() -> queued([Steady]) < 1000 * ?BYTES end) end),
    [
        begin
            {ok, Listen} = keep(gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {ip, ?LOOPBACK}])),
            {ok, Port} = inet:port(Listen),
            {ok, Reactor} = weir_reactor:start_link(#{
                module => reactor_probe, args => #{tell => self()}, listen => Listen
            }),
            Peers = [connect_raw(Port) || _ <- lists:seq(1, 10)],
            [
                receive
                    {init, Socket} -> ok = weir_group:join(Group, Socket)
                end
             || _ <- Peers
            ],
            [recv_exactly(Each, ?BYTES) || Each <- Peers],
            exit(Reactor, kill),
            receive
                {'EXIT', Reactor, killed} -> ok
            end,
            [is_over(Each) || Each <- Peers],
            wait_until(fun() -> weir_group:size(Group) =:= 1 end),
            ok = gen_tcp:close(Listen)
        end
     || _ <- lists:seq(1, 5)
    ],
    Count = stop(Broadcaster),
    wait_until(fun() ->
        {ok, #{pending := Pending}} = weir_group:info(Group),
        Pending =:= 0
    end),
    kill(element(1, Steady)),
    {Data, closed} = await(Reader, patience()),
    ?assertEqual(Count, length(numbers(Data))),
    is_in_order(Data),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% A member that becomes one side of a relay has got complete messages, and then gets the bytes of the other side.
members_become_relays(Config) ->
    Group = new_group(#{policy => drop_newest}),
    Broadcaster = broadcaster(Group),
    [
        begin
            %% exit_on_close false: a peer that has seen the end can still shut down its own side.
            Pair = fun() -> socket_pair(Config, [binary, {active, false}], [{exit_on_close, false}]) end,
            [{A, Client}, {B, Server}] = [Pair() || _ <- [a, b]],
            [ok = weir_group:join(Group, Socket) || Socket <- [A, B]],
            Readers = [reader(Peer) || Peer <- [Client, Server]],
            pause(),
            {ok, Relay} = weir:relay(A, B, #{prefix => <<"prefix">>}),
            pause(),
            ok = gen_tcp:shutdown(Client, write),
            ok = gen_tcp:shutdown(Server, write),
            [{ToClient, closed}, {ToServer, closed}] = [await(Reader, patience()) || Reader <- Readers],
            closed = has_ended(Relay),
            ?assertEqual(0, byte_size(ToClient) rem ?BYTES),
            ?assertEqual(6, byte_size(ToServer) rem ?BYTES),
            ?assertEqual(<<"prefix">>, binary:part(ToServer, byte_size(ToServer), -6)),
            [is_in_order(Data) || Data <- [ToClient, ToServer]]
        end
     || _ <- lists:seq(1, 40)
    ],
    ?assertEqual(0, weir_group:size(Group)),
    _ = stop(Broadcaster).
