%% @doc Observes what a server uses during a run: a process of this machine through /proc, or an Erlang node through
%% distribution.
-module(weir_load_observer).

-export([new/1]).
-export([observe/1]).

-export_type([target/0, observer/0, observation/0, reading/0, pollset/0]).

%% The id of an operating system process, or a node.
-type target() :: pos_integer() | node().

%% What has been used until a moment. `at': nanoseconds of a monotonic clock. The last two are only of nodes.
%% `schedulers': the busy time and the total time of each scheduler. `pollsets': the pollsets of Weir as in
%% {@link weir:pollsets/0}, and those of reactors.
-type reading() :: #{
    at := integer(),
    cpu_ns := non_neg_integer(),
    rss_bytes := non_neg_integer(),
    schedulers => [{Busy :: non_neg_integer(), All :: non_neg_integer()}],
    pollsets => [#{atom() => term()}]
}.

%% What was used since the last observation. `cpu': how many cores were busy on average. `schedulers': the busy part of
%% each scheduler's time, from 0 to 1.
-type observation() :: #{
    cpu := float(),
    rss_bytes := non_neg_integer(),
    schedulers => [float()],
    pollsets => [pollset()]
}.

%% `sockets' is a number, `asleep' a part of the time from 0 to 1; the others are per second.
-type pollset() :: #{atom() => number()}.

-record(observer, {target :: target(), last :: reading()}).
-opaque observer() :: #observer{}.

-define(SECOND, 1_000_000_000).

%% @doc Starts to observe a target, until the caller ends. The error is a text.
-spec new(target()) -> {ok, observer()} | {error, iodata()}.
new(Pid) when is_integer(Pid) ->
    case weir_load_proc:read(Pid) of
        {ok, Reading} -> {ok, #observer{target = Pid, last = Reading}};
        error -> {error, ["no process ", integer_to_list(Pid), " to observe"]}
    end;
new(Node) ->
    case weir_load_emulator:attach(Node) of
        {ok, Reading} -> {ok, #observer{target = Node, last = Reading}};
        {error, _} = Error -> Error
    end.

%% @doc Returns what was used since the last call; `gone' if the target does not answer.
-spec observe(observer()) -> {ok, observation(), observer()} | {gone, observer()}.
observe(#observer{target = Target, last = Before} = Observer) ->
    Answer =
        case is_integer(Target) of
            true -> weir_load_proc:read(Target);
            false -> weir_load_emulator:read(Target)
        end,
    case Answer of
        {ok, Now} -> {ok, observation(Before, Now), Observer#observer{last = Now}};
        error -> {gone, Observer}
    end.

observation(#{at := AtBefore, cpu_ns := CpuBefore} = Before, #{at := At, cpu_ns := Cpu, rss_bytes := Rss} = Now) ->
    Time = max(1, At - AtBefore),
    maps:merge(
        #{cpu => thousandths((Cpu - CpuBefore) / Time), rss_bytes => Rss},
        maps:from_list(schedulers(Before, Now) ++ pollsets(Time, Before, Now))
    ).

schedulers(#{schedulers := Before}, #{schedulers := Now}) when length(Before) =:= length(Now) ->
    Share = fun({BusyBefore, AllBefore}, {Busy, All}) -> thousandths((Busy - BusyBefore) / max(1, All - AllBefore)) end,
    [{schedulers, lists:zipwith(Share, Before, Now)}];
schedulers(_Before, _Now) ->
    [].

pollsets(Time, #{pollsets := Before}, #{pollsets := Now}) ->
    [{pollsets, [
        pollset(Time, Old, Pollset)
     || #{pollset := Number} = Pollset <- Now, #{pollset := Same} = Old <- Before, Same =:= Number
    ]}];
pollsets(_Time, _Before, _Now) ->
    [].

pollset(Time, Before, #{pollset := Number, sockets := Sockets} = Now) ->
    Since = fun(Key) -> maps:get(Key, Now) - maps:get(Key, Before) end,
    Counters = [
        polls, empty_polls, events, sleeps, reads, read_bytes, writes, written_bytes, short_writes, accepts, moved_in,
        moved_out
    ],
    Rates = maps:from_list([{Key, round(Since(Key) * ?SECOND / Time)} || Key <- Counters, is_map_key(Key, Now)]),
    %% A sleep is counted when it ends. A pollset that has not polled at all was asleep all the time.
    Asleep =
        case Since(polls) of
            0 -> 1.0;
            _ -> thousandths(min(1, Since(asleep_ns) / Time))
        end,
    Rates#{pollset => Number, sockets => Sockets, asleep => Asleep}.

thousandths(Number) -> round(Number * 1000) / 1000.
