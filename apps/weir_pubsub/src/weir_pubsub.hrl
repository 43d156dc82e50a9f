%% A channel, in the table of its shard. It is copied in and out at each publication, so it holds no message.
-record(channel, {
    name :: weir_pubsub:channel() | '_' | '$1',
    %% The first half of the ids of its messages: the number of this life of the channel.
    epoch :: pos_integer() | '_',
    %% Who began that life: this node, or the broker.
    origin = node :: node | broker | '_',
    %% The numbers of the oldest message that is kept and of the latest. None is kept if the first is greater.
    first = 1 :: pos_integer() | '_',
    last = 0 :: non_neg_integer() | '_',
    %% Of the messages that are kept.
    bytes = 0 :: non_neg_integer() | '_',
    %% Which policy it has, and in which configuration: weir_pubsub_policies makes a policy of it, and of a later configuration by the name.
    policy :: weir_pubsub_policies:known() | '_',
    %% Whose limits it shares: that of the policy.
    group :: binary() | '_',
    %% Subscribers that are processes, and those that are sockets.
    processes = 0 :: non_neg_integer() | '_',
    sockets = 0 :: non_neg_integer() | '_',
    %% Groups of sockets, one for each framing.
    audiences = [] :: [weir_pubsub_audience:audience()] | '_',
    %% Groups of polls that wait for one message. Those polls are among the processes.
    crowds = [] :: [weir_pubsub_crowd:crowd()] | '_',
    %% When the sweep looks at it, in milliseconds of the monotonic clock.
    due = infinity :: integer() | infinity | '_',
    %% When it was made, last used, and last subscribed to.
    created :: integer() | '_',
    used :: integer() | '_',
    requested = never :: integer() | never | '_'
}).

%% What is allowed in a channel. Options of weir_pubsub_policies, checked.
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

%% What holds, in one term. Rules have the numbers of policies; that of the first is 1: the defaults.
-record(configuration, {
    version :: non_neg_integer(),
    rules :: [{weir_pubsub_pattern:pattern(), pos_integer()}],
    policies :: tuple(),
    groups :: weir_pubsub_limits:groups()
}).
