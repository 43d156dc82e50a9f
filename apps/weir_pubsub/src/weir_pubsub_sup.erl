%% @private
%% @doc Supervises the shards, the process that changes the configuration, the asker, and the process of Mercure's
%% subscriptions. Owns the tables that outlive each of them.
-module(weir_pubsub_sup).
-behaviour(supervisor).

-include("weir_pubsub_shard.hrl").

-export([start_link/1]).
-export([init/1]).

-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Shards) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Shards).

%% A shard that is restarted loses its channels, and its subscribers are notified. Shards do not depend on each other.
-spec init(pos_integer()) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Shards) ->
    ok = weir_pubsub_shards:make(Shards, weir_pubsub_broker:kind()),
    lists:foreach(
        fun(Index) ->
            #shard{subscribers = Subscribers, requests = Requests} = weir_pubsub_shards:shard(Index),
            ok = weir_pubsub_subscribers:new(Subscribers),
            Requests = weir_pubsub_requests:new(Requests)
        end,
        lists:seq(1, Shards)
    ),
    _ = weir_pubsub_mercure_subscriptions:new(),
    Modules = [weir_pubsub_configuration, weir_pubsub_authorizer, weir_pubsub_mercure_subscriptions],
    Others = [#{id => Module, start => {Module, start_link, []}} || Module <- Modules],
    Children =
        Others ++ [#{id => Index, start => {weir_pubsub_shard, start_link, [Index]}} || Index <- lists:seq(1, Shards)],
    {ok, {#{strategy => one_for_one, intensity => 20, period => 1}, Children ++ weir_pubsub_broker:children(Shards)}}.
