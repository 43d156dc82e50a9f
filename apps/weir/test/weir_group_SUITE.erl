%% Groups: who gets which messages, in which order, what happens to slow members, and what is left behind. After each
%% case the numbers of descriptors and sockets are as before.
-module(weir_group_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, patience/0, recv_exactly/2]).
-import(weir_group_test, [
    info/2, member/2, member/3, new/0, new/1, numbered/2, numbers/2, rest/2, slow/2, through/2, through_when_not_busy/2
]).

-include("engine_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, membership}, {group, messages}].

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
            a_first_message_for_which_there_is_no_room,
            a_first_message_that_makes_room,
            a_first_message_that_is_too_long,
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
        ]}
    ].

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
    wait_until(fun() -> weir_group:size(Group) =:= 0 end).

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
    ?assertEqual({error, not_member}, weir_group:leave(Group, Socket)),
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
    %% The member forgets deleted groups.
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
    %% These may not be delivered yet when the other joins.
    [{ok, 1} = weir_group:broadcast(Group, "before ") || _ <- lists:seq(1, 50)],
    {Other, OtherPeer} = member(Config, Group),
    through(Group, "after"),
    ?assertEqual(<<"after">>, rest(Other, OtherPeer)),
    ?assertEqual(50 * 7 + 5, byte_size(rest(One, OnePeer))).

%% A broadcaster that keeps its messages can add a member without a gap or a repetition.
history_first(Config) ->
    Group = new(#{max_messages => 100_000, max_bytes => 100_000_000, backlog => 100_000}),
    Members = [
        begin
            {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
            %% Messages so far, which may still be on their way to others.
            History = [<<Number:32>> || Number <- lists:seq(1, 20 * (Joined - 1))],
            ok = weir_group:join(Group, Socket, #{first => History}),
            [
                {ok, Joined} = weir_group:broadcast(Group, <<Number:32>>)
             || Number <- lists:seq(20 * (Joined - 1) + 1, 20 * Joined)
            ],
            {Socket, Peer}
        end
     || Joined <- lists:seq(1, 20)
    ],
    through(Group, <<401:32>>),
    [?assertEqual(lists:seq(1, 401), [Number || <<Number:32>> <= rest(Socket, Peer)]) || {Socket, Peer} <- Members].

%% The call does not block, and fails if there is no room.
history_for_one_that_does_not_read(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 2, max_bytes => 16#400000}),
    {Socket, Peer} = slow(Config, Group),
    ok = weir_group:leave(Group, Socket),
    Part = binary:copy(<<"x">>, 16#100000),
    Joined = [
        begin
            Result = weir_group:join(Group, Socket, #{first => Part}),
            _ = weir_group:leave(Group, Socket),
            Result
        end
     || _ <- lists:seq(1, 5)
    ],
    %% One is being sent, and two are queued.
    ?assertEqual([ok, ok, ok, {error, full}, {error, full}], Joined),
    ?assertMatch({ok, #{queued := 3, dropped := 0}}, weir_group:info(Group)),
    ?assertEqual({error, emsgsize}, weir_group:join(Group, Socket, #{first => [Part, "x"]})),
    ?assertEqual(0, weir_group:size(Group)),
    ?assertEqual(3 * 16#100000, byte_size(rest(Socket, Peer))).

%% Joining again too early fails, because the member would have a gap.
a_first_message_for_which_there_is_no_room(Config) ->
    [
        begin
            {Group, Socket, Peer, Sent} = left_with_a_full_queue(Config, Policy),
            #{dropped := Dropped} = element(2, weir_group:info(Group)),
            ?assertEqual({error, full}, weir_group:join(Group, Socket, #{first => numbered(Sent + 1, 1000)})),
            ?assertEqual(0, weir_group:size(Group)),
            ?assertEqual(Dropped, info(Group, dropped)),
            ok = weir:notify_writable(Socket),
            ?assertEqual(lists:seq(1, Sent), numbers(recv_exactly(Peer, Sent * 1000), 1000)),
            receive {weir_writable, Socket} -> ok after patience() -> error(not_written) end,
            ok = weir_group:join(Group, Socket, #{first => numbered(Sent + 1, 1000)}),
            {1, #{sent := 1}} = through(Group, numbered(Sent + 2, 1000)),
            ?assertEqual([Sent + 1, Sent + 2], numbers(rest(Socket, Peer), 1000))
        end
     || Policy <- [drop_newest, leave]
    ].

a_first_message_that_makes_room(Config) ->
    Group = new(#{policy => drop_oldest, max_messages => 3}),
    {Socket, Peer} = slow(Config, Group),
    Last = fill(Group, fun(Outcomes) -> Outcomes =:= #{sent => 0, queued => 1, dropped => 1, disconnected => 0} end, 1),
    ok = weir_group:leave(Group, Socket),
    ok = weir_group:join(Group, Socket, #{first => numbered(Last + 1, 1000)}),
    ?assertEqual(2, info(Group, dropped)),
    ?assertEqual([Last - 1, Last, Last + 1], lists:nthtail(Last - 4, numbers(rest(Socket, Peer), 1000))).

%% Broadcasts until a broadcast has such outcomes, and returns its number.
fill(Group, Enough, Number) ->
    {1, Outcomes} = through(Group, numbered(Number, 1000)),
    case Enough(Outcomes) of
        true -> Number;
        false -> fill(Group, Enough, Number + 1)
    end.

%% A former member with a full queue, and the number of messages that it will get.
left_with_a_full_queue(Config, Policy) ->
    Group = new(#{policy => Policy, max_messages => 3}),
    {Socket, Peer} = slow(Config, Group),
    Dropped = fill(Group, fun(#{dropped := Count}) -> Count =:= 1 end, 1),
    case Policy of
        leave -> receive {weir_group, left, Socket, Group, _} -> ok after patience() -> error(not_told) end;
        drop_newest -> ok = weir_group:leave(Group, Socket)
    end,
    {Group, Socket, Peer, Dropped - 1}.

a_first_message_that_is_too_long(Config) ->
    Group = new(),
    {Socket, _} = socket_pair(Config, [binary, {packet, 1}]),
    ?assertEqual({error, emsgsize}, weir_group:join(Group, Socket, #{first => binary:copy(<<"x">>, 256)})),
    ?assertEqual(0, weir_group:size(Group)),
    ok = weir_group:join(Group, Socket, #{first => binary:copy(<<"x">>, 255)}).

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
    Kinds = [
        <<"binary">>, "list", ["nested", [<<"io">>, $l] | <<"ist">>], Large, binary:part(Large, 3, 5000), [Large, Large]
    ],
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
    %% The same when the group is deleted.
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
    %% The same order for all, which keeps that of each broadcaster.
    [?assertEqual(First, Other) || Other <- Others],
    Got = [{Who, Number} || <<Who, Number:32>> <= First],
    [?assertEqual(lists:seq(1, 500), [Number || {From, Number} <- Got, From =:= Who]) || Who <- lists:seq(1, 4)].
