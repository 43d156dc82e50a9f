%% gen_tcp:connect/2,3,4.
-module(weir_tcp_connect_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    connect/4, accept_raw/1, keep/1, descriptors/0, listener_with_full_backlog/0, free_port/0, async/1, await/1,
    assert_waits/1, kill/1
]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, assert_no_message/0, recv_exactly/2, timed/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

cases() ->
    [
        to_an_address,
        to_a_name,
        to_a_socket_address,
        to_a_service_that_is_unknown,
        takes_the_defaults_of_gen_tcp,
        peer_may_speak_first,
        many_at_once,
        refused,
        times_out,
        timeout_of_zero,
        hangs_without_timeout,
        wrong_timeout,
        from_an_address,
        from_a_port,
        from_a_port_in_use,
        from_an_address_that_is_not_here,
        to_a_broadcast_address,
        bad_addresses,
        bad_ports,
        bad_options,
        last_of_a_repeated_option_wins,
        killed_while_connecting
    ].

%% A stock listener on the loopback.
listener() ->
    listener(0).

listener(Wanted) ->
    {ok, Listener} = keep(
        gen_tcp:listen(Wanted, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 128}])
    ),
    {ok, Port} = inet:port(Listener),
    {Listener, Port}.

assert_talk(Socket, Peer) ->
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)),
    ?assertEqual(inet:peername(Peer), inet:sockname(Socket)),
    ok = gen_tcp:send(Socket, <<"ping">>),
    ?assertEqual(<<"ping">>, recv_exactly(Peer, 4)),
    ok = gen_tcp:send(Peer, <<"pong">>),
    ?assertEqual(<<"pong">>, recv_exactly(Socket, 4)).

to_an_address(Config) ->
    {Listener, Port} = listener(),
    lists:foreach(
        fun(Address) ->
            {ok, Socket} = connect(Config, Address, Port, [binary, {active, false}]),
            assert_talk(Socket, accept_raw(Listener)),
            {ok, Second} = connect(Config, Address, Port, {[binary, {active, false}], patience()}),
            assert_talk(Second, accept_raw(Listener)),
            {ok, Third} = connect(Config, Address, Port, {[binary, {active, false}], infinity}),
            assert_talk(Third, accept_raw(Listener))
        end,
        [{127, 0, 0, 1}, "127.0.0.1"]
    ).

to_a_name(Config) ->
    {Listener, Port} = listener(),
    lists:foreach(
        fun(Name) ->
            {ok, Socket} = connect(Config, Name, Port, {[binary, {active, false}], patience()}),
            assert_talk(Socket, accept_raw(Listener))
        end,
        ["localhost", localhost]
    ).

to_a_socket_address(Config) ->
    %% No other connection takes the port after the listener is closed.
    {Listener, Port} = listener(free_port()),
    Options = proplists:get_value(backend, Config) ++ [binary, {active, false}],
    Address = #{family => inet, addr => {127, 0, 0, 1}, port => Port},
    {ok, Socket} = keep(gen_tcp:connect(Address, Options)),
    assert_talk(Socket, accept_raw(Listener)),
    {ok, Second} = keep(gen_tcp:connect(Address, Options, patience())),
    assert_talk(Second, accept_raw(Listener)),
    ok = gen_tcp:close(Listener),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(Address, Options)).

to_a_service_that_is_unknown(Config) ->
    ?assertExit(badarg, connect(Config, {127, 0, 0, 1}, no_such_service, [])).

takes_the_defaults_of_gen_tcp(Config) ->
    {Listener, Port} = listener(),
    {ok, Socket} = connect(Config, {127, 0, 0, 1}, Port, []),
    Peer = accept_raw(Listener),
    ok = gen_tcp:send(Peer, <<"list, active">>),
    ?assertEqual({tcp, Socket, "list, active"}, next_message()).

