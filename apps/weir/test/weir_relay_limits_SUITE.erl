%% Limits of relays: memory of a side that never reads, timeouts, and refused arguments.
-module(weir_relay_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, socket_pair/3, reset/1, async/1, await/1, pid/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, recv_exactly/2, patience/0]).
-import(weir_relay_test, [carried/3, end_of/1, ended/2, fill/2, is_closed/1, relay/1, relay/2]).

-include("relay_suite.hrl").

%% A timeout that a case waits for, and one that must not expire.
-define(SOON, 100).
-define(LATER, 3600_000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, bounds}, {group, timeouts}, {group, refusals}].

groups() ->
    [
        {bounds, [], [a_side_that_never_reads, a_side_that_never_reads_spliced, pipes_are_given_back]},
        {timeouts, [], [
            idle_timeout,
            traffic_puts_the_idle_timeout_off,
            half_close_timeout,
            half_close_timeout_is_for_half_closes,
            a_long_timeout_has_no_timer,
            a_long_timeout_gets_a_timer,
            the_timer_is_killed
        ]},
        {refusals, [], [
            sockets_of_others,
            sockets_that_are_closed,
            sockets_that_listen,
            sockets_that_are_none,
            options_that_are_wrong,
            refused_sockets_are_as_they_were,
            relays_that_are_none
        ]}
    ].

%% Bounds ----------------------------------------------------------------------

a_side_that_never_reads(Config) ->
    never_reads(Config, #{splice => false, buffer => 1000}).

a_side_that_never_reads_spliced(Config) ->
    never_reads(Config, #{splice => true}).

never_reads(Config, Options) ->
    {A, Client} = small_pair(Config),
    {B, Server} = small_pair(Config),
    {ok, Relay} = weir:relay(A, B, Options),
    Sent = fill(Relay, Client),
    {ok, [{send_pend, Queued}]} = inet:getstat(Client, [send_pend]),
    %% In the buffers of the kernel and of the relay. A pipe may hold a megabyte.
    ?assert(Sent - Queued < 4_000_000, {Sent, Queued}),
    {ok, #{a_to_b := #{bytes := Taken}}} = weir:relay_info(Relay),
    ?assert(Taken =< Sent - Queued, {Taken, Sent, Queued}),
    %% The other direction is not affected.
    carried(Server, Client, <<"well">>),
    %% The relay continues when the side reads.
    _ = recv_exactly(Server, Sent),
    carried(Server, Client, <<"and again">>),
    reset(Client),
    {weir_relay, Relay, {error, econnreset}, _} = next_message().

%% With kernel buffers of fixed size.
small_pair(Config) ->
    Small = [{recbuf, 65536}, {sndbuf, 65536}],
    socket_pair(Config, [binary, {active, false}, {nodelay, true} | Small], [{exit_on_close, false} | Small]).

pipes_are_given_back(Config) ->
    {Relay, Client, Server} = relay(Config),
    Before = weir_test_peer:descriptors(),
    Data = rand:bytes(20_000_000),
    Sender = async(fun() -> gen_tcp:send(Client, Data) end),
    ?assertEqual(Data, recv_exactly(Server, 20_000_000)),
    ok = await(Sender),
    [carried(Client, Server, <<"small">>) || _ <- lists:seq(1, 50)],
    wait_until(fun() -> weir_test_peer:descriptors() =< Before end),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% Timeouts --------------------------------------------------------------------

idle_timeout(Config) ->
    {Relay, Client, Server} = relay(Config, #{idle_timeout => ?SOON, half_close_timeout => ?LATER}),
    #{duration_us := Duration} = ended(Relay, {error, timeout}),
    ?assert(Duration >= ?SOON * 1000),
    ?assertEqual([closed, closed], [end_of(Client), end_of(Server)]).

%% Traffic continues until the timeout would have expired twice. On a busy machine it may pause so long that the relay
%% ends earlier: then it really was idle for that long.
traffic_puts_the_idle_timeout_off(Config) ->
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 3 * ?SOON}),
    chat_until(erlang:monotonic_time(millisecond) + 6 * ?SOON, Server, Client),
    #{duration_us := Duration, idle_us := Idle} = ended(Relay, {error, timeout}),
    ?assert(Idle >= 3 * ?SOON * 1000, {Idle, Duration}),
    ?assert(Duration > Idle, {Idle, Duration}).

chat_until(End, From, To) ->
    _ = gen_tcp:send(From, <<"I am there">>),
    case gen_tcp:recv(To, 10, patience()) of
        {ok, <<"I am there">>} -> erlang:monotonic_time(millisecond) < End andalso chat_until(End, From, To);
        {error, closed} -> false
    end.

half_close_timeout(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => ?SOON}),
    carried(Client, Server, <<"x">>),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual(closed, is_closed(Server)),
    #{duration_us := Duration} = ended(Relay, {error, timeout}),
    ?assert(Duration >= ?SOON * 1000),
    ?assertEqual(closed, end_of(Client)).

half_close_timeout_is_for_half_closes(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => 1}),
    {Other, _, _} = relay(Config, #{idle_timeout => ?SOON}),
    %% The same timer process has checked both.
    ended(Other, {error, timeout}),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% A timer would be kept for the whole timeout, however short the relay is.
a_long_timeout_has_no_timer(Config) ->
    Timer = whereis(weir_relay_timer),
    1 = erlang:trace(Timer, true, ['receive']),
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 3600_000, half_close_timeout => 60_000}),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    %% The timer process also checks periodically, so the trace may have other messages.
    receive {weir_relay, Relay, closed, _} -> ok after patience() -> ct:fail(no_end) end,
    %% After this call all earlier messages are traced.
    _ = gen_server:call(Timer, anything, patience()),
    Traced = traced(Timer),
    1 = erlang:trace(Timer, false, ['receive']),
    ?assertEqual([], [Message || {trace, Of, 'receive', Message = {weir_relay, _, _}} <- Traced, Of =:= Timer]).

