%% @doc Changes the configuration of a server again and again while it is loaded, and tells what that costs its clients.
-module(weir_bench_changes).

-export([during/3]).

%% After the connections are there and the load has begun, milliseconds.
-define(FIRST, 300).

-type result() :: {ok, weir_bench_sample:sample()} | {error, binary()}.

%% @doc Has `Load' measure a server. A run with `changes' has so many of them meanwhile, spread over its time; what failed is a
%% connection lost. For comparison the server may not be told (`told'): to write a file and to send a signal is work on a core, too.
-spec during(weir_bench_scenario:run(), weir_bench_server:server(), fun(() -> result())) -> result().
during(#{changes := Count, warmup := Warmup, duration := Duration} = Run, #{change := Change}, Load) ->
    First = erlang:monotonic_time(millisecond) + Warmup + ?FIRST,
    %% The last is over before the load is, also where it takes long.
    Interval = min(0.9, Count / (Count + 1)) * (Duration - ?FIRST) / Count,
    Told = maps:get(told, Run, true),
    Changes = [{First + round(Number * Interval), case Told of true -> Number; false -> 0 end} || Number <- lists:seq(1, Count)],
    Changer = spawn_link(fun() -> change(Changes, Change) end),
    Result = Load(),
    Left = left(Changer),
    case Result of
        {ok, Sample} -> {ok, told_of_changes(Left, Count, lost(Sample))};
        {error, _} = Error -> Error
    end;
during(_Run, _Server, Load) ->
    Load().

lost(#{metrics := Metrics, errors := Errors} = Sample) ->
    Sample#{metrics := Metrics#{lost => Errors}}.

told_of_changes(0, _Count, Sample) -> Sample;
told_of_changes(Left, Count, Sample) -> weir_bench_sample:note(iolist_to_binary(io_lib:format("~b of ~b changes were made", [Count - Left, Count])), Sample).

%% At these moments, however long each takes.
change(Changes, Change) ->
    Pause =
        case Changes of
            [{Next, _} | _] -> max(0, Next - erlang:monotonic_time(millisecond));
            [] -> infinity
        end,
    receive
        {how_many_left, Asker} -> Asker ! {left, self(), length(Changes)}
    after Pause ->
        [{_, Number} | Left] = Changes,
        ok = Change(Number),
        change(Left, Change)
    end.

left(Changer) ->
    Changer ! {how_many_left, self()},
    receive {left, Changer, Left} -> Left end.
