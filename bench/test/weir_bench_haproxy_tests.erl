-module(weir_bench_haproxy_tests).

-include_lib("eunit/include/eunit.hrl").

the_configuration_is_for_one_thread_and_one_backend_test() ->
    Text = configuration(#{}),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [
            <<"nbthread 1\n">>,
            <<"mode tcp\n">>,
            <<"maxconn 100\n">>,
            <<"bind 127.0.0.1:8080\n">>,
            <<"default_backend main\n">>,
            <<"server backend1 127.0.0.1:8081\n">>
        ]
    ],
    [
        ?assertEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [<<"splice">>, <<"ssl_sni">>, <<"backend2">>]
    ],
    Splicing = configuration(#{splice => true}),
    ?assertNotEqual(nomatch, binary:match(Splicing, <<"option splice-response\n">>)).

a_server_name_needs_a_buffer_for_the_hello_test() ->
    Text = configuration(#{sni => true, hello => 16384, servers => 2}),
    [
        ?assertNotEqual({Part, nomatch}, {Part, binary:match(Text, Part)})
     || Part <- [<<"tune.bufsize 32768\n">>, <<"req.ssl_sni -i bench.example">>, <<"server backend2 127.0.0.1:8081\n">>]
    ],
    ?assertEqual(nomatch, binary:match(Text, <<"default_backend">>)).

configuration(Settings) ->
    iolist_to_binary(
        weir_bench_haproxy:configuration(
            maps:merge(#{port => 8080, backend => 8081, most => 100, servers => 1}, Settings)
        )
    ).
