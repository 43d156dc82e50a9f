%% Properties, tested with random cases.
-module(weir_property_SUITE).

-import(weir_test_property, [check/2]).

-compile([export_all, nowarn_export_all]).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [active_counts, send_queue, delivery, packets, relays, groups_of_members, proxy_headers, reactors].

init_per_suite(Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

active_counts(_Config) ->
    check(prop_active:prop_active(), 300).

send_queue(_Config) ->
    check(prop_send_queue:prop_send_queue(), 300).

delivery(_Config) ->
    check(prop_delivery:prop_delivery(), 100).

packets(_Config) ->
    check(prop_packet:prop_packet(), 1000).

relays(_Config) ->
    check(prop_relay:prop_relay(), 150).

groups_of_members(_Config) ->
    check(prop_group:prop_group(), 150).

proxy_headers(_Config) ->
    check(prop_proxy_header:prop_proxy_header(), 1000),
    check(prop_proxy_header:prop_nonsense(), 1000).

reactors(_Config) ->
    prop_reactor:quietly(fun() ->
        check(prop_reactor:prop_echo(), 50),
        check(prop_reactor:prop_packets(), 50)
    end).
