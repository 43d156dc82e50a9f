%% Relays: how they end, and what is left of their sockets.
-module(weir_relay_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [wait_until/1, assert_no_message/0, recv_all/1, patience/0]).
-import(weir_relay_test, [carried/3, drain/1, end_of/1, ended/2, fill/2, owned_relay/2, relay/1, relay/2]).

-include("relay_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, endings}].

groups() ->
    [
        {endings, [], [
            reset_passes_as_reset,
            it_is_told_who_has_ended_first,
            reset_of_a_side_that_is_not_read,
            stopped_by_anybody,
            stopped_with_bytes_that_wait,
            ends_with_its_owner,
            detached_outlives_its_owner,
            another_process_owns_it,
            a_dead_owner_connects_nowhere,
            an_owner_of_an_earlier_life,
            linger_is_not_waited_for
        ]}
    ].

%% Endings ---------------------------------------------------------------------

reset_passes_as_reset(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config),
            carried(Client, Server, <<"x">>),
            {Resets, Other} =
                case Side of
                    a -> {Client, Server};
                    b -> {Server, Client}
                end,
            reset(Resets),
            ?assertEqual(econnreset, end_of(Other)),
            #{failed := Failed} = ended(Relay, {error, econnreset}),
            ?assertEqual(Side, Failed)
        end
     || Side <- [a, b]
    ].

it_is_told_who_has_ended_first(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config),
            {ok, #{ended_first := undefined}} = weir:relay_info(Relay),
            {First, Second} = case Side of a -> {Client, Server}; b -> {Server, Client} end,
            ok = gen_tcp:shutdown(First, write),
            ?assertEqual(closed, end_of(Second)),
            wait_until(fun() -> {ok, #{ended_first := Ended}} = weir:relay_info(Relay), Ended =:= Side end),
            ok = gen_tcp:close(Second),
            ?assertMatch(#{ended_first := Side, failed := undefined}, ended(Relay, closed))
        end
     || Side <- [a, b]
    ].

%% The relay does not read from the client while the server does not read.
reset_of_a_side_that_is_not_read(Config) ->
    {Relay, Client, Server} = relay(Config),
    _ = fill(Relay, Client),
    reset(Client),
    #{failed := a} = ended(Relay, {error, econnreset}),
    _ = drain(Server).

stopped_by_anybody(Config) ->
    {Relay, Client, Server} = relay(Config),
    carried(Client, Server, <<"x">>),
    ok = await(async(fun() -> weir:stop_relay(Relay) end)),
    ?assertEqual([closed, closed], [end_of(Client), end_of(Server)]),
    ended(Relay, closed),
    ok = weir:stop_relay(Relay),
    assert_no_message().

%% A receiver that could mistake a part for the whole is reset.
stopped_with_bytes_that_wait(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => Splice}),
            _ = fill(Relay, Client),
            ok = weir:stop_relay(Relay),
            ok = inet:setopts(Server, [{show_econnreset, true}]),
            ?assertEqual(econnreset, drain(Server)),
            ended(Relay, closed)
        end
     || Splice <- [true, false]
    ].

ends_with_its_owner(Config) ->
    {Owner, _Relay, Client, Server} = owned_relay(Config, #{}),
    carried(Client, Server, <<"x">>),
    kill(Owner),
    ?assertEqual([closed, closed], [end_of(Client), end_of(Server)]).

detached_outlives_its_owner(Config) ->
    {Owner, Relay, Client, Server} = owned_relay(Config, #{detached => true}),
    kill(Owner),
    carried(Client, Server, <<"still">>),
    carried(Server, Client, <<"there">>),
    ok = gen_tcp:close(Client),
    ok = gen_tcp:close(Server),
    wait_until(fun() -> weir:relay_info(Relay) =:= {error, closed} end).

another_process_owns_it(Config) ->
    Test = self(),
    {Maker, Relay, Client, _Server} = owned_relay(Config, #{owner => Test}),
    ?assertMatch({ok, #{owner := Test}}, weir:relay_info(Relay)),
    kill(Maker),
    ?assertMatch({ok, _}, weir:relay_info(Relay)),
    ok = reset(Client),
    ended(Relay, {error, econnreset}),
    Owner = async(fun() -> receive never -> ok end end),
    {_, Other, _, _} = owned_relay(Config, #{owner => pid(Owner)}),
    kill(Owner),
    wait_until(fun() -> weir:relay_info(Other) =:= {error, closed} end),
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({error, esrch}, weir:relay(A, B, #{owner => pid(Owner)})),
    {ok, Detached} = weir:relay(A, B, #{owner => pid(Owner), detached => true}),
    ok = weir:stop_relay(Detached).

%% No server is connected to for a dead owner.
a_dead_owner_connects_nowhere(Config) ->
    Owner = async(fun() -> receive never -> ok end end),
    kill(Owner),
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, false}]),
    {ok, Port} = inet:port(Listener),
    ?assertEqual({error, esrch}, weir:relay(A, {connect, {{127, 0, 0, 1}, Port}, 1000}, #{owner => pid(Owner)})),
    %% This is the first connection that the server gets.
    {ok, First} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}]),
    {ok, Accepted} = gen_tcp:accept(Listener, patience()),
    ?assertEqual(inet:sockname(First), inet:peername(Accepted)),
    carried(A, Client, <<"still">>),
    [ok = gen_tcp:close(Socket) || Socket <- [First, Accepted, Listener]].

%% The pid of a process from before a restart of this node, which other nodes may still know.
an_owner_of_an_earlier_life(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    Owner = of_an_earlier_life(),
    ?assertEqual({error, esrch}, weir:relay(A, B, #{owner => Owner})),
    [
        ?assertMatch(
            {error, {bad_option, owner, Owner, [_ | _]}},
            weir:relay(A, To, maps:merge(Options, #{owner => Owner, detached => true}))
        )
     || To <- [B, {connect, {{127, 0, 0, 1}, 80}, 1000}], Options <- [#{}, #{latency => weir_relay:new_latency()}]
    ],
    carried(A, Client, <<"still">>),
    carried(B, Server, <<"there">>).

of_an_earlier_life() ->
    <<131, Node/binary>> = term_to_binary(node()),
    Pid = binary_to_term(<<131, 88, Node/binary, 1:32, 0:32, (erlang:system_info(creation) + 1):32>>),
    ?assertEqual({node(), true}, {node(Pid), is_pid(Pid)}),
    Pid.

linger_is_not_waited_for(Config) ->
    [
        begin
            {A, Client} = socket_pair(Config, [binary, {active, false}, {linger, {true, Seconds}}]),
            {B, Server} = socket_pair(Config, [binary, {active, false}, {linger, {true, Seconds}}]),
            {ok, Relay} = weir:relay(A, B),
            Data = rand:bytes(200_000),
            ok = gen_tcp:send(Client, Data),
            ok = gen_tcp:shutdown(Client, write),
            ok = gen_tcp:shutdown(Server, write),
            ended(Relay, closed),
            ?assertEqual({Data, closed}, recv_all(Server))
        end
     || Seconds <- [0, 30]
    ].
