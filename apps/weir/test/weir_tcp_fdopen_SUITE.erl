%% Sockets around descriptors that other code has opened: `gen_tcp:fdopen/2' and the option `fd' of listen and
%% connect.
-module(weir_tcp_fdopen_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/3, connect/4, keep/1]).
-import(weir_test_wait, [patience/0, next_message/0, recv_exactly/2]).

-include("drop_in_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend([
        connected, active_when_asked, connected_stays_open, closed_by_the_peer, unconnected, options_of_setopts,
        listening, listens_on_a_bound_one, listens_where_it_is_told, connects_with_it, already_connected,
        no_socket, no_descriptor, of_another_family, datagrams, what_is_no_number, port_without_address, local
    ]).

fdopen(Config, Fd, Options) ->
    keep(gen_tcp:fdopen(Fd, proplists:get_value(backend, Config) ++ Options)).

%% A descriptor that no port uses.
descriptor() ->
    descriptor(inet).

descriptor(Family) ->
    {ok, Socket} = socket:open(Family, stream),
    {ok, Fd} = socket:getopt(Socket, {otp, fd}),
    {Socket, Fd}.

connected_descriptor() ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Listener),
    {Socket, Fd} = descriptor(),
    ok = socket:connect(Socket, #{family => inet, addr => ?LOOPBACK, port => Port}),
    {ok, Peer} = keep(gen_tcp:accept(Listener, patience())),
    ok = gen_tcp:close(Listener),
    {Socket, Fd, Peer}.

connected(Config) ->
    {Socket, Fd, Peer} = connected_descriptor(),
    {ok, Opened} = fdopen(Config, Fd, [binary]),
    ?assertEqual({ok, [{active, false}, {mode, binary}]}, inet:getopts(Opened, [active, mode])),
    ?assertEqual(inet:sockname(Peer), inet:peername(Opened)),
    ok = gen_tcp:send(Opened, <<"there">>),
    ?assertEqual(<<"there">>, recv_exactly(Peer, 5)),
    ok = gen_tcp:send(Peer, <<"back">>),
    ?assertEqual(<<"back">>, recv_exactly(Opened, 4)),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).

active_when_asked(Config) ->
    {Socket, Fd, Peer} = connected_descriptor(),
    ok = gen_tcp:send(Peer, <<"before">>),
    {ok, Opened} = fdopen(Config, Fd, [binary, {active, once}]),
    ?assertEqual({tcp, Opened, <<"before">>}, next_message()),
    ok = inet:setopts(Opened, [{active, true}]),
    ok = gen_tcp:send(Peer, <<"after">>),
    ?assertEqual({tcp, Opened, <<"after">>}, next_message()),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).

%% The descriptor is closed by the code that opened it.
connected_stays_open(Config) ->
    {Socket, Fd, Peer} = connected_descriptor(),
    {ok, Opened} = fdopen(Config, Fd, []),
    ?assertEqual({error, timeout}, gen_tcp:recv(Opened, 1, 20)),
    ok = gen_tcp:close(Opened),
    ?assertEqual({error, timeout}, gen_tcp:recv(Peer, 0, 50)),
    %% And no poller watches it any more.
    {ok, Again} = fdopen(Config, Fd, [binary]),
    ok = gen_tcp:send(Peer, <<"again">>),
    ?assertEqual({ok, <<"again">>}, gen_tcp:recv(Again, 5, patience())),
    ok = gen_tcp:close(Again),
    ok = socket:close(Socket),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, patience())).

closed_by_the_peer(Config) ->
    {Socket, Fd, Peer} = connected_descriptor(),
    {ok, Opened} = fdopen(Config, Fd, [{active, true}]),
    ok = gen_tcp:close(Peer),
    ?assertEqual({tcp_closed, Opened}, next_message()),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).

unconnected(Config) ->
    {Socket, Fd} = descriptor(),
    {ok, Opened} = fdopen(Config, Fd, []),
    ?assertEqual({error, enotconn}, gen_tcp:send(Opened, <<"to nobody">>)),
    ?assertEqual({error, enotconn}, gen_tcp:recv(Opened, 0, 0)),
    ?assertEqual({error, einval}, gen_tcp:accept(Opened, 0)),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).

options_of_setopts(Config) ->
    {Socket, Fd} = descriptor(),
    [
        ?assertEqual({error, einval}, fdopen(Config, Fd, [Option]))
     || Option <- [{foo, 1}, {ip, ?LOOPBACK}, {port, 0}, {backlog, 5}, {fd, Fd}, {nodelay, yes}]
    ],
    ok = socket:close(Socket).

%% fdopen gives a connection, so accept refuses it although the descriptor listens.
listening(Config) ->
    {Socket, Fd} = descriptor(),
    ok = socket:bind(Socket, #{family => inet, addr => ?LOOPBACK, port => 0}),
    ok = socket:listen(Socket),
    {ok, Opened} = fdopen(Config, Fd, []),
    ?assertEqual({error, einval}, gen_tcp:accept(Opened, 0)),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).

