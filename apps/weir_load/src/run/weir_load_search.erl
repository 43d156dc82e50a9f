%% @doc Searches for the highest rate that keeps a promise.
%%
%% The rate is doubled until the promise breaks, or halved until it is kept. Then the gap between the two is halved
%% until it is 5 % of the rate. Each rate is tried until two runs of three agree, so that one bad moment decides
%% nothing.
-module(weir_load_search).

-export([search/2]).
-export([search/3]).

-export_type([bounds/0, outcome/0, result/0]).

%% The result of a run: the promise was kept or broken, or the generator could not offer that rate (`unoffered'). The
%% search ends when a try returns `stopped'.
-type outcome() :: kept | broken | unoffered | stopped.

%% Rates below `least' (default 1) or above `most' (10,000,000) are not tried. The search ends when the gap is at most
%% `precision' (0.05) of the rate. `once': a rate that was kept once counts as kept, and only broken ones are tried
%% again; by default each rate is tried until two runs agree.
-type bounds() :: #{least => number(), most => number(), precision => float(), once => boolean()}.

%% `kept': the highest rate that kept the promise. `broken': the lowest rate above it that did not. `limit': whether
%% the server or the generator was the limit. `tries': all runs in order.
-type result() :: #{
    kept := number() | none,
    broken := number() | none,
    limit := server | generator,
    tries := [{number(), outcome()}]
}.

-define(BOUNDS, #{least => 1, most => 10_000_000, precision => 0.05, once => false}).

-record(search, {
    bounds :: bounds(),
    try_rate :: fun((number()) -> outcome()),
    kept = none :: number() | none,
    broken = none :: number() | none,
    limit = server :: server | generator,
    tries = [] :: [{number(), outcome()}]
}).

%% @doc Searches, beginning at a rate.
-spec search(fun((number()) -> outcome()), Start :: number()) -> {ok | stopped, result()}.
search(Try, Start) -> search(Try, Start, #{}).

%% @doc Searches within bounds, beginning at a rate.
-spec search(fun((number()) -> outcome()), Start :: number(), bounds()) -> {ok | stopped, result()}.
search(Try, Start, Bounds) -> at(Start, #search{try_rate = Try, bounds = maps:merge(?BOUNDS, Bounds)}).

at(Rate, Search) ->
    case decide(Rate, #{}, Search) of
        {kept, Later} -> next(Later#search{kept = Rate});
        {broken, Later} -> next(Later#search{broken = Rate, limit = server});
        {unoffered, Later} -> next(Later#search{broken = Rate, limit = generator});
        {stopped, Later} -> {stopped, result(Later)}
    end.

decide(Rate, Votes, #search{try_rate = Try, tries = Tries, bounds = #{once := Once}} = Search) ->
    Outcome = Try(Rate),
    Later = Search#search{tries = [{Rate, Outcome} | Tries]},
    Count = maps:get(Outcome, Votes, 0) + 1,
    Total = lists:sum(maps:values(Votes)) + 1,
    if
        Outcome =:= stopped -> {stopped, Later};
        Once andalso Outcome =:= kept -> {kept, Later};
        Count >= 2 -> {Outcome, Later};
        %% Three different outcomes: it is not kept.
        Total >= 3 -> {broken, Later};
        true -> decide(Rate, Votes#{Outcome => Count}, Later)
    end.

next(#search{kept = none, broken = Broken, bounds = #{least := Least}} = Search) when Broken / 2 < Least ->
    {ok, result(Search)};
next(#search{kept = none, broken = Broken} = Search) ->
    at(Broken / 2, Search);
next(#search{kept = Kept, broken = none, bounds = #{most := Most}} = Search) when Kept >= Most -> {ok, result(Search)};
next(#search{kept = Kept, broken = none, bounds = #{most := Most}} = Search) ->
    at(min(Most, Kept * 2), Search);
next(#search{kept = Kept, broken = Broken, bounds = #{precision := Precision}} = Search) when
    Broken - Kept =< Precision * Broken
->
    {ok, result(Search)};
next(#search{kept = Kept, broken = Broken} = Search) ->
    at((Kept + Broken) / 2, Search).

result(#search{kept = Kept, broken = Broken, limit = Limit, tries = Tries}) ->
    #{kept => Kept, broken => Broken, limit => Limit, tries => lists:reverse(Tries)}.
