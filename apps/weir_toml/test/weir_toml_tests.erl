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

what_a_fault_says_test() ->
    ?assertEqual({error, {line, 2, <<"duplicate key: a">>}}, weir_toml:decode(<<"a = 1\na = 2\n">>)).

bounded_test() ->
    ?assertEqual({error, {too_large, 1048576}}, weir_toml:decode(binary:copy(<<"#">>, 1048577))),
    ?assertEqual({ok, #{}}, weir_toml:decode(binary:copy(<<"#">>, 1048576))),
    ?assertMatch({error, {line, 1, _}}, weir_toml:decode(<<"a = ", (binary:copy(<<"[">>, 500000))/binary>>)),
    ?assertMatch({error, {line, 1, _}}, weir_toml:decode(<<"[a", (binary:copy(<<".a">>, 500000))/binary, "]">>)),
    ?assertError(badarg, weir_toml:decode(not_bytes)).
