%% A channel, in the table of its shard. It is copied in and out at each publication, so it holds no message.
-record(channel, {
    name :: weir_pubsub:channel() | '_' | '$1',
    %% The first half of the ids of its messages: the number of this life of the channel.
    epoch :: pos_integer() | '_',
    %% Where its epoch comes from: this node, or the broker.
    origin = node :: node | broker | '_',
    %% Numbers of the oldest message that is kept, and of the latest. None is kept if the first is greater.
    first = 1 :: pos_integer() | '_',
    last = 0 :: non_neg_integer() | '_',
    %% Of the messages that are kept.
    bytes = 0 :: non_neg_integer() | '_',
    %% Version of the configuration and index of the policy in it, see weir_pubsub_policies:find/2.
    policy :: weir_pubsub_policies:known() | '_',
    %% The group whose limits it shares, from its policy.
    group :: binary() | '_',
    %% Numbers of subscribers: processes, and sockets.
    processes = 0 :: non_neg_integer() | '_',
    sockets = 0 :: non_neg_integer() | '_',
    %% Groups of sockets, one for each framing.
    audiences = [] :: [weir_pubsub_stream_group:audience()] | '_',
    %% Groups of polls that wait for one message. These polls are counted among the processes.
    crowds = [] :: [weir_pubsub_poll_group:crowd()] | '_',
    %% Time of its next visit by the sweep, in milliseconds of the monotonic clock.
    due = infinity :: integer() | infinity | '_',
    %% Times of its creation, last use and last subscription.
    created :: integer() | '_',
    used :: integer() | '_',
    requested = never :: integer() | never | '_'
}).

%% A checked policy, see weir_pubsub_policies:policy().
-record(policy, {
    max_messages :: non_neg_integer(),
    max_bytes :: non_neg_integer(),
    max_age :: pos_integer() | infinity,
    max_message :: pos_integer(),
    max_subscribers :: non_neg_integer() | infinity,
    idle_timeout :: non_neg_integer(),
    slow :: drop_oldest | disconnect,
    max_queue :: pos_integer(),
    max_queue_bytes :: pos_integer(),
    presence :: boolean(),
    events :: weir_pubsub:channel() | none,
    group :: binary()
}).

%% The current configuration, in one term. Rules refer to policies by index. Policy 1 is the defaults.
-record(configuration, {
    version :: non_neg_integer(),
    rules :: [{weir_pubsub_pattern:pattern(), pos_integer()}],
    policies :: tuple(),
    groups :: weir_pubsub_limits:groups()
}).
