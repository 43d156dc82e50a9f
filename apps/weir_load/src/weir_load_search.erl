%% @doc The highest rate that keeps a promise.
%%
%% Rates double until one breaks it, or halve until one keeps it; then the gap is halved until it is a twentieth of the
%% rate. Each rate is tried until two runs out of three agree, so that one bad moment decides nothing.
-module(weir_load_search).

-export([search/2]).

-export_type([result/0]).

%% What came of a run: the promise was kept or broken, or the generator could not offer that much. The search ends with
%% `stopped' when a try does.
-type outcome() :: kept | broken | unoffered | stopped.

%% `kept' is the highest rate that was found to keep the promise, `broken' the lowest above it that did not: the answer
%% lies between. `limit' says what ended it at the top. `tries' are all runs, in order.
-type result() :: #{
    kept := number() | none,
    broken := number() | none,
    limit := server | generator,
    tries := [{number(), outcome()}]
}.

%% Rates past these are not tried.
-define(MOST, 10_000_000).
-define(LEAST, 1).

%% Between the highest rate kept and the lowest broken.
-define(PRECISION, 0.05).

-record(search, {
    try_rate :: fun((number()) -> outcome()),
    kept = none :: number() | none,
    broken = none :: number() | none,
    limit = server :: server | generator,
    tries = [] :: [{number(), outcome()}]
}).

%% @doc Searches from a rate on.
-spec search(fun((number()) -> outcome()), Start :: number()) -> {ok | stopped, result()}.
search(Try, Start) -> at(Start, #search{try_rate = Try}).

at(Rate, Search) ->
    case decide(Rate, #{}, Search) of
        {kept, Later} -> next(Later#search{kept = Rate});
        {broken, Later} -> next(Later#search{broken = Rate, limit = server});
        {unoffered, Later} -> next(Later#search{broken = Rate, limit = generator});
        {stopped, Later} -> {stopped, result(Later)}
    end.

decide(Rate, Votes, #search{try_rate = Try, tries = Tries} = Search) ->
    Outcome = Try(Rate),
    Later = Search#search{tries = [{Rate, Outcome} | Tries]},
    Count = maps:get(Outcome, Votes, 0) + 1,
    Total = lists:sum(maps:values(Votes)) + 1,
    if
        Outcome =:= stopped -> {stopped, Later};
        Count >= 2 -> {Outcome, Later};
        %% One of each: it is not kept.
        Total >= 3 -> {broken, Later};
        true -> decide(Rate, Votes#{Outcome => Count}, Later)
    end.

next(#search{kept = none, broken = Broken} = Search) when Broken / 2 < ?LEAST -> {ok, result(Search)};
next(#search{kept = none, broken = Broken} = Search) -> at(Broken / 2, Search);
next(#search{kept = Kept, broken = none} = Search) when Kept * 2 > ?MOST -> {ok, result(Search)};
next(#search{kept = Kept, broken = none} = Search) -> at(Kept * 2, Search);
next(#search{kept = Kept, broken = Broken} = Search) when Broken - Kept =< ?PRECISION * Broken -> {ok, result(Search)};
next(#search{kept = Kept, broken = Broken} = Search) -> at((Kept + Broken) / 2, Search).

result(#search{kept = Kept, broken = Broken, limit = Limit, tries = Tries}) ->
    #{kept => Kept, broken => Broken, limit => Limit, tries => lists:reverse(Tries)}.
