%% Members of groups that read slowly, move, or end, and calls that groups refuse.
-module(weir_group_slow_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, recv_exactly/2, patience/0]).
-import(weir_group_test, [
    broadcast_numbered/3, flood/2, info/2, member/2, new/0, new/1, numbered/2, numbers/2, rest/2, slow/2, through/2,
    through_to/3, through_when_not_busy/2
]).

-include("engine_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, slow_members}, {group, moves}, {group, refusals}, {group, misfortune}].

groups() ->
    [
        {slow_members, [], [
            drop_oldest,
            drop_newest,
            conflate,
            disconnect,
            left_and_joined_again,
            marks_that_are_wrong,
            bounded_by_bytes,
            the_others_get_everything,
            a_busy_group_leaves_the_others_their_turn,
            what_has_begun_goes_whole,
            more_broadcasts_than_the_backlog,
            slow_members_that_read_again
        ]},
        {moves, [], [moved_while_broadcasts_fly, moved_with_much_on_its_way]},
        {refusals, [], [groups_that_are_deleted, sockets_that_are_not_connected, options_that_are_wrong]},
        {misfortune, [], [
            owners_killed_while_broadcasts_fly,
            members_reset_while_broadcasts_fly,
            members_killed_while_broadcasts_fly,
            pollers_killed_while_broadcasts_fly,
            ten_thousand_memberships
        ]}
    ].

drop_oldest(Config) ->
    {#{sent := Sent, queued := Queued, dropped := Dropped}, Got} = flood(Config, drop_oldest),
    ?assertEqual(300, Sent + Queued),
    ?assertEqual(300 - Dropped, length(Got)),
    ?assertEqual(lists:usort(Got), Got),
    %% The first, which was sent, and the last, which were queued.
    ?assertEqual(1, hd(Got)),
    ?assertEqual(lists:seq(296, 300), lists:nthtail(length(Got) - 5, Got)).

drop_newest(Config) ->
    {#{sent := Sent, queued := Queued, dropped := Dropped}, Got} = flood(Config, drop_newest),
    ?assertEqual(300, Sent + Queued + Dropped),
    ?assert(Dropped > 0),
    assert_first_ones(Sent + Queued, Got).

%% The first ones, and perhaps some that came after the kernel had taken more.
assert_first_ones(Count, Got) ->
    ?assertEqual(Count, length(Got)),
    ?assertEqual(lists:usort(Got), Got),
    ?assertEqual([1, 2, 3, 4, 5], lists:sublist(Got, 5)).

conflate(Config) ->
    {#{dropped := Dropped}, Got} = flood(Config, conflate),
    ?assertEqual(300 - Dropped, length(Got)),
    ?assertEqual(300, lists:last(Got)),
    %% The first ones were sent, then only the newest was queued. The kernel may have taken some of those later.
    ?assertEqual(1, hd(Got)),
    ?assertEqual(lists:usort(Got), Got).

disconnect(Config) ->
    Group = new(#{policy => disconnect, max_messages => 5}),
    {Socket, _Peer} = slow(Config, Group),
    ok = inet:setopts(Socket, [{active, true}]),
    {_, Fast} = member(Config, Group),
    [through_to([Fast], Group, numbered(Number, 1000)) || Number <- lists:seq(1, 100)],
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual(1, info(Group, disconnected)),
    ?assertEqual(1, weir_group:size(Group)).

%% Queued messages are sent, the owner knows the next one, and after joining again nothing is missing or repeated.
left_and_joined_again(Config) ->
    Group = new(#{policy => leave, max_messages => 5}),
    {Socket, Peer} = slow(Config, Group),
    {_, Fast} = member(Config, Group),
    Packet = fun(Number) -> <<Number:32, 0:(8 * 996)>> end,
    Broadcast = fun(Numbers) ->
        [
            begin
                {ok, _} = weir_group:broadcast(Group, Packet(Number), #{mark => Number, notify => Reference}),
                receive {weir_group, Group, Reference, _} -> ok after patience() -> error(not_through) end,
                ?assertEqual(Packet(Number), recv_exactly(Fast, 1000))
            end
         || Number <- Numbers, Reference <- [make_ref()]
        ]
    end,
    Broadcast(lists:seq(1, 100)),
    Next = receive {weir_group, left, Socket, Group, Mark} -> Mark after patience() -> error(not_told) end,
    ?assertEqual(1, weir_group:size(Group)),
    ?assertEqual({error, not_member}, weir_group:leave(Group, Socket)),
    ?assertEqual(lists:seq(1, Next - 1), numbers(recv_exactly(Peer, 1000 * (Next - 1)), 1000)),
    ok = weir_group:join(Group, Socket, #{first => [Packet(Number) || Number <- lists:seq(Next, 100)]}),
    ?assertEqual(lists:seq(Next, 100), numbers(recv_exactly(Peer, 1000 * (101 - Next)), 1000)),
    Broadcast([101]),
    ?assertEqual([101], numbers(recv_exactly(Peer, 1000), 1000)),
    ?assertEqual(0, info(Group, disconnected)).

marks_that_are_wrong(_Config) ->
    Group = new(),
    [
        ?assertMatch({error, {bad_option, mark, Mark, _}}, weir_group:broadcast(Group, "x", #{mark => Mark}))
     || Mark <- [-1, a, 1 bsl 64]
    ],
    {ok, 0} = weir_group:broadcast(Group, "x", #{mark => 1 bsl 64 - 1}).

bounded_by_bytes(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 1000, max_bytes => 10_000}),
    {Socket, Peer} = slow(Config, Group),
    %% The kernel may take more of them later, and others are queued then: never more bytes at a time.
    [
        begin
            through(Group, numbered(Number, 1000)),
            {ok, [{send_pend, Pending}]} = inet:getstat(Socket, [send_pend]),
            ?assert(Pending =< 11_000, Pending)
        end
     || Number <- lists:seq(1, 300)
    ],
    {ok, #{sent := Sent, queued := Queued, dropped := Dropped}} = weir_group:info(Group),
    ?assertEqual(300, Sent + Queued + Dropped),
    ?assert(Dropped > 0),
    assert_first_ones(Sent + Queued, numbers(rest(Socket, Peer), 1000)).

the_others_get_everything(Config) ->
    Group = new(#{policy => drop_oldest, max_messages => 4}),
    Slow = [slow(Config, Group) || _ <- lists:seq(1, 20)],
    Fast = [member(Config, Group) || _ <- lists:seq(1, 5)],
    _ = erlang:garbage_collect(),
    Before = erlang:memory(binary),
    Peers = [Peer || {_, Peer} <- Fast],
    [through_to(Peers, Group, numbered(Number, 1000)) || Number <- lists:seq(1, 200)],
    %% Twenty times a few shared kilobytes, not twenty times two hundred.
    wait_until(fun() ->
        true = erlang:garbage_collect(),
        More = erlang:memory(binary) - Before,
        More < 1_000_000 orelse {more_memory, More}
    end),
    [?assertEqual(<<>>, rest(Socket, Peer)) || {Socket, Peer} <- Fast],
    [?assert(length(numbers(rest(Socket, Peer), 1000)) < 200) || {Socket, Peer} <- Slow].

a_busy_group_leaves_the_others_their_turn(_Config) ->
    weir_test_node:on_node(?MODULE, two_groups_on_one_pollset, "", ["+S", "1:1"]).

two_groups_on_one_pollset(Config) ->
    Busy = new(#{policy => drop_newest, max_messages => 1}),
    Members = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 400)],
    [ok = weir_group:join(Busy, Socket) || {Socket, _} <- Members],
    Other = new(),
    {_, Peer} = member(Config, Other),
    fly(Busy, fun() ->
        wait_until(fun() -> info(Busy, broadcasts) > 100 end),
        [?assertMatch({1, #{sent := 1}}, through(Other, "turn")) || _ <- lists:seq(1, 20)]
    end),
    ?assertEqual(80, byte_size(recv_exactly(Peer, 80))).

what_has_begun_goes_whole(Config) ->
    Group = new(#{policy => conflate}),
    {Socket, Peer} = slow(Config, Group),
    %% Larger than the buffers: the first one is sent in part.
    [through(Group, numbered(Number, 100_000)) || Number <- lists:seq(1, 20)],
    ?assertEqual([1, 20], numbers(rest(Socket, Peer), 100_000)).

more_broadcasts_than_the_backlog(Config) ->
    Group = new(#{backlog => 3, policy => drop_newest}),
    [member(Config, Group) || _ <- lists:seq(1, 10)],
    %% The poller is suspended, so no broadcast is delivered.
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    Results = [weir_group:broadcast(Group, "x") || _ <- lists:seq(1, 5)],
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    ?assertEqual([{ok, 10}, {ok, 10}, {ok, 10}, {error, busy}, {error, busy}], Results),
    wait_until(fun() -> info(Group, pending) =:= 0 end),
    ?assertMatch({10, #{sent := 10}}, through(Group, "y")).

slow_members_that_read_again(Config) ->
    Group = new(#{policy => drop_oldest, max_messages => 5}),
    {Socket, Peer} = slow(Config, Group),
    broadcast_numbered(Group, 100, 1000),
    Dropped = info(Group, dropped),
    Left = (100 - Dropped) * 1000,
    ?assertEqual(100 - Dropped, length(numbers(recv_exactly(Peer, Left), 1000))),
    broadcast_numbered(Group, 3, 1000),
    ?assertEqual([1, 2, 3], numbers(rest(Socket, Peer), 1000)).

%% Moves -----------------------------------------------------------------------

moved_while_broadcasts_fly(_Config) ->
    weir_test_node:on_node(?MODULE, move_while_broadcasts_fly, "", ["+S", "4:4"]).

move_while_broadcasts_fly(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000, backlog => 64}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 20)],
    Self = self(),
    Pollsets = weir_pollsets:all(),
    Somewhere = fun() -> lists:nth(rand:uniform(length(Pollsets)), Pollsets) end,
    Mover = async(fun() ->
        [ok = weir_nif:move(Handle, Somewhere()) || _ <- lists:seq(1, 300), {{_, _, Handle}, _} <- Members],
        Self ! moved
    end),
    Count = broadcast_while_moving(Group, 0),
    await(Mover),
    [?assertEqual(lists:seq(1, Count), numbers(rest(Socket, Peer), 100)) || {Socket, Peer} <- Members],
    ?assertEqual(0, weir_group:size(Group)).

%% A call writes at most a megabyte; the new pollset writes the rest.
moved_with_much_on_its_way(_Config) ->
    weir_test_node:on_node(?MODULE, move_with_much_on_its_way, "", ["+S", "2:2"]).

%% On a slow machine the thread of the pollset may write as well before the counter is read. Then it is tried again.
move_with_much_on_its_way(Config) ->
    Size = 256 * 1024,
    weir_test_wait:wait_until(fun() ->
        Written = written_by_a_move(Size, Config),
        Written =< 1024 * 1024 + Size orelse {written, Written}
    end).

written_by_a_move(Size, Config) ->
    Group = new(#{max_messages => 100, max_bytes => 100_000_000, backlog => 64}),
    {{_, _, Handle} = Socket, Peer} = member(Config, Group),
    Reader = async(fun() -> recv_exactly(Peer, 64 * Size) end),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    [{ok, 1} = weir_group:broadcast(Group, numbered(N, Size)) || N <- lists:seq(1, 64)],
    {ok, #{pollset := From}} = weir_nif:info(Handle),
    [To | _] = weir_pollsets:all() -- [From],
    #{written_bytes := Before} = weir_nif:counters(To),
    ok = weir_nif:move(Handle, To),
    #{written_bytes := After} = weir_nif:counters(To),
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    ?assertEqual(lists:seq(1, 64), numbers(await(Reader), Size)),
    ok = gen_tcp:close(Socket),
    After - Before.

broadcast_while_moving(Group, Count) ->
    receive
        moved ->
            {20, _} = through_when_not_busy(Group, numbered(Count + 1, 100)),
            Count + 1
    after 0 ->
        case weir_group:broadcast(Group, numbered(Count + 1, 100)) of
            {ok, 20} ->
                broadcast_while_moving(Group, Count + 1);
            {error, busy} ->
                erlang:yield(),
                broadcast_while_moving(Group, Count)
        end
    end.

%% Refusals --------------------------------------------------------------------

groups_that_are_deleted(Config) ->
    Group = new(),
    {Socket, _} = member(Config, Group),
    ok = weir_group:delete(Group),
    {Other, _} = socket_pair(Config, [binary]),
    ?assertEqual({error, closed}, weir_group:join(Group, Other)),
    ?assertEqual({error, closed}, weir_group:broadcast(Group, "x")),
    ?assertEqual({error, closed}, weir_group:info(Group)),
    ?assertEqual(0, weir_group:size(Group)),
    ?assertEqual(ok, gen_tcp:send(Socket, "still open")).

sockets_that_are_not_connected(Config) ->
    Group = new(),
    {Socket, _} = socket_pair(Config, [binary]),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, weir_group:join(Group, Socket)),
    {Listener, _} = weir_test_peer:listen(Config, []),
    ?assertEqual({error, enotconn}, weir_group:join(Group, Listener)),
    ?assertEqual({error, not_member}, weir_group:leave(Group, Listener)),
    ?assertMatch({error, {bad_socket, not_a_socket, _}}, weir_group:join(Group, not_a_socket)),
    ?assertEqual(0, weir_group:size(Group)).

options_that_are_wrong(_Config) ->
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir_group:new(#{Name => Value}))
     || {Name, Value} <- [
            {policy, drop}, {max_messages, 0}, {max_messages, 1.5}, {max_bytes, -1}, {backlog, 0}, {other, 1}
        ]
    ],
    Group = new(),
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir_group:broadcast(Group, "x", #{Name => Value}))
     || {Name, Value} <- [{except, self()}, {except, {'$inet', weir_tcp, x}}, {notify, true}, {other, 1}]
    ],
    [
        ?assertMatch(
            {error, {bad_option, Name, Value, [_ | _]}},
            weir_group:join(Group, {'$inet', weir_tcp, 0}, #{Name => Value})
        )
     || {Name, Value} <- [{once, 1}, {first, 1}, {first, [x]}, {other, true}]
    ].

%% Misfortune ------------------------------------------------------------------

%% Broadcasts as fast as possible while something happens. Afterwards everything is as before.
fly(Group, Happening) ->
    Broadcaster = async(fun() -> fly(Group) end),
    Happening(),
    pid(Broadcaster) ! stop,
    await(Broadcaster).

fly(Group) ->
    _ = weir_group:broadcast(Group, "flying"),
    erlang:yield(),
    receive
        stop -> ok
    after 0 -> fly(Group)
    end.

owners_killed_while_broadcasts_fly(Config) ->
    [
        begin
            Self = self(),
            Owner = async(fun() -> Self ! {made, new()}, receive never -> ok end end),
            {made, Group} = next_message(),
            Members = [member(Config, Group) || _ <- lists:seq(1, 5)],
            fly(Group, fun() ->
                [?assertEqual(<<"flying">>, recv_exactly(Peer, 6)) || {_, Peer} <- Members],
                kill(Owner),
                wait_until(fun() -> weir_group:info(Group) =:= {error, closed} end)
            end),
            [?assertEqual(0, byte_size(rest(Socket, Peer)) rem byte_size(<<"flying">>)) || {Socket, Peer} <- Members]
        end
     || _ <- lists:seq(1, 10)
    ].

members_reset_while_broadcasts_fly(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 2}),
    fly(Group, fun() ->
        [
            begin
                Members = [member(Config, Group) || _ <- lists:seq(1, 10)],
                [reset(Peer) || {_, Peer} <- Members],
                [gen_tcp:close(Socket) || {Socket, _} <- Members]
            end
         || _ <- lists:seq(1, 20)
        ]
    end),
    ?assertEqual(0, weir_group:size(Group)).

members_killed_while_broadcasts_fly(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 2}),
    fly(Group, fun() ->
        [
            begin
                {Socket, _Peer} = member(Config, Group),
                Owner = async(fun() -> receive never -> ok end end),
                ok = gen_tcp:controlling_process(Socket, pid(Owner)),
                kill(Owner)
            end
         || _ <- lists:seq(1, 100)
        ]
    end),
    wait_until(fun() -> weir_group:size(Group) =:= 0 end).

pollers_killed_while_broadcasts_fly(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 2}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 10)],
    ok = weir_test_peer:silence_pollers(),
    try
        fly(Group, fun() -> [kill_pollers(Group, Members) || _ <- lists:seq(1, 10)] end)
    after
        ok = weir_test_peer:unsilence_pollers()
    end,
    ?assertEqual(10, weir_group:size(Group)).

kill_pollers(Group, Members) ->
    [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    Before = info(Group, sent),
    [recv_exactly(Peer, 6) || {_, Peer} <- Members],
    wait_until(fun() -> info(Group, sent) > Before end).

%% As many memberships as a large group has members.
ten_thousand_memberships(Config) ->
    Groups = [new() || _ <- lists:seq(1, 50)],
    Members = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 200)],
    [ok = weir_group:join(Group, Socket) || {Socket, _} <- Members, Group <- Groups],
    [{200, _} = through(Group, "x") || Group <- Groups],
    [?assertEqual(50, byte_size(rest(Socket, Peer))) || {Socket, Peer} <- Members],
    ?assertEqual([0], lists:usort([weir_group:size(Group) || Group <- Groups])).
