%% @private
%% @doc Rules about limits: of the VM, of the process, of its control group.
-module(weir_scope_limits).

-export([rules/0]).

%% Fractions of a limit: from here it is a warning, and critical.
-define(CLOSE, 0.8).
-define(AT_ONCE, 0.95).

%% Bytes of the port table for each port, used or not. Measured on OTP 25: 1,549 MiB for 134,217,727 ports.
-define(BYTES_A_PORT, 12).

-define(MIB, 1048576).

-spec rules() -> [weir_scope_rule:rule()].
rules() ->
    tables() ++ processors() ++ memory().

tables() ->
    [
        near(
            ports,
            "ports",
            "Sockets, files and external programs are ports. At the limit accept fails with system_limit.",
            "+Q"
        ),
        near(processes, "processes", "At the limit spawn fails with system_limit.", "+P"),
        near(
            atoms,
            "atoms",
            "The VM crashes when the table is full. Atoms are never freed: find the code that makes them "
            "(list_to_atom/1).",
            "+t"
        ),
        near(
            descriptors,
            "file descriptors",
            "At the limit accept fails with emfile, and connections wait in the backlog.",
            "ulimit -n"
        ),
        #{
            name => large_port_table,
            needs => [ports],
            check => fun
                (#{ports := {_, Limit}}) when Limit * ?BYTES_A_PORT > 100 * ?MIB ->
                    {warning,
                        io_lib:format("room for ~b ports, about ~b MiB", [Limit, Limit * ?BYTES_A_PORT div ?MIB])};
                (_) ->
                    ok
            end,
            why =>
                "The VM sizes the table of ports by the limit of descriptors. "
                "Containers often have a limit of a billion.",
            advice => "+Q 65536, or what you need",
            sure => high,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        }
    ].

processors() ->
    [
        #{
            name => more_schedulers_than_processors,
            needs => [schedulers, cpus],
            check => fun more_schedulers/1,
            why =>
                "The kernel stops schedulers beyond the quota of the control group in the middle of their work, while "
                "they hold locks.",
            advice => "+S N:N, with N the processors of the quota rounded up; and +sbwt none",
            sure => medium,
            link => "https://github.com/erlang/otp/issues/8450"
        },
        #{
            name => idle_processors,
            needs => [schedulers, processors],
            check => fun
                (#{schedulers := {Online, _}, processors := Processors, cpus := Cpus}) when
                    Cpus < Processors; Online >= Processors
                ->
                    ok;
                (#{schedulers := {Online, _}, processors := Processors}) when
                    is_integer(Processors), Online < Processors
                ->
                    {note, io_lib:format("~b schedulers online, ~b processors", [Online, Processors])};
                (_) ->
                    ok
            end,
            why => "Erlang processes only run on online schedulers; the other processors stay unused.",
            advice => "remove +S, unless other programs need these processors",
            sure => low,
            link => "https://www.erlang.org/doc/apps/erts/erl_cmd.html"
        },
        #{
            name => throttled,
            needs => [{over, throttled_us}, {over, ns}],
            check => fun
                (#{over := #{throttled_us := Throttled, ns := Ns}}) when Throttled * 1000 > Ns div 100 ->
                    {warning,
                        io_lib:format("throttled for ~b ms in the last ~b ms", [Throttled div 1000, Ns div 1000000])};
                (_) ->
                    ok
            end,
            why =>
                "When the quota of a period is used up, the kernel stops all threads of the VM until the next period. "
                "Every request waits.",
            advice => "a larger quota, fewer schedulers (+S), +sbwt none +sbwtdcpu none +sbwtdio none",
            sure => high,
            link => "https://docs.kernel.org/scheduler/sched-bwc.html"
        }
    ].

memory() ->
    [
        #{
            name => memory_limit_close,
            needs => [memory_limit],
            check => fun(#{memory_limit := {Used, Limit}}) -> close_to(Used, Limit, "bytes of the control group") end,
            why => "At the limit the kernel kills the VM.",
            advice => "a larger limit, or find out what holds memory (weir scope, page memory)",
            sure => medium,
            link => "https://docs.kernel.org/admin-guide/cgroup-v2.html"
        }
    ].

near(Fact, What, Why, Flag) ->
    #{
        name => list_to_atom(atom_to_list(Fact) ++ "_close_to_limit"),
        needs => [Fact],
        check => fun(#{Fact := {Number, Limit}}) -> close_to(Number, Limit, What) end,
        why => Why,
        advice => "a higher limit: " ++ Flag,
        sure => high,
        link => "https://www.erlang.org/doc/system/system_limits.html"
    }.

close_to(Number, Limit, What) when Number > ?AT_ONCE * Limit -> {critical, of_limit(Number, Limit, What)};
close_to(Number, Limit, What) when Number > ?CLOSE * Limit -> {warning, of_limit(Number, Limit, What)};
close_to(_Number, _Limit, _What) -> ok.

of_limit(Number, Limit, What) ->
    io_lib:format("~b of ~b ~s", [Number, Limit, What]).

%% Less than one scheduler above the quota is the result of rounding up.
more_schedulers(#{schedulers := {Online, _}, cpus := Cpus}) when Online >= Cpus + 1 ->
    {warning, io_lib:format("~b schedulers online, quota of ~.1f processors", [Online, Cpus])};
more_schedulers(_) ->
    ok.
