%% @private
%% @doc What looks at very many processes, sockets or relays have in common: slices in which nobody has to wait long, rates, and a ranking of
%% those that have most.
-module(weir_scope_look).

-export([sliced/3]).
-export([each/6]).
-export([now_us/0]).
-export([rate/2]).
-export([rate/3]).
-export([none/0]).
-export([add/5]).
-export([largest/1]).

-export_type([ranking/0]).

-type ranking() :: {Count :: non_neg_integer(), gb_sets:set({number(), What :: term(), Values :: tuple()})}.

%% So many are looked at before others have their turn.
-define(SLICE, 100).

%% @doc Folds over slices of a list, and gives its turn away behind each.
-spec sliced(fun(([Element], State) -> State), State, [Element]) -> State.
sliced(_Fun, State, []) ->
    State;
sliced(Fun, State, List) ->
    {Slice, Rest} = slice(List, ?SLICE, []),
    Then = Fun(Slice, State),
    true = erlang:yield(),
    sliced(Fun, Then, Rest).

%% Without counting the list: that would be work in proportion to all for each slice.
slice([Element | Rest], Left, Slice) when Left > 0 -> slice(Rest, Left - 1, [Element | Slice]);
slice(Rest, _Left, Slice) -> {lists:reverse(Slice), Rest}.

%% @doc Calls `Function(Element, Argument)' on the node for each of a slice, which is one question, and folds over the answers.
-spec each(weir_scope_facts:ask(), fun(), [Element], Argument :: term(), fun((Element, Answer :: term(), State) -> State), State) -> State.
each(Ask, Function, Elements, Argument, Fun, State) ->
    Answers = Ask(lists, zipwith, [Function, Elements, lists:duplicate(length(Elements), Argument)]),
    lists:foldl(fun({Element, Answer}, Then) -> Fun(Element, Answer, Then) end, State, lists:zip(Elements, Answers)).

-spec now_us() -> integer().
now_us() -> erlang:monotonic_time(microsecond).

%% @doc What that is a second, since a moment. A look at a million processes takes time: each has its own moment.
-spec rate(integer(), At :: integer()) -> float().
rate(Difference, At) -> rate(Difference, At, now_us()).

-spec rate(integer(), At :: integer(), Now :: integer()) -> float().
rate(Difference, At, Now) -> Difference * 1_000_000 / max(1, Now - At).

%% @doc A ranking of nobody.
-spec none() -> ranking().
none() -> {0, gb_sets:new()}.

%% @doc Adds one by the value with that index. Only the largest so many are kept, and nothing that is zero.
-spec add(Index :: pos_integer(), Values :: tuple(), What :: term(), Most :: pos_integer(), ranking()) -> ranking().
add(Index, Values, What, Most, {Count, Set} = Top) ->
    case element(Index, Values) of
        Key when Key =< 0 ->
            Top;
        Key when Count < Most ->
            {Count + 1, gb_sets:add_element({Key, What, Values}, Set)};
        Key ->
            case gb_sets:take_smallest(Set) of
                {{Least, _, _}, _} when Least >= Key -> Top;
                {_, Rest} -> {Count, gb_sets:add_element({Key, What, Values}, Rest)}
            end
    end.

%% @doc The largest first.
-spec largest(ranking()) -> [{number(), What :: term(), Values :: tuple()}].
largest({_Count, Set}) -> lists:reverse(gb_sets:to_list(Set)).
