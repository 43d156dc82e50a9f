%% weir_http_scenario_SUITE for minutes; WEIR_SOAK_SECONDS in the environment sets the time. More schedulers than
%% processors find more races: `ERL_FLAGS="+S 8:8"'.
-module(weir_http_scenario_soak_SUITE).

-compile([export_all, nowarn_export_all]).

-define(SECONDS, 240).
-define(ROUND_MS, 10_000).

suite() -> [{timetrap, {seconds, seconds() + 600}}].

all() -> [rounds].

seconds() -> list_to_integer(os:getenv("WEIR_SOAK_SECONDS", integer_to_list(?SECONDS))).

init_per_suite(Config) -> weir_http_scenario_SUITE:init_per_suite(Config).

end_per_suite(Config) -> weir_http_scenario_SUITE:end_per_suite(Config).

rounds(Config) -> rounds_until(erlang:monotonic_time(second) + seconds(), Config).

rounds_until(Deadline, Config) ->
    ok = weir_http_scenario_SUITE:run(gentle, ?ROUND_MS, Config),
    ok = weir_http_scenario_SUITE:run(rough, ?ROUND_MS, Config),
    case erlang:monotonic_time(second) < Deadline of
        true -> rounds_until(Deadline, Config);
        false -> ok
    end.
