%% @private
%% @doc A weighted round-robin schedule. Pure functions. In one period the turns of a server are in proportion to its
%% weight, and evenly spread.
-module(weir_proxy_schedule).

-export([new/1]).
-export([at/2]).

-export_type([schedule/0]).

-type schedule() :: tuple().
%% The turns of a period: server numbers, starting at 1.

%% Most turns of a period.
-define(LONGEST, 16#10000).

%% @doc Returns the schedule for weights above 0. The turns of a server with weight W are due at 1/2W, 3/2W, 5/2W ...
%% of the period, and taken in that order. So between two turns of a server, any other server has at most its share
%% plus one.
-spec new([pos_integer(), ...]) -> schedule().
new(Weights) ->
    Turns = [{Due, Server} || {Server, Weight} <- numbered(scaled(Weights)), Due <- due(Weight)],
    list_to_tuple([Server || {_Due, Server} <- lists:sort(Turns)]).

due(Weight) -> [(2 * Turn - 1) / (2 * Weight) || Turn <- lists:seq(1, Weight)].

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

scaled(Weights) ->
    Divisor = lists:foldl(fun gcd/2, 0, Weights),
    Small = [Weight div Divisor || Weight <- Weights],
    case lists:sum(Small) of
        Sum when Sum =< ?LONGEST -> Small;
        Sum -> [max(1, Weight * ?LONGEST div Sum) || Weight <- Small]
    end.

gcd(A, 0) -> A;
gcd(A, B) -> gcd(B, A rem B).

%% @doc Returns the server whose turn it is after `Count' turns.
-spec at(non_neg_integer(), schedule()) -> pos_integer().
at(Count, Schedule) -> element(Count rem tuple_size(Schedule) + 1, Schedule).
