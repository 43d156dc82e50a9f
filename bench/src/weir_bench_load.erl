%% @doc `weir load' as the program that loads a server: requests are due by a schedule, and count from then.
-module(weir_bench_load).

-export([measure/1]).
-export([second/1]).

%% Beyond connecting, warming up and measuring: starting, waiting for the last answers. A generator that is behind by
%% more is told to end, and tells what it has.
-define(MARGIN, 30000).
%% An answer that takes longer is an error.
-define(TIMEOUT, "2s").
%% A load that grows has told what there is to know when it was not held for so many seconds on end. After one alone it
%% may be held again: somebody else had the machine.
-define(MOST_BROKEN, 3).

%% @doc Has a generator load a server: a run, its server and the generator's pin.
-spec measure({weir_bench_scenario:run(), weir_bench_server:server(), weir_bench_machine:pin()}) ->
    {ok, [weir_bench_sample:sample(), ...]} | {error, binary()}.
measure({Run, Server, Pin}) ->
    File = weir_bench_tree:scratch("load.json"),
    %% The measurer's own flags are not the generator's.
    Environment = [{Name, false} || Name <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]],
    Program = weir_bench_program:start(Pin ++ command(Run, Server, File), Environment),
    Ended = await_end(Program, Run),
    ok = weir_bench_program:stop(Program),
    %% It has its own exit code for a load that it could not offer in full, which is told of like any other.
    Document = file:read_file(File),
    _ = file:delete(File),
    case {Document, Ended} of
        {{ok, Json}, {_, _}} -> sample(Json);
        {{error, _}, {ok, _}} -> {error, <<"the generator wrote no results">>};
        {{error, _}, {error, Failure}} ->
            {error, <<"generator ", (weir_bench_program:explain(Failure))/binary>>}
    end.

await_end(Program, #{rate := {_, _}} = Run) ->
    until_broken(Program, erlang:monotonic_time(millisecond) + longest(Run), 0);
await_end(Program, Run) ->
    weir_bench_program:await_exit(Program, longest(Run)).

%% Whoever is stopped tells what it has measured, as if it had come to its end.
until_broken(Program, _Until, ?MOST_BROKEN) ->
    ok = weir_bench_program:stop(Program),
    {ok, []};
until_broken(Program, Until, Broken) ->
    Left = max(0, Until - erlang:monotonic_time(millisecond)),
    case weir_bench_program:await(Program, fun second/1, Left) of
        {ok, held} -> until_broken(Program, Until, 0);
        {ok, broken} -> until_broken(Program, Until, Broken + 1);
        {error, _} = Ended -> Ended
    end.

%% @doc Whether a second was held, from the line that the generator prints of it while it runs; `no' for other lines.
-spec second(binary()) -> {ok, held | broken} | no.
second(Line) ->
    case string:lexemes(binary_to_list(Line), " ") of
        [Number, Offered, Answered, _Max, _Min, _Mean, _Median, _Deviation, _P95, P99, Errors] ->
            case lists:all(fun is_whole/1, [Number, Offered, Answered, Errors]) of
                true -> {ok, verdict(P99, list_to_integer(Errors))};
                false -> no
            end;
        _ ->
            no
    end.

is_whole(Text) -> lists:all(fun(Character) -> Character >= $0 andalso Character =< $9 end, Text).

%% Nothing was answered.
verdict("-", _Errors) ->
    broken;
verdict(P99, Errors) ->
    {ok, Nanoseconds} = weir_load_units:time(P99),
    case weir_bench_sample:is_held(Nanoseconds / 1000, Errors) of
        true -> held;
        false -> broken
    end.

longest(#{connections := Connections, warmup := Warmup, duration := Duration} = Run) ->
    Connecting =
        case Run of
            #{connect_rate := Rate} -> 2 * 1000 * Connections div Rate;
            #{} -> 0
        end,
    Connecting + Warmup + Duration + ?MARGIN.

sample(Json) ->
    case weir_json:decode(Json) of
        {ok, Document} -> {ok, [weir_bench_sample:from_load(Document)]};
        {error, {not_json, _}} -> {error, <<"what the generator wrote is no JSON">>}
    end.

command(#{load := Load, warmup := Warmup, duration := Duration} = Run, #{port := Port, pid := Pid}, File) ->
    [
        weir_bench_tree:weir(), "load", atom_to_list(Load), "127.0.0.1:" ++ integer_to_list(Port),
        "--warmup", milliseconds(Warmup), "--duration", milliseconds(Duration), "--timeout", ?TIMEOUT,
        "--observe", Pid, "--json", File
    ] ++
        ["--connections=" ++ integer_to_list(Connections) || #{connections := Connections} <- [Run], Connections > 0] ++
        ["--connect-rate=" ++ integer_to_list(Rate) || #{connect_rate := Rate} <- [Run]] ++
        ["--rate=" ++ rate(Rate) || #{rate := Rate} <- [Run]] ++
        ["--size=" ++ integer_to_list(Size) || #{size := Size} <- [Run]] ++
        ["--reply=" ++ integer_to_list(Bytes) || #{reply := Bytes} <- [Run]].

rate({From, To}) -> integer_to_list(From) ++ ".." ++ integer_to_list(To);
rate(Rate) -> integer_to_list(Rate).

milliseconds(Time) -> integer_to_list(Time) ++ "ms".
