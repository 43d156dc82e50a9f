%% Opens two thousand connections at once and checks that nothing is left of them. `make soak' does it with a hundred
%% thousand.
-module(weir_connections_SUITE).

-compile([export_all, nowarn_export_all]).

-define(CONNECTIONS, 2000).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [opened_idle_used_and_closed].

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case([{backend, []} | Config]).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

%% Too few connections to check their memory. The second round excludes what the first allocates permanently.
opened_idle_used_and_closed(_Config) ->
    Fleet = weir_test_fleet:start(?CONNECTIONS),
    [io:format("~p~n", [weir_test_fleet:round(Fleet, 0)]) || _ <- [1, 2]],
    weir_test_fleet:stop(Fleet).
