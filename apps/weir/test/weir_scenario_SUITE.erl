%% Random concurrent operations and their invariants: every byte once and in order, every message once or a reported
%% gap, and nothing left at the end. This suite is short; `weir_scenario_soak_SUITE' runs for any time.
%%
%% The seed is in the log and in the failure. The schedulers decide the rest: WEIR_CHAOS makes rare interleavings
%% common.
-module(weir_scenario_SUITE).

-compile([export_all, nowarn_export_all]).

-include("engine_suite.hrl").

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, alone}, {group, disturbed}].

%% The second group runs while pollers are killed and schedulers go offline.
groups() ->
    Cases = [streams, groups, listeners],
    [{alone, [], Cases}, {disturbed, [], Cases}].

init_per_suite(Config) ->
    ok = logger:add_primary_filter(?MODULE, {fun without_pollers/2, []}),
    Config.

end_per_suite(_Config) ->
    logger:remove_primary_filter(?MODULE).

%% Weir logs the death of each poller, and many are killed here.
without_pollers(#{msg := {report, #{what := "a poller died" ++ _}}}, _) -> stop;
without_pollers(_Event, _) -> ignore.

streams(Config) -> scenario(Config, fun(Seed) -> weir_scenario_streams:run(Seed, 5) end).

groups(Config) -> scenario(Config, fun(Seed) -> weir_scenario_groups:run(Seed, 5) end).

listeners(Config) -> scenario(Config, fun(Seed) -> weir_scenario_listeners:run(Seed, 2) end).

scenario(Config, Run) ->
    Seed = rand:uniform(1 bsl 30),
    ct:log("seed ~b", [Seed]),
    case proplists:get_value(name, proplists:get_value(tc_group_properties, Config)) of
        alone -> Run(Seed);
        disturbed -> weir_scenario:disturbed(Seed, fun() -> Run(Seed) end)
    end.
