-module(weir_bench_haproxy_tests).

-include_lib("eunit/include/eunit.hrl").

the_configuration_is_for_one_thread_and_one_backend_test() ->
    Text = iolist_to_binary(weir_bench_haproxy:configuration(8080, 8081, 100, false)),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [
            <<"nbthread 1\n">>, <<"mode tcp\n">>, <<"maxconn 100\n">>, <<"bind 127.0.0.1:8080\n">>,
            <<"server backend 127.0.0.1:8081\n">>
        ]
    ],
    ?assertEqual(nomatch, binary:match(Text, <<"splice">>)),
    Splicing = iolist_to_binary(weir_bench_haproxy:configuration(8080, 8081, 100, true)),
    ?assertNotEqual(nomatch, binary:match(Splicing, <<"option splice-response\n">>)).
