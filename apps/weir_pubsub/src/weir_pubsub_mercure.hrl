-define(HUB_PATH, "/.well-known/mercure").

%% The channel that has all updates. No client can name it: see weir_pubsub_shards:is_channel/1.
-define(HUB_CHANNEL, <<0, "mercure">>).
