%% The examples on reactors: what a player of the game and a client of the echo server see.
-module(weir_example_reactors_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(PATIENCE, 20000).

suite() ->
    [{timetrap, {seconds, 120}}].

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

connect(Port) -> connect(Port, []).

connect(Port, Options) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false} | Options], ?PATIENCE),
    Socket.

world(Socket) ->
    {ok, World} = gen_tcp:recv(Socket, 512, ?PATIENCE),
    World.

every_player_is_told_again_and_again(_Config) ->
    with_server(weir_example_game_reactor, #{}, fun(Port) ->
        Players = [connect(Port) || _ <- lists:seq(1, 50)],
        Worlds = [world(Player) || _ <- lists:seq(1, 3), Player <- Players],
        ?assertEqual([binary:copy(<<"w">>, 512)], lists:usort(Worlds)),
        [gen_tcp:close(Player) || Player <- Players]
    end).

answers_are_taken_and_not_returned(_Config) ->
    with_server(weir_example_game_reactor, #{}, fun(Port) ->
        Player = connect(Port),
        lists:foreach(fun(_) ->
            _ = world(Player),
            ok = gen_tcp:send(Player, binary:copy(<<"an answer ">>, 1000))
        end, lists:seq(1, 3)),
        ?assertEqual(binary:copy(<<"w">>, 512), world(Player)),
        gen_tcp:close(Player)
    end).

%% At 512 bytes twice a second that would take long: the reactor is told to tick faster and to queue less.
a_player_that_does_not_listen_is_put_out(_Config) ->
    World = binary:copy(<<"w">>, 100000),
    Reactor = #{module => weir_example_game_reactor, args => World, tick => 5, max_send_queue => 200000},
    {ok, #{port := Port, stop := Stop}} = weir_example_reactors:start(#{listen => [{ip, ?LOOPBACK}]}, Reactor),
    Deaf = connect(Port, [{recbuf, 4096}]),
    Player = connect(Port),
    Closed = fun Closed() ->
        {ok, World} = gen_tcp:recv(Player, byte_size(World), ?PATIENCE),
        case [Socket || Socket <- weir:sockets(), inet:peername(Socket) =:= inet:sockname(Deaf)] of
            [] -> ok;
            _ -> Closed()
        end
    end,
    Closed(),
    ok = Stop(),
    gen_tcp:close(Player),
    gen_tcp:close(Deaf).

exchange(Socket, Bytes) ->
    ok = gen_tcp:send(Socket, Bytes),
    ?assertEqual({ok, Bytes}, gen_tcp:recv(Socket, byte_size(Bytes), ?PATIENCE)).

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
        ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 100)),
        ok = gen_tcp:send(Socket, " a line\n"),
        ?assertEqual({ok, <<"half a line\n">>}, gen_tcp:recv(Socket, 12, ?PATIENCE)),
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
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, _} -> drained(Socket);
        Error -> Error
    end.

a_port_that_is_taken_is_told(_Config) ->
    {ok, Taken} = gen_tcp:listen(0, [{ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Taken),
    ?assertEqual({error, eaddrinuse}, weir_example_game_reactor:start(#{port => Port, listen => [{ip, ?LOOPBACK}]})),
    ok = gen_tcp:close(Taken).
