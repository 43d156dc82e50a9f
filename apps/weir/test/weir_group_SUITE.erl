%% Groups: who gets what, in which order, what becomes of slow members, and what
%% is left behind. After each case descriptors and sockets are what they were.
-module(weir_group_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    socket_pair/2, socket_pair/3, reset/1, async/1, await/1, kill/1, pid/1, wait_until/1, next_message/0,
    recv_all/1, recv_exactly/2
]).

-define(PATIENCE, 10000).

suite() ->
    [{timetrap, {seconds, 120}}].

all() ->
    [{group, membership}, {group, messages}, {group, slow_members}, {group, moves}, {group, refusals}, {group, misfortune}].

groups() ->
    [
        {membership, [], [
            members_are_counted,
            joining_twice_is_joining_once,
            in_several_groups,
            closed_members_have_left,
            members_of_dead_owners_have_left,
            relayed_members_have_left,
            deleted_by_anybody,
            deleted_with_its_owner,
            a_thousand_groups
        ]},
        {messages, [], [
            everybody_gets_everything_in_order,
            nothing_from_before_joining,
            history_first,
            history_for_one_that_does_not_read,
            nothing_after_leaving,
            all_but_one,
            iodata_of_all_kinds,
            empty_messages,
            large_messages,
            packets_have_their_length,
            packets_that_are_too_long,
            between_own_sends,
            told_when_through,
            told_when_there_is_nobody,
            several_broadcasters
        ]},
        {slow_members, [], [
            drop_oldest,
            drop_newest,
            conflate,
            disconnect,
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

init_per_group(_Group, Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

new() ->
    new(#{}).

new(Options) ->
    {ok, Group} = weir_group:new(Options),
    Group.

%% A member and its peer.
member(Config, Group) ->
    member(Config, Group, []).

member(Config, Group, Options) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true} | Options]),
    ok = weir_group:join(Group, Socket),
    {Socket, Peer}.

%% One whose peer has little room and does not read.
slow(Config, Group) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]),
    ok = weir_group:join(Group, Socket),
    {Socket, Peer}.

