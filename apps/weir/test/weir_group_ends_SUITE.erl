%% Members whose peers have reset when a group writes to them: when they join, when they move, when a reactor adopts
%% them. The write ends the connection in the middle of the call. The call must return, others go on, and nothing is
%% left.
-module(weir_group_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, pid/1, connect_raw/1]).
-import(weir_test_wait, [patience/0, recv_exactly/2]).
-import(weir_group_test, [member/3, new/1, numbered/2, through/2]).

-include("engine_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, here}, {group, on_eight_schedulers}].

groups() ->
    Cases = [
        a_first_message_for_a_peer_that_has_reset,
        moved_with_a_message_for_a_peer_that_has_reset,
        moved_in_several_groups,
        adopted_with_a_message_for_a_peer_that_has_reset,
        adopted_from_a_busy_group,
        balanced_under_resets_and_broadcasts,
        outcomes_of_members_that_move
    ],
    [{here, [], Cases}, {on_eight_schedulers, [], Cases}].

a_first_message_for_a_peer_that_has_reset(Config) -> on(Config, join_after_resets).
moved_with_a_message_for_a_peer_that_has_reset(Config) -> on(Config, move_after_resets).
moved_in_several_groups(Config) -> on(Config, move_in_several_groups).
adopted_with_a_message_for_a_peer_that_has_reset(Config) -> on(Config, adopt_after_resets).
adopted_from_a_busy_group(Config) -> on(Config, adopt_from_a_busy_group).
balanced_under_resets_and_broadcasts(Config) -> on(Config, balance_under_resets).
outcomes_of_members_that_move(Config) -> on(Config, count_members_that_move).

%% Cases that kill pollers and reactors do not run in the VM of the tests.
on(Config, Case) ->
    Schedulers =
        case proplists:get_value(name, proplists:get_value(tc_group_properties, Config)) of
            on_eight_schedulers -> "8:8";
            here -> "2:2"
        end,
    weir_test_node:on_node(?MODULE, Case, "", ["+S", Schedulers]).

%% Joining ---------------------------------------------------------------------

join_after_resets(Config) ->
    Group = new(#{}),
    Active = lists:append([[false, true] || _ <- lists:seq(1, 30)]),
    lists:foreach(fun(IsActive) -> join_after_reset(Config, Group, IsActive) end, Active),
    ?assertEqual(0, weir_group:size(Group)).

join_after_reset(Config, Group, IsActive) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, IsActive}]),
    Joined = while_nobody_polls(fun() ->
        ok = reset(Peer),
        weir_group:join(Group, Socket, #{first => <<"first">>})
    end),
    ?assert(lists:member(Joined, [{error, closed}, {error, enotconn}])),
    case IsActive of
        true -> receive {tcp_closed, Socket} -> ok after patience() -> error({not_told, Joined}) end;
        false -> ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience()))
    end,
    ok = gen_tcp:close(Socket).

%% Moving ----------------------------------------------------------------------

%% Suspends all pollers while the fun runs, so that its broadcasts are not delivered before it returns. If that takes
%% too long, the pollset's thread writes them, and the socket may be closed already.
while_nobody_polls(Fun) ->
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    try
        Fun()
    after
        [erlang:resume_process(Poller) || Poller <- Pollers]
    end.

move_after_resets(Config) ->
    Pollsets = weir_pollsets:all(),
    [move_after_reset(Config, Pollsets, IsActive) || IsActive <- [true, false], _ <- lists:seq(1, 30)].

