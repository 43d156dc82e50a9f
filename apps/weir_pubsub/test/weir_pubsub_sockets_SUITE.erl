%% Channels: sockets that subscribe, slow ones, and what happens to all when shards are killed.
-module(weir_pubsub_sockets_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [
    policy/1, publish/2, publish_numbered/2, subscribe/2, got/1, used/2, kill_shard_of/1
]).
-import(weir_test_wait, [next_message/0, wait_until/1]).

-include("pubsub_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, sockets}, {group, misfortune}].

groups() ->
    [
        {sockets, [], [
            framed_once_for_all,
            a_framing_that_fails,
            history_then_messages,
            a_socket_is_told_of_a_gap,
            a_socket_whose_channel_is_deleted,
            a_socket_that_leaves,
            sockets_of_a_dead_process,
            connections_of_a_dead_reactor,
            what_a_connection_takes_in_tables,
            a_socket_that_is_closed,
            framings_that_nobody_has_any_more,
            history_larger_than_a_message,
            a_slow_socket_is_closed,
            a_slow_socket_goes_on,
            a_slow_socket_in_another_life_of_its_channel,
            a_gap_while_a_group_is_busy
        ]},
        {misfortune, [], [
            a_shard_is_killed, a_shard_without_subscribers_is_killed, sockets_of_a_shard_that_is_killed, not_started
        ]}
    ].

%% Sockets ----------------------------------------------------------------------------------

pair() -> pair([], []).

pair(Options, PeerOptions) ->
    {ok, Listen} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = inet:port(Listen),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false} | PeerOptions]),
    {ok, Socket} = gen_tcp:accept(Listen, weir_test_wait:patience()),
    ok = gen_tcp:close(Listen),
    {Socket, Peer}.

