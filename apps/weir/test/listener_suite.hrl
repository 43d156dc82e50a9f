%% Setup and cleanup of the suites of listeners.

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    weir_test_peer:init_group(weir, [{handler, function} | Config]).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(Case, Config) ->
    weir_listener_test:init_case(Case, Config).

end_per_testcase(_Case, Config) ->
    weir_listener_test:end_case(Config).
