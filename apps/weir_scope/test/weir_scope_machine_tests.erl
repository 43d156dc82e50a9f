%% Differences of two readings of the machine.
-module(weir_scope_machine_tests).

-include_lib("eunit/include/eunit.hrl").

reading(Counters) -> #{counters => Counters, gauges => #{}}.

%% The kernel updates pressure late, so a reading may have more than a second of it in a second. Throttled time may
%% exceed the time because several threads are throttled at once.
a_second_waits_for_a_second_at_most_test() ->
    Before = reading(#{cpu_pressure => 0, throttled => 0, retransmits => 7}),
    After = reading(#{cpu_pressure => 1_100_000_000, throttled => 3_000_000_000, retransmits => 10}),
    Totals = #{retransmits => 10},
    ?assertEqual(
        #{cpu_pressure => 1.0, throttled => 3.0, retransmits => 3.0, totals => Totals},
        weir_scope_machine:between(Before, After, 1_000_000_000)
    ),
    ?assertEqual(
        #{cpu_pressure => 0.55, throttled => 1.5, retransmits => 1.5, totals => Totals},
        weir_scope_machine:between(Before, After, 2_000_000_000)
    ).
