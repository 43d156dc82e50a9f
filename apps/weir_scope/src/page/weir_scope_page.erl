%% @doc The pages about a node, as lines of text and tables.
%%
%% A cell has a sort key and a text. The last table of a page is its main table, which is sorted and filtered.
-module(weir_scope_page).

-export([names/0]).
-export([sorts/1]).
-export([look/3]).
-export([page/3]).

-export_type([name/0, block/0, cell/0, column/0, data/0, sort/0]).

-import(weir_scope_figure, [percent/1, count/1, bytes/1, seconds/1, bar/2, spark/1, address/1, part/2, counted/2]).

-type name() ::
    overview | schedulers | memory | processes | sockets | polls | latency | threads | machine | weir | locks | clocks.
-type sort() :: atom().
-type cell() :: {Key :: term(), Text :: unicode:chardata()}.
-type column() :: {sort(), Title :: string(), left | right}.
-type block() :: {text, [unicode:chardata()]} | {table, [column()], [[cell()]]}.
-type data() :: #{
    sample := weir_scope_sample:sample(),
    top => list(),
    listeners => [weir_scope_listeners:listener()],
    mappings => weir_scope_memory:mappings(),
    history => [weir_scope_history:series()],
    microstates => weir_scope_sampler:microstates(),
    locks => weir_scope_locks:locks(),
    clocks => weir_scope_clocks:clocks()
}.

%% Rows of the tables of processes, sockets and relays.
-define(MOST, 100).

%% Rows of the table of listeners.
-define(LISTENERS, 10).

%% Milliseconds of the table of latency.
-define(PAST, 120_000).

%% @doc Returns all pages in their order.
-spec names() -> [name()].
names() -> [overview, schedulers, memory, processes, sockets, polls, latency, threads, machine, weir, locks, clocks].

%% @doc Returns the sort columns of a page's main table, the default first.
-spec sorts(name()) -> [sort()].
sorts(overview) -> [number];
sorts(schedulers) -> [number, busy, cpu, waited, queue];
sorts(memory) -> [carriers, blocks, unused, name];
sorts(processes) -> [reductions, memory, growth, queue, binaries, collections];
sorts(sockets) -> [bytes, in, out, queue, idle];
sorts(polls) -> [number, times, revents, avg, timeouts, sockets];
sorts(latency) -> [newest, count, max, med, max95, max99];
sorts(threads) -> [name, busy];
sorts(machine) -> [name];
sorts(weir) -> [bytes, in, out, age, idle];
sorts(locks) -> [waited, tries, collisions, name];
sorts(clocks) -> [name, ns].

