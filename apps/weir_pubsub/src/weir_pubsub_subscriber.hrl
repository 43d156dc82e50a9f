%% A subscriber of a channel, see weir_pubsub_subscribers.
-record(subscriber, {
    key :: {pos_integer() | '_', weir_pubsub_subscribers:kind() | '_', pid() | '_', term()} | undefined | '_',
    name :: weir_pubsub:channel() | '_',
    pid :: pid() | '_',
    %% The first element of its messages; of a socket, of the messages about it.
    tag :: term(),
    %% Of a paced subscriber and a poll: the number of the last message that it got. Of a paced one: how many more it
    %% may get now.
    position = 0 :: non_neg_integer() | '_',
    credit = 0 :: non_neg_integer() | '_',
    window = infinity :: pos_integer() | infinity | '_',
    socket = none :: weir_tcp:socket() | none | in_key | '_',
    %% The framing of its messages; a socket that is a member of an audience has the group of that instead.
    framing = none :: weir_pubsub_framing:framing() | none | '_',
    group = none :: weir_group:group() | none | '_',
    %% What presence returns for it, and since when it subscribes.
    info = undefined :: term(),
    since = 0 :: integer() | '_'
}).
