%% @doc What it costs to read the time, measured on the node.
-module(weir_scope_clocks).

-export([costs/0]).

-export_type([cost/0]).

-type cost() :: #{clock := atom(), ns := float()}.

%% Each is read so often, in each of five rounds: some milliseconds of one scheduler, which may run others in between.
-define(TIMES, 20_000).

%% @doc Nanoseconds that a call of each clock takes, with what the call of a fun costs: the median of five rounds. It takes about fifty
%% milliseconds of one scheduler.
-spec costs() -> [cost()].
costs() ->
    Clocks = [
        {monotonic_time, fun erlang:monotonic_time/0},
        {system_time, fun erlang:system_time/0},
        {timestamp, fun erlang:timestamp/0},
        {os_system_time, fun os:system_time/0},
        {os_timestamp, fun os:timestamp/0},
        {os_perf_counter, fun os:perf_counter/0}
    ],
    [#{clock => Name, ns => lists:nth(3, lists:sort([round_of(Clock) || _ <- lists:seq(1, 5)]))} || {Name, Clock} <- Clocks].

round_of(Clock) ->
    Begin = erlang:monotonic_time(nanosecond),
    ok = read(Clock, ?TIMES),
    (erlang:monotonic_time(nanosecond) - Begin) / ?TIMES.

read(_Clock, 0) ->
    ok;
read(Clock, Left) ->
    _ = Clock(),
    read(Clock, Left - 1).
