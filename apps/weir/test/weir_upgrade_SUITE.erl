%% New code in a running node: the same native library loaded again, and another one, while connections are in use.
%%
%% Each case runs on its own node.
-module(weir_upgrade_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [connect_raw/1, socket_pair/2]).
-import(weir_test_wait, [recv_exactly/2, wait_until/1, next_message/0, patience/0]).
-import(weir_test_streams, [start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_upgrade_test, [copy/2, libraries/0, load/1, use_copy/1]).

-define(MODES, [passive, once, true, 10]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, library}].

groups() ->
    [
        {library, [], [
            loaded_after_a_purge,
            loaded_again_and_again,
            monitors_outlive_a_load,
            listeners_outlive_a_purge,
            taken_over_by_another_file,
            another_file_in_its_place,
            of_another_layout_is_refused,
            purged_and_of_another_layout
        ]}
    ].

init_per_testcase(Case, Config) ->
    weir_upgrade_test:init_case(Case, Config).

end_per_testcase(_Case, _Config) ->
    ok.

echo({Socket, Peer}) ->
    Data = integer_to_binary(erlang:unique_integer()),
    ok = gen_tcp:send(Peer, Data),
    ?assertEqual({tcp, Socket, Data}, next_message()),
    ok = gen_tcp:send(Socket, Data),
    ?assertEqual(Data, recv_exactly(Peer, byte_size(Data))).

%% A call of a deleted module loads it, and pollers and owners may call at any time. Other processes must not load it
%% with code:load_file/1: the code server of OTP 25 does not answer that while -on_load runs for another process.
delete_and_load() ->
    _ = code:purge(weir_nif),
    true = code:delete(weir_nif),
    _ = code:purge(weir_nif),
    code:ensure_loaded(weir_nif).

%%% The library.

loaded_after_a_purge(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_after_purge, Config).

load_after_purge(Config) ->
    Pair = socket_pair(Config, [binary, {active, true}]),
    lists:foreach(
        fun(_) ->
            {module, weir_nif} = delete_and_load(),
            ?assert(weir_nif:available()),
            echo(Pair),
            echo(socket_pair(Config, [binary, {active, true}]))
        end,
        lists:seq(1, 3)
    ).

loaded_again_and_again(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_again, Config).

load_again(Config) ->
    {_, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, length(?MODES)),
    lists:foreach(
        fun(_) ->
            {module, weir_nif} = load(weir_nif),
            assert_streams_go_on(Streams)
        end,
        lists:seq(1, 5)
    ),
    stop_streams(Streams).

%% Objects that monitor processes call the new library.
monitors_outlive_a_load(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_below_monitors, Config).

load_below_monitors(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    {Joined, _} = socket_pair(Config, [binary, {active, false}]),
    {Left, Other} = socket_pair(Config, [binary, {active, false}]),
    {Right, _} = socket_pair(Config, [binary, {active, false}]),
    Reference = inet:monitor(Socket),
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Group} = weir_group:new(#{}),
        ok = weir_group:join(Group, Joined),
        receive
            {relay, L, R} -> Self ! weir:relay(L, R)
        end,
        Self ! {group, Group},
        receive
            never -> ok
        end
    end),
    [ok = gen_tcp:controlling_process(S, Owner) || S <- [Socket, Left, Right]],
    Owner ! {relay, Left, Right},
    {ok, Relay} = next_message(),
    {group, Group} = next_message(),
    {module, weir_nif} = load(weir_nif),
    {module, weir_nif} = load(weir_nif),
    exit(Owner, kill),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, patience())),
    ?assertEqual({'DOWN', Reference, socket, Socket, normal}, next_message()),
    ?assertEqual({error, closed}, gen_tcp:recv(Other, 0, patience())),
    wait_until(fun() -> {weir:relay_info(Relay), weir_group:info(Group)} =:= {{error, closed}, {error, closed}} end).

