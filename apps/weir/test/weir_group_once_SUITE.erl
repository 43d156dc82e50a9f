%% Memberships for one message: what members get, when they have left, and who is notified.
-module(weir_group_once_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1]).
-import(weir_test_wait, [recv_exactly/2, wait_until/1, patience/0]).
-import(weir_group_test, [new/0, new/1, through/2]).
-import(reactor_probe, [start/1, stop/1, told/1]).


suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [{group, processes}, {group, reactors}].

groups() ->
    [
        {processes, [], [
            one_message_and_no_more,
            all_of_them_are_counted,
            one_message_of_several_groups,
            a_message_that_waits_is_the_one,
            a_message_that_is_dropped_is_not,
            withdrawn_or_served,
            groups_that_are_gone,
            joined_again_while_broadcasts_fly
        ]},
        {reactors, [], [
            told_before_the_answer,
            a_reactor_answers_or_the_group_does,
            told_in_batches,
            handed_over_before_it_is_told
        ]}
    ].

init_per_suite(Config) ->
    reactor_probe:prepare(),
    Config.

end_per_suite(_Config) -> ok.

init_per_group(_Group, Config) -> weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) -> weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) -> weir_test_peer:end_case(Config).

member(Config) -> socket_pair(Config, [binary, {active, false}, {nodelay, true}]).