%% Broadcasts and waits until that is through.
through(Group, Message) ->
    Reference = make_ref(),
    {ok, Members} = weir_group:broadcast(Group, Message, #{notify => Reference}),
    receive
        {weir_group, Group, Reference, Outcomes} -> {Members, Outcomes}
    after ?PATIENCE -> ct:fail({not_through, weir_group:info(Group)})
    end.

%% Numbered messages of a size.
numbered(Number, Size) ->
    <<Number:32, 0:(Size - 4)/unit:8>>.

numbers(Bytes, Size) ->
    [Number || <<Number:32, _:(Size - 4)/binary>> <= Bytes].

broadcast_numbered(Group, Count, Size) ->
    [through(Group, numbered(Number, Size)) || Number <- lists:seq(1, Count)].

%% All that comes to a peer when its member is closed.
rest(Socket, Peer) ->
    Reader = async(fun() -> receive go -> ok end, element(1, recv_all(Peer)) end),
    ok = gen_tcp:controlling_process(Peer, pid(Reader)),
    pid(Reader) ! go,
    ok = gen_tcp:close(Socket),
    await(Reader).

info(Group, What) ->
    {ok, #{What := Value}} = weir_group:info(Group),
    Value.

%% Membership ------------------------------------------------------------------

members_are_counted(Config) ->
    Group = new(),
    ?assertEqual(0, weir_group:size(Group)),
    {One, _} = member(Config, Group),
    {_, _} = member(Config, Group),
    ?assertEqual(2, weir_group:size(Group)),
    ok = weir_group:leave(Group, One),
    ?assertEqual(1, weir_group:size(Group)),
    ?assertEqual({error, not_member}, weir_group:leave(Group, One)),
    Self = self(),
    ?assertMatch({ok, #{owner := Self, members := 1, broadcasts := 0, pending := 0}}, weir_group:info(Group)).

joining_twice_is_joining_once(Config) ->
    Group = new(),
    {Socket, Peer} = member(Config, Group),
    ok = weir_group:join(Group, Socket),
    ?assertMatch({1, #{sent := 1}}, through(Group, "once")),
    ?assertEqual(<<"once">>, rest(Socket, Peer)).

in_several_groups(Config) ->
    {One, Other} = {new(), new()},
    {Socket, Peer} = member(Config, One),
    ok = weir_group:join(Other, Socket),
    [through(Group, Message) || {Group, Message} <- [{One, "a"}, {Other, "b"}, {One, "c"}]],
    ok = weir_group:leave(One, Socket),
    ?assertMatch({0, _}, through(One, "d")),
    ?assertMatch({1, _}, through(Other, "e")),
    ?assertEqual(<<"abce">>, rest(Socket, Peer)).

closed_members_have_left(Config) ->
    Group = new(),
    {One, _} = member(Config, Group),
    {Other, Peer} = member(Config, Group),
    ok = gen_tcp:close(One),
    ?assertEqual(1, weir_group:size(Group)),
    ok = inet:setopts(Other, [{active, true}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp_closed, Other}, next_message()),
    ?assertEqual(0, weir_group:size(Group)).

members_of_dead_owners_have_left(Config) ->
    Group = new(),
    {Socket, _} = member(Config, Group),
    Owner = async(fun() -> receive never -> ok end end),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    kill(Owner),
    wait_until(fun() -> weir_group:size(Group) =:= 0 end).

relayed_members_have_left(Config) ->
    Group = new(),
    {A, Client} = member(Config, Group),
    {B, Server} = member(Config, Group),
    {ok, _} = weir:relay(A, B),
    ?assertEqual(0, weir_group:size(Group)),
    ?assertMatch({0, _}, through(Group, "nobody")),
    ok = gen_tcp:send(Client, "relayed"),
    ?assertEqual(<<"relayed">>, recv_exactly(Server, 7)).

deleted_by_anybody(Config) ->
    Group = new(),
    {Socket, Peer} = member(Config, Group),
    through(Group, "before"),
    ok = await(async(fun() -> weir_group:delete(Group) end)),
    ok = weir_group:delete(Group),
    ?assertEqual(0, weir_group:size(Group)),
    ok = gen_tcp:send(Socket, " and after"),
    ?assertEqual(<<"before and after">>, rest(Socket, Peer)).

deleted_with_its_owner(Config) ->
    Self = self(),
    Owner = async(fun() -> Self ! {made, new()}, receive never -> ok end end),
    {made, Group} = next_message(),
    {_, _} = member(Config, Group),
    ?assertEqual({ok, 1}, weir_group:broadcast(Group, "here")),
    kill(Owner),
    wait_until(fun() -> weir_group:info(Group) =:= {error, closed} end).

a_thousand_groups(Config) ->
    Groups = [new() || _ <- lists:seq(1, 1000)],
    {Socket, Peer} = member(Config, hd(Groups)),
    [ok = weir_group:join(Group, Socket) || Group <- Groups],
    [?assertMatch({1, _}, through(Group, "x")) || Group <- Groups],
    [ok = weir_group:delete(Group) || Group <- Groups],
    %% Deleted ones are forgotten by the member.
    Others = [new() || _ <- lists:seq(1, 1000)],
    [ok = weir_group:join(Group, Socket) || Group <- Others],
    ?assertEqual(1000, byte_size(rest(Socket, Peer))),
    ?assertEqual([0], lists:usort([weir_group:size(Group) || Group <- Others])).

%% Messages --------------------------------------------------------------------

everybody_gets_everything_in_order(Config) ->
    Group = new(),
    Members = [member(Config, Group) || _ <- lists:seq(1, 100)],
    Messages = [[integer_to_list(Number), $\s] || Number <- lists:seq(1, 200)],
    [?assertMatch({100, #{sent := 100}}, through(Group, Message)) || Message <- Messages],
    Expected = iolist_to_binary(Messages),
    [?assertEqual(Expected, rest(Socket, Peer)) || {Socket, Peer} <- Members],
    ?assertEqual(0, weir_group:size(Group)).

nothing_from_before_joining(Config) ->
    Group = new(),
    {One, OnePeer} = member(Config, Group),
    %% Not through yet, perhaps, when the other joins.
    [{ok, 1} = weir_group:broadcast(Group, "before ") || _ <- lists:seq(1, 50)],
    {Other, OtherPeer} = member(Config, Group),
    through(Group, "after"),
    ?assertEqual(<<"after">>, rest(Other, OtherPeer)),
    ?assertEqual(50 * 7 + 5, byte_size(rest(One, OnePeer))).

%% Whoever keeps the messages and broadcasts them joins a member without a hole and without a repetition.
history_first(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000, backlog => 100_000}),
    Members = [
        begin
            {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
            %% What was broadcast so far, and may still be on its way to others.
            History = [<<Number:32>> || Number <- lists:seq(1, 20 * (Joined - 1))],
            ok = weir_group:join(Group, Socket, #{first => History}),
            [{ok, Joined} = weir_group:broadcast(Group, <<Number:32>>) || Number <- lists:seq(20 * (Joined - 1) + 1, 20 * Joined)],
            {Socket, Peer}
        end
     || Joined <- lists:seq(1, 20)
    ],
    through(Group, <<401:32>>),
    [?assertEqual(lists:seq(1, 401), [Number || <<Number:32>> <= rest(Socket, Peer)]) || {Socket, Peer} <- Members].

%% The caller does not wait, and the policy counts.
history_for_one_that_does_not_read(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 2, max_bytes => 16#400000}),
    {Socket, Peer} = slow(Config, Group),
    ok = weir_group:leave(Group, Socket),
    Part = binary:copy(<<"x">>, 16#100000),
    [
        begin
            ok = weir_group:join(Group, Socket, #{first => Part}),
            ok = weir_group:leave(Group, Socket)
        end
     || _ <- lists:seq(1, 5)
    ],
    {ok, #{queued := Queued, dropped := Dropped}} = weir_group:info(Group),
    %% One has begun to go out, and two wait.
    ?assertEqual({3, 2}, {Queued, Dropped}),
    ?assertEqual({error, emsgsize}, weir_group:join(Group, Socket, #{first => [Part, "x"]})),
    ?assertEqual(0, weir_group:size(Group)),
    ?assertEqual(3 * 16#100000, byte_size(rest(Socket, Peer))).

nothing_after_leaving(Config) ->
    Group = new(),
    {One, OnePeer} = member(Config, Group),
    {_, _} = member(Config, Group),
    through(Group, "both"),
    ok = weir_group:leave(Group, One),
    ?assertMatch({1, #{sent := 1}}, through(Group, "one")),
    ?assertEqual(<<"both">>, rest(One, OnePeer)).

all_but_one(Config) ->
    Group = new(),
    {One, OnePeer} = member(Config, Group),
    {Other, OtherPeer} = member(Config, Group),
    {Stranger, _} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({ok, 1}, weir_group:broadcast(Group, "a", #{except => One})),
    ?assertEqual({ok, 2}, weir_group:broadcast(Group, "b", #{except => Stranger})),
    through(Group, "c"),
    ?assertEqual(<<"bc">>, rest(One, OnePeer)),
    ?assertEqual(<<"abc">>, rest(Other, OtherPeer)).

iodata_of_all_kinds(Config) ->
    Group = new(),
    {Socket, Peer} = member(Config, Group),
    Large = binary:copy(<<"0123456789">>, 1000),
    Kinds = [<<"binary">>, "list", ["nested", [<<"io">>, $l] | <<"ist">>], Large, binary:part(Large, 3, 5000), [Large, Large]],
    [through(Group, Kind) || Kind <- Kinds],
    ?assertEqual(iolist_to_binary(Kinds), rest(Socket, Peer)),
    ?assertError(badarg, weir_group:broadcast(Group, not_iodata)).

empty_messages(Config) ->
    Group = new(),
    {Raw, RawPeer} = member(Config, Group),
    {Framed, FramedPeer} = member(Config, Group, [{packet, 2}]),
    ?assertMatch({2, #{sent := 2}}, through(Group, "")),
    ?assertEqual(<<>>, rest(Raw, RawPeer)),
    ?assertEqual(<<0, 0>>, rest(Framed, FramedPeer)).

large_messages(Config) ->
    Group = new(#{max_bytes => 1000}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 5)],
    Message = rand:bytes(1_000_000),
    Readers = [
        begin
            Reader = async(fun() -> receive go -> ok end, recv_exactly(Peer, byte_size(Message)) end),
            ok = gen_tcp:controlling_process(Peer, pid(Reader)),
            pid(Reader) ! go,
            Reader
        end
     || {_, Peer} <- Members
    ],
    {5, _} = through(Group, Message),
    [?assertEqual(Message, await(Reader)) || Reader <- Readers],
    ?assertEqual({error, emsgsize}, weir_group:broadcast(Group, <<0:(1_048_577 * 8)>>)).

packets_have_their_length(Config) ->
    Group = new(),
    Types = [{1, <<5>>}, {2, <<0, 5>>}, {4, <<0, 0, 0, 5>>}, {raw, <<>>}, {line, <<>>}],
    Members = [{member(Config, Group, [{packet, Type}]), Length} || {Type, Length} <- Types],
    ?assertMatch({5, #{sent := 5}}, through(Group, "hello")),
    [?assertEqual(<<Length/binary, "hello">>, rest(Socket, Peer)) || {{Socket, Peer}, Length} <- Members].

packets_that_are_too_long(Config) ->
    Group = new(),
    {Short, ShortPeer} = member(Config, Group, [{packet, 1}]),
    {Long, LongPeer} = member(Config, Group, [{packet, 2}]),
    ?assertMatch({2, #{sent := 1, dropped := 1}}, through(Group, binary:copy(<<"x">>, 256))),
    ?assertEqual(<<>>, rest(Short, ShortPeer)),
    ?assertEqual(258, byte_size(rest(Long, LongPeer))).

between_own_sends(Config) ->
    Group = new(#{max_messages => 10_000, max_bytes => 100_000_000}),
    {Socket, Peer} = member(Config, Group, [{packet, 4}, {high_watermark, 100_000_000}]),
    Size = 3000,
    Sender = async(fun() -> [ok = gen_tcp:send(Socket, numbered(Number, Size)) || Number <- lists:seq(1, 1000)] end),
    [weir_group:broadcast(Group, numbered(100_000 + Number, Size)) =:= {error, busy} andalso erlang:yield()
     || Number <- lists:seq(1, 1000)],
    await(Sender),
    {1, _} = through_when_not_busy(Group, numbered(0, Size)),
    Got = [Number || <<3000:32, Packet:3000/binary>> <= rest(Socket, Peer), <<Number:32, _/binary>> <- [Packet]],
    {Own, Others} = lists:partition(fun(Number) -> Number > 0 andalso Number =< 1000 end, Got),
    ?assertEqual(lists:seq(1, 1000), Own),
    ?assertEqual(0, lists:last(Others)),
    ?assertEqual(lists:usort(Others) -- [0], lists:droplast(Others)).

told_when_through(Config) ->
    Group = new(),
    [member(Config, Group) || _ <- lists:seq(1, 50)],
    References = [
        begin
            Reference = make_ref(),
            {ok, 50} = weir_group:broadcast(Group, "x", #{notify => Reference}),
            Reference
        end
     || _ <- lists:seq(1, 20)
    ],
    [?assertEqual({weir_group, Group, Reference, outcomes(50, 0, 0, 0)}, next_message()) || Reference <- References],
    ?assertMatch({ok, #{broadcasts := 20, sent := 1000, queued := 0, dropped := 0}}, weir_group:info(Group)).

outcomes(Sent, Queued, Dropped, Disconnected) ->
    #{sent => Sent, queued => Queued, dropped => Dropped, disconnected => Disconnected}.

told_when_there_is_nobody(Config) ->
    Group = new(),
    ?assertEqual({0, outcomes(0, 0, 0, 0)}, through(Group, "x")),
    {Socket, _} = member(Config, Group),
    References = [make_ref() || _ <- lists:seq(1, 5)],
    [{ok, 1} = weir_group:broadcast(Group, "x", #{notify => Reference}) || Reference <- References],
    ok = gen_tcp:close(Socket),
    [?assertMatch({weir_group, Group, Reference, _}, next_message()) || Reference <- References],
    %% And when it is deleted.
    {_, _} = member(Config, Group),
    Last = make_ref(),
    {ok, 1} = weir_group:broadcast(Group, "x", #{notify => Last}),
    ok = weir_group:delete(Group),
    ?assertMatch({weir_group, Group, Last, _}, next_message()).

several_broadcasters(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000, backlog => 100_000}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 10)],
    Broadcasters = [
        async(fun() -> [{ok, 10} = weir_group:broadcast(Group, <<Who, Number:32>>) || Number <- lists:seq(1, 500)] end)
     || Who <- lists:seq(1, 4)
    ],
    [await(Broadcaster) || Broadcaster <- Broadcasters],
    through(Group, <<9, 0:32>>),
    [First | Others] = [rest(Socket, Peer) || {Socket, Peer} <- Members],
    %% The same order for all, and each broadcaster's own in it.
    [?assertEqual(First, Other) || Other <- Others],
    Got = [{Who, Number} || <<Who, Number:32>> <= First],
    [?assertEqual(lists:seq(1, 500), [Number || {From, Number} <- Got, From =:= Who]) || Who <- lists:seq(1, 4)].

%% Slow members ----------------------------------------------------------------

%% More than fits into a slow member, what it gets in the end, and what was counted.
flood(Config, Policy) ->
    flood(Config, #{policy => Policy, max_messages => 5}, 300).

flood(Config, Options, Count) ->
    Group = new(Options),
    {Socket, Peer} = slow(Config, Group),
    broadcast_numbered(Group, Count, 1000),
    {ok, Info} = weir_group:info(Group),
    {Info, numbers(rest(Socket, Peer), 1000)}.

drop_oldest(Config) ->
    {#{sent := Sent, queued := Queued, dropped := Dropped}, Got} = flood(Config, drop_oldest),
    ?assertEqual(300, Sent + Queued),
    ?assertEqual(300 - Dropped, length(Got)),
    ?assertEqual(lists:usort(Got), Got),
    %% The first, which went out, and the last, which waited.
    ?assertEqual(1, hd(Got)),
    ?assertEqual(lists:seq(296, 300), lists:nthtail(length(Got) - 5, Got)).

drop_newest(Config) ->
    {#{sent := Sent, queued := Queued, dropped := Dropped}, Got} = flood(Config, drop_newest),
    ?assertEqual(300, Sent + Queued + Dropped),
    ?assert(Dropped > 0),
    ?assertEqual(lists:seq(1, Sent + Queued), Got).

conflate(Config) ->
    {#{dropped := Dropped}, Got} = flood(Config, conflate),
    ?assertEqual(300 - Dropped, length(Got)),
    ?assertEqual(300, lists:last(Got)),
    %% One waits, and one may have begun to go out.
    ?assertEqual(lists:seq(1, length(Got) - 1), lists:droplast(Got)).

disconnect(Config) ->
    Group = new(#{policy => disconnect, max_messages => 5}),
    {Socket, _Peer} = slow(Config, Group),
    ok = inet:setopts(Socket, [{active, true}]),
    {_, Fast} = member(Config, Group),
    broadcast_numbered(Group, 100, 1000),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual(1, info(Group, disconnected)),
    ?assertEqual(1, weir_group:size(Group)),
    ?assertEqual(lists:seq(1, 100), numbers(recv_exactly(Fast, 100_000), 1000)).

bounded_by_bytes(Config) ->
    {#{sent := Sent, queued := Queued, dropped := Dropped}, Got} =
        flood(Config, #{policy => drop_newest, max_messages => 1000, max_bytes => 10_000}, 300),
    ?assertEqual(300, Sent + Queued + Dropped),
    ?assert(Queued =< 12),
    ?assertEqual(lists:seq(1, Sent + Queued), Got).

the_others_get_everything(Config) ->
    Group = new(#{policy => drop_oldest, max_messages => 4}),
    Slow = [slow(Config, Group) || _ <- lists:seq(1, 20)],
    Fast = [member(Config, Group) || _ <- lists:seq(1, 5)],
    Before = erlang:memory(binary),
    broadcast_numbered(Group, 200, 1000),
    %% Twenty times a few kilobytes, which they share, and not twenty times two hundred.
    ?assert(erlang:memory(binary) - Before < 1_000_000),
    [?assertEqual(lists:seq(1, 200), numbers(rest(Socket, Peer), 1000)) || {Socket, Peer} <- Fast],
    [?assert(length(numbers(rest(Socket, Peer), 1000)) < 200) || {Socket, Peer} <- Slow].

a_busy_group_leaves_the_others_their_turn(_Config) ->
    weir_test_peer:on_node(?MODULE, two_groups_on_one_pollset, "", ["+S", "1:1"]).

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
    %% Larger than the buffers: the first one goes out in part.
    [through(Group, numbered(Number, 100_000)) || Number <- lists:seq(1, 20)],
    ?assertEqual([1, 20], numbers(rest(Socket, Peer), 100_000)).

more_broadcasts_than_the_backlog(Config) ->
    Group = new(#{backlog => 3, policy => drop_newest}),
    [member(Config, Group) || _ <- lists:seq(1, 10)],
    %% Nobody polls meanwhile: the poller is suspended.
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
    weir_test_peer:on_node(?MODULE, move_while_broadcasts_fly, "", ["+S", "4:4"]).

move_while_broadcasts_fly(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000, backlog => 64}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 20)],
    Self = self(),
    Mover = async(fun() ->
        [ok = weir_nif:move(Handle, rand:uniform(4)) || _ <- lists:seq(1, 300), {{_, _, Handle}, _} <- Members],
        Self ! moved
    end),
    Count = broadcast_while_moving(Group, 0),
    await(Mover),
    [?assertEqual(lists:seq(1, Count), numbers(rest(Socket, Peer), 100)) || {Socket, Peer} <- Members],
    ?assertEqual(0, weir_group:size(Group)).

%% A call writes a megabyte at most; the pollset goes on with the rest.
moved_with_much_on_its_way(_Config) ->
    weir_test_peer:on_node(?MODULE, move_with_much_on_its_way, "", ["+S", "2:2"]).

move_with_much_on_its_way(Config) ->
    Group = new(#{max_messages => 100, max_bytes => 100_000_000, backlog => 64}),
    {{_, _, Handle} = Socket, Peer} = member(Config, Group),
    Size = 256 * 1024,
    Reader = async(fun() -> recv_exactly(Peer, 64 * Size) end),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    [{ok, 1} = weir_group:broadcast(Group, numbered(N, Size)) || N <- lists:seq(1, 64)],
    {ok, #{pollset := From}} = weir_nif:info(Handle),
    To = 3 - From,
    #{written_bytes := Before} = weir_nif:counters(To),
    ok = weir_nif:move(Handle, To),
    #{written_bytes := After} = weir_nif:counters(To),
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    ?assert(After - Before =< 1024 * 1024 + Size),
    ?assertEqual(lists:seq(1, 64), numbers(await(Reader), Size)),
    ok = gen_tcp:close(Socket).

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

through_when_not_busy(Group, Message) ->
    wait_until(fun() -> info(Group, pending) =:= 0 end),
    through(Group, Message).

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
     || {Name, Value} <- [{policy, drop}, {max_messages, 0}, {max_messages, 1.5}, {max_bytes, -1}, {backlog, 0}, {other, 1}]
    ],
    Group = new(),
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir_group:broadcast(Group, "x", #{Name => Value}))
     || {Name, Value} <- [{except, self()}, {notify, true}, {other, 1}]
    ],
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir_group:join(Group, {'$inet', weir_tcp, 0}, #{Name => Value}))
     || {Name, Value} <- [{once, 1}, {first, 1}, {other, true}]
    ].

%% Misfortune ------------------------------------------------------------------

%% Broadcasts as fast as they go while something happens, and everything is as before afterwards.
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
    ok = weir_test_peer:silence_pollers(),
    Group = new(#{policy => drop_newest, max_messages => 2}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 10)],
    fly(Group, fun() ->
        [
            begin
                [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
                Before = info(Group, sent),
                [recv_exactly(Peer, 6) || {_, Peer} <- Members],
                wait_until(fun() -> info(Group, sent) > Before end)
            end
         || _ <- lists:seq(1, 10)
        ]
    end),
    ok = weir_test_peer:unsilence_pollers(),
    ?assertEqual(10, weir_group:size(Group)).

%% As many memberships as there would be members of a large group.
ten_thousand_memberships(Config) ->
    Groups = [new() || _ <- lists:seq(1, 50)],
    Members = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 200)],
    [ok = weir_group:join(Group, Socket) || {Socket, _} <- Members, Group <- Groups],
    [{200, _} = through(Group, "x") || Group <- Groups],
    [?assertEqual(50, byte_size(rest(Socket, Peer))) || {Socket, Peer} <- Members],
    ?assertEqual([0], lists:usort([weir_group:size(Group) || Group <- Groups])).
