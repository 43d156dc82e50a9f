%% @doc The figures of one second of a run, or of the whole run. Tables, reports and JSON are made from them.
-module(weir_load_second).

-export([new/4]).
-export([figures/1]).
-export([latency/1]).
-export([percentiles/0]).

-export_type([second/0, figures/0, latency/0]).

%% Microseconds, rounded to a tenth.
-type latency() :: #{
    count := pos_integer(),
    min := float(),
    max := float(),
    mean := float(),
    stdev := float(),
    p50 := float(),
    p75 := float(),
    p90 := float(),
    p95 := float(),
    p99 := float(),
    p999 := float(),
    p9999 := float(),
    p99999 := float()
}.

%% Latencies are missing where nothing was measured.
-type figures() :: #{
    sent := non_neg_integer(),
    answered := non_neg_integer(),
    pushed := non_neg_integer(),
    connected := non_neg_integer(),
    bytes_sent := non_neg_integer(),
    bytes_received := non_neg_integer(),
    errors := #{weir_load_scenario:error() => pos_integer()},
    error_count := non_neg_integer(),
    response_us => latency(),
    service_us => latency(),
    connect_us => latency(),
    first_byte_us => latency(),
    lag_us => latency(),
    push_us => latency()
}.

%% The figures, with `second' (from 0 at the start of the window), `offered' (arrivals that were due in it, or `null'
%% without a schedule) and `server', if that is observed. An answer counts in the second in which it came, which may be
%% after the window.
-type second() :: #{atom() => term()}.

%% @doc Returns the figures of a second.
-spec new(Number, Offered, none | weir_load_observer:observation(), weir_load_sample:measured()) -> second() when
    Number :: non_neg_integer(), Offered :: none | non_neg_integer().
new(Number, Offered, Observation, Sum) ->
    Seen =
        case Observation of
            none -> #{};
            _ -> #{server => Observation}
        end,
    maps:merge(figures(Sum), Seen#{
        second => Number,
        offered =>
            case Offered of
                none -> null;
                _ -> Offered
            end
    }).

%% @doc Returns counts, errors and latencies.
-spec figures(weir_load_sample:measured()) -> figures().
figures(Sum) ->
    Counters = [sent, answered, pushed, connected, bytes_sent, bytes_received],
    Errors = weir_load_sample:errors(Sum),
    Counts = maps:from_list([{Counter, weir_load_sample:counter(Counter, Sum)} || Counter <- Counters]),
    Latencies = [
        {name(Measure), Latency}
     || Measure <- weir_load_sample:measures(),
        #{count := Count} = Latency <- [latency(weir_load_sample:histogram(Measure, Sum))],
        Count > 0
    ],
    maps:merge(Counts#{errors => Errors, error_count => lists:sum(maps:values(Errors))}, maps:from_list(Latencies)).

name(response) -> response_us;
name(service) -> service_us;
name(connect) -> connect_us;
name(first_byte) -> first_byte_us;
name(lag) -> lag_us;
name(push) -> push_us.

%% @doc Returns the percentiles that are reported, with their names.
-spec percentiles() -> [{atom(), number()}].
percentiles() ->
    [{p50, 50}, {p75, 75}, {p90, 90}, {p95, 95}, {p99, 99}, {p999, 99.9}, {p9999, 99.99}, {p99999, 99.999}].

%% @doc Returns the figures of a histogram. If the count is 0, the others are 0 and mean nothing.
-spec latency(weir_load_histogram:histogram()) -> #{atom() => number()}.
latency(Histogram) ->
    #{count := Count, min := Min, max := Max, mean := Mean, stdev := Stdev} = weir_load_histogram:summary(Histogram),
    {Names, Percentiles} = lists:unzip(percentiles()),
    Values = weir_load_histogram:percentiles(Histogram, Percentiles),
    Figures = [{min, Min}, {max, Max}, {mean, Mean}, {stdev, Stdev} | lists:zip(Names, Values)],
    (maps:from_list([{Name, microseconds(Value)} || {Name, Value} <- Figures]))#{count => Count}.

microseconds(Nanoseconds) -> round(Nanoseconds / 100) / 10.
