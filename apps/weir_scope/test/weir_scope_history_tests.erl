%% Histories of samples, and their size.
-module(weir_scope_history_tests).

-include_lib("eunit/include/eunit.hrl").

numbers(Columns, Value) ->
    [{<<"column.", (integer_to_binary(I))/binary>>, float(Value + I)} || I <- lists:seq(1, Columns)].

filled(Columns, Seconds) ->
    lists:foldl(
        fun(Second, History) -> weir_scope_history:add(Second * 1000, numbers(Columns, Second), History) end,
        weir_scope_history:new(),
        lists:seq(1, Seconds)
    ).

what_was_added_is_read_test() ->
    History = filled(2, 3),
    ?assertEqual(
        [
            #{
                columns => [<<"column.1">>, <<"column.2">>],
                rows => [{1000, [2.0, 3.0]}, {2000, [3.0, 4.0]}, {3000, [4.0, 5.0]}]
            }
        ],
        weir_scope_history:rows(second, 0, History)
    ),
    ?assertMatch([#{rows := [{3000, _}]}], weir_scope_history:rows(second, 2000, History)),
    ?assertEqual([], weir_scope_history:rows(second, 3000, History)).

ten_minutes_by_the_second_test() ->
    [#{rows := Rows}] = weir_scope_history:rows(second, 0, filled(1, 700)),
    ?assertEqual({600, 101_000, 700_000}, {length(Rows), element(1, hd(Rows)), element(1, lists:last(Rows))}).

a_minute_is_the_mean_of_its_seconds_test() ->
    %% Seconds 60 to 119 are the minute 1.
    [#{rows := [{0, _}, {60_000, [Mean]}]}] = weir_scope_history:rows(minute, -1, filled(1, 120)),
    ?assertEqual(lists:sum(lists:seq(60, 119)) / 60 + 1, Mean).

other_columns_stand_apart_test() ->
    One = weir_scope_history:add(2000, numbers(2, 0), filled(1, 1)),
    Both = weir_scope_history:rows(second, 0, One),
    ?assertMatch([#{columns := [_], rows := [{1000, [_]}]}, #{columns := [_, _], rows := [{2000, [_, _]}]}], Both).

%% If the columns change every second, only rows of the last three sets stay.
columns_are_bounded_test() ->
    History = lists:foldl(
        fun(Second, Then) -> weir_scope_history:add(Second * 1000, numbers(Second, 0), Then) end,
        weir_scope_history:new(),
        lists:seq(1, 50)
    ),
    ?assertEqual(3, length(weir_scope_history:rows(second, 0, History))).

%% A day of a node with 16 schedulers, and ten minutes of a node with a thousand columns.
memory_is_bounded_test_() ->
    {timeout, 180, fun() ->
        Day = lists:foldl(
            fun(Minute, History) -> weir_scope_history:add(Minute * 60_000, numbers(200, Minute), History) end,
            filled(200, 600),
            lists:seq(11, 1500)
        ),
        ?assertMatch([#{rows := Rows}] when length(Rows) =:= 1440, weir_scope_history:rows(minute, -1, Day)),
        ?assert(weir_scope_history:bytes(Day) =< 4 * 1024 * 1024),
        ?assert(weir_scope_history:bytes(filled(2000, 700)) =< 4 * 1024 * 1024)
    end}.

numbers_beyond_a_float_of_32_bits_are_kept_test() ->
    History = weir_scope_history:add(1000, [{<<"large">>, 1.0e300}, {<<"small">>, -1.0e300}], weir_scope_history:new()),
    [#{rows := [{1000, [Large, Small]}]}] = weir_scope_history:rows(second, 0, History),
    ?assert(Large > 1.0e38 andalso Small < -1.0e38).
