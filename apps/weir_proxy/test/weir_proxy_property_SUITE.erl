%% The laws of balancers and of the parsers of first bytes, tried with random arguments.
-module(weir_proxy_property_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [schedule, ring_shares, ring_movement, bounded_load, least_connections, untried, hello_in_pieces, any_bytes, changed_hello].

schedule(_Config) -> holds(prop_proxy:prop_schedule(), 100).
ring_shares(_Config) -> holds(prop_proxy:prop_ring_shares(), 20).
ring_movement(_Config) -> holds(prop_proxy:prop_ring_movement(), 30).
bounded_load(_Config) -> holds(prop_proxy:prop_bounded_load(), 100).
least_connections(_Config) -> holds(prop_proxy:prop_least_connections(), 100).
untried(_Config) -> holds(prop_proxy:prop_untried(), 500).
hello_in_pieces(_Config) -> holds(prop_proxy:prop_hello_in_pieces(), 300).
any_bytes(_Config) -> holds(prop_proxy:prop_any_bytes(), 500).
changed_hello(_Config) -> holds(prop_proxy:prop_changed_hello(), 1000).

holds(Property, Times) ->
    case proper:quickcheck(Property, [{numtests, Times}, long_result, quiet, {on_output, fun ct:log/2}]) of
        true -> ok;
        Counterexample -> ct:fail({counterexample, Counterexample})
    end.
