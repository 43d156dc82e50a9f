%% The law of the drop-in: a sequence of operations looks the same on two
%% backends, in results, messages and their order.
-module(prop_parity).

-include_lib("proper/include/proper.hrl").

-export([prop_agree/2, agree/3]).

%% A difference counts if it is there again when everything is given more time.
-define(HURRIED, 1).
-define(PATIENT, 10).

%% The property for two backends, each given by the options that choose it.
-spec prop_agree([gen_tcp:option()], [gen_tcp:option()]) -> proper:test().
prop_agree(One, Other) ->
    ?FORALL(Sequence, parity_sequence:sequence(), begin
        Result = agree(Sequence, One, Other),
        ?WHENFAIL(io:format("~p~n", [Result]), Result =:= true)
    end).

%% Whether the sequence is seen the same on both; if not, where first: the step,
%% and what was seen on each.
-spec agree(parity_sequence:sequence(), [gen_tcp:option()], [gen_tcp:option()]) -> true | {differ, term(), term()}.
agree(Sequence, One, Other) ->
    case compare(Sequence, One, Other, ?HURRIED) of
        true -> true;
        _ -> compare(Sequence, One, Other, ?PATIENT)
    end.

compare(Sequence, One, Other, Patience) ->
    first_difference(
        parity_session:observe(Sequence, One, Patience),
        parity_session:observe(Sequence, Other, Patience)
    ).

first_difference(Same, Same) -> true;
first_difference([Same | One], [Same | Other]) -> first_difference(One, Other);
first_difference([One | _], [Other | _]) -> {differ, One, Other};
first_difference(One, Other) -> {differ, One, Other}.
