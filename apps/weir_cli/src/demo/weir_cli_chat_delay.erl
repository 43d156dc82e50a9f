%% @doc A histogram of the delays of messages. Many processes write to it. Its figures are accurate to 1/16.
-module(weir_cli_chat_delay).

-export([new/0]).
-export([record/2]).
-export([take/1]).

-export_type([delays/0, summary/0]).

-opaque delays() :: counters:counters_ref().

-type summary() :: #{count := non_neg_integer(), p50 := number(), p99 := number(), most := number()}.
%% `p50', `p99' and `most' are milliseconds.

%% 16 counters for 0 to 15 microseconds, then 16 for each power of two up to 2^30.
-define(COUNTERS, 28 * 16).

-spec new() -> delays().
new() -> counters:new(?COUNTERS, [write_concurrency]).

%% @doc Adds a delay in microseconds.
-spec record(integer(), delays()) -> ok.
record(Microseconds, Delays) -> counters:add(Delays, 1 + index(max(0, Microseconds)), 1).

index(Value) when Value < 16 -> Value;
index(Value) ->
    Exponent = trunc(math:log2(Value)),
    min(?COUNTERS - 1, (Exponent - 3) * 16 + ((Value bsr (Exponent - 4)) band 15)).

%% The middle of a counter's range, in milliseconds.
value(Index) when Index < 16 -> Index / 1000;
value(Index) -> (16 + Index rem 16 + 0.5) * (1 bsl (Index div 16 - 1)) / 1000.

%% @doc Returns a summary of the delays recorded since the last call.
-spec take(delays()) -> summary().
take(Delays) ->
    Counts = [
        {Index, Count}
     || Index <- lists:seq(0, ?COUNTERS - 1), Count <- [counters:get(Delays, Index + 1)], Count > 0
    ],
    lists:foreach(fun({Index, Count}) -> counters:sub(Delays, Index + 1, Count) end, Counts),
    All = lists:sum([Count || {_, Count} <- Counts]),
    #{
        count => All,
        p50 => quantile(0.5 * All, Counts),
        p99 => quantile(0.99 * All, Counts),
        most => quantile(All, Counts)
    }.

quantile(_Rank, []) -> 0;
quantile(_Rank, [{Index, _}]) -> value(Index);
quantile(Rank, [{Index, Count} | _]) when Count >= Rank -> value(Index);
quantile(Rank, [{_, Count} | Counts]) -> quantile(Rank - Count, Counts).
