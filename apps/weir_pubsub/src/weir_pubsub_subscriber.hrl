%% A subscriber of a channel, see weir_pubsub_subscribers.
-record(subscriber, {
    key :: {pos_integer() | '_', weir_pubsub_subscribers:kind() | '_', pid() | '_', term()} | undefined | '_',
    name :: weir_pubsub:channel() | '_',
    pid :: pid() | '_',
    %% What its messages begin with; of sockets, what the messages about them begin with.
    tag :: term(),
    %% Of a paced one and of a poll: the number of the last message that it got. Of a paced one: how many more it takes now.
    position = 0 :: non_neg_integer() | '_',
    credit = 0 :: non_neg_integer() | '_',
    window = infinity :: pos_integer() | infinity | '_',
    socket = none :: weir_tcp:socket() | none | in_key | '_',
    %% What messages are framed with; of a socket that is a member of an audience, the group of that.
    framing = none :: weir_pubsub_framing:framing() | none | '_',
    group = none :: weir_group:group() | none | '_',
    %% What presence tells of it, and since when it is there.
    info = undefined :: term(),
    since = 0 :: integer() | '_'
}).
