%% @doc Computes how long replies took in a second, with the columns of tcprstat, from the histograms of Weir's
%% listeners.
-module(weir_scope_latency).

-export([between/2]).
-export([together/1]).
-export([figures/1]).
-export([steps/1]).

-export_type([times/0, figures/0]).

-type times() :: [{Nanoseconds :: non_neg_integer(), Count :: pos_integer()}].
%% A histogram: `Count' replies took about `Nanoseconds', within 1.6 percent. The shortest first.

-type figures() :: #{
    count := non_neg_integer(),
    max := float(),
    min := float(),
    avg := float(),
    med := float(),
    stddev := float(),
    '95_max' := float(),
    '95_avg' := float(),
    '95_std' := float(),
    '99_max' := float(),
    '99_avg' := float(),
    '99_std' := float(),
    p90 := float(),
    p999 := float()
}.
%% Microseconds, as in tcprstat. `max', `min', `avg', `med' (median) and `stddev' cover all replies. `95_max', `95_avg'
%% and `95_std' cover the fastest 95 percent, so `95_max' is the 95th percentile. All are zero if there was no reply.

%% @doc Returns what was added to a growing histogram between two readings. If it was reset in between, returns the
%% second reading.
-spec between(times(), times()) -> times().
between(Before, After) ->
    Since = since(Before, After),
    case lists:all(fun({_, Count}) -> Count >= 0 end, Since) of
        true -> [Some || {_, Count} = Some <- Since, Count > 0];
        false -> After
    end.

since([{Time, Count} | Before], [{Time, More} | After]) -> [{Time, More - Count} | since(Before, After)];
since([{Time, _} | _] = Before, [{Other, _} = First | After]) when Other < Time -> [First | since(Before, After)];
since([{Time, Count} | Before], After) -> [{Time, -Count} | since(Before, After)];
since([], After) -> After.

%% @doc Merges several histograms.
-spec together([times()]) -> times().
together(All) ->
    Sums = lists:foldl(
        fun({Time, Count}, Known) -> maps:update_with(Time, fun(Sum) -> Sum + Count end, Count, Known) end,
        #{},
        lists:append(All)
    ),
    lists:sort(maps:to_list(Sums)).

%% @doc Returns the figures of a histogram.
-spec figures(times()) -> figures().
figures(Times) ->
    Count = lists:sum([Some || {_, Some} <- Times]),
    {Average, Deviation} = spread(Times),
    {Average95, Deviation95} = spread(least(Times, part(Count, 950))),
    {Average99, Deviation99} = spread(least(Times, part(Count, 990))),
    #{
        count => Count,
        max => at(Times, Count),
        min => at(Times, min(1, Count)),
        avg => Average,
        med => at(Times, part(Count, 500)),
        stddev => Deviation,
        '95_max' => at(Times, part(Count, 950)),
        '95_avg' => Average95,
        '95_std' => Deviation95,
        '99_max' => at(Times, part(Count, 990)),
        '99_avg' => Average99,
        '99_std' => Deviation99,
        p90 => at(Times, part(Count, 900)),
        p999 => at(Times, part(Count, 999))
    }.

%% The given thousandths of a count, rounded up.
part(Count, Thousandths) -> (Count * Thousandths + 999) div 1000.

%% The last step counts all replies that took 2^23 microseconds (8.4 s) or more.
-define(LAST_STEP, 23).

%% @doc Returns how many replies took from `Microseconds', a power of two, to twice that. These are always the same 24
%% steps, so that they can be kept over time. The first step includes replies below a microsecond.
-spec steps(times()) -> [{Microseconds :: pos_integer(), Count :: non_neg_integer()}].
steps(Times) ->
    Counts = lists:foldl(
        fun({Time, Count}, Known) ->
            maps:update_with(step(Time div 2000, 0), fun(Sum) -> Sum + Count end, Count, Known)
        end,
        #{},
        Times
    ),
    [{1 bsl Step, maps:get(Step, Counts, 0)} || Step <- lists:seq(0, ?LAST_STEP)].

step(0, Step) -> Step;
step(_, ?LAST_STEP) -> ?LAST_STEP;
step(Half, Step) -> step(Half div 2, Step + 1).

%% The time of the N-th fastest, in microseconds.
at(_Times, 0) -> 0.0;
at([{Time, Count} | _], N) when N =< Count -> Time / 1000;
at([{_, Count} | Times], N) -> at(Times, N - Count).

%% The N fastest.
least(_Times, 0) -> [];
least([{Time, Count} | _], N) when N =< Count -> [{Time, N}];
least([{_, Count} = Some | Times], N) -> [Some | least(Times, N - Count)].

%% Mean and standard deviation, in microseconds.
spread([]) ->
    {0.0, 0.0};
spread(Times) ->
    Count = lists:sum([Some || {_, Some} <- Times]),
    Mean = lists:sum([Time * Some || {Time, Some} <- Times]) / Count,
    Squares = lists:sum([(Time - Mean) * (Time - Mean) * Some || {Time, Some} <- Times]),
    {Mean / 1000, math:sqrt(Squares / Count) / 1000}.
