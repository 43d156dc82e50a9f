%% @doc Formats a sample as OpenMetrics text, for Prometheus and compatible programs.
%%
%% Counters are those of the VM and of Weir since their start. Gauges and quantiles are of the last second. There is no
%% series for a single process or socket, so that the number of series does not grow with the load.
-module(weir_scope_metrics).

-export([text/1]).

-type series() ::
    {Labels :: [{atom(), term()}], number()} | {Suffix :: string(), Labels :: [{atom(), term()}], number()}.
-type family() :: {Name :: atom() | iodata(), counter | gauge | summary, Help :: string(), [series()]}.

%% @doc Returns the document. Its media type is `application/openmetrics-text; version=1.0.0; charset=utf-8'.
-spec text(weir_scope_sample:sample()) -> iodata().
text(Sample) ->
    [[family(Family) || {_, _, _, [_ | _]} = Family <- families(Sample)], "# EOF\n"].

-spec families(weir_scope_sample:sample()) -> [family()].
families(
    #{at := At, schedulers := Schedulers, activity := Activity, memory := Memory, machine := Machine, weir := Weir} =
        Sample
) ->
    #{totals := Totals, counts := Counts} = Activity,
    #{kinds := Kinds, allocators := Allocators} = Memory,
    Of = fun(Key) ->
        [{[{kind, Kind}, {scheduler, Number}], Value} || #{kind := Kind, number := Number, Key := Value} <- Schedulers]
    end,
    Each = fun(Key) ->
        [{[{allocator, Name}], maps:get(Key, Allocator)} || #{name := Name} = Allocator <- Allocators]
    end,
    [
        {beam_scheduler_utilisation_ratio, gauge, "fraction of the time in which the scheduler ran something",
            Of(utilisation)},
        {beam_scheduler_cpu_ratio, gauge, "fraction of the time in which the scheduler's thread was on a processor",
            Of(cpu)},
        {beam_scheduler_waited_ratio, gauge,
            "fraction of the time in which the scheduler's thread waited for a processor", Of(waited)},
        {beam_scheduler_run_queue, gauge, "processes and ports that are ready to run", Of(run_queue)},
        {beam_reductions, counter, "reductions", one(reductions, Totals)},
        {beam_context_switches, counter, "switches between processes", one(context_switches, Totals)},
        {beam_garbage_collections, counter, "garbage collections", one(collections, Totals)},
        {beam_garbage_collected_words, counter, "words freed by garbage collections", one(words_reclaimed, Totals)},
        {beam_port_received_bytes, counter, "bytes received by ports", one(bytes_in, Totals)},
        {beam_port_sent_bytes, counter, "bytes sent by ports", one(bytes_out, Totals)},
        {beam_entries, gauge, "numbers of processes, ports, atoms and ETS tables", [
            {[{table, Table}], maps:get(Table, Counts)}
         || Table <- [processes, ports, atoms, ets_tables]
        ]},
        {beam_entries_limit, gauge, "limits of processes, ports and atoms", [
            {[{table, Table}], maps:get(Limit, Counts)}
         || {Table, Limit} <- [{processes, process_limit}, {ports, port_limit}, {atoms, atom_limit}]
        ]},
        {beam_memory_bytes, gauge, "memory by kind as in erlang:memory/0; some kinds contain others", [
            {[{kind, Kind}], Bytes}
         || {Kind, Bytes} <- lists:sort(maps:to_list(Kinds))
        ]},
        {beam_allocator_carriers_bytes, gauge, "memory that the allocator has from the system (carriers)",
            Each(carriers)},
        {beam_allocator_blocks_bytes, gauge, "used memory in the allocator's carriers (blocks)", Each(blocks)},
        {beam_resident_memory_bytes, gauge, "resident memory of the VM's process", one(rss, Memory)},
        {beam_scope_sampled_timestamp_seconds, gauge, "time of this sample since 1970; it is old if samples fail", [
            {[], At / 1000}
        ]},
        {beam_scope_failures, counter, "failed samples", [{[], maps:get(failures, Sample, 0)}]},
        {beam_scope_sample_seconds, gauge, "duration of the previous sample", [
            {[], Us / 1_000_000}
         || #{cost := #{us := Us}} <- [Sample]
        ]}
        | machine(Machine) ++ engine(Weir)
    ].

machine(Machine) ->
    Totals = maps:get(totals, Machine, #{}),
    [
        {beam_pressure_ratio, gauge, "fraction of the time in which a task of the machine waited for the resource", [
            {[{resource, Resource}], Value}
         || {Resource, Key} <- [{cpu, cpu_pressure}, {io, io_pressure}, {memory, memory_pressure}],
            #{Key := Value} <- [Machine]
        ]},
        {beam_throttled_ratio, gauge, "throttled time of the control group's threads, divided by the time",
            one(throttled, Machine)},
        {beam_listen_overflows, counter, "connections dropped at a full backlog, of all sockets of the machine",
            one(listen_overflows, Totals)},
        {beam_listen_drops, counter,
            "connections dropped at a full backlog or for other reasons, of all sockets of the machine",
            one(listen_drops, Totals)},
        {beam_tcp_retransmits, counter, "retransmitted segments, of all sockets of the machine",
            one(retransmits, Totals)},
        {beam_tcp_memory_pressures, counter, "times that the kernel was short of memory for TCP",
            one(tcp_memory_pressures, Totals)}
    ].

one(Key, Map) -> [{[], Value} || #{Key := Value} <- [Map]].

engine(none) ->
    [];
engine(#{pollsets := Pollsets, listeners := Listeners} = Weir) ->
    Counts = maps:get(counts, Weir, #{}),
    Gauge = fun(Key) ->
        [{[{listener, Name}], Value} || #{name := Name, Key := Value} <- Listeners, is_integer(Value)]
    end,
    [
        {weir_reactor_callback_seconds, summary,
            "time of callbacks for socket events, messages and ticks; quantiles of handle_data/3, if it is measured", [
                Series
             || Reactor <- maps:get(reactors, Weir, []), Series <- callbacks(Reactor)
            ]},
        {weir_lock_waits, counter, "lock waits on entries of the table", [
            {[{table, Table}], Total}
         || #{table := Table, total := Total} <- maps:get(locks, Weir, [])
        ]},
        {weir_relays, gauge, "relayed pairs of sockets", [{[], Relays} || #{relays := Relays} <- [Counts]]},
        {weir_groups, gauge, "groups of sockets", [{[], Groups} || #{groups := Groups} <- [Counts]]},
        {weir_pollset_sockets, gauge, "sockets that the pollset serves", [
            {[{pollset, Number}], Sockets}
         || #{pollset := Number, sockets := Sockets} <- Pollsets
        ]},
        {weir_listener_connections, gauge, "open connections", Gauge(connections)},
        {weir_listener_waiting, gauge, "accepted connections without a process yet", Gauge(waiting)},
        {weir_listener_backlog, gauge, "connections in the kernel that are not accepted yet", Gauge(backlog)},
        {weir_listener_backlog_limit, gauge, "limit of the backlog; the kernel drops connections above it",
            Gauge(max_backlog)},
        {weir_listener_reply_seconds, summary, "time from request to reply, of listeners with the option measure",
            lists:append([replies(Listener) || Listener <- Listeners])},
        {weir_proxy_server_reply_seconds, summary,
            "reply time of servers behind proxies, of backends with the option measure",
            lists:append([server_replies(Server) || Server <- maps:get(servers, Weir, [])])}
        | [
            {["weir_pollset_", Name], counter, Help, [
                {[{pollset, Number}], Value}
             || #{pollset := Number, totals := #{Key := Value}} <- Pollsets
            ]}
         || {Key, Name, Help} <- pollset_counters()
        ] ++
            [
                {["weir_listener_", Name], counter, Help, [
                    {[{listener, Listener}], Value}
                 || #{name := Listener, totals := #{Key := Value}} <- Listeners
                ]}
             || {Key, Name, Help} <- listener_counters()
            ] ++
            [
                {Name, counter, Help, [
                    {[{listener, Listener} || #{listener := Listener} <- [Value]], Total}
                 || #{total := Total} = Value <- Values
                ]}
             || #{name := Name, help := Help, values := Values} <- maps:get(products, Weir, [])
            ]
    ].

pollset_counters() ->
    [
        {polls, "polls", "polls"},
        {empty_polls, "empty_polls", "polls that returned no sockets"},
        {events, "events", "ready sockets that polls returned"},
        {sleeps, "sleeps", "sleeps of the poller"},
        {reads, "reads", "read system calls"},
        {read_bytes, "read_bytes", "bytes read"},
        {writes, "writes", "write system calls"},
        {written_bytes, "written_bytes", "bytes written"},
        {accepts, "accepts", "connections accepted"},
        {wakes_by_thread, "wakes_by_thread", "wake-ups of the poller for an event of the kernel"},
        {wakes_by_process, "wakes_by_process", "wake-ups of the poller by processes with work for it"},
        {contended, "contended", "lock waits on the ready list"},
        {asked_away, "asked_away", "requests on this scheduler for data of sockets that another one polls"},
        {moved_in, "moved_in", "sockets moved here from another pollset"}
    ].

listener_counters() ->
    [
        {accepted, "accepted", "connections accepted"},
        {overload, "overload", "connections reset above max_connections"},
        {denied, "denied", "connections reset by the lists allow and deny"},
        {crowded, "crowded", "connections reset above per_address"},
        {full_pauses, "full_pauses", "pauses in accepting because of max_connections"},
        {rate_pauses, "rate_pauses", "pauses in accepting because of max_rate"},
        {failed_handshakes, "failed_handshakes", "connections whose TLS handshake or PROXY header failed"}
    ].

replies(#{name := Name, latency := Latency, totals := #{replies := Count, reply_ns := Sum}}) ->
    summary([{listener, Name}], Latency, Count, Sum);
replies(_) ->
    [].

server_replies(#{
    proxy := Proxy,
    backend := Backend,
    server := Server,
    latency := Latency,
    totals := #{replies := Count, reply_ns := Sum}
}) ->
    summary([{proxy, Proxy}, {backend, Backend}, {server, Server}], Latency, Count, Sum);
server_replies(_) ->
    [].

callbacks(#{pollset := Number, module := Module, totals := #{callbacks := Count, callback_ns := Sum}} = Reactor) ->
    summary([{pollset, Number}, {module, Module}], maps:get(latency, Reactor, #{count => 0}), Count, Sum).

%% A second without replies has no quantiles.
summary(Labels, #{count := Now} = Figures, Count, Sum) ->
    Quantiles = [{0.5, med}, {0.9, p90}, {0.95, '95_max'}, {0.99, '99_max'}, {0.999, p999}],
    [
        {"", Labels ++ [{quantile, Quantile}], maps:get(Key, Figures) / 1_000_000}
     || {Quantile, Key} <- Quantiles, Now > 0
    ] ++
        [{"_count", Labels, Count}, {"_sum", Labels, Sum / 1_000_000_000}].

family({Name, Kind, Help, Series}) ->
    Title =
        case is_atom(Name) of
            true -> atom_to_binary(Name);
            false -> Name
        end,
    [
        ["# TYPE ", Title, $\s, atom_to_list(Kind), $\n, "# HELP ", Title, $\s, Help, $\n]
        | [
            [Title, Suffix, labels(Labels), $\s, number(Value), $\n]
         || {Suffix, Labels, Value} <- [suffixed(Kind, One) || One <- Series]
        ]
    ].

suffixed(counter, {Labels, Value}) -> {"_total", Labels, Value};
suffixed(gauge, {Labels, Value}) -> {"", Labels, Value};
suffixed(summary, {_, _, _} = Series) -> Series.

labels([]) ->
    "";
labels(Labels) ->
    [${, lists:join($,, [[atom_to_list(Name), "=\"", escaped(Value), $"] || {Name, Value} <- Labels]), $}].

escaped(Value) when is_integer(Value) -> integer_to_list(Value);
escaped(Value) ->
    Text =
        case Value of
            Atom when is_atom(Atom) -> atom_to_binary(Atom);
            Name when is_binary(Name) -> Name;
            Other -> unicode:characters_to_binary(io_lib:format("~0tp", [Other]))
        end,
    [
        case Character of
            $\\ -> "\\\\";
            $" -> "\\\"";
            $\n -> "\\n";
            _ -> <<Character/utf8>>
        end
     || <<Character/utf8>> <= Text
    ].

number(Value) when is_integer(Value) -> integer_to_list(Value);
number(Value) -> float_to_binary(Value, [short]).
