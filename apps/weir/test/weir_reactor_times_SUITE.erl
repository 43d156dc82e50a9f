%% Durations of reactor callbacks, compared with their programmed delays.
-module(weir_reactor_times_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_exactly/2]).
-import(reactor_probe, [start/1, start/3, stop/1, told/1, exchange/2]).

-include("reactor_suite.hrl").

%% Milliseconds that a callback waits.
-define(DELAY, 3).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        all_are_counted,
        messages_are_counted,
        ticks_are_counted,
        those_of_known_length,
        nothing_is_measured_unasked,
        on_and_off_with_its_listener,
        one_that_is_in_a_callback,
        the_dead_are_not_told
    ].

mine(Reactor) -> [Summary || #{reactor := Same} = Summary <- weir:reactors(), Same =:= Reactor].

slow() -> #{data => fun(_Socket, Data, State) -> timer:sleep(?DELAY), {send, Data, State} end}.

%% A batch is counted after its callbacks have returned and before their answers are sent.
all_are_counted(_Config) ->
    {Reactor, Port} = start(slow()),
    Peer = connect_raw(Port),
    [exchange(Peer, "x") || _ <- lists:seq(1, 20)],
    [#{module := reactor_probe, pollset := Pollset, scheduler := _, callbacks := Callbacks, callback_ns := Ns}] = mine(
        Reactor
    ),
    %% Accepting the connection was an event, too.
    ?assertEqual(21, Callbacks),
    ?assert(Ns >= 20 * ?DELAY * 1_000_000),
    ?assertMatch({ok, #{pollset := Pollset, callbacks := Callbacks, callback_ns := Ns}}, weir_reactor:info(Reactor)),
    stop(Reactor).

%% Messages are not part of a batch.
messages_are_counted(_Config) ->
    {Reactor, Port} = start(#{info => fun(_Message, State) -> timer:sleep(?DELAY), {ok, State} end}),
    Peer = connect_raw(Port),
    exchange(Peer, "x"),
    {init, Socket} = told(init),
    [#{callbacks := Before, callback_ns := NsBefore}] = mine(Reactor),
    [ok = weir_reactor:send(Socket, Number) || Number <- lists:seq(1, 5)],
    wait_until(fun() -> [#{callbacks := Now}] = mine(Reactor), Now =:= Before + 5 end),
    [#{callback_ns := Ns}] = mine(Reactor),
    ?assert(Ns - NsBefore >= 5 * ?DELAY * 1_000_000),
    stop(Reactor).

ticks_are_counted(_Config) ->
    {Reactor, Port} = start(#{tick => fun(_Socket, State) -> timer:sleep(?DELAY), {ok, State} end}, [], #{tick => 20}),
    Peer = connect_raw(Port),
    exchange(Peer, "x"),
    %% The connection and its bytes are two callbacks.
    wait_until(fun() -> [#{callbacks := Now}] = mine(Reactor), Now >= 5 end),
    [#{callbacks := Callbacks, callback_ns := Ns}] = mine(Reactor),
    ?assert(Ns >= (Callbacks - 3) * ?DELAY * 1_000_000, {Ns, Callbacks}),
    stop(Reactor).

%% One batch in sixteen is measured; each request is a batch. No time is shorter than the delay or longer than the
%% total.
those_of_known_length(_Config) ->
    {Reactor, Port} = start(slow(), [], #{measure => true}),
    Peer = connect_raw(Port),
    [exchange(Peer, "x") || _ <- lists:seq(1, 64)],
    [#{measured := true, times := Times, callback_ns := All}] = mine(Reactor),
    Count = lists:sum([Some || {_, Some} <- Times]),
    ?assert(Count >= 3 andalso Count =< 5, Times),
    [?assert(Time >= ?DELAY * 1_000_000 * 15 div 16 andalso Time =< All) || {Time, _} <- Times],
    stop(Reactor).

nothing_is_measured_unasked(_Config) ->
    {Reactor, Port} = start(#{}, [], #{}),
    Peer = connect_raw(Port),
    [exchange(Peer, "x") || _ <- lists:seq(1, 64)],
    ?assertMatch([#{measured := false, times := []}], mine(Reactor)),
    stop(Reactor).

%% Measured times are kept.
on_and_off_with_its_listener(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => loopback}, weir_listener_reactor, args),
    Measured = fun() -> [Is || #{module := weir_listener_reactor, measured := Is} <- weir:reactors()] end,
    Seen = fun() ->
        lists:sum([Count || #{module := weir_listener_reactor, times := Times} <- weir:reactors(), {_, Count} <- Times])
    end,
    wait_until(fun() -> length(Measured()) =:= erlang:system_info(schedulers) end),
    ?assertEqual([false], lists:usort(Measured())),
    ok = weir:set_options(?MODULE, #{measure => true}),
    wait_until(fun() -> lists:usort(Measured()) =:= [true] end),
    Peer = connect_raw(weir:get_port(?MODULE)),
    [exchange(Peer, "x") || _ <- lists:seq(1, 64)],
    Before = Seen(),
    ?assert(Before >= 3),
    ok = weir:set_options(?MODULE, #{measure => false}),
    wait_until(fun() -> lists:usort(Measured()) =:= [false] end),
    [exchange(Peer, "x") || _ <- lists:seq(1, 64)],
    ?assertEqual(Before, Seen()),
    ?assertMatch(
        {error, {bad_option, reactor, {measure, true}, _}},
        weir:start_listener(other, #{reactor => #{measure => true}}, weir_listener_reactor, args)
    ),
    ok = weir:stop_listener(?MODULE).

%% The figures are read without a call to the reactor.
one_that_is_in_a_callback(_Config) ->
    Self = self(),
    {Reactor, Port} = start(#{data => fun
        (_Socket, <<"x">>, State) -> Self ! in, receive go_on -> {send, <<"x">>, State} end;
        (_Socket, Data, State) -> {send, Data, State}
    end}),
    Peer = connect_raw(Port),
    %% Accepting it is counted with the bytes that arrive in the same batch.
    exchange(Peer, "first"),
    ok = gen_tcp:send(Peer, "x"),
    receive in -> ok after patience() -> ct:fail(not_called) end,
    ?assertMatch([#{callbacks := 2}], mine(Reactor)),
    Reactor ! go_on,
    ?assertEqual(<<"x">>, recv_exactly(Peer, 1)),
    wait_until(fun() -> [#{callbacks := Callbacks}] = mine(Reactor), Callbacks =:= 3 end),
    stop(Reactor).

the_dead_are_not_told(_Config) ->
    [{Killed, _}, {Stopped, _}] = [start(#{}), start(#{})],
    ?assertMatch([[_], [_]], [mine(Killed), mine(Stopped)]),
    ok = reactor_probe:kill_reactor(Killed),
    stop(Stopped),
    ?assertEqual([[], []], [mine(Killed), mine(Stopped)]),
    %% Nor listed twice, after another reactor has got the pollset.
    {Next, _} = start(#{}),
    ?assertMatch([_], mine(Next)),
    Pollsets = [Pollset || #{pollset := Pollset} <- weir:reactors()],
    ?assertEqual(lists:usort(Pollsets), lists:sort(Pollsets)),
    stop(Next).
