%% @doc When the requests of an open loop are due. Pure functions.
%%
%% The integral of the rate is the number of arrivals that are due by then. The k-th arrival is due when the integral
%% is k - 1/2. So at any moment the number of arrivals is the rounded integral, and the total is exact. Random arrivals
%% are a Poisson process of this rate, conditioned on the total: the gaps are those of a Poisson process, and each run
%% offers the same number of requests.
-module(weir_load_schedule).

-export([new/1]).
-export([new/2]).
-export([duration/1]).
-export([count/1]).
-export([due_until/2]).
-export([rate_at/2]).
-export([first/3]).
-export([next/1]).

-export_type([schedule/0, segment/0, arrivals/0, pattern/0]).

%% Rates are per second, durations in nanoseconds. A ramp is linear from one rate to another. The rate of a power is
%% `Rate * (t / Duration) ^ Exponent'.
-type segment() ::
    {constant, Rate :: number(), Duration :: pos_integer()}
    | {ramp, From :: number(), To :: number(), Duration :: pos_integer()}
    | {power, Rate :: number(), Exponent :: number(), Duration :: pos_integer()}.

%% Arrivals are spread evenly, or at random by a seed, with which a run can be repeated.
-type pattern() :: even | {poisson, Seed :: integer()}.

%% A segment with its start in nanoseconds, and the number of arrivals before it.
-record(placed, {segment :: segment(), start :: non_neg_integer(), before :: float()}).

-record(schedule, {
    segments :: [#placed{}],
    pattern :: pattern(),
    duration :: non_neg_integer(),
    integral :: float()
}).
-opaque schedule() :: #schedule{}.

-record(arrivals, {
    %% The segments from that of the next arrival on.
    segments :: [#placed{}],
    %% The integral at the next arrival.
    integral :: float(),
    %% How many arrivals are left: in all, or, of random ones, in this segment.
    left :: non_neg_integer(),
    source :: {even, Step :: float()} | {poisson, rand:state(), Number :: pos_integer(), Of :: pos_integer()}
}).
-opaque arrivals() :: #arrivals{}.

-define(SECOND, 1_000_000_000).

%% @doc Returns a schedule of even arrivals, at the rates of consecutive segments.
-spec new([segment()]) -> schedule().
new(Segments) -> new(Segments, even).

%% @doc Returns a schedule of arrivals at the rates of consecutive segments.
-spec new([segment()], pattern()) -> schedule().
new(Segments, Pattern) ->
    {Placed, {Duration, Integral}} = lists:mapfoldl(fun place/2, {0, 0.0}, Segments),
    #schedule{segments = Placed, pattern = Pattern, duration = Duration, integral = Integral}.

place(Segment, {Start, Before}) ->
    Length = segment_duration(Segment),
    {#placed{segment = Segment, start = Start, before = Before}, {Start + Length, Before + integral(Segment, Length)}}.

segment_duration({constant, _, Duration}) -> Duration;
segment_duration({ramp, _, _, Duration}) -> Duration;
segment_duration({power, _, _, Duration}) -> Duration.

%% @doc Returns its length in nanoseconds.
-spec duration(schedule()) -> non_neg_integer().
duration(#schedule{duration = Duration}) -> Duration.

%% @doc Returns the number of arrivals.
-spec count(schedule()) -> non_neg_integer().
count(#schedule{integral = Integral}) -> round(Integral).

%% @doc Returns how many arrivals are due in the first `Time' nanoseconds by the rate. Random arrivals vary around
%% that.
-spec due_until(schedule(), integer()) -> non_neg_integer().
due_until(_Schedule, Time) when Time =< 0 -> 0;
due_until(#schedule{duration = Duration} = Schedule, Time) when Time >= Duration -> count(Schedule);
due_until(Schedule, Time) ->
    #placed{segment = Segment, start = Start, before = Before} = placed_at(Schedule, Time),
    round(Before + integral(Segment, Time - Start)).

%% @doc Returns the rate per second at a time: before the start the first rate, after the end 0.
-spec rate_at(schedule(), integer()) -> float().
rate_at(#schedule{duration = Duration}, Time) when Time >= Duration -> 0.0;
rate_at(Schedule, Time) ->
    #placed{segment = Segment, start = Start} = placed_at(Schedule, max(0, Time)),
    rate(Segment, max(0, Time) - Start).

placed_at(#schedule{segments = Segments}, Time) ->
    lists:last(lists:takewhile(fun(#placed{start = Start}) -> Start =< Time end, Segments)).

%% @doc Returns the arrivals of driver `Number', from 1, if `Of' drivers share the schedule.
-spec first(schedule(), Number :: pos_integer(), Of :: pos_integer()) -> arrivals().
first(#schedule{segments = Segments, pattern = even} = Schedule, Number, Of) ->
    Left = share(count(Schedule), Number, Of),
    #arrivals{segments = Segments, integral = Number - 0.5, left = Left, source = {even, float(Of)}};
first(#schedule{segments = Segments, pattern = {poisson, Seed}}, Number, Of) ->
    Random = rand:seed_s(exsss, {Seed, Number, Of}),
    enter(#arrivals{segments = Segments, integral = 0.0, left = 0, source = {poisson, Random, Number, Of}}).

%% The number of random arrivals is exact in each segment.
enter(#arrivals{segments = []} = Arrivals) ->
    Arrivals;
enter(#arrivals{segments = [Placed | _], source = {poisson, _, Number, Of}} = Arrivals) ->
    #placed{before = Before} = Placed,
    Count = round(whole(Placed)) - round(Before),
    step(Arrivals#arrivals{integral = Before, left = share(Count, Number, Of)}).

whole(#placed{segment = Segment, before = Before}) ->
    Before + integral(Segment, segment_duration(Segment)).

share(Count, Number, Of) ->
    (Count + Of - Number) div Of.

%% @doc Returns when the next arrival is due, in nanoseconds from the start, and the arrivals after it.
-spec next(arrivals()) -> {Due :: non_neg_integer(), arrivals()} | done.
next(#arrivals{left = 0, segments = [_ | [_ | _] = Rest], source = {poisson, _, _, _}} = Arrivals) ->
    next(enter(Arrivals#arrivals{segments = Rest}));
next(#arrivals{left = 0}) ->
    done;
next(
    #arrivals{segments = [_ | [#placed{before = Before} | _] = Rest], integral = Integral, source = {even, _}} =
        Arrivals
) when
    Integral >= Before
->
    next(Arrivals#arrivals{segments = Rest});
next(#arrivals{segments = [#placed{segment = Segment, start = Start, before = Before} | _]} = Arrivals) ->
    #arrivals{integral = Integral, left = Left} = Arrivals,
    Time = min(inverse(Segment, Integral - Before), segment_duration(Segment) - 1),
    {Start + Time, step(Arrivals#arrivals{left = Left - 1})}.

step(#arrivals{integral = Integral, source = {even, Step}} = Arrivals) ->
    Arrivals#arrivals{integral = Integral + Step};
step(#arrivals{left = 0} = Arrivals) ->
    Arrivals;
step(#arrivals{segments = [Placed | _], integral = Integral, left = Left, source = Source} = Arrivals) ->
    {poisson, Random, Number, Of} = Source,
    %% Given their number, the arrivals of a Poisson process are that many sorted uniform draws. The smallest of n
    %% draws from the rest of the segment can be computed without the others.
    {Uniform, Later} = rand:uniform_s(Random),
    Step = (whole(Placed) - Integral) * (1.0 - math:pow(1.0 - Uniform, 1 / Left)),
    Arrivals#arrivals{integral = Integral + Step, source = {poisson, Later, Number, Of}}.

%% Arrivals in the first Time nanoseconds of a segment.
integral({constant, Rate, _}, Time) ->
    Rate * Time / ?SECOND;
integral({ramp, From, To, Duration}, Time) ->
    (From + (To - From) * Time / Duration / 2) * Time / ?SECOND;
integral({power, Rate, Exponent, Duration}, Time) ->
    Rate * math:pow(Time / Duration, Exponent + 1) / (Exponent + 1) * Duration / ?SECOND.

rate({constant, Rate, _}, _Time) -> float(Rate);
rate({ramp, From, To, Duration}, Time) -> From + (To - From) * Time / Duration;
rate({power, Rate, Exponent, Duration}, Time) -> Rate * math:pow(Time / Duration, Exponent).

%% The nanosecond of a segment at which its integral has this value.
inverse(_Segment, Integral) when Integral =< 0 ->
    0;
inverse({constant, Rate, _}, Integral) ->
    round(Integral / Rate * ?SECOND);
inverse({ramp, From, To, Duration}, Integral) ->
    %% The root of slope/2 t^2 + from t - integral, in seconds, in the form that also works for a slope of 0.
    Slope = (To - From) / (Duration / ?SECOND),
    Root = math:sqrt(max(0.0, From * From + 2 * Slope * Integral)),
    round(2 * Integral / (From + Root) * ?SECOND);
inverse({power, Rate, Exponent, Duration}, Integral) ->
    Whole = Rate / (Exponent + 1) * Duration / ?SECOND,
    round(math:pow(Integral / Whole, 1 / (Exponent + 1)) * Duration).
