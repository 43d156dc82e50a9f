%% Listening, addresses, counters and monitors.
-module(weir_tcp_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, listen/3, connect_raw/1, socket_pair/2, socket_pair/3, wait_for_queued/2, keep/1, free_port/0, async/1,
    await/1, kill/1, pid/1
]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend(cases()).

cases() ->
    [
        listen_on_a_port_of_the_kernel,
        listen_on_an_address,
        listen_on_any_address_by_default,
        port_option_wins,
        address_in_use,
        address_that_is_not_here,
        reuse_of_an_address,
        backlog,
        listen_takes_the_defaults_of_gen_tcp,
        listen_with_bad_options,
        listen_with_a_bad_port,
        listen_with_a_bad_backlog,
        last_of_a_repeated_option_wins,
        backend_option_comes_first,
        calls_on_a_listener,
        addresses_of_both_ends,
        peernames,
        counters_of_sending,
        counters_of_receiving,
        counters_of_active_messages,
        counters_of_what_is_pending,
        counters_by_name,
        info,
        info_of_a_listener
    ].

listen_on_a_port_of_the_kernel(Config) ->
    {First, Port} = listen(Config, []),
    {_Second, Other} = listen(Config, []),
    ?assert(Port > 0),
    ?assert(Port =/= Other),
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(First)),
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)).

listen_on_an_address(Config) ->
    lists:foreach(
        fun({Given, Address}) ->
            {ok, Listener} = listen(Config, 0, [{ip, Given}]),
            {ok, {Name, Port}} = inet:sockname(Listener),
            ?assertEqual(Address, Name),
            {ok, Peer} = keep(gen_tcp:connect(Address, Port, [])),
            {ok, Socket} = keep(gen_tcp:accept(Listener)),
            ?assertEqual(inet:sockname(Peer), inet:peername(Socket))
        end,
        [
            {{127, 0, 0, 1}, {127, 0, 0, 1}},
            {{127, 0, 0, 2}, {127, 0, 0, 2}},
            {loopback, {127, 0, 0, 1}},
            {any, {0, 0, 0, 0}}
        ]
    ).

listen_on_any_address_by_default(Config) ->
    {ok, Listener} = listen(Config, 0, []),
    ?assertMatch({ok, {{0, 0, 0, 0}, _}}, inet:sockname(Listener)).

%% As ranch does: the port in the options, and 0 as the argument.
port_option_wins(Config) ->
    lists:foreach(
        fun(Argument) ->
            Port = free_port(),
            {ok, Listener} = listen(Config, Argument, [{ip, {127, 0, 0, 1}}, {port, Port}]),
            ?assertEqual({ok, Port}, inet:port(Listener))
        end,
        [0, free_port()]
    ).

address_in_use(Config) ->
    %% No other connection takes the port while nothing listens on it.
    Port = free_port(),
    Options = [{ip, {127, 0, 0, 1}}],
    {ok, Listener} = listen(Config, Port, Options),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, Options)),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, [{reuseaddr, true} | Options])),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, [])),
    ok = gen_tcp:close(Listener),
    ?assertMatch({ok, _}, listen(Config, Port, Options)).

%% No interface has an address of 192.0.2.0/24, which is for documentation.
address_that_is_not_here(Config) ->
    ?assertEqual({error, eaddrnotavail}, listen(Config, 0, [{ip, {192, 0, 2, 1}}])).

%% Without reuseaddr, the side that closes first keeps the address in use for a while.
reuse_of_an_address(Config) ->
    Port = free_port(),
    Options = [{ip, {127, 0, 0, 1}}],
    {ok, Listener} = listen(Config, Port, [binary, {active, false}, {reuseaddr, true} | Options]),
    Peer = connect_raw(Port),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Socket),
    ?assertEqual({<<>>, closed}, recv_all(Peer)),
    ok = gen_tcp:close(Peer),
    ok = gen_tcp:close(Listener),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, Options)),
    ?assertMatch({ok, _}, listen(Config, Port, [{reuseaddr, true} | Options])).

%% The kernel queues one connection more than the backlog says, and drops further ones until some are accepted.
backlog(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 2}]),
    Connect = fun(Time) -> keep(gen_tcp:connect({127, 0, 0, 1}, Port, [], Time)) end,
    [?assertMatch({ok, _}, Connect(patience())) || _ <- [1, 2, 3]],
    wait_for_queued(Listener, 3),
    ?assertEqual({error, timeout}, Connect(60)),
    [{ok, _} = keep(gen_tcp:accept(Listener, patience())) || _ <- [1, 2, 3]],
    ?assertMatch({ok, _}, Connect(patience())).

