%% Decodes TOML, and finds the lines of keys and errors.
-module(weir_toml_tests).

-include_lib("eunit/include/eunit.hrl").

every_kind_of_value_test() ->
    Text = <<
        "text = 'a'\nwide = \"\\u00e9\"\nsum = -1_000\nhex = 0xff\nshare = 1.5\nyes = true\nday = 1979-05-27\n"
        "list = [1, 'b', [2]]\nnone = []\ninline = {a = 1}\n[empty]\n[deep.er]\nx.y = 2\n[[many]]\nn = 1\n[[many]]\n"
        "n = 2\n"
    >>,
    ?assertEqual(
        {ok, #{
            <<"text">> => <<"a">>,
            <<"wide">> => <<"é"/utf8>>,
            <<"sum">> => -1000,
            <<"hex">> => 255,
            <<"share">> => 1.5,
            <<"yes">> => true,
            <<"day">> => {moment, <<"1979-05-27">>},
            <<"list">> => [1, <<"b">>, [2]],
            <<"none">> => [],
            <<"inline">> => #{<<"a">> => 1},
            <<"empty">> => #{},
            <<"deep">> => #{<<"er">> => #{<<"x">> => #{<<"y">> => 2}}},
            <<"many">> => [#{<<"n">> => 1}, #{<<"n">> => 2}]
        }},
        weir_toml:decode(Text)
    ),
    ?assertEqual({ok, #{}}, weir_toml:decode(<<>>)).

lines_of_keys_test() ->
    Text = <<"a = 1\n\n[b]\nc = 2\n\n[[d]]\n[[d]]\ne = [\n1,\n2]\n">>,
    ?assertEqual(4, weir_toml:line(Text, [<<"b">>, <<"c">>])),
    ?assertEqual(3, weir_toml:line(Text, [<<"b">>, <<"missing">>])),
    ?assertEqual(7, weir_toml:line(Text, [<<"d">>, 2])),
    ?assertEqual(10, weir_toml:line(Text, [<<"d">>, 2, <<"e">>, 2])),
    ?assertError(badarg, weir_toml:line(Text, [atom])),
    ?assertError(badarg, weir_toml:line(Text, [<<"a">> | <<"b">>])).

lines_of_faults_test() ->
    [
        ?assertMatch({error, {line, Line, Told}} when is_binary(Told) andalso Told =/= <<>>, weir_toml:decode(Text))
     || {Line, Text} <- [
            {2, <<"a = 1\nb = \n">>},
            {3, <<"a = 1\n\na = 2\n">>},
            {2, <<"a = 1\nb = 'open\n">>},
            {1, <<"a = 1 b = 2\n">>},
            {2, <<"\n[a\n">>},
            {2, <<"a = 1\nb = 18446744073709551616\n">>},
            {3, <<"a = 1\n\nb = nan">>},
            {2, <<"a = 1\n", 255>>}
        ]
    ].

what_a_fault_says_test_() ->
    [
        ?_assertEqual({Text, {error, {line, Line, Why}}}, {Text, weir_toml:decode(Text)})
     || {Text, Line, Why} <- [
            {<<"a = 1\na = 2\n">>, 2, <<"duplicate key: a (first in line 1)">>},
            {<<"[a]\nb = 1\n[a.b]\n">>, 3, <<"duplicate key: a.b (first in line 2)">>},
            {<<"a = {b = 1}\n[a.c]\n">>, 2, <<"cannot add a key to a, which is an inline table (first in line 1)">>},
            {<<"a = [\n1\n2]\n">>, 3, <<"expected , or ] in the array that begins in line 1, found \"2]\"">>},
            {<<"a = [\n1,\n\n">>, 1, <<"the array that begins in this line has no closing ]">>},
            {<<"a = '''\nb\n">>, 1, <<"the string that begins in this line has no closing '''">>},
            {<<"a = on\n">>, 1, <<"not a value (strings need quotes): on">>},
            {<<"a = 10s\n">>, 1, <<"not a number or date (strings need quotes): 10s">>},
            {<<"a = 007\n">>, 1, <<"a number must not begin with 0: 007">>},
            {<<"a = 1e400\n">>, 1, <<"number that is not finite: 1e400">>},
            {<<"a = 2023-02-29\n">>, 1, <<"no such date or time: 2023-02-29">>},
            {<<"a\n">>, 1, <<"expected = behind a key, found the end of the line">>},
            {<<"[a\n">>, 1, <<"expected ] behind the name of a table, found the end of the line">>},
            {<<"= 1\n">>, 1, <<"expected a key, found \"=\"">>},
            {<<"a = 'b\0'\n">>, 1, <<"a string contains the control character U+0000">>},
            {<<"a = 1 # \r b\n">>, 1, <<"a comment contains a carriage return without a line feed">>},
            {<<"a = \"\\ud800\"\n">>, 1, <<"no character: \"\\ud800\"">>},
            {<<"a = \"\xff\"\n">>, 1, <<"not UTF-8">>}
        ]
    ].

%% Texts of faults quote at most 40 characters of the document.
long_text_is_cut_test_() ->
    Long = binary:copy(<<"é"/utf8>>, 100000),
    [
        ?_assertMatch(Size when Size < 150, string:length(element(3, element(2, weir_toml:decode(Text)))))
     || Text <- [
            Long,
            <<"a = ", Long/binary>>,
            <<"a = 1 ", Long/binary>>,
            <<"'", Long/binary, "' = 1\n'", Long/binary, "' = 1\n">>
        ]
    ].

limits_of_integers_test() ->
    Least = -9223372036854775808,
    Most = 9223372036854775807,
    ?assertEqual(
        {ok, #{<<"a">> => Least, <<"b">> => Most, <<"c">> => Most}},
        weir_toml:decode(<<"a = -9223372036854775808\nb = 9_223_372_036_854_775_807\nc = 0x00007fffffffffffffff\n">>)
    ),
    [
        ?assertMatch({error, {line, 1, <<"integer of more than 64 bits: ", _/binary>>}}, weir_toml:decode(Text))
     || Text <- [<<"a = 9223372036854775808">>, <<"a = -9223372036854775809">>, <<"a = 0x8000000000000000">>]
    ].

bounded_test() ->
    ?assertEqual({error, {too_large, 1048576}}, weir_toml:decode(binary:copy(<<"#">>, 1048577))),
    ?assertEqual({ok, #{}}, weir_toml:decode(binary:copy(<<"#">>, 1048576))),
    ?assertError(badarg, weir_toml:decode(not_bytes)).

deep_test_() ->
    Brackets = fun(Count) -> [lists:duplicate(Count, "["), lists:duplicate(Count, "]")] end,
    Dots = fun(Count) -> lists:join(".", lists:duplicate(Count, "a")) end,
    Braces = fun(Count) -> [lists:duplicate(Count, "{a="), "1", lists:duplicate(Count, "}")] end,
    Elements = fun(Count) -> [["[[", Dots(Depth), "]]\n"] || Depth <- lists:seq(1, Count)] end,
    [
        ?_assertMatch({Expected, _}, weir_toml:decode(iolist_to_binary(Text)))
     || {Expected, Text} <- [
            {ok, ["a = ", Brackets(80)]},
            {error, ["a = ", Brackets(81)]},
            {error, ["a = ", Brackets(500000)]},
            {ok, ["a = ", Braces(79)]},
            {error, ["a = ", Braces(80)]},
            {error, ["a = ", lists:duplicate(300000, "{a=")]},
            {ok, [Dots(80), " = 1"]},
            {error, [Dots(81), " = 1"]},
            {error, [Dots(100000), " = 1"]},
            {ok, ["[", Dots(79), "]\na = 1"]},
            {error, ["[", Dots(80), "]\na = 1"]},
            {error, ["[", Dots(100000), "]"]},
            {ok, Elements(40)},
            {error, Elements(41)}
        ]
    ].

byte_order_mark_test() ->
    ?assertEqual({ok, #{<<"a">> => 1}}, weir_toml:decode(<<16#FEFF/utf8, "a = 1">>)),
    ?assertMatch({error, {line, 2, _}}, weir_toml:decode(<<"\n", 16#FEFF/utf8, "a = 1">>)).

moments_test_() ->
    [
        ?_assertEqual({ok, #{<<"a">> => {moment, Moment}}}, weir_toml:decode(<<"a = ", Text/binary>>))
     || {Text, Moment} <- [
            {<<"1979-05-27">>, <<"1979-05-27">>},
            {<<"07:32">>, <<"07:32">>},
            {<<"1979-05-27 07:32:00.500z">>, <<"1979-05-27T07:32:00.500Z">>},
            {<<"1979-05-27t07:32-07:00">>, <<"1979-05-27T07:32-07:00">>}
        ]
    ].
