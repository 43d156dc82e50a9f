%% @doc Changes the configuration of a server repeatedly under load, and reports what that costs its clients.
-module(weir_bench_changes).

-export([during/3]).

%% Milliseconds from the end of the warm-up to the first change. The connections exist by then, and the load has
%% begun.
-define(FIRST, 300).

-type result() :: {ok, weir_bench_sample:sample()} | {error, binary()}.

%% @doc Runs `Load' against a server. If the run has `changes', that many are spread over its time, and failed
%% requests count as lost connections. With `told' set to false the file is written but the server gets no signal: the
%% comparison shows the cost of writing the file and running kill.
-spec during(weir_bench_scenario:run(), weir_bench_server:server(), fun(() -> result())) -> result().
during(#{changes := Count, warmup := Warmup, duration := Duration} = Run, #{change := Change}, Load) ->
    First = erlang:monotonic_time(millisecond) + Warmup + ?FIRST,
    %% The last change ends before the load does, even if it takes long.
    Interval = min(0.9, Count / (Count + 1)) * (Duration - ?FIRST) / Count,
    Told = maps:get(told, Run, true),
    Changes = [
        {
            First + round(Number * Interval),
            case Told of
                true -> Number;
                false -> 0
            end
        }
     || Number <- lists:seq(1, Count)
    ],
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

told_of_changes(0, _Count, Sample) ->
    Sample;
told_of_changes(Left, Count, Sample) ->
    weir_bench_sample:note(
        iolist_to_binary(io_lib:format("~b of ~b changes were made", [Count - Left, Count])), Sample
    ).

%% Makes the changes at these times, however long each takes.
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
