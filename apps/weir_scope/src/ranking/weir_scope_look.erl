%% @private
%% @doc Common parts of reading very many processes, sockets or relays: short slices, rates, and a ranking of the
%% largest.
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

%% Elements that are read before the process yields.
-define(SLICE, 100).

%% @doc Folds over slices of a list, and yields after each slice.
-spec sliced(fun(([Element], State) -> State), State, [Element]) -> State.
sliced(_Fun, State, []) ->
    State;
sliced(Fun, State, List) ->
    {Slice, Rest} = slice(List, ?SLICE, []),
    Then = Fun(Slice, State),
    true = erlang:yield(),
    sliced(Fun, Then, Rest).

%% Takes a slice without the length of the list, which would cost time in proportion to the whole list for each slice.
slice([Element | Rest], Left, Slice) when Left > 0 -> slice(Rest, Left - 1, [Element | Slice]);
slice(Rest, _Left, Slice) -> {lists:reverse(Slice), Rest}.

%% @doc Calls `Function(Element, Argument)' for all elements in one call to the node, and folds over the answers.
-spec each(
    weir_scope_facts:ask(),
    fun(),
    [Element],
    Argument :: term(),
    fun((Element, Answer :: term(), State) -> State),
    State
) -> State.
each(Ask, Function, Elements, Argument, Fun, State) ->
    Answers = Ask(lists, zipwith, [Function, Elements, lists:duplicate(length(Elements), Argument)]),
    lists:foldl(fun({Element, Answer}, Then) -> Fun(Element, Answer, Then) end, State, lists:zip(Elements, Answers)).

-spec now_us() -> integer().
now_us() -> erlang:monotonic_time(microsecond).

%% @doc Returns the rate per second since the time `At'. Reading a million processes takes long, so each has its own
%% time.
-spec rate(integer(), At :: integer()) -> float().
rate(Difference, At) -> rate(Difference, At, now_us()).

-spec rate(integer(), At :: integer(), Now :: integer()) -> float().
rate(Difference, At, Now) -> Difference * 1_000_000 / max(1, Now - At).

%% @doc Returns an empty ranking.
-spec none() -> ranking().
none() -> {0, gb_sets:new()}.

%% @doc Adds an element, ranked by the value at `Index'. Keeps the `Most' largest, and none with a value of zero or
%% less.
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

%% @doc Returns the ranking, the largest first.
-spec largest(ranking()) -> [{number(), What :: term(), Values :: tuple()}].
largest({_Count, Set}) -> lists:reverse(gb_sets:to_list(Set)).