peer_may_speak_first(Config) ->
    {Listener, Port} = listener(),
    Greeter = async(fun() ->
        {ok, Peer} = gen_tcp:accept(Listener),
        gen_tcp:send(Peer, <<"hello">>)
    end),
    {ok, Socket} = connect(Config, {127, 0, 0, 1}, Port, [binary, {active, once}]),
    ?assertEqual({tcp, Socket, <<"hello">>}, next_message()),
    ?assertEqual(ok, await(Greeter)).

many_at_once(Config) ->
    {Listener, Port} = listener(),
    Options = proplists:get_value(backend, Config) ++ [binary, {active, false}],
    Connecting = [
        async(fun() ->
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, Options, patience()),
            ok = gen_tcp:send(Socket, <<N:32>>),
            gen_tcp:recv(Socket, 4, patience())
        end)
     || N <- lists:seq(1, 50)
    ],
    lists:foreach(
        fun(_) ->
            Peer = accept_raw(Listener),
            ok = gen_tcp:send(Peer, recv_exactly(Peer, 4))
        end,
        Connecting
    ),
    ?assertEqual(
        [{ok, <<N:32>>} || N <- lists:seq(1, 50)], [await(Async) || Async <- Connecting]
    ).

refused(Config) ->
    Port = free_port(),
    ?assertEqual({error, econnrefused}, connect(Config, {127, 0, 0, 1}, Port, [])),
    ?assertEqual({error, econnrefused}, connect(Config, "localhost", Port, {[], patience()})),
    ?assertEqual({error, econnrefused}, connect(Config, {127, 0, 0, 1}, 0, {[], patience()})),
    assert_no_message().

times_out(Config) ->
    Port = listener_with_full_backlog(),
    {Elapsed, Result} = timed(fun() -> connect(Config, {127, 0, 0, 1}, Port, {[], 60}) end),
    ?assertEqual({error, timeout}, Result),
    ?assert(Elapsed >= 55),
    assert_no_message().

timeout_of_zero(Config) ->
    Full = listener_with_full_backlog(),
    ?assertEqual({error, timeout}, connect(Config, {127, 0, 0, 1}, Full, {[], 0})),
    %% On the loopback the connection may be established at once.
    {Listener, Port} = listener(),
    case connect(Config, {127, 0, 0, 1}, Port, {[binary, {active, false}], 0}) of
        {ok, Socket} -> assert_talk(Socket, accept_raw(Listener));
        {error, Reason} -> ?assertEqual(timeout, Reason)
    end,
    assert_no_message().

hangs_without_timeout(Config) ->
    Port = listener_with_full_backlog(),
    Options = proplists:get_value(backend, Config),
    Connecting = [
        async(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, Options) end),
        async(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, Options, infinity) end)
    ],
    [assert_waits(Async) || Async <- Connecting].

wrong_timeout(Config) ->
    [
        ?assertError(badarg, connect(Config, {127, 0, 0, 1}, free_port(), {[], Timeout}))
     || Timeout <- [-1, foo, 1.0]
    ].

from_an_address(Config) ->
    {Listener, Port} = listener(),
    lists:foreach(
        fun({Option, Address}) ->
            {ok, Socket} = connect(Config, {127, 0, 0, 1}, Port, [
                binary, {active, false}, Option
            ]),
            ?assertMatch({ok, {Address, _}}, inet:sockname(Socket)),
            assert_talk(Socket, accept_raw(Listener))
        end,
        [
            {{ip, {127, 0, 0, 2}}, {127, 0, 0, 2}},
            {{ip, {127, 0, 0, 1}}, {127, 0, 0, 1}},
            {{ip, loopback}, {127, 0, 0, 1}},
            {{ip, any}, {127, 0, 0, 1}}
        ]
    ).

from_a_port(Config) ->
    {Listener, Port} = listener(),
    lists:foreach(
        fun(Options) ->
            Local = free_port(),
            {ok, Socket} = connect(Config, {127, 0, 0, 1}, Port, [
                binary, {active, false}, {port, Local} | Options
            ]),
            ?assertEqual({ok, {{127, 0, 0, 1}, Local}}, inet:sockname(Socket)),
            assert_talk(Socket, accept_raw(Listener))
        end,
        [[], [{ip, {127, 0, 0, 1}}]]
    ).