listen_takes_the_defaults_of_gen_tcp(Config) ->
    {Listener, Port} = listen(Config, []),
    Defaults = [{active, true}, {mode, list}, {packet, 0}, {nodelay, false}],
    ?assertEqual({ok, Defaults}, inet:getopts(Listener, [active, mode, packet, nodelay])),
    Peer = connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"list, active">>),
    {ok, Socket} = keep(gen_tcp:accept(Listener)),
    ?assertEqual({tcp, Socket, "list, active"}, next_message()).

listen_with_bad_options(Config) ->
    [
        ?assertExit(badarg, listen(Config, 0, Options))
     || Options <- [
            [foo], [{foo, 1}], [{nodelay, 1}], [{ip, foo}], [{ip, {1, 2, 3}}],
            [{ip, {256, 0, 0, 1}}], [{ip, "127.0.0.1"}], [{port, foo}], [{port, 65536}],
            [{port, -1}], [{active, 32768}], [{active, -32769}], [{active, foo}], [{mode, foo}],
            [{packet, 3}], [{recbuf, foo}], [{sndbuf, foo}], [{buffer, foo}], [{keepalive, yes}],
            [{linger, true}], [{linger, {true, foo}}], [{send_timeout, -1}],
            [{send_timeout, foo}], [{send_timeout_close, 1}], [{high_watermark, foo}],
            [{low_watermark, foo}], [{exit_on_close, 1}], [{show_econnreset, foo}],
            [{raw, 6, 1, foo}], [{raw, 6, foo, <<>>}], [{reuseaddr, foo}], [1], ["binary"],
            [{}], [{broadcast, true}], [{active, true}, {nodelay, true}, foo]
        ]
    ],
    assert_no_message().

listen_with_a_bad_port(Config) ->
    [?assertExit(badarg, listen(Config, Port, [])) || Port <- [-1, 65536, no_such_service]],
    [?assertError(_, listen(Config, Port, [])) || Port <- ["80", 1.0]].

%% In another process, because stock gen_tcp leaves an open port each time.
listen_with_a_bad_backlog(Config) ->
    Options = [{ip, {127, 0, 0, 1}} | proplists:get_value(backend, Config)],
    Listening = async(fun() ->
        [catch gen_tcp:listen(0, [{backlog, Backlog} | Options]) || Backlog <- [foo, 1.0, "5"]]
    end),
    [?assertMatch({'EXIT', _}, Result) || Result <- await(Listening)],
    ok = kill(Listening).

last_of_a_repeated_option_wins(Config) ->
    {ok, Listener} = listen(Config, 0, [
        {nodelay, true}, {nodelay, false}, list, binary, {active, once}, {active, 3}
    ]),
    ?assertEqual(
        {ok, [{nodelay, false}, {mode, binary}, {active, 3}]},
        inet:getopts(Listener, [nodelay, mode, active])
    ).

backend_option_comes_first(Config) ->
    Backend = proplists:get_value(backend, Config),
    {ok, Listener} = keep(gen_tcp:listen(0, [{inet_backend, inet} | Backend])),
    ?assertMatch({ok, _}, inet:port(Listener)),
    ?assertExit(badarg, listen(Config, 0, [{active, true}, {inet_backend, inet}])).

calls_on_a_listener(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, true}]),
    ?assertEqual({error, enotconn}, gen_tcp:send(Listener, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Listener, 0, 100)),
    ?assertEqual({error, enotconn}, gen_tcp:unrecv(Listener, <<"x">>)),
    ?assertEqual({error, enotconn}, gen_tcp:shutdown(Listener, write)),
    ?assertEqual({error, enotconn}, inet:peername(Listener)),
    ?assertEqual(ok, inet:setopts(Listener, [{active, once}])),
    assert_no_message(),
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)).

