%% @private
%% @doc The times of a reactor's callbacks: counters that only grow. The reactor writes them, and any process reads
%% them without a call.
%%
%% All batches of events are counted, with their times. While measuring is on, the times of `handle_data/3' are in a
%% histogram with steps of 128 ns, and from 1 µs on of an eighth of the time.
-module(weir_reactor_times).

-export([new/0]).
-export([measures/2]).
-export([batch/3]).
-export([callback/2]).
-export([totals/1]).
-export([seen/1]).

-export_type([times/0]).

-opaque times() :: counters:counters_ref().

%% Indexes of the counters.
-define(CALLBACKS, 1).
-define(TIME, 2).
-define(MEASURED, 3).
-define(FIRST, 4).

%% 2^UNIT native units, which are nanoseconds on supported systems, is the smallest step. Above 1 µs there are 2^PARTS
%% steps to a power of two.
-define(UNIT, 7).
-define(PARTS, 3).

%% 137 seconds, in units of 2^UNIT; longer times count as this.
-define(LONGEST, 16#3fffffff).

-define(STEPS, 224).

-spec new() -> times().
new() -> counters:new(?FIRST + ?STEPS - 1, []).

%% @doc Records whether callbacks are measured, for readers.
-spec measures(boolean(), times()) -> ok.
measures(true, Times) -> counters:put(Times, ?MEASURED, 1);
measures(false, Times) -> counters:put(Times, ?MEASURED, 0).

%% @doc Adds the time of a batch of events, in native units.
-spec batch(Events :: pos_integer(), Took :: integer(), times()) -> ok.
batch(Events, Took, Times) ->
    ok = counters:add(Times, ?CALLBACKS, Events),
    counters:add(Times, ?TIME, Took).

%% @doc Adds the time of one callback to the histogram, in native units.
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

%% @doc Returns the number of events, and the total time of their callbacks.
-spec totals(times()) -> #{callbacks := non_neg_integer(), callback_ns := non_neg_integer()}.
totals(Times) ->
    #{callbacks => counters:get(Times, ?CALLBACKS), callback_ns => nanoseconds(counters:get(Times, ?TIME))}.

%% @doc Returns whether callbacks are measured, and the histogram, shortest times first.
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
