%% Bytes of a subscription to several channels that may wait for a client; of one channel its policy says it.
-define(MOST_PENDING, 16#100000).

%% Messages of one client that may wait to be published: what is asked of a shard waits in its mailbox.
-define(MOST_UNANSWERED, 10000).
