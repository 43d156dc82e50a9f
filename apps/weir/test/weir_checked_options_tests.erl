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
