%% Events of pollers, reactors, relays and groups.
-module(weir_event_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [a_poller_that_dies, a_reactor_from_start_to_end, a_relay_begins, relays_end, relays_fail, broadcasts].

init_per_suite(Config) ->
    ok = weir_test_peer:silence_pollers(),
    weir_test_peer:init_group(weir, Config).

end_per_suite(_Config) ->
    weir_test_peer:unsilence_pollers().

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    _ = weir_event:detach(?MODULE),
    weir_test_peer:end_case(Config).

attach(Events) ->
    ok = weir_event:attach_many(?MODULE, Events, {?MODULE, tell}, self()).

tell(Event, Measurements, Metadata, Pid) -> Pid ! {event, Event, Measurements, Metadata}.

%% Returns the next event with this name and metadata; others may occur meanwhile.
next(Event, About) ->
    receive
        {event, Event, Measurements, Metadata} ->
            case maps:with(maps:keys(About), Metadata) of
                About -> {Measurements, Metadata};
                _ -> next(Event, About)
            end
    after weir_test_wait:patience() -> ct:fail({missing, Event, About})
    end.

a_poller_that_dies(_Config) ->
    attach([[weir, poller, start], [weir, poller, stop]]),
    [#{poller := Old, pollset := Pollset} | _] = weir:pollsets(),
    exit(Old, kill),
    {#{duration := Duration}, #{reason := killed, pollset := Pollset}} = next([weir, poller, stop], #{poller => Old}),
    ?assert(Duration >= 0),
    {#{system_time := _}, #{poller := New}} = next([weir, poller, start], #{pollset => Pollset}),
    ?assertNotEqual(Old, New).

%% Several times: a reactor may get the pollset of an earlier one, but must report only its own figures.
a_reactor_from_start_to_end(Config) ->
    attach([[weir, reactor, start], [weir, reactor, stop]]),
    [one_reactor(Config) || _ <- lists:seq(1, 3)].

one_reactor(Config) ->
    {Listener, Port} = weir_test_peer:listen(Config, [binary, {ip, {127, 0, 0, 1}}]),
    {ok, Reactor} = weir_reactor:start_link(#{module => weir_event_echo, listen => Listener}),
    {#{monotonic_time := _}, Started} = next([weir, reactor, start], #{reactor => Reactor}),
    ?assertMatch(#{module := weir_event_echo, pollset := _, scheduler := _}, Started),
    Peer = weir_test_peer:connect_raw(Port),
    ok = gen_tcp:send(Peer, <<"hello">>),
    {ok, <<"hello">>} = gen_tcp:recv(Peer, 5, weir_test_wait:patience()),
    unlink(Reactor),
    Monitor = monitor(process, Reactor),
    exit(Reactor, shutdown),
    {Measured, #{reason := Reason}} = next([weir, reactor, stop], #{reactor => Reactor}),
    receive {'DOWN', Monitor, process, Reactor, _} -> ok end,
    ?assertEqual(shutdown, Reason),
    ?assertMatch(#{connections := 1, accepted := 1, read_bytes := 5, written_bytes := 5}, Measured),
    ?assert(maps:get(duration, Measured) > 0),
    %% Waits until its connection is closed, because only then the next reactor can use its pollset.
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, weir_test_wait:patience())).

a_relay_begins(Config) ->
    attach([[weir, relay, start]]),
    {A, PeerA} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {B, PeerB} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {ok, AddressA} = inet:sockname(PeerA),
    {ok, AddressB} = inet:sockname(PeerB),
    {ok, Relay} = weir:relay(A, B),
    {#{monotonic_time := _}, About} = next([weir, relay, start], #{relay => Relay}),
    ?assertEqual(#{relay => Relay, owner => self(), peer_a => AddressA, peer_b => AddressB}, About).

relays_end(Config) ->
    attach([[weir, relay, stop]]),
    {A, PeerA} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {B, PeerB} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {ok, AddressA} = inet:sockname(PeerA),
    {ok, AddressB} = inet:sockname(PeerB),
    {ok, Relay} = weir:relay(A, B),
    ok = gen_tcp:send(PeerA, <<"hello">>),
    {ok, <<"hello">>} = gen_tcp:recv(PeerB, 5),
    ok = gen_tcp:send(PeerB, <<"hi">>),
    {ok, <<"hi">>} = gen_tcp:recv(PeerA, 2),
    ok = gen_tcp:close(PeerA),
    ok = gen_tcp:close(PeerB),
    {Measurements, About} = next([weir, relay, stop], #{relay => Relay}),
    #{monotonic_time := _, duration := Duration, a_to_b_bytes := 5, b_to_a_bytes := 2} = Measurements,
    ?assert(is_integer(Duration) andalso Duration > 0),
    ?assertEqual(
        #{relay => Relay, owner => self(), peer_a => AddressA, peer_b => AddressB, reason => normal}, About
    ).

%% A timeout ends a detached relay, which has no owner.
relays_fail(Config) ->
    attach([[weir, relay, stop]]),
    {A, PeerA} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {B, PeerB} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {ok, Relay} = weir:relay(A, B, #{idle_timeout => 1, detached => true}),
    {#{a_to_b_bytes := 0}, #{reason := timeout}} = next([weir, relay, stop], #{relay => Relay}),
    [ok = gen_tcp:close(Peer) || Peer <- [PeerA, PeerB]].

broadcasts(_Config) ->
    attach([[weir, group, broadcast]]),
    {ok, Group} = weir_group:new(#{}),
    {ok, 0} = weir_group:broadcast(Group, "hello"),
    ?assertEqual(
        {#{members => 0, bytes => 5}, #{group => Group, result => ok}},
        next([weir, group, broadcast], #{group => Group})
    ),
    ok = weir_group:delete(Group),
    {error, closed} = weir_group:broadcast(Group, "hello"),
    {#{members := 0}, #{result := {error, closed}}} = next([weir, group, broadcast], #{group => Group}).
