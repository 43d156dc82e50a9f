-module(weir_load_compare_tests).

-include_lib("eunit/include/eunit.hrl").

document(P99s) ->
    #{
        <<"schema">> => 1,
        <<"scenario">> => <<"echo">>,
        <<"duration_s">> => length(P99s),
        <<"total">> => #{<<"error_count">> => 0},
        <<"invalid">> => [],
        <<"seconds">> => [
            #{
                <<"second">> => Number,
                <<"answered">> => 1000,
                <<"response_us">> => #{<<"p50">> => 100.0, <<"p99">> => P99}
            }
         || {Number, P99} <- lists:zip(lists:seq(0, length(P99s) - 1), P99s)
        ]
    }.

verdicts(A, B) ->
    {ok, #{rows := Rows}} = weir_load_compare:compare(A, B),
    maps:from_list([{Figure, Verdict} || #{figure := Figure, verdict := Verdict} <- Rows]).

%% The first second is not compared.
noisy(Factor) -> document([9999.0 | [Factor * Noise || Noise <- [100, 120, 90, 110, 95, 105, 130, 85, 100, 115]]]).

a_large_difference_is_shown_test() ->
    ?assertMatch(#{<<"response p99">> := worse, <<"response p50">> := no_difference}, verdicts(noisy(1.0), noisy(2.0))),
    ?assertMatch(#{<<"response p99">> := better}, verdicts(noisy(2.0), noisy(1.0))).

noise_is_no_difference_test() ->
    ?assertMatch(#{<<"response p99">> := no_difference}, verdicts(noisy(1.0), noisy(1.03))),
    ?assertMatch(#{<<"response p99">> := no_difference}, verdicts(noisy(1.0), noisy(1.0))).

few_values_say_nothing_test() ->
    Short = document([100.0, 100.0, 100.0]),
    ?assertMatch(#{<<"response p99">> := too_little}, verdicts(Short, Short)).

runs_are_taken_where_there_are_three_test() ->
    Runs = fun(Factor) ->
        (noisy(1.0))#{<<"runs">> => [#{<<"response_us">> => #{<<"p99">> => Factor * Noise}} || Noise <- [100, 102, 98]]}
    end,
    {ok, #{
        values := runs,
        rows := [#{figure := <<"response p99">>, verdict := worse, ratio := Ratio, low := Low, high := High}]
    }} =
        weir_load_compare:compare(Runs(1.0), Runs(1.2)),
    ?assert(abs(Ratio - 1.2) < 1.0e-9),
    ?assert(Low > 1 andalso Low < 1.2 andalso High > 1.2).

%% Welch's test by hand: logarithms 0, 1, 2 and 1, 2, 3 have a difference of 1 with a squared error of 2/3 and 4
%% degrees of freedom, so the interval is 1 plus and minus 2.776 * 0.8165.
an_interval_by_hand_test() ->
    Exp = fun(Logs) -> [math:exp(Log) || Log <- Logs] end,
    {ok, Ratio, Low, High} = weir_load_compare:interval(Exp([0, 1, 2]), Exp([1, 2, 3]), 0.95),
    ?assert(abs(math:log(Ratio) - 1) < 1.0e-9),
    ?assert(abs(math:log(Low) - (1 - 2.2666)) < 0.001),
    ?assert(abs(math:log(High) - (1 + 2.2666)) < 0.001).

%% Two sides of n values with the same variance have 2n - 2 degrees of freedom.
intervals_have_the_quantiles_of_the_tables_test_() ->
    [
        fun() ->
            Values = [math:exp(N) || N <- lists:seq(1, Count)],
            {ok, _, _, High} = weir_load_compare:interval(Values, Values, Confidence),
            Variance = Count * (Count + 1) / 12,
            ?assert(abs(math:log(High) / math:sqrt(2 * Variance / Count) - Quantile) < 0.002)
        end
     || {Count, Confidence, Quantile} <- [
            {3, 0.95, 2.776}, {4, 0.95, 2.447}, {5, 0.95, 2.306}, {5, 0.99, 3.355}, {16, 0.95, 2.042}, {61, 0.99, 2.617}
        ]
    ].

another_document_is_refused_test() ->
    ?assertMatch({error, _}, weir_load_compare:compare(#{}, noisy(1.0))).

what_differs_is_noted_test() ->
    {ok, #{notes := Notes}} = weir_load_compare:compare(noisy(1.0), (noisy(1.0))#{<<"scenario">> => <<"http">>}),
    ?assertEqual([<<"scenario differs: echo and http">>], Notes).
