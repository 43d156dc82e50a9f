%% Runs small trees whose tests fail, are skipped, end their virtual machine or leave a program behind. The runner
%% must report each of these.
-module(weir_test_runner_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([
    what_passes/1,
    what_fails_says_what_was_there/1,
    what_is_skipped_is_named_with_its_reason/1,
    a_failing_configuration_fails_its_cases/1,
    a_virtual_machine_that_ends/1,
    a_suite_that_is_not_run/1,
    a_unit_that_fails/1,
    a_unit_that_is_cancelled/1,
    a_program_that_stays/1,
    a_wait_says_what_it_saw_last/1,
    one_case/1,
    a_case_that_is_not_there/1,
    a_runner_that_is_killed/1
]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        what_passes,
        what_fails_says_what_was_there,
        what_is_skipped_is_named_with_its_reason,
        a_failing_configuration_fails_its_cases,
        a_virtual_machine_that_ends,
        a_suite_that_is_not_run,
        a_unit_that_fails,
        a_unit_that_is_cancelled,
        a_program_that_stays,
        a_wait_says_what_it_saw_last,
        one_case,
        a_case_that_is_not_there,
        a_runner_that_is_killed
    ].

init_per_testcase(Case, Config) ->
    Tree = filename:join(?config(priv_dir, Config), Case),
    write(Tree, "apps/sample/src/sample.app.src", ""),
    [{tree, Tree} | Config].

end_per_testcase(_Case, _Config) -> ok.

%% Results -----------------------------------------------------------------------

what_passes(Config) ->
    suite(Config, sample_SUITE, "all() -> [{group, g}, a]. groups() -> [{g, [], [a, b]}]. a(_) -> ok. b(_) -> ok."),
    units(Config, sample_tests, "a_test() -> ok. b_test_() -> [{\"one\", fun() -> ok end}, fun() -> ok end]."),
    {0, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^6 passed, 0 failed$", [multiline])).

what_fails_says_what_was_there(Config) ->
    suite(
        Config, sample_SUITE, "all() -> [{group, g}]. groups() -> [{g, [], [a]}]. a(_) -> {expected, 1} = {there, 2}."
    ),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED sample_SUITE:g.a: .*\\{badmatch,\\{there,2\\}\\}", [multiline])),
    ?assertMatch({match, _}, re:run(Output, "^0 passed, 1 failed$", [multiline])).

what_is_skipped_is_named_with_its_reason(Config) ->
    suite(Config, sample_SUITE, "all() -> [a, b]. a(_) -> {skip, \"no such program\"}. b(_) -> ok."),
    {0, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^SKIPPED 1: no such program \\(sample_SUITE:a\\)$", [multiline])),
    ?assertMatch({match, _}, re:run(Output, "^1 passed, 0 failed, 1 skipped$", [multiline])).

a_failing_configuration_fails_its_cases(Config) ->
    suite(Config, sample_SUITE, "all() -> [a, b]. init_per_suite(_) -> error(no_server). a(_) -> ok. b(_) -> ok."),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED sample_SUITE:init_per_suite: .*no_server", [multiline])),
    ?assertMatch({match, _}, re:run(Output, "^FAILED sample_SUITE:b: .*not_run", [multiline])).

a_virtual_machine_that_ends(Config) ->
    suite(Config, sample_SUITE, "all() -> [a, b]. a(_) -> erlang:halt(0). b(_) -> ok."),
    {1, Output} = run(Config, []),
    ?assertMatch(
        {match, _}, re:run(Output, "^FAILED sample: the run: .*virtual machine ended.*sample_SUITE", [multiline])
    ).

%% Common Test itself ignores a suite that it cannot load.
a_suite_that_is_not_run(Config) ->
    suite(Config, sample_SUITE, "all() -> [a]. a(_) -> ok."),
    write(?config(tree, Config), "apps/sample/test/other_SUITE.erl", ""),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED tree: other_SUITE: none of its tests ran$", [multiline])).

a_unit_that_fails(Config) ->
    units(Config, sample_tests, "a_test() -> error(this). b_test() -> ok."),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED sample_tests:a_test: .*this", [multiline])),
    ?assertMatch({match, _}, re:run(Output, "^1 passed, 1 failed$", [multiline])).

a_unit_that_is_cancelled(Config) ->
    units(
        Config, sample_tests, "a_test_() -> {setup, fun() -> error(no_server) end, [fun() -> ok end]}. b_test() -> ok."
    ),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED .*cancelled.*no_server", [multiline])).

%% The program is also killed.
a_program_that_stays(Config) ->
    suite(Config, sample_SUITE, "all() -> [a]. a(_) -> [] = os:cmd(\"sleep 4321 >/dev/null 2>&1 &\"), ok."),
    {1, Output} = run(Config, []),
    ?assertMatch({match, _}, re:run(Output, "^FAILED sample: left behind: .*sleep 4321", [multiline])).

a_wait_says_what_it_saw_last(_Config) ->
    Failure = try weir_test_wait:wait_match(fun() -> 2 end, fun(Value) -> Value =:= 1 end, 30, #{expected => 1})
    catch error:Reason -> Reason
    end,
    ?assertEqual({never_seen, #{expected => 1, last => 2}}, Failure).

one_case(Config) ->
    suite(Config, sample_SUITE, "all() -> [{group, g}, a]. groups() -> [{g, [], [a, b]}]. a(_) -> ok. b(_) -> ok."),
    {0, Output} = run(Config, ["app=sample", "suite=sample_SUITE", "group=g", "case=b"]),
    ?assertMatch({match, _}, re:run(Output, "^1 passed, 0 failed$", [multiline])).

a_case_that_is_not_there(Config) ->
    suite(Config, sample_SUITE, "all() -> [a]. a(_) -> ok."),
    {1, _} = run(Config, ["app=sample", "suite=sample_SUITE", "case=nothing"]),
    {1, _} = run(Config, ["app=sample", "suite=nothing_SUITE"]),
    {1, _} = run(Config, ["app=nothing"]),
    ok.

%% Programs that its workers have started end as well.
a_runner_that_is_killed(Config) ->
    Mark = filename:join(?config(tree, Config), "mark"),
    suite(Config, sample_SUITE, [
        "all() -> [a]. a(_) -> open_port({spawn, \"sh -c 'echo $$ >",
        Mark,
        "; exec sleep 4322'\"}, []), timer:sleep(infinity)."
    ]),
    Port = start(Config, []),
    ?waitMatch({ok, <<_, _/binary>>}, file:read_file(Mark)),
    {ok, Text} = file:read_file(Mark),
    Program = "/proc/" ++ string:trim(binary_to_list(Text)),
    ?assert(filelib:is_dir(Program)),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    "" = os:cmd("kill -KILL " ++ integer_to_list(Pid)),
    ?waitEqual(false, filelib:is_dir(Program)).

%% A tree ------------------------------------------------------------------------

suite(Config, Module, Source) -> module(Config, Module, ["-compile([export_all, nowarn_export_all]). ", Source]).

units(Config, Module, Source) -> module(Config, Module, ["-compile([export_all, nowarn_export_all]). ", Source]).

%% Writes a module into the tree and compiles it to where rebar3 would.
module(Config, Module, Body) ->
    Tree = ?config(tree, Config),
    Source = write(Tree, lists:concat(["apps/sample/test/", Module, ".erl"]), [
        "-module(", atom_to_list(Module), "). ", Body
    ]),
    Output = filename:join(Tree, "lib/sample/test"),
    ok = filelib:ensure_dir(filename:join(Output, "x")),
    {ok, Module} = compile:file(Source, [{outdir, Output}]),
    ok.

write(Tree, Name, Text) ->
    File = filename:join(Tree, Name),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, Text),
    File.

run(Config, Options) ->
    Port = start(Config, Options),
    said(Port, []).

said(Port, Said) ->
    receive
        {Port, {data, Data}} -> said(Port, [Said, Data]);
        {Port, {exit_status, Status}} -> ct:log("~ts", [Said]), {Status, iolist_to_binary(Said)}
    after weir_test_wait:patience() -> error({does_not_end, iolist_to_binary(Said)})
    end.

start(Config, Options) ->
    Tree = ?config(tree, Config),
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    Paths = [filename:dirname(code:which(weir_test_runner)), filename:join(Tree, "lib/sample/test")],
    open_port({spawn_executable, Erl}, [
        {args, ["-noinput", "+Bd", "-pa" | Paths] ++ ["-s", "weir_test_runner", "main", "-extra"] ++
            ["lib=lib", "logs=logs", "workers=2" | Options]},
        {cd, Tree}, exit_status, stderr_to_stdout, binary
    ]).
