%% @doc `weir load' as the program that loads a server: requests are due by a schedule, and count from then.
-module(weir_bench_load).

-export([measure/1]).

%% Beyond connecting, warming up and measuring: starting, waiting for the last answers. A generator that is behind by
%% more is told to end, and tells what it has.
-define(MARGIN, 30000).
%% An answer that takes longer is an error.
-define(TIMEOUT, "2s").

%% @doc Has a generator load a server: a run, its server and the generator's pin.
-spec measure({weir_bench_scenario:run(), weir_bench_server:server(), weir_bench_machine:pin()}) ->
    {ok, [weir_bench_sample:sample(), ...]} | {error, binary()}.
measure({Run, Server, Pin}) ->
    File = weir_bench_tree:scratch("load.json"),
    %% The measurer's own flags are not the generator's.
    Environment = [{Name, false} || Name <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]],
    Program = weir_bench_program:start(Pin ++ command(Run, Server, File), Environment),
    Ended = weir_bench_program:await_exit(Program, longest(Run)),
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

longest(#{connections := Connections, warmup := Warmup, duration := Duration} = Run) ->
    Connecting =
        case Run of
            #{connect_rate := Rate} -> 2 * 1000 * Connections div Rate;
            #{} -> 0
        end,
    Connecting + Warmup + Duration + ?MARGIN.

sample(Json) ->
    case weir_load_json:decode(Json) of
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
