%% The built-in scenarios, fed with bytes.
-module(weir_load_scenarios_tests).

-include_lib("eunit/include/eunit.hrl").

connect(Scenario, Options) ->
    {ok, Config} = Scenario:init(Options),
    {ok, Connection} = Scenario:connect(1, Config),
    Connection.

%% The events of bytes that come one by one.
bytes(Scenario, Bytes, Connection) ->
    lists:foldl(
        fun(Byte, {Events, Before}) ->
            {ok, More, Later} = Scenario:response(<<Byte>>, Before),
            {Events ++ More, Later}
        end,
        {[], Connection},
        binary_to_list(Bytes)
    ).

echo_compares_every_byte_test_() ->
    [
        fun() ->
            Connection = connect(weir_load_echo, #{size => Size}),
            {ok, One, _} = weir_load_echo:request(1, Connection),
            {ok, Two, _} = weir_load_echo:request(2, Connection),
            ?assertEqual(Size, byte_size(One)),
            ?assertMatch({[answered, answered], _}, bytes(weir_load_echo, <<One/binary, Two/binary>>, Connection)),
            ?assertMatch(
                {ok, [answered, answered], _}, weir_load_echo:response(<<One/binary, Two/binary>>, Connection)
            ),
            [
                ?assertEqual({error, wrong_reply}, weir_load_echo:response(flip(At, One), Connection))
             || At <- lists:seq(0, Size - 1)
            ]
        end
     || Size <- [4, 5, 8, 9, 64]
    ].

flip(At, Bytes) ->
    <<Before:At/binary, Byte, After/binary>> = Bytes,
    <<Before/binary, (Byte bxor 1), After/binary>>.

replies_of_fast_connect_test() ->
    Any = connect(weir_load_fast_connect, #{}),
    {ok, Request, _} = weir_load_fast_connect:request(1, Any),
    ?assertEqual(26, iolist_size(Request)),
    ?assertMatch({ok, [answered], _}, weir_load_fast_connect:response(<<"ok">>, Any)),
    Two = connect(weir_load_fast_receive, #{reply => 2}),
    ?assertMatch({[answered, answered], _}, bytes(weir_load_fast_receive, <<"okok">>, Two)).

players_answer_every_tick_test() ->
    Player = connect(weir_load_game, #{size => 4}),
    ?assertMatch({ok, [], _}, weir_load_game:response(<<"abc">>, Player)),
    {ok, [pushed, pushed, {send, Answers}], _} = weir_load_game:response(<<"abcdefghi">>, Player),
    ?assertEqual(32, iolist_size(Answers)).

listeners_read_timestamps_test_() ->
    {time, Native} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    Monotonic = erlang:convert_time_unit(Native, native, nanosecond),
    [
        fun() ->
            Listener = connect(weir_load_fanout, #{size => 12, clock => Clock}),
            Message = <<(Now - 1000):64, "rest">>,
            {[{pushed, A}, {pushed, B}], _} = bytes(weir_load_fanout, <<Message/binary, Message/binary>>, Listener),
            ?assert(A >= 1000 andalso B >= 1000),
            ?assertEqual(
                {error, wrong_message}, weir_load_fanout:response(<<(Now + 3_600_000_000_000):64, "rest">>, Listener)
            ),
            ?assertEqual({error, wrong_message}, weir_load_fanout:response(<<0:64, "rest">>, Listener))
        end
     || {Clock, Now} <- [{monotonic, Monotonic}, {system, os:system_time(nanosecond)}]
    ].

idle_says_nothing_test() ->
    ?assertMatch({ok, [], _}, weir_load_idle:response(<<"hello">>, connect(weir_load_idle, #{}))).

every_scenario_describes_itself_test_() ->
    [
        ?_assertMatch(#{summary := [_ | _], options := _, defaults := _}, weir_load_scenario:describe(Scenario))
     || Scenario <- [
            weir_load_echo, weir_load_http, weir_load_fast_connect, weir_load_fast_receive, weir_load_proxy,
            weir_load_fanout, weir_load_game, weir_load_idle
        ],
        {module, _} <- [code:ensure_loaded(Scenario)]
    ].
