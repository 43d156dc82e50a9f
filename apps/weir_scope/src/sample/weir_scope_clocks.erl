%% @doc The clocks of a node: the kernel's clock source, the time settings of the VM, and the cost of reading each
%% clock.
-module(weir_scope_clocks).

-export([all/1]).
-export([settings/1]).
-export([costs/0]).

-export_type([clocks/0, settings/0, cost/0]).

-type clocks() :: #{settings := settings(), costs => [cost()]}.

-type settings() :: #{
    clock_source => binary(),
    time_correction := boolean(),
    time_warp_mode := no_time_warp | single_time_warp | multi_time_warp,
    time_offset := preliminary | final | volatile,
    clock_difference := integer()
}.
%% `clock_source': of the kernel; only on Linux. `time_correction', `time_warp_mode' and `time_offset': as in
%% `erlang:system_info/1'. `clock_difference': milliseconds by which the VM's system time is ahead of that of the
%% operating system.

-type cost() :: #{clock := atom(), ns := float()}.

%% Reads of each clock in each of five rounds. All take some milliseconds of one scheduler, which may run other
%% processes in between.
-define(TIMES, 4_000).

%% @doc Returns settings and costs. Costs can only be measured on the node itself, so `costs' is absent from another
%% node.
-spec all(weir_scope_facts:ask()) -> clocks().
all(Ask) ->
    maps:merge(
        #{settings => settings(Ask)},
        case Ask =:= fun erlang:apply/3 of
            true -> #{costs => costs()};
            false -> #{}
        end
    ).

-spec settings(weir_scope_facts:ask()) -> settings().
settings(Ask) ->
    Info = fun(Item) -> Ask(erlang, system_info, [Item]) end,
    Own = #{
        time_correction => Info(time_correction),
        time_warp_mode => Info(time_warp_mode),
        time_offset => Info(time_offset),
        clock_difference => Ask(erlang, system_time, [millisecond]) - Ask(os, system_time, [millisecond])
    },
    case weir_scope_files:text(Ask, "/sys/devices/system/clocksource/clocksource0/current_clocksource") of
        unknown -> Own;
        Text -> Own#{clock_source => string:trim(Text)}
    end.

%% @doc Measures how many nanoseconds a call of each clock takes, the call of a fun included: the median of five
%% rounds. Takes about ten milliseconds of one scheduler.
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
    [
        #{clock => Name, ns => lists:nth(3, lists:sort([round_of(Clock) || _ <- lists:seq(1, 5)]))}
     || {Name, Clock} <- Clocks
    ].

round_of(Clock) ->
    Begin = erlang:monotonic_time(nanosecond),
    ok = read(Clock, ?TIMES),
    (erlang:monotonic_time(nanosecond) - Begin) / ?TIMES.

read(_Clock, 0) ->
    ok;
read(Clock, Left) ->
    _ = Clock(),
    read(Clock, Left - 1).
