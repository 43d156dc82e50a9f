-module(weir_checked_options_tests).

-include_lib("eunit/include/eunit.hrl").

check(Options) ->
    weir_checked_options:check(Options, [name, size], fun
        (name, Name) -> is_atom(Name) orelse "an atom";
        (size, Size) -> is_integer(Size) orelse "a number"
    end).

the_form_of_the_error_test_() ->
    [
        ?_assertEqual(ok, check(#{})),
        ?_assertEqual(ok, check(#{name => a, size => 1})),
        ?_assertEqual({error, {bad_option, size, x, "a number"}}, check(#{name => a, size => x})),
        ?_assertEqual({error, {bad_option, colour, red, "unknown option; valid: name, size"}}, check(#{colour => red})),
        ?_assertEqual({error, {bad_option, options, [], "a map"}}, check([]))
    ].

times_and_numbers_test_() ->
    Time = "milliseconds from 1 to 4294967295, or infinity",
    Number = "a number of bytes from 0 to 4294967295",
    [?_assertEqual(true, weir_checked_options:time(1, Value)) || Value <- [1, 16#ffffffff, infinity]] ++
        [?_assertEqual(Time, weir_checked_options:time(1, Value)) || Value <- [0, 16#100000000, 1.5, forever]] ++
        [?_assertEqual(true, weir_checked_options:number("bytes", 0, Value)) || Value <- [0, 16#ffffffff]] ++
        [
            ?_assertEqual(Number, weir_checked_options:number("bytes", 0, Value))
         || Value <- [-1, 16#100000000, infinity]
        ].
