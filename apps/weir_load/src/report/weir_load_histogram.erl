%% @doc Histograms of latencies: HdrHistogram with three significant digits, from 0 nanoseconds to an hour.
%%
%% A histogram is mutable, and any process of its node may use it. Serialise it for other nodes and for files; other
%% implementations of HdrHistogram can read it.
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

%% Most values in one native call, which keeps it short.
-define(MOST, 4096).

%% @doc Returns an empty histogram.
-spec new() -> histogram().
new() -> weir_load_nif:new().

%% @doc Counts latencies. One longer than an hour counts as an hour.
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

%% @doc Adds the counts of the second histogram to the first, without loss.
-spec merge(histogram(), histogram()) -> ok.
merge(Histogram, Added) -> weir_load_nif:merge(Histogram, Added).

%% @doc Returns the nanoseconds at percentiles from 0 to 100.
-spec percentiles(histogram(), [number()]) -> [non_neg_integer()].
percentiles(Histogram, Percentiles) ->
    weir_load_nif:percentiles(Histogram, [float(Percentile) || Percentile <- Percentiles]).

%% @doc Returns the count, minimum, maximum, mean and standard deviation.
-spec summary(histogram()) -> summary().
summary(Histogram) ->
    {Count, Min, Max, Mean, Stdev} = weir_load_nif:summary(Histogram),
    #{count => Count, min => Min, max => Max, mean => Mean, stdev => Stdev}.

%% @doc Returns HdrHistogram's V2 encoding, compressed.
-spec serialise(histogram()) -> binary().
serialise(Histogram) -> weir_load_nif:serialise(Histogram).

%% @doc Returns the histogram of an encoding. Raises `badarg' if the bytes are not a histogram of this precision.
-spec deserialise(binary()) -> histogram().
deserialise(Bytes) -> weir_load_nif:deserialise(Bytes).
