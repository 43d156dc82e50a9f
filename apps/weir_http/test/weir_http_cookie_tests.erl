-module(weir_http_cookie_tests).

-include_lib("eunit/include/eunit.hrl").

set(Name, Value, Options) ->
    {<<"set-cookie">>, Field} = weir_http_cookie:set(Name, Value, Options),
    [Pair | Attributes] = string:split(iolist_to_binary(Field), "; ", all),
    {Pair, lists:sort(Attributes)}.

attributes_test() ->
    ?assertEqual({<<"a=b">>, [<<"HttpOnly">>, <<"Path=/">>, <<"SameSite=Lax">>]}, set(<<"a">>, <<"b">>, #{})),
    ?assertEqual(
        {<<"a=">>, [<<"Path=/x">>, <<"SameSite=Strict">>]},
        set(<<"a">>, <<>>, #{http_only => false, path => <<"/x">>, same_site => strict})
    ),
    ?assertEqual(
        {<<"__Host-a=b=c">>, [
            <<"HttpOnly">>, <<"Max-Age=60">>, <<"Partitioned">>, <<"Path=/">>, <<"SameSite=None">>, <<"Secure">>
        ]},
        set(<<"__Host-a">>, <<"b=c">>, #{secure => true, same_site => none, partitioned => true, max_age => 60})
    ),
    ?assertMatch({_, [<<"Domain=example.org">> | _]}, set(<<"a">>, <<"b">>, #{domain => <<"example.org">>})).

deleted_test() ->
    {_, Field} = weir_http_cookie:delete(<<"a">>, #{}),
    ?assertEqual(<<"a=; HttpOnly; Max-Age=0; Path=/; SameSite=Lax">>, iolist_to_binary(Field)).

wrong_test() ->
    [
        ?assertError({bad_option, Which, _, _}, weir_http_cookie:set(Name, Value, Options))
     || {Which, Name, Value, Options} <- [
            {name, <<>>, <<"b">>, #{}},
            {name, <<"a b">>, <<"b">>, #{}},
            {name, <<"a=">>, <<"b">>, #{}},
            {name, "a", <<"b">>, #{}},
            {value, <<"a">>, <<"b;c">>, #{}},
            {value, <<"a">>, <<"b\r\n">>, #{}},
            {value, <<"a">>, <<"b c">>, #{}},
            {value, <<"a">>, <<"\"b\"">>, #{}},
            {value, <<"a">>, <<255>>, #{}},
            {value, <<"a">>, binary:copy(<<"b">>, 4096), #{}},
            {max_age, <<"a">>, <<"b">>, #{max_age => -1}},
            {path, <<"a">>, <<"b">>, #{path => <<"x">>}},
            {path, <<"a">>, <<"b">>, #{path => <<"/;x">>}},
            {domain, <<"a">>, <<"b">>, #{domain => <<"a b">>}},
            {domain, <<"a">>, <<"b">>, #{domain => <<"a\n">>}},
            {secure, <<"a">>, <<"b">>, #{secure => 1}},
            {same_site, <<"a">>, <<"b">>, #{same_site => none}},
            {same_site, <<"a">>, <<"b">>, #{same_site => other}},
            {partitioned, <<"a">>, <<"b">>, #{partitioned => true}},
            {name, <<"__Secure-a">>, <<"b">>, #{}},
            {name, <<"__Host-a">>, <<"b">>, #{}},
            {name, <<"__Host-a">>, <<"b">>, #{secure => true, path => <<"/x">>}},
            {name, <<"__Host-a">>, <<"b">>, #{secure => true, domain => <<"x">>}},
            {other, <<"a">>, <<"b">>, #{other => 1}}
        ]
    ].
