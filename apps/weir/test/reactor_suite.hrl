%% Setup and cleanup of the suites of reactors.

-define(LOOPBACK, {127, 0, 0, 1}).

init_per_suite(Config) ->
    reactor_probe:prepare(),
    Config.

end_per_suite(_Config) ->
    ok.

init_per_group(_Group, Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    ok = weir_test_peer:silence_pollers(),
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    weir_test_peer:end_case(Config).
