%% Runs bin/weir doctor as a user would, on nodes without Weir.
-module(weir_cli_doctor_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([help_says_how/1, a_wrong_argument_is_one_line/1, a_node_that_cannot_be_reached_is_one_line_and_exit_code_1/1]).
-export([what_is_wrong_is_told/1, as_json/1, without_a_module_there/1]).

-import(weir_cli_program, [run/2, answer/1, mentions/2]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        help_says_how,
        a_wrong_argument_is_one_line,
        a_node_that_cannot_be_reached_is_one_line_and_exit_code_1,
        what_is_wrong_is_told,
        as_json,
        without_a_module_there
    ].

%% A node with its own cookie and without time correction.
init_per_suite(Config) ->
    Name = lists:concat([peer:random_name(), "@127.0.0.1"]),
    [{node, Name}, {pid, weir_cli_program:start_node(Name, ["+c", "false"])} | weir_cli_program:find(Config)].

end_per_suite(Config) ->
    weir_cli_program:kill("KILL", ?config(pid, Config)).

help_says_how(_Config) ->
    {0, Lines} = answer(["doctor", "--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["weir doctor NODE", "--cookie", "--json", "Exit code"]].

a_wrong_argument_is_one_line(_Config) ->
    [
        begin
            {Status, Lines} = answer(["doctor" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {[], "node"}, {["patient"], "NAME@HOST"}, {["a@b", "c@d"], "c@d"}, {["a@b", "--seconds", "0"], "seconds"}
        ]
    ].

a_node_that_cannot_be_reached_is_one_line_and_exit_code_1(Config) ->
    {1, [Nobody]} = run(Config, ["doctor", "nobody@127.0.0.1"]),
    ?assert(mentions("cannot reach nobody@127.0.0.1", [Nobody])),
    {1, [Stranger]} = run(Config, ["doctor", ?config(node, Config), "--cookie", "of_another"]),
    ?assert(mentions("--cookie", [Stranger])).

what_is_wrong_is_told(Config) ->
    {Status, Lines} = run(Config, ["doctor", ?config(node, Config), "--cookie", "of_its_own"]),
    %% The machine may have other faults too.
    ?assert(Status =:= 4 orelse Status =:= 5),
    ?assert(mentions("warning: time_correction_off", Lines)),
    ?assert(mentions("remove +c false", Lines)).

as_json(Config) ->
    {_, Lines} = run(Config, ["doctor", ?config(node, Config), "--cookie", "of_its_own", "--json"]),
    {ok, #{<<"node">> := Node, <<"findings">> := Findings}} = weir_json:decode(
        iolist_to_binary(lists:join($\n, Lines))
    ),
    ?assertEqual(list_to_binary(?config(node, Config)), Node),
    [Found] = [Finding || #{<<"rule">> := <<"time_correction_off">>} = Finding <- Findings],
    ?assertMatch(
        #{
            <<"severity">> := <<"warning">>,
            <<"sure">> := <<"high">>,
            <<"seen">> := _,
            <<"why">> := _,
            <<"advice">> := _,
            <<"link">> := _
        },
        Found
    ).

without_a_module_there(Config) ->
    {_, Lines} = run(Config, ["doctor", ?config(node, Config), "--cookie", "of_its_own", "--no-load"]),
    ?assert(mentions("warning: time_correction_off", Lines)),
    ?assert(mentions("Could not be checked: ", Lines)).
