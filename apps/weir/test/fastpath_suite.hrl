%% Setup and cleanup of the suites of deaths (weir_fastpath_*).

init_per_group(_Group, Config) ->
    weir_fastpath_test:init_group(Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(Case, Config) ->
    weir_fastpath_test:init_case(Case, Config).

end_per_testcase(_Case, Config) ->
    weir_fastpath_test:end_case(Config).
