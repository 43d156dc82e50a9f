%% There are as many shards as schedulers online when the application starts. If that number changes later, no message
%% is lost.
-module(weir_pubsub_online_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [data/1, got/1, kept/1, policy/1, publish_numbered/2, subscribe/1, used/2]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [shards_stay].

%% On a machine with eight schedulers, two of which are online.
shards_stay(_Config) ->
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Server, _} = peer:start(#{
        connection => standard_io,
        wait_boot => weir_test_wait:patience(),
        env => [{"ERL_FLAGS", ""}],
        args => ["+S", "8:2" | Paths]
    }),
    try
        ok = peer:call(Server, ?MODULE, change, [], infinity)
    after
        peer:stop(Server)
    end.

change() ->
    start(2),
    Channels = [<<"channel ", (integer_to_binary(Number))/binary>> || Number <- lists:seq(1, 20)],
    _ = [subscribe(Channel) || Channel <- Channels],
    Rounds = [{Online, lists:seq(10 * Round, 10 * Round + 9)} || {Round, Online} <- lists:enumerate([4, 1, 8, 2])],
    lists:foreach(
        fun({Online, Numbers}) ->
            ok = weir_test_schedulers:set_online(Online),
            ?waitEqual(lists:seq(1, Online), weir_pollsets:online()),
            ?assertEqual(2, weir_pubsub_shards:count()),
            _ = [publish_numbered(Channel, Numbers) || Channel <- Channels]
        end,
        Rounds
    ),
    All = [integer_to_binary(Number) || {_, Numbers} <- Rounds, Number <- Numbers],
    [?assertEqual({All, All}, {data(got(Channel)), kept(Channel)}) || Channel <- Channels],
    ?assertEqual(20, used(total, channels)),
    ok = application:stop(weir_pubsub),
    %% A later start counts the schedulers again, also for limits.
    _ = erlang:system_flag(schedulers_online, 5),
    start(5),
    ?assertEqual(0, used(total, channels)),
    _ = [subscribe(Channel) || Channel <- Channels],
    ?assertEqual(20, used(total, channels)),
    application:stop(weir_pubsub).

start(Shards) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    policy(#{max_messages => 100}),
    ?assertEqual(Shards, weir_pubsub_shards:count()),
    ?assertEqual(
        Shards,
        length([Pid || Index <- lists:seq(1, Shards), Pid <- [whereis(weir_pubsub_shards:name(Index))], is_pid(Pid)])
    ).
