%% What Weir did between two readings.
-module(weir_scope_engine_tests).

-include_lib("eunit/include/eunit.hrl").

reading(Pollset, Listener) -> #{pollsets => #{1025 => Pollset}, listeners => #{web => Listener}, counts => #{}, products => []}.

pollset(Number) ->
    Counters = [polls, events, empty_polls, sleeps, asleep_ns, polling_ns, between_ns, wakes_by_thread, wakes_by_process, reads, read_bytes, writes, written_bytes, accepts],
    maps:merge(maps:from_list([{Counter, Number} || Counter <- Counters]), #{sockets => 1, scheduler => undefined, events_log2 => [Number, 0]}).

listener(Number) -> #{connections => 2, accepted => Number, overload => Number, denied => Number}.

between(Before, After) -> weir_scope_engine:between(reading(pollset(Before), listener(Before)), reading(pollset(After), listener(After)), 1_000_000_000).

a_second_test() ->
    #{pollsets := [#{times := 3.0, min := 0, max := 1, reads := 3.0}], listeners := [#{accepted := 3.0, connections := 2}]} = between(7, 10).

%% Its counters are less than they were: it has begun anew, and what it has counted since is what has happened.
begun_anew_test() ->
    #{pollsets := [#{times := 4.0, bytes_in := 4.0, max := 1}], listeners := [#{accepted := 4.0, denied := 4.0}]} = between(1000, 4).
