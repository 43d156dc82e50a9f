%% 1,000 and 4,000 connections at a time (16,000 descriptors in this node), every byte of them compared, while the configuration changes fifty times
%% and servers die.
-module(weir_proxy_storm_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [a_thousand_connections, four_thousand_connections].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_proxy),
    Config.

end_per_suite(_Config) ->
    ok = application:stop(weir_proxy).

a_thousand_connections(_Config) -> weir_proxy_storm:run(1000, 50).

four_thousand_connections(_Config) -> weir_proxy_storm:run(4000, 10).
