%% Channels in use while their configuration changes, and what readers outside the shards see.
-module(weir_pubsub_configure_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [publish_numbered/2, subscribe/1, subscribe/2, used/2, shard_of/1, suspend/1]).

-include("pubsub_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_policy_less_costs_no_subscription,
        two_configure_at_once,
        presence_that_no_configuration_tells,
        readers_are_answered_meanwhile,
        who_has_a_message_finds_it,
        who_is_told_of_a_message_finds_it,
        who_is_told_of_the_end_finds_no_channel,
        a_channel_that_nobody_uses_follows,
        who_has_given_up_changes_nothing,
        usage_stays_below_the_limit
    ].

-define(CHANGES, 5).

%% Nine policies, the last of which most channels have; and none, so that all channels have the defaults.
nine() -> #{channels => [{<<"p", (integer_to_binary(N))/binary, "/*">>, #{max_messages => N}} || N <- lists:seq(1, 9)]}.

change(Configurations, Times) ->
    [ok = weir_pubsub:configure(Configuration) || _ <- lists:seq(1, Times), Configuration <- Configurations],
    ok.

%% Runs functions again and again until the case has done its part. If one fails, the case fails.
meanwhile(Funs, Part) ->
    Over = atomics:new(1, []),
    Workers = [spawn_monitor(fun() -> again(Fun, Over) end) || Fun <- Funs],
    try
        Part()
    after
        atomics:put(Over, 1, 1)
    end,
    [?assertEqual(normal, weir_pubsub_test:ended(Worker)) || Worker <- Workers],
    ok.

again(Fun, Over) ->
    _ = Fun(),
    case atomics:get(Over, 1) of
        0 -> again(Fun, Over);
        1 -> ok
    end.

restarts() -> maps:get(restarts, weir_pubsub:counters()).

