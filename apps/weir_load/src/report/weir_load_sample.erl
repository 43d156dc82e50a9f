%% @doc What a driver has measured in one second. Packed when it is sent to the run, which adds samples up.
%%
%% Times are nanoseconds. `response': from when a request was due to its answer. `service': from when it was sent, or,
%% if each request has its own connection, from the start of its connect. `connect': the time to open a connection.
%% `first_byte': from the send to the first byte of the answer. `lag': from when a request was due to when the
%% generator handled it, which is the generator's own delay. `push': the latency of messages that the server sends
%% unasked.
-module(weir_load_sample).

-export([new/0]).
-export([time/3]).
-export([sent/3]).
-export([answered/4]).
-export([asked/4]).
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

%% A record, because it changes several times for each request. A map would cost more than everything else that a
%% request needs.
-record(sample, {
    %% Values to be counted, newest first, and their number. `answer' holds answers whose response, service and first
    %% byte took the same time, as almost all do in a closed loop: they are counted once for the three.
    waiting = 0 :: non_neg_integer(),
    answer = [] :: [non_neg_integer()],
    response = [] :: [non_neg_integer()],
    service = [] :: [non_neg_integer()],
    connect = [] :: [non_neg_integer()],
    first_byte = [] :: [non_neg_integer()],
    lag = [] :: [non_neg_integer()],
    push = [] :: [non_neg_integer()],
    histograms = #{} :: #{measure() | answer => weir_load_histogram:histogram()},
    sent = 0 :: non_neg_integer(),
    answered = 0 :: non_neg_integer(),
    pushed = 0 :: non_neg_integer(),
    bytes_sent = 0 :: non_neg_integer(),
    bytes_received = 0 :: non_neg_integer(),
    connected = 0 :: non_neg_integer(),
    errors = #{} :: #{weir_load_scenario:error() => pos_integer()}
}).
-opaque sample() :: #sample{}.

%% The form that is sent between processes and nodes.
-opaque packed() :: {#{measure() => binary()}, #{counter() => non_neg_integer()}, #{atom() => pos_integer()}}.

-record(measured, {
    histograms = #{} :: #{measure() => weir_load_histogram:histogram()},
    counters = #{} :: #{counter() => non_neg_integer()},
    errors = #{} :: #{weir_load_scenario:error() => pos_integer()}
}).

%% The sum of samples. Its histograms are mutable.
-opaque measured() :: #measured{}.

%% Values counted in one native call: enough to be worth the call, few enough to keep it short.
-define(BATCH, 500).

%% @doc Returns all measures in the order in which they are shown.
-spec measures() -> [measure()].
measures() -> [response, service, connect, first_byte, lag, push].

%% @doc Returns an empty sample.
-spec new() -> sample().
new() -> #sample{}.

%% @doc Counts a time other than that of an answer.
-spec time(connect | lag | push, integer(), sample()) -> sample().
time(Measure, Nanoseconds, #sample{waiting = Waiting} = Sample) when Waiting >= ?BATCH ->
    time(Measure, Nanoseconds, flush(Sample));
time(connect, Nanoseconds, #sample{waiting = Waiting, connect = Values} = Sample) ->
    Sample#sample{waiting = Waiting + 1, connect = [max(0, Nanoseconds) | Values]};
time(lag, Nanoseconds, #sample{waiting = Waiting, lag = Values} = Sample) ->
    Sample#sample{waiting = Waiting + 1, lag = [max(0, Nanoseconds) | Values]};
time(push, Nanoseconds, #sample{waiting = Waiting, push = Values} = Sample) ->
    Sample#sample{waiting = Waiting + 1, push = [max(0, Nanoseconds) | Values]}.

%% @doc Counts one request or none, and the bytes sent.
-spec sent(Requests :: 0 | 1, Bytes :: non_neg_integer(), sample()) -> sample().
sent(Requests, Bytes, #sample{sent = Sent, bytes_sent = BytesSent} = Sample) ->
    Sample#sample{sent = Sent + Requests, bytes_sent = BytesSent + Bytes}.

%% @doc Counts an answer and its times.
-spec answered(Response :: integer(), Service :: integer(), FirstByte :: integer(), sample()) -> sample().
answered(Response, Service, FirstByte, #sample{waiting = Waiting} = Sample) when Waiting >= ?BATCH ->
    answered(Response, Service, FirstByte, flush(Sample));
answered(Time, Time, Time, #sample{waiting = Waiting, answered = Answered, answer = Values} = Sample) when Time >= 0 ->
    Sample#sample{waiting = Waiting + 1, answered = Answered + 1, answer = [Time | Values]};
answered(Response, Service, FirstByte, #sample{waiting = Waiting, answered = Answered} = Sample) ->
    #sample{response = Responses, service = Services, first_byte = FirstBytes} = Sample,
    Sample#sample{
        waiting = Waiting + 1,
        answered = Answered + 1,
        response = [max(0, Response) | Responses],
        service = [max(0, Service) | Services],
        first_byte = [max(0, FirstByte) | FirstBytes]
    }.

%% @doc Counts an answer and the next request, which was sent at once. All times of the answer are the same.
-spec asked(Time :: non_neg_integer(), Received :: non_neg_integer(), Sent :: non_neg_integer(), sample()) -> sample().
asked(Time, Received, Sent, #sample{waiting = Waiting} = Sample) when Waiting >= ?BATCH ->
    asked(Time, Received, Sent, flush(Sample));
asked(Time, Received, Sent, #sample{waiting = Waiting, answered = Answered, answer = Values} = Sample) ->
    Sample#sample{
        waiting = Waiting + 1,
        answered = Answered + 1,
        answer = [Time | Values],
        sent = Sample#sample.sent + 1,
        bytes_sent = Sample#sample.bytes_sent + Sent,
        bytes_received = Sample#sample.bytes_received + Received
    }.

flush(#sample{histograms = Histograms} = Sample) ->
    Waiting = [
        {answer, Sample#sample.answer},
        {response, Sample#sample.response},
        {service, Sample#sample.service},
        {connect, Sample#sample.connect},
        {first_byte, Sample#sample.first_byte},
        {lag, Sample#sample.lag},
        {push, Sample#sample.push}
    ],
    Sample#sample{
        waiting = 0,
        answer = [],
        response = [],
        service = [],
        connect = [],
        first_byte = [],
        lag = [],
        push = [],
        histograms = lists:foldl(fun count/2, Histograms, Waiting)
    }.

count({_Measure, []}, Histograms) ->
    Histograms;
count({Measure, Values}, Histograms) ->
    case Histograms of
        #{Measure := Histogram} ->
            ok = weir_load_nif:record_some(Histogram, Values),
            Histograms;
        #{} ->
            Histogram = weir_load_histogram:new(),
            ok = weir_load_nif:record_some(Histogram, Values),
            Histograms#{Measure => Histogram}
    end.

%% @doc Adds to a counter.
-spec add(pushed | bytes_received | connected, non_neg_integer(), sample()) -> sample().
add(pushed, Count, #sample{pushed = Before} = Sample) -> Sample#sample{pushed = Before + Count};
add(bytes_received, Count, #sample{bytes_received = Before} = Sample) -> Sample#sample{bytes_received = Before + Count};
add(connected, Count, #sample{connected = Before} = Sample) -> Sample#sample{connected = Before + Count}.

%% @doc Counts an error.
-spec error(weir_load_scenario:error(), sample()) -> sample().
error(Kind, #sample{errors = Errors} = Sample) ->
    Sample#sample{errors = plus(Kind, 1, Errors)}.

plus(Key, Count, Counts) ->
    case Counts of
        #{Key := Before} -> Counts#{Key := Before + Count};
        #{} -> Counts#{Key => Count}
    end.

%% @doc Packs a sample to be sent.
-spec pack(sample()) -> packed().
pack(Sample) ->
    #sample{histograms = Histograms, errors = Errors} = flush(Sample),
    Counters = #{
        sent => Sample#sample.sent,
        answered => Sample#sample.answered,
        pushed => Sample#sample.pushed,
        bytes_sent => Sample#sample.bytes_sent,
        bytes_received => Sample#sample.bytes_received,
        connected => Sample#sample.connected
    },
    {serialised(Histograms), Counters, Errors}.

serialised(#{answer := Answer, response := Response, service := Service, first_byte := FirstByte} = Histograms) ->
    lists:foreach(fun(Other) -> ok = weir_load_histogram:merge(Other, Answer) end, [Response, Service, FirstByte]),
    serialised(maps:remove(answer, Histograms));
serialised(#{answer := Answer} = Histograms) ->
    Same = weir_load_histogram:serialise(Answer),
    (serialised(maps:remove(answer, Histograms)))#{response => Same, service => Same, first_byte => Same};
serialised(Histograms) ->
    maps:map(fun(_, Histogram) -> weir_load_histogram:serialise(Histogram) end, Histograms).

%% @doc Returns the sum of no samples.
-spec empty() -> measured().
empty() -> #measured{}.

%% @doc Adds a packed sample to a sum, without loss. Do not use the old sum any more.
-spec merge(packed(), measured()) -> measured().
merge({Packed, Counters, Errors}, #measured{histograms = Histograms} = Sum) ->
    Sum#measured{
        histograms = maps:fold(fun merge_histogram/3, Histograms, Packed),
        counters = maps:fold(fun plus/3, Sum#measured.counters, Counters),
        errors = maps:fold(fun plus/3, Sum#measured.errors, Errors)
    }.

merge_histogram(Measure, Bytes, Histograms) ->
    add_histogram(Measure, weir_load_histogram:deserialise(Bytes), Histograms).

%% @doc Adds a sum to another, without loss. Do not use either of the old sums any more.
-spec add_up(measured(), measured()) -> measured().
add_up(#measured{} = Added, #measured{} = Sum) ->
    Sum#measured{
        histograms = maps:fold(fun add_histogram/3, Sum#measured.histograms, Added#measured.histograms),
        counters = maps:fold(fun plus/3, Sum#measured.counters, Added#measured.counters),
        errors = maps:fold(fun plus/3, Sum#measured.errors, Added#measured.errors)
    }.

add_histogram(Measure, Histogram, Histograms) ->
    case Histograms of
        #{Measure := Sum} ->
            ok = weir_load_histogram:merge(Sum, Histogram),
            Histograms;
        #{} ->
            Histograms#{Measure => Histogram}
    end.

%% @doc Returns the histogram of a measure; it is empty if nothing was measured.
-spec histogram(measure(), measured()) -> weir_load_histogram:histogram().
histogram(Measure, #measured{histograms = Histograms}) ->
    case Histograms of
        #{Measure := Histogram} -> Histogram;
        #{} -> weir_load_histogram:new()
    end.

%% @doc Returns a counter.
-spec counter(counter(), measured()) -> non_neg_integer().
counter(Counter, #measured{counters = Counters}) -> maps:get(Counter, Counters, 0).

%% @doc Returns the errors by kind.
-spec errors(measured()) -> #{weir_load_scenario:error() => pos_integer()}.
errors(#measured{errors = Errors}) -> Errors.
