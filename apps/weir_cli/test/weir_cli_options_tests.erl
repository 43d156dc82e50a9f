-module(weir_cli_options_tests).

-include_lib("eunit/include/eunit.hrl").

options() ->
    [
        #{name => port, type => {integer, 0, 65535}, value => "P", default => 0, help => "a port"},
        #{name => color, type => {choice, [red, blue]}, value => "C", help => "a color"},
        #{name => file, type => {text, fun file/1}, value => "F", help => "a file"},
        #{name => help, type => flag, help => "help"}
    ].

file("") -> {error, "a name is needed"};
file(Name) -> {ok, Name}.

what_is_given_test_() ->
    [
        ?_assertEqual({ok, Values, Operands}, weir_cli_options:parse(options(), Arguments))
     || {Arguments, Values, Operands} <- [
            {[], #{port => 0}, []},
            {["--port", "80"], #{port => 80}, []},
            {["--port=80", "echo"], #{port => 80}, ["echo"]},
            {["echo", "--port", "80", "more"], #{port => 80}, ["echo", "more"]},
            {["--port", "80", "--port", "81"], #{port => 81}, []},
            {["--color", "blue", "--file=a=b"], #{port => 0, color => blue, file => "a=b"}, []},
            {["--help"], #{port => 0, help => true}, []},
            {["-h"], #{port => 0, help => true}, []},
            {["-"], #{port => 0}, ["-"]},
            {["--", "--port", "80"], #{port => 0}, ["--port", "80"]}
        ]
    ].

what_is_wrong_is_one_line_with_the_value_test_() ->
    [
        ?_assertEqual({error, Message}, told(weir_cli_options:parse(options(), Arguments)))
     || {Arguments, Message} <- [
            {["--frob"], "unknown option --frob"},
            {["--frob=1"], "unknown option --frob"},
            {["-x"], "unknown option -x"},
            {["--port"], "--port needs a value: P"},
            {["--port", "x"], "--port x: a whole number from 0 to 65535 is needed"},
            {["--port", "65536"], "--port 65536: a whole number from 0 to 65535 is needed"},
            {["--port="], "--port : a whole number from 0 to 65535 is needed"},
            {["--color", "green"], "--color green: one of red, blue is needed"},
            {["--file="], "--file : a name is needed"},
            {["--help=yes"], "--help takes no value"}
        ]
    ].

help_has_a_line_for_each_option_test() ->
    ?assertEqual(
        "  --port P    a port\n"
        "  --color C   a color\n"
        "  --file F    a file\n"
        "  --help      help\n",
        lists:flatten(weir_cli_options:help(options()))
    ).

told({error, Message}) -> {error, lists:flatten(Message)};
told(Other) -> Other.
