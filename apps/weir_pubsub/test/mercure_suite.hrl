%% Set-up and clean-up of the suites of Mercure: each has a hub.

init_per_suite(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "secret"),
    ok = file:write_file(File, weir_pubsub_mercure_test:secret()),
    [{secret, File} | Config].

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> weir_pubsub_mercure_test:init_case(Config).

end_per_testcase(_Case, _Config) -> weir_pubsub_mercure_test:end_case().
