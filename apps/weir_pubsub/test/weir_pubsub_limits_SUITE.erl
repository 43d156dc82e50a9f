%% Channels: limits, refusals, and subscribers with a window.
-module(weir_pubsub_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [
    policy/1, publish/2, publish_numbered/2, subscribe/1, subscribe/2, got/1, data/1, kept/1, used/2
]).

-include("pubsub_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, limits}, {group, slow}].

groups() ->
    [
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
        {slow, [], [
            a_window, windows_of_two_tags, a_window_where_nothing_is_kept, a_window_that_loses, a_window_that_ends
        ]}
    ].

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
    ok = weir_pubsub:configure(#{channels => [{<<"g/*">>, #{group => <<"h">>}}], groups => #{<<"h">> => #{}}}),
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
            {#{channels => [{<<"a">>, #{group => <<"g">>}}]}, [channels, <<"a">>, group]},
            {#{channels => [{<<"a">>, #{group => <<"g">>}}], groups => #{<<"h">> => #{}}}, [channels, <<"a">>, group]},
            {#{groups => #{g => #{}}}, [groups]},
            {#{groups => #{<<"g">> => #{bytes => -1}}}, [groups, <<"g">>, bytes]},
            {#{total => #{files => 1}}, [total, files]}
        ]
    ],
    %% Nothing of a wrong configuration applies.
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
    {weir_pubsub, <<"a">>, {message, {Epoch, 3}, _, _}} = weir_test_wait:next_message(),
    %% The window does not grow, whatever is confirmed.
    ok = weir_pubsub:taken(<<"a">>, 1000),
    {weir_pubsub, <<"a">>, {message, {Epoch, 4}, _, _}} = weir_test_wait:next_message(),
    {weir_pubsub, <<"a">>, {message, {Epoch, 5}, _, _}} = weir_test_wait:next_message(),
    _ = publish(<<"a">>, "6"),
    ?assertEqual([], got(<<"a">>)).

windows_of_two_tags(_Config) ->
    _ = [subscribe(<<"a">>, #{window => 1, tag => Tag}) || Tag <- [one, other]],
    _ = publish_numbered(<<"a">>, [1, 2]),
    [receive {Tag, <<"a">>, {message, _, <<"1">>, _}} -> ok end || Tag <- [one, other]],
    ok = weir_pubsub:taken(<<"a">>, 1, other),
    {other, <<"a">>, {message, _, <<"2">>, _}} = weir_test_wait:next_message(),
    receive {one, <<"a">>, More} -> ct:fail(More) after 0 -> ok end.

%% A subscriber with credit gets the next message; one without misses it.
a_window_where_nothing_is_kept(_Config) ->
    policy(#{max_messages => 0}),
    {Epoch, 0} = subscribe(<<"a">>, #{window => 1}),
    _ = publish_numbered(<<"a">>, [1, 2]),
    ?assertEqual([<<"1">>], data(got(<<"a">>))),
    ok = weir_pubsub:taken(<<"a">>, 1),
    {weir_pubsub, <<"a">>, {gap, 1, {Epoch, 2}}} = weir_test_wait:next_message(),
    _ = publish(<<"a">>, "3"),
    {weir_pubsub, <<"a">>, {message, {Epoch, 3}, <<"3">>, _}} = weir_test_wait:next_message().

a_window_that_loses(_Config) ->
    policy(#{max_messages => 2}),
    {Epoch, 0} = subscribe(<<"a">>, #{window => 1}),
    _ = publish_numbered(<<"a">>, lists:seq(1, 5)),
    [{message, {Epoch, 1}, _, _}] = got(<<"a">>),
    ok = weir_pubsub:taken(<<"a">>, 1),
    {weir_pubsub, <<"a">>, {gap, 2, {Epoch, 3}}} = weir_test_wait:next_message(),
    {weir_pubsub, <<"a">>, {message, {Epoch, 4}, _, _}} = weir_test_wait:next_message().

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
