%% Everything at once, for minutes, on as many schedulers as a server has. A failure reports its seed.
%% WEIR_SOAK_SEED sets the seed of the first round.
-module(weir_pubsub_changes_soak_SUITE).

-compile([export_all, nowarn_export_all]).

-define(ROUNDS, 200).

suite() -> [{timetrap, {minutes, 60}}].

all() -> [two_schedulers, eight_schedulers, eight_schedulers_in_long_programs].

two_schedulers(_Config) -> explore("2:2", ?ROUNDS, 100).

eight_schedulers(_Config) -> explore("8:8", ?ROUNDS, 100).

eight_schedulers_in_long_programs(_Config) -> explore("8:8", ?ROUNDS div 4, 1000).

explore(Schedulers, Rounds, Steps) ->
    Seed = list_to_integer(os:getenv("WEIR_SOAK_SEED", integer_to_list(rand:uniform(1000000)))),
    ct:log("WEIR_SOAK_SEED=~b", [Seed]),
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Server, _} = peer:start(#{connection => standard_io, args => ["+S", Schedulers | Paths]}),
    try
        ok = peer:call(Server, weir_pubsub_changes, start, [], infinity),
        ok = peer:call(Server, weir_pubsub_changes, rounds, [Seed, Rounds, Steps], infinity)
    after
        peer:stop(Server)
    end,
    {comment, io_lib:format("WEIR_SOAK_SEED=~b, ~b rounds of ~b steps", [Seed, Rounds, Steps])}.
