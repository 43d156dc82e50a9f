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

it_accepts_its_own_configuration_test_() ->
    {timeout, 60, fun() ->
        case weir_bench_haproxy:executable() of
            false -> ok;
            _ -> starts_and_stops()
        end
    end}.

starts_and_stops() ->
    %% As bin/weir tells it; the tests run in the root of the tree.
    {ok, Root} = file:get_cwd(),
    true = os:putenv("WEIR_ROOT", Root),
    [Scenario] = [Scenario || #{name := 'relay-bulk'} = Scenario <- weir_bench_scenarios:all()],
    {ok, #{port := Port} = Server} =
        weir_bench_haproxy:start(maps:remove(contestants, Scenario), [], weir_bench_machine:free_port()),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
    ok = gen_tcp:close(Socket),
    ok = weir_bench_server:stop(Server),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])).