%% A subscriber that confirms nothing lags behind, so each publication looks at its policy.
a_policy_less_costs_no_subscription(_Config) ->
    ok = weir_pubsub:configure(nine()),
    Channels = [<<"p9/", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 16)],
    [subscribe(Channel, #{window => 1}) || Channel <- Channels],
    Before = restarts(),
    meanwhile([fun() -> {ok, _} = weir_pubsub:publish(Channel, "x") end || Channel <- Channels], fun() ->
        change([#{}, nine()], ?CHANGES)
    end),
    ?assertEqual(Before, restarts()),
    [?assertMatch({ok, #{subscribers := 1}}, weir_pubsub:info(Channel)) || Channel <- Channels].

two_configure_at_once(_Config) ->
    Before = restarts(),
    Configure = fun(Name) ->
        Group = iolist_to_binary([Name, integer_to_list(rand:uniform(5))]),
        ok = weir_pubsub:configure(#{
            channels => [{<<"c*">>, #{group => Group}} | maps:get(channels, nine())],
            groups => #{Group => #{channels => 1000}}
        })
    end,
    Channels = [<<"c", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 16)],
    Publish = [fun() -> {ok, _} = weir_pubsub:publish(Channel, "x") end || Channel <- Channels],
    meanwhile([fun() -> Configure("b") end | Publish], fun() -> [Configure("a") || _ <- lists:seq(1, ?CHANGES)] end),
    ?assertEqual(Before, restarts()),
    %% All are counted in their current group.
    ok = weir_pubsub:configure(#{channels => [{<<"c*">>, #{group => <<"last">>}}], groups => #{<<"last">> => #{}}}),
    ?waitEqual(16, used(<<"last">>, channels)),
    [
        ?assertEqual(0, used(iolist_to_binary([Name, N]), channels))
     || Name <- "ab", N <- "12345", {ok, _} <- [weir_pubsub:usage(<<Name, N>>)]
    ],
    ?assertEqual(16, used(total, channels)).

%% The index of its policy changes, its content does not.
presence_that_no_configuration_tells(_Config) ->
    Told = {<<"told*">>, #{presence => true}},
    Secret = {<<"secret">>, #{}},
    Channel = <<"secret">>,
    _ = subscribe(Channel),
    meanwhile(
        [
            fun() -> {ok, _} = weir_pubsub:publish(Channel, "x") end
            | lists:duplicate(3, fun() -> {error, no_presence} = weir_pubsub:presence(Channel) end)
        ],
        fun() ->
            change([#{channels => [Secret, Told]}, #{channels => [Told, Secret]}, #{channels => [Told]}], ?CHANGES)
        end
    ).

readers_are_answered_meanwhile(_Config) ->
    ok = weir_pubsub:configure(nine()),
    Channels = [<<"p9/", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 8)],
    [publish_numbered(Channel, lists:seq(1, 9)) || Channel <- Channels],
    Read = [
        fun() ->
            {ok, #{messages := [_ | _]}} = weir_pubsub:history(Channel, #{}),
            {error, no_presence} = weir_pubsub:presence(Channel),
            {ok, _} = weir_pubsub:info(Channel)
        end
     || Channel <- Channels
    ],
    meanwhile(Read, fun() -> change([#{}, nine()], ?CHANGES) end).

%% A message that is delivered is in the tables that readers look into.
who_has_a_message_finds_it(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 100}}]}),
    Channels = [<<"a", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 8)],
    Count = 2000,
    Readers = [spawn_monitor(fun() -> find(Channel, Count) end) || Channel <- Channels],
    ?waitMatch(
        8,
        lists:sum([
            Subscribers
         || Channel <- Channels, {ok, #{subscribers := Subscribers}} <- [weir_pubsub:info(Channel)]
        ])
    ),
    Writers = [spawn_monitor(fun() -> publish_numbered(Channel, lists:seq(1, Count)) end) || Channel <- Channels],
    [?assertEqual(normal, weir_pubsub_test:ended(Process)) || Process <- Writers ++ Readers].

find(Channel, Count) ->
    %% New messages only: a reader that is late checks the latest one.
    _ = subscribe(Channel),
    found(Channel, Count).

found(Channel, Count) ->
    receive
        {weir_pubsub, Channel, {message, {_, Number} = Id, _, _}} ->
            case process_info(self(), message_queue_len) of
                {message_queue_len, 0} -> ok = in_tables(Channel, Id);
                _ -> ok
            end,
            Number =:= Count orelse found(Channel, Count)
    end.

in_tables(Channel, {Epoch, Number} = Id) ->
    {ok, #{missed := Missed, position := {Epoch, Position}}} = History = weir_pubsub:history(Channel, #{from => Id}),
    {Missed =/= unknown andalso Position >= Number, History} =:= {true, History} orelse
        exit({not_in_history, Id, History}),
    {ok, #{last_id := {Epoch, Last}}} = weir_pubsub:info(Channel),
    Last >= Number orelse exit({not_in_info, Id, Last}),
    ok.

%% Also with the channel of its events.
who_is_told_of_a_message_finds_it(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"a">>, #{events => <<"of a">>, max_messages => 100}}]}),
    {Epoch, 0} = subscribe(<<"of a">>),
    Count = 2000,
    Writer = spawn_monitor(fun() -> publish_numbered(<<"a">>, lists:seq(1, Count)) end),
    [
        receive
            {weir_pubsub, <<"of a">>, {message, {Epoch, Number}, <<"channel_publish a">>, _}} ->
                {ok, #{last_id := {_, Last}}} = weir_pubsub:info(<<"a">>),
                ?assert(Last >= Number)
        end
     || Number <- lists:seq(1, Count)
    ],
    ?assertEqual(normal, weir_pubsub_test:ended(Writer)).

who_is_told_of_the_end_finds_no_channel(_Config) ->
    lists:foreach(
        fun(_) ->
            Tags = [{tag, N} || N <- lists:seq(1, 100)],
            [subscribe(<<"a">>, #{tag => Tag}) || Tag <- Tags],
            Deleter = spawn_monitor(fun() -> {ok, _} = weir_pubsub:delete(<<"a">>) end),
            [
                receive
                    {Tag, <<"a">>, {closed, deleted}} -> ?assertEqual({error, no_channel}, weir_pubsub:info(<<"a">>))
                end
             || Tag <- Tags
            ],
            ?assertEqual(normal, weir_pubsub_test:ended(Deleter))
        end,
        lists:seq(1, 100)
    ).

%% A channel that is not in use follows the new configuration in what it keeps, its group and how long it lives.
a_channel_that_nobody_uses_follows(_Config) ->
    Names = [<<"a", (integer_to_binary(N))/binary>> || N <- lists:seq(1, 1000)],
    [publish_numbered(Name, [1, 2, 3]) || Name <- Names],
    ?assertEqual(3000, used(total, messages)),
    ok = weir_pubsub:configure(#{
        channels => [{<<"a*">>, #{max_messages => 1, group => <<"g">>}}], groups => #{<<"g">> => #{}}
    }),
    ?waitEqual({1000, 1000}, {used(total, messages), used(<<"g">>, messages)}),
    ok = weir_pubsub:configure(#{channels => [{<<"a*">>, #{max_age => 1, idle_timeout => 0}}]}),
    ?waitEqual({ok, []}, weir_pubsub:channels(#{})),
    ?assertEqual([0, 0, 0], [used(Group, channels) || Group <- [<<"g">>, <<>>, total]]).

%% A shard that is late does not publish what its publisher takes for lost, and may have published again.
who_has_given_up_changes_nothing(_Config) ->
    Shard = shard_of(<<"a">>),
    ok = suspend(Shard),
    ?assertEqual({error, unavailable}, weir_pubsub:publish(<<"a">>, "x")),
    ok = sys:resume(Shard),
    ok = weir_pubsub_test:idle(<<"a">>),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"a">>)).

usage_stays_below_the_limit(_Config) ->
    Most = 50,
    ok = weir_pubsub:configure(#{
        channels => [{<<"g*">>, #{group => <<"g">>}}],
        groups => #{<<"g">> => #{subscribers => Most}},
        total => #{subscribers => Most}
    }),
    Subscribe = fun() ->
        Channel = <<"g", (integer_to_binary(rand:uniform(40)))/binary>>,
        Tag = rand:uniform(20),
        case weir_pubsub:subscribe(Channel, #{tag => Tag}) of
            {ok, _} -> rand:uniform(3) =:= 1 andalso weir_pubsub:unsubscribe(Channel, Tag);
            {error, {limit, subscribers, _, Most}} -> _ = weir_pubsub:unsubscribe(Channel, Tag)
        end
    end,
    meanwhile(lists:duplicate(16, Subscribe), fun() ->
        Highest = lists:max([used(Of, subscribers) || _ <- lists:seq(1, 3000), Of <- [<<"g">>, total]]),
        ?assert(Highest > 0),
        ?assertEqual(min(Most, Highest), Highest)
    end).
