%% Relays when owners, pollers and peers end, and without descriptors.
-module(weir_relay_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, patience/0]).
-import(weir_relay_test, [drain/1, ended/2, is_closed/1, is_flowing/1, owned_relay/2, relay/1, relay/2, sender/2]).

-include("relay_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, misfortune}].

groups() ->
    [
        {misfortune, [], [
            owners_killed,
            pollers_killed,
            peers_reset,
            stopped_while_data_flies,
            the_same_two_in_either_order,
            no_descriptors_for_pipes
        ]}
    ].

%% Misfortune ------------------------------------------------------------------

owners_killed(Config) ->
    Owned = [owned_relay(Config, #{splice => Splice}) || _ <- lists:seq(1, 8), Splice <- [auto, true, false]],
    Senders = [async(fun() -> flood(Client) end) || {_, _, Client, _} <- Owned],
    [wait_until(fun() -> is_flowing(Relay) end) || {_, Relay, _, _} <- Owned],
    [kill(Owner) || {Owner, _, _, _} <- Owned],
    [ok = await(Sender) || Sender <- Senders],
    wait_until(fun() -> [Relay || {_, Relay, _, _} <- Owned, weir:relay_info(Relay) =/= {error, closed}] =:= [] end).

flood(Socket) ->
    case gen_tcp:send(Socket, binary:copy(<<"x">>, 10000)) of
        ok -> flood(Socket);
        {error, _} -> ok
    end.

pollers_killed(Config) ->
    {Relay, Client, Server} = relay(Config),
    weir_test_peer:silence_pollers(),
    try
        Data = rand:bytes(10_000_000),
        Sender = sender(Client, Data),
        Killer = async(fun() -> kill_pollers(Relay, 0) end),
        ?assertEqual({Data, closed}, recv_all(Server)),
        pid(Killer) ! stop,
        ok = await(Killer),
        ok = await(Sender),
        ok = gen_tcp:close(Server),
        ?assertEqual(closed, is_closed(Client)),
        _ = ended(Relay, closed)
    after
        weir_test_peer:unsilence_pollers()
    end.

%% Kills all pollers whenever bytes have passed through the relay, as long as it exists.
kill_pollers(Relay, Before) ->
    receive
        stop -> ok
    after 1 ->
        case weir:relay_info(Relay) of
            {ok, #{a_to_b := #{bytes := Bytes}}} when Bytes > Before ->
                [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
                kill_pollers(Relay, Bytes);
            _ ->
                kill_pollers(Relay, Before)
        end
    end.

peers_reset(Config) ->
    Relays = [relay(Config, #{splice => Splice}) || _ <- lists:seq(1, 8), Splice <- [auto, true, false]],
    Senders = [async(fun() -> flood(Socket) end) || {_, Client, Server} <- Relays, Socket <- [Client, Server]],
    [wait_until(fun() -> is_flowing(Relay) end) || {Relay, _, _} <- Relays],
    [reset(lists:nth(1 + N rem 2, [Client, Server])) || {N, {_, Client, Server}} <- lists:enumerate(Relays)],
    [ok = await(Sender) || Sender <- Senders],
    [
        receive
            {weir_relay, Relay, {error, _}, _} -> ok
        after patience() -> ct:fail({not_ended, weir:relay_info(Relay)})
        end
     || {Relay, _, _} <- Relays
    ].

stopped_while_data_flies(Config) ->
    Relays = [relay(Config) || _ <- lists:seq(1, 20)],
    Senders = [async(fun() -> flood(Client) end) || {_, Client, _} <- Relays],
    Readers = [async(fun() -> drain(Server) end) || {_, _, Server} <- Relays],
    [ok = gen_tcp:controlling_process(Server, pid(Reader)) || {{_, _, Server}, Reader} <- lists:zip(Relays, Readers)],
    [wait_until(fun() -> is_flowing(Relay) end) || {Relay, _, _} <- Relays],
    Stoppers = [async(fun() -> [weir:stop_relay(Relay) || {Relay, _, _} <- Relays] end) || _ <- [1, 2, 3]],
    [await(Async) || Async <- Stoppers ++ Senders ++ Readers],
    [{weir_relay, _, _, _} = next_message() || _ <- Relays],
    assert_no_message().

%% Two processes cannot own the same sockets, but both can call.
the_same_two_in_either_order(Config) ->
    [
        begin
            {A, _} = socket_pair(Config, [binary, {active, false}]),
            {B, _} = socket_pair(Config, [binary, {active, false}]),
            Others = [async(fun() -> [weir:relay(X, Y) || _ <- lists:seq(1, 1000)] end) || {X, Y} <- [{A, B}, {B, A}]],
            {ok, Relay} = weir:relay(A, B),
            [await(Other) || Other <- Others],
            ok = weir:stop_relay(Relay),
            ended(Relay, closed)
        end
     || _ <- lists:seq(1, 20)
    ].

%% Without descriptors for a pipe, bytes are copied.
no_descriptors_for_pipes(_Config) ->
    weir_test_node:on_node(?MODULE, bulk_without_descriptors, "ulimit -n 200;", ["+S", "2:2"]).

bulk_without_descriptors(Config) ->
    {Relay, Client, Server} = relay(Config, #{splice => true}),
    Files = exhaust(),
    Data = rand:bytes(1_000_000),
    Sender = async(fun() -> gen_tcp:send(Client, Data) end),
    ?assertEqual(Data, recv_exactly(Server, byte_size(Data))),
    ok = await(Sender),
    [ok = file:close(File) || File <- Files],
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

exhaust() ->
    case file:open("/dev/null", [read, raw]) of
        {ok, File} -> [File | exhaust()];
        {error, emfile} -> []
    end.
