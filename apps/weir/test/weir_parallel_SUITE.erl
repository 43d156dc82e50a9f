%% Random calls of several processes at once are linearizable: see weir_parallel. Each model is also tested with
%% programs of one process. A failure reports the shortest failing program, the results of its calls, and class,
%% reason and stack of exceptions. This suite is short; `weir_parallel_soak_SUITE' runs for any time.
-module(weir_parallel_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [groups_of_members, names_of_listeners, sockets_of_owners].

init_per_suite(Config) -> weir_test_peer:init_group(weir, Config).

end_per_suite(Config) -> weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) -> weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) -> weir_test_peer:end_case(Config).

groups_of_members(_Config) -> weir_parallel:check(prop_parallel_groups, 200).

names_of_listeners(_Config) -> weir_parallel:check(prop_parallel_listeners, 60).

sockets_of_owners(_Config) -> weir_parallel:check(prop_parallel_sockets, 200).
