%% @private
%% @doc Differences of two readings of `erlang:statistics(microstate_accounting)'.
-module(weir_scope_microstates).

-export([between/2]).

-spec between(list(), list()) -> weir_scope_sampler:microstates().
between(Before, After) ->
    Earlier = maps:from_list([{{Type, Id}, Counters} || #{type := Type, id := Id, counters := Counters} <- Before]),
    [
        #{type => Type, id => Id, states => parts(maps:get({Type, Id}, Earlier), Counters)}
     || #{type := Type, id := Id, counters := Counters} <- lists:sort(fun in_order/2, After),
        is_map_key({Type, Id}, Earlier)
    ].

in_order(#{type := A, id := I}, #{type := B, id := J}) -> {A, I} =< {B, J}.

parts(Before, After) ->
    Differences = maps:map(fun(State, Time) -> Time - maps:get(State, Before, 0) end, After),
    Sum = max(1, lists:sum(maps:values(Differences))),
    maps:map(fun(_, Time) -> Time / Sum end, Differences).
