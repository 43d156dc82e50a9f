%% @doc Latencies in nanoseconds, counted by HdrHistogram with three significant digits, from 0 to an hour.
%%
%% A histogram is mutable and may be used by any process of its node. Serialised it travels: between nodes, and into
%% files, where any other HdrHistogram reads it.
-module(weir_load_histogram).

-export([new/0]).
-export([record/2]).
-export([merge/2]).
-export([percentiles/2]).
-export([summary/1]).
-export([serialise/1]).
-export([deserialise/1]).

-export_type([histogram/0, summary/0]).

-type histogram() :: weir_load_nif:histogram().

-type summary() :: #{
    count := non_neg_integer(),
    min := non_neg_integer(),
    max := non_neg_integer(),
    mean := float(),
    stdev := float()
}.
%% Nanoseconds, all 0 when nothing was counted.

%% What the native side takes in one call, so that a call stays short.
-define(MOST, 4096).

%% @doc An empty histogram.
-spec new() -> histogram().
new() -> weir_load_nif:new().

%% @doc Counts nanoseconds. One past an hour counts as an hour.
-spec record(histogram(), [non_neg_integer()]) -> ok.
record(Histogram, Nanoseconds) ->
    case length(Nanoseconds) =< ?MOST of
        true ->
            weir_load_nif:record_some(Histogram, Nanoseconds);
        false ->
            {Some, Rest} = lists:split(?MOST, Nanoseconds),
            ok = weir_load_nif:record_some(Histogram, Some),
            record(Histogram, Rest)
    end.

%% @doc Adds what the second has counted to the first, without loss.
-spec merge(histogram(), histogram()) -> ok.
merge(Histogram, Added) -> weir_load_nif:merge(Histogram, Added).

%% @doc The nanoseconds at percentiles, which are from 0 to 100.
-spec percentiles(histogram(), [number()]) -> [non_neg_integer()].
percentiles(Histogram, Percentiles) ->
    weir_load_nif:percentiles(Histogram, [float(Percentile) || Percentile <- Percentiles]).

%% @doc How many, the shortest, the longest, their mean and standard deviation.
-spec summary(histogram()) -> summary().
summary(Histogram) ->
    {Count, Min, Max, Mean, Stdev} = weir_load_nif:summary(Histogram),
    #{count => Count, min => Min, max => Max, mean => Mean, stdev => Stdev}.

%% @doc HdrHistogram's V2 encoding, compressed.
-spec serialise(histogram()) -> binary().
serialise(Histogram) -> weir_load_nif:serialise(Histogram).

%% @doc The histogram that was serialised; `badarg' if it is none, or of another precision.
-spec deserialise(binary()) -> histogram().
deserialise(Bytes) -> weir_load_nif:deserialise(Bytes).
