%% Everything at once, for some seconds. A failure reports its seed, which WEIR_SOAK_SEED repeats.
-module(weir_pubsub_changes_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 15}}].

all() -> [everything_at_once].

init_per_suite(Config) ->
    ok = weir_pubsub_changes:start(),
    Config.

end_per_suite(_Config) -> weir_pubsub_changes:stop().

everything_at_once(_Config) ->
    Seed = list_to_integer(os:getenv("WEIR_SOAK_SEED", integer_to_list(rand:uniform(1000000)))),
    ct:log("WEIR_SOAK_SEED=~b", [Seed]),
    weir_pubsub_changes:rounds(Seed, 6, 60).
