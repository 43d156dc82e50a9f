%% Each rule finds something on a node with a wrong setting, and nothing on a healthy one.
-module(weir_scope_rules_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MIB, 1048576).

%% Facts with which every rule can be checked and finds nothing.
healthy() ->
    #{
        node => 'well@127.0.0.1',
        otp => [25, 2, 3],
        ports => {10, 65536},
        processes => {100, 262144},
        atoms => {10000, 1048576},
        descriptors => {20, 1024},
        schedulers => {4, 4},
        processors => 4,
        cpus => 4.0,
        memory_limit => {100 * ?MIB, 1000 * ?MIB},
        listeners => [
            #{port => 80, kind => weir, backlog => 1024, waiting => 0, buffer => 65536},
            #{port => 4000, kind => distribution, buffer => 65536}
        ],
        module_sockets => 5,
        acceptors => 10,
        modes => #{a => 100},
        tcp_memory => {?MIB, 100 * ?MIB, 200 * ?MIB},
        connections_tracked => {10, 65536},
        cpu_pressure => 0.5,
        clock_source => <<"tsc">>,
        time_correction => true,
        time_warp_mode => no_time_warp,
        time_offset => final,
        clock_difference => -20,
        swap => 0,
        rss => 300 * ?MIB,
        carriers => 250 * ?MIB,
        blocks => 200 * ?MIB,
        queues => [{5, self(), init}],
        run_queue => 1000,
        scheduler_poll => true,
        broadcasters => [{rooms, 5000, high}],
        timed_receivers => [{small, 10}],
        long_turns => [
            #{kind => long_gc, milliseconds => 30, who => self()},
            #{kind => long_schedule, milliseconds => 30, who => self()}
        ],
        weir => 4,
        over => #{
            ns => 1_000_000_000,
            throttled_us => 0,
            listen_overflows => 0,
            listen_drops => 0,
            memory_pressures => 0,
            pruned => 0,
            scheduler_cpu_ns => 110_000_000,
            scheduler_busy_ns => 100_000_000,
            poller_cpu_ns => #{<<"0_poller">> => 300_000_000},
            received => #{a => 100_000_000}
        }
    }.

over(Keys, Value) when is_list(Keys) ->
    #{over := Over} = healthy(),
    #{over => maps:merge(Over, maps:from_keys(Keys, Value))};
over(Key, Value) ->
    over([Key], Value).

