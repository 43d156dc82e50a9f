%% @private
%% @doc Rules about the network: listeners, buffers, how sockets are read, what the kernel has dropped.
-module(weir_scope_network).

-export([rules/0]).

%% Bytes per second of one socket from which on the way it is read matters.
-define(BULK, 20_000_000).

%% A backlog below this overflows when the node is busy for a moment. Clients then repeat their SYN after a second.
-define(SMALL_BACKLOG, 128).

%% Connections dropped per second. Below the first number it is a short burst: some clients wait a second.
-define(SOME_DROPPED, 10).
-define(MANY_DROPPED, 100).

%% Fraction of a limit from which on the node is close to it.
-define(CLOSE, 0.8).

-spec rules() -> [weir_scope_rule:rule()].
rules() ->
    backlogs() ++ acceptors() ++ drops() ++ backends() ++ bulk_reads() ++ kernel_memory() ++ tracking().

backlogs() ->
    [
        #{
            name => small_backlog,
            needs => [listeners],
            check => fun(#{listeners := Listeners}) ->
                listed(note, [
                    io_lib:format("port ~b: backlog ~b", [Port, Backlog])
                 || #{port := Port, backlog := Backlog} <- Listeners, Backlog < ?SMALL_BACKLOG
                ])
            end,
            why =>
                "If more connections than the backlog arrive at once, the kernel drops them, and their clients try "
                "again after a second. gen_tcp's default is 5.",
            advice => "{backlog, 1024} in the options of listen; net.core.somaxconn is the maximum",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/kernel/inet.html"
        },
        #{
            name => backlog_full,
            needs => [listeners],
            check => fun(#{listeners := Listeners}) ->
                listed(critical, [
                    io_lib:format("port ~b: ~b connections wait, the backlog is ~b", [Port, Waiting, Backlog])
                 || #{port := Port, waiting := Waiting, backlog := Backlog} <- Listeners,
                    Waiting >= Backlog,
                    Waiting > 0
                ])
            end,
            why => "Connections are not accepted fast enough, and the kernel drops new ones.",
            advice => "several processes that do nothing but accept; a larger backlog for bursts",
            sure => high,
            link => "https://www.erlang.org/doc/apps/kernel/gen_tcp.html"
        }
    ].

acceptors() ->
    [
        #{
            name => few_acceptors,
            needs => [listeners, acceptors],
            check => fun(#{listeners := All, acceptors := Acceptors}) ->
                %% The acceptors of a socket of the module `socket' are not known.
                Listeners = [Listener || Listener <- All, maps:get(kind, Listener, port) =/= socket],
                Behind = [Port || #{port := Port, waiting := Waiting} <- Listeners, Waiting > 0],
                case Behind of
                    [] ->
                        ok;
                    _ when Acceptors >= length(Listeners) * 4 -> ok;
                    _ ->
                        {warning,
                            io_lib:format(
                                "connections wait on ports ~w; ~b processes wait in accept, for ~b listeners", [
                                    Behind, Acceptors, length(Listeners)
                                ]
                            )}
                end
            end,
            why => "A process accepts only one connection each time it is scheduled.",
            advice => "ten or more processes that call gen_tcp:accept/1 on the same listener, as in ranch",
            sure => medium,
            link => "https://ninenines.eu/docs/en/ranch/2.1/guide/internals/"
        }
    ].

drops() ->
    [
        #{
            name => listen_overflows,
            needs => [{over, listen_overflows}, {over, ns}],
            check => fun(#{over := #{listen_overflows := Number, ns := Ns}}) ->
                dropped(Number, Ns, "at a full backlog")
            end,
            why =>
                "A backlog was full. The count covers the whole network namespace, so it may be that of another "
                "program.",
            advice => "a larger backlog, more processes that accept",
            sure => medium,
            link => "https://www.kernel.org/doc/html/latest/networking/snmp_counter.html"
        },
        #{
            name => listen_drops,
            needs => [{over, listen_drops}, {over, listen_overflows}, {over, ns}],
            %% The kernel counts an overflow as a drop too.
            check => fun(#{over := #{listen_drops := Drops, listen_overflows := Overflows, ns := Ns}}) ->
                dropped(max(0, Drops - Overflows), Ns, "while their backlog was not full")
            end,
            why =>
                "The kernel had no memory for them, or too many handshakes were incomplete. "
                "The count covers the whole network namespace.",
            advice => "net.ipv4.tcp_max_syn_backlog, net.core.somaxconn and net.ipv4.tcp_mem",
            sure => low,
            link => "https://www.kernel.org/doc/html/latest/networking/snmp_counter.html"
        }
    ].

backends() ->
    [
        #{
            name => listener_without_weir,
            needs => [weir, otp, listeners],
            check => fun
                (#{weir := Pollsets, otp := [Major | _], listeners := Listeners}) when
                    is_integer(Pollsets), Pollsets > 0, Major < 29
                ->
                    listed(note, [
                        io_lib:format("port ~b uses a socket of OTP", [Port])
                     || #{port := Port, kind := port} <- Listeners
                    ]);
                (_) ->
                    ok
            end,
            why =>
                "Weir runs, but this listener does not use it. Before OTP 29, `inet' or `inet6' in front of "
                "{tcp_module, _} in the options wins without a warning.",
            advice => "{tcp_module, weir_tcp} as the first option, if the listener should use Weir",
            sure => low,
            link => "https://github.com/erlang/otp/issues/9822"
        }
    ].

