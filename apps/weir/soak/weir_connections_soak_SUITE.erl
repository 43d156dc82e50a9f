%% A hundred thousand connections at once, on as many nodes as the limit of descriptors asks for; WEIR_SOAK_CONNECTIONS
%% in the environment makes it fewer or more. Everything goes back to zero, and an idle connection of a reactor costs
%% its server a kibibyte of memory at most.
-module(weir_connections_soak_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(CONNECTIONS, 100000).

%% Below this what a virtual machine takes and gives back by itself is larger than what is measured.
-define(MEASURABLE, 50000).

-define(SETTLED_MS, 3000).

%% What one round after the other may grow by.
-define(GROWTH, 1.1).

suite() ->
    [{timetrap, {minutes, 30}}].

all() ->
    [opened_idle_used_and_closed].

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case([{backend, []} | Config]).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

%% Again and again: each round uses the memory of the one before.
opened_idle_used_and_closed(_Config) ->
    Connections = connections(),
    Fleet = weir_test_fleet:start(Connections),
    Rounds = [First | _] = [weir_test_fleet:round(Fleet, ?SETTLED_MS) || _ <- [1, 2, 3]],
    weir_test_fleet:stop(Fleet),
    ct:pal("~p", [Rounds]),
    #{bytes_per_connection := Bytes} = First,
    [_, Second, Third] = [Resident || #{resident := Resident} <- Rounds],
    Connections >= ?MEASURABLE andalso
        begin
            ?assert(Bytes =< 1024, Bytes),
            ?assert(Third =< Second * ?GROWTH, {Third, Second})
        end,
    {comment, io_lib:format("~b connections, ~b bytes of memory for each", [Connections, round(Bytes)])}.

connections() ->
    list_to_integer(os:getenv("WEIR_SOAK_CONNECTIONS", integer_to_list(?CONNECTIONS))).
