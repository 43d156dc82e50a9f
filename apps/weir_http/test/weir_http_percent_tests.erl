-module(weir_http_percent_tests).

-include_lib("eunit/include/eunit.hrl").

what_encodes_nothing_stays_test() ->
    ?assertEqual(<<"a b%zz%/">>, weir_http_percent:decode(<<"a%20b%zz%%2F">>)),
    ?assertEqual(<<>>, weir_http_percent:decode(<<>>)),
    ?assertEqual(<<"%2">>, weir_http_percent:decode(<<"%2">>)).

pairs_test() ->
    ?assertEqual(
        [{<<"a">>, <<"b c">>}, {<<"d">>, <<>>}, {<<>>, <<"e=f">>}],
        weir_http_percent:pairs(<<"a=b+c&&d&=e=f">>)
    ),
    ?assertEqual([], weir_http_percent:pairs(<<>>)),
    ?assertEqual([{<<"+">>, <<"&">>}], weir_http_percent:pairs(<<"%2B=%26">>)).