from_a_port_in_use(Config) ->
    {_Listener, Port} = listener(),
    [
        ?assertEqual(
            {error, eaddrinuse}, connect(Config, {127, 0, 0, 1}, Port, [{port, Port} | Options])
        )
     || Options <- [[], [{ip, {127, 0, 0, 1}}]]
    ].

%% No interface has an address of 192.0.2.0/24, which is for documentation.
from_an_address_that_is_not_here(Config) ->
    {_Listener, Port} = listener(),
    ?assertEqual(
        {error, eaddrnotavail}, connect(Config, {127, 0, 0, 1}, Port, [{ip, {192, 0, 2, 1}}])
    ).

to_a_broadcast_address(Config) ->
    ?assertEqual(
        {error, enetunreach}, connect(Config, {127, 255, 255, 255}, free_port(), {[], patience()})
    ).

bad_addresses(Config) ->
    [
        ?assertExit(badarg, connect(Config, Address, free_port(), {[], 1000}))
     || Address <- [{1, 2, 3}, {300, 0, 0, 1}, {127, 0, 0, -1}, <<"localhost">>, 1]
    ],
    %% The empty name is invalid in OTP 25, and unknown in OTP 29.
    case catch connect(Config, "", free_port(), {[], 1000}) of
        {'EXIT', badarg} -> ok;
        {error, nxdomain} -> ok
    end,
    %% An IPv6 address is not an address of this family.
    ?assertEqual({error, nxdomain}, connect(Config, "::1", free_port(), {[], 1000})).

bad_ports(Config) ->
    [
        ?assertExit(_, connect(Config, {127, 0, 0, 1}, Port, {[], 1000}))
     || Port <- [-1, 65536, 70000, "80", 1.0]
    ].

bad_options(Config) ->
    Port = free_port(),
    [
        ?assertExit(badarg, connect(Config, {127, 0, 0, 1}, Port, Options))
     || Options <- [
            [foo], [{foo, 1}], [{nodelay, 1}], [{backlog, 5}], [{ip, foo}], [{ip, {1, 2, 3}}],
            [{ip, "127.0.0.1"}], [{port, foo}], [{port, 65536}], [{port, -1}], [{active, 32768}],
            [{active, -32769}], [{active, foo}], [{mode, foo}], [{packet, 3}], [{recbuf, foo}],
            [{sndbuf, foo}], [{buffer, foo}], [{keepalive, yes}], [{linger, true}],
            [{send_timeout, -1}], [{send_timeout_close, 1}], [{high_watermark, foo}],
            [{low_watermark, foo}], [{exit_on_close, 1}], [{show_econnreset, foo}],
            [{raw, 6, 1, foo}], [{reuseaddr, foo}], [1], ["binary"], [{broadcast, true}]
        ]
    ],
    assert_no_message().

last_of_a_repeated_option_wins(Config) ->
    {_Listener, Port} = listener(),
    {ok, Socket} = connect(Config, {127, 0, 0, 1}, Port, [
        {nodelay, true}, {nodelay, false}, list, binary, {active, false}, {active, 3}
    ]),
    ?assertEqual(
        {ok, [{nodelay, false}, {mode, binary}, {active, 3}]},
        inet:getopts(Socket, [nodelay, mode, active])
    ).

%% The end of the case checks that nothing is left of the attempt.
killed_while_connecting(Config) ->
    Port = listener_with_full_backlog(),
    Options = proplists:get_value(backend, Config),
    Before = descriptors(),
    Connecting = [
        async(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, Options) end)
     || _ <- lists:seq(1, 5)
    ],
    _ = [assert_waits(Async) || Async <- Connecting],
    ?assert(descriptors() > Before),
    _ = [ok = kill(Async) || Async <- Connecting],
    wait_until(fun() -> descriptors() =< Before end).
