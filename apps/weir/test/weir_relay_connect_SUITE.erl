%% Relays that connect to their server. After each case the numbers of descriptors, sockets and relays are as before.
-module(weir_relay_connect_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    accept_raw/1, keep/1, reset/1, async/1, await/1, assert_waits/1, kill/1, pid/1, listener_with_full_backlog/0
]).
-import(weir_test_wait, [recv_exactly/2, next_message/0, wait_until/1, patience/0]).
-import(weir_relay_test, [carried/3, drain/1, ended/2, is_closed/1, end_of/1, pair/1]).

-include("relay_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, at_once}, {group, later}].

groups() ->
    [
        {at_once, [], [
            bytes_flow_both_ways,
            to_all_families,
            what_has_come_goes_with_it,
            a_client_that_has_ended_its_direction,
            a_client_that_has_gone,
            refused,
            sockets_that_cannot_be_relayed,
            wrong_arguments,
            an_event_tells_the_server
        ]},
        {later, [], [
            bytes_wait_for_the_server,
            the_end_of_a_direction_waits_for_the_server,
            a_client_resets_meanwhile,
            times_out,
            killed_meanwhile,
            the_connection_is_closed_meanwhile,
            the_connection_is_closed_when_it_stands
        ]}
    ].

%% At once ---------------------------------------------------------------------

bytes_flow_both_ways(Config) ->
    {A, Client} = pair(Config),
    {Listener, Server} = listener(inet),
    {ok, Relay} = weir:relay(A, {connect, Server, patience()}),
    Peer = accept_raw(Listener),
    ?assertEqual({error, einval}, inet:peername(A)),
    [
        begin
            carried(Client, Peer, rand:bytes(Size)),
            carried(Peer, Client, rand:bytes(Size))
        end
     || Size <- [1, 4096, 100000]
    ],
    ok = gen_tcp:close(Client),
    ?assertEqual(closed, is_closed(Peer)),
    ok = gen_tcp:close(Peer),
    #{a_to_b := #{bytes := 104097}, b_to_a := #{bytes := 104097}} = ended(Relay, closed).

to_all_families(Config) ->
    [
        begin
            {A, Client} = pair(Config),
            {Listener, Server} = listener(Family),
            {ok, Relay} = weir:relay(A, {connect, Server, infinity}, #{splice => Splice}),
            Peer = accept_raw(Listener),
            carried(Client, Peer, rand:bytes(100000)),
            carried(Peer, Client, rand:bytes(100000)),
            ok = weir:stop_relay(Relay),
            ended(Relay, closed)
        end
     || Family <- [inet, inet6, local], Splice <- [true, false]
    ].

%% First the prefix that the caller has read, then unread data.
what_has_come_goes_with_it(Config) ->
    {A, Client} = pair(Config),
    {Listener, Server} = listener(inet),
    Last = rand:bytes(300000),
    Sender = async(fun() -> gen_tcp:send(Client, [<<"read ">>, <<"put back ">>, Last]) end),
    <<"read ">> = recv_exactly(A, 5),
    <<"put back ">> = recv_exactly(A, 9),
    ok = gen_tcp:unrecv(A, <<"put back ">>),
    {ok, Relay} = weir:relay(A, {connect, Server, patience()}, #{prefix => [<<"header ">>, "read "]}),
    Peer = accept_raw(Listener),
    ?assertEqual(<<"header read put back ">>, recv_exactly(Peer, 21)),
    ?assertEqual(Last, recv_exactly(Peer, byte_size(Last))),
    ok = await(Sender),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

a_client_that_has_ended_its_direction(Config) ->
    {A, Client} = pair(Config),
    {Listener, Server} = listener(inet),
    ok = gen_tcp:send(Client, <<"last">>),
    ok = gen_tcp:shutdown(Client, write),
    {ok, Relay} = weir:relay(A, {connect, Server, patience()}),
    Peer = accept_raw(Listener),
    ?assertEqual(<<"last">>, recv_exactly(Peer, 4)),
    ?assertEqual(closed, is_closed(Peer)),
    carried(Peer, Client, <<"reply">>),
    ok = gen_tcp:close(Peer),
    ?assertEqual(closed, is_closed(Client)),
    ended(Relay, closed).

%% A relay may end while it starts: its owner still gets the message.
a_client_that_has_gone(Config) ->
    {A, Client} = pair(Config),
    {Listener, Server} = listener(inet),
    ok = reset(Client),
    case weir:relay(A, {connect, Server, patience()}) of
        {ok, Relay} ->
            ?assertEqual(econnreset, end_of(accept_raw(Listener))),
            #{failed := a} = ended(Relay, {error, econnreset});
        {error, {A, Reason}} ->
            ?assert(lists:member(Reason, [closed, enotconn]))
    end.

refused(Config) ->
    {A, Client} = pair(Config),
    ok = gen_tcp:send(Client, <<"before">>),
    %% The claim ends with the case.
    Port = await(async(fun weir_test_port:claim/0)),
    ?assertEqual({error, {connect, econnrefused}}, weir:relay(A, {connect, {?LOOPBACK, Port}, patience()})),
    ?assertEqual({error, {connect, enoent}}, weir:relay(A, {connect, {local, "/nobody/listens"}, patience()})),
    still_there(A, Client).

%% The socket can be relayed to another server, with all data so far.
still_there(A, Client) ->
    {Listener, Server} = listener(inet),
    {ok, Relay} = weir:relay(A, {connect, Server, patience()}),
    Peer = accept_raw(Listener),
    ?assertEqual(<<"before">>, recv_exactly(Peer, 6)),
    carried(Peer, Client, <<"reply">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

sockets_that_cannot_be_relayed(Config) ->
    {A, _Client} = pair(Config),
    {Listener, Server} = listener(inet),
    Other = async(fun() -> weir:relay(A, {connect, Server, patience()}) end),
    ?assertEqual({error, {A, not_owner}}, await(Other)),
    ok = gen_tcp:close(A),
    ?assertEqual({error, {A, closed}}, weir:relay(A, {connect, Server, patience()})),
    %% No connection was opened in vain.
    ?assertEqual({error, timeout}, gen_tcp:accept(Listener, 0)).

wrong_arguments(Config) ->
    {A, _Client} = pair(Config),
    [
        ?assertMatch({error, {bad_option, connect, Wrong, _}}, weir:relay(A, {connect, Wrong, patience()}))
     || Wrong <- [
            nowhere,
            {?LOOPBACK, -1},
            {?LOOPBACK, 65536},
            {{127, 0, 0, 256}, 80},
            {"localhost", 80},
            {undefined, 80},
            ?LOOPBACK
        ]
    ],
    [
        ?assertMatch({error, {bad_option, connect, Wrong, _}}, weir:relay(A, {connect, {?LOOPBACK, 80}, Wrong}))
     || Wrong <- [-1, never, 16#100000000]
    ],
    ?assertMatch({error, {bad_socket, no_socket, _}}, weir:relay(no_socket, {connect, {?LOOPBACK, 80}, patience()})),
    ?assertMatch({error, {connect, _}}, weir:relay(A, {connect, {local, lists:duplicate(200, $x)}, patience()})).

an_event_tells_the_server(Config) ->
    {A, Client} = pair(Config),
    {Listener, Server} = listener(inet),
    {ok, Peer} = inet:peername(A),
    Self = self(),
    ok = weir_event:attach(?MODULE, [weir, relay, start], fun(_, _, About, _) -> Self ! {about, About} end, none),
    try
        {ok, Relay} = weir:relay(A, {connect, Server, patience()}),
        ?assertEqual({about, #{relay => Relay, owner => Self, peer_a => Peer, peer_b => Server}}, next_message()),
        _ = accept_raw(Listener),
        ok = gen_tcp:close(Client),
        ok = weir:stop_relay(Relay),
        {weir_relay, Relay, _, _} = next_message()
    after
        weir_event:detach(?MODULE)
    end.

%% Later: the server's kernel does not answer yet --------------------------------

bytes_wait_for_the_server(Config) ->
    {Connecting, Client, Listener} = connecting(Config, infinity),
    ok = gen_tcp:send(Client, <<"first">>),
    Peer = peer_behind_others(Listener),
    {ok, Relay} = await(Connecting),
    ?assertEqual(<<"prefix first">>, recv_exactly(Peer, 12)),
    carried(Peer, Client, <<"reply">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

the_end_of_a_direction_waits_for_the_server(Config) ->
    {Connecting, Client, Listener} = connecting(Config, infinity),
    ok = gen_tcp:send(Client, <<"first">>),
    ok = gen_tcp:shutdown(Client, write),
    Peer = peer_behind_others(Listener),
    {ok, Relay} = await(Connecting),
    ?assertEqual(<<"prefix first">>, recv_exactly(Peer, 12)),
    ?assertEqual(closed, is_closed(Peer)),
    carried(Peer, Client, <<"reply">>),
    ok = gen_tcp:close(Peer),
    ended(Relay, closed).

a_client_resets_meanwhile(Config) ->
    {Connecting, Client, Listener} = connecting(Config, infinity),
    ok = reset(Client),
    Peer = peer_behind_others(Listener),
    case await(Connecting) of
        {ok, Relay} -> #{failed := a} = ended(Relay, {error, econnreset});
        {error, {_A, Reason}} -> ?assert(lists:member(Reason, [closed, enotconn]))
    end,
    ?assert(lists:member(drain(Peer), [closed, econnreset])).

times_out(Config) ->
    {A, Client} = pair(Config),
    ok = gen_tcp:send(Client, <<"before">>),
    Server = {?LOOPBACK, listener_with_full_backlog()},
    [?assertEqual({error, {connect, timeout}}, weir:relay(A, {connect, Server, Timeout})) || Timeout <- [0, 50]],
    still_there(A, Client).

killed_meanwhile(Config) ->
    {Connecting, Client, _Listener} = connecting(Config, infinity),
    _ = ?waitMatch([_], sockets_that_connect()),
    ok = kill(Connecting),
    ?assertEqual(closed, is_closed(Client)),
    wait_until(fun() -> sockets_that_connect() =:= [] end).

%% As when Weir stops. The caller does not know this socket.
the_connection_is_closed_meanwhile(Config) ->
    {Connecting, _Client, _Listener} = connecting(Config, infinity),
    [Handle] = ?waitMatch([_], sockets_that_connect()),
    ok = weir_nif:close(Handle, now),
    ?assertEqual({error, {connect, closed}}, await(Connecting)).

the_connection_is_closed_when_it_stands(Config) ->
    {Connecting, _Client, Listener} = connecting(Config, infinity),
    [Handle] = ?waitMatch([_], sockets_that_connect()),
    true = erlang:suspend_process(pid(Connecting)),
    _ = peer_behind_others(Listener),
    wait_until(fun() -> sockets_that_connect() =:= [] end),
    ok = weir_nif:close(Handle, now),
    true = erlang:resume_process(pid(Connecting)),
    ?assertEqual({error, {connect, closed}}, await(Connecting)).

sockets_that_connect() ->
    [Handle || {'$inet', weir_tcp, Handle} <- weir:sockets(), {ok, #{state := connecting}} <- [weir_nif:info(Handle)]].

%% A process that waits for a server with a full backlog. The relay belongs to the caller.
connecting(Config, Timeout) ->
    {A, Client} = pair(Config),
    {Listener, Server = {Address, Port}} = listener(inet, [{backlog, 0}]),
    Others = fill(Listener, Address, Port),
    Self = self(),
    Connecting = async(fun() ->
        receive go -> ok end,
        weir:relay(A, {connect, Server, Timeout}, #{prefix => <<"prefix ">>, owner => Self, detached => true})
    end),
    ok = gen_tcp:controlling_process(A, pid(Connecting)),
    pid(Connecting) ! go,
    ok = assert_waits(Connecting),
    {Connecting, Client, {Listener, Others}}.

%% Connects until the backlog is full, and returns the number of connections in it. The kernel drops further ones.
fill(Listener, Address, Port) ->
    case waiting(Listener) of
        {Count, Most} when Count > Most ->
            Count;
        {Count, Most} ->
            {ok, _} = keep(gen_tcp:connect(Address, Port, [], patience())),
            ?waitEqual({Count + 1, Most}, waiting(Listener)),
            fill(Listener, Address, Port)
    end.

%% Connections in the backlog, and its limit: for a listener, the fields `tcpi_unacked' and `tcpi_sacked' of TCP_INFO.
waiting(Listener) ->
    {ok, [{raw, 6, 11, Info}]} = inet:getopts(Listener, [{raw, 6, 11, 104}]),
    <<_:24/binary, Count:32/native, Most:32/native, _/binary>> = Info,
    {Count, Most}.

%% The connection after the earlier ones in the backlog.
peer_behind_others({Listener, Others}) ->
    _ = [accept_raw(Listener) || _ <- lists:seq(1, Others)],
    accept_raw(Listener).

%% A stock listener and its address.
listener(Family) -> listener(Family, []).

listener(local, Options) ->
    %% A name in Linux's abstract namespace leaves no file.
    Name = {local, iolist_to_binary([0, os:getpid(), $., integer_to_binary(erlang:unique_integer([positive]))])},
    {ok, Listener} = keep(gen_tcp:listen(0, [{ifaddr, Name}, binary, {active, false} | Options])),
    {Listener, Name};
listener(Family, Options) ->
    Address =
        case Family of
            inet -> ?LOOPBACK;
            inet6 -> {0, 0, 0, 0, 0, 0, 0, 1}
        end,
    {ok, Listener} = keep(
        gen_tcp:listen(0, [Family, {ip, Address}, binary, {active, false}, {exit_on_close, false} | Options])
    ),
    {ok, Port} = inet:port(Listener),
    {Listener, {Address, Port}}.
