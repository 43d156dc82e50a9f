%% Concurrent random operations for some seconds, and their invariants: see weir_http_explorer. `make soak' runs for
%% minutes. WEIR_SOAK_SEED repeats the seed of a failed run.
-module(weir_http_scenario_SUITE).

-include_lib("common_test/include/ct.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [whoever_is_connected_is_served, nothing_is_left_of_what_is_stopped].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    ok = weir_test_peer:silence_pollers(),
    Config.

end_per_suite(_Config) ->
    ok = weir_test_peer:unsilence_pollers(),
    ok = application:stop(weir_http).

whoever_is_connected_is_served(Config) -> run(gentle, 2000, Config).

nothing_is_left_of_what_is_stopped(Config) -> run(rough, 2000, Config).

run(Kind, Milliseconds, Config) ->
    Seed = list_to_integer(os:getenv("WEIR_SOAK_SEED", integer_to_list(rand:uniform(1000000)))),
    weir_http_explorer:run(
        Kind, Seed, Milliseconds, filename:join(?config(priv_dir, Config), lists:concat([Kind, "-", Seed]))
    ).
