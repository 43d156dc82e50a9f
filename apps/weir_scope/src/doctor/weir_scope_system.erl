%% @doc Facts of Linux about the VM's process, its network and its control group (proc(5), cgroups(7)).
-module(weir_scope_system).

-export([facts/1]).
-export([counters/1]).

%% @doc Returns the facts that can be read:
%% <dl>
%% <dt>`descriptors'</dt><dd>`{Open, Limit}'</dd>
%% <dt>`rss', `swap'</dt><dd>bytes of the process in memory and in swap</dd>
%% <dt>`cpus'</dt><dd>processors that the control group may use, a float; absent without a quota</dd>
%% <dt>`memory_limit'</dt><dd>`{Used, Limit}' of the control group, bytes</dd>
%% <dt>`cpu_pressure'</dt><dd>percent of the last ten seconds in which a task waited for a processor</dd>
%% <dt>`connections_tracked'</dt><dd>`{Number, Limit}' of conntrack</dd>
%% <dt>`tcp_memory'</dt><dd>`{Used, Pressure, Limit}' of all TCP sockets, bytes</dd>
%% <dt>`somaxconn'</dt><dd>the largest backlog</dd>
%% </dl>
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Status = weir_scope_files:table(weir_scope_files:text(Ask, "/proc/self/status"), ":"),
    Found = #{
        descriptors => descriptors(Ask),
        rss => kilobytes(maps:get(<<"VmRSS">>, Status, unknown)),
        swap => kilobytes(maps:get(<<"VmSwap">>, Status, unknown)),
        cpus => cpus(Ask),
        memory_limit => memory_limit(Ask),
        cpu_pressure => pressure(weir_scope_files:text(Ask, "/proc/pressure/cpu")),
        connections_tracked => pair(
            weir_scope_files:number(weir_scope_files:text(Ask, "/proc/sys/net/netfilter/nf_conntrack_count")),
            weir_scope_files:number(weir_scope_files:text(Ask, "/proc/sys/net/netfilter/nf_conntrack_max"))
        ),
        tcp_memory => tcp_memory(Ask),
        somaxconn => weir_scope_files:number(weir_scope_files:text(Ask, "/proc/sys/net/core/somaxconn"))
    },
    maps:filter(fun(_, Value) -> Value =/= unknown end, Found).

%% @doc Returns counters that only grow: `ns', the time; `listen_overflows', `listen_drops', `memory_pressures' and
%% `pruned' of TCP; `throttled_us' of the control group; `scheduler_cpu_ns', CPU time of all scheduler threads;
%% `scheduler_busy_ns', the time in which they ran something; `poller_cpu_ns', CPU time of each poll thread of the VM,
%% by name.
-spec counters(weir_scope_facts:ask()) -> #{atom() => integer() | #{binary() => integer()}}.
counters(Ask) ->
    Threads = threads(Ask),
    Tcp = netstat(weir_scope_files:text(Ask, "/proc/net/netstat")),
    Stat = weir_scope_files:table(weir_scope_files:text(Ask, weir_scope_files:cgroup(Ask, "cpu.stat")), " "),
    Found = #{
        ns => Ask(erlang, monotonic_time, [nanosecond]),
        listen_overflows => maps:get(<<"ListenOverflows">>, Tcp, unknown),
        listen_drops => maps:get(<<"ListenDrops">>, Tcp, unknown),
        memory_pressures => maps:get(<<"TCPMemoryPressures">>, Tcp, unknown),
        pruned => maps:get(<<"PruneCalled">>, Tcp, unknown),
        throttled_us => weir_scope_files:number(maps:get(<<"throttled_usec">>, Stat, unknown)),
        scheduler_cpu_ns => scheduler_cpu(Threads),
        poller_cpu_ns => poller_cpu(Threads),
        scheduler_busy_ns => scheduler_busy(Ask)
    },
    maps:filter(fun(_, Value) -> Value =/= unknown end, Found).

kilobytes(Text) ->
    case weir_scope_files:number(Text) of
        unknown -> unknown;
        Number -> Number * 1024
    end.

pair(unknown, _) -> unknown;
pair(_, unknown) -> unknown;
pair(Number, Limit) -> {Number, Limit}.

descriptors(Ask) ->
    Limits = weir_scope_files:text(Ask, "/proc/self/limits"),
    case
        {
            Ask(prim_file, list_dir, ["/proc/self/fd"]),
            Limits =/= unknown andalso re:run(Limits, "Max open files +([0-9]+)", [{capture, [1], binary}])
        }
    of
        {{ok, Names}, {match, [Limit]}} -> {length(Names), binary_to_integer(Limit)};
        _ -> unknown
    end.