addresses_of_both_ends(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    {ok, {{127, 0, 0, 1}, Port} = Name} = inet:sockname(Socket),
    ?assertEqual({ok, Name}, inet:peername(Peer)),
    ?assertEqual(inet:sockname(Peer), inet:peername(Socket)),
    ?assertEqual({ok, Port}, inet:port(Socket)),
    ?assertEqual({ok, [Name]}, inet:socknames(Socket)).

%% inet:peernames/1 takes only ports on the releases known so far.
peernames(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    {ok, Name} = inet:sockname(Peer),
    try inet:peernames(Socket) of
        Result -> ?assertEqual({ok, [Name]}, Result)
    catch
        error:function_clause when not is_port(Socket) ->
            {skip, "inet:peernames/1 does not dispatch to the module of a socket"}
    end.

stat(Socket, Name) ->
    {ok, [{Name, Value}]} = inet:getstat(Socket, [Name]),
    Value.

counters_of_sending(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [ok = gen_tcp:send(Socket, binary:copy(<<"x">>, Size)) || Size <- [3, 5, 10]],
    _ = recv_exactly(Peer, 18),
    Expected = [{send_oct, 18}, {send_cnt, 3}, {send_max, 10}, {send_avg, 6}, {send_pend, 0}],
    ?assertEqual({ok, Expected}, inet:getstat(Socket, [Name || {Name, _} <- Expected])),
    ?assertEqual(0, stat(Socket, recv_oct)).

counters_of_receiving(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        begin
            ok = gen_tcp:send(Peer, binary:copy(<<"x">>, Size)),
            _ = recv_exactly(Socket, Size)
        end
     || Size <- [3, 5, 10]
    ],
    %% recv_dvi is the running mean of the differences from the running mean.
    Expected = [{recv_oct, 18}, {recv_cnt, 3}, {recv_max, 10}, {recv_avg, 6}, {recv_dvi, 1}],
    ?assertEqual({ok, Expected}, inet:getstat(Socket, [Name || {Name, _} <- Expected])),
    ?assertEqual(0, stat(Socket, send_oct)).

counters_of_active_messages(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    [
        begin
            ok = gen_tcp:send(Peer, binary:copy(<<"x">>, Size)),
            ?assertMatch({tcp, Socket, _}, next_message())
        end
     || Size <- [20, 40, 30]
    ],
    Expected = [{recv_cnt, 3}, {recv_avg, 30}, {recv_max, 40}, {recv_oct, 90}],
    ?assertEqual({ok, Expected}, inet:getstat(Socket, [Name || {Name, _} <- Expected])).

counters_of_what_is_pending(Config) ->
    {Socket, Peer} = socket_pair(
        Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]
    ),
    Size = 500000,
    ok = gen_tcp:send(Socket, binary:copy(<<"x">>, Size)),
    Pending = stat(Socket, send_pend),
    ?assert(Pending > 0),
    ?assert(Pending < Size),
    ?assertEqual(Size, stat(Socket, send_oct)),
    _ = recv_exactly(Peer, Size),
    wait_until(fun() -> stat(Socket, send_pend) =:= 0 end).

counters_by_name(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual(
        {ok, [
            {recv_oct, 0}, {recv_cnt, 0}, {recv_max, 0}, {recv_avg, 0}, {recv_dvi, 0},
            {send_oct, 0}, {send_cnt, 0}, {send_max, 0}, {send_avg, 0}, {send_pend, 0}
        ]},
        inet:getstat(Socket)
    ),
    ok = gen_tcp:send(Socket, <<"abc">>),
    ?assertEqual(
        {ok, [{send_cnt, 1}, {recv_oct, 0}, {send_oct, 3}, {send_cnt, 1}]},
        inet:getstat(Socket, [send_cnt, recv_oct, send_oct, send_cnt])
    ),
    ?assertEqual({ok, []}, inet:getstat(Socket, [])),
    [
        ?assertEqual({error, einval}, inet:getstat(Socket, Names))
     || Names <- [[foo], [send_cnt, foo], ["send_cnt"], [1]]
    ],
    ?assertError(_, inet:getstat(Socket, foo)).

info(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"abc">>),
    _ = recv_exactly(Peer, 3),
    #{owner := Owner, states := States, counters := Counters} = inet:info(Socket),
    ?assertEqual(self(), Owner),
    ?assertEqual([connected, open], lists:sort(States)),
    {ok, Expected} = inet:getstat(Socket),
    ?assertEqual(maps:from_list(Expected), Counters),
    ?assertMatch(#{send_oct := 3}, Counters),
    Other = async(fun() -> ok end),
    ok = gen_tcp:controlling_process(Socket, pid(Other)),
    ?assertEqual(pid(Other), maps:get(owner, inet:info(Socket))),
    ok = gen_tcp:close(Socket),
    ?assertEqual(#{states => [closed]}, inet:info(Socket)).

info_of_a_listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    #{owner := Owner, states := States} = inet:info(Listener),
    ?assertEqual(self(), Owner),
    ?assertEqual([listen, open], lists:sort(States)),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    wait_until(fun() -> lists:member(accepting, maps:get(states, inet:info(Listener))) end),
    ok = kill(Acceptor).
