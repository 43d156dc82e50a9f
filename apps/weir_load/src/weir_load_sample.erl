%% @doc What one driver has measured since it was last asked: a value that becomes small when it travels.
%%
%% Times are nanoseconds. `response' counts from when a request was due, `service' from when work on it began, which is
%% its actual send, or its connect where each request has a connection of its own. `connect' is the time to open a
%% connection, `first_byte' from the actual send to the first byte that came then, and `lag' from when a request was
%% due to when the generator turned to it: its own lateness, and nobody else's. `push' is what messages say that nobody
%% asked for.
-module(weir_load_sample).

-export([new/0]).
-export([time/3]).
-export([add/3]).
-export([error/2]).
-export([pack/1]).
-export([empty/0]).
-export([merge/2]).
-export([add_up/2]).
-export([histogram/2]).
-export([counter/2]).
-export([errors/1]).
-export([measures/0]).

-export_type([sample/0, packed/0, measured/0, measure/0, counter/0]).

-type measure() :: response | service | connect | first_byte | lag | push.
-type counter() :: sent | answered | pushed | bytes_sent | bytes_received | connected.

%% Values of a measure that wait to be counted, newest first.
-record(sample, {
    waiting = #{} :: #{measure() => {Length :: pos_integer(), [non_neg_integer()]}},
    histograms = #{} :: #{measure() => weir_load_histogram:histogram()},
    counters = #{} :: #{counter() => pos_integer()},
    errors = #{} :: #{weir_load_scenario:error() => pos_integer()}
}).
-opaque sample() :: #sample{}.

%% As it travels, between processes and nodes.
-opaque packed() :: {#{measure() => binary()}, #{counter() => pos_integer()}, #{atom() => pos_integer()}}.

%% The sum of samples. Its histograms are mutable: a sum belongs to who made it.
-opaque measured() :: #sample{}.

%% Enough that a call to the native side is worth it, and few enough that it is short.
-define(BATCH, 500).

%% @doc All measures, in the order in which they are shown.
-spec measures() -> [measure()].
measures() -> [response, service, connect, first_byte, lag, push].

%% @doc Nothing measured.
-spec new() -> sample().
new() -> #sample{}.

%% @doc Counts a time.
-spec time(measure(), integer(), sample()) -> sample().
time(Measure, Nanoseconds, #sample{waiting = Waiting} = Sample) ->
    Value = max(0, Nanoseconds),
    case Waiting of
        #{Measure := {?BATCH, Values}} ->
            (flush(Measure, Values, Sample))#sample{waiting = Waiting#{Measure => {1, [Value]}}};
        #{Measure := {Length, Values}} ->
            Sample#sample{waiting = Waiting#{Measure => {Length + 1, [Value | Values]}}};
        #{} ->
            Sample#sample{waiting = Waiting#{Measure => {1, [Value]}}}
    end.

flush(Measure, Values, #sample{histograms = Histograms} = Sample) ->
    case Histograms of
        #{Measure := Histogram} ->
            ok = weir_load_histogram:record(Histogram, Values),
            Sample;
        #{} ->
            Histogram = weir_load_histogram:new(),
            ok = weir_load_histogram:record(Histogram, Values),
            Sample#sample{histograms = Histograms#{Measure => Histogram}}
    end.

%% @doc Counts so many of something.
-spec add(counter(), non_neg_integer(), sample()) -> sample().
add(_Counter, 0, Sample) ->
    Sample;
add(Counter, Count, #sample{counters = Counters} = Sample) ->
    Sample#sample{counters = plus(Counter, Count, Counters)}.

%% @doc Counts an error.
-spec error(weir_load_scenario:error(), sample()) -> sample().
error(Kind, #sample{errors = Errors} = Sample) ->
    Sample#sample{errors = plus(Kind, 1, Errors)}.

plus(Key, Count, Counts) ->
    case Counts of
        #{Key := Before} -> Counts#{Key := Before + Count};
        #{} -> Counts#{Key => Count}
    end.

%% @doc The sample as it travels.
-spec pack(sample()) -> packed().
pack(#sample{waiting = Waiting} = Sample) ->
    Flush = fun(Measure, {_, Values}, Acc) -> flush(Measure, Values, Acc) end,
    #sample{histograms = Histograms, counters = Counters, errors = Errors} = maps:fold(Flush, Sample, Waiting),
    {maps:map(fun(_, Histogram) -> weir_load_histogram:serialise(Histogram) end, Histograms), Counters, Errors}.

%% @doc The sum of no samples.
-spec empty() -> measured().
empty() -> #sample{}.

%% @doc Adds a sample to a sum, without loss. The sum that was given is not to be used any more.
-spec merge(packed(), measured()) -> measured().
merge({Packed, Counters, Errors}, #sample{histograms = Histograms} = Sum) ->
    Sum#sample{
        histograms = maps:fold(fun merge_histogram/3, Histograms, Packed),
        counters = maps:fold(fun plus/3, Sum#sample.counters, Counters),
        errors = maps:fold(fun plus/3, Sum#sample.errors, Errors)
    }.

merge_histogram(Measure, Bytes, Histograms) ->
    add_histogram(Measure, weir_load_histogram:deserialise(Bytes), Histograms).

%% @doc Adds a sum to a sum, which is not to be used any more; nor is the first, from then on.
-spec add_up(measured(), measured()) -> measured().
add_up(#sample{} = Added, #sample{} = Sum) ->
    Sum#sample{
        histograms = maps:fold(fun add_histogram/3, Sum#sample.histograms, Added#sample.histograms),
        counters = maps:fold(fun plus/3, Sum#sample.counters, Added#sample.counters),
        errors = maps:fold(fun plus/3, Sum#sample.errors, Added#sample.errors)
    }.

add_histogram(Measure, Histogram, Histograms) ->
    case Histograms of
        #{Measure := Sum} ->
            ok = weir_load_histogram:merge(Sum, Histogram),
            Histograms;
        #{} ->
            Histograms#{Measure => Histogram}
    end.

%% @doc The histogram of a measure, empty if there was none.
-spec histogram(measure(), measured()) -> weir_load_histogram:histogram().
histogram(Measure, #sample{histograms = Histograms}) ->
    case Histograms of
        #{Measure := Histogram} -> Histogram;
        #{} -> weir_load_histogram:new()
    end.

%% @doc How many there were of something.
-spec counter(counter(), measured()) -> non_neg_integer().
counter(Counter, #sample{counters = Counters}) -> maps:get(Counter, Counters, 0).

%% @doc Errors by kind.
-spec errors(measured()) -> #{weir_load_scenario:error() => pos_integer()}.
errors(#sample{errors = Errors}) -> Errors.
