%% The scenarios of weir_scenario_SUITE for as long as one likes, each round with a seed of its own, with and without
%% disturbances. WEIR_SOAK_SECONDS in the environment makes it shorter or longer; WEIR_CHAOS=SEED scripts/test weir
%% weir_scenario_SUITE has the short form on the chaos build.
-module(weir_scenario_soak_SUITE).

-compile([export_all, nowarn_export_all]).

-include("../test/engine_suite.hrl").

-define(SECONDS, 300).

suite() -> [{timetrap, {seconds, seconds() + 600}}].

all() -> [{group, weir}].

groups() -> [{weir, [], [rounds]}].

seconds() -> list_to_integer(os:getenv("WEIR_SOAK_SECONDS", integer_to_list(?SECONDS))).

init_per_suite(Config) -> weir_scenario_SUITE:init_per_suite(Config).

end_per_suite(Config) -> weir_scenario_SUITE:end_per_suite(Config).

rounds(_Config) -> rounds_until(erlang:monotonic_time(second) + seconds(), rand:uniform(1 bsl 30)).

rounds_until(Deadline, Seed) ->
    ct:log("seed ~b", [Seed]),
    ok = weir_scenario_streams:run(Seed, 3),
    ok = weir_scenario_groups:run(Seed, 3),
    ok = weir_scenario_listeners:run(Seed, 2),
    ok = weir_scenario:disturbed(Seed, fun() ->
        weir_scenario_streams:run(Seed + 1, 3),
        weir_scenario_groups:run(Seed + 1, 3),
        weir_scenario_listeners:run(Seed + 1, 2)
    end),
    case erlang:monotonic_time(second) < Deadline of
        true -> rounds_until(Deadline, Seed + 2);
        false -> ok
    end.
