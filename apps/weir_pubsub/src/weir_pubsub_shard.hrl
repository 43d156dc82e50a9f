%% What a shard knows. Channels, messages and subscribers are in tables, see weir_pubsub_shard.
-record(shard, {
    index :: pos_integer(),
    %% Where messages of other nodes come from, and whether that can be reached.
    broker = memory :: weir_pubsub_broker:kind(),
    connection = away :: connecting | connected | away,
    claim :: weir_pubsub_claim:claim(),
    channels :: ets:tab(),
    messages :: ets:tab(),
    subscribers :: weir_pubsub_subscribers:subscribers(),
    %% Processes that subscribe and are no reactors, and how many subscriptions each has.
    monitors = #{} :: #{pid() => {reference(), pos_integer()}},
    %% Reactors with subscriptions of connections, or with polls that wait in crowds.
    reactors = #{} :: #{pid() => reference()},
    %% Names of channels by the time when they are to be looked at, and the timer for the first.
    due :: ets:tab(),
    %% What it was asked, and has not answered.
    requests :: ets:tab(),
    %% How often it was started.
    starts :: atomics:atomics_ref(),
    timer = none :: none | {reference(), At :: integer()},
    %% Channels whose snapshot is on its way, and requests that wait for it, the last one first.
    opening = #{} :: #{weir_pubsub:channel() => [{Request :: term(), weir_pubsub_shared:asker()}]},
    %% What the broker was asked.
    asked = #{} :: #{
        reference() => {
            {publish, weir_pubsub:channel(), Bytes :: non_neg_integer()} | {delete, weir_pubsub:channel()}, weir_pubsub_shared:asker()
        }
    },
    %% Channels with an audience that is behind.
    behind = #{} :: #{weir_pubsub:channel() => []},
    %% Channels that are to get their policies out of a new configuration.
    renewing = [] :: [weir_pubsub:channel()],
    %% Audiences of channels that are gone, and who is told when all is written.
    ending = #{} :: #{reference() => {weir_pubsub_audience:audience(), [weir_pubsub_subscribers:subscriber()]}}
}).