once(Group, Socket) -> ok = weir_group:join(Group, Socket, #{once => true}).

served(Socket) ->
    receive
        {weir_group, served, Socket} -> ok
    after patience() -> ct:fail({not_served, process_info(self(), messages)})
    end.

is_served(Socket) ->
    receive
        {weir_group, served, Socket} -> true
    after 0 -> false
    end.

%%% Processes ------------------------------------------------------------------

one_message_and_no_more(Config) ->
    Group = new(),
    {Once, OncePeer} = member(Config),
    {Always, AlwaysPeer} = member(Config),
    ok = once(Group, Once),
    ok = once(Group, Once),
    ok = weir_group:join(Group, Always),
    ?assertMatch({2, #{sent := 2}}, through(Group, "one ")),
    ok = served(Once),
    ?assertEqual(1, weir_group:size(Group)),
    ?assertMatch({1, #{sent := 1}}, through(Group, "two ")),
    ok = gen_tcp:send(Once, "own"),
    ?assertEqual(<<"one own">>, recv_exactly(OncePeer, 7)),
    ?assertEqual(<<"one two ">>, recv_exactly(AlwaysPeer, 8)),
    ?assertNot(is_served(Once)).

%% The notification includes the members of the last slice, even if no member is left.
all_of_them_are_counted(Config) ->
    Group = new(),
    Members = [member(Config) || _ <- lists:seq(1, 100)],
    [
        begin
            [once(Group, Socket) || {Socket, _} <- Members],
            ?assertMatch({100, #{sent := 100, dropped := 0}}, through(Group, <<Round:32>>)),
            ?assertEqual(0, weir_group:size(Group)),
            [ok = served(Socket) || {Socket, _} <- Members],
            [?assertEqual(<<Round:32>>, recv_exactly(Peer, 4)) || {_, Peer} <- Members]
        end
     || Round <- lists:seq(1, 20)
    ],
    ?assertMatch({ok, #{sent := 2000, broadcasts := 20, pending := 0}}, weir_group:info(Group)).

one_message_of_several_groups(Config) ->
    Groups = [First, Second, Third] = [new(), new(), new()],
    {Socket, Peer} = member(Config),
    [once(Group, Socket) || Group <- [First, Second]],
    ok = weir_group:join(Third, Socket),
    ?assertMatch({1, _}, through(Second, "second ")),
    ok = served(Socket),
    ?assertEqual([0, 0, 1], [weir_group:size(Group) || Group <- Groups]),
    ?assertMatch({0, _}, through(First, "first ")),
    ?assertMatch({1, _}, through(Third, "third")),
    ?assertEqual(<<"second third">>, recv_exactly(Peer, 12)).

slow(Config) -> socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]).

%% More than the kernel takes.
fill(Socket) ->
    ok = gen_tcp:send(Socket, binary:copy(<<0>>, 4_000_000)).

a_message_that_waits_is_the_one(Config) ->
    Group = new(),
    {Socket, Peer} = slow(Config),
    ok = fill(Socket),
    ok = once(Group, Socket),
    ?assertMatch({1, #{queued := 1}}, through(Group, "queued")),
    ok = served(Socket),
    ?assertMatch({0, _}, through(Group, "late")),
    _ = recv_exactly(Peer, 4_000_000),
    ?assertEqual(<<"queued">>, recv_exactly(Peer, 6)).

a_message_that_is_dropped_is_not(Config) ->
    Group = new(#{policy => drop_newest, max_messages => 1}),
    {Socket, Peer} = slow(Config),
    ok = fill(Socket),
    ok = weir_group:join(Group, Socket),
    ?assertMatch({1, #{queued := 1}}, through(Group, "one")),
    ok = weir_group:leave(Group, Socket),
    ok = once(Group, Socket),
    ?assertMatch({1, #{dropped := 1}}, through(Group, "two")),
    ?assertNot(is_served(Socket)),
    ?assertEqual(1, weir_group:size(Group)),
    _ = recv_exactly(Peer, 4_000_000),
    ?assertEqual(<<"one">>, recv_exactly(Peer, 3)),
    %% The member may be notified of the room a moment later.
    wait_until(fun() -> {1, Outcomes} = through(Group, "three"), map_get(dropped, Outcomes) =:= 0 end),
    ok = served(Socket),
    ?assertEqual(<<"three">>, recv_exactly(Peer, 5)).

%% Once withdraw/1 has returned, the member has either been served or never gets the message.
withdrawn_or_served(Config) ->
    Group = new(#{backlog => 10000}),
    {Socket, Peer} = member(Config),
    Other = new(),
    Rounds = 500,
    Caster = async(fun() -> [receive Go -> weir_group:broadcast(Group, <<"g">>) end || Go <- lists:seq(1, Rounds)] end),
    Expected = [
        begin
            ok = once(Group, Socket),
            ok = once(Other, Socket),
            weir_test_peer:pid(Caster) ! Round,
            _ = [erlang:yield() || _ <- lists:seq(1, rand:uniform(20))],
            ok = weir_group:withdraw(Socket),
            ?assertEqual(0, weir_group:size(Other)),
            case is_served(Socket) of
                true -> $g;
                false -> ok = gen_tcp:send(Socket, <<"o">>), $o
            end
        end
     || Round <- lists:seq(1, Rounds)
    ],
    await(Caster),
    ?assertEqual(list_to_binary(Expected), recv_exactly(Peer, Rounds)).

groups_that_are_gone(Config) ->
    {Gone, There} = {new(), new()},
    {Socket, Peer} = member(Config),
    ok = once(Gone, Socket),
    ok = once(There, Socket),
    ok = weir_group:delete(Gone),
    ?assertMatch({1, #{sent := 1}}, through(There, "there")),
    ok = served(Socket),
    ok = once(There, Socket),
    ok = weir_group:withdraw(Socket),
    ok = weir_group:withdraw(Socket),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, weir_group:withdraw(Socket)),
    ?assertEqual(<<"there">>, recv_exactly(Peer, 5)).

%% A member that joins again as soon as it is served gets some of the messages, complete and in order, one for each
%% time.
joined_again_while_broadcasts_fly(Config) ->
    Group = new(#{backlog => 10000, max_messages => 10000}),
    Members = [member(Config) || _ <- lists:seq(1, 10)],
    [once(Group, Socket) || {Socket, _} <- Members],
    Caster = async(fun() -> [{ok, _} = weir_group:broadcast(Group, <<Number:32>>) || Number <- lists:seq(1, 4999)] end),
    AllJoined = fun(Count) ->
        %% No broadcast is left, and all have joined again: no message is in flight.
        {ok, #{broadcasts := Broadcasts, pending := Pending, members := Joined}} = weir_group:info(Group),
        {Broadcasts, Pending, Joined} =:= {Count, 0, length(Members)}
    end,
    First = again(Group, #{}, fun() -> AllJoined(4999) end),
    await(Caster),
    {ok, _} = weir_group:broadcast(Group, <<5000:32>>),
    Counts = again(Group, First, fun() -> AllJoined(5000) end),
    [
        begin
            Times = maps:get(Socket, Counts, 0),
            Got = [Number || <<Number:32>> <= recv_exactly(Peer, 4 * Times)],
            ?assertEqual(lists:usort(Got), Got),
            ok = weir_group:withdraw(Socket),
            ok = gen_tcp:send(Socket, <<"end">>),
            ?assertEqual(<<"end">>, recv_exactly(Peer, 3))
        end
     || {Socket, Peer} <- Members
    ],
    ?assert(lists:all(fun(Count) -> Count >= 2 end, maps:values(Counts)), Counts).

again(Group, Counts, IsOver) ->
    receive
        {weir_group, served, Socket} ->
            ok = once(Group, Socket),
            again(Group, maps:update_with(Socket, fun(Count) -> Count + 1 end, 1, Counts), IsOver)
    after 10 ->
        case IsOver() of
            true -> Counts;
            false -> again(Group, Counts, IsOver)
        end
    end.

%%% Reactors -------------------------------------------------------------------

client(Port) ->
    {ok, Client} = weir_test_peer:keep(
        gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}])
    ),
    Client.

%% The peer answers as quickly as it can. The reactor must be notified before it gets that answer.
told_before_the_answer(_Config) ->
    Self = self(),
    Group = new(),
    {Reactor, Port} = start(#{
        info => fun({weir_group, served, Socket}, State) ->
            Self ! {order, served, Socket},
            {ok, State}
        end,
        data => fun(Socket, Data, State) ->
            Self ! {order, Data, Socket},
            ok = once(Group, Socket),
            {send, "w", State}
        end
    }),
    Client = client(Port),
    ok = gen_tcp:send(Client, <<"next">>),
    <<"w">> = recv_exactly(Client, 1),
    [
        begin
            receive
                {order, <<"next">>, _} -> ok
            end,
            {ok, 1} = weir_group:broadcast(Group, "m"),
            <<"m">> = recv_exactly(Client, 1),
            ok = gen_tcp:send(Client, <<"next">>),
            receive
                {order, First, _} -> ?assertEqual(served, First)
            end,
            <<"w">> = recv_exactly(Client, 1)
        end
     || _ <- lists:seq(1, 200)
    ],
    stop(Reactor).

a_reactor_answers_or_the_group_does(_Config) ->
    Self = self(),
    Group = new(#{backlog => 10000}),
    {Reactor, Port} = start(#{
        data => fun(Socket, _, State) ->
            ok = once(Group, Socket),
            Self ! joined,
            {ok, State#{socket => Socket, waits => true}}
        end,
        info => fun
            (answer, State = #{socket := Socket, waits := true}) ->
                case weir_group:withdraw(Socket) of
                    ok -> {send, "o", State#{waits := false}};
                    {error, served} -> {ok, State}
                end;
            %% The group was faster, and the reactor already knows.
            (answer, State) ->
                {ok, State};
            ({weir_group, served, _}, State) ->
                {ok, State#{waits := false}}
        end
    }),
    Client = client(Port),
    {init, Socket} = told(init),
    Rounds = 300,
    Caster = async(fun() ->
        [
            receive
                Go -> weir_group:broadcast(Group, <<"g">>)
            end
         || Go <- lists:seq(1, Rounds)
        ]
    end),
    Got = [
        begin
            ok = gen_tcp:send(Client, <<"join">>),
            receive
                joined -> ok
            end,
            weir_test_peer:pid(Caster) ! Round,
            ok = weir_reactor:send(Socket, answer),
            recv_exactly(Client, 1)
        end
     || Round <- lists:seq(1, Rounds)
    ],
    await(Caster),
    %% Each request gets one answer.
    ?assertEqual({error, timeout}, gen_tcp:recv(Client, 0, 40)),
    ?assertEqual([], lists:usort(Got) -- [<<"g">>, <<"o">>]),
    stop(Reactor).

%% More members than a batch of notifications holds.
told_in_batches(_Config) ->
    Group = new(),
    {Reactor, Port} = start(#{init => fun(Socket, State) -> ok = once(Group, Socket), {ok, State} end}),
    Clients = [client(Port) || _ <- lists:seq(1, 500)],
    wait_until(fun() -> weir_group:size(Group) =:= 500 end),
    ?assertMatch({500, #{sent := 500}}, through(Group, "m")),
    [?assertEqual(<<"m">>, recv_exactly(Client, 1)) || Client <- Clients],
    Next = fun() ->
        receive {info, Socket, {weir_group, served, Socket}} -> Socket after patience() -> missing end
    end,
    Served = [Next() || _ <- Clients],
    ?assertEqual(500, length(lists:usort(Served))),
    stop(Reactor).

%% The group delivers in a call of the reactor whose events do not contain the notification yet, and the connection
%% leaves in that call, which handles 64 messages.
handed_over_before_it_is_told(_Config) ->
    Self = self(),
    Group = new(),
    {Reactor, Port} = start(#{
        data => fun
            (_Socket, <<"hello">>, State) ->
                {send, "hello", State};
            (Socket, <<"go">>, State) ->
                ok = once(Group, Socket),
                {ok, 1} = weir_group:broadcast(Group, "m"),
                [ok = weir_reactor:send(Socket, wait) || _ <- lists:seq(1, 64)],
                ok = weir_reactor:send(Socket, leave),
                {ok, State}
        end,
        info => fun
            (leave, State) -> {handoff, Self, State};
            (wait, State) -> {ok, State}
        end
    }),
    Client = client(Port),
    %% After this exchange the kernel has no further event for the connection.
    ok = gen_tcp:send(Client, <<"hello">>),
    ?assertEqual(<<"hello">>, recv_exactly(Client, 5)),
    ok = gen_tcp:send(Client, <<"go">>),
    ?assertEqual(<<"m">>, recv_exactly(Client, 1)),
    Socket = receive {weir_reactor, handoff, Gone} -> Gone after patience() -> ct:fail(not_handed_over) end,
    ok = served(Socket),
    ok = gen_tcp:close(Socket),
    stop(Reactor).
