-module(weir_bench_targets_tests).

-include_lib("eunit/include/eunit.hrl").

verdicts_by_relation_test_() ->
    Medians = #{<<"weir">> => 250, <<"inet">> => 100, <<"socket">> => 200},
    Median = fun(one, Contestant, p50_us) ->
        case Medians of #{Contestant := Value} -> {ok, Value}; #{} -> unknown end
    end,
    [
        ?_assertEqual(
            Expected,
            [{Measured, Met} || #{measured := Measured, met := Met} <- weir_bench_targets:check(25, [Target], Median)]
        )
     || {Rival, Relation, Limit, Expected} <- [
            {<<"inet">>, ratio_at_least, 2.5, [{2.5, true}]},
            {<<"inet">>, ratio_at_least, 2.6, [{2.5, false}]},
            {<<"inet">>, ratio_at_most, 2.5, [{2.5, true}]},
            {<<"inet">>, difference_at_most, 149, [{150, false}]},
            {nobody, at_most, 250, [{250, true}]},
            {{best_of, [<<"inet">>, <<"socket">>]}, ratio_at_least, 1.5, [{1.25, false}]},
            {{best_of, [<<"inet">>, <<"socket">>]}, ratio_at_most, 1.5, [{2.5, false}]},
            %% The best of two is unknown if one of them was not measured.
            {{best_of, [<<"inet">>, <<"go">>]}, ratio_at_least, 1.5, []},
            {<<"go">>, ratio_at_least, 1.5, []}
        ],
        Target <- [
            #{
                title => <<"t">>, scenario => one, metric => p50_us, contestant => <<"weir">>,
                rival => Rival, relation => Relation, limits => #{25 => Limit}
            }
        ]
    ].
