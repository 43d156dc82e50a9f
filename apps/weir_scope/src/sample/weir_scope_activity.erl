%% @doc Samples the activity of a node: reductions, garbage collections, context switches, bytes of ports, numbers of
%% processes, ports and atoms, and OTP's own poll sets.
-module(weir_scope_activity).

-export([read/1]).
-export([between/3]).

-export_type([reading/0, activity/0, check_io/0]).

-opaque reading() :: #{counters := #{atom() => integer()}, gauges := #{atom() => integer()}, check_io := [check_io()]}.

-type activity() :: #{
    rates := #{reductions | context_switches | collections | words_reclaimed | bytes_in | bytes_out => float()},
    totals := #{reductions | context_switches | collections | words_reclaimed | bytes_in | bytes_out => integer()},
    counts := #{
        processes | process_limit | ports | port_limit | atoms | atom_limit | ets_tables | run_queue => integer()
    },
    check_io := [check_io()]
}.
%% `rates' are per second, `totals' since the node started. `bytes_in' and `bytes_out' are bytes of ports, without the
%% sockets of Weir and of OTP's `socket'. `run_queue': processes and ports that are ready to run and wait.

-type check_io() :: #{
    kind := atom(), descriptors := integer(), active := integer(), memory := integer(), threads := integer()
}.
%% A poll set of OTP: its descriptors, those with an event, its bytes, and the threads that poll it.

-spec read(weir_scope_facts:ask()) -> reading().
read(Ask) ->
    {{input, In}, {output, Out}} = Ask(erlang, statistics, [io]),
    {Collections, Words, _} = Ask(erlang, statistics, [garbage_collection]),
    {Switches, _} = Ask(erlang, statistics, [context_switches]),
    {Reductions, _} = Ask(erlang, statistics, [reductions]),
    Info = fun(Item) -> Ask(erlang, system_info, [Item]) end,
    #{
        counters => #{
            reductions => Reductions,
            context_switches => Switches,
            collections => Collections,
            words_reclaimed => Words,
            bytes_in => In,
            bytes_out => Out
        },
        gauges => #{
            processes => Info(process_count),
            process_limit => Info(process_limit),
            ports => Info(port_count),
            port_limit => Info(port_limit),
            atoms => Info(atom_count),
            atom_limit => Info(atom_limit),
            ets_tables => Info(ets_count),
            run_queue => Ask(erlang, statistics, [total_run_queue_lengths])
        },
        check_io => [poll_set(Set) || Set <- Info(check_io)]
    }.

poll_set(Set) ->
    #{
        kind => proplists:get_value(primary, Set, unknown),
        descriptors => proplists:get_value(total_poll_set_size, Set, 0),
        active => proplists:get_value(active_fds, Set, 0),
        memory => proplists:get_value(memory_size, Set, 0),
        threads => proplists:get_value(poll_threads, Set, 0)
    }.

%% @doc Returns what has happened between two readings that are `Ns' nanoseconds apart.
-spec between(reading(), reading(), pos_integer()) -> activity().
between(#{counters := Before}, #{counters := After, gauges := Gauges, check_io := CheckIo}, Ns) ->
    #{
        rates => maps:map(fun(Name, Value) -> (Value - maps:get(Name, Before)) * 1_000_000_000 / Ns end, After),
        totals => After,
        counts => Gauges,
        check_io => CheckIo
    }.
