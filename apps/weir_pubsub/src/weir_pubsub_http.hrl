%% Bytes of a subscription to several channels that may wait for a client. For one channel its policy sets the limit.
-define(MOST_PENDING, 16#100000).

%% Messages of one client that may wait to be published. They wait in the mailbox of a shard.
-define(MOST_UNANSWERED, 10000).