join(Channel, Socket) -> join(Channel, Socket, #{}).

join(Channel, Socket, Options) ->
    ok = weir_pubsub_socket:subscribe(Channel, Socket, {weir_pubsub_lines, <<>>}, Options),
    receive
        {{weir_pubsub, Socket}, Channel, {answer, Result}} -> Result
    after weir_test_wait:patience() -> ct:fail(no_answer)
    end.

%% A peer gets this text next.
expect(Peer, Text) ->
    Expected = iolist_to_binary(Text),
    ?assertEqual({ok, Expected}, gen_tcp:recv(Peer, byte_size(Expected), weir_test_wait:patience())).

framed_once_for_all(_Config) ->
    Pairs = [pair() || _ <- lists:seq(1, 5)],
    [{ok, {_, 0}} = join(<<"a">>, Socket) || {Socket, _} <- Pairs],
    {Other, OthersPeer} = pair(),
    ok = weir_pubsub_socket:subscribe(<<"a">>, Other, {weir_pubsub_lines, <<"> ">>}, #{}),
    {{weir_pubsub, Other}, <<"a">>, {answer, {ok, _}}} = next_message(),
    {ok, #{subscribers := 6}} = weir_pubsub:publish(<<"a">>, "hello"),
    [expect(Peer, "1 hello\n") || {_, Peer} <- Pairs],
    expect(OthersPeer, "> 1 hello\n").

%% Subscribers with that framing miss the message, and others miss nothing.
a_framing_that_fails(_Config) ->
    {Socket, Peer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    {Other, OthersPeer} = pair(),
    ok = weir_pubsub_socket:subscribe(<<"a">>, Other, {weir_pubsub_lines, fails_at_2}, #{}),
    {{weir_pubsub, Other}, <<"a">>, {answer, {ok, _}}} = next_message(),
    _ = [publish(<<"a">>, "x") || _ <- [1, 2, 3]],
    expect(Peer, "1 x\n2 x\n3 x\n"),
    expect(OthersPeer, "1 x\n3 x\n").

history_then_messages(_Config) ->
    [_, {_, 2} = Id | _] = publish_numbered(<<"a">>, [1, 2, 3, 4]),
    {Socket, Peer} = pair(),
    {ok, Id} = join(<<"a">>, Socket, #{from => Id, head => "head\n"}),
    _ = publish(<<"a">>, "5"),
    expect(Peer, "head\n3 3\n4 4\n5 5\n").

a_socket_is_told_of_a_gap(_Config) ->
    policy(#{max_messages => 1}),
    [{Epoch, 1} | _] = publish_numbered(<<"a">>, [1, 2, 3, 4]),
    {Socket, Peer} = pair(),
    {ok, {Epoch, 3}} = join(<<"a">>, Socket, #{from => {Epoch, 1}}),
    expect(Peer, "gap 2 3\n4 4\n").

a_socket_whose_channel_is_deleted(_Config) ->
    {Socket, Peer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    _ = publish(<<"a">>, "last"),
    {ok, _} = weir_pubsub:delete(<<"a">>),
    {{weir_pubsub, Socket}, <<"a">>, {closed, deleted}} = next_message(),
    expect(Peer, "1 last\n"),
    ok = gen_tcp:send(Socket, "still open\n"),
    expect(Peer, "still open\n").

a_socket_that_leaves(_Config) ->
    {Socket, Peer} = pair(),
    {Stays, StaysPeer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    {ok, _} = join(<<"a">>, Stays),
    ok = weir_pubsub_socket:unsubscribe(<<"a">>, {weir_pubsub, Socket}),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "x"),
    expect(StaysPeer, "1 x\n"),
    ok = gen_tcp:send(Socket, "nothing\n"),
    expect(Peer, "nothing\n").

sockets_of_a_dead_process(_Config) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        [{ok, _} = join(<<"a">>, element(1, pair())) || _ <- [1, 2, 3]],
        {ok, #{subscribers := 3}} = weir_pubsub:info(<<"a">>)
    end),
    {'DOWN', Monitor, process, Pid, normal} = next_message(),
    ?waitEqual(0, used(total, subscribers)),
    {ok, #{subscribers := 0}} = weir_pubsub:publish(<<"a">>, "x").

%% Subscribes as connections do: their reactor is the process of all of them.
join_as_connection(Channel, Socket) ->
    ok = weir_pubsub_socket:subscribe(Channel, Socket, {weir_pubsub_lines, <<>>}, #{
        tag => {weir_reactor, Socket, subscription}
    }),
    receive
        {{weir_reactor, Socket}, subscription, Channel, {answer, Result}} -> Result
    after weir_test_wait:patience() -> ct:fail(no_answer)
    end.

connections_of_a_dead_reactor(_Config) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        Sockets = [Socket || {Socket, _} <- [pair() || _ <- [1, 2, 3]]],
        [{ok, _} = join_as_connection(<<"a">>, Socket) || Socket <- Sockets],
        [
            {ok, _} = weir_pubsub:subscribe(<<"a">>, #{window => 1, tag => {weir_reactor, Socket, paced}})
         || Socket <- Sockets
        ],
        %% Its own subscription: the reactor is monitored for it also after its connections have gone.
        {ok, _} = weir_pubsub:subscribe(<<"a">>, #{}),
        ok = weir_pubsub:unsubscribe(<<"a">>, {weir_reactor, hd(Sockets), paced}),
        {ok, #{subscribers := 6}} = weir_pubsub:info(<<"a">>)
    end),
    {'DOWN', Monitor, process, Pid, normal} = next_message(),
    ?waitEqual(0, used(total, subscribers)),
    {ok, {_, _, Tables}} = weir_pubsub_shards:tables_of(<<"a">>),
    ?assertEqual([], weir_pubsub_subscribers:all(Tables)),
    {ok, #{subscribers := 0}} = weir_pubsub:publish(<<"a">>, "x").

%% One row, in which nothing is stored twice: some 40 words. There may be a hundred thousand connections.
what_a_connection_takes_in_tables(_Config) ->
    Sockets = [Socket || {Socket, _} <- [pair() || _ <- lists:seq(1, 50)]],
    {ok, {_, _, Tables}} = weir_pubsub_shards:tables_of(<<"a">>),
    Words = fun() -> lists:sum([ets:info(Table, memory) || Table <- tuple_to_list(Tables)]) end,
    Before = Words(),
    [{ok, _} = join_as_connection(<<"a">>, Socket) || Socket <- Sockets],
    ?assert((Words() - Before) div length(Sockets) < 50).

a_socket_that_is_closed(_Config) ->
    {Socket, _Peer} = pair(),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, join(<<"a">>, Socket)),
    ?assertEqual(0, used(total, subscribers)),
    ?assertEqual(0, used(total, channels)).

%% A channel that always has subscribers: framings that others once used cost it nothing afterwards.
framings_that_nobody_has_any_more(_Config) ->
    {Stays, StaysPeer} = pair(),
    {ok, _} = join(<<"a">>, Stays),
    Groups = weir_nif:group_count(),
    lists:foreach(
        fun(Prefix) ->
            {Socket, _Peer} = pair(),
            Prefix rem 2 =:= 0 andalso gen_tcp:close(Socket),
            ok = weir_pubsub_socket:subscribe(<<"a">>, Socket, {weir_pubsub_lines, integer_to_binary(Prefix)}, #{}),
            {{weir_pubsub, Socket}, <<"a">>, {answer, _}} = next_message(),
            ok = weir_pubsub_socket:unsubscribe(<<"a">>, {weir_pubsub, Socket})
        end,
        lists:seq(1, 6)
    ),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "x"),
    expect(StaysPeer, "1 x\n"),
    %% Groups of earlier cases may have been left.
    wait_until(fun() -> weir_nif:group_count() =< Groups orelse {groups, weir_nif:group_count(), before, Groups} end).

history_larger_than_a_message(_Config) ->
    policy(#{max_messages => 10, max_bytes => 10000000, max_queue_bytes => 10000000}),
    Data = binary:copy(<<"x">>, 400000),
    [publish(<<"a">>, Data) || _ <- lists:seq(1, 5)],
    {Socket, Peer} = pair(),
    {ok, {Epoch, _}} = join(<<"a">>, Socket, #{from => oldest}),
    ?assert(is_integer(Epoch)),
    expect(Peer, ["gap 3 3\n4 ", Data, "\n5 ", Data, "\n"]).

%% It gets its queue, then what is kept, with a gap for the rest, and then what is published.
a_slow_socket_goes_on(_Config) ->
    policy(#{max_queue => 2, max_messages => 3}),
    {Socket, Peer} = pair([{sndbuf, 4096}], [{recbuf, 4096}]),
    {ok, {_, 0}} = join(<<"a">>, Socket),
    {Quick, QuickPeer} = pair(),
    {ok, _} = join(<<"a">>, Quick),
    #{lagged := Before} = weir_pubsub:counters(),
    Data = binary:copy(<<"x">>, 10000),
    Publish = fun(Number) ->
        _ = publish(<<"a">>, Data),
        expect(QuickPeer, [integer_to_binary(Number), " ", Data, "\n"])
    end,
    Flood = fun Flood(Number) ->
        Publish(Number),
        receive
            {weir_group, left, Socket, Group, Mark} -> {Number, {Group, Mark}}
        after 0 -> Flood(Number + 1)
        end
    end,
    {Last, {_, Given} = Left} = Flood(1),
    %% The low bits of a mark are the number of a message.
    Mark = Given band (1 bsl 40 - 1),
    ?assert(Mark < Last),
    %% A socket that comes back before that is written is told again, and misses nothing.
    ok = weir_pubsub_socket:rejoin(<<"a">>, {weir_pubsub, Socket}, Left),
    ?assertEqual({weir_group, left, Socket, element(1, Left), Given}, next_message()),
    [Publish(Number) || Number <- lists:seq(Last + 1, Last + 5)],
    expect(Peer, [[integer_to_binary(Number), " ", Data, "\n"] || Number <- lists:seq(1, Mark)]),
    ok = weir_pubsub_socket:rejoin(<<"a">>, {weir_pubsub, Socket}, Left),
    End = Last + 5,
    Missed = integer_to_binary(End - 3 - Mark),
    expect(Peer, [
        "gap ",
        Missed,
        " ",
        integer_to_binary(End - 3),
        "\n",
        [[integer_to_binary(Number), " ", Data, "\n"] || Number <- lists:seq(End - 2, End)]
    ]),
    Publish(End + 1),
    expect(Peer, [integer_to_binary(End + 1), " ", Data, "\n"]),
    ?assertMatch(#{lagged := Lagged} when Lagged =:= Before + 1, weir_pubsub:counters()).

%% With a broker a channel keeps its sockets when it gets another epoch.
a_slow_socket_in_another_life_of_its_channel(_Config) ->
    policy(#{max_queue => 2}),
    {Socket, _Peer} = pair([{sndbuf, 4096}], [{recbuf, 4096}]),
    {ok, {Epoch, 0}} = join(<<"a">>, Socket),
    Data = binary:copy(<<"x">>, 10000),
    Flood = fun Flood() ->
        {_, Number} = publish(<<"a">>, Data),
        receive
            {weir_group, left, Socket, _, Mark} -> {Number, Mark}
        after 0 -> Flood()
        end
    end,
    {Last, Mark} = Flood(),
    Channel = #channel{
        name = <<"a">>, epoch = Epoch, first = 1, last = Last, policy = {1, 1}, group = <<>>, created = 0, used = 0
    },
    {Position, none} = weir_pubsub_stream_group:left_at(Mark, Channel),
    ?assert(Position < Last),
    ?assertEqual({0, unknown}, weir_pubsub_stream_group:left_at(Mark, Channel#channel{epoch = Epoch + 1})).

%% A gap that is announced late has its true size: unknown, or all messages by which the group was behind.
a_gap_while_a_group_is_busy(_Config) ->
    told_late({unknown, fun(_Sent) -> 0 end}, unknown),
    told_late({5, fun(Sent) -> Sent + 20 end}, 20).

told_late({Missed, Behind}, Expected) ->
    {Socket, Peer} = pair(),
    {_, Policy} = weir_pubsub_policies:find(<<"a">>, none),
    {ok, Empty} = weir_pubsub_stream_group:new({weir_pubsub_lines, <<>>}, Policy),
    Messages = ets:new(messages, []),
    Channel = #channel{name = <<"a">>, epoch = 7, policy = {1, 1}, group = <<>>, created = 0, used = 0},
    {ok, 0, Audience} = weir_pubsub_stream_group:join(Empty, Socket, {0, none, <<>>}, {Channel, Messages}),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    _ = [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    {Busy, Sent} = until_busy(Audience, Channel, 1),
    Position = Behind(Sent),
    Untold = weir_pubsub_stream_group:begin_again(Busy, Channel, {Missed, {7, Position}}, []),
    ?assert(weir_pubsub_stream_group:is_behind(Untold)),
    _ = [true = erlang:resume_process(Poller) || Poller <- Pollers],
    wait_until(fun() ->
        Next = weir_pubsub_stream_group:catch_up(
            Untold, Channel#channel{first = Position + 1, last = Position}, Messages
        ),
        not weir_pubsub_stream_group:is_behind(Next)
    end),
    expect(Peer, [
        [[integer_to_binary(Number), " x\n"] || Number <- lists:seq(1, Sent)],
        io_lib:format("gap ~p ~b~n", [Expected, Position])
    ]),
    ok = weir_pubsub_stream_group:delete(Untold).

until_busy(Audience, Channel, Number) ->
    Next = weir_pubsub_stream_group:send(Audience, Channel, {message, {7, Number}, <<"x">>, #{}}),
    case weir_pubsub_stream_group:is_behind(Next) of
        false -> until_busy(Next, Channel, Number + 1);
        true -> {Next, Number - 1}
    end.

a_slow_socket_is_closed(_Config) ->
    policy(#{max_queue => 2, slow => disconnect}),
    {Socket, Peer} = pair([{sndbuf, 4096}], [{recbuf, 4096}]),
    ok = inet:setopts(Socket, [{active, true}]),
    {ok, _} = join(<<"a">>, Socket),
    {Quick, QuickPeer} = pair(),
    {ok, _} = join(<<"a">>, Quick),
    Data = binary:copy(<<"x">>, 10000),
    Flood = fun Flood(Number) ->
        _ = publish(<<"a">>, Data),
        expect(QuickPeer, [integer_to_binary(Number), " ", Data, "\n"]),
        receive
            {tcp_error, Socket, _} -> ok;
            {tcp_closed, Socket} -> ok
        after 0 -> Number < 10000 andalso Flood(Number + 1)
        end
    end,
    ?assertEqual(ok, Flood(1)),
    ok = gen_tcp:close(Peer).

%% Misfortune ------------------------------------------------------------------------------------

a_shard_is_killed(_Config) ->
    policy(#{presence => true}),
    {Epoch, 0} = subscribe(<<"a">>, #{info => here}),
    _ = subscribe(<<"a">>, #{tag => paced, window => 1}),
    _ = publish(<<"a">>, "1"),
    [_] = got(<<"a">>),
    kill_shard_of(<<"a">>),
    {weir_pubsub, <<"a">>, {gap, unknown, {Later, 0}}} =
        receive
            {weir_pubsub, _, _} = M -> M
        after weir_test_wait:patience() -> none
        end,
    ?assert(Later > Epoch),
    {ok, #{id := {Later, 1}, subscribers := 2}} = weir_pubsub:publish(<<"a">>, "2"),
    ?assertMatch([{message, {Later, 1}, <<"2">>, _}], got(<<"a">>)),
    {ok, Present} = weir_pubsub:presence(<<"a">>),
    ?assertEqual([here, undefined], lists:sort([Info || #{info := Info} <- Present])),
    %% It has its whole window again.
    [_, {gap, unknown, {Later, 0}}, {message, {Later, 1}, _, _}] =
        [
            receive
                {paced, <<"a">>, What} -> What
            after 0 -> none
            end
         || _ <- [1, 2, 3]
        ],
    ?assertEqual(2, used(total, subscribers)).

%% It has lost its messages.
a_shard_without_subscribers_is_killed(_Config) ->
    _ = publish(<<"a">>, "1"),
    #{restarts := Before} = weir_pubsub:counters(),
    kill_shard_of(<<"a">>),
    {error, no_channel} = weir_pubsub:delete(<<"a">>),
    #{restarts := After} = weir_pubsub:counters(),
    ?assertEqual(Before + 1, After).

sockets_of_a_shard_that_is_killed(_Config) ->
    {Socket, _Peer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    kill_shard_of(<<"a">>),
    {{weir_pubsub, Socket}, <<"a">>, {closed, unavailable}} = next_message(),
    ?assertEqual(0, used(total, subscribers)).

not_started(_Config) ->
    ok = application:stop(weir_pubsub),
    Error = {error, {not_started, weir_pubsub}},
    ?assertEqual(Error, weir_pubsub:publish(<<"a">>, "x")),
    ?assertEqual(Error, weir_pubsub:subscribe(<<"a">>, #{})),
    ?assertEqual(Error, weir_pubsub:info(<<"a">>)),
    ?assertEqual({ok, []}, weir_pubsub:channels(#{})),
    ok = application:start(weir_pubsub).
