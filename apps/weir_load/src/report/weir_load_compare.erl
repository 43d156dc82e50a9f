%% @doc Compares two documents and decides whether one is better, given the noise.
%%
%% Each figure has several values on each side: one for each run if both documents have three runs or more, otherwise
%% one for each second, without the first second and those after the window. Welch's t-test, which allows a different
%% spread on each side, compares the means of their logarithms. So the confidence interval of the difference is one of
%% the ratio of B to A. An interval that excludes 1 shows a difference. Logarithms, because latencies are skewed to the
%% right and vary by factors. The intervals are wide enough that all of them hold together with 95 % confidence
%% (Bonferroni): if a server is compared with itself, one comparison in twenty is wrong, however many figures it has.
%%
%% The seconds of one run are not independent: a disturbance lasts for more than one. Intervals from seconds are too
%% narrow on a machine with good and bad minutes, and the text says so. Prefer runs of A and B in turns.
-module(weir_load_compare).

-export([compare/2]).
-export([text/1]).
-export([interval/3]).

-export_type([comparison/0]).

%% `ratio' is B divided by A, between `low' and `high' with 95 % confidence for all rows together. The three are `null'
%% if there are too few values above 0.
-type row() :: #{
    figure := binary(),
    a := number(),
    b := number(),
    ratio := float() | null,
    low := float() | null,
    high := float() | null,
    verdict := better | worse | no_difference | too_little
}.

%% That all intervals hold together.
-define(CONFIDENCE, 0.95).

-type comparison() :: #{values := runs | seconds, rows := [row()], notes := [binary()]}.

%% @doc Compares two documents, decoded from their JSON.
-spec compare(weir_json:value(), weir_json:value()) -> {ok, comparison()} | {error, iodata()}.
compare(#{<<"schema">> := 1, <<"total">> := _} = A, #{<<"schema">> := 1, <<"total">> := _} = B) ->
    Kind =
        case {A, B} of
            {#{<<"runs">> := [_, _, _ | _]}, #{<<"runs">> := [_, _, _ | _]}} -> runs;
            _ -> seconds
        end,
    Measured = [
        {Figure, Better, InA, InB}
     || {Figure, Path, Better} <- figures(),
        [_ | _] = InA <- [values(Path, Kind, A)],
        [_ | _] = InB <- [values(Path, Kind, B)]
    ],
    Confidence = 1 - (1 - ?CONFIDENCE) / max(1, length(Measured)),
    Rows = [row(Figure, Better, InA, InB, Confidence) || {Figure, Better, InA, InB} <- Measured],
    {ok, #{values => Kind, rows => Rows, notes => notes(A, B)}};
compare(_, _) ->
    {error, "both files must be written by `weir load --json`, with schema 1"}.

figures() ->
    [
        {<<"response p50">>, [<<"response_us">>, <<"p50">>], less},
        {<<"response p99">>, [<<"response_us">>, <<"p99">>], less},
        {<<"response p99.9">>, [<<"response_us">>, <<"p999">>], less},
        {<<"service p50">>, [<<"service_us">>, <<"p50">>], less},
        {<<"service p99">>, [<<"service_us">>, <<"p99">>], less},
        {<<"connect p99">>, [<<"connect_us">>, <<"p99">>], less},
        {<<"push p99">>, [<<"push_us">>, <<"p99">>], less},
        {<<"answered/s">>, [rate], more},
        {<<"server cores">>, [<<"server">>, <<"cpu">>], less}
    ].

row(Figure, Better, A, B, Confidence) ->
    Row = #{figure => Figure, a => mean(A), b => mean(B), ratio => null, low => null, high => null},
    case interval(A, B, Confidence) of
        {ok, Ratio, Low, High} -> Row#{ratio => Ratio, low => Low, high => High, verdict => verdict(Better, Low, High)};
        too_little -> Row#{verdict => too_little}
    end.

verdict(less, _Low, High) when High < 1 -> better;
verdict(less, Low, _High) when Low > 1 -> worse;
verdict(more, Low, _High) when Low > 1 -> better;
verdict(more, _Low, High) when High < 1 -> worse;
verdict(_Better, _Low, _High) -> no_difference.

mean(Values) -> lists:sum(Values) / length(Values).

values(Path, runs, #{<<"runs">> := Runs}) ->
    numbers(runs_path(Path), Runs);
values(Path, seconds, #{<<"seconds">> := Seconds, <<"duration_s">> := Duration}) ->
    Whole = [Second || #{<<"second">> := Number} = Second <- Seconds, Number > 0, Number + 1 =< Duration],
    numbers(seconds_path(Path), Whole).

runs_path([rate]) -> [<<"achieved_rate">>];
runs_path(Path) -> Path.

seconds_path([rate]) -> [<<"answered">>];
seconds_path(Path) -> Path.

numbers(Path, Maps) ->
    [Number || Map <- Maps, Number <- [number(Path, Map)], is_number(Number), Number > 0].

number([], Number) -> Number;
number([Key | Keys], Map) when is_map_key(Key, Map) -> number(Keys, maps:get(Key, Map));
number(_Path, _Map) -> none.

%% @doc Returns the ratio of the geometric means, B to A, and its confidence interval by Welch's t-test. Returns
%% `too_little' if a side has fewer than three values.
-spec interval([number()], [number()], Confidence :: float()) ->
    {ok, Ratio :: float(), Low :: float(), High :: float()} | too_little.
