%% Setup and cleanup of suites that use Weir's sockets only.

init_per_group(_Group, Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).
