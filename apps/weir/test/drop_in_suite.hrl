%% Setup and cleanup of the drop-in's suites. Their cases run on stock gen_tcp and on Weir.

all() ->
    [{group, inet}, {group, weir}].

init_per_group(Group, Config) ->
    weir_test_peer:init_group(Group, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).