cpus(Ask) ->
    Quota = weir_scope_files:text(Ask, weir_scope_files:cgroup(Ask, "cpu.max")),
    case Quota =/= unknown andalso string:lexemes(Quota, " \n") of
        [Used, Period] when Used =/= <<"max">> -> binary_to_integer(Used) / binary_to_integer(Period);
        _ -> unknown
    end.

memory_limit(Ask) ->
    pair(
        weir_scope_files:number(weir_scope_files:text(Ask, weir_scope_files:cgroup(Ask, "memory.current"))),
        weir_scope_files:number(weir_scope_files:text(Ask, weir_scope_files:cgroup(Ask, "memory.max")))
    ).

pressure(unknown) ->
    unknown;
pressure(Text) ->
    case re:run(Text, "^some avg10=([0-9.]+)", [{capture, [1], binary}]) of
        {match, [Percent]} -> binary_to_float(Percent);
        nomatch -> unknown
    end.

%% Both files count in pages of 4,096 bytes.
tcp_memory(Ask) ->
    Used = weir_scope_files:text(Ask, "/proc/net/sockstat"),
    Limits = weir_scope_files:text(Ask, "/proc/sys/net/ipv4/tcp_mem"),
    case
        {Used =/= unknown andalso re:run(Used, "^TCP: .* mem ([0-9]+)", [multiline, {capture, [1], binary}]), Limits}
    of
        {{match, [Pages]}, <<_/binary>>} ->
            [_Low, Pressure, High] = [binary_to_integer(Number) || Number <- string:lexemes(Limits, " \t\n")],
            {binary_to_integer(Pages) * 4096, Pressure * 4096, High * 4096};
        _ ->
            unknown
    end.

%% Pairs of lines: names, then numbers.
netstat(unknown) ->
    #{};
netstat(Text) ->
    Lines = [string:lexemes(Line, " ") || Line <- binary:split(Text, <<"\n">>, [global]), Line =/= <<>>],
    maps:from_list(paired(Lines)).

paired([[Kind | Names], [Kind | Numbers] | Lines]) ->
    lists:zip(Names, [binary_to_integer(Number) || Number <- Numbers]) ++ paired(Lines);
paired(_) ->
    [].

%% The CPU time of each thread of the VM, by the kernel's count.
threads(Ask) ->
    case Ask(prim_file, list_dir, ["/proc/self/task"]) of
        {ok, Threads} -> lists:append([thread(Ask, "/proc/self/task/" ++ Thread) || Thread <- Threads]);
        {error, _} -> unknown
    end.

thread(Ask, Thread) ->
    case weir_scope_files:text(Ask, Thread ++ "/comm") of
        unknown ->
            [];
        Name ->
            [
                {string:trim(Name), Time}
             || Time <- [weir_scope_files:number(weir_scope_files:text(Ask, Thread ++ "/schedstat"))], Time =/= unknown
            ]
    end.

%% Threads are called `1_scheduler' and `0_poller' in OTP 25, and `erts_sched_1' and `erts_poll_0' from OTP 26 on.
scheduler_cpu(unknown) ->
    unknown;
scheduler_cpu(Threads) ->
    lists:sum([Time || {Name, Time} <- Threads, is_called(Name, "^([0-9]+_scheduler|erts_sched_[0-9]+)$")]).

poller_cpu(unknown) ->
    unknown;
poller_cpu(Threads) ->
    maps:from_list([{Name, Time} || {Name, Time} <- Threads, is_called(Name, "^([0-9]+_poller|erts_poll_[0-9]+)$")]).

is_called(Name, Pattern) -> re:run(Name, Pattern, [{capture, none}]) =:= match.

scheduler_busy(Ask) ->
    _ = Ask(erlang, system_flag, [scheduler_wall_time, true]),
    case Ask(erlang, statistics, [scheduler_wall_time]) of
        undefined ->
            %% The flag was reset when its process ended. From another node each call may run in a new process.
            unknown;
        Times ->
            %% Dirty schedulers have the numbers after the normal ones.
            Normal = Ask(erlang, system_info, [schedulers]),
            Ask(erlang, convert_time_unit, [
                lists:sum([Busy || {Id, Busy, _} <- Times, Id =< Normal]), native, nanosecond
            ])
    end.
