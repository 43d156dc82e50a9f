%% @doc The figures of one measurement, and of several together.
-module(weir_bench_sample).

-export([from_report/1]).
-export([from_load/1]).
-export([is_held/2]).
-export([sum/1]).
-export([side_by_side/1]).
-export([note/2]).
-export([metrics/0]).
-export([summary/1]).
-export([median/1]).
-export([median_seconds/1]).
-export([better/1]).
-export([title/1]).
-export([format/2]).

-export_type([metric/0, sample/0, summary/0]).

-type metric() ::
    requests_per_s
    | held_per_s
    | answered_per_s
    | ticks_per_s
    | p50_us
    | p95_us
    | p99_us
    | max_us
    | longest_silence_us
    | failed_connects
    | missed
    | lost
    | cpu_us_per_request
    | switches_per_request
    | futexes_per_request
    | busiest_percent
    | away_percent
    | cpu_ms
    | cpu_ms_per_s
    | cpu_s_per_minute
    | bytes_per_connection
    | core_percent
    | bytes_per_s
    | bytes_per_cpu_s
    | connections
    | servers
    | memory_kib.

%% One measurement. Metrics that the load does not have are absent.
-type sample() :: #{
    metrics := #{metric() => number()},
    errors := non_neg_integer(),
    %% Remarks about the measurement.
    notes => [binary()],
    %% The seconds of a ramp.
    seconds => [#{offered := number(), p50_us := number(), p99_us := number()}]
}.

%% A ramp is held while the 99th percentile of each second is below this, in microseconds, and no request fails.
-define(HELD_P99_US, 100000).
%% The generator is behind if it starts requests this much later than they are due.
-define(BEHIND_P99_US, 10000).

%% Several measurements of the same contestant.
-type summary() :: #{metric() => #{median := number(), min := number(), max := number(), samples := [number()]}}.

%% @doc Returns the figures of a driver's report.
-spec from_report(weir_json:value()) -> sample().
from_report(#{<<"duration_s">> := Duration, <<"errors">> := Errors, <<"server">> := #{<<"cpu_s">> := Cpu}} = Report) ->
    Told = maps:from_list([{Metric, Value} || {Metric, Path} <- paths(), {ok, Value} <- [at(Path, Report)]]),
    #{
        metrics => Told#{core_percent => 100 * Cpu / Duration},
        errors => lists:sum(maps:values(Errors))
    }.

