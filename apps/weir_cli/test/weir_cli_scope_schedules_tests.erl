%% Waits and turns of processes as text.
-module(weir_cli_scope_schedules_tests).

-include_lib("eunit/include/eunit.hrl").

text(Schedules) ->
    Default = #{tracer => native, events => 10, complete => true, running => [], long => {ok, []}, schedulers => []},
    unicode:characters_to_list(weir_cli_scope_schedules:text(maps:merge(Default, Schedules))).

has(Text, Line) -> string:find(Line, Text) =/= nomatch.

histograms_are_drawn_from_the_first_to_the_last_power_test() ->
    Text = text(#{
        schedulers => [#{scheduler => 1, ready => [{256, 98}, {1024, 2}]}, #{scheduler => 2, ready => [{256, 100}]}]
    }),
    ?assert(has("scheduler 1: 100, half below 512, 99 % below 2048", Text)),
    ?assert(has("scheduler 2: 100, half below 512, 99 % below 512", Text)),
    [
        ?assert(has(Line, Text))
     || Line <- [
            "         256 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 198",
            "         512 | ",
            "        1024 |@ "
        ]
    ].

what_was_not_measured_is_not_shown_test() ->
    Text = text(#{schedulers => [#{scheduler => 1, ready => [{256, 1}]}]}),
    ?assert(has("from ready to running", Text)),
    ?assertNot(has("from the end of a turn", Text)),
    ?assertNot(has("Ended early", Text)),
    ?assert(has("no turn and no collection took 20 ms", Text)).

long_turns_are_named_test() ->
    Turn = #{
        kind => long_schedule,
        milliseconds => 80,
        who => self(),
        name => slow_server,
        label => <<"a label">>,
        in => {a, b, 1},
        out => undefined
    },
    Text = text(#{long => {ok, [Turn]}, complete => false, running => [{64, 1}]}),
    [
        ?assert(has(Part, Text))
     || Part <- [
            "80 ms",
            "long_schedule",
            "slow_server",
            "a label",
            "in {a,b,1}",
            "Ended early, after 10 events",
            "turns of some processes"
        ]
    ],
    ?assertNot(has("out undefined", Text)).

another_system_monitor_is_told_of_test() ->
    ?assert(has("long turns: not measured", text(#{long => {error, {system_monitor, self()}}}))).

the_cost_is_said_test() ->
    ?assert(has("native code", unicode:characters_to_list(weir_cli_scope_schedules:cost(native, 5)))),
    ?assert(has("200,000", unicode:characters_to_list(weir_cli_scope_schedules:cost(otp, 5)))).
