-define(HUB_PATH, "/.well-known/mercure").

%% The channel that has all updates. Clients cannot name it, see weir_pubsub_shards:is_channel/1.
-define(HUB_CHANNEL, <<0, "mercure">>).
