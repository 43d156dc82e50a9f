%% Channels: who gets what, what is kept, what is refused, and what becomes of it all.
-module(weir_pubsub_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-define(PATIENCE, 10000).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [{group, channels}, {group, limits}, {group, slow}, {group, sockets}, {group, misfortune}].

groups() ->
    [
        {channels, [], [
            published_is_received,
            ids_are_consecutive,
            kept_by_count,
            kept_by_bytes,
            kept_by_age,
            nothing_is_kept,
            from_everywhere,
            a_gap_is_told,
            another_life_is_a_gap,
            subscribing_again_begins_anew,
            tags_are_independent,
            unsubscribed_gets_nothing,
            deleted,
            gone_when_nobody_uses_it,
            listed,
            presence,
            events,
            small_parts_of_large_binaries
        ]},
        {limits, [], [
            channels_of_a_group,
            subscribers_of_a_channel_and_a_group,
            bytes_and_messages_of_a_group,
            the_total,
            too_large,
            counted_out_again,
            a_channel_changes_its_group,
            a_new_policy_counts_at_the_next_use,
            configurations_that_are_wrong,
            arguments_that_are_wrong
        ]},
        {slow, [], [a_window, a_window_that_loses, a_window_that_ends]},
        {sockets, [], [
            framed_once_for_all,
            a_framing_that_fails,
            history_then_messages,
            a_socket_is_told_of_a_gap,
            a_socket_whose_channel_is_deleted,
            a_socket_that_leaves,
            sockets_of_a_dead_process,
            a_socket_that_is_closed,
            framings_that_nobody_has_any_more,
            history_larger_than_a_message,
            a_slow_socket_is_closed,
            a_slow_socket_goes_on,
            a_slow_socket_in_another_life_of_its_channel,
            a_gap_while_a_group_is_busy
        ]},
        {misfortune, [], [a_shard_is_killed, sockets_of_a_shard_that_is_killed, who_had_the_claim_is_killed, not_started]}
    ].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    Config.

end_per_testcase(_Case, _Config) ->
    ok = application:stop(weir_pubsub).

%% A policy for all channels.
policy(Policy) -> ok = weir_pubsub:configure(#{channels => [{<<"*">>, Policy}]}).

publish(Channel, Data) ->
    {ok, #{id := Id}} = weir_pubsub:publish(Channel, Data),
    Id.

publish_numbered(Channel, Numbers) -> [publish(Channel, integer_to_binary(Number)) || Number <- Numbers].

subscribe(Channel) -> subscribe(Channel, #{}).

subscribe(Channel, Options) ->
    {ok, Position} = weir_pubsub:subscribe(Channel, Options),
    Position.

%% What has come of a channel: a publication is with its subscribers before its caller goes on.
got(Channel) ->
    receive
        {weir_pubsub, Channel, What} -> [What | got(Channel)]
    after 0 -> []
    end.

data(Messages) -> [Data || {message, _, Data, _} <- Messages].

kept(Channel) ->
    {ok, #{messages := Messages}} = weir_pubsub:history(Channel, #{limit => 1000}),
    data(Messages).

next() ->
    receive
        Message -> Message
    after ?PATIENCE -> ct:fail(nothing_came)
    end.

wait_until(Condition) -> wait_until(Condition, erlang:monotonic_time(millisecond) + ?PATIENCE).

wait_until(Condition, Until) ->
    case {Condition(), erlang:monotonic_time(millisecond) > Until} of
        {true, _} -> ok;
        {false, true} -> ct:fail(never_came_true);
        _ -> timer:sleep(5), wait_until(Condition, Until)
    end.

used(Group, Kind) ->
    {ok, #{Kind := Count}} = weir_pubsub:usage(Group),
    Count.

%% Channels ---------------------------------------------------------------------------

published_is_received(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>),
    {ok, Published} = weir_pubsub:publish(<<"a">>, ["he", <<"llo">>], #{type => <<"text/plain">>, event => <<"greeting">>}),
    ?assertEqual(#{id => {Epoch, 1}, subscribers => 1, messages => 1}, Published),
    Meta = #{type => <<"text/plain">>, event => <<"greeting">>},
    ?assertEqual([{message, {Epoch, 1}, <<"hello">>, Meta}], got(<<"a">>)).

ids_are_consecutive(_Config) ->
    Ids = publish_numbered(<<"a">>, lists:seq(1, 100)),
    {Epoch, 1} = hd(Ids),
    ?assertEqual([{Epoch, Number} || Number <- lists:seq(1, 100)], Ids),
    [?assertEqual({ok, Id}, weir_pubsub_id:from_text(weir_pubsub_id:to_text(Id))) || Id <- Ids],
    [?assertEqual(error, weir_pubsub_id:from_text(Text)) || Text <- [<<>>, <<"1">>, <<"1:">>, <<"0:1">>, <<"1:-1">>, <<"1:2:3">>, <<"a:1">>, binary:copy(<<"9">>, 100)]],
    {Other, 1} = publish(<<"b">>, "x"),
    ?assert(Other > Epoch).

kept_by_count(_Config) ->
    policy(#{max_messages => 3}),
    _ = publish_numbered(<<"a">>, lists:seq(1, 5)),
    ?assertEqual([<<"3">>, <<"4">>, <<"5">>], kept(<<"a">>)),
    {ok, #{messages := 3, bytes := 3}} = weir_pubsub:info(<<"a">>).

kept_by_bytes(_Config) ->
    policy(#{max_bytes => 10}),
    [publish(<<"a">>, <<"four">>) || _ <- lists:seq(1, 4)],
    ?assertEqual([<<"four">>, <<"four">>], kept(<<"a">>)),
    %% One is kept, whatever its size.
    publish(<<"a">>, <<"more than ten bytes">>),
    ?assertEqual([<<"more than ten bytes">>], kept(<<"a">>)).

kept_by_age(_Config) ->
    policy(#{max_age => 100, idle_timeout => 1000000}),
    Id = publish(<<"a">>, "old"),
    wait_until(fun() -> kept(<<"a">>) =:= [] end),
    %% The sweep forgets it, and the channel is the same.
    wait_until(fun() -> used(<<>>, messages) =:= 0 end),
    {ok, #{messages := 0, bytes := 0, last_id := Id}} = weir_pubsub:info(<<"a">>),
    {Epoch, 1} = Id,
    ?assertEqual({Epoch, 2}, publish(<<"a">>, "new")).

nothing_is_kept(_Config) ->
    policy(#{max_messages => 0}),
    {Epoch, 0} = subscribe(<<"a">>),
    [_, _] = publish_numbered(<<"a">>, [1, 2]),
    ?assertMatch([{message, {Epoch, 1}, _, _}, {message, {Epoch, 2}, _, _}], got(<<"a">>)),
    ?assertEqual([], kept(<<"a">>)),
    ?assertEqual({Epoch, 2}, subscribe(<<"a">>, #{from => {Epoch, 0}})),
    ?assertEqual([{gap, 2, {Epoch, 2}}], got(<<"a">>)).

from_everywhere(_Config) ->
    [{Epoch, 1} | _] = publish_numbered(<<"a">>, [1, 2, 3]),
    Got = fun(From) -> {subscribe(<<"a">>, #{from => From}), data(got(<<"a">>))} end,
    ?assertEqual({{Epoch, 3}, []}, Got(new)),
    ?assertEqual({{Epoch, 0}, [<<"1">>, <<"2">>, <<"3">>]}, Got(oldest)),
    ?assertEqual({{Epoch, 1}, [<<"2">>, <<"3">>]}, Got({last, 2})),
    ?assertEqual({{Epoch, 0}, [<<"1">>, <<"2">>, <<"3">>]}, Got({last, 20})),
    ?assertEqual({{Epoch, 2}, [<<"3">>]}, Got({Epoch, 2})),
    ?assertEqual({{Epoch, 3}, []}, Got({Epoch, 3})),
    {ok, #{messages := [{message, {Epoch, 2}, _, _}], position := {Epoch, 1}, missed := none, last_id := {Epoch, 3}}} =
        weir_pubsub:history(<<"a">>, #{from => {Epoch, 1}, limit => 1}).

a_gap_is_told(_Config) ->
    policy(#{max_messages => 2}),
    [{Epoch, 1} | _] = publish_numbered(<<"a">>, lists:seq(1, 6)),
    ?assertEqual({Epoch, 4}, subscribe(<<"a">>, #{from => {Epoch, 1}})),
    [{gap, 3, {Epoch, 4}}, {message, {Epoch, 5}, _, _}, {message, {Epoch, 6}, _, _}] = got(<<"a">>),
    {ok, #{missed := 3, position := {Epoch, 4}}} = weir_pubsub:history(<<"a">>, #{from => {Epoch, 1}}).

another_life_is_a_gap(_Config) ->
    {Epoch, 1} = Id = publish(<<"a">>, "1"),
    {ok, _} = weir_pubsub:delete(<<"a">>),
    {Later, 0} = subscribe(<<"a">>, #{from => Id}),
    ?assert(Later > Epoch),
    ?assertEqual([{gap, unknown, {Later, 0}}], got(<<"a">>)),
    %% An id that nobody can have.
    ?assertEqual({Later, 0}, subscribe(<<"a">>, #{from => {Later, 9}})),
    ?assertEqual([{gap, unknown, {Later, 0}}], got(<<"a">>)).

subscribing_again_begins_anew(_Config) ->
    _ = subscribe(<<"a">>),
    _ = publish(<<"a">>, "1"),
    _ = subscribe(<<"a">>, #{from => oldest}),
    ?assertEqual([<<"1">>, <<"1">>], data(got(<<"a">>))),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "2"),
    ?assertEqual([<<"2">>], data(got(<<"a">>))).

tags_are_independent(_Config) ->
    _ = subscribe(<<"a">>, #{tag => one}),
    _ = subscribe(<<"a">>, #{tag => two}),
    {ok, #{id := Id, subscribers := 2}} = weir_pubsub:publish(<<"a">>, "x"),
    [?assertEqual({Tag, <<"a">>, {message, Id, <<"x">>, #{}}}, receive {Tag, _, _} = M -> M after 0 -> none end) || Tag <- [one, two]],
    ok = weir_pubsub:unsubscribe(<<"a">>, one),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "y").

unsubscribed_gets_nothing(_Config) ->
    _ = subscribe(<<"a">>),
    ok = weir_pubsub:unsubscribe(<<"a">>),
    ?assertEqual({error, not_subscribed}, weir_pubsub:unsubscribe(<<"a">>)),
    {ok, #{subscribers := 0}} = weir_pubsub:publish(<<"a">>, "x"),
    ?assertEqual([], got(<<"a">>)).

deleted(_Config) ->
    _ = subscribe(<<"a">>),
    Id = publish(<<"a">>, "x"),
    {ok, #{last_id := Id, subscribers := 1, messages := 1}} = weir_pubsub:delete(<<"a">>),
    ?assertMatch([{message, Id, _, _}, {closed, deleted}], got(<<"a">>)),
    ?assertEqual({error, no_channel}, weir_pubsub:delete(<<"a">>)),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"a">>)),
    ?assertEqual({error, no_channel}, weir_pubsub:history(<<"a">>, #{})),
    ?assertEqual({error, not_subscribed}, weir_pubsub:unsubscribe(<<"a">>)).

gone_when_nobody_uses_it(_Config) ->
    policy(#{max_messages => 0, idle_timeout => 1}),
    _ = subscribe(<<"a">>),
    _ = publish(<<"b">>, "x"),
    wait_until(fun() -> weir_pubsub:info(<<"b">>) =:= {error, no_channel} end),
    ?assertMatch({ok, _}, weir_pubsub:info(<<"a">>)),
    ok = weir_pubsub:unsubscribe(<<"a">>),
    wait_until(fun() -> weir_pubsub:info(<<"a">>) =:= {error, no_channel} end),
    ?assertEqual(0, used(total, channels)).

listed(_Config) ->
    [publish(<<"room/", Number>>, "x") || Number <- "cab"],
    _ = publish(<<"other">>, "x"),
    Names = fun(Options) -> {ok, Channels} = weir_pubsub:channels(Options), [Name || #{channel := Name} <- Channels] end,
    ?assertEqual([<<"other">>, <<"room/a">>, <<"room/b">>, <<"room/c">>], Names(#{})),
    ?assertEqual([<<"room/b">>], Names(#{prefix => <<"room/">>, 'after' => <<"room/a">>, limit => 1})).

presence(_Config) ->
    policy(#{presence => true}),
    _ = subscribe(<<"a">>, #{info => <<"Joe">>}),
    Me = self(),
    {ok, [#{pid := Me, info := <<"Joe">>, age := Age}]} = weir_pubsub:presence(<<"a">>),
    ?assert(Age >= 0),
    policy(#{}),
    _ = publish(<<"a">>, "x"),
    ?assertEqual({error, no_presence}, weir_pubsub:presence(<<"a">>)).

events(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"a">>, #{events => <<"meta">>}}]}),
    _ = subscribe(<<"meta">>),
    _ = subscribe(<<"a">>),
    _ = publish(<<"a">>, "x"),
    ok = weir_pubsub:unsubscribe(<<"a">>),
    {ok, _} = weir_pubsub:delete(<<"a">>),
    %% Those of another shard come when they come.
    Events = [receive {weir_pubsub, <<"meta">>, {message, _, Text, _}} -> Text after ?PATIENCE -> none end || _ <- lists:seq(1, 4)],
    ?assertEqual([<<"subscriber_enqueue a">>, <<"channel_publish a">>, <<"subscriber_dequeue a">>, <<"channel_delete a">>], Events).

small_parts_of_large_binaries(_Config) ->
    <<Part:100/binary, _/binary>> = binary:copy(<<"x">>, 100000),
    _ = publish(<<"a">>, Part),
    {ok, #{messages := [{message, _, Kept, _}]}} = weir_pubsub:history(<<"a">>, #{}),
    ?assertEqual(100, binary:referenced_byte_size(Kept)).

%% Limits ------------------------------------------------------------------------------

limited(Limits) -> limited(Limits, #{}).

limited(Limits, Policy) ->
    ok = weir_pubsub:configure(#{channels => [{<<"g/*">>, Policy#{group => <<"g">>}}], groups => #{<<"g">> => Limits}}).

channels_of_a_group(_Config) ->
    limited(#{channels => 2}),
    _ = publish(<<"g/1">>, "x"),
    _ = subscribe(<<"g/2">>),
    ?assertEqual({error, {limit, channels, <<"g">>, 2}}, weir_pubsub:publish(<<"g/3">>, "x")),
    ?assertEqual({error, {limit, channels, <<"g">>, 2}}, weir_pubsub:subscribe(<<"g/3">>, #{})),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"g/3">>)),
    _ = publish(<<"other">>, "x"),
    {ok, _} = weir_pubsub:delete(<<"g/1">>),
    _ = publish(<<"g/3">>, "x").

subscribers_of_a_channel_and_a_group(_Config) ->
    limited(#{subscribers => 2}, #{max_subscribers => 1}),
    _ = subscribe(<<"g/1">>, #{tag => 1}),
    ?assertEqual({error, {limit, subscribers, channel, 1}}, weir_pubsub:subscribe(<<"g/1">>, #{tag => 2})),
    _ = subscribe(<<"g/2">>, #{tag => 1}),
    ?assertEqual({error, {limit, subscribers, <<"g">>, 2}}, weir_pubsub:subscribe(<<"g/3">>, #{tag => 1})),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"g/3">>)),
    ok = weir_pubsub:unsubscribe(<<"g/1">>, 1),
    _ = subscribe(<<"g/3">>, #{tag => 1}).

bytes_and_messages_of_a_group(_Config) ->
    limited(#{bytes => 10, messages => 2}),
    _ = publish(<<"g/1">>, "123456"),
    ?assertEqual({error, {limit, bytes, <<"g">>, 10}}, weir_pubsub:publish(<<"g/2">>, "12345")),
    _ = publish(<<"g/2">>, "1234"),
    ?assertEqual({error, {limit, messages, <<"g">>, 2}}, weir_pubsub:publish(<<"g/2">>, "")),
    ?assertEqual({ok, #{channels => 2, subscribers => 0, messages => 2, bytes => 10}}, weir_pubsub:usage(<<"g">>)).

the_total(_Config) ->
    ok = weir_pubsub:configure(#{total => #{channels => 1}}),
    _ = publish(<<"a">>, "x"),
    ?assertEqual({error, {limit, channels, total, 1}}, weir_pubsub:publish(<<"b">>, "x")),
    ?assertEqual(1, used(<<>>, channels)).

too_large(_Config) ->
    policy(#{max_message => 3}),
    ?assertEqual({error, {too_large, 3}}, weir_pubsub:publish(<<"a">>, "1234")),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"a">>)),
    ?assertEqual(0, used(total, channels)).

counted_out_again(_Config) ->
    limited(#{}, #{max_messages => 3}),
    _ = publish_numbered(<<"g/1">>, lists:seq(10, 20)),
    _ = subscribe(<<"g/1">>),
    {ok, Usage} = weir_pubsub:usage(<<"g">>),
    ?assertEqual(#{channels => 1, subscribers => 1, messages => 3, bytes => 6}, Usage),
    {ok, _} = weir_pubsub:delete(<<"g/1">>),
    None = #{channels => 0, subscribers => 0, messages => 0, bytes => 0},
    ?assertEqual([{ok, None}, {ok, None}], [weir_pubsub:usage(<<"g">>), weir_pubsub:usage(total)]).

a_channel_changes_its_group(_Config) ->
    limited(#{}),
    _ = publish(<<"g/1">>, "xy"),
    _ = subscribe(<<"g/1">>),
    ok = weir_pubsub:configure(#{channels => [{<<"g/*">>, #{group => <<"h">>}}]}),
    _ = publish(<<"g/1">>, "z"),
    ?assertEqual({ok, #{channels => 0, subscribers => 0, messages => 0, bytes => 0}}, weir_pubsub:usage(<<"g">>)),
    ?assertEqual({ok, #{channels => 1, subscribers => 1, messages => 2, bytes => 3}}, weir_pubsub:usage(<<"h">>)).

a_new_policy_counts_at_the_next_use(_Config) ->
    _ = publish_numbered(<<"a">>, lists:seq(1, 5)),
    policy(#{max_messages => 2}),
    _ = publish(<<"a">>, "6"),
    ?assertEqual([<<"5">>, <<"6">>], kept(<<"a">>)).

configurations_that_are_wrong(_Config) ->
    [
        ?assertMatch({{error, {bad_option, Place, _, [_ | _]}}, _}, {weir_pubsub:configure(Configuration), Place})
     || {Configuration, Place} <- [
            {[], []},
            {#{other => 1}, [other]},
            {#{channels => 1}, [channels]},
            {#{channels => [{<<>>, #{}}]}, [channels]},
            {#{channels => [{<<"a">>, #{max_age => 0}}]}, [channels, <<"a">>, max_age]},
            {#{channels => [{<<"a">>, #{max_message => 1000001}}]}, [channels, <<"a">>, max_message]},
            {#{channels => [{<<"a">>, #{slow => stop}}]}, [channels, <<"a">>, slow]},
            {#{channels => [{<<"a">>, #{nothing => 1}}]}, [channels, <<"a">>, nothing]},
            {#{channels => [{<<"*">>, #{events => <<"meta">>}}]}, [channels, <<"*">>, events]},
            {#{groups => #{g => #{}}}, [groups]},
            {#{groups => #{<<"g">> => #{bytes => -1}}}, [groups, <<"g">>, bytes]},
            {#{total => #{files => 1}}, [total, files]}
        ]
    ],
    %% Nothing of them counts.
    ?assertMatch({error, _}, weir_pubsub:configure(#{total => #{channels => 0}, channels => 1})),
    _ = publish(<<"a">>, "x").

arguments_that_are_wrong(_Config) ->
    Names = [<<>>, "a", binary:copy(<<"x">>, 1025)],
    [?assertMatch({error, {bad_option, channel, Name, _}}, weir_pubsub:publish(Name, "x")) || Name <- Names],
    [?assertMatch({error, {bad_option, channel, Name, _}}, weir_pubsub:subscribe(Name, #{})) || Name <- Names],
    ?assertMatch({error, {bad_option, type, "x", _}}, weir_pubsub:publish(<<"a">>, "x", #{type => "x"})),
    [
        ?assertMatch({error, {bad_option, Name, Value, _}}, weir_pubsub:publish(<<"a">>, "x", #{Name => Value}))
     || Name <- [type, event], Value <- [<<"a\nb">>, <<"a\rb">>, <<"a", 0>>]
    ],
    [
        ?assertMatch({error, {bad_option, Name, Value, _}}, weir_pubsub:subscribe(<<"a">>, #{Name => Value}))
     || {Name, Value} <- [{from, yesterday}, {from, {last, -1}}, {window, 0}, {other, 1}]
    ],
    ?assertMatch({error, {bad_option, limit, 0, _}}, weir_pubsub:channels(#{limit => 0})),
    ?assertMatch({error, {bad_option, limit, 0, _}}, weir_pubsub:history(<<"a">>, #{limit => 0})).

%% Slow processes ------------------------------------------------------------------------

a_window(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>, #{window => 2}),
    _ = publish_numbered(<<"a">>, lists:seq(1, 5)),
    ?assertEqual([<<"1">>, <<"2">>], data(got(<<"a">>))),
    ok = weir_pubsub:taken(<<"a">>, 1),
    {weir_pubsub, <<"a">>, {message, {Epoch, 3}, _, _}} = next(),
    %% It is not more than it was, whatever is said.
    ok = weir_pubsub:taken(<<"a">>, 1000),
    {weir_pubsub, <<"a">>, {message, {Epoch, 4}, _, _}} = next(),
    {weir_pubsub, <<"a">>, {message, {Epoch, 5}, _, _}} = next(),
    _ = publish(<<"a">>, "6"),
    ?assertEqual([], got(<<"a">>)).

a_window_that_loses(_Config) ->
    policy(#{max_messages => 2}),
    {Epoch, 0} = subscribe(<<"a">>, #{window => 1}),
    _ = publish_numbered(<<"a">>, lists:seq(1, 5)),
    [{message, {Epoch, 1}, _, _}] = got(<<"a">>),
    ok = weir_pubsub:taken(<<"a">>, 1),
    {weir_pubsub, <<"a">>, {gap, 2, {Epoch, 3}}} = next(),
    {weir_pubsub, <<"a">>, {message, {Epoch, 4}, _, _}} = next().

a_window_that_ends(_Config) ->
    policy(#{max_messages => 2, slow => disconnect}),
    #{slow := Before} = weir_pubsub:counters(),
    _ = subscribe(<<"a">>, #{window => 1}),
    _ = publish_numbered(<<"a">>, lists:seq(1, 3)),
    ?assertMatch([{message, _, <<"1">>, _}], got(<<"a">>)),
    {ok, _} = weir_pubsub:publish(<<"a">>, "4"),
    ?assertEqual([{closed, slow}], got(<<"a">>)),
    {ok, #{subscribers := 0}} = weir_pubsub:info(<<"a">>),
    #{slow := After} = weir_pubsub:counters(),
    ?assertEqual(Before + 1, After).

%% Sockets ----------------------------------------------------------------------------------

pair() -> pair([], []).

pair(Options, PeerOptions) ->
    {ok, Listen} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}} | Options]),
    {ok, Port} = inet:port(Listen),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false} | PeerOptions]),
    {ok, Socket} = gen_tcp:accept(Listen, ?PATIENCE),
    ok = gen_tcp:close(Listen),
    {Socket, Peer}.

join(Channel, Socket) -> join(Channel, Socket, #{}).

join(Channel, Socket, Options) ->
    ok = weir_pubsub_socket:subscribe(Channel, Socket, {weir_pubsub_lines, <<>>}, Options),
    receive
        {{weir_pubsub, Socket}, Channel, {answer, Result}} -> Result
    after ?PATIENCE -> ct:fail(no_answer)
    end.

%% What a peer gets, as far as it is known what that is.
expect(Peer, Text) ->
    Expected = iolist_to_binary(Text),
    ?assertEqual({ok, Expected}, gen_tcp:recv(Peer, byte_size(Expected), ?PATIENCE)).

framed_once_for_all(_Config) ->
    Pairs = [pair() || _ <- lists:seq(1, 5)],
    [{ok, {_, 0}} = join(<<"a">>, Socket) || {Socket, _} <- Pairs],
    {Other, OthersPeer} = pair(),
    ok = weir_pubsub_socket:subscribe(<<"a">>, Other, {weir_pubsub_lines, <<"> ">>}, #{}),
    {{weir_pubsub, Other}, <<"a">>, {answer, {ok, _}}} = next(),
    {ok, #{subscribers := 6}} = weir_pubsub:publish(<<"a">>, "hello"),
    [expect(Peer, "1 hello\n") || {_, Peer} <- Pairs],
    expect(OthersPeer, "> 1 hello\n").

%% It costs those who have that framing the message, and nobody else anything.
a_framing_that_fails(_Config) ->
    {Socket, Peer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    {Other, OthersPeer} = pair(),
    ok = weir_pubsub_socket:subscribe(<<"a">>, Other, {weir_pubsub_lines, fails_at_2}, #{}),
    {{weir_pubsub, Other}, <<"a">>, {answer, {ok, _}}} = next(),
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
    {{weir_pubsub, Socket}, <<"a">>, {closed, deleted}} = next(),
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
    {'DOWN', Monitor, process, Pid, normal} = next(),
    wait_until(fun() -> used(total, subscribers) =:= 0 end),
    {ok, #{subscribers := 0}} = weir_pubsub:publish(<<"a">>, "x").

a_socket_that_is_closed(_Config) ->
    {Socket, _Peer} = pair(),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, closed}, join(<<"a">>, Socket)),
    ?assertEqual(0, used(total, subscribers)),
    ?assertEqual(0, used(total, channels)).

%% A channel that always has somebody: what others have asked for, once, costs it nothing afterwards.
framings_that_nobody_has_any_more(_Config) ->
    {Stays, StaysPeer} = pair(),
    {ok, _} = join(<<"a">>, Stays),
    Groups = weir_nif:group_count(),
    lists:foreach(
        fun(Prefix) ->
            {Socket, _Peer} = pair(),
            Prefix rem 2 =:= 0 andalso gen_tcp:close(Socket),
            ok = weir_pubsub_socket:subscribe(<<"a">>, Socket, {weir_pubsub_lines, integer_to_binary(Prefix)}, #{}),
            {{weir_pubsub, Socket}, <<"a">>, {answer, _}} = next(),
            ok = weir_pubsub_socket:unsubscribe(<<"a">>, {weir_pubsub, Socket})
        end,
        lists:seq(1, 6)
    ),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "x"),
    expect(StaysPeer, "1 x\n"),
    ?assertEqual(Groups, weir_nif:group_count()).

history_larger_than_a_message(_Config) ->
    policy(#{max_messages => 10, max_bytes => 10000000, max_queue_bytes => 10000000}),
    Data = binary:copy(<<"x">>, 400000),
    [publish(<<"a">>, Data) || _ <- lists:seq(1, 5)],
    {Socket, Peer} = pair(),
    {ok, {Epoch, _}} = join(<<"a">>, Socket, #{from => oldest}),
    ?assert(is_integer(Epoch)),
    expect(Peer, ["gap 3 3\n4 ", Data, "\n5 ", Data, "\n"]).

%% It gets what waits, then what is kept, with a gap in place of the rest, and then what is published.
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
    %% The last bits of a mark are the number of a message.
    Mark = Given band (1 bsl 40 - 1),
    ?assert(Mark < Last),
    [Publish(Number) || Number <- lists:seq(Last + 1, Last + 5)],
    expect(Peer, [[integer_to_binary(Number), " ", Data, "\n"] || Number <- lists:seq(1, Mark)]),
    ok = weir_pubsub_socket:rejoin(<<"a">>, {weir_pubsub, Socket}, Left),
    End = Last + 5,
    Missed = integer_to_binary(End - 3 - Mark),
    expect(Peer, ["gap ", Missed, " ", integer_to_binary(End - 3), "\n", [[integer_to_binary(Number), " ", Data, "\n"] || Number <- lists:seq(End - 2, End)]]),
    Publish(End + 1),
    expect(Peer, [integer_to_binary(End + 1), " ", Data, "\n"]),
    ?assertMatch(#{lagged := Lagged} when Lagged =:= Before + 1, weir_pubsub:counters()).

%% With a broker a channel keeps its sockets when it begins anew.
a_slow_socket_in_another_life_of_its_channel(_Config) ->
    policy(#{max_queue => 2}),
    {Socket, _Peer} = pair([{sndbuf, 4096}], [{recbuf, 4096}]),
    {ok, {Epoch, 0}} = join(<<"a">>, Socket),
    Data = binary:copy(<<"x">>, 10000),
    Flood = fun Flood() ->
        {_, Number} = publish(<<"a">>, Data),
        receive
            {weir_group, left, Socket, _, Mark} -> {Number, Mark}
        after 10 -> Flood()
        end
    end,
    {Last, Mark} = Flood(),
    Channel = #channel{name = <<"a">>, epoch = Epoch, first = 1, last = Last, policy = 1, version = 1, group = <<>>, created = 0, used = 0},
    {Position, none} = weir_pubsub_audience:left_at(Mark, Channel),
    ?assert(Position < Last),
    ?assertEqual({0, unknown}, weir_pubsub_audience:left_at(Mark, Channel#channel{epoch = Epoch + 1})).

%% What is told late is told as it was: that nobody knows how much is missing, or all that is, with what the group was behind by.
a_gap_while_a_group_is_busy(_Config) ->
    told_late({unknown, fun(_Sent) -> 0 end}, unknown),
    told_late({5, fun(Sent) -> Sent + 20 end}, 20).

told_late({Missed, Behind}, Expected) ->
    {Socket, Peer} = pair(),
    Policy = weir_pubsub_policies:policy(weir_pubsub_policies:match(<<"a">>)),
    {ok, Empty} = weir_pubsub_audience:new({weir_pubsub_lines, <<>>}, Policy),
    Messages = ets:new(messages, []),
    Channel = #channel{name = <<"a">>, epoch = 7, policy = 1, version = 1, group = <<>>, created = 0, used = 0},
    {ok, 0, Audience} = weir_pubsub_audience:join(Empty, Socket, {0, none, <<>>}, {Channel, Messages}),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    _ = [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    {Busy, Sent} = until_busy(Audience, Channel, 1),
    Position = Behind(Sent),
    Untold = weir_pubsub_audience:begin_again(Busy, Channel, {Missed, {7, Position}}, []),
    ?assert(weir_pubsub_audience:is_behind(Untold)),
    _ = [true = erlang:resume_process(Poller) || Poller <- Pollers],
    wait_until(fun() ->
        Next = weir_pubsub_audience:catch_up(Untold, Channel#channel{first = Position + 1, last = Position}, Messages),
        not weir_pubsub_audience:is_behind(Next)
    end),
    expect(Peer, [
        [[integer_to_binary(Number), " x\n"] || Number <- lists:seq(1, Sent)], io_lib:format("gap ~p ~b~n", [Expected, Position])
    ]),
    ok = weir_pubsub_audience:delete(Untold).

until_busy(Audience, Channel, Number) ->
    Next = weir_pubsub_audience:send(Audience, Channel, {message, {7, Number}, <<"x">>, #{}}),
    case weir_pubsub_audience:is_behind(Next) of
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

shard_of(Channel) ->
    Tables = weir_pubsub_shards:tables_of(Channel),
    [Shard] = [
        weir_pubsub_shards:name(Index)
     || Index <- lists:seq(1, erlang:system_info(schedulers)), {ok, weir_pubsub_shards:tables(Index)} =:= Tables
    ],
    Shard.

kill_shard_of(Channel) ->
    Shard = shard_of(Channel),
    Pid = whereis(Shard),
    exit(Pid, kill),
    wait_until(fun() -> not lists:member(whereis(Shard), [Pid, undefined]) end).

a_shard_is_killed(_Config) ->
    policy(#{presence => true}),
    {Epoch, 0} = subscribe(<<"a">>, #{info => here}),
    _ = subscribe(<<"a">>, #{tag => paced, window => 1}),
    _ = publish(<<"a">>, "1"),
    [_] = got(<<"a">>),
    kill_shard_of(<<"a">>),
    {weir_pubsub, <<"a">>, {gap, unknown, {Later, 0}}} = receive {weir_pubsub, _, _} = M -> M after ?PATIENCE -> none end,
    ?assert(Later > Epoch),
    {ok, #{id := {Later, 1}, subscribers := 2}} = weir_pubsub:publish(<<"a">>, "2"),
    ?assertMatch([{message, {Later, 1}, <<"2">>, _}], got(<<"a">>)),
    {ok, Present} = weir_pubsub:presence(<<"a">>),
    ?assertEqual([here, undefined], lists:sort([Info || #{info := Info} <- Present])),
    %% Its window is whole again.
    [_, {gap, unknown, {Later, 0}}, {message, {Later, 1}, _, _}] =
        [receive {paced, <<"a">>, What} -> What after 0 -> none end || _ <- [1, 2, 3]],
    ?assertEqual(2, used(total, subscribers)).

sockets_of_a_shard_that_is_killed(_Config) ->
    {Socket, _Peer} = pair(),
    {ok, _} = join(<<"a">>, Socket),
    kill_shard_of(<<"a">>),
    {{weir_pubsub, Socket}, <<"a">>, {closed, unavailable}} = next(),
    ?assertEqual(0, used(total, subscribers)).

%% A reactor, in the midst of a publication. What it has changed may be half done: the shard begins anew.
who_had_the_claim_is_killed(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>, #{}),
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(<<"a">>),
    {Holder, Monitor} = spawn_monitor(fun() -> true = weir_pubsub_claim:try_take(Claim) end),
    receive {'DOWN', Monitor, process, Holder, normal} -> ok end,
    {error, unavailable} = weir_pubsub:publish(<<"a">>, "1"),
    {weir_pubsub, <<"a">>, {gap, unknown, {Later, 0}}} = receive {weir_pubsub, _, _} = M -> M after ?PATIENCE -> none end,
    ?assert(Later > Epoch),
    {ok, #{id := {Later, 1}, subscribers := 1}} = weir_pubsub:publish(<<"a">>, "2").

not_started(_Config) ->
    ok = application:stop(weir_pubsub),
    Error = {error, {not_started, weir_pubsub}},
    ?assertEqual(Error, weir_pubsub:publish(<<"a">>, "x")),
    ?assertEqual(Error, weir_pubsub:subscribe(<<"a">>, #{})),
    ?assertEqual(Error, weir_pubsub:info(<<"a">>)),
    ?assertEqual({ok, []}, weir_pubsub:channels(#{})),
    ok = application:start(weir_pubsub).
