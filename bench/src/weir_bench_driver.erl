%% @doc Runs the native load driver against a server and reads its report.
-module(weir_bench_driver).

-export([measure/2]).
-export([report/1]).

%% Time beyond warm-up and measurement: opening ten thousand connections to a busy server.
-define(MARGIN, 120000).

%% @doc Runs drivers against servers, all at the same time, and returns a sample for each, in order. Each driver has a
%% run, which says how many connections it opens, a server and a pin. `Backend' is the port on which a driver serves
%% as the backend of a proxy.
-spec measure([{weir_bench_scenario:run(), weir_bench_server:server(), weir_bench_machine:pin()}, ...], Backend) ->
    {ok, [weir_bench_sample:sample(), ...]} | {error, binary()}
when
    Backend :: inet:port_number().
measure([{#{warmup := Warmup, duration := Duration}, _, _} | _] = Loads, Backend) ->
    Programs = [weir_bench_program:start(Pin ++ command(Run, Server, Backend), []) || {Run, Server, Pin} <- Loads],
    Reports = [await(Program, Warmup + Duration + ?MARGIN) || Program <- Programs],
    case [Reason || {error, Reason} <- Reports] of
        [] -> {ok, [weir_bench_sample:from_report(Report) || {ok, Report} <- Reports]};
        [Reason | _] -> {error, Reason}
    end.

await(Program, Timeout) ->
    case weir_bench_program:await_exit(Program, Timeout) of
        {ok, Output} ->
            report(Output);
        {error, Failure} ->
            ok = weir_bench_program:stop(Program),
            {error, <<"driver ", (weir_bench_program:explain(Failure))/binary>>}
    end.

command(Run, #{port := Port, pid := Pid} = Server, Backend) ->
    #{server := Kind, load := Load, connections := Connections, warmup := Warmup, duration := Duration} = Run,
    [
        weir_bench_tree:driver(), atom_to_list(Load), "127.0.0.1:" ++ integer_to_list(Port),
        at_a_time(Load), integer_to_list(Connections),
        "--warmup", milliseconds(max(1, Warmup)), "--duration", milliseconds(Duration),
        "--observe", Pid
    ] ++
        ["--observe=" ++ Other || Other <- maps:get(others, Server, [])] ++
        ["--connect-rate=" ++ integer_to_list(Rate) || #{connect_rate := Rate} <- [Run]] ++
        ["--size=" ++ integer_to_list(Size) || {ok, Size} <- [weir_bench_server:message_size(Run)]] ++
        ["--timeout=" ++ milliseconds(Timeout) || #{timeout := Timeout} <- [Run]] ++
        [lists:concat(["--frame=", Packet]) || #{packet := Packet} <- [Run]] ++
        ["--tls" || #{tls := true} <- [Run]] ++
        [lists:concat(["--", Carrier]) || #{carrier := Carrier} <- [Run], Carrier =/= none] ++
        ["--path=" ++ Path || #{path := Path} <- [Run]] ++
        ["--rate=" ++ integer_to_list(Rate) || #{rate := Rate} <- [Run]] ++
        ["--depth=" ++ integer_to_list(Depth) || #{depth := Depth} <- [Run]] ++
        ["--bytes=" ++ integer_to_list(Bytes) || #{bytes := Bytes} <- [Run]] ++
        ["--hello=" ++ integer_to_list(Bytes) || #{hello := Bytes} <- [Run]] ++
        ["--pieces=" ++ integer_to_list(Count) || #{pieces := Count} <- [Run]] ++
        ["--at-a-time=" ++ integer_to_list(Count) || #{at_a_time := Count} <- [Run]] ++
        ["--rooms=" ++ integer_to_list(Rooms) || #{rooms := Rooms} <- [Run]] ++
        ["--speakers=" ++ integer_to_list(Speakers) || #{speakers := Speakers} <- [Run]] ++
        ["--several" || #{several := true} <- [Run]] ++
        ["--churn=" ++ integer_to_list(Churn) || #{churn := Churn} <- [Run]] ++
        ["--slow=" ++ integer_to_list(Slow) || #{slow := Slow} <- [Run]] ++
        ["--backend=" ++ integer_to_list(Backend) || lists:member(Kind, [proxy, relay, weir_proxy])].

at_a_time(accept) -> "--concurrency";
at_a_time(_) -> "--connections".

milliseconds(Time) -> integer_to_list(Time) ++ "ms".

%% @doc Returns the report in the driver's output: the last line that is a JSON object.
-spec report([binary()]) -> {ok, weir_json:value()} | {error, binary()}.
report(Output) ->
    case [Line || <<"{", _/binary>> = Line <- lists:reverse(Output)] of
        [Line | _] ->
            case weir_json:decode(Line) of
                {ok, _} = Report ->
                    Report;
                {error, {not_json, Position}} ->
                    Where = integer_to_binary(Position),
                    {error, <<"the driver's report is not JSON, error at byte ", Where/binary>>}
            end;
        [] ->
            {error, <<"the driver printed no report">>}
    end.
