%% Set-up and clean-up of the suites of channels.

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    Config.

end_per_testcase(_Case, _Config) ->
    ok = application:stop(weir_pubsub).
