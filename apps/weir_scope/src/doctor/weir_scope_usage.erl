%% @private
%% @doc Rules about processors, memory, clocks and messages, and about releases with known faults.
-module(weir_scope_usage).

-export([rules/0]).

-define(MIB, 1048576).

%% Less than this is not a finding, whatever the ratio.
-define(MUCH_MEMORY, (200 * ?MIB)).

-define(LONG_QUEUE, 10_000).

%% Milliseconds.
-define(LONG_COLLECTION, 100).
-define(LONG_TURN, 50).

%% Ready processes for each scheduler from which on broadcasters of normal priority are a finding.
-define(LONG_RUN_QUEUE, 20).

-define(MANY_RECEIVERS, 50).

-define(MANY_MODULE_SOCKETS, 100).

%% Milliseconds by which the clocks of the VM and the system may differ.
-define(CLOCKS_DIFFER, 1000).

-spec rules() -> [weir_scope_rule:rule()].
rules() ->
    processors() ++ polling() ++ turns() ++ messages() ++ clocks() ++ module_sockets() ++ memory() ++ queues() ++
        releases().

processors() ->
    [
        #{
            name => busy_waiting,
            needs => [{over, scheduler_cpu_ns}, {over, scheduler_busy_ns}, {over, ns}],
            check => fun busy_waiting/1,
            why =>
                "Schedulers look for work for a while before they sleep (busy waiting). "
                "On a dedicated machine that is good for latency. In a container it uses up the quota and takes CPU "
                "time from others.",
            advice => "+sbwt none +sbwtdcpu none +sbwtdio none, or very_short; measure before and after",
            sure => low,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        },
        #{
            name => processors_short,
            needs => [cpu_pressure],
            check => fun
                (#{cpu_pressure := Percent}) when Percent > 20 ->
                    {warning,
                        io_lib:format("tasks waited for a processor in ~.1f % of the last ten seconds", [Percent])};
                (_) ->
                    ok
            end,
            why => "Threads that are ready to run have to wait, also those of the VM.",
            advice => "find out which other programs use this machine",
            sure => medium,
            link => "https://docs.kernel.org/accounting/psi.html"
        }
    ].

polling() ->
    [
        #{
            name => poll_thread_busy,
            needs => [{over, poller_cpu_ns}, {over, ns}],
            check => fun(#{over := #{poller_cpu_ns := Pollers, ns := Ns}}) ->
                case
                    [
                        io_lib:format("~ts used ~b % of a processor", [Name, Time * 100 div max(1, Ns)])
                     || {Name, Time} <- maps:to_list(Pollers), Time > 0.8 * Ns
                    ]
                of
                    [] -> ok;
                    Busy -> {warning, lists:join("; ", Busy)}
                end
            end,
            why => "This thread polls all sockets of the node and is overloaded: events wait for it.",
            advice => "+IOt 2 and +IOp 2, or more; or a pollset for each scheduler: {tcp_module, weir_tcp}",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        },
        #{
            name => scheduler_poll_off,
            needs => [scheduler_poll],
            check => fun
                (#{scheduler_poll := false}) -> {note, "+IOs false: schedulers poll no sockets"};
                (_) -> ok
            end,
            why => "It is cheaper if schedulers poll busy sockets: that saves a switch of threads for each event.",
            advice => "remove +IOs, unless you have measured that it is better",
            sure => low,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        }
    ].

turns() ->
    [
        #{
            name => long_collections,
            needs => [long_turns],
            check => fun(#{long_turns := Turns}) -> long(long_gc, ?LONG_COLLECTION, Turns) end,
            why => "Nothing else runs on that scheduler during the collection.",
            advice =>
                "less data in each process, or data in ETS and binaries; {fullsweep_after, N} if old garbage piles up",
            sure => high,
            link => "https://www.erlang.org/doc/apps/erts/garbagecollection.html"
        },
        #{
            name => long_turns,
            needs => [long_turns],
            check => fun(#{long_turns := Turns}) -> long(long_schedule, ?LONG_TURN, Turns) end,
            why =>
                "A turn should take about a millisecond. All others on that scheduler wait, and the VM balances load "
                "wrongly.",
            advice =>
                "split native code into slices, or run it on dirty schedulers; "
                "weir scope --schedules shows the functions",
            sure => high,
            link => "https://www.erlang.org/doc/apps/erts/erl_nif.html"
        }
    ].

