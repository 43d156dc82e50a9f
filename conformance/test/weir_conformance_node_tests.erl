%% A suite that does not come to its end still gives results, and so there is a table.
-module(weir_conformance_node_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SUITE, "
-module(weir_conformance_stuck_SUITE).
-export([all/0, good/1, trapped/1, stuck/1, never_reached/1]).
all() -> [good, trapped, stuck, never_reached].
good(_) -> ok.
trapped(_) -> ct:timetrap(500), timer:sleep(infinity).
stuck(_) -> ct:timetrap(infinity), timer:sleep(infinity).
never_reached(_) -> ok.
").

a_stuck_suite_has_results_test_() ->
    {timeout, 120, fun() ->
        Results = run(12000),
        ?assertMatch(#{good := #{result := passed}, trapped := #{result := failed, reason := "timetrap_timeout"}}, Results),
        ?assertMatch(#{stuck := #{result := failed, reason := "did not end in time"}}, Results),
        ?assertNot(is_map_key(never_reached, Results))
    end}.

a_node_that_comes_to_nothing_has_none_test_() ->
    {timeout, 60, fun() -> ?assertEqual(#{}, run(1)) end}.

half_an_event_is_none_test() ->
    File = filename:join(directory(), "events"),
    ok = file:write_file(File, "{started, {a_SUITE, one}}.\n{ended, {a_SUITE, one}, 1, 0}.\n{started, {a_SUI"),
    ?assertMatch(#{one := #{result := passed}}, weir_conformance_node:results(File, {timeout, <<>>})).

run(Limit) ->
    Directory = directory(),
    Source = filename:join(Directory, "weir_conformance_stuck_SUITE.erl"),
    ok = file:write_file(Source, ?SUITE),
    {ok, Suite} = compile:file(Source, [{outdir, Directory}]),
    Directories = #{suites => Directory, logs => filename:join(Directory, "logs")},
    weir_conformance_node:run(stock, Suite, all, Directories, Limit).

directory() ->
    Directory = filename:join([code:lib_dir(weir_conformance), "stuck", os:getpid()]),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    Directory.
