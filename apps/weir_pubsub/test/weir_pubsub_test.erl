%% Channels in the process of a case: publishes, and returns what has come.
-module(weir_pubsub_test).

-export([policy/1]).
-export([publish/2]).
-export([publish_numbered/2]).
-export([subscribe/1]).
-export([subscribe/2]).
-export([got/1]).
-export([data/1]).
-export([kept/1]).
-export([used/2]).
-export([kill_shard_of/1]).
-export([ended/1]).
-export([suspend/1]).
-export([idle/1]).
-export([until_asked/2]).
-export([shard_of/1]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub_shard.hrl").

%% Sets a policy for all channels.
policy(Policy) -> ok = weir_pubsub:configure(#{channels => [{<<"*">>, Policy}]}).

publish(Channel, Data) ->
    {ok, #{id := Id}} = weir_pubsub:publish(Channel, Data),
    Id.

publish_numbered(Channel, Numbers) -> [publish(Channel, integer_to_binary(Number)) || Number <- Numbers].

subscribe(Channel) -> subscribe(Channel, #{}).

subscribe(Channel, Options) ->
    {ok, Position} = weir_pubsub:subscribe(Channel, Options),
    Position.

%% Returns what has come of a channel: subscribers have a message before the call that publishes it returns.
got(Channel) ->
    receive
        {weir_pubsub, Channel, What} -> [What | got(Channel)]
    after 0 -> []
    end.

data(Messages) -> [Data || {message, _, Data, _} <- Messages].

kept(Channel) ->
    {ok, #{messages := Messages}} = weir_pubsub:history(Channel, #{limit => 1000}),
    data(Messages).

used(Group, Kind) ->
    {ok, #{Kind := Count}} = weir_pubsub:usage(Group),
    Count.

%% Returns why a process that was started by spawn_monitor has ended.
ended({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after weir_test_wait:patience() -> error({still_alive, Pid, process_info(Pid)})
    end.

%% Suspends a shard, which handles no requests then. It may be resumed, or killed.
suspend(Shard) -> ok = sys:suspend(Shard, weir_test_wait:patience()).

%% Waits until the shard of a channel has handled its messages, and the claim is free.
idle(Channel) ->
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(Channel),
    _ = sys:get_state(shard_of(Channel), weir_test_wait:patience()),
    ok = weir_pubsub_shard_lock:take(Claim),
    ok = weir_pubsub_shard_lock:release(Claim).

%% Waits until a suspended shard has `Count' requests about these channels.
until_asked([Channel | _] = Channels, Count) ->
    {ok, #shard{requests = Requests}} = weir_pubsub_shards:of_channel(Channel),
    ?waitEqual(Count, length([Of || {_, {_, _, Of}} <- ets:tab2list(Requests), lists:member(Of, Channels)])),
    ok.

shard_of(Channel) ->
    Tables = weir_pubsub_shards:tables_of(Channel),
    [Shard] = [
        weir_pubsub_shards:name(Index)
     || Index <- lists:seq(1, weir_pubsub_shards:count()), {ok, weir_pubsub_shards:tables(Index)} =:= Tables
    ],
    Shard.

kill_shard_of(Channel) ->
    Shard = shard_of(Channel),
    Pid = whereis(Shard),
    exit(Pid, kill),
    weir_test_wait:wait_until(fun() ->
        Next = whereis(Shard),
        is_pid(Next) andalso Next =/= Pid
    end).
