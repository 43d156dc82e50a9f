%% @private
%% @doc Weighted round-robin as a value: in a period each server has as many places as its weight says, evenly spread.
-module(weir_proxy_schedule).

-export([new/1]).
-export([at/2]).

-export_type([schedule/0]).

-type schedule() :: tuple().
%% The places of a period; each holds the number of a server, from 1 on.

%% Places of a period at most.
-define(LONGEST, 16#10000).

%% @doc The period for some weights, all above 0. The turns of a server with weight W are due at 1/2W, 3/2W, 5/2W ... of the
%% period, and are taken in that order: between two turns of a server every other one has at most its share, and one more.
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

%% @doc The server whose turn it is at some count of turns.
-spec at(non_neg_integer(), schedule()) -> pos_integer().
at(Count, Schedule) -> element(Count rem tuple_size(Schedule) + 1, Schedule).