traced(Pid) ->
    Delivered = erlang:trace_delivered(Pid),
    receive
        {trace_delivered, Pid, Delivered} -> weir_test_wait:messages()
    after patience() -> ct:fail(not_delivered)
    end.

%% A timeout that is too long for a timer at the start gets one when a check finds that the rest is short.
a_long_timeout_gets_a_timer(Config) ->
    Timer = whereis(weir_relay_timer),
    _ = erlang:trace_pattern({erlang, send_after, 3}, true, []),
    1 = erlang:trace(Timer, true, [call]),
    {Relay = {weir_relay, Number}, _Client, _Server} = relay(Config, #{idle_timeout => 10_000 + ?SOON}),
    try
        [Time] = ?waitMatch([_], timers_after(look, Timer, Number)),
        ?assert(Time > 0 andalso Time =< 10_000, Time),
        %% Now it has one. If it fires too early, it is set again.
        ?assertEqual([], timers_after(look, Timer, Number)),
        ?assertMatch([_], timers_after({look, Number}, Timer, Number))
    after
        _ = erlang:trace(Timer, false, [call]),
        _ = erlang:trace_pattern({erlang, send_after, 3}, false, []),
        _ = traced(Timer)
    end,
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% The milliseconds of the timers that the timer process sets for a relay when it gets a message.
timers_after(Message, Timer, Number) ->
    Timer ! Message,
    _ = gen_server:call(Timer, anything, patience()),
    [Time || {trace, _, call, {erlang, send_after, [Time, _, {look, Of}]}} <- traced(Timer), Of =:= Number].

the_timer_is_killed(Config) ->
    {Relay, _Client, _Server} = relay(Config, #{idle_timeout => 5 * ?SOON}),
    exit(whereis(weir_relay_timer), kill),
    ended(Relay, {error, timeout}).

%% Refusals --------------------------------------------------------------------

sockets_of_others(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    Other = async(fun() -> ok end),
    ok = gen_tcp:controlling_process(B, pid(Other)),
    ?assertEqual({error, {B, not_owner}}, weir:relay(A, B)),
    ?assertEqual({error, {B, not_owner}}, weir:relay(B, A)).

sockets_that_are_closed(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    {C, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(B),
    ?assertEqual({error, {B, closed}}, weir:relay(A, B)),
    ?assertEqual({error, {B, closed}}, weir:relay(B, A)),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, patience())),
    ?assertEqual({error, {C, enotconn}}, weir:relay(A, C)).

sockets_that_listen(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {Listener, _Port} = weir_test_peer:listen(Config, []),
    ?assertEqual({error, {Listener, enotconn}}, weir:relay(A, Listener)).

sockets_that_are_none(Config) ->
    {A, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertMatch({error, {bad_socket, Peer, _}}, weir:relay(A, Peer)),
    ?assertMatch({error, {bad_socket, Peer, _}}, weir:relay(Peer, A)),
    ?assertMatch({error, {bad_socket, A, _}}, weir:relay(A, A)),
    ?assertMatch({error, {bad_socket, {sslsocket, x, y}, _}}, weir:relay(A, {sslsocket, x, y})),
    Forged = {'$inet', weir_tcp, 16#ffffff},
    ?assertMatch({error, {bad_socket, Forged, _}}, weir:relay(A, Forged)),
    ?assertMatch({error, {bad_socket, Forged, _}}, weir:relay(Forged, A)),
    %% The valid socket is unchanged.
    ok = gen_tcp:send(Peer, <<"here">>),
    ?assertEqual({ok, <<"here">>}, gen_tcp:recv(A, 4, patience())).

options_that_are_wrong(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir:relay(A, B, #{Name => Value}))
     || {Name, Value} <- [
            {prefix, prefix},
            {prefix, [300]},
            {buffer, 0},
            {buffer, 1048577},
            {splice, always},
            {idle_timeout, 0},
            {idle_timeout, 1.5},
            {half_close_timeout, never},
            {half_close_timeout, 16#100000000},
            {detached, yes},
            {owner, owner},
            {latency, latency},
            {latency, {weir_latency, make_ref()}},
            {frob, 1}
        ]
    ].

refused_sockets_are_as_they_were(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    {C, _} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(C),
    ok = gen_tcp:unrecv(A, <<"put back, ">>),
    {error, {C, closed}} = weir:relay(A, C, #{prefix => <<"prefix">>}),
    ok = gen_tcp:send(Client, <<"sent">>),
    ?assertEqual(<<"put back, ">>, recv_exactly(A, 10)),
    ?assertEqual(<<"sent">>, recv_exactly(A, 4)),
    {ok, Relay} = weir:relay(A, B),
    carried(Client, Server, <<"there">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

relays_that_are_none(_Config) ->
    Never = {weir_relay, 16#ffffff},
    ?assertError(badarg, weir:relay_info(Never)),
    ?assertError(badarg, weir:stop_relay(Never)),
    ?assertError(function_clause, weir:stop_relay(17)).
