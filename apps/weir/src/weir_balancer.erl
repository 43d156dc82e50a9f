%% @private
%% @doc Which connections go to another pollset so that all have as much to do: a value.
%%
%% A pollset's load is what its polls have found ready since the last look. Connections are taken for alike: as many of
%% the busiest pollset's go to the idlest as make up half the difference, and few enough that an error is put right by the
%% next look.
-module(weir_balancer).

-export([since/2]).
-export([moves/3]).

-export_type([loads/0]).

-type loads() :: #{weir_nif:pollset() => non_neg_integer()}.

%% At most this part of a pollset's connections goes at once.
-define(PART, 4).

%% @doc What has been done since an earlier count; nothing is known of the time before the first.
-spec since(Before :: loads(), Now :: loads()) -> loads().
since(Before, Now) ->
    maps:map(fun(Pollset, Count) -> Count - maps:get(Pollset, Before, Count) end, Now).

%% @doc The connections that go, and where to. None, if the busiest pollset has no more than `Threshold' percent more to do
%% than the idlest.
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
            %% One connection that is busy by itself is as busy elsewhere.
            Few = min(Half, max(1, Count div ?PART)),
            [{Connection, Idlest} || Count > 1, Connection <- lists:sublist(Candidates, Few)];
        false ->
            []
    end.
