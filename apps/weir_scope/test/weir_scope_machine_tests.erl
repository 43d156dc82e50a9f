%% What a machine was denied between two readings.
-module(weir_scope_machine_tests).

-include_lib("eunit/include/eunit.hrl").

reading(Counters) -> #{counters => Counters, gauges => #{}}.

%% The kernel adds up pressure late: a second can have more of it than it has time. Threads are throttled at the same
%% time.
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
