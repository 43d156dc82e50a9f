%% Set-up and clean-up of the suites of the push server: each has a directory for its configuration file.

init_per_testcase(Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Directory = filename:join(proplists:get_value(priv_dir, Config), Case),
    ok = filelib:ensure_path(Directory),
    [{directory, Directory} | Config].

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?MODULE),
    _ = [weir_http:stop_listener(Name) || Name = {weir_pubsub_server, _, _} <- weir_listener:names()],
    ok = application:stop(weir_pubsub).