listeners_outlive_a_purge(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_below_gates, Config).

load_below_gates(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listener} = weir:start_listener(echo, #{port => 0}, fun weir_upgrade_test:echo_all/2, []),
    First = connect_raw(weir:get_port(echo)),
    lists:foreach(
        fun(Load) ->
            {module, weir_nif} = Load(),
            Next = connect_raw(weir:get_port(echo)),
            [
                begin
                    ok = gen_tcp:send(Peer, <<"hello">>),
                    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Peer, 5, patience()))
                end
             || Peer <- [First, Next]
            ]
        end,
        [fun delete_and_load/0, fun() -> load(weir_nif) end, fun delete_and_load/0]
    ),
    ?assertMatch(#{connections := 4, pid := Listener}, weir:info(echo)).

%% As in a release upgrade: another directory, another file.
taken_over_by_another_file(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_another_file, Config).

load_another_file(Config) ->
    {_, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, length(?MODES)),
    Pair = socket_pair(Config, [binary, {active, true}]),
    lists:foreach(
        fun(Number) ->
            ok = use_copy(copy(Config, integer_to_list(Number))),
            {module, weir_nif} = load(weir_nif),
            ?assertEqual(Number, libraries() - 1),
            echo(Pair),
            echo(socket_pair(Config, [binary, {active, true}])),
            assert_streams_go_on(Streams)
        end,
        [1, 2]
    ),
    %% Back to the first library.
    stop_streams(Streams),
    {module, weir_nif} = delete_and_load(),
    echo(Pair).

%% The file is replaced in place, as a build does.
another_file_in_its_place(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_replaced_file, Config).

load_replaced_file(Config) ->
    Copy = copy(Config, "replaced"),
    ok = use_copy(Copy),
    Pair = socket_pair(Config, [binary, {active, true}]),
    Library = filename:join([Copy, "priv", "weir_nif.so"]),
    {ok, _} = file:copy(Library, Library ++ ".new"),
    ok = file:rename(Library ++ ".new", Library),
    {module, weir_nif} = load(weir_nif),
    ?assertEqual(2, libraries()),
    echo(Pair).

of_another_layout_is_refused(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_another_layout, Config).

load_another_layout(Config) ->
    Pair = socket_pair(Config, [binary, {active, true}]),
    ok = use_copy(of_another_layout(copy(Config, "other"))),
    ?assertEqual({error, on_load_failure}, load(weir_nif)),
    ?assert(weir_nif:available()),
    echo(Pair),
    echo(socket_pair(Config, [binary, {active, true}])).

%% No connection can continue, and the error says why.
purged_and_of_another_layout(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_another_layout_after_purge, Config).

load_another_layout_after_purge(Config) ->
    {Socket, _} = Pair = socket_pair(Config, [binary, {active, true}]),
    Original = filename:dirname(code:which(weir_nif)),
    ok = use_copy(of_another_layout(copy(Config, "other"))),
    ok = sys:suspend(weir_pollsets),
    {module, weir_nif} = delete_and_load(),
    ?assertEqual(false, weir_nif:available()),
    ?assertMatch({load, "open sockets" ++ _}, weir_native:load_error()),
    %% With the library that has them, the sockets are back.
    true = code:replace_path(weir, Original),
    {module, weir_nif} = load(weir_nif),
    ok = sys:resume(weir_pollsets),
    ?assertEqual([Socket], [S || S <- weir:sockets(), S =:= Socket]),
    echo(Pair).

of_another_layout(Copy) ->
    Library = filename:join([Copy, "priv", "weir_nif.so"]),
    {ok, Bytes} = file:read_file(Library),
    Word = <<"weir types ">>,
    [{At, _}] = binary:matches(Bytes, Word),
    Start = At + byte_size(Word),
    <<Before:Start/binary, First, After/binary>> = Bytes,
    ok = file:write_file(Library, <<Before/binary, (First bxor 1), After/binary>>),
    Copy.