%% The expected findings, and the changed facts that lead to them.
sick() ->
    [
        {ports_close_to_limit, warning, #{ports => {60000, 65536}}},
        {ports_close_to_limit, critical, #{ports => {65000, 65536}}},
        {processes_close_to_limit, critical, #{processes => {262000, 262144}}},
        {atoms_close_to_limit, warning, #{atoms => {900000, 1048576}}},
        {descriptors_close_to_limit, critical, #{descriptors => {1024, 1024}}},
        {large_port_table, warning, #{ports => {10, 134217727}}},
        {more_schedulers_than_processors, warning, #{cpus => 2.0}},
        {idle_processors, note, #{processors => 8, cpus => 8.0}},
        {throttled, warning, over(throttled_us, 50_000)},
        {memory_limit_close, warning, #{memory_limit => {900 * ?MIB, 1000 * ?MIB}}},
        {small_backlog, note, #{listeners => [#{port => 80, backlog => 5, waiting => 0, buffer => 65536}]}},
        {backlog_full, critical, #{listeners => [#{port => 80, backlog => 1024, waiting => 1025, buffer => 65536}]}},
        {few_acceptors, warning, #{
            acceptors => 1, listeners => [#{port => 80, backlog => 1024, waiting => 3, buffer => 65536}]
        }},
        {listen_overflows, note, over([listen_overflows, listen_drops], 1)},
        {listen_overflows, warning, over([listen_overflows, listen_drops], 10)},
        {listen_overflows, critical, over([listen_overflows, listen_drops], 100)},
        {listen_drops, note, over(listen_drops, 3)},
        {listen_drops, warning, over(listen_drops, 30)},
        {listener_without_weir, note, #{listeners => [#{port => 80, kind => port, buffer => 65536}]}},
        {time_warp, note, #{time_warp_mode => single_time_warp, time_offset => preliminary}},
        {time_warp, warning, #{clock_difference => -3000}},
        {time_warp, warning, #{clock_difference => 3000}},
        {rearmed_sockets, note, #{otp => [28, 5], module_sockets => 200}},
        {small_buffer_for_bulk, warning, #{
            listeners => [#{port => 80, backlog => 1024, waiting => 0, buffer => 1460}]
        }},
        {bulk_by_once, warning, #{modes => #{a => once}}},
        {tcp_memory_pressure, warning, over(pruned, 3)},
        {tcp_memory_close, warning, #{tcp_memory => {90 * ?MIB, 100 * ?MIB, 200 * ?MIB}}},
        {connection_tracking_close, critical, #{connections_tracked => {65000, 65536}}},
        {busy_waiting, warning, over(scheduler_cpu_ns, 3_000_000_000)},
        {processors_short, warning, #{cpu_pressure => 60.0}},
        {poll_thread_busy, warning, over(poller_cpu_ns, #{<<"0_poller">> => 950_000_000})},
        {scheduler_poll_off, note, #{scheduler_poll => false}},
        {long_collections, warning, #{
            long_turns => [#{kind => long_gc, milliseconds => 200, who => self(), name => slow}]
        }},
        {long_turns, warning, #{long_turns => [#{kind => long_schedule, milliseconds => 80, who => self()}]}},
        {broadcaster_of_normal_priority, note, #{broadcasters => [{rooms, 5000, normal}]}},
        {receive_with_timeout, note, #{timed_receivers => [{server, 300}]}},
        {slow_clock_source, warning, #{clock_source => <<"hpet">>}},
        {time_correction_off, warning, #{time_correction => false}},
        {swapped, critical, #{swap => 50 * ?MIB}},
        {memory_outside, warning, #{rss => 800 * ?MIB}},
        {fragmented, warning, #{carriers => 500 * ?MIB}},
        {long_queue, critical, #{queues => [{20000, self(), slow}]}},
        {slow_accept_of_socket, note, #{otp => [28, 1]}},
        {weir_without_pollsets, critical, #{weir => 0}}
    ].

each_rule_finds_what_it_is_for_test_() ->
    [
        {atom_to_list(Rule), ?_assertEqual([{Rule, Severity}], found(maps:merge(healthy(), Changed)))}
     || {Rule, Severity, Changed} <- sick()
    ].

a_healthy_node_has_nothing_test() ->
    #{findings := Findings, unknown := Unknown, fine := Fine} = weir_scope_doctor:judge(healthy()),
    ?assertEqual({[], []}, {Findings, Unknown}),
    %% Every rule is in the list above.
    ?assertEqual(lists:sort(Fine), lists:usort([Rule || {Rule, _, _} <- sick()])).

%% Without a quota busy waiting is only a note.
busy_waiting_without_a_quota_test() ->
    Facts = maps:merge(healthy(), over(scheduler_cpu_ns, 3_000_000_000)),
    ?assertEqual([{busy_waiting, note}], found(maps:remove(cpus, Facts))).

slow_connections_may_be_read_by_once_test() ->
    ?assertEqual([], found(maps:merge(healthy(), (over(received, #{a => 1000}))#{modes => #{a => once}}))).

what_is_not_known_is_said_test() ->
    #{findings := [], unknown := Unknown} = weir_scope_doctor:judge(maps:without([swap, over], healthy())),
    ?assertEqual([swap], proplists:get_value(swapped, Unknown)),
    ?assertEqual([{over, listen_overflows}, {over, ns}], proplists:get_value(listen_overflows, Unknown)).

%% Twenty drops in ten seconds are only a note.
drops_are_judged_by_their_rate_test() ->
    #{over := Over} = maps:merge(healthy(), over([listen_overflows, listen_drops], 20)),
    ?assertEqual(
        [{listen_overflows, note}],
        found((healthy())#{over := Over#{ns := 10_000_000_000, received := #{}, poller_cpu_ns := #{}}})
    ).

%% From OTP 29 on the order of options does not matter. Without Weir on the node the listener is not meant to use it.
a_listener_of_otp_may_be_meant_test() ->
    Listeners = [#{port => 80, kind => port, buffer => 65536}],
    [
        ?assertEqual([], found(maps:merge(healthy(), Changed#{listeners => Listeners})))
     || Changed <- [#{otp => [29]}, #{weir => none}]
    ].

%% Acceptors of a `socket' do not wait in the function in which those of ports wait.
who_accepts_at_a_socket_of_the_module_is_not_known_test() ->
    Listeners = [#{port => 80, kind => socket, backlog => 1024, waiting => 3}],
    ?assertEqual([], found((healthy())#{acceptors => 1, listeners => Listeners})),
    ?assertEqual(
        [{few_acceptors, warning}], found((healthy())#{acceptors => 1, listeners => [(hd(Listeners))#{kind := weir}]})
    ).

a_few_sockets_of_the_module_or_an_older_otp_test() ->
    [
        ?assertEqual([], found(maps:merge(healthy(), Changed)))
     || Changed <- [#{otp => [28, 5]}, #{module_sockets => 200}]
    ],
    ?assertEqual(
        [{scheduler_poll_off, note}],
        found(maps:merge(healthy(), #{otp => [28, 5], module_sockets => 200, scheduler_poll => false}))
    ).

a_broadcaster_has_the_processors_for_itself_test() ->
    ?assertEqual([], found((healthy())#{broadcasters => [{rooms, 5000, normal}], run_queue => 3})).

the_worst_comes_first_test() ->
    Report = weir_scope_doctor:judge(
        maps:merge(healthy(), #{swap => 50 * ?MIB, time_correction => false, otp => [28, 0]})
    ),
    #{findings := Findings} = Report,
    ?assertEqual([swapped, time_correction_off, slow_accept_of_socket], [Rule || #{rule := Rule} <- Findings]),
    ?assertEqual(critical, weir_scope_doctor:worst(Report)),
    Text = unicode:characters_to_list(weir_scope_doctor:text(Report)),
    ?assert(string:find(Text, "1 critical, 1 warning, 1 note\n") =/= nomatch),
    ?assert(string:find(Text, "50 MiB of the VM are in swap") =/= nomatch).

found(Facts) ->
    #{findings := Findings} = weir_scope_doctor:judge(Facts),
    [{Rule, Severity} || #{rule := Rule, severity := Severity} <- Findings].
