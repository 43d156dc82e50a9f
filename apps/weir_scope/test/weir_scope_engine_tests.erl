%% Differences of two readings of Weir.
-module(weir_scope_engine_tests).

-include_lib("eunit/include/eunit.hrl").

reading(Pollset, Listener) ->
    #{
        pollsets => #{1025 => Pollset},
        listeners => #{web => Listener},
        reactors => #{},
        counts => #{},
        contention => #{sockets => 5},
        products => []
    }.

pollset(Number) ->
    Counters = [
        polls,
        events,
        empty_polls,
        sleeps,
        asleep_ns,
        polling_ns,
        between_ns,
        wakes_by_thread,
        wakes_by_process,
        contended,
        reads,
        read_bytes,
        writes,
        written_bytes,
        accepts,
        asked_away,
        moved_in
    ],
    maps:merge(maps:from_list([{Counter, Number} || Counter <- Counters]), #{
        sockets => 1, scheduler => undefined, events_log2 => [Number, 0]
    }).

listener(Number) -> #{connections => 2, accepted => Number, overload => Number, denied => Number}.

between(Before, After) ->
    weir_scope_engine:between(
        reading(pollset(Before), listener(Before)), reading(pollset(After), listener(After)), 1_000_000_000
    ).

a_second_test() ->
    #{
        pollsets := [#{times := 3.0, min := 0, max := 1, reads := 3.0, asked_away := 3.0, moved_in := 3.0}],
        listeners := [#{accepted := 3.0, connections := 2}]
    } = between(7, 10).

%% Counters that are smaller than before were restarted. Their present value is the difference.
begun_anew_test() ->
    #{pollsets := [#{times := 4.0, bytes_in := 4.0, max := 1}], listeners := [#{accepted := 4.0, denied := 4.0}]} =
        between(1000, 4).

reactors(Callbacks, Ns, Times) ->
    Reactor = #{
        pollset => 1025,
        module => echo,
        scheduler => 2,
        reactor => self(),
        callbacks => Callbacks,
        callback_ns => Ns,
        measured => Times =/= [],
        times => Times
    },
    (reading(pollset(0), listener(0)))#{reactors => #{{1025, self()} => Reactor}}.

%% Ten callbacks of 10 ms each in half a second.
callbacks_of_a_reactor_test() ->
    #{reactors := [Reactor]} = weir_scope_engine:between(
        reactors(5, 1_000_000, []), reactors(15, 101_000_000, []), 500_000_000
    ),
    ?assertEqual(
        #{
            pollset => 1025,
            module => echo,
            scheduler => 2,
            callbacks => 20.0,
            busy => 0.2,
            mean_us => 10_000.0,
            totals => #{callbacks => 15, callback_ns => 101_000_000}
        },
        Reactor
    ).

%% The figures are of the last second.
measured_callbacks_test() ->
    #{reactors := [#{latency := #{count := 3, med := 2.0, max := 4.0}}]} =
        weir_scope_engine:between(
            reactors(5, 0, [{1000, 7}, {2000, 1}]), reactors(15, 0, [{1000, 7}, {2000, 3}, {4000, 1}]), 1_000_000_000
        ).

%% Only servers that were in the reading before.
servers_of_a_proxy_test() ->
    Servers = fun(All) ->
        (reading(pollset(0), listener(0)))#{
            servers => maps:from_list([
                {{main, <<"web">>, Name}, #{replies => 9, reply_ns => 1, times => Times}}
             || {Name, Times} <- All
            ])
        }
    end,
    ?assertMatch(
        #{
            servers := [
                #{
                    proxy := main,
                    backend := <<"web">>,
                    server := <<"a">>,
                    totals := #{replies := 9},
                    latency := #{count := 3, med := 2.0}
                }
            ]
        },
        weir_scope_engine:between(
            Servers([{<<"a">>, [{1000, 7}, {2000, 1}]}]),
            Servers([{<<"a">>, [{1000, 7}, {2000, 4}]}, {<<"b">>, [{1000, 1}]}]),
            1_000_000_000
        )
    ).

%% A new reactor is left out at first. Another process with the same pollset is a new reactor.
a_new_reactor_test() ->
    Before = (reading(pollset(0), listener(0)))#{
        reactors => #{{1025, list_to_pid("<0.0.0>")} => #{callbacks => 9, callback_ns => 9}}
    },
    #{reactors := []} = weir_scope_engine:between(Before, reactors(1, 1, []), 1_000_000_000).
