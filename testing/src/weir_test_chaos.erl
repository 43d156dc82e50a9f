%% @doc The Erlang half of the chaos build, in which what is rare is common: processes are held up at random at each `?STEP' of the
%% product. The native half is the feature `chaos' of the engine's crate.
-module(weir_test_chaos).

-export([start/0]).

%% In 64 steps a process sleeps once, and lets others run seven times.
-define(SLEEPS, 1).
-define(YIELDS, 8).

%% @doc Has processes held up on this node from now on, if the environment variable `WEIR_CHAOS' has a seed. Another process comes
%% first by the scheduler's will as well, so a seed narrows a search and no more.
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
