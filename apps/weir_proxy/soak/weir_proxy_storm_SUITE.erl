%% 1,000 and 4,000 connections at a time (16,000 descriptors in this node) with every byte compared, while the
%% configuration changes 50 times and servers die. Then random faults (weir_proxy_explorer): five minutes without and
%% five with killed processes. Run it also with ERL_FLAGS="+S 8:8".
-module(weir_proxy_storm_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 20}}].

all() ->
    [
        a_thousand_connections,
        four_thousand_connections,
        everybody_is_served_whatever_changes,
        everybody_is_served_or_told_whatever_is_killed
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_proxy),
    Config.

end_per_suite(_Config) ->
    ok = application:stop(weir_proxy).

a_thousand_connections(_Config) -> weir_proxy_storm:run(1000, 50).

four_thousand_connections(_Config) -> weir_proxy_storm:run(4000, 10).

everybody_is_served_whatever_changes(_Config) -> weir_proxy_explorer:run(gentle, rand:uniform(1_000_000), 300_000).

everybody_is_served_or_told_whatever_is_killed(_Config) ->
    weir_proxy_explorer:run(rough, rand:uniform(1_000_000), 300_000).
