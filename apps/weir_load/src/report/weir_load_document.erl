%% @doc The document of a run, from which the JSON file, the report and the summary are made. `docs/load.md' has its
%% schema.
-module(weir_load_document).

-export([new/2]).
-export([invalid/2]).
-export([text/1]).

-export_type([about/0, document/0, total/0]).

%% The settings of a run.
-type about() :: #{
    scenario := binary(),
    target := binary(),
    loop := open | closed | none,
    rate := binary() | null,
    arrivals := even | poisson | null,
    seed := integer() | null,
    concurrency := pos_integer() | null,
    connections := non_neg_integer(),
    depth := pos_integer(),
    tls := boolean(),
    observe := pos_integer() | node() | null,
    nodes := [node(), ...],
    duration_ns := pos_integer(),
    warmup_ns := non_neg_integer(),
    timeout_ns := pos_integer(),
    max_lag_ns := pos_integer(),
    started := binary(),
    promises := [weir_load_promise:promise()]
}.

%% The keys of `weir_load_second:figures()', and rates.
-type total() :: #{atom() => term()}.

-type document() :: #{atom() => term()}.

-define(SECOND, 1_000_000_000).

%% Errors that mean that the generator itself ran out of a resource.
-define(OWN_ERRORS, [emfile, enfile, eaddrnotavail, enobufs, enomem, system_limit]).

%% @doc Returns the document of one or several runs with the same settings. `total' sums up all of them; if there are
%% several, `runs' has the total of each.
-spec new(about(), [weir_load_run:outcome(), ...]) -> document().
new(About, Outcomes) ->
    Totals = [total(Outcome, achieved(About, Outcome)) || Outcome <- Outcomes],
    Document = maps:merge(described(About), together(About, Outcomes, Totals)),
    case Totals of
        [_] -> Document;
        _ -> Document#{runs => Totals}
    end.

described(About) ->
    Kept = maps:with(
        [scenario, target, loop, rate, arrivals, seed, concurrency, connections, depth, tls, observe, nodes, started],
        About
    ),
    #{duration_ns := Duration, warmup_ns := Warmup, timeout_ns := Timeout, max_lag_ns := MaxLag} = About,
    Kept#{
        schema => 1,
        duration_s => Duration / ?SECOND,
        warmup_s => Warmup / ?SECOND,
        timeout_s => Timeout / ?SECOND,
        max_lag_us => MaxLag / 1000,
        otp => list_to_binary(erlang:system_info(otp_release))
    }.

total(#{total := Sum, offered := Offered, elapsed := Elapsed, window := Window}, {Answers, AnswersTook}) ->
    (weir_load_second:figures(Sum))#{
        elapsed_s => Elapsed / ?SECOND,
        offered => null(Offered),
        offered_rate => null(rate(Offered, Window)),
        achieved_rate => rate(Answers, AnswersTook),
        pushed_rate => rate(weir_load_sample:counter(pushed, Sum), Elapsed)
    }.

