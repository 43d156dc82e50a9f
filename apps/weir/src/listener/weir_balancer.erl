%% @private
%% @doc Chooses the connections to move to another pollset so that all have the same load: a pure function.
%%
%% A pollset's load is the number of ready sockets in its polls since the last check. All connections count the same.
%% Enough of them move from the busiest pollset to the idlest to make up half the difference, and few enough that the
%% next check can correct an error.
-module(weir_balancer).

-export([since/2]).
-export([moves/3]).

-export_type([loads/0]).

-type loads() :: #{weir_nif:pollset() => non_neg_integer()}.

%% At most one in this many of a pollset's connections moves at once.
-define(PART, 4).

%% @doc Returns the loads since an earlier count. A pollset without an earlier count has none.
-spec since(Before :: loads(), Now :: loads()) -> loads().
since(Before, Now) ->
    maps:map(fun(Pollset, Count) -> Count - maps:get(Pollset, Before, Count) end, Now).

%% @doc Returns the connections to move, and where to. None if the busiest pollset has at most `Threshold' percent
%% more load than the idlest.
-spec moves(loads(), Threshold :: pos_integer(), [{weir_nif:pollset(), Connection}]) ->
    [{Connection, To :: weir_nif:pollset()}].
moves(Loads, Threshold, Connections) ->
    [{Least, Idlest} | _] = Sorted = lists:sort([{Load, Pollset} || {Pollset, Load} <- maps:to_list(Loads)]),
    {Most, Busiest} = lists:last(Sorted),
    case Most * 100 > Least * (100 + Threshold) of
        true ->
            Candidates = [Connection || {Pollset, Connection} <- Connections, Pollset =:= Busiest],
            Count = length(Candidates),
            Half = Count * (Most - Least) div (2 * Most),
            %% A single busy connection would be as busy elsewhere.
            Few = min(Half, max(1, Count div ?PART)),
            [{Connection, Idlest} || Count > 1, Connection <- lists:sublist(Candidates, Few)];
        false ->
            []
    end.
