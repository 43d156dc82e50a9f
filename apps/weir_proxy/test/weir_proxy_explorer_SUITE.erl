%% Random faults for a second or two, with another seed each time. `make soak' runs for minutes.
-module(weir_proxy_explorer_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [everybody_is_served_whatever_changes, everybody_is_served_or_told_whatever_is_killed].

init_per_suite(Config) -> weir_proxy_test:begin_suite([], Config).

end_per_suite(Config) -> weir_proxy_test:end_suite(Config).

everybody_is_served_whatever_changes(_Config) -> weir_proxy_explorer:run(gentle, rand:uniform(1_000_000), 1500).

everybody_is_served_or_told_whatever_is_killed(_Config) ->
    weir_proxy_explorer:run(rough, rand:uniform(1_000_000), 1500).
