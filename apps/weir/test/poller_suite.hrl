%% Setup and cleanup of the suites of pollers and pollsets.

init_per_suite(Config) ->
    ok = weir_test_peer:silence_pollers(),
    weir_test_peer:init_group(weir, Config).

end_per_suite(_Config) ->
    weir_test_peer:unsilence_pollers().

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).