%% @doc Collects the data of a page. Takes up to a second.
-spec look(name(), sort(), weir_scope:view()) -> {ok, data()} | {error, weir_scope:reason()}.
look(Page, Sort, View) ->
    case weir_scope:sample(View) of
        {ok, Sample} -> more(Page, Sort, View, #{sample => Sample});
        {error, _} = Error -> Error
    end.

more(processes, Sort, View, Data) ->
    with(top, weir_scope:processes(View, #{by => Sort, most => ?MOST}), Data);
more(sockets, Sort, View, Data) ->
    case with(top, weir_scope:sockets(View, #{by => Sort, most => ?MOST}), Data) of
        {ok, Top} -> with(listeners, weir_scope:listeners(View), Top);
        {error, _} = Error -> Error
    end;
more(latency, _Sort, View, #{sample := #{at := At}} = Data) ->
    with(history, weir_scope:history(View, second, At - ?PAST), Data);
more(memory, _Sort, View, Data) ->
    with(mappings, weir_scope:mappings(View), Data);
more(threads, _Sort, View, Data) ->
    with(microstates, weir_scope:microstates(View, 900), Data);
more(weir, Sort, View, #{sample := #{weir := #{counts := #{relays := Relays}}}} = Data) when Relays > 0 ->
    with(top, weir_scope:relays(View, #{by => Sort, most => ?MOST}), Data);
more(locks, _Sort, View, Data) ->
    with(locks, weir_scope:locks(View), Data);
more(clocks, _Sort, View, Data) ->
    with(clocks, weir_scope:clocks(View), Data);
more(_, _, _, Data) ->
    {ok, Data}.

with(Key, {ok, Value}, Data) -> {ok, Data#{Key => Value}};
with(_Key, {error, _} = Error, _Data) -> Error.

%% @doc Returns a page. `Past' are the mean utilisations of the last minute, the oldest first.
-spec page(name(), data(), Past :: [float()]) -> [block()].
page(Name, #{sample := Sample} = Data, Past) -> failing(Sample) ++ shown(Name, Data, Past).

%% While samples fail, the page shows the last good one.
failing(#{failing := Why, failures := Failures, at := At}) ->
    [
        {text, [
            io_lib:format("No sample since ~ts UTC: ~b samples have failed, trying again.", [clock(At), Failures]),
            Why,
            ""
        ]}
    ];
failing(_) ->
    [].

shown(overview, Data, Past) -> overview(Data, Past);
shown(schedulers, Data, _Past) -> schedulers(Data);
shown(memory, Data, _Past) -> memory(Data);
shown(processes, Data, _Past) -> top_processes(Data);
shown(sockets, Data, _Past) -> sockets(Data);
shown(polls, Data, _Past) -> polls(Data);
shown(latency, Data, _Past) -> latency(Data);
shown(threads, Data, _Past) -> threads(Data);
shown(machine, Data, _Past) -> machine(Data);
shown(weir, #{sample := #{weir := Weir}} = Data, _Past) ->
    weir_scope_page_weir:page(Weir, maps:get(top, Data, []));
shown(locks, #{sample := #{weir := Weir}, locks := Locks}, _Past) ->
    weir_scope_page_locks:page(Weir, Locks);
shown(clocks, Data, _Past) -> clocks(Data).

overview(#{sample := Sample}, Past) ->
    #{schedulers := Schedulers, activity := #{rates := Rates, counts := Counts}, memory := Memory} = Sample,
    Normal = [Scheduler || #{kind := normal} = Scheduler <- Schedulers],
    #{
        kinds := #{total := Total, processes := Processes, binary := Binary, ets := Ets},
        carriers := Carriers,
        blocks := Blocks
    } = Memory,
    [
        {text, [
            [
                "utilisation  ",
                bar(mean(utilisation, Normal), 30),
                $\s,
                percent(mean(utilisation, Normal)),
                "  of ",
                integer_to_list(length(Normal)),
                " schedulers"
            ],
            [
                "CPU          ",
                bar(mean(cpu, Normal), 30),
                $\s,
                percent(mean(cpu, Normal)),
                "  of their threads, busy waiting included"
            ],
            ["last minute  ", spark(Past)],
            "",
            io_lib:format("memory       ~ts in memory, ~ts carriers, ~ts blocks", [
                bytes(maps:get(rss, Memory, 0)), bytes(Carriers), bytes(Blocks)
            ]),
            io_lib:format("             ~ts by the VM: processes ~ts, binaries ~ts, ets ~ts", [
                bytes(Total), bytes(Processes), bytes(Binary), bytes(Ets)
            ])
        ]},
        {table, [{number, "count", left}, {value, "now", right}, {limit, "limit", right}], [
            [{1, "processes"}, whole(processes, Counts), whole(process_limit, Counts)],
            [{2, "ports"}, whole(ports, Counts), whole(port_limit, Counts)],
            [{3, "atoms"}, whole(atoms, Counts), whole(atom_limit, Counts)],
            [{4, "ready to run"}, whole(run_queue, Counts), {0, ""}],
            [{5, "reductions/s"}, rate(reductions, Rates), {0, ""}],
            [{6, "collections/s"}, rate(collections, Rates), {0, ""}],
            [{7, "context switches/s"}, rate(context_switches, Rates), {0, ""}],
            [{8, "bytes in/s (ports)"}, rate(bytes_in, Rates), {0, ""}],
            [{9, "bytes out/s (ports)"}, rate(bytes_out, Rates), {0, ""}],
            [{10, "sampler, us/s"}, {0, cost(Sample)}, {0, ""}]
        ]}
    ].

schedulers(#{sample := #{schedulers := Schedulers}}) ->
    [
        {text, ["CPU far above busy: busy waiting. Waited: throttled, or the processor is shared.", ""]},
        {table,
            [
                {number, "scheduler", left},
                {bar, "", left},
                {busy, "busy", right},
                {cpu, "CPU", right},
                {waited, "waited", right},
                {queue, "queue", right}
            ],
            [
                [
                    {Index, [kind(Kind), $\s, integer_to_list(Number)]},
                    {0, bar(Busy, 20)},
                    {Busy, percent(Busy)},
                    part(cpu, Scheduler),
                    part(waited, Scheduler),
                    case Scheduler of
                        #{run_queue := Queue} -> {Queue, integer_to_list(Queue)};
                        _ -> {-1, ""}
                    end
                ]
             || {Index, #{kind := Kind, number := Number, utilisation := Busy} = Scheduler} <- numbered(Schedulers)
            ]}
    ].

memory(#{sample := #{memory := Memory}} = Data) ->
    #{kinds := Kinds, allocators := Allocators, carriers := Carriers, blocks := Blocks} = Memory,
    [
        {text, [
            io_lib:format("in memory ~ts, swap ~ts, carriers ~ts, blocks ~ts (~ts of carriers)", [
                bytes(maps:get(rss, Memory, 0)),
                bytes(maps:get(swap, Memory, 0)),
                bytes(Carriers),
                bytes(Blocks),
                percent(Blocks / max(1, Carriers))
            ]),
            lists:join("  ", [
                [atom_to_list(Kind), $\s, bytes(maps:get(Kind, Kinds))]
             || Kind <- [processes, binary, ets, code, atom, system]
            ]),
            super_carrier(Memory)
            | mapped(Data) ++ [""]
        ]},
        {table,
            [
                {name, "allocator", left},
                {carriers, "carriers", right},
                {blocks, "blocks", right},
                {unused, "unused", right},
                {use, "use", right},
                {single, "single", right}
            ],
            [
                [
                    {Name, atom_to_list(Name)},
                    {Own, bytes(Own)},
                    {Used, bytes(Used)},
                    {Own - Used, bytes(Own - Used)},
                    {0, percent(Used / max(1, Own))},
                    {Single, bytes(Single)}
                ]
             || #{name := Name, carriers := Own, blocks := Used, single_carriers := Single} <- Allocators
            ]}
    ].

top_processes(#{top := Top}) ->
    [
        {table,
            [
                {pid, "process", left},
                {name, "name", left},
                {reductions, "reds/s", right},
                {memory, "memory", right},
                {growth, "growth/s", right},
                {queue, "queue", right},
                {binaries, "binaries", right},
                {collections, "gc/s", right},
                {function, "in", left}
            ],
            [
                [
                    {Pid, pid_to_list(Pid)},
                    {0, limited(named(Process), 24)},
                    {Reductions, count(Reductions)},
                    {Memory, bytes(Memory)},
                    {Growth, bytes(Growth)},
                    {Queue, integer_to_list(Queue)},
                    {Binaries, bytes(Binaries)},
                    told(collections, Process),
                    {0, io_lib:format("~0tp", [Function])}
                ]
             || #{
                    pid := Pid,
                    reductions := Reductions,
                    memory := Memory,
                    growth := Growth,
                    queue := Queue,
                    function := Function
                } = Process <- Top,
                Binaries <- [maps:get(binaries, Process, 0)]
            ]}
    ].

sockets(#{top := Top} = Data) ->
    [
        {table,
            [
                {listens, "listens on", left},
                {kind, "kind", left},
                {waiting, "waiting", right},
                {backlog, "backlog", right},
                {dropped, "dropped", right},
                {owner, "owner", left}
            ],
            [
                [
                    {Port, address({Ip, Port})},
                    {Kind, atom_to_list(Kind)},
                    counted(waiting, Listener),
                    counted(backlog, Listener),
                    counted(dropped, Listener),
                    {0, io_lib:format("~0p", [maps:get(owner, Listener, '-')])}
                ]
             || #{ip := Ip, port := Port, kind := Kind} = Listener <- lists:sublist(
                    maps:get(listeners, Data, []), ?LISTENERS
                )
            ]},
        {text, ["" | ways(Top)]},
        {table,
            [
                {kind, "kind", left},
                {in, "in/s", right},
                {out, "out/s", right},
                {queue, "queue", right},
                {owner, "owner", left},
                {local, "local", left},
                {peer, "peer", left},
                {idle, "idle", right},
                {rtt, "rtt us", right},
                {resent, "resent", right},
                {bytes, "", left}
            ],
            [
                [
                    {Kind, atom_to_list(Kind)},
                    {In, bytes(In)},
                    {Out, bytes(Out)},
                    {Queue, bytes(Queue)},
                    {0, io_lib:format("~0p", [maps:get(owner, Socket, '-')])},
                    {0, address(maps:get(local, Socket, none))},
                    {0, address(maps:get(peer, Socket, none))},
                    case Socket of
                        #{idle := Idle} -> {Idle, seconds(Idle)};
                        _ -> {-1, ""}
                    end,
                    counted(rtt_us, Socket),
                    counted(resent, Socket),
                    {In + Out, ""}
                ]
             || #{kind := Kind, in := In, out := Out, queue := Queue} = Socket <- Top
            ]}
    ].

polls(#{sample := #{weir := Weir, threads := Threads, activity := #{check_io := Sets}}}) ->
    [
        {text,
            [
                io_lib:format("OTP's poll set ~b (~p): ~b descriptors, ~b active, ~b threads", [
                    Index, Kind, Size, Active, Number
                ])
             || {Index, #{kind := Kind, descriptors := Size, active := Active, threads := Number}} <- numbered(Sets)
            ] ++
                [
                    [
                        "OTP's poll thread ",
                        Name,
                        ": CPU ",
                        percent(Cpu),
                        ", waited ",
                        percent(Waited),
                        ", scheduled ",
                        count(Turns),
                        " times a second"
                    ]
                 || #{name := Name, cpu := Cpu, waited := Waited, turns := Turns} <- Threads, is_poll_thread(Name)
                ]}
        | weir_scope_page_pollsets:page(Weir)
    ].

latency(#{sample := #{weir := Weir}, history := History}) ->
    [{text, measured(Weir)} | servers(Weir)] ++
        [{table, [{newest, "time", right} | [{Sort, Title, right} || {_, Sort, Title} <- tcprstat()]], rows(History)}].

threads(#{microstates := States}) ->
    Names = [aux, check_io, emulator, gc, other, port, sleep],
    [
        {text, ["Microstates of the last second, in percent of each thread's time.", ""]},
        {table, [{name, "thread", left}, {busy, "busy", right} | [{Name, atom_to_list(Name), right} || Name <- Names]],
            [
                [
                    {{Type, Id}, io_lib:format("~p ~b", [Type, Id])},
                    {Busy, percent(Busy)}
                    | [{Part, percent(Part)} || Name <- Names, Part <- [maps:get(Name, Parts, 0.0)]]
                ]
             || #{type := Type, id := Id, states := Parts} <- States, Busy <- [1 - maps:get(sleep, Parts, 0.0)]
            ]}
    ].

machine(#{sample := #{machine := Machine, threads := Threads}}) ->
    [
        {text,
            [
                io_lib:format("~-22s ~ts", [Name, figure(Name, Value)])
             || {Name, Value} <- lists:sort(maps:to_list(maps:remove(totals, Machine)))
            ] ++ [""]},
        {table,
            [{name, "other threads", left}, {cpu, "CPU", right}, {waited, "waited", right}, {turns, "turns/s", right}],
            [
                [{Name, Name}, {Cpu, percent(Cpu)}, {Waited, percent(Waited)}, {Turns, count(Turns)}]
             || #{name := Name, cpu := Cpu, waited := Waited, turns := Turns} <- Threads
            ]}
    ].

clocks(#{clocks := #{settings := Settings} = Clocks}) ->
    [
        {text,
            kept(Settings) ++
                [
                    case Clocks of
                        #{costs := _} -> "";
                        _ -> "The cost of reading clocks cannot be measured without modules on the node."
                    end
                ]},
        {table, [{name, "clock", left}, {ns, "ns to read", right}], [
            [{Name, atom_to_list(Name)}, {Ns, io_lib:format("~.1f", [Ns])}]
         || #{clock := Name, ns := Ns} <- maps:get(costs, Clocks, [])
        ]}
    ].

%% `0_poller' in OTP 25, `erts_poll_0' in later releases.
is_poll_thread(Name) -> re:run(Name, "^([0-9]+_poller|erts_poll_[0-9]+)$", [{capture, none}]) =:= match.

kept(
    #{time_correction := Correction, time_warp_mode := Mode, time_offset := Offset, clock_difference := Milliseconds} =
        Settings
) ->
    [["the kernel's clock source is ", Source] || #{clock_source := Source} <- [Settings]] ++
        [
            io_lib:format("time correction is ~s, ~s, the offset is ~s", [
                case Correction of
                    true -> "on";
                    false -> "off"
                end,
                Mode,
                Offset
            ]),
            io_lib:format("the VM's time is ~b ms ~s the system's", [
                abs(Milliseconds),
                case Milliseconds < 0 of
                    true -> "behind";
                    false -> "ahead of"
                end
            ])
        ].

%% Round-trip times of the sockets of the table.
ways(Top) ->
    case lists:sort([Rtt || #{rtt_us := Rtt} <- Top]) of
        [] ->
            [];
        Ways ->
            Part = fun(Hundredths) -> count(lists:nth((length(Ways) * Hundredths + 99) div 100, Ways)) end,
            Resent = lists:sum([Number || #{resent := Number} <- Top]),
            [
                io_lib:format("round trips of these ~b: p50 ~ts us, p99 ~ts us; ~ts segments retransmitted", [
                    length(Ways), Part(50), Part(99), count(Resent)
                ]),
                ""
            ]
    end.

%% The columns of tcprstat, with their sort columns and titles.
tcprstat() ->
    [
        {count, count, "count"},
        {max, max, "max"},
        {min, min, "min"},
        {avg, avg, "avg"},
        {med, med, "med"},
        {stddev, stddev, "stddev"},
        {'95_max', max95, "95max"},
        {'95_avg', avg95, "95avg"},
        {'95_std', std95, "95std"},
        {'99_max', max99, "99max"},
        {'99_avg', avg99, "99avg"},
        {'99_std', std99, "99std"}
    ].

measured(none) ->
    ["Weir does not run on this node."];
measured(#{listeners := Listeners}) ->
    case [{Name, Figures} || #{name := Name, latency := Figures} <- Listeners] of
        [] ->
            [
                "No listener measures its replies. weir:set_options(Name, #{measure => true})",
                "turns that on for a running listener.",
                ""
            ];
        Measured ->
            [
                "Microseconds from request to reply. The table has all listeners together:"
                | [quantiles(Name, Figures) || {Name, Figures} <- Measured]
            ] ++ [""]
    end.

quantiles(Name, #{count := Count, med := Median, p90 := P90, '99_max' := P99, p999 := P999, max := Max}) ->
    io_lib:format("listener ~0tp: ~ts replies, p50 ~ts, p90 ~ts, p99 ~ts, p99.9 ~ts, max ~ts", [
        Name | [count(Number) || Number <- [Count, Median, P90, P99, P999, Max]]
    ]).

%% Servers behind proxies whose backends measure, in the last second.
servers(#{servers := [_ | _] = Servers}) ->
    [
        {table, [{server, "server", left} | [{Name, Title, right} || {Name, _, Title} <- tcprstat()]], [
            [
                {{Proxy, Backend, Server}, io_lib:format("~0tp ~ts/~ts", [Proxy, Backend, Server])}
                | [{Value, count(Value)} || {Name, _, _} <- tcprstat(), Value <- [map_get(Name, Figures)]]
            ]
         || #{proxy := Proxy, backend := Backend, server := Server, latency := Figures} <- Servers
        ]},
        {text, [""]}
    ];
servers(_) ->
    [].

%% A row for each second in which a listener measured.
rows(History) ->
    [
        [
            {At, clock(At)}
            | [
                {Value, count(Value)}
             || {Name, _, _} <- tcprstat(), Value <- [maps:get(<<"latency.", (atom_to_binary(Name))/binary>>, Known)]
            ]
        ]
     || #{columns := Columns, rows := Rows} <- History,
        {At, Values} <- Rows,
        Known <- [maps:from_list(lists:zip(Columns, Values))],
        maps:get(<<"listeners.measured">>, Known, 0.0) > 0
    ].

%% The time of day, UTC.
clock(At) ->
    {_, {Hour, Minute, Second}} = calendar:system_time_to_universal_time(At, millisecond),
    io_lib:format("~2..0b:~2..0b:~2..0b", [Hour, Minute, Second]).

super_carrier(#{super_carrier := #{total := Total, used := Used}}) ->
    ["super carrier ", bytes(Used), " of ", bytes(Total)];
super_carrier(#{carriers := Carriers}) ->
    io_lib:format("no super carrier (+MMscs ~b would hold the present carriers)", [
        (Carriers + 1_048_575) div 1_048_576
    ]).

mapped(#{mappings := #{mapped := Mapped, unmapped := Unmapped, cached := Cached}}) ->
    [
        io_lib:format("carriers mapped ~ts times, unmapped ~ts times, reused from the cache ~ts times", [
            count(Mapped), count(Unmapped), count(Cached)
        ])
    ];
mapped(_) ->
    [].

named(#{label := Label}) -> io_lib:format("~0tp", [Label]);
named(#{name := {Module, Function, Arity}}) -> io_lib:format("~ts:~ts/~b", [Module, Function, Arity]);
named(#{name := Name}) -> io_lib:format("~0tp", [Name]).

limited(Text, Width) -> string:slice(Text, 0, Width).

kind(normal) -> "normal";
kind(dirty_cpu) -> "dirty CPU";
kind(dirty_io) -> "dirty I/O".

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

mean(Key, Schedulers) -> lists:sum([Value || #{Key := Value} <- Schedulers]) / max(1, length(Schedulers)).

%% Only collected if the table is sorted by this column.
told(Key, Map) ->
    case Map of
        #{Key := Value} -> {Value, count(Value)};
        _ -> {-1, "-"}
    end.

whole(Key, Map) -> {maps:get(Key, Map), integer_to_list(maps:get(Key, Map))}.
rate(Key, Map) -> {maps:get(Key, Map), count(maps:get(Key, Map))}.

cost(#{cost := #{us := Us}}) -> integer_to_list(Us);
cost(_) -> "".

figure(Name, Value) when Name =:= memory_used; Name =:= memory_limit -> bytes(Value);
figure(cpus, Value) -> io_lib:format("~.2f", [Value]);
figure(Name, Value) ->
    case lists:member(Name, [throttled, cpu_pressure, memory_pressure, io_pressure]) of
        true -> [percent(Value), " of the time"];
        false -> [count(Value), "/s"]
    end.
