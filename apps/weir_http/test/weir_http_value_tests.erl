-module(weir_http_value_tests).

-include_lib("eunit/include/eunit.hrl").

-import(weir_http_value, [trim/1, lower/1, parameters/1]).

trim_test() ->
    [?assertEqual(<<"a b">>, trim(Text)) || Text <- [<<"a b">>, <<" \ta b">>, <<"a b\t ">>, <<" a b ">>]],
    [?assertEqual(<<>>, trim(Text)) || Text <- [<<>>, <<" ">>, <<"\t \t">>]],
    ?assertEqual(<<255>>, trim(<<" ", 255, "\t">>)).

lower_test() ->
    ?assertEqual(<<"gzip-", 197, 255>>, lower(<<"GZip-", 197, 255>>)).

parameters_test() ->
    ?assertEqual({<<"text/html">>, []}, parameters(<<" Text/HTML ">>)),
    ?assertEqual({<<"a">>, [{<<"b">>, <<"c">>}, {<<"d">>, <<"e;\"f">>}, {<<"g">>, <<"C:\\h">>}]},
        parameters(<<"a; B=c ;d=\"e;\\\"f\"; g=\"C:\\h\"">>)),
    ?assertEqual({<<"a">>, [{<<"b">>, <<"c">>}]}, parameters(<<"a;;x;=y;b=c;">>)),
    [?assertMatch({_, []}, parameters(Text)) || Text <- [<<>>, <<";">>, <<"a;b=\"c">>, <<"a;b">>, <<255, ";", 255>>]].

codings_test() ->
    Of = fun(Field) -> weir_http_coding:accepted(Field, [<<"br">>, <<"gzip">>]) end,
    ?assertEqual([], Of(undefined)),
    ?assertEqual([<<"br">>, <<"gzip">>], Of(<<"GZIP, deflate, br">>)),
    ?assertEqual([<<"gzip">>, <<"br">>], Of(<<"gzip;q=1.0, br;q=0.9">>)),
    ?assertEqual([<<"gzip">>], Of(<<"gzip; q=0.001, br;q=0">>)),
    ?assertEqual([<<"br">>], Of(<<"gzip;q=0.000, *">>)),
    ?assertEqual([], Of(<<"*;q=0">>)),
    ?assertEqual([<<"br">>], Of(<<255, ",gzip;q=x,br;q=.5">>)),
    %% Only the first 32 are parsed.
    Behind = fun(Count) -> Of(iolist_to_binary([lists:duplicate(Count, "x;q=1,"), "gzip"])) end,
    ?assertEqual([[<<"gzip">>], []], [Behind(31), Behind(32)]).
