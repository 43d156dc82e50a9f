-module(weir_json_tests).

-include_lib("proper/include/proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([value/1]).

encoding_is_for_people_and_for_diff_test() ->
    ?assertEqual(
        <<"{\n  \"a\": [\n    1,\n    2.5\n  ],\n  \"b\": {},\n  \"c\": []\n}\n">>,
        iolist_to_binary(weir_json:encode(#{c => [], b => #{}, a => [1, 2.5]}))
    ).

atoms_are_strings_but_for_three_test() ->
    ?assertEqual(<<"\"once\"\n">>, iolist_to_binary(weir_json:encode(once))),
    [?assertEqual({ok, Atom}, reread(Atom)) || Atom <- [true, false, null]].

strings_are_escaped_test() ->
    Escaped = <<"\"\\\"\\\\\\n\\u0001", "µ"/utf8, "\"\n">>,
    ?assertEqual(Escaped, iolist_to_binary(weir_json:encode(<<"\"\\\n\001µ"/utf8>>))).

%% RFC 8259 allows only UTF-8 strings.
bytes_that_are_not_utf8_are_replaced_test() ->
    ?assertEqual(
        <<"\"a", 16#FFFD/utf8, "b", 16#FFFD/utf8, "\"">>, iolist_to_binary(weir_json:compact(<<"a", 255, "b", 16#C3>>))
    ).

decoding_test_() ->
    [
        ?_assertEqual({ok, Value}, weir_json:decode(Text))
     || {Text, Value} <- [
            {<<" { \"a\" : [ 1 , -2 , 0.5 , 1e3 , 2.5E-1 ] , \"b\" : null } ">>,
                #{<<"a">> => [1, -2, 0.5, 1000.0, 0.25], <<"b">> => null}},
            {<<"\"\\u00B5\\b\\f ", 16#7F, "aµ漢😀\""/utf8>>, <<"µ\b\f "/utf8, 16#7F, "aµ漢😀"/utf8>>},
            {<<"-0.5E+1">>, -5.0},
            {<<"\"\\u00b5\\/\\ud83d\\ude00\"">>, <<"µ/😀"/utf8>>},
            {<<"{\"a\":1,\"a\":2}">>, #{<<"a">> => 2}},
            {<<"[]">>, []},
            {<<"{}">>, #{}},
            {<<"-0">>, 0}
        ]
    ].

what_is_not_json_is_told_with_its_place_test_() ->
    [
        ?_assertEqual({error, {not_json, Position}}, weir_json:decode(Text))
     || {Text, Position} <- [
            {<<>>, 0},
            {<<"{\"a\":}">>, 5},
            {<<"[1,]">>, 3},
            {<<"[1">>, 2},
            {<<"1 2">>, 2},
            {<<"nul">>, 0},
            {<<"{1:2}">>, 1},
            {<<"\"\\x\"">>, 1},
            {<<"\"\\ud83d\"">>, 1},
            {<<"\"a\nb\"">>, 2},
            {<<"\"", 255, "\"">>, 1},
            {<<"1e999">>, 0},
            {<<"-">>, 0},
            {<<"-a">>, 0},
            {<<"1.">>, 1},
            {<<"1e+">>, 1},
            {<<"+1">>, 0},
            {<<".5">>, 0},
            {<<"\"\\u00g0\"">>, 1},
            {<<"\"\\u+123\"">>, 1},
            {<<"\"ab\\">>, 3},
            {<<"\"ab">>, 3},
            {<<"01">>, 1}
        ]
    ].

long_numbers_are_refused_test_() ->
    Digits = fun(Count) -> binary:copy(<<"9">>, Count) end,
    [
        ?_assertMatch({ok, Integer} when is_integer(Integer), weir_json:decode(Digits(1000))),
        %% Converting this integer would take minutes.
        ?_assertEqual({error, {not_json, 5}}, weir_json:decode(<<"{\"a\":", (Digits(4000000))/binary, "}">>)),
        ?_assertEqual({error, {not_json, 1}}, weir_json:decode(<<"[", (Digits(400))/binary, ".5]">>)),
        ?_assertEqual({error, {not_json, 0}}, weir_json:decode(<<"0.", (Digits(1000))/binary>>)),
        ?_assertEqual({error, {not_json, 0}}, weir_json:decode(<<"1e", (Digits(1000))/binary>>))
    ].

what_is_written_is_read_test_() ->
    {timeout, 60, ?_assert(proper:quickcheck(prop_reread(), [quiet, {numtests, 300}]))}.

prop_reread() ->
    ?FORALL(Value, ?SIZED(Size, value(Size)), reread(Value) =:= {ok, Value}).

value(Size) when Size < 2 ->
    oneof([null, boolean(), integer(), float(), text()]);
value(Size) ->
    Smaller = ?LAZY(value(Size div 3)),
    frequency([
        {3, value(1)},
        {1, list(Smaller)},
        {1, ?LET(Members, list({text(), Smaller}), maps:from_list(Members))}
    ]).

text() ->
    Character = oneof([range(0, 16#D7FF), range(16#E000, 16#10FFFF)]),
    ?LET(Characters, list(Character), unicode:characters_to_binary(Characters)).

reread(Value) ->
    weir_json:decode(iolist_to_binary(weir_json:encode(Value))).

depth_test() ->
    Nested = fun(Depth) -> iolist_to_binary([lists:duplicate(Depth, "["), lists:duplicate(Depth, "]")]) end,
    ?assertMatch({ok, [_]}, weir_json:decode(Nested(100))),
    ?assertEqual({error, {not_json, 100}}, weir_json:decode(Nested(101))),
    ?assertEqual({error, {not_json, 100}}, weir_json:decode(binary:copy(<<"[">>, 1000000))),
    ?assertEqual({error, {not_json, 500}}, weir_json:decode(binary:copy(<<"{\"a\":">>, 101))).

compact_test() ->
    Value = #{a => [1, #{}, [], <<"x\n">>], b => #{c => null}},
    Text = iolist_to_binary(weir_json:compact(Value)),
    ?assertEqual(<<"{\"a\":[1,{},[],\"x\\n\"],\"b\":{\"c\":null}}">>, Text),
    ?assertEqual(weir_json:decode(iolist_to_binary(weir_json:encode(Value))), weir_json:decode(Text)).
