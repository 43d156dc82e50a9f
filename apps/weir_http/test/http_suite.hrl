%% Common code of the HTTP suites that start a listener for each case.

-define(LISTENER, ?MODULE).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?LISTENER),
    ok.
