%% Set-up and clean-up of the suites of brokers: two nodes and a Redis.

init_per_suite(Config) ->
    case weir_pubsub_test_redis:is_there() of
        true -> weir_pubsub_redis_test:init_suite(Config);
        false -> {skip, "neither redis-server nor valkey-server is there: scripts/setup test"}
    end.

end_per_suite(Config) -> weir_pubsub_redis_test:end_suite(Config).

init_per_testcase(_Case, Config) -> weir_pubsub_redis_test:init_case(Config).

end_per_testcase(_Case, _Config) -> ok.