interval(A, B, _Confidence) when length(A) < 3; length(B) < 3 ->
    too_little;
interval(A, B, Confidence) ->
    {MeanA, ErrorA, NA} = moments(A),
    {MeanB, ErrorB, NB} = moments(B),
    Error = ErrorA + ErrorB,
    Difference = MeanB - MeanA,
    Half =
        case Error > 0 of
            true ->
                %% Degrees of freedom by Welch and Satterthwaite.
                Freedom = Error * Error / (ErrorA * ErrorA / (NA - 1) + ErrorB * ErrorB / (NB - 1)),
                student(floor(Freedom), Confidence) * math:sqrt(Error);
            false ->
                0.0
        end,
    {ok, math:exp(Difference), math:exp(Difference - Half), math:exp(Difference + Half)}.

%% The mean of the logarithms, the square of its standard error, and the number of values.
moments(Values) ->
    Logs = [math:log(Value) || Value <- Values],
    Count = length(Logs),
    Mean = lists:sum(Logs) / Count,
    Variance = lists:sum([(Log - Mean) * (Log - Mean) || Log <- Logs]) / (Count - 1),
    {Mean, Variance / Count, Count}.

%% The two-sided quantile of Student's t-distribution, by bisection.
student(Freedom, Probability) ->
    student(max(1, min(Freedom, 1000)), Probability, 0.0, 1.0e4).

student(_Freedom, _Probability, Low, High) when High - Low < 1.0e-6 ->
    High;
student(Freedom, Probability, Low, High) ->
    Middle = (Low + High) / 2,
    case within(Middle, Freedom) < Probability of
        true -> student(Freedom, Probability, Middle, High);
        false -> student(Freedom, Probability, Low, Middle)
    end.

%% The probability of a value between -T and T: Abramowitz and Stegun, 26.7.3 and 26.7.4.
within(T, Freedom) ->
    Angle = math:atan(T / math:sqrt(Freedom)),
    Cos = math:cos(Angle),
    case Freedom rem 2 of
        0 -> math:sin(Angle) * series(1, Freedom - 2, Cos, 1.0);
        1 when Freedom =:= 1 -> 2 / math:pi() * Angle;
        1 -> 2 / math:pi() * (Angle + math:sin(Angle) * series(2, Freedom - 2, Cos, Cos))
    end.

%% Sums Term, Term * N/(N+1) cos^2, ... up to N = Last.
series(N, Last, _Cos, Term) when N > Last -> Term;
series(N, Last, Cos, Term) -> Term + series(N + 2, Last, Cos, Term * N / (N + 1) * Cos * Cos).

notes(A, B) ->
    Different = [
        [Key, " differs: ", show(maps:get(Key, A, null)), " and ", show(maps:get(Key, B, null))]
     || Key <- [<<"scenario">>, <<"tls">>, <<"loop">>, <<"rate">>, <<"concurrency">>, <<"connections">>, <<"depth">>],
        maps:get(Key, A, null) =/= maps:get(Key, B, null)
    ],
    Invalid = [
        [Name, " is invalid: ", lists:join("; ", Reasons)]
     || {Name, #{<<"invalid">> := [_ | _] = Reasons}} <- [{"A", A}, {"B", B}]
    ],
    Failed = [
        [Name, " has ", integer_to_list(Count), " errors"]
     || {Name, #{<<"total">> := #{<<"error_count">> := Count}}} <- [{"A", A}, {"B", B}], Count > 0
    ],
    [unicode:characters_to_binary(Note) || Note <- Different ++ Invalid ++ Failed].

show(Text) when is_binary(Text) -> Text;
show(Value) -> io_lib:format("~w", [Value]).

%% @doc Formats a comparison for a terminal.
-spec text(comparison()) -> unicode:chardata().
text(#{values := Kind, rows := Rows, notes := Notes}) ->
    [
        line(["", "A", "B", "B/A", "interval, 95 %", ""]),
        [
            line([Figure, number(A), number(B), factor(Ratio), span(Low, High), words(Verdict)])
         || #{figure := Figure, a := A, b := B, ratio := Ratio, low := Low, high := High, verdict := Verdict} <- Rows
        ],
        [["note: ", Note, "\n"] || Note <- Notes],
        case Kind of
            runs -> "Welch's t-test on the logarithms of the runs' figures.\n";
            seconds ->
                "Welch's t-test on the logarithms of the seconds' figures. Seconds are not independent, so the\n"
                "intervals may be too narrow: --repeat 5 on both sides compares runs.\n"
        end
    ].

line([Figure, A, B, Ratio, Span, Verdict]) ->
    [
        string:pad(Figure, 15),
        [string:pad(Cell, 12, leading) || Cell <- [A, B, Ratio]],
        "  ", string:pad(Span, 18), Verdict, "\n"
    ].

number(Number) -> io_lib:format("~.1f", [float(Number)]).

factor(null) -> "-";
factor(Ratio) -> io_lib:format("~.3f", [Ratio]).

span(null, null) -> "-";
span(Low, High) -> io_lib:format("~.3f to ~.3f", [Low, High]).

words(better) -> "B is better";
words(worse) -> "B is worse";
words(no_difference) -> "no difference shown";
words(too_little) -> "too few values".
