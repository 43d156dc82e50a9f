%% A suite that does not reach its end still has results, and thus a table.
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

%% The time limit ends a suite that hangs.
a_stuck_suite_has_results_test_() ->
    {timeout, 300, fun() ->
        Self = self(),
        ok = file:del_dir_r(directory()),
        spawn_link(fun() ->
            ok = wait_for_event("{started,{weir_conformance_stuck_SUITE,stuck}}"),
            Self ! {weir_conformance_program, time_is_up}
        end),
        Results = run(infinity),
        ?assertMatch(
            #{good := #{result := passed}, trapped := #{result := failed, reason := "timetrap_timeout"}}, Results
        ),
        ?assertMatch(#{stuck := #{result := failed, reason := "did not end in time"}}, Results),
        ?assertNot(is_map_key(never_reached, Results))
    end}.

wait_for_event(Event) ->
    File = filename:join([directory(), "logs", "events"]),
    weir_test_wait:wait_until(fun() ->
        case file:read_file(File) of
            {ok, Events} -> string:find(Events, Event) =/= nomatch orelse Events;
            Error -> Error
        end
    end).

a_node_that_comes_to_nothing_has_none_test_() ->
    {timeout, 300, fun() -> ?assertEqual(#{}, run(1)) end}.

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
