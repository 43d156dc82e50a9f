%% @doc A sample of a node: one map, and the same as named numbers for histories and exporters.
-module(weir_scope_sample).

-export([open/1]).
-export([read/2, read/3]).
-export([between/2]).
-export([numbers/1]).

-export_type([sources/0, reading/0, sample/0, name/0]).

-opaque sources() :: #{
    schedulers := weir_scope_schedulers:sources(),
    memory := weir_scope_memory:sources(),
    machine := weir_scope_machine:sources()
}.

-opaque reading() :: #{atom() => term()}.

-type sample() :: #{
    at := integer(),
    over := float(),
    node := node(),
    schedulers := [weir_scope_schedulers:scheduler()],
    threads := [weir_scope_schedulers:thread()],
    activity := weir_scope_activity:activity(),
    memory := weir_scope_memory:memory(),
    machine := weir_scope_machine:machine(),
    weir := weir_scope_engine:engine() | none,
    cost => #{us := non_neg_integer(), reductions := non_neg_integer()},
    failures => pos_integer(),
    failing => binary()
}.
%% `at': milliseconds since 1970, by the node's clock. `over': the seconds that it covers. `cost': microseconds and
%% reductions of the sample before. `failures': failed samples since the sampler started, if any. `failing': why the
%% last sample has failed; then this one is older.

-type name() :: binary().
%% As in `scheduler.normal.1.utilisation', `memory.binary', `pollset.3.times'.

%% @doc Opens what {@link read/2} needs. The same process has to call both.
-spec open(weir_scope_facts:ask()) -> sources().
open(Ask) ->
    #{
        schedulers => weir_scope_schedulers:open(Ask),
        memory => weir_scope_memory:open(Ask),
        machine => weir_scope_machine:open(Ask)
    }.

%% @doc Makes the first reading.
-spec read(weir_scope_facts:ask(), sources()) -> reading().
read(Ask, Sources) -> read(Ask, Sources, #{weir => none}).

%% @doc Makes a reading after another one.
-spec read(weir_scope_facts:ask(), sources(), Before :: reading()) -> reading().
read(Ask, #{schedulers := Schedulers, memory := Memory, machine := Machine}, #{weir := Engine}) ->
    Ns = Ask(erlang, monotonic_time, [nanosecond]),
    #{
        ns => Ns,
        %% The same moment as `ns'. A second call would be later, by more for a distant or busy node.
        at => (Ns + Ask(erlang, time_offset, [nanosecond])) div 1_000_000,
        node => Ask(erlang, node, []),
        schedulers => weir_scope_schedulers:read(Ask, Schedulers),
        activity => weir_scope_activity:read(Ask),
        memory => weir_scope_memory:read(Ask, Memory),
        machine => weir_scope_machine:read(Ask, Machine),
        weir => weir_scope_engine:read(Ask, Engine)
    }.

%% @doc Returns what has happened between two readings.
-spec between(reading(), reading()) -> sample().
between(#{ns := Begin} = Before, #{ns := End, at := At, node := Node, memory := Memory} = After) ->
    Ns = max(1, End - Begin),
    Of = fun(Key, Module) -> Module:between(maps:get(Key, Before), maps:get(Key, After), Ns) end,
    maps:merge(Of(schedulers, weir_scope_schedulers), #{
        at => At,
        over => Ns / 1_000_000_000,
        node => Node,
        activity => Of(activity, weir_scope_activity),
        memory => Memory,
        machine => Of(machine, weir_scope_machine),
        weir => Of(weir, weir_scope_engine)
    }).

%% @doc Returns the numbers of a sample. Their order stays the same while the node has the same schedulers, allocators,
%% pollsets and so on. There are none for single listeners and foreign threads, so that histories do not grow with
%% these. `latency.*' covers all listeners that measure latency; `latency.from_us.4' counts the replies that took from
%% 4 to 8 microseconds.
-spec numbers(sample()) -> [{name(), float()}].
numbers(
    #{schedulers := Schedulers, activity := Activity, memory := Memory, machine := Machine, weir := Weir} = Sample
) ->
    #{rates := Rates, counts := Counts, check_io := CheckIo} = Activity,
    [
        {name(Path), float(Number)}
     || {Path, Number} <-
            lists:append([
                [
                    {[scheduler, Kind, Number, Key], Value}
                 || #{kind := Kind, number := Number} = Scheduler <- Schedulers,
                    {Key, Value} <- sorted(Scheduler),
                    is_number(Value),
                    Key =/= number
                ],
                prefixed([vm], Rates),
                prefixed([vm], Counts),
                [
                    {[poll_set, Index, Key], Value}
                 || {Index, Set} <- numbered(CheckIo), {Key, Value} <- sorted(maps:with([descriptors, active], Set))
                ],
                prefixed([memory], maps:get(kinds, Memory)),
                prefixed([memory], maps:with([carriers, blocks, rss, swap], Memory)),
                [
                    {[allocator, Name, Key], Value}
                 || #{name := Name} = Allocator <- maps:get(allocators, Memory),
                    {Key, Value} <- sorted(maps:with([carriers, blocks], Allocator))
                ],
                prefixed([machine], Machine),
                engine(Weir),
                [{[scope, us], Us} || #{cost := #{us := Us}} <- [Sample]]
            ])
    ].

engine(none) ->
    [];
engine(#{pollsets := Pollsets, listeners := Listeners} = Weir) ->
    prefixed([weir], maps:get(counts, Weir, #{})) ++
        [
            {[pollset, Number, Key], Value}
         || #{pollset := Number} = Pollset <- Pollsets,
            {Key, Value} <- sorted(maps:without([pollset, scheduler, totals], Pollset))
        ] ++
        [
            {[reactor, Number, Key], Value}
         || #{pollset := Number} = Reactor <- maps:get(reactors, Weir, []),
            {Key, Value} <- sorted(maps:with([callbacks, busy, mean_us], Reactor))
        ] ++
        [
            {[listeners, Key], lists:sum([Value || #{Key := Value} <- Listeners, is_number(Value)])}
         || Key <- [accepted, backlog, connections, denied, overload, waiting]
        ] ++
        [{[listeners, measured], length([measured || #{latency := _} <- Listeners])}] ++
        latency(
            weir_scope_latency:together([[{Time, Count} || [Time, Count] <- Times] || #{times := Times} <- Listeners])
        ).

latency(Times) ->
    prefixed([latency], weir_scope_latency:figures(Times)) ++
        [{[latency, from_us, Step], Count} || {Step, Count} <- weir_scope_latency:steps(Times)].

prefixed(Prefix, Map) ->
    [{Prefix ++ [Key], Value} || {Key, Value} <- sorted(Map), is_number(Value)].

sorted(Map) -> lists:sort(maps:to_list(Map)).

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

name(Path) -> iolist_to_binary(lists:join($., [part(Part) || Part <- Path])).

part(Number) when is_integer(Number) -> integer_to_binary(Number);
part(Atom) -> atom_to_binary(Atom).
