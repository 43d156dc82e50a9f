%% Set-up and clean-up of the suites of long polls.

init_per_testcase(_Case, Config) -> weir_pubsub_polls_test:init_case(Config).

end_per_testcase(_Case, _Config) -> weir_pubsub_polls_test:end_case().
