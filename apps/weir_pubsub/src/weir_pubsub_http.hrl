%% Bytes of a subscription to several channels that may wait for a client; of one channel its policy says it.
-define(MOST_PENDING, 16#100000).
