%% Channels in the process of a case: what is published, and what has come.
-module(weir_pubsub_test).

-export([policy/1]).
-export([publish/2]).
-export([publish_numbered/2]).
-export([subscribe/1]).
-export([subscribe/2]).
-export([got/1]).
-export([data/1]).
-export([kept/1]).
-export([next/0]).
-export([wait_until/1]).
-export([used/2]).
-export([kill_shard_of/1]).
-export([until_asked/2]).
-export([shard_of/1]).

-include("../src/weir_pubsub_shard.hrl").

-define(PATIENCE, 15000).

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

%% A shard that is suspended has been asked so often about these channels of it.
until_asked([Channel | _] = Channels, Count) ->
    {ok, #shard{requests = Requests}} = weir_pubsub_shards:of_channel(Channel),
    Asked = fun() -> [Of || {_, {_, _, Of}} <- ets:tab2list(Requests), lists:member(Of, Channels)] end,
    wait_until(fun() -> length(Asked()) =:= Count end).

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
