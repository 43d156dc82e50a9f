%% Channels: what subscribers get, and what is kept.
-module(weir_pubsub_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [
    policy/1, publish/2, publish_numbered/2, subscribe/1, subscribe/2, got/1, data/1, kept/1, used/2
]).

-include("pubsub_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, channels}].

groups() ->
    [
        {channels, [], [
            published_is_received,
            ids_are_consecutive,
            kept_by_count,
            kept_by_bytes,
            kept_by_age,
            kept_by_age_beside_others,
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
            small_parts_of_large_binaries,
            no_wall_clock
        ]}
    ].

%% Channels ---------------------------------------------------------------------------

published_is_received(_Config) ->
    {Epoch, 0} = subscribe(<<"a">>),
    {ok, Published} = weir_pubsub:publish(<<"a">>, ["he", <<"llo">>], #{
        type => <<"text/plain">>, event => <<"greeting">>
    }),
    ?assertEqual(#{id => {Epoch, 1}, subscribers => 1, messages => 1}, Published),
    Meta = #{type => <<"text/plain">>, event => <<"greeting">>},
    ?assertEqual([{message, {Epoch, 1}, <<"hello">>, Meta}], got(<<"a">>)).

ids_are_consecutive(_Config) ->
    Ids = publish_numbered(<<"a">>, lists:seq(1, 100)),
    {Epoch, 1} = hd(Ids),
    ?assertEqual([{Epoch, Number} || Number <- lists:seq(1, 100)], Ids),
    [?assertEqual({ok, Id}, weir_pubsub_id:from_text(weir_pubsub_id:to_text(Id))) || Id <- Ids],
    [
        ?assertEqual(error, weir_pubsub_id:from_text(Text))
     || Text <- [<<>>, <<"1">>, <<"1:">>, <<"0:1">>, <<"1:-1">>, <<"1:2:3">>, <<"a:1">>, binary:copy(<<"9">>, 100)]
    ],
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
    ?assertEqual([<<"more than ten bytes">>], kept(<<"a">>)),
    %% Metadata counts.
    [{ok, _} = weir_pubsub:publish(<<"b">>, <<"1">>, #{type => <<"a/b">>, event => <<"e">>}) || _ <- lists:seq(1, 4)],
    ?assertMatch({ok, #{messages := 2, bytes := 10}}, weir_pubsub:info(<<"b">>)).

kept_by_age(_Config) ->
    policy(#{max_age => 100, idle_timeout => 3600000}),
    Id = publish(<<"a">>, "old"),
    ?waitEqual([], kept(<<"a">>)),
    %% The sweep drops it, and the channel stays the same.
    ?waitEqual(0, used(<<>>, messages)),
    {ok, #{messages := 0, bytes := 0, last_id := Id}} = weir_pubsub:info(<<"a">>),
    {Epoch, 1} = Id,
    ?assertEqual({Epoch, 2}, publish(<<"a">>, "new")).

%% The timer of a shard is for the channel that is due first, even if it was set for another one.
kept_by_age_beside_others(_Config) ->
    ok = weir_pubsub:configure(#{
        channels => [{<<"long">>, #{max_age => 3600000}}, {<<"short/*">>, #{max_age => 100}}]
    }),
    Shard = fun(Channel) -> element(1, element(2, weir_pubsub_shards:tables_of(Channel))) end,
    [Short | _] = [
        Name
     || Number <- lists:seq(1, 1000),
        Name <- [<<"short/", (integer_to_binary(Number))/binary>>],
        Shard(Name) =:= Shard(<<"long">>)
    ],
    _ = publish(<<"long">>, "x"),
    _ = publish(Short, "x"),
    ?waitEqual(1, used(<<>>, messages)),
    ?assertMatch({ok, #{messages := 0}}, weir_pubsub:info(Short)).

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
    %% An id that no message has.
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
    [
        ?assertEqual(
            {Tag, <<"a">>, {message, Id, <<"x">>, #{}}},
            receive
                {Tag, _, _} = M -> M
            after 0 -> none
            end
        )
     || Tag <- [one, two]
    ],
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
    ?waitEqual({error, no_channel}, weir_pubsub:info(<<"b">>)),
    ?assertMatch({ok, _}, weir_pubsub:info(<<"a">>)),
    ok = weir_pubsub:unsubscribe(<<"a">>),
    ?waitEqual({error, no_channel}, weir_pubsub:info(<<"a">>)),
    ?assertEqual(0, used(total, channels)).

listed(_Config) ->
    [publish(<<"room/", Number>>, "x") || Number <- "cab"],
    _ = publish(<<"other">>, "x"),
    Names = fun(Options) ->
        {ok, Channels} = weir_pubsub:channels(Options),
        [Name || #{channel := Name} <- Channels]
    end,
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
    %% Events that go through another shard come later.
    Events = [
        receive
            {weir_pubsub, <<"meta">>, {message, _, Text, _}} -> Text
        after weir_test_wait:patience() -> none
        end
     || _ <- lists:seq(1, 4)
    ],
    ?assertEqual(
        [<<"subscriber_enqueue a">>, <<"channel_publish a">>, <<"subscriber_dequeue a">>, <<"channel_delete a">>],
        Events
    ).

%% The wall clock may jump: only the expiry of tokens depends on it.
no_wall_clock(_Config) ->
    {ok, Modules} = application:get_key(weir_pubsub, modules),
    Clock = [
        {erlang, system_time},
        {os, system_time},
        {erlang, timestamp},
        {os, timestamp},
        {erlang, now},
        {erlang, localtime},
        {erlang, universaltime},
        {erlang, date},
        {erlang, time},
        {calendar, local_time},
        {calendar, universal_time}
    ],
    Looks = fun(Module) ->
        {ok, {Module, [{imports, Called}]}} = beam_lib:chunks(code:which(Module), [imports]),
        lists:any(fun({Of, Function, _}) -> lists:member({Of, Function}, Clock) end, Called)
    end,
    ?assertEqual([weir_pubsub_mercure_access, weir_pubsub_token], lists:sort(lists:filter(Looks, Modules))).

small_parts_of_large_binaries(_Config) ->
    <<Part:100/binary, _/binary>> = binary:copy(<<"x">>, 100000),
    _ = publish(<<"a">>, Part),
    {ok, #{messages := [{message, _, Kept, _}]}} = weir_pubsub:history(<<"a">>, #{}),
    ?assertEqual(100, binary:referenced_byte_size(Kept)).
