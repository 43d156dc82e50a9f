%% @doc Compares two results of a case: a value.
-module(weir_conformance_verdict).

-export([of_results/2]).
-export([best/2]).
-export([sums/1]).

-export_type([verdict/0, outcome/0]).

-type verdict() :: same | better | worse | not_on_weir.
%% `not_on_weir': the same, and the case used no socket of Weir.

-type outcome() :: weir_conformance_node:result() | absent.
%% `absent': the case did not run, because the init function of its suite or group failed.

%% @doc Compares the results of a case on stock and on Weir.
-spec of_results(Stock :: outcome(), Weir :: outcome()) -> verdict().
of_results(Stock, Weir) ->
    case {rank(Stock), rank(Weir)} of
        {Same, Same} -> same(Weir);
        {Less, More} when Less < More -> better;
        _ -> worse
    end.

same(#{on_weir := OnWeir}) when OnWeir > 0 -> same;
same(_) -> not_on_weir.

%% @doc Returns the better of two results of a case.
-spec best(outcome(), outcome()) -> outcome().
best(First, Second) ->
    case rank(Second) > rank(First) of
        true -> Second;
        false -> First
    end.

rank(#{result := passed}) -> 3;
rank(#{result := skipped}) -> 2;
rank(#{result := failed}) -> 1;
rank(absent) -> 0.

%% @doc Counts each verdict.
-spec sums([verdict()]) -> #{verdict() => non_neg_integer()}.
sums(Verdicts) ->
    Count = fun(Verdict, Sums) -> maps:update_with(Verdict, fun(N) -> N + 1 end, Sums) end,
    lists:foldl(Count, #{same => 0, better => 0, worse => 0, not_on_weir => 0}, Verdicts).
