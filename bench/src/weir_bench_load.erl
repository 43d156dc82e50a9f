%% @doc Runs `weir load' against a server: requests are due by a schedule, and their latency counts from then.
-module(weir_bench_load).

-export([measure/1]).
-export([second/1]).

%% Milliseconds beyond connecting, warm-up and measurement, for the start and the last answers. A generator that takes
%% longer is stopped, and reports what it has measured.
-define(MARGIN, 30000).
%% A slower answer is an error.
-define(TIMEOUT, "2s").
%% A ramp is stopped after this many seconds in a row that the server did not hold. A single such second may be due to
%% another process on the machine.
-define(MOST_BROKEN, 3).

%% @doc Runs a generator against a server and returns its sample.
-spec measure({weir_bench_scenario:run(), weir_bench_server:server(), weir_bench_machine:pin()}) ->
    {ok, [weir_bench_sample:sample(), ...]} | {error, binary()}.
measure({Run, Server, Pin}) ->
    File = weir_bench_tree:scratch("load.json"),
    %% The generator must not inherit the bench's emulator flags.
    Environment = [{Name, false} || Name <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]],
    Program = weir_bench_program:start(Pin ++ command(Run, Server, File), Environment),
    Ended = await_end(Program, Run),
    ok = weir_bench_program:stop(Program),
    %% The generator has an exit code for a load that it could not offer in full. Its results are read as usual.
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

%% A stopped generator reports its measurements as if it had reached the end.
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

%% @doc Returns whether the server held a second, from the line that the generator prints for it; `no' for other
%% lines.
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

%% No request was answered.
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
        {error, {not_json, _}} -> {error, <<"the generator's results are not JSON">>}
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
