%% @doc Samples the machine or container: limits and throttling of the control group, pressure (PSI), and TCP counters.
-module(weir_scope_machine).

-export([open/1]).
-export([read/2]).
-export([between/3]).

-export_type([sources/0, reading/0, machine/0]).

-opaque sources() :: #{atom() => weir_scope_files:source()}.

-opaque reading() :: #{counters := #{atom() => integer()}, gauges := #{atom() => number()}}.

-type machine() :: #{totals := #{atom() => integer()}, atom() => number()}.
%% Unknown values are absent:
%% <dl>
%% <dt>`throttled'</dt><dd>throttled time of the control group's threads, divided by the time; may exceed 1</dd>
%% <dt>`cpus'</dt><dd>processors that the control group may use</dd>
%% <dt>`memory_used', `memory_limit'</dt><dd>bytes of the control group</dd>
%% <dt>`cpu_pressure', `memory_pressure', `io_pressure'</dt><dd>fraction of the time in which a task waited for it</dd>
%% <dt>`listen_overflows', `listen_drops', `retransmits', `tcp_memory_pressures'</dt><dd>of all sockets of the machine,
%% per second; `totals' has them since the machine started</dd>
%% </dl>

-spec open(weir_scope_facts:ask()) -> sources().
open(Ask) ->
    Group = fun(Name) -> weir_scope_files:cgroup(Ask, Name) end,
    Paths = #{
        cpu_stat => Group("cpu.stat"),
        cpu_max => Group("cpu.max"),
        memory_used => Group("memory.current"),
        memory_limit => Group("memory.max"),
        cpu_pressure => "/proc/pressure/cpu",
        memory_pressure => "/proc/pressure/memory",
        io_pressure => "/proc/pressure/io",
        netstat => "/proc/net/netstat",
        snmp => "/proc/net/snmp"
    },
    maps:map(fun(_, Path) -> weir_scope_files:open(Ask, Path) end, Paths).

-spec read(weir_scope_facts:ask(), sources()) -> reading().
read(Ask, Sources) ->
    Text = maps:map(fun(_, Source) -> weir_scope_files:read(Ask, Source) end, Sources),
    Of = fun(Name) -> maps:get(Name, Text) end,
    Tcp = pairs(Of(netstat), <<"TcpExt: ">>, [<<"ListenOverflows">>, <<"ListenDrops">>, <<"TCPMemoryPressures">>]),
    Segments = pairs(Of(snmp), <<"Tcp: ">>, [<<"RetransSegs">>]),
    #{
        counters => known(#{
            throttled => times(1000, after_word(Of(cpu_stat), <<"throttled_usec ">>)),
            cpu_pressure => times(1000, after_word(Of(cpu_pressure), <<"total=">>)),
            memory_pressure => times(1000, after_word(Of(memory_pressure), <<"total=">>)),
            io_pressure => times(1000, after_word(Of(io_pressure), <<"total=">>)),
            listen_overflows => maps:get(<<"ListenOverflows">>, Tcp, unknown),
            listen_drops => maps:get(<<"ListenDrops">>, Tcp, unknown),
            tcp_memory_pressures => maps:get(<<"TCPMemoryPressures">>, Tcp, unknown),
            retransmits => maps:get(<<"RetransSegs">>, Segments, unknown)
        }),
        gauges => known(#{
            cpus => quota(Of(cpu_max)),
            memory_used => weir_scope_files:number(Of(memory_used)),
            memory_limit => weir_scope_files:number(Of(memory_limit))
        })
    }.

known(Values) ->
    maps:filter(fun(_, Value) -> Value =/= unknown end, Values).

times(_, unknown) -> unknown;
times(Factor, Number) -> Factor * Number.

%% The number after the first occurrence of a word.
after_word(unknown, _Word) ->
    unknown;
after_word(Text, Word) ->
    case binary:split(Text, Word) of
        [_, Rest] -> weir_scope_files:number(Rest);
        _ -> unknown
    end.

quota(unknown) ->
    unknown;
quota(Text) ->
    case string:lexemes(Text, " \n") of
        [<<"max">> | _] -> unknown;
        [Used, Period] -> binary_to_integer(Used) / binary_to_integer(Period)
    end.

%% A line of names and a line of numbers with the same prefix.
pairs(unknown, _Prefix, _Names) ->
    #{};
pairs(Text, Prefix, Names) ->
    Length = byte_size(Prefix),
    Lines = [
        binary:part(Line, Length, byte_size(Line) - Length)
     || Line <- binary:split(Text, <<"\n">>, [global]), is_prefix(Prefix, Line)
    ],
    case Lines of
        [Titles, Numbers] ->
            All = zip(binary:split(Titles, <<" ">>, [global]), binary:split(Numbers, <<" ">>, [global])),
            maps:from_list([{Name, binary_to_integer(Number)} || {Name, Number} <- All, lists:member(Name, Names)]);
        _ ->
            #{}
    end.

is_prefix(Prefix, Line) ->
    binary:longest_common_prefix([Prefix, Line]) =:= byte_size(Prefix).

zip([Name | Names], [Number | Numbers]) -> [{Name, Number} | zip(Names, Numbers)];
zip(_, _) -> [].

%% @doc Returns what has happened between two readings that are `Ns' nanoseconds apart.
-spec between(reading(), reading(), pos_integer()) -> machine().
between(#{counters := Before}, #{counters := After, gauges := Gauges}, Ns) ->
    Changes = maps:from_list([
        {Name, change(Name, Value - maps:get(Name, Before), Ns)}
     || {Name, Value} <- maps:to_list(After), is_map_key(Name, Before)
    ]),
    maps:merge(Gauges, Changes#{
        totals => maps:with([listen_overflows, listen_drops, retransmits, tcp_memory_pressures], After)
    }).

%% Times become fractions of the time, events become rates per second. The kernel updates pressure only now and then,
%% so a second may contain a part of the second before.
change(throttled, Difference, Ns) ->
    Difference / Ns;
change(Name, Difference, Ns) when Name =:= cpu_pressure; Name =:= memory_pressure; Name =:= io_pressure ->
    min(1.0, Difference / Ns);
change(_Name, Difference, Ns) ->
    Difference * 1_000_000_000 / Ns.