messages() ->
    [
        #{
            name => broadcaster_of_normal_priority,
            needs => [broadcasters, run_queue, schedulers],
            check => fun(#{broadcasters := Broadcasters, run_queue := Queue, schedulers := {Online, _}}) ->
                case
                    [
                        io_lib:format("~0tp, with ~b links and monitors", [Name, Number])
                     || {Name, Number, normal} <- Broadcasters, Queue > ?LONG_RUN_QUEUE * Online
                    ]
                of
                    [] -> ok;
                    Seen -> {note, [lists:join("; ", Seen), io_lib:format("; ~b processes are ready to run", [Queue])]}
                end
            end,
            why =>
                "A process that sends to many others at normal priority waits for those that it wakes: it gets its "
                "next turn after all of them.",
            advice => "process_flag(priority, high) during the broadcast; or a group of Weir, which wakes no process",
            sure => low,
            link => "https://www.erlang.org/doc/system/eff_guide_processes.html"
        },
        #{
            name => receive_with_timeout,
            needs => [timed_receivers],
            check => fun(#{timed_receivers := Receivers}) ->
                case
                    [
                        io_lib:format("~b in ~p", [Number, Module])
                     || {Module, Number} <- Receivers, Number >= ?MANY_RECEIVERS
                    ]
                of
                    [] -> ok;
                    Seen -> {note, ["processes wait in gen_tcp:recv with a timeout: ", lists:join(", ", Seen)]}
                end
            end,
            why => "Each call starts and stops a timer, which costs a busy server a fifth of its requests per second.",
            advice => "gen_tcp:recv/2, or {active, once} with one timer for several messages",
            sure => low,
            link => "https://www.erlang.org/doc/apps/kernel/gen_tcp.html"
        }
    ].

clocks() ->
    [
        #{
            name => slow_clock_source,
            needs => [clock_source],
            check => fun(#{clock_source := Source}) ->
                case lists:member(Source, [<<"hpet">>, <<"acpi_pm">>, <<"xen">>, <<"jiffies">>]) of
                    true -> {warning, ["the kernel's clock source is ", Source]};
                    false -> ok
                end
            end,
            why =>
                "Every timer, timeout and trace reads the clock. With this source that is a system call of a "
                "microsecond or more.",
            advice => "tsc, or kvm-clock in a guest (/sys/devices/system/clocksource)",
            sure => high,
            link => "https://docs.kernel.org/timers/timekeeping.html"
        },
        #{
            name => time_correction_off,
            needs => [time_correction],
            check => fun
                (#{time_correction := false}) -> {warning, "time correction is off"};
                (_) -> ok
            end,
            why => "Without it the VM's clock jumps with the system's clock, and reading it takes a lock.",
            advice => "remove +c false",
            sure => high,
            link => "https://www.erlang.org/doc/apps/erts/time_correction.html"
        },
        #{
            name => time_warp,
            needs => [time_warp_mode, time_offset, clock_difference],
            check => fun time_warp/1,
            why =>
                "Timestamps of this node differ from the system's. Without time warp the VM's clock runs one percent "
                "faster or slower until they agree, and all timers with it.",
            advice =>
                "set the system's clock before the VM starts (chronyc waitsync); with +C single_time_warp call "
                "erlang:system_flag(time_offset, finalize) after that; "
                "or +C multi_time_warp, if all code can handle it",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/time_correction.html"
        }
    ].

module_sockets() ->
    [
        #{
            name => rearmed_sockets,
            needs => [otp, scheduler_poll, module_sockets],
            check => fun
                (#{otp := [Major | _], scheduler_poll := true, module_sockets := Number}) when
                    Major >= 28, Number >= ?MANY_MODULE_SOCKETS
                ->
                    {note, io_lib:format("~b sockets of the module `socket'", [Number])};
                (_) ->
                    ok
            end,
            why =>
                "From OTP 28 on schedulers poll busy sockets of that module, and each further wait for such a socket "
                "costs an epoll_ctl(2) that changes nothing.",
            advice => "the default backend `inet', or {tcp_module, weir_tcp}; later releases may have the fix",
            sure => low,
            link => "https://github.com/erlang/otp/pull/11525"
        }
    ].