move_after_reset(Config, Pollsets, IsActive) ->
    Group = new(#{}),
    {{_, _, Handle} = Socket, Peer} = member(Config, Group, []),
    {_Other, OtherPeer} = member(Config, Group, []),
    ok = inet:setopts(Socket, [{active, IsActive}]),
    Reference = make_ref(),
    while_nobody_polls(fun() ->
        ok = reset(Peer),
        {ok, 2} = weir_group:broadcast(Group, "hello", #{notify => Reference}),
        move_if_open(Socket, Handle, Pollsets)
    end),
    Outcomes =
        receive
            {weir_group, Group, Reference, Told} -> Told
        after patience() -> error({not_through, weir_group:info(Group)})
        end,
    ?assertEqual(2, lists:sum(maps:values(Outcomes))),
    ?assertEqual(<<"hello">>, recv_exactly(OtherPeer, 5)),
    case IsActive of
        true ->
            receive
                {tcp_closed, Socket} -> ok
            after patience() -> error(not_told)
            end;
        false ->
            ok
    end,
    ok = gen_tcp:close(Socket),
    ?assertEqual(1, weir_group:size(Group)),
    ok = weir_group:delete(Group).

move_if_open(Socket, Handle, Pollsets) ->
    case weir_nif:info(Handle) of
        {ok, #{pollset := From}} ->
            ?assert(lists:member(weir:migrate(Socket, hd(Pollsets -- [From])), [ok, {error, closed}]));
        {error, closed} ->
            ok
    end.

%% The write for the first group ends the socket, which must not become a member of the other groups on its new
%% pollset.
move_in_several_groups(Config) ->
    Groups = [new(#{}) || _ <- lists:seq(1, 4)],
    [move_in_groups(Config, Groups) || _ <- lists:seq(1, 30)],
    ?assertEqual([0, 0, 0, 0], [weir_group:size(Group) || Group <- Groups]),
    [?assertMatch({0, _}, through(Group, "x")) || Group <- Groups].

move_in_groups(Config, Groups) ->
    {{_, _, Handle} = Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    [ok = weir_group:join(Group, Socket) || Group <- Groups],
    while_nobody_polls(fun() ->
        ok = reset(Peer),
        [{ok, _} = weir_group:broadcast(Group, "hello") || Group <- Groups],
        move_if_open(Socket, Handle, weir_pollsets:all())
    end),
    receive {tcp_closed, Socket} -> ok after patience() -> error(not_told) end.

%% Adopting --------------------------------------------------------------------

reactor() ->
    process_flag(trap_exit, true),
    {ok, Reactor} = weir_reactor:start_link(#{module => reactor_probe}),
    Reactor.

adopt(Reactor, Socket) -> weir_reactor:adopt(Reactor, Socket, #{tell => self()}).

adopt_after_resets(Config) ->
    Reactor = reactor(),
    [adopt_after_reset(Config, Reactor, IsActive) || IsActive <- [true, false], _ <- lists:seq(1, 30)],
    ?assert(is_process_alive(Reactor)),
    ?waitMatch({ok, #{connections := 0}}, weir_reactor:info(Reactor)),
    ok = proc_lib:stop(Reactor).

adopt_after_reset(Config, Reactor, IsActive) ->
    Group = new(#{}),
    {Socket, Peer} = member(Config, Group, []),
    ok = inet:setopts(Socket, [{active, IsActive}]),
    Adopted = while_nobody_polls(fun() ->
        ok = reset(Peer),
        {ok, 1} = weir_group:broadcast(Group, "hello"),
        Result = adopt(Reactor, Socket),
        %% The call returns after the reactor has tried to adopt.
        {ok, _} = weir_reactor:info(Reactor),
        Result
    end),
    case Adopted of
        {ok, Socket} ->
            receive
                {closed, Socket, _} -> ok
            after patience() -> error({not_closed, weir_nif:info(element(3, Socket)), weir_reactor:info(Reactor)})
            end;
        {error, closed} ->
            gen_tcp:close(Socket)
    end,
    ok = weir_group:delete(Group).

%% Broadcasts as fast as the group takes them.
flying(Group) ->
    Size = 100,
    async(fun Fly() ->
        _ = weir_group:broadcast(Group, numbered(1, Size)),
        erlang:yield(),
        receive stop -> ok after 0 -> Fly() end
    end).

land(Flying) ->
    pid(Flying) ! stop,
    await(Flying).

adopt_from_a_busy_group(Config) ->
    Reactor = reactor(),
    Group = new(#{policy => drop_newest, max_messages => 4}),
    Flying = flying(Group),
    Stay = {Socket, Peer} = member(Config, Group, []),
    {ok, Socket} = adopt(Reactor, Socket),
    lists:foreach(
        fun(_) ->
            {Other, OthersPeer} = member(Config, Group, [{active, true}]),
            ok = reset(OthersPeer),
            case adopt(Reactor, Other) of
                {ok, Other} -> receive {closed, Other, _} -> ok; {tcp_closed, Other} -> ok after 5 -> ok end;
                {error, _} -> ok
            end
        end,
        lists:seq(1, 100)
    ),
    land(Flying),
    ?assert(is_process_alive(Reactor)),
    {Socket, Peer} = Stay,
    ?assertMatch(<<1:32, _/binary>>, recv_exactly(Peer, 100)),
    ?waitMatch({ok, #{connections := 1}}, weir_reactor:info(Reactor)),
    ?waitEqual(1, weir_group:size(Group)),
    ok = proc_lib:stop(Reactor).

%% A listener that balances ----------------------------------------------------

balance_under_resets(_Config) ->
    Group = new(#{policy => drop_newest, max_messages => 4}),
    Serve = fun(Socket, _) ->
        ok = inet:setopts(Socket, [{active, true}]),
        _ = weir_group:join(Group, Socket),
        receive {tcp_closed, Socket} -> ok; {tcp_error, Socket, _} -> ok end
    end,
    Options = #{port => 0, balance => #{interval => 1, threshold => 1}},
    {ok, Listener} = weir:start_listener(balanced, Options, Serve, []),
    Monitor = monitor(process, Listener),
    Port = weir:get_port(balanced),
    #{moved := Before} = moves(),
    Flying = flying(Group),
    Stay = connect_raw(Port),
    Clients = [async(fun() -> connect_and_reset(Port, 60) end) || _ <- lists:seq(1, 4)],
    [await(Client) || Client <- Clients],
    land(Flying),
    receive {'DOWN', Monitor, process, Listener, Reason} -> error({listener_died, Reason}) after 0 -> ok end,
    #{moved := After} = moves(),
    ?assert(After > Before),
    ?assertMatch(<<1:32, _/binary>>, recv_exactly(Stay, 100)),
    ok = gen_tcp:close(Stay),
    ok = weir:stop_listener(balanced),
    ?waitEqual(0, weir_group:size(Group)).

moves() -> #{moved => lists:sum([Moved || #{moved_in := Moved} <- weir:pollsets()])}.

connect_and_reset(_Port, 0) ->
    ok;
connect_and_reset(Port, Count) ->
    Sockets = [
        begin
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
            Socket
        end
     || _ <- lists:seq(1, 8)
    ],
    %% They are members once the first message has arrived.
    _ = [gen_tcp:recv(Socket, 4, 50) || Socket <- Sockets],
    [reset(Socket) || Socket <- Sockets],
    connect_and_reset(Port, Count - 1).

%% Counting --------------------------------------------------------------------

count_members_that_move(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000}),
    Members = [element(1, member(Config, Group, [])) || _ <- lists:seq(1, 10)],
    Pollsets = weir_pollsets:all(),
    Mover = async(fun Move() ->
        [ok = weir_nif:move(Handle, lists:nth(rand:uniform(length(Pollsets)), Pollsets)) || {_, _, Handle} <- Members],
        receive stop -> ok after 0 -> Move() end
    end),
    Counted = [
        begin
            {10, Outcomes} = through(Group, "x"),
            lists:sum(maps:values(Outcomes))
        end
     || _ <- lists:seq(1, 750)
    ],
    land(Mover),
    ?assertEqual([], [Count || Count <- Counted, Count =/= 10]).