%% @doc Returns the figures of a run of `weir load': of the whole run, or for a ramp of the time until the server no
%% longer held it.
-spec from_load(weir_json:value()) -> sample().
from_load(#{<<"rate">> := Rate} = Document) ->
    case is_binary(Rate) andalso binary:match(Rate, <<"..">>) of
        {_, _} -> of_ramp(Document);
        _ -> of_load(Document)
    end.

of_load(#{<<"total">> := Total, <<"seconds">> := Seconds, <<"loop">> := Loop, <<"invalid">> := Invalid}) ->
    {Times, Rate, Counter} =
        case Loop of
            <<"none">> -> {<<"push_us">>, <<"pushed_rate">>, <<"pushed">>};
            _ -> {<<"response_us">>, <<"achieved_rate">>, <<"answered">>}
        end,
    Percentiles = [
        {Metric, Value}
     || {Metric, Key} <- [{p50_us, <<"p50">>}, {p99_us, <<"p99">>}], {ok, Value} <- [at([Times, Key], Total)]
    ],
    #{
        metrics => maps:from_list([{requests_per_s, map_get(Rate, Total)} | Percentiles ++ cpu(Seconds, Counter)]),
        errors => map_get(<<"error_count">>, Total),
        notes => [<<"not valid, ", Reason/binary>> || Reason <- Invalid]
    }.

of_ramp(#{<<"seconds">> := All, <<"connections">> := Connections, <<"interrupted">> := Interrupted}) ->
    Whole = case Interrupted of true -> lists:droplast(All); false -> All end,
    Seconds = [Second || #{<<"offered">> := Offered} = Second <- Whole, Offered > 0],
    {Until, After} = lists:split(held_until(Seconds), Seconds),
    Held = case Until of [] -> 0; _ -> map_get(<<"offered">>, lists:last(Until)) end,
    #{
        metrics => maps:from_list(
            [{held_per_s, Held}, {answered_per_s, lists:max([0 | [Count || #{<<"answered">> := Count} <- Seconds]])}] ++
                [{connections, Connections} || Connections > 0] ++
                cpu(Until, <<"answered">>)
        ),
        %% Failures beyond the server's limit are not errors of the measurement.
        errors => 0,
        notes => ended_by(After),
        seconds => [
            #{offered => Offered, p50_us => P50, p99_us => P99}
         || #{<<"offered">> := Offered, <<"response_us">> := #{<<"p50">> := P50, <<"p99">> := P99}} <- Seconds
        ]
    }.

%% CPU time that the server used in these seconds.
cpu(Seconds, Counter) ->
    Seen = [
        {Cores, Count}
     || #{<<"server">> := #{<<"cpu">> := Cores}, Counter := Count} <- Seconds, is_number(Cores), Count > 0
    ],
    {Cores, Counts} = lists:unzip(Seen),
    [
        Metric
     || Seen =/= [],
        Metric <- [
            {core_percent, 100 * lists:sum(Cores) / length(Cores)},
            {cpu_us_per_request, 1.0e6 * lists:sum(Cores) / lists:sum(Counts)}
        ]
    ].

%% The last second that was held. Seconds before it that were not held are due to other processes of the machine: the
%% server held a higher rate later.
held_until(Seconds) ->
    lists:max([0 | [Number || {Number, Second} <- lists:zip(lists:seq(1, length(Seconds)), Seconds), is_held(Second)]]).

is_held(#{<<"error_count">> := Errors, <<"response_us">> := #{<<"p99">> := P99}}) -> is_held(P99, Errors);
is_held(_) -> false.

%% @doc Whether a second of a ramp is held, given the 99th percentile of its response times in microseconds and its
%% number of failed requests.
-spec is_held(P99 :: number(), Errors :: non_neg_integer()) -> boolean().
is_held(P99, Errors) -> Errors =:= 0 andalso P99 < ?HELD_P99_US.

ended_by([]) ->
    [<<"held to the end, it may hold more">>];
ended_by([#{<<"lag_us">> := #{<<"p99">> := Lag}} | _]) when Lag > ?BEHIND_P99_US ->
    [<<"the generator fell behind first, the server may hold more">>];
ended_by(_) ->
    [].

paths() ->
    [
        {requests_per_s, [<<"requests_per_s">>]},
        {p50_us, [<<"latency_us">>, <<"p50">>]},
        {p95_us, [<<"latency_us">>, <<"p95">>]},
        {p99_us, [<<"latency_us">>, <<"p99">>]},
        {max_us, [<<"latency_us">>, <<"max">>]},
        {longest_silence_us, [<<"longest_silence_us">>]},
        {failed_connects, [<<"failed_connects">>]},
        {missed, [<<"missed">>]},
        {cpu_us_per_request, [<<"server">>, <<"cpu_us_per_request">>]},
        {switches_per_request, [<<"server">>, <<"switches_per_request">>]},
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

%% @doc Combines samples of several drivers on the same server at the same time: the sum of the requests, the worst
%% latencies, and the server's CPU time, which each driver has seen.
-spec sum([sample(), ...]) -> sample().
sum([Sample]) ->
    Sample;
sum(Samples) ->
    Of = fun(Metric) -> [map_get(Metric, Metrics) || #{metrics := Metrics} <- Samples] end,
    PerSecond = lists:sum(Of(requests_per_s)),
    Percent = lists:sum(Of(core_percent)) / length(Samples),
    #{
        metrics => (maps:merge(opened(Samples), switches(Samples, length(Samples) * PerSecond)))#{
            requests_per_s => PerSecond,
            p50_us => lists:max(Of(p50_us)),
            p99_us => lists:max(Of(p99_us)),
            core_percent => Percent,
            cpu_us_per_request => Percent / 100 * 1.0e6 / PerSecond
        },
        errors => lists:sum([Errors || #{errors := Errors} <- Samples])
    }.

opened(Samples) ->
    Open = [Open || #{metrics := #{connections := Open}} <- Samples],
    maps:from_list([{connections, lists:sum(Open)} || length(Open) =:= length(Samples)]).

%% The denominators differ: each driver divides the switches of its window, or its server, by its own requests.
switches(Samples, PerSecond) ->
    Seen = [Each * Own || #{metrics := #{switches_per_request := Each, requests_per_s := Own}} <- Samples],
    maps:from_list([{switches_per_request, lists:sum(Seen) / PerSecond} || length(Seen) =:= length(Samples)]).

%% @doc Combines samples of several servers of the same kind that ran at the same time, each with a part of the
%% connections. Works for idle connections and for requests.
-spec side_by_side([sample(), ...]) -> sample().
side_by_side([#{metrics := First} | _] = Samples) ->
    Of = fun(Metric) -> [map_get(Metric, Metrics) || #{metrics := Metrics} <- Samples] end,
    Connections = lists:sum(Of(connections)),
    Percent = lists:sum(Of(core_percent)),
    Figures =
        case First of
            #{bytes_per_connection := _} ->
                Bytes = [Bytes * Count || {Bytes, Count} <- lists:zip(Of(bytes_per_connection), Of(connections))],
                #{bytes_per_connection => lists:sum(Bytes) / Connections};
            #{requests_per_s := _} ->
                PerSecond = lists:sum(Of(requests_per_s)),
                Latencies = maps:from_list([{Metric, lists:max(Of(Metric))} || Metric <- [p50_us, p99_us]]),
                (maps:merge(Latencies, switches(Samples, PerSecond)))#{
                    requests_per_s => PerSecond,
                    cpu_us_per_request => Percent / 100 * 1.0e6 / PerSecond
                }
        end,
    #{
        metrics => Figures#{connections => Connections, servers => length(Samples), core_percent => Percent},
        errors => lists:sum([Errors || #{errors := Errors} <- Samples])
    }.

%% @doc Adds a remark to a measurement.
-spec note(binary(), sample()) -> sample().
note(Note, Sample) ->
    Sample#{notes => maps:get(notes, Sample, []) ++ [Note]}.

%% @doc Returns all metrics.
-spec metrics() -> [metric(), ...].
metrics() ->
    [
        requests_per_s,
        held_per_s,
        answered_per_s,
        ticks_per_s,
        p50_us,
        p95_us,
        p99_us,
        max_us,
        longest_silence_us,
        failed_connects,
        missed,
        lost,
        cpu_us_per_request,
        switches_per_request,
        futexes_per_request,
        busiest_percent,
        away_percent,
        cpu_ms,
        cpu_ms_per_s,
        cpu_s_per_minute,
        bytes_per_connection,
        core_percent,
        bytes_per_s,
        bytes_per_cpu_s,
        connections,
        servers,
        memory_kib
    ].

%% @doc Returns the median and the spread of each metric. For metrics that should be 0, the worst round replaces the
%% median.
-spec summary([sample()]) -> summary().
summary(Samples) ->
    Metrics = lists:usort(lists:append([maps:keys(Of) || #{metrics := Of} <- Samples])),
    maps:from_list([
        {Metric, spread(Metric, [map_get(Metric, Of) || #{metrics := Of} <- Samples, is_map_key(Metric, Of)])}
     || Metric <- Metrics
    ]).

spread(lost, Values) ->
    (spread(any, Values))#{median := lists:max(Values)};
spread(_Metric, Values) ->
    #{median => median(Values), min => lists:min(Values), max => lists:max(Values), samples => Values}.

%% @doc Returns the middle value, or the mean of the two in the middle.
-spec median([number(), ...]) -> number().
median(Values) ->
    Sorted = lists:sort(Values),
    Count = length(Sorted),
    case Count rem 2 of
        1 -> lists:nth(Count div 2 + 1, Sorted);
        0 -> (lists:nth(Count div 2, Sorted) + lists:nth(Count div 2 + 1, Sorted)) / 2
    end.

%% @doc Returns the medians of each second over several ramps, up to the end of the shortest.
-spec median_seconds([sample()]) -> [#{offered := number(), p50_us := number(), p99_us := number()}].
median_seconds(Samples) ->
    case [Seconds || #{seconds := [_ | _] = Seconds} <- Samples] of
        [] ->
            [];
        Runs ->
            Shortest = lists:min([length(Seconds) || Seconds <- Runs]),
            [
                maps:map(fun(Key, _) -> median([map_get(Key, lists:nth(At, Run)) || Run <- Runs]) end, hd(hd(Runs)))
             || At <- lists:seq(1, Shortest)
            ]
    end.

%% @doc Whether more or less of a metric is better.
-spec better(metric()) -> more | less.
better(Metric) ->
    Less = [
        p50_us,
        p95_us,
        p99_us,
        max_us,
        longest_silence_us,
        failed_connects,
        missed,
        lost,
        cpu_us_per_request,
        switches_per_request,
        futexes_per_request,
        busiest_percent,
        away_percent,
        cpu_ms,
        cpu_ms_per_s,
        cpu_s_per_minute,
        bytes_per_connection,
        core_percent,
        servers,
        memory_kib
    ],
    case lists:member(Metric, Less) of
        true -> less;
        false -> more
    end.

%% @doc Returns the name of a metric with its unit.
-spec title(metric()) -> binary().
title(requests_per_s) -> <<"requests/s">>;
title(held_per_s) -> <<"requests/s held">>;
title(answered_per_s) -> <<"answers/s at most">>;
title(ticks_per_s) -> <<"ticks/s">>;
title(p50_us) -> <<"p50 µs"/utf8>>;
title(p95_us) -> <<"p95 µs"/utf8>>;
title(p99_us) -> <<"p99 µs"/utf8>>;
title(max_us) -> <<"longest µs"/utf8>>;
title(longest_silence_us) -> <<"longest silence µs"/utf8>>;
title(failed_connects) -> <<"failed connects">>;
title(missed) -> <<"missed">>;
title(lost) -> <<"lost">>;
title(cpu_us_per_request) -> <<"CPU µs/request"/utf8>>;
title(switches_per_request) -> <<"switches/request">>;
title(futexes_per_request) -> <<"futexes/request">>;
title(busiest_percent) -> <<"busiest pollset %">>;
title(away_percent) -> <<"away from owner %">>;
title(cpu_ms) -> <<"CPU ms">>;
title(cpu_ms_per_s) -> <<"CPU ms/s">>;
title(cpu_s_per_minute) -> <<"CPU s/minute">>;
title(bytes_per_connection) -> <<"bytes/connection">>;
title(core_percent) -> <<"% of a core">>;
title(bytes_per_s) -> <<"GB/s">>;
title(bytes_per_cpu_s) -> <<"GB/CPU s">>;
title(connections) -> <<"connections">>;
title(servers) -> <<"servers">>;
title(memory_kib) -> <<"server MiB">>.

%% @doc Formats a value of a metric with its significant digits.
-spec format(metric(), number()) -> iodata().
format(Metric, Value) when
    Metric =:= cpu_us_per_request; Metric =:= switches_per_request; Metric =:= futexes_per_request; Metric =:= cpu_ms;
    Metric =:= cpu_ms_per_s; Metric =:= cpu_s_per_minute; Metric =:= core_percent
->
    io_lib:format("~.2f", [float(Value)]);
format(Metric, Value) when Metric =:= bytes_per_s; Metric =:= bytes_per_cpu_s ->
    io_lib:format("~.2f", [Value / 1.0e9]);
format(memory_kib, Value) ->
    io_lib:format("~.1f", [Value / 1024]);
format(_Metric, Value) ->
    weir_bench_table:number(round(Value)).