listens_on_a_bound_one(Config) ->
    [
        begin
            {Socket, Fd} = descriptor(),
            ok = socket:bind(Socket, #{family => inet, addr => ?LOOPBACK, port => 0}),
            Prepare(Socket),
            {ok, #{port := Port}} = socket:sockname(Socket),
            {ok, Listener} = listen(Config, 0, [{fd, Fd}, binary, {active, false}]),
            ?assertEqual({ok, {?LOOPBACK, Port}}, inet:sockname(Listener)),
            {ok, Connected} = keep(gen_tcp:connect(?LOOPBACK, Port, [])),
            {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
            ok = gen_tcp:send(Connected, <<"through">>),
            ?assertEqual(<<"through">>, recv_exactly(Accepted, 7)),
            ok = gen_tcp:close(Listener),
            %% The accepted connection is an ordinary socket.
            ok = gen_tcp:close(Accepted),
            ?assertEqual({tcp_closed, Connected}, next_message()),
            ok = socket:close(Socket)
        end
     || Prepare <- [fun(_Socket) -> ok end, fun socket:listen/1]
    ].

listens_where_it_is_told(Config) ->
    {Socket, Fd} = descriptor(),
    {ok, Listener} = listen(Config, 0, [{fd, Fd}, {ip, ?LOOPBACK}]),
    {ok, {IP, Port}} = inet:sockname(Listener),
    ?assertEqual(?LOOPBACK, IP),
    ?assertMatch({ok, _}, keep(gen_tcp:connect(?LOOPBACK, Port, []))),
    ok = gen_tcp:close(Listener),
    ok = socket:close(Socket).

connects_with_it(Config) ->
    {ok, Listener} = keep(gen_tcp:listen(0, [{ip, ?LOOPBACK}])),
    {ok, Port} = inet:port(Listener),
    {Socket, Fd} = descriptor(),
    {ok, Connected} = connect(Config, ?LOOPBACK, Port, [{fd, Fd}]),
    ?assertEqual({ok, {?LOOPBACK, Port}}, inet:peername(Connected)),
    ok = gen_tcp:close(Connected),
    ok = socket:close(Socket).

already_connected(Config) ->
    {Socket, Fd, Peer} = connected_descriptor(),
    {ok, {IP, Port}} = inet:sockname(Peer),
    ?assertEqual({error, eisconn}, connect(Config, IP, Port, [{fd, Fd}])),
    %% The failure has not changed it.
    ok = socket:send(Socket, <<"still">>),
    ?assertEqual(<<"still">>, recv_exactly(Peer, 5)),
    ok = socket:close(Socket).

no_socket(Config) ->
    [Fd | _] = [
        Fd
     || Fd <- lists:seq(0, 20), {ok, Target} <- [file:read_link_all("/proc/self/fd/" ++ integer_to_list(Fd))],
        not lists:prefix("socket:", Target)
    ],
    ?assertEqual({error, enotsock}, fdopen(Config, Fd, [])),
    ?assertEqual({error, enotsock}, listen(Config, 0, [{fd, Fd}])),
    ?assertEqual({error, enotsock}, connect(Config, ?LOOPBACK, 1, [{fd, Fd}])).

no_descriptor(Config) ->
    ?assertEqual({error, ebadf}, fdopen(Config, 1_000_000, [])),
    ?assertEqual({error, ebadf}, listen(Config, 0, [{fd, 1_000_000}])).

of_another_family(Config) ->
    {Socket, Fd} = descriptor(local),
    ?assertEqual({error, einval}, fdopen(Config, Fd, [])),
    ?assertEqual({error, einval}, listen(Config, 0, [{fd, Fd}])),
    ok = socket:close(Socket).

%% Stock treats datagram sockets as streams, which fails later.
datagrams(Config) ->
    case proplists:get_value(backend, Config) of
        [] ->
            {skip, "a deliberate difference"};
        _ ->
            {ok, Socket} = gen_udp:open(0, [{ip, ?LOOPBACK}]),
            {ok, Fd} = inet:getfd(Socket),
            ?assertEqual({error, einval}, fdopen(Config, Fd, [])),
            ok = gen_udp:close(Socket)
    end.

%% Such values are ignored.
what_is_no_number(Config) ->
    [?assertMatch({ok, _}, listen(Config, 0, [{fd, Fd}, {ip, ?LOOPBACK}])) || Fd <- [-1, foo, <<>>]].

port_without_address(Config) ->
    {Socket, Fd} = descriptor(),
    Port = weir_test_peer:free_port(),
    ?assertMatch(
        {Class, _} when Class =:= error; Class =:= exit, outcome(fun() -> listen(Config, Port, [{fd, Fd}]) end)
    ),
    ok = socket:close(Socket).

%% Stock crashes, Weir returns `badarg'.
outcome(Fun) ->
    try
        Fun()
    catch
        Class:Reason -> {Class, Reason}
    end.

local(Config) ->
    %% The kernel chooses this name.
    {ok, Listener} = keep(gen_tcp:listen(0, [local, {ifaddr, {local, <<>>}}, binary, {active, false}])),
    {ok, Name} = inet:sockname(Listener),
    {Socket, Fd} = descriptor(local),
    {local, Path} = Name,
    ok = socket:connect(Socket, #{family => local, path => Path}),
    {ok, Peer} = keep(gen_tcp:accept(Listener, patience())),
    Module =
        case proplists:get_value(backend, Config) of
            [] -> [local];
            _ -> [{tcp_module, weir_local}]
        end,
    {ok, Opened} = keep(gen_tcp:fdopen(Fd, Module)),
    ?assertEqual({ok, Name}, inet:peername(Opened)),
    ok = gen_tcp:send(Opened, <<"there">>),
    ?assertEqual(<<"there">>, recv_exactly(Peer, 5)),
    ok = gen_tcp:close(Opened),
    ok = socket:close(Socket).