bulk_reads() ->
    [
        #{
            name => small_buffer_for_bulk,
            needs => [listeners, {over, received}, {over, ns}],
            check => fun(#{listeners := Listeners} = Facts) ->
                Small = [
                    io_lib:format("port ~b: buffer ~b", [Port, Buffer])
                 || #{port := Port, buffer := Buffer} <- Listeners, Buffer =< 1460
                ],
                case bulk(Facts) of
                    [] -> ok;
                    _ -> listed(warning, Small)
                end
            end,
            why => "Each read takes at most `buffer' bytes. The default of 1,460 is small for the present traffic.",
            advice => "{buffer, 65536} for the listener; connections inherit it",
            sure => medium,
            link => "https://github.com/erlang/otp/issues/9355"
        },
        #{
            name => bulk_by_once,
            needs => [modes, {over, received}, {over, ns}],
            check => fun(#{modes := Modes} = Facts) ->
                listed(warning, [
                    io_lib:format("~p: ~b MB/s", [Socket, Rate div 1000000])
                 || {Socket, Rate} <- bulk(Facts), maps:get(Socket, Modes, none) =:= once
                ])
            end,
            why => "With {active, once} the socket is not read again until its process asks for it.",
            advice => "{active, 100}, and again at each {tcp_passive, Socket}",
            sure => medium,
            link => "https://www.erlang.org/doc/apps/kernel/inet.html"
        }
    ].

kernel_memory() ->
    [
        #{
            name => tcp_memory_pressure,
            needs => [{over, memory_pressures}, {over, pruned}],
            check => fun
                (#{over := #{memory_pressures := Pressures, pruned := Pruned}}) when Pressures + Pruned > 0 ->
                    {warning,
                        io_lib:format("TCP was short of memory ~b times and pruned ~b receive queues", [
                            Pressures, Pruned
                        ])};
                (_) ->
                    ok
            end,
            why => "The kernel has too little memory for TCP: it shrinks windows and drops received data.",
            advice => "smaller buffers, fewer slow readers, a larger net.ipv4.tcp_mem",
            sure => high,
            link => "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html"
        },
        #{
            name => tcp_memory_close,
            needs => [tcp_memory],
            check => fun
                (#{tcp_memory := {Used, Pressure, _}}) when Used > ?CLOSE * Pressure ->
                    {warning,
                        io_lib:format("~b MiB in TCP sockets, memory pressure begins at ~b MiB", [
                            Used div 1048576, Pressure div 1048576
                        ])};
                (_) ->
                    ok
            end,
            why => "Under memory pressure the kernel shrinks windows.",
            advice => "find sockets that are not read (top sockets by queue); a larger net.ipv4.tcp_mem",
            sure => medium,
            link => "https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html"
        }
    ].

tracking() ->
    [
        #{
            name => connection_tracking_close,
            needs => [connections_tracked],
            check => fun
                (#{connections_tracked := {Number, Limit}}) when Number > ?CLOSE * Limit ->
                    {critical, io_lib:format("~b of ~b connections tracked", [Number, Limit])};
                (_) ->
                    ok
            end,
            why => "When the table is full the kernel drops new connections.",
            advice => "a larger net.netfilter.nf_conntrack_max, or no tracking for this port",
            sure => high,
            link => "https://www.kernel.org/doc/html/latest/networking/nf_conntrack-sysctl.html"
        }
    ].

dropped(0, _Ns, _Why) ->
    ok;
dropped(Number, Ns, Why) ->
    Rate = Number * 1_000_000_000 / max(1, Ns),
    {
        how_bad(Rate),
        io_lib:format("~b connections dropped in ~b ms ~s, on this machine", [Number, Ns div 1_000_000, Why])
    }.

how_bad(Rate) when Rate >= ?MANY_DROPPED -> critical;
how_bad(Rate) when Rate >= ?SOME_DROPPED -> warning;
how_bad(_Rate) -> note.

listed(_Severity, []) -> ok;
listed(Severity, Seen) -> {Severity, lists:join("; ", Seen)}.

%% Sockets that receive much, with their bytes per second.
bulk(#{over := #{received := Received, ns := Ns}}) ->
    [
        {Socket, Rate}
     || {Socket, Bytes} <- maps:to_list(Received), (Rate = Bytes * 1_000_000_000 div max(1, Ns)) >= ?BULK
    ].
