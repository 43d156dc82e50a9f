-module(weir_http_percent_tests).

-include_lib("eunit/include/eunit.hrl").

what_encodes_nothing_stays_test() ->
    ?assertEqual(<<"a b%zz%/">>, weir_http_percent:decode(<<"a%20b%zz%%2F">>)),
    ?assertEqual(<<>>, weir_http_percent:decode(<<>>)),
    ?assertEqual(<<"%2">>, weir_http_percent:decode(<<"%2">>)).

encoded_bytes_are_decoded_test() ->
    ?assertEqual(<<"a-Z_0.9~%2F%20%25%FF%C3%A9%00">>, weir_http_percent:encode(<<"a-Z_0.9~/ %", 255, 195, 169, 0>>)),
    All = list_to_binary(lists:seq(0, 255)),
    ?assertEqual(All, weir_http_percent:decode(weir_http_percent:encode(All))).

pairs_test() ->
    ?assertEqual(
        [{<<"a">>, <<"b c">>}, {<<"d">>, <<>>}, {<<>>, <<"e=f">>}],
        weir_http_percent:pairs(<<"a=b+c&&d&=e=f">>)
    ),
    ?assertEqual([], weir_http_percent:pairs(<<>>)),
    ?assertEqual([{<<"+">>, <<"&">>}], weir_http_percent:pairs(<<"%2B=%26">>)).
