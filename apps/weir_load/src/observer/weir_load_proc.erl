%% @doc Reads from /proc what a process of this machine has used.
-module(weir_load_proc).

-export([read/1]).
-export([rss/1]).

%% Nanoseconds of a clock tick. USER_HZ, the unit of times in /proc, is 100 on every architecture that Erlang runs on.
-define(TICK_NS, 10_000_000).

%% @doc Returns the CPU time and memory of a process.
-spec read(pos_integer()) -> {ok, weir_load_observer:reading()} | error.
read(Pid) ->
    Directory = "/proc/" ++ integer_to_list(Pid),
    case {file:read_file(Directory ++ "/stat"), file:read_file(Directory ++ "/status")} of
        {{ok, Stat}, {ok, Status}} ->
            %% The process name may contain spaces and parentheses, so count fields after the last parenthesis. User
            %% and system time are fields 14 and 15; the first field after the name is the third.
            Fields = string:lexemes(lists:last(string:split(Stat, ")", all)), " "),
            Ticks = binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields)),
            {ok, #{at => erlang:monotonic_time(nanosecond), cpu_ns => Ticks * ?TICK_NS, rss_bytes => rss(Status)}};
        _ ->
            error
    end.

%% @doc Returns the resident bytes of a process from the text of its status file.
-spec rss(Status :: binary()) -> non_neg_integer().
rss(Status) ->
    case re:run(Status, "VmRSS:\\s*([0-9]+) kB", [{capture, all_but_first, binary}]) of
        {match, [Kib]} -> binary_to_integer(Kib) * 1024;
        %% A process that has just ended has no VmRSS.
        nomatch -> 0
    end.