%% The number of answers, and the time that they took. Answers to requests of the window may come after it. A closed
%% loop stops sending at the end of its window, and its last answers come ever slower, so only the seconds of the
%% window count if they are whole.
achieved(#{loop := closed}, #{window := Window, seconds := Seconds}) when Window rem ?SECOND =:= 0 ->
    Until = Window div ?SECOND,
    {lists:sum([Answered || #{second := Second, answered := Answered} <- Seconds, Second < Until]), Window};
achieved(_About, #{total := Sum, elapsed := Elapsed}) ->
    {weir_load_sample:counter(answered, Sum), Elapsed}.

null(none) -> null;
null(Value) -> Value.

rate(none, _Time) -> none;
rate(Count, Time) -> round(Count * ?SECOND / Time * 100) / 100.

together(#{promises := Promises, max_lag_ns := MaxLag} = About, Outcomes, Totals) ->
    Sum = lists:foldl(
        fun(#{total := One}, All) -> weir_load_sample:add_up(One, All) end, weir_load_sample:empty(), Outcomes
    ),
    {Answers, Times} = lists:unzip([achieved(About, Outcome) || Outcome <- Outcomes]),
    Total = total(
        #{
            total => Sum,
            offered => add([Offered || #{offered := Offered} <- Outcomes]),
            elapsed => add([Elapsed || #{elapsed := Elapsed} <- Outcomes]),
            window => add([Window || #{window := Window} <- Outcomes])
        },
        {lists:sum(Answers), lists:sum(Times)}
    ),
    %% One invalid run makes the sum invalid.
    Invalid = lists:usort(lists:append([invalid(One, MaxLag) || One <- Totals])),
    #{
        total => Total,
        seconds => seconds(Outcomes),
        spectrum => spectrum(Sum),
        histograms => histograms(Sum),
        interrupted => lists:any(fun(#{interrupted := Interrupted}) -> Interrupted end, Outcomes),
        valid => Invalid =:= [],
        invalid => Invalid,
        promises => [weir_load_promise:check(Promise, Total) || Promise <- Promises]
    }.

add(Counts) ->
    case lists:member(none, Counts) of
        true -> none;
        false -> lists:sum(Counts)
    end.

seconds(Outcomes) ->
    Numbered = lists:zip(lists:seq(1, length(Outcomes)), Outcomes),
    [Second#{run => Run} || {Run, #{seconds := Seconds}} <- Numbered, Second <- Seconds].

%% @doc Returns why a run says little about the server: the generator was late, left out requests, or ran out of a
%% resource.
-spec invalid(total(), MaxLag :: pos_integer()) -> [binary()].
invalid(#{errors := Errors} = Total, MaxLag) ->
    Late =
        case Total of
            #{lag_us := #{p99 := P99}} when P99 * 1000 > MaxLag ->
                [["the generator's own lag has a p99 of ", weir_load_units:show_time(P99), ", more than ",
                  weir_load_units:show_time(MaxLag / 1000)]];
            _ ->
                []
        end,
    LeftOut =
        case Total of
            #{offered := Offered} when is_integer(Offered), Offered > 0 ->
                #{count := Turned} = maps:get(lag_us, Total, #{count => 0}),
                [
                    io_lib:format("the generator handled only ~b of ~b requests that were due", [Turned, Offered])
                 || Turned < Offered * 0.995 - 1
                ];
            _ ->
                []
        end,
    Exhausted = [
        io_lib:format("the generator could not open ~b connections: ~s", [Count, inet:format_error(Kind)])
     || {Kind, Count} <- maps:to_list(Errors), lists:member(Kind, ?OWN_ERRORS)
    ],
    [unicode:characters_to_binary(Reason) || Reason <- Late ++ LeftOut ++ Exhausted].

%% Latencies up to 99.999 %, ten points to each nine, evenly spaced on a logarithmic axis of 1 / (1 - quantile).
spectrum(Sum) ->
    Percentiles = [100 * (1 - math:pow(10, -Step / 10)) || Step <- lists:seq(0, 50)],
    maps:from_list([
        {Measure, #{
            percentile => [round(Percentile * 1.0e7) / 1.0e7 || Percentile <- Percentiles],
            us => [Value / 1000 || Value <- weir_load_histogram:percentiles(Histogram, Percentiles)]
        }}
     || {Measure, Histogram} <- measured(Sum)
    ]).

%% Nanoseconds, in HdrHistogram's V2 encoding.
histograms(Sum) ->
    maps:from_list([
        {Measure, base64:encode(weir_load_histogram:serialise(Histogram))} || {Measure, Histogram} <- measured(Sum)
    ]).

measured(Sum) ->
    [
        {Measure, Histogram}
     || Measure <- weir_load_sample:measures(),
        Histogram <- [weir_load_sample:histogram(Measure, Sum)],
        maps:get(count, weir_load_histogram:summary(Histogram)) > 0
    ].

%% @doc Formats the summary for a terminal.
-spec text(document()) -> unicode:chardata().
text(#{total := Total, promises := Promises, invalid := Invalid} = Document) ->
    [
        [
            "interrupted: these are the results until then\n"
         || maps:get(interrupted, Document)
        ],
        measures(Total),
        rates(Total),
        errors(Total),
        [promise(Promise) || Promise <- Promises],
        [["invalid: ", Reason, "\n"] || Reason <- Invalid]
    ].

measures(Total) ->
    Figures = [min, mean, p50, p90, p99, p999, max],
    Rows = [
        [Name | [weir_load_units:show_time(maps:get(Figure, Latency)) || Figure <- Figures]]
     || {Name, Key} <- [
            {"response", response_us}, {"service", service_us}, {"connect", connect_us}, {"first byte", first_byte_us},
            {"push", push_us}, {"own lag", lag_us}
        ],
        #{Key := Latency} <- [Total]
    ],
    Header = ["", "min", "mean", "p50", "p90", "p99", "p99.9", "max"],
    [[line(Row) || Row <- [Header | Rows]] || Rows =/= []].

line([Name | Figures]) ->
    [string:pad(Name, 10), [string:pad(Figure, 10, leading) || Figure <- Figures], "\n"].

rates(#{offered := Offered, offered_rate := OfferedRate, answered := Answered, achieved_rate := Achieved} = Total) ->
    #{pushed := Pushed, pushed_rate := PushedRate, connected := Connected, elapsed_s := Elapsed} = Total,
    [
        [io_lib:format("offered   ~b requests, ~s/s~n", [Offered, number(OfferedRate)]) || is_integer(Offered)],
        [
            io_lib:format("achieved  ~b answers, ~s/s, in ~.1f s~n", [Answered, number(Achieved), Elapsed])
         || Pushed =:= 0
        ],
        [io_lib:format("pushed    ~b messages, ~s/s~n", [Pushed, number(PushedRate)]) || Pushed > 0],
        io_lib:format("connected ~b times~n", [Connected])
    ].

number(Number) -> io_lib:format("~.1f", [float(Number)]).

errors(#{error_count := 0}) ->
    "errors    none\n";
errors(#{error_count := Count, errors := Errors}) ->
    Kinds = [io_lib:format("~s ~b", [Kind, Number]) || {Kind, Number} <- lists:sort(maps:to_list(Errors))],
    ["errors    ", integer_to_list(Count), ": ", lists:join(", ", Kinds), "\n"].

promise(#{promise := Text, value := Value, kept := Kept}) ->
    Verdict = case Kept of true -> "kept"; false -> "BROKEN" end,
    Shown = case Value of null -> "not measured"; _ -> io_lib:format("~w", [Value]) end,
    io_lib:format("promise   ~ts: ~s (~s)~n", [Text, Verdict, Shown]).
