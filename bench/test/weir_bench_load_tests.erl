-module(weir_bench_load_tests).

-include_lib("eunit/include/eunit.hrl").

a_second_is_told_from_other_lines_test_() ->
    [
        ?_assertEqual({Line, Verdict}, {Line, weir_bench_load:second(Line)})
     || {Line, Verdict} <- [
            {<<"     3      8750      8706   70.45ms    29.5us"
                "   14.74ms   14.20ms    9.38ms   29.88ms   42.63ms         0">>, {ok, held}},
            {<<"     3      8750      8706   70.45ms    29.5us"
                "   14.74ms   14.20ms    9.38ms   29.88ms   42.63ms         1">>, {ok, broken}},
            {<<"     3      8750      8706     2.10s    29.5us"
                "   14.74ms   14.20ms    9.38ms   29.88ms  101.00ms         0">>, {ok, broken}},
            {<<"     3      8750      8706     2.10s    29.5us"
                "   14.74ms   14.20ms    9.38ms   29.88ms     1.20s         0">>, {ok, broken}},
            {<<"    16     31500         0         -         -"
                "         -         -         -         -         -      7434">>, {ok, broken}},
            {<<"second   offered     count       max       min"
                "       avg       med    stddev        95        99    errors">>, no},
            {<<"opening 19744 connections">>, no},
            {<<"pid 4711">>, no},
            {<<"response      22.2us  318.08ms  221.38ms  790.10ms  953.16ms     1.05s     1.09s">>, no},
            {<<>>, no}
        ]
    ].

what_the_generator_prints_of_a_second_is_understood_test() ->
    Times = #{max => 5.0, min => 1.0, mean => 2.0, p50 => 2.0, stdev => 0.1, p95 => 3.0, p99 => 4.0},
    Second = #{
        second => 1, offered => 20, answered => 20, pushed => 0, error_count => 0, response_us => Times
    },
    Printed = printed(fun() ->
        weir_load_live:show({second, Second}, weir_load_live:new(false, 1_000_000_000))
    end),
    ?assertEqual([{ok, held}], [Found || Line <- Printed, {ok, _} = Found <- [weir_bench_load:second(Line)]]).

%% Returns what a function prints on standard_error, which is a registered process.
printed(Print) ->
    Real = whereis(standard_error),
    true = unregister(standard_error),
    true = register(standard_error, self()),
    Test = self(),
    Printer = spawn_link(fun() -> Print(), Test ! {printed, self()} end),
    try
        binary:split(iolist_to_binary(requests(Printer)), <<"\n">>, [global])
    after
        true = unregister(standard_error),
        true = register(standard_error, Real)
    end.

requests(Printer) ->
    receive
        {io_request, From, Reference, {put_chars, unicode, Text}} ->
            From ! {io_reply, Reference, ok},
            [unicode:characters_to_binary(Text) | requests(Printer)];
        {printed, Printer} ->
            []
    end.
