%% The examples on reactors, from the side of a player of the game and of an echo client.
-module(weir_example_reactors_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [
        every_player_is_told_again_and_again,
        answers_are_taken_and_not_returned,
        a_player_that_does_not_listen_is_put_out,
        echo_sends_back,
        echo_of_lines,
        stop_is_the_end,
        a_port_that_is_taken_is_told
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    Config.

end_per_suite(_Config) ->
    ok.

%% The server's processes are linked to the case.
init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) ->
    ok.

with_server(Module, Options, Fun) ->
    {ok, #{port := Port, stop := Stop}} = Module:start(maps:merge(#{port => 0, listen => [{ip, ?LOOPBACK}]}, Options)),
    try
        Fun(Port)
    after
        ok = Stop()
    end.

with_game(World, Settings, Fun) ->
    Reactor = Settings#{module => weir_example_game_reactor, args => World},
    {ok, #{port := Port, stop := Stop}} = weir_example_reactors:start(#{listen => [{ip, ?LOOPBACK}]}, Reactor),
    try
        Fun(Port)
    after
        ok = Stop()
    end.

connect(Port) -> connect(Port, []).

connect(Port, Options) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false} | Options], weir_test_wait:patience()),
    Socket.

world(Socket) ->
    {ok, World} = gen_tcp:recv(Socket, 512, weir_test_wait:patience()),
    World.

every_player_is_told_again_and_again(_Config) ->
    with_server(weir_example_game_reactor, #{}, fun(Port) ->
        Players = [connect(Port) || _ <- lists:seq(1, 50)],
        Worlds = [world(Player) || _ <- lists:seq(1, 3), Player <- Players],
        ?assertEqual([binary:copy(<<"w">>, 512)], lists:usort(Worlds)),
        [gen_tcp:close(Player) || Player <- Players]
    end).

answers_are_taken_and_not_returned(_Config) ->
    World = binary:copy(<<"w">>, 512),
    with_game(World, #{tick => 20}, fun(Port) ->
        Player = connect(Port),
        lists:foreach(fun(_) ->
            _ = world(Player),
            ok = gen_tcp:send(Player, binary:copy(<<"an answer ">>, 1000))
        end, lists:seq(1, 3)),
        ?assertEqual(World, world(Player)),
        gen_tcp:close(Player)
    end).

%% With 512 bytes twice a second this would take long, so the reactor ticks faster and queues less.
a_player_that_does_not_listen_is_put_out(_Config) ->
    World = binary:copy(<<"w">>, 100000),
    with_game(World, #{tick => 10, max_send_queue => 200000}, fun(Port) ->
        Deaf = connect(Port, [{recbuf, 4096}]),
        <<"w">> = weir_test_wait:recv_exactly(Deaf, 1),
        ?waitEqual([], [Socket || Socket <- weir:sockets(), inet:peername(Socket) =:= inet:sockname(Deaf)]),
        %% On a busy machine a player that reads may be too slow as well, so it connects again.
        weir_test_wait:wait_until(fun() -> is_told(Port, World) end),
        gen_tcp:close(Deaf)
    end).

is_told(Port, World) ->
    Player = connect(Port),
    Told = gen_tcp:recv(Player, byte_size(World), weir_test_wait:patience()),
    ok = gen_tcp:close(Player),
    Told =:= {ok, World}.

exchange(Socket, Bytes) ->
    ok = gen_tcp:send(Socket, Bytes),
    ?assertEqual({ok, Bytes}, gen_tcp:recv(Socket, byte_size(Bytes), weir_test_wait:patience())).

echo_sends_back(_Config) ->
    with_server(weir_example_echo_reactor, #{}, fun(Port) ->
        Sockets = [connect(Port) || _ <- lists:seq(1, 20)],
        [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 30000, 3], Socket <- Sockets],
        [gen_tcp:close(Socket) || Socket <- Sockets]
    end).

echo_of_lines(_Config) ->
    with_server(weir_example_echo_reactor, #{packet => line}, fun(Port) ->
        Socket = connect(Port),
        ok = gen_tcp:send(Socket, "half"),
        ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 40)),
        ok = gen_tcp:send(Socket, " a line\n"),
        ?assertEqual({ok, <<"half a line\n">>}, gen_tcp:recv(Socket, 12, weir_test_wait:patience())),
        gen_tcp:close(Socket)
    end).

stop_is_the_end(_Config) ->
    {ok, #{port := Port, stop := Stop}} = weir_example_game_reactor:start(#{listen => [{ip, ?LOOPBACK}]}),
    Player = connect(Port),
    _ = world(Player),
    ok = Stop(),
    ?assertEqual({error, closed}, drained(Player)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])).

drained(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, _} -> drained(Socket);
        Error -> Error
    end.

a_port_that_is_taken_is_told(_Config) ->
    {ok, Taken} = gen_tcp:listen(0, [{ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Taken),
    ?assertEqual({error, eaddrinuse}, weir_example_game_reactor:start(#{port => Port, listen => [{ip, ?LOOPBACK}]})),
    ok = gen_tcp:close(Taken).
