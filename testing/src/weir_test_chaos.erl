%% @doc The Erlang half of the chaos build, which makes rare interleavings common: it delays processes at random at
%% each `?STEP' of the product. The native half is the feature `chaos' of the engine's crate.
-module(weir_test_chaos).

-export([start/0]).

%% Of 64 steps, one sleeps and seven yield.
-define(SLEEPS, 1).
-define(YIELDS, 8).

%% @doc Starts delaying processes on this node if the environment variable `WEIR_CHAOS' has a seed. The scheduler also
%% decides which process runs first, so a seed narrows the search and does not reproduce a run.
-spec start() -> ok.
start() ->
    case os:getenv("WEIR_CHAOS") of
        false -> ok;
        Seed -> persistent_term:put(weir_step, fun() -> step(Seed) end)
    end.

step(Seed) ->
    case erlang:phash2({Seed, self(), erlang:unique_integer()}, 64) of
        Chance when Chance < ?SLEEPS -> timer:sleep(1 + erlang:phash2({Seed, erlang:unique_integer()}, 4));
        Chance when Chance < ?YIELDS -> erlang:yield();
        _ -> true
    end.