memory() ->
    [
        #{
            name => swapped,
            needs => [swap],
            check => fun
                (#{swap := Swap}) when Swap > 10 * ?MIB -> {critical, [mib(Swap), " of the VM are in swap"]};
                (_) -> ok
            end,
            why => "A garbage collection touches a whole heap, and waits for each page that is swapped out.",
            advice => "more memory, or no swap for this service",
            sure => high,
            link => "https://docs.kernel.org/admin-guide/mm/concepts.html"
        },
        #{
            name => memory_outside,
            needs => [rss, carriers],
            check => fun
                (#{rss := Rss, carriers := Carriers}) when Rss - Carriers > ?MUCH_MEMORY, Rss > 2 * Carriers ->
                    {warning, [mib(Rss), " in memory, but the VM's allocators have only ", mib(Carriers)]};
                (_) ->
                    ok
            end,
            why => "The rest was allocated by native code, or by the C library. erlang:memory/0 does not count it.",
            advice => "check the native libraries that are loaded",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/erts_alloc.html"
        },
        #{
            name => fragmented,
            needs => [carriers, blocks],
            check => fun
                (#{carriers := Carriers, blocks := Blocks}) when
                    Carriers - Blocks > ?MUCH_MEMORY, Carriers > 2 * Blocks
                ->
                    {warning, ["allocators hold ", mib(Carriers), ", of which ", mib(Blocks), " are in use"]};
                (_) ->
                    ok
            end,
            why =>
                "Memory that was used once is kept, because its free blocks are too small or too scattered to give "
                "back.",
            advice =>
                "find the allocator (weir scope, page memory); +MBacul, +MHacul and the strategy (as) of that "
                "allocator",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/erts_alloc.html"
        }
    ].

queues() ->
    [
        #{
            name => long_queue,
            needs => [queues],
            check => fun(#{queues := Queues}) ->
                case
                    [
                        io_lib:format("~p (~p): ~b", [Pid, Name, Length])
                     || {Length, Pid, Name} <- Queues, Length > ?LONG_QUEUE
                    ]
                of
                    [] -> ok;
                    Long -> {critical, ["messages wait: ", lists:join("; ", Long)]}
                end
            end,
            why =>
                "The process gets messages faster than it handles them. Senders do not notice, and each garbage "
                "collection copies the queue.",
            advice =>
                "let senders wait for an answer, or drop messages; {message_queue_data, off_heap} for this process",
            sure => high,
            link => "https://www.erlang.org/doc/system/eff_guide_processes.html"
        }
    ].

releases() ->
    [
        #{
            name => slow_accept_of_socket,
            needs => [otp],
            check => fun
                (#{otp := Version}) when Version >= [28], Version < [28, 2] -> {note, ["OTP ", version(Version)]};
                (_) -> ok
            end,
            why => "In OTP 28.0 and 28.1 the backend `socket' of gen_tcp accepts slowly.",
            advice => "a later 28, or the default backend `inet'",
            sure => low,
            link => "https://github.com/erlang/otp/issues/10322"
        },
        #{
            name => weir_without_pollsets,
            needs => [weir],
            check => fun
                (#{weir := 0}) -> {critical, "the application weir runs without pollsets"};
                (_) -> ok
            end,
            why => "Its native library could not be loaded. All sockets are OTP's.",
            advice => "see the reason in the log of the application's start",
            sure => high,
            link => "https://www.erlang.org/doc/man/erl_nif.html"
        }
    ].

long(Kind, From, Turns) ->
    case [Turn || #{kind := Same, milliseconds := Milliseconds} = Turn <- Turns, Same =:= Kind, Milliseconds >= From] of
        [] ->
            ok;
        Long ->
            {warning,
                lists:join("; ", [
                    io_lib:format("~p (~0tp): ~b ms", [Who, maps:get(name, Turn, gone), Milliseconds])
                 || #{who := Who, milliseconds := Milliseconds} = Turn <- lists:sublist(Long, 5)
                ])}
    end.

time_warp(#{time_offset := preliminary}) ->
    {note, "+C single_time_warp, and the offset is not final: timestamps may still jump"};
time_warp(#{clock_difference := Milliseconds, time_warp_mode := Mode}) when abs(Milliseconds) > ?CLOCKS_DIFFER ->
    {warning, io_lib:format("the VM's clock is ~.1f s ~s the system's (~s)", [
        abs(Milliseconds) / 1000, case Milliseconds > 0 of true -> "ahead of"; false -> "behind" end, Mode
    ])};
time_warp(_) ->
    ok.

%% Busy waiting is CPU time of the schedulers in which they ran nothing.
busy_waiting(#{over := #{scheduler_cpu_ns := Cpu, scheduler_busy_ns := Busy, ns := Ns}} = Facts) ->
    Vain = (Cpu - Busy) / max(1, Ns),
    case Facts of
        #{cpus := Cpus} when Vain > 0.2 * Cpus -> {warning, vain(Vain)};
        _ when Vain > 0.5 -> {note, vain(Vain)};
        _ -> ok
    end.

vain(Processors) ->
    io_lib:format("schedulers use ~.1f processors to look for work", [Processors]).

mib(Bytes) -> io_lib:format("~b MiB", [Bytes div ?MIB]).

version(Numbers) -> lists:join(".", [integer_to_list(Number) || Number <- Numbers]).
