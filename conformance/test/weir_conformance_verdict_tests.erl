-module(weir_conformance_verdict_tests).

-include_lib("eunit/include/eunit.hrl").

result(Result, OnWeir) ->
    #{result => Result, reason => "", on_weir => OnWeir, elsewhere => 0}.

verdict(Stock, Weir) ->
    weir_conformance_verdict:of_results(result(Stock, 0), result(Weir, 1)).

the_same_result_is_the_same_test() ->
    [?assertEqual(same, verdict(Result, Result)) || Result <- [passed, skipped, failed]].

without_a_socket_of_weir_the_same_says_nothing_test() ->
    ?assertEqual(not_on_weir, weir_conformance_verdict:of_results(result(passed, 0), result(passed, 0))).

a_case_that_no_longer_passes_is_worse_test() ->
    ?assertEqual(worse, verdict(passed, failed)),
    ?assertEqual(worse, verdict(passed, skipped)),
    ?assertEqual(worse, verdict(skipped, failed)),
    ?assertEqual(worse, weir_conformance_verdict:of_results(result(passed, 0), absent)).

a_failure_without_a_socket_of_weir_is_worse_all_the_same_test() ->
    ?assertEqual(worse, weir_conformance_verdict:of_results(result(passed, 0), result(failed, 0))).

a_case_that_passes_only_on_weir_is_better_test() ->
    ?assertEqual(better, verdict(failed, passed)),
    ?assertEqual(better, verdict(skipped, passed)).

the_better_of_two_runs_counts_test() ->
    Passed = result(passed, 1),
    Failed = result(failed, 1),
    ?assertEqual(Passed, weir_conformance_verdict:best(Passed, Failed)),
    ?assertEqual(Passed, weir_conformance_verdict:best(Failed, Passed)),
    ?assertEqual(Failed, weir_conformance_verdict:best(absent, Failed)).

sums_name_every_verdict_test() ->
    ?assertEqual(
        #{same => 2, better => 0, worse => 1, not_on_weir => 0},
        weir_conformance_verdict:sums([same, worse, same])
    ).
