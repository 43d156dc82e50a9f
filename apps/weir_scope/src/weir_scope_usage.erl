%% @private
%% @doc Rules about processors, memory, clocks and messages, and about releases with known faults.
-module(weir_scope_usage).

-export([rules/0]).

-define(MIB, 1048576).

%% Less than this is not worth a finding, whatever the ratio.
-define(MUCH_MEMORY, (200 * ?MIB)).

-define(LONG_QUEUE, 10_000).

-spec rules() -> [weir_scope_rule:rule()].
rules() ->
    [
        #{
            name => busy_waiting,
            needs => [{over, scheduler_cpu_ns}, {over, scheduler_busy_ns}, {over, ns}],
            check => fun busy_waiting/1,
            why => "Schedulers look for work for a while before they sleep. On a machine of one's own that is good for latency. In a "
                "container it uses up the quota, and processors that others could use.",
            advice => "+sbwt none +sbwtdcpu none +sbwtdio none, or very_short; measure before and after",
            sure => low,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        },
        #{
            name => processors_short,
            needs => [cpu_pressure],
            check => fun(#{cpu_pressure := Percent}) when Percent > 20 ->
                    {warning, io_lib:format("something waited for a processor in ~.1f % of the last ten seconds", [Percent])};
                (_) -> ok
            end,
            why => "Threads that could run have to wait, those of the VM among them.",
            advice => "find who else runs on this machine",
            sure => medium,
            link => "https://docs.kernel.org/accounting/psi.html"
        },
        #{
            name => slow_clock_source,
            needs => [clock_source],
            check => fun(#{clock_source := Source}) ->
                case lists:member(Source, [<<"hpet">>, <<"acpi_pm">>, <<"xen">>, <<"jiffies">>]) of
                    true -> {warning, ["the kernel's clock source is ", Source]};
                    false -> ok
                end
            end,
            why => "Every timer, timeout and trace reads the clock. With this source that is a system call of a microsecond or more.",
            advice => "tsc, or kvm-clock in a guest (/sys/devices/system/clocksource)",
            sure => high,
            link => "https://docs.kernel.org/timers/timekeeping.html"
        },
        #{
            name => time_correction_off,
            needs => [time_correction],
            check => fun(#{time_correction := false}) -> {warning, "time correction is off"}; (_) -> ok end,
            why => "Without it the VM's clock jumps with that of the system, and reading it takes a lock.",
            advice => "leave +c false out",
            sure => high,
            link => "https://www.erlang.org/doc/apps/erts/time_correction.html"
        },
        #{
            name => swapped,
            needs => [swap],
            check => fun(#{swap := Swap}) when Swap > 10 * ?MIB -> {critical, [mib(Swap), " of the VM are in swap"]}; (_) -> ok end,
            why => "A garbage collection touches a whole heap, and waits for each page that is out.",
            advice => "more memory, or no swap for this service",
            sure => high,
            link => "https://docs.kernel.org/admin-guide/mm/concepts.html"
        },
        #{
            name => memory_outside,
            needs => [rss, carriers],
            check => fun(#{rss := Rss, carriers := Carriers}) when Rss - Carriers > ?MUCH_MEMORY, Rss > 2 * Carriers ->
                    {warning, [mib(Rss), " in memory, and the VM's allocators have ", mib(Carriers)]};
                (_) -> ok
            end,
            why => "The rest was allocated by native code, or by the C library. erlang:memory/0 does not count it.",
            advice => "look at the native libraries that are loaded",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/erts_alloc.html"
        },
        #{
            name => fragmented,
            needs => [carriers, blocks],
            check => fun(#{carriers := Carriers, blocks := Blocks}) when Carriers - Blocks > ?MUCH_MEMORY, Carriers > 2 * Blocks ->
                    {warning, ["allocators hold ", mib(Carriers), ", ", mib(Blocks), " of them in use"]};
                (_) -> ok
            end,
            why => "Memory that was used once is kept: in blocks too small or too scattered to give back.",
            advice => "see which allocator it is; +MBacul, +MHacul and the strategy (as) of that one",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/erts/erts_alloc.html"
        },
        #{
            name => long_queue,
            needs => [queues],
            check => fun(#{queues := Queues}) ->
                case [io_lib:format("~p (~p): ~b", [Pid, Name, Length]) || {Length, Pid, Name} <- Queues, Length > ?LONG_QUEUE] of
                    [] -> ok;
                    Long -> {critical, ["messages wait: ", lists:join("; ", Long)]}
                end
            end,
            why => "The process gets more than it does. What sends to it does not notice, and each collection of it copies the queue.",
            advice => "let senders wait for an answer, or drop; {message_queue_data, off_heap} for this process",
            sure => high,
            link => "https://www.erlang.org/doc/system/eff_guide_processes.html"
        },
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
            check => fun(#{weir := 0}) -> {critical, "the application weir runs, and has no pollset"}; (_) -> ok end,
            why => "Its native library could not be loaded. Sockets are OTP's own.",
            advice => "the log says why when it starts",
            sure => high,
            link => "https://www.erlang.org/doc/man/erl_nif.html"
        }
    ].

%% Time on a processor in which nothing was run.
busy_waiting(#{over := #{scheduler_cpu_ns := Cpu, scheduler_busy_ns := Busy, ns := Ns}} = Facts) ->
    Vain = (Cpu - Busy) / max(1, Ns),
    case Facts of
        #{cpus := Cpus} when Vain > 0.2 * Cpus -> {warning, vain(Vain)};
        _ when Vain > 0.5 -> {note, vain(Vain)};
        _ -> ok
    end.

vain(Processors) ->
    io_lib:format("schedulers look for work on ~.1f processors", [Processors]).

mib(Bytes) -> io_lib:format("~b MiB", [Bytes div ?MIB]).

version(Numbers) -> lists:join(".", [integer_to_list(Number) || Number <- Numbers]).
