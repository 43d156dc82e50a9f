%% @doc What a process of this machine has used, by /proc.
-module(weir_load_proc).

-export([read/1]).
-export([rss/1]).

%% USER_HZ: the unit of times in /proc, 100 to the second on every architecture that Erlang runs on.
-define(TICK_NS, 10_000_000).

%% @doc CPU time and memory of a process.
-spec read(pos_integer()) -> {ok, weir_load_observer:reading()} | error.
read(Pid) ->
    Directory = "/proc/" ++ integer_to_list(Pid),
    case {file:read_file(Directory ++ "/stat"), file:read_file(Directory ++ "/status")} of
        {{ok, Stat}, {ok, Status}} ->
            %% The name may hold spaces and parentheses: fields are counted from behind the last of them. User and
            %% system time are the 14th and 15th, and the state behind the name is the third.
            Fields = string:lexemes(lists:last(string:split(Stat, ")", all)), " "),
            Ticks = binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields)),
            {ok, #{at => erlang:monotonic_time(nanosecond), cpu_ns => Ticks * ?TICK_NS, rss_bytes => rss(Status)}};
        _ ->
            error
    end.

%% @doc The bytes that a process has in memory, by its status.
-spec rss(Status :: binary()) -> non_neg_integer().
rss(Status) ->
    case re:run(Status, "VmRSS:\\s*([0-9]+) kB", [{capture, all_but_first, binary}]) of
        {match, [Kib]} -> binary_to_integer(Kib) * 1024;
        %% A process that has just ended has none.
        nomatch -> 0
    end.
