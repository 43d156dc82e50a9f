%% @doc What a server uses meanwhile: CPU time and memory of a process of this machine, from /proc.
-module(weir_load_observer).

-export([new/1]).
-export([observe/1]).

-export_type([target/0, observer/0, observation/0]).

%% A process of the operating system.
-type target() :: pos_integer().

%% `cpu' is how many cores were busy since the last observation, on average.
-type observation() :: #{cpu := float(), rss_bytes := non_neg_integer()}.

-record(observer, {pid :: target(), at :: integer(), cpu :: non_neg_integer()}).
-opaque observer() :: #observer{}.

%% USER_HZ: the unit of times in /proc, 100 to the second on every architecture that Erlang runs on.
-define(TICKS, 100).

-define(SECOND, 1_000_000_000).

%% @doc Begins to observe. The error says what is wrong.
-spec new(target()) -> {ok, observer()} | {error, iodata()}.
new(Pid) ->
    case read(Pid) of
        {ok, Cpu, _Rss} -> {ok, #observer{pid = Pid, at = erlang:monotonic_time(nanosecond), cpu = Cpu}};
        error -> {error, ["no process ", integer_to_list(Pid), " to observe"]}
    end.

%% @doc What was used since the last time.
-spec observe(observer()) -> {ok, observation(), observer()} | {gone, observer()}.
observe(#observer{pid = Pid, at = Before, cpu = CpuBefore} = Observer) ->
    case read(Pid) of
        {ok, Cpu, Rss} ->
            Now = erlang:monotonic_time(nanosecond),
            Cores = (Cpu - CpuBefore) / ?TICKS / (max(1, Now - Before) / ?SECOND),
            {ok, #{cpu => round(Cores * 1000) / 1000, rss_bytes => Rss}, Observer#observer{at = Now, cpu = Cpu}};
        error ->
            {gone, Observer}
    end.

read(Pid) ->
    Directory = "/proc/" ++ integer_to_list(Pid),
    case {file:read_file(Directory ++ "/stat"), file:read_file(Directory ++ "/status")} of
        {{ok, Stat}, {ok, Status}} ->
            %% The name may hold spaces and parentheses: fields are counted from behind the last of them. User and
            %% system time are the 14th and 15th, and the state behind the name is the third.
            Fields = string:lexemes(lists:last(string:split(Stat, ")", all)), " "),
            Cpu = binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields)),
            Rss =
                case re:run(Status, "VmRSS:\\s*([0-9]+) kB", [{capture, all_but_first, binary}]) of
                    {match, [Kib]} -> binary_to_integer(Kib) * 1024;
                    %% A process that has just ended has none.
                    nomatch -> 0
                end,
            {ok, Cpu, Rss};
        _ ->
            error
    end.
