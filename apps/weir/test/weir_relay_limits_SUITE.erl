%% Bounds of relays: memory of a side that never reads, timeouts, and what is refused.
-module(weir_relay_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, pid/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, recv_exactly/2]).
-import(weir_relay_test, [carried/3, end_of/1, ended/2, fill/1, is_closed/1, relay/1, relay/2]).

-include("relay_suite.hrl").

-define(PATIENCE, 10000).
%% A timeout that a case waits for, and one that it must not see.
-define(SOON, 100).
-define(LATER, 30000).

suite() ->
    [{timetrap, {seconds, 120}}].

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
            a_long_timeout_passes,
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
    {Relay, Client, Server} = relay(Config, Options),
    Sent = fill(Client),
    Taken = fun() -> {ok, #{a_to_b := #{bytes := Bytes}}} = weir:relay_info(Relay), Bytes end,
    wait_until(fun() -> Before = Taken(), timer:sleep(50), Taken() =:= Before end),
    %% Mostly in the buffers of the kernel, which are some megabytes each.
    ?assert(Taken() =< Sent + 65536),
    ?assert(Sent < 32_000_000),
    %% The other direction does not care.
    carried(Server, Client, <<"well">>),
    %% It goes on where it is read.
    _ = recv_exactly(Server, Sent),
    carried(Server, Client, <<"and again">>),
    reset(Client),
    {weir_relay, Relay, {error, econnreset}, _} = next_message().

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

traffic_puts_the_idle_timeout_off(Config) ->
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 3000}),
    [
        begin
            carried(Server, Client, <<"I am there">>),
            timer:sleep(350)
        end
     || _ <- lists:seq(1, 10)
    ],
    #{duration_us := Duration, idle_us := Idle} = ended(Relay, {error, timeout}),
    ?assert(Duration >= 6_000_000),
    ?assert(Idle >= 3_000_000).

half_close_timeout(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => ?SOON}),
    carried(Client, Server, <<"x">>),
    timer:sleep(2 * ?SOON),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual(closed, is_closed(Server)),
    #{duration_us := Duration} = ended(Relay, {error, timeout}),
    ?assert(Duration >= 3 * ?SOON * 1000),
    ?assertEqual(closed, end_of(Client)).

half_close_timeout_is_for_half_closes(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => ?SOON}),
    timer:sleep(5 * ?SOON),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% One would be kept for as long as the timeout, however short the relay is.
a_long_timeout_has_no_timer(Config) ->
    Timer = whereis(weir_relay_timer),
    1 = erlang:trace(Timer, true, ['receive']),
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 3600_000, half_close_timeout => 60_000}),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    %% The timer looks now and then, so that other messages of the trace may be there.
    receive {weir_relay, Relay, closed, _} -> ok after ?PATIENCE -> ct:fail(no_end) end,
    %% What it has got before is known by then.
    _ = gen_server:call(Timer, anything),
    Got = [Message || {trace, Of, 'receive', Message = {weir_relay, _, _}} <- flushed(), Of =:= Timer],
    1 = erlang:trace(Timer, false, ['receive']),
    ?assertEqual([], Got).

flushed() ->
    receive Message -> [Message | flushed()] after 0 -> [] end.

%% Longer than what has a timer from its beginning.
a_long_timeout_passes(Config) ->
    {Relay, _Client, _Server} = relay(Config, #{idle_timeout => 10_500}),
    receive
        {weir_relay, Relay, Result, #{duration_us := Duration}} ->
            ?assertEqual({error, timeout}, Result),
            ?assert(Duration >= 10_500_000)
    after 60_000 -> ct:fail(no_end)
    end.

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
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, ?PATIENCE)),
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
    %% What was good is as it was.
    ok = gen_tcp:send(Peer, <<"here">>),
    ?assertEqual({ok, <<"here">>}, gen_tcp:recv(A, 4, 5000)).

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
