%% The setup of suites that serve the page.

end_per_suite(Config) -> weir_scope_served:without(Config).

init_per_testcase(_Case, Config) ->
    _ = process_flag(trap_exit, true),
    Config.

%% All that a case has started is linked to it.
end_per_testcase(_Case, _Config) -> ok.
