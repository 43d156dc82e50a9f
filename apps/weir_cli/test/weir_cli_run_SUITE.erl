%% Example servers of `weir run' that hold connections, on stock sockets and on Weir.
-module(weir_cli_run_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([
    a_port_in_use_is_one_line_and_exit_code_1/1,
    echo_sends_back_in_every_mode/1,
    proxy_carries_both_ways_in_every_mode/1,
    proxy_closes_the_client_when_the_backend_closes/1,
    proxy_closes_the_client_when_there_is_no_backend/1,
    relay_lets_in_whom_it_knows/1,
    game_sends_the_state_of_the_world/1,
    echo_sends_back_packets_in_every_mode/1,
    tls_echo_sends_back_in_every_mode/1,
    tls_echo_outlives_a_client_that_speaks_no_tls/1,
    discard_takes_all_in_every_mode/1,
    chargen_sends_until_the_client_goes/1,
    fanout_tells_everybody/1
]).
-export([
    echo_listener_sends_back/1,
    echo_reactor_sends_back/1,
    game_reactor_sends_the_state_of_the_world/1,
    relay_carries_both_ways/1
]).

-import(weir_cli_program, [mentions/2]).
-import(weir_cli_examples, [backend/1, in_every_mode/4, run/2, serve/3, stop/1]).
-import(weir_cli_test, [closed/1, connect/1, exchange/2]).

-include("run_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    Serving = [
        a_port_in_use_is_one_line_and_exit_code_1,
        echo_sends_back_in_every_mode,
        proxy_carries_both_ways_in_every_mode,
        proxy_closes_the_client_when_the_backend_closes,
        proxy_closes_the_client_when_there_is_no_backend,
        game_sends_the_state_of_the_world,
        echo_sends_back_packets_in_every_mode,
        tls_echo_sends_back_in_every_mode,
        tls_echo_outlives_a_client_that_speaks_no_tls,
        discard_takes_all_in_every_mode,
        chargen_sends_until_the_client_goes,
        fanout_tells_everybody
    ],
    OfWeir = [
        echo_listener_sends_back,
        echo_reactor_sends_back,
        game_reactor_sends_the_state_of_the_world,
        relay_carries_both_ways,
        relay_lets_in_whom_it_knows
    ],
    [{inet, [], Serving}, {socket, [], Serving}, {weir, [], Serving ++ OfWeir}].

a_port_in_use_is_one_line_and_exit_code_1(Config) ->
    #{port := Port} = Program = serve(Config, echo, []),
    {1, [Line]} = run(Config, ["run", "echo", "--port", integer_to_list(Port) | backend(Config)]),
    ?assert(mentions("address already in use", [Line])),
    0 = stop(Program).

echo_sends_back_in_every_mode(Config) ->
    in_every_mode(Config, echo, [], fun(Socket) ->
        [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]]
    end).

proxy_carries_both_ways_in_every_mode(Config) ->
    #{port := Backend} = Echo = serve(Config, echo, []),
    in_every_mode(Config, proxy, to(Backend), fun(Socket) ->
        [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]]
    end),
    0 = stop(Echo).

proxy_closes_the_client_when_the_backend_closes(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Backend} = inet:port(Listen),
    [
        begin
            #{port := Port} = Proxy = serve(Config, proxy, ["--active", Mode | to(Backend)]),
            {ok, Client} = connect(Port),
            {ok, Behind} = gen_tcp:accept(Listen, weir_test_wait:patience()),
            ok = gen_tcp:send(Behind, <<"last words">>),
            ok = gen_tcp:close(Behind),
            ?assertEqual({ok, <<"last words">>}, gen_tcp:recv(Client, 10, weir_test_wait:patience())),
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_test_wait:patience())),
            0 = stop(Proxy)
        end
     || Mode <- ["once", "false"]
    ].

proxy_closes_the_client_when_there_is_no_backend(Config) ->
    %% Port 1, because another suite may take a free port a moment later.
    Nobody = 1,
    #{port := Port} = Proxy = serve(Config, proxy, to(Nobody)),
    {ok, Client} = connect(Port),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_test_wait:patience())),
    0 = stop(Proxy).

relay_carries_both_ways(Config) ->
    #{port := Backend} = Echo = serve(Config, echo, []),
    #{port := Port} = Relay = serve(Config, relay, to(Backend)),
    {ok, Client} = connect(Port),
    [exchange(Client, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]],
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_test_wait:patience())),
    0 = stop(Relay),
    0 = stop(Echo).

%% The authentication before the relay is a fun, so this starts the example itself.
relay_lets_in_whom_it_knows(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Backend} = inet:port(Listen),
    {ok, #{port := Port, stop := Stop}} = weir_example_relay:start(#{
        to => {{127, 0, 0, 1}, Backend},
        listen => [{tcp_module, weir_tcp}],
        connect => [{tcp_module, weir_tcp}],
        authenticate => fun(Line) -> Line =:= <<"open sesame">> end
    }),
    {ok, Stranger} = connect(Port),
    ok = gen_tcp:send(Stranger, <<"hello\r\nhello">>),
    ?assertEqual({ok, <<"denied\n">>}, gen_tcp:recv(Stranger, 7, weir_test_wait:patience())),
    ?assertMatch({error, _}, gen_tcp:recv(Stranger, 0, weir_test_wait:patience())),
    {ok, Friend} = connect(Port),
    ok = gen_tcp:send(Friend, <<"open sesame\r\nand the first request">>),
    ?assertEqual({ok, <<"ok\n">>}, gen_tcp:recv(Friend, 3, weir_test_wait:patience())),
    {ok, Behind} = gen_tcp:accept(Listen, weir_test_wait:patience()),
    ?assertEqual({ok, <<"and the first request">>}, gen_tcp:recv(Behind, 21, weir_test_wait:patience())),
    ok = gen_tcp:send(Behind, <<"reply">>),
    ?assertEqual({ok, <<"reply">>}, gen_tcp:recv(Friend, 5, weir_test_wait:patience())),
    [ok = gen_tcp:close(Socket) || Socket <- [Friend, Behind, Listen]],
    ok = Stop().

game_sends_the_state_of_the_world(Config) ->
    in_every_mode(Config, game, [], fun(Socket) ->
        [
            begin
                {ok, <<_:512/binary>>} = gen_tcp:recv(Socket, 512, weir_test_wait:patience()),
                ok = gen_tcp:send(Socket, <<"an answer">>)
            end
         || _ <- lists:seq(1, 3)
        ]
    end).

%% The server returns whole packets, however the client splits them.
echo_sends_back_packets_in_every_mode(Config) ->
    [
        in_every_mode(Config, echo, ["--packet", Type], fun(Socket) ->
            [
                begin
                    <<Half:(byte_size(Packet) div 2)/binary, OtherHalf/binary>> = Packet,
                    ok = gen_tcp:send(Socket, Half),
                    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 40)),
                    ok = gen_tcp:send(Socket, [OtherHalf, Packet, Half]),
                    ?assertEqual(
                        {ok, <<Packet/binary, Packet/binary>>},
                        gen_tcp:recv(Socket, 2 * byte_size(Packet), weir_test_wait:patience())
                    ),
                    ok = gen_tcp:send(Socket, OtherHalf),
                    ?assertEqual({ok, Packet}, gen_tcp:recv(Socket, byte_size(Packet), weir_test_wait:patience()))
                end
             || Packet <- Packets
            ]
        end)
     || {Type, Packets} <- [
            {"4", [<<9:32, "\na packet">>, <<64:32, (rand:bytes(64))/binary>>, <<0:32>>]},
            {"line", [<<"one line of some\n">>, <<0, 0, 0, 1, "line\n">>]}
        ]
    ].

tls_echo_sends_back_in_every_mode(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    in_every_mode(Config, tls_echo, [], fun(Socket) ->
        {ok, Secure} = ssl:connect(Socket, [{verify, verify_none}], weir_test_wait:patience()),
        {ok, [{protocol, 'tlsv1.3'}]} = ssl:connection_information(Secure, [protocol]),
        [
            begin
                Data = rand:bytes(Size),
                ok = ssl:send(Secure, Data),
                ?assertEqual({ok, Data}, ssl:recv(Secure, Size, weir_test_wait:patience()))
            end
         || Size <- [1, 64, 3, 100000, 1]
        ]
    end).

tls_echo_outlives_a_client_that_speaks_no_tls(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    #{port := Port} = Program = serve(Config, tls_echo, []),
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\n\r\n">>),
    closed(Socket),
    {ok, Secure} = ssl:connect({127, 0, 0, 1}, Port, [{verify, verify_none}], weir_test_wait:patience()),
    ok = ssl:close(Secure),
    0 = stop(Program).

discard_takes_all_in_every_mode(Config) ->
    in_every_mode(Config, discard, [], fun(Socket) ->
        ok = gen_tcp:send(Socket, binary:copy(<<"d">>, 3000000)),
        ok = gen_tcp:shutdown(Socket, write),
        ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience()))
    end).

chargen_sends_until_the_client_goes(Config) ->
    #{port := Port} = Program = serve(Config, chargen, []),
    {ok, Stuck} = connect(Port),
    [
        begin
            {ok, Socket} = connect(Port),
            {ok, Received} = gen_tcp:recv(Socket, 3000000, weir_test_wait:patience()),
            ?assert(Received =:= binary:copy(<<"c">>, 3000000)),
            ok = gen_tcp:close(Socket)
        end
     || _ <- [1, 2]
    ],
    ok = gen_tcp:close(Stuck),
    0 = stop(Program).

%% Each message begins with the time of its broadcast.
fanout_tells_everybody(Config) ->
    [
        begin
            #{port := Port} = Program = serve(Config, Example, ["--size", "20", "--per-second", "50"]),
            Members = [begin {ok, Member} = connect(Port), Member end || _ <- [1, 2, 3]],
            [
                begin
                    Times = [
                        begin
                            {ok, <<Time:64, _:12/binary>>} = gen_tcp:recv(Member, 20, weir_test_wait:patience()),
                            Time
                        end
                     || _ <- lists:seq(1, 5)
                    ],
                    ?assertEqual(lists:usort(Times), Times)
                end
             || Member <- Members
            ],
            0 = stop(Program)
        end
     || Example <- [fanout_processes, fanout]
    ].

%% Examples that only run on Weir

echo_listener_sends_back(Config) ->
    #{port := Port} = Program = serve(Config, echo_listener, []),
    {ok, Socket} = connect(Port),
    [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]],
    0 = stop(Program).

echo_reactor_sends_back(Config) ->
    #{port := Port} = Program = serve(Config, echo_reactor, []),
    Sockets = [begin {ok, Socket} = connect(Port), Socket end || _ <- lists:seq(1, 20)],
    [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1], Socket <- Sockets],
    0 = stop(Program).

game_reactor_sends_the_state_of_the_world(Config) ->
    #{port := Port} = Program = serve(Config, game_reactor, []),
    {ok, Socket} = connect(Port),
    [
        begin
            {ok, <<_:512/binary>>} = gen_tcp:recv(Socket, 512, weir_test_wait:patience()),
            ok = gen_tcp:send(Socket, <<"an answer">>)
        end
     || _ <- lists:seq(1, 3)
    ],
    0 = stop(Program).

to(Port) ->
    ["--to", "127.0.0.1:" ++ integer_to_list(Port)].
