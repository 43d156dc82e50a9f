%% The state of a shard. Channels, messages and subscribers are in tables, see weir_pubsub_shard.
-record(shard, {
    index :: pos_integer(),
    %% The source of other nodes' messages, and the state of the connection to it.
    broker = memory :: weir_pubsub_broker:kind(),
    connection = away :: connecting | connected | away,
    claim :: weir_pubsub_shard_lock:claim(),
    channels :: ets:tab(),
    messages :: ets:tab(),
    subscribers :: weir_pubsub_subscribers:subscribers(),
    %% Subscribing processes that are not reactors, and how many subscriptions each has.
    monitors = #{} :: #{pid() => {reference(), pos_integer()}},
    %% Reactors with subscriptions of connections, or with polls that wait in crowds.
    reactors = #{} :: #{pid() => reference()},
    %% Names of channels by the time of their next visit. `timer' fires for the first.
    due :: ets:tab(),
    %% Requests that are not answered yet.
    requests :: ets:tab(),
    %% How often this shard was started.
    starts :: atomics:atomics_ref(),
    timer = none :: none | {reference(), At :: integer()},
    %% Channels whose snapshot is on its way from the broker, and requests that wait for it, the latest first.
    opening = #{} :: #{weir_pubsub:channel() => [{Request :: term(), weir_pubsub_replica:asker()}]},
    %% Requests to the broker that are not answered yet.
    asked = #{} :: #{
        reference() => {
            {publish, weir_pubsub:channel(), Bytes :: non_neg_integer()} | {delete, weir_pubsub:channel()},
            weir_pubsub_replica:asker()
        }
    },
    %% Channels with an audience that is behind.
    behind = #{} :: #{weir_pubsub:channel() => []},
    %% Channels that do not have their policy of a new configuration yet.
    renewing = [] :: [weir_pubsub:channel()],
    %% Audiences of deleted channels, and the subscribers to notify when all messages are written.
    ending = #{} :: #{reference() => {weir_pubsub_stream_group:audience(), [weir_pubsub_subscribers:subscriber()]}}
}).
