%% What the suites of HTTP that start a listener in each case do around it.

-define(LISTENER, ?MODULE).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?LISTENER),
    ok.
