%% @doc Figures: what one measurement says, and what several say together.
-module(weir_bench_sample).

-export([from_report/1]).
-export([sum/1]).
-export([summary/1]).
-export([median/1]).
-export([title/1]).
-export([format/2]).

-export_type([metric/0, sample/0, summary/0]).

-type metric() ::
    requests_per_s
    | ticks_per_s
    | p50_us
    | p99_us
    | cpu_us_per_request
    | cpu_s_per_minute
    | bytes_per_connection
    | core_percent
    | bytes_per_s
    | bytes_per_cpu_s
    | connections
    | memory_kib.

%% One measurement. A metric that the load does not have is absent.
-type sample() :: #{metrics := #{metric() => number()}, errors := non_neg_integer()}.

%% Several of the same.
-type summary() :: #{metric() => #{median := number(), min := number(), max := number(), samples := [number()]}}.

%% @doc The figures of a driver's report.
-spec from_report(weir_load_json:value()) -> sample().
from_report(#{<<"duration_s">> := Duration, <<"errors">> := Errors, <<"server">> := #{<<"cpu_s">> := Cpu}} = Report) ->
    Told = maps:from_list([{Metric, Value} || {Metric, Path} <- paths(), {ok, Value} <- [at(Path, Report)]]),
    #{
        metrics => Told#{core_percent => 100 * Cpu / Duration},
        errors => lists:sum(maps:values(Errors))
    }.

paths() ->
    [
        {requests_per_s, [<<"requests_per_s">>]},
        {p50_us, [<<"latency_us">>, <<"p50">>]},
        {p99_us, [<<"latency_us">>, <<"p99">>]},
        {cpu_us_per_request, [<<"server">>, <<"cpu_us_per_request">>]},
        {ticks_per_s, [<<"ticks_per_s">>]},
        {cpu_s_per_minute, [<<"server">>, <<"cpu_s_per_minute">>]},
        {bytes_per_connection, [<<"server">>, <<"bytes_per_connection">>]},
        {bytes_per_s, [<<"bytes_per_s">>]},
        {bytes_per_cpu_s, [<<"server">>, <<"bytes_per_cpu_s">>]},
        {connections, [<<"connections">>]},
        {memory_kib, [<<"server">>, <<"rss_end_kib">>]}
    ].

at([], Value) -> {ok, Value};
at([Key | Path], Value) when is_map_key(Key, Value) -> at(Path, map_get(Key, Value));
at(_, _) -> none.

%% @doc What several drivers have measured of the same server at the same time: their requests together, the worst of
%% their latencies, and the CPU time that the server used meanwhile, which each of them has seen.
-spec sum([sample(), ...]) -> sample().
sum([Sample]) ->
    Sample;
sum(Samples) ->
    Of = fun(Metric) -> [map_get(Metric, Metrics) || #{metrics := Metrics} <- Samples] end,
    PerSecond = lists:sum(Of(requests_per_s)),
    Percent = lists:sum(Of(core_percent)) / length(Samples),
    #{
        metrics => #{
            requests_per_s => PerSecond,
            p50_us => lists:max(Of(p50_us)),
            p99_us => lists:max(Of(p99_us)),
            core_percent => Percent,
            cpu_us_per_request => Percent / 100 * 1.0e6 / PerSecond
        },
        errors => lists:sum([Errors || #{errors := Errors} <- Samples])
    }.

%% @doc The median and the spread of each metric.
-spec summary([sample()]) -> summary().
summary(Samples) ->
    Metrics = lists:usort(lists:append([maps:keys(Of) || #{metrics := Of} <- Samples])),
    maps:from_list([
        {Metric, spread([map_get(Metric, Of) || #{metrics := Of} <- Samples, is_map_key(Metric, Of)])}
     || Metric <- Metrics
    ]).

spread(Values) ->
    #{median => median(Values), min => lists:min(Values), max => lists:max(Values), samples => Values}.

%% @doc The middle one, or the mean of the two in the middle.
-spec median([number(), ...]) -> number().
median(Values) ->
    Sorted = lists:sort(Values),
    Count = length(Sorted),
    case Count rem 2 of
        1 -> lists:nth(Count div 2 + 1, Sorted);
        0 -> (lists:nth(Count div 2, Sorted) + lists:nth(Count div 2 + 1, Sorted)) / 2
    end.

%% @doc The name of a metric with its unit.
-spec title(metric()) -> binary().
title(requests_per_s) -> <<"requests/s">>;
title(ticks_per_s) -> <<"ticks/s">>;
title(p50_us) -> <<"p50 µs"/utf8>>;
title(p99_us) -> <<"p99 µs"/utf8>>;
title(cpu_us_per_request) -> <<"CPU µs/request"/utf8>>;
title(cpu_s_per_minute) -> <<"CPU s/minute">>;
title(bytes_per_connection) -> <<"bytes/connection">>;
title(core_percent) -> <<"% of a core">>;
title(bytes_per_s) -> <<"GB/s">>;
title(bytes_per_cpu_s) -> <<"GB/CPU s">>;
title(connections) -> <<"connections">>;
title(memory_kib) -> <<"server MiB">>.

%% @doc A value of a metric, to the digit that means something.
-spec format(metric(), number()) -> iodata().
format(Metric, Value) when Metric =:= cpu_us_per_request; Metric =:= cpu_s_per_minute; Metric =:= core_percent ->
    io_lib:format("~.2f", [float(Value)]);
format(Metric, Value) when Metric =:= bytes_per_s; Metric =:= bytes_per_cpu_s ->
    io_lib:format("~.2f", [Value / 1.0e9]);
format(memory_kib, Value) ->
    io_lib:format("~.1f", [Value / 1024]);
format(_Metric, Value) ->
    weir_bench_table:number(round(Value)).
