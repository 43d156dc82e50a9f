%% @private
%% @doc How long the callbacks of a reactor take: counters that only grow, written by the reactor and read by anybody, who asks nobody.
%%
%% All batches of events are counted, with what they took. How long each `handle_data/3' took is a histogram, while that is measured: times
%% are told apart to 128 ns, and from 1 µs on to an eighth of themselves.
-module(weir_reactor_times).

-export([new/0]).
-export([measures/2]).
-export([batch/3]).
-export([callback/2]).
-export([totals/1]).
-export([seen/1]).

-export_type([times/0]).

-opaque times() :: counters:counters_ref().

%% Where things are.
-define(CALLBACKS, 1).
-define(TIME, 2).
-define(MEASURED, 3).
-define(FIRST, 4).

%% 2^UNIT is the least that is told apart, in native units: nanoseconds, where there is a native part. Beyond it there are 2^PARTS steps to
%% a power of two.
-define(UNIT, 7).
-define(PARTS, 3).

%% 137 seconds, in units: what takes longer counts as that.
-define(LONGEST, 16#3fffffff).

-define(STEPS, 224).

-spec new() -> times().
new() -> counters:new(?FIRST + ?STEPS - 1, []).

%% @doc Notes whether callbacks are measured, for those who read.
-spec measures(boolean(), times()) -> ok.
measures(true, Times) -> counters:put(Times, ?MEASURED, 1);
measures(false, Times) -> counters:put(Times, ?MEASURED, 0).

%% @doc So many events took so long, in native units.
-spec batch(Events :: pos_integer(), Took :: integer(), times()) -> ok.
batch(Events, Took, Times) ->
    ok = counters:add(Times, ?CALLBACKS, Events),
    counters:add(Times, ?TIME, Took).

%% @doc One callback took so long, in native units.
-spec callback(Took :: integer(), times()) -> ok.
callback(Took, Times) -> counters:add(Times, ?FIRST + step(min(Took bsr ?UNIT, ?LONGEST)), 1).

step(Units) when Units < 1 bsl ?PARTS -> Units;
step(Units) ->
    Halvings = log2(Units, 0) - ?PARTS,
    (Halvings bsl ?PARTS) + (Units bsr Halvings).

log2(Number, Power) when Number >= 1 bsl 16 -> log2(Number bsr 16, Power + 16);
log2(Number, Power) when Number >= 1 bsl 8 -> log2(Number bsr 8, Power + 8);
log2(Number, Power) when Number >= 1 bsl 4 -> log2(Number bsr 4, Power + 4);
log2(Number, Power) when Number >= 1 bsl 2 -> log2(Number bsr 2, Power + 2);
log2(Number, Power) -> Power + (Number bsr 1).

%% @doc How many events there were, and how long their callbacks took together.
-spec totals(times()) -> #{callbacks := non_neg_integer(), callback_ns := non_neg_integer()}.
totals(Times) ->
    #{callbacks => counters:get(Times, ?CALLBACKS), callback_ns => nanoseconds(counters:get(Times, ?TIME))}.

%% @doc Whether callbacks are measured, and how many took about so long, the shortest first.
-spec seen(times()) -> #{measured := boolean(), times := [{Nanoseconds :: non_neg_integer(), Count :: pos_integer()}]}.
seen(Times) ->
    Counts = [{Step, counters:get(Times, ?FIRST + Step)} || Step <- lists:seq(0, ?STEPS - 1)],
    #{
        measured => counters:get(Times, ?MEASURED) =:= 1,
        times => [{nanoseconds(middle(Step)), Count} || {Step, Count} <- Counts, Count > 0]
    }.

middle(Step) ->
    Halvings = max(0, (Step bsr ?PARTS) - 1),
    ((Step - (Halvings bsl ?PARTS)) bsl (Halvings + ?UNIT)) + (1 bsl (Halvings + ?UNIT)) div 2.

nanoseconds(Native) -> erlang:convert_time_unit(Native, native, nanosecond).
