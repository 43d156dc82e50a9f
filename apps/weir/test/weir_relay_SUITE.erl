%% Relays: what connections see through one, how it ends, and what it leaves behind. After each case the numbers of
%% descriptors, sockets and relays are as before.
-module(weir_relay_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    connect_raw/2, accept_raw/1, socket_pair/2, socket_pair/3, keep/1, async/1, await/1, kill/1, pid/1
]).
-import(weir_test_wait, [wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2, patience/0]).
-import(weir_relay_test, [carried/3, ended/2, is_closed/1, pair/1, relay/1, relay/2, sender/2]).

-include("relay_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, streams}, {group, beginnings}].

groups() ->
    [
        {streams, [], [
            bytes_flow_both_ways,
            between_all_families,
            urgent_data_stops_nothing,
            bulk_both_ways_at_once,
            others_are_served_beside_bulk,
            half_close_passes_through,
            half_close_the_other_way,
            the_sockets_are_closed_to_everybody,
            statistics_count_both_ways,
            information_while_it_runs
        ]},
        {beginnings, [], [
            prefix_goes_first,
            what_was_read_goes_along,
            what_was_put_back_goes_along,
            what_was_queued_goes_first,
            ends_that_came_before,
            from_a_pollset_of_its_own,
            borrowed_descriptors_stay_open
        ]}].

%% Streams ---------------------------------------------------------------------

bytes_flow_both_ways(Config) ->
    {Relay, Client, Server} = relay(Config),
    [
        begin
            carried(Client, Server, rand:bytes(Size)),
            carried(Server, Client, rand:bytes(Size))
        end
     || Size <- [1, 64, 3, 4096, 100000, 1]
    ],
    ok = gen_tcp:close(Client),
    ?assertEqual(closed, is_closed(Server)),
    ok = gen_tcp:close(Server),
    ended(Relay, closed).

between_all_families(Config) ->
    [
        begin
            {A, Client} = ends(Config, One),
            {B, Server} = ends(Config, Other),
            {ok, Relay} = weir:relay(A, B, #{splice => Splice}),
            carried(Client, Server, rand:bytes(100000)),
            carried(Server, Client, rand:bytes(100000)),
            ok = gen_tcp:shutdown(Client, write),
            ?assertEqual(closed, is_closed(Server)),
            ok = gen_tcp:close(Server),
            ?assertEqual(closed, is_closed(Client)),
            ended(Relay, closed)
        end
     || One <- [inet, inet6, local], Other <- [inet, inet6, local], Splice <- [true, false]
    ].

urgent_data_stops_nothing(Config) ->
    {Listener, Port} = weir_test_peer:listen(Config, [binary, {active, false}]),
    [
        weir_test_peer:with_urgent_peer(Port, fun(Client) ->
            {ok, A} = weir_test_peer:keep(gen_tcp:accept(Listener, patience())),
            {B, Server} = pair(Config),
            ok = weir_test_peer:say_urgently(Client),
            {ok, Relay} = weir:relay(A, B, #{splice => Splice}),
            ?assertEqual(<<"abcefg">>, recv_exactly(Server, 6)),
            ok = weir_test_peer:say_urgently(Client),
            ?assertEqual(<<"abcefg">>, recv_exactly(Server, 6)),
            ok = gen_tcp:close(Server),
            ok = socket:close(Client),
            _ = ended(Relay, closed)
        end)
     || Splice <- [true, false]
    ].

%% A socket of Weir and its stock peer.
ends(Config, local) ->
    Path = "/tmp/weir_relay_" ++ integer_to_list(erlang:unique_integer([positive])) ++ os:getpid(),
    ends(Config, [{ifaddr, {local, Path}}], {local, Path}, [local], fun() -> file:delete(Path) end);
ends(Config, inet6) ->
    ends(Config, [{ip, {0, 0, 0, 0, 0, 0, 0, 1}}], {0, 0, 0, 0, 0, 0, 0, 1}, [inet6], fun() -> ok end);
ends(Config, inet) ->
    ends(Config, [{ip, {127, 0, 0, 1}}], {127, 0, 0, 1}, [], fun() -> ok end).

ends(Config, Listen, Address, Family, Clean) ->
    {ok, Listener} = weir_test_peer:listen(Config, 0, [binary, {active, false} | Listen]),
    Port =
        case inet:port(Listener) of
            {ok, Number} when is_integer(Number) -> Number;
            _ -> 0
        end,
    Options = Family ++ [binary, {active, false}, {exit_on_close, false}],
    {ok, Peer} = keep(gen_tcp:connect(Address, Port, Options, patience())),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ok = gen_tcp:close(Listener),
    _ = Clean(),
    {Socket, Peer}.

bulk_both_ways_at_once(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => Splice}),
            There = rand:bytes(8_000_000),
            Back = rand:bytes(8_000_000),
            %% A stock socket drops queued data of a blocked sender at the end of its input, so no sender may block.
            [ok = inet:setopts(Socket, [{high_watermark, 100_000_000}]) || Socket <- [Client, Server]],
            Senders = [sender(Client, There), sender(Server, Back)],
            Receiver = async(fun() -> recv_all(Client) end),
            ok = gen_tcp:controlling_process(Client, pid(Receiver)),
            ?assertEqual({There, closed}, recv_all(Server)),
            ?assertEqual({Back, closed}, await(Receiver)),
            [ok = await(Sender) || Sender <- Senders],
            #{a_to_b := #{bytes := 8_000_000}, b_to_a := #{bytes := 8_000_000}} = ended(Relay, closed)
        end
     || Splice <- [auto, true, false]
    ].

%% A poller waits in the kernel while it has only bulk streams. Other sockets are on the same pollsets, and both ways
%% to notice them are tested: an event of the kernel, and an entry that a process puts on the ready list.
others_are_served_beside_bulk(Config) ->
    {Relay, Client, Server} = relay(Config, #{splice => true}),
    Writing = async(fun() -> stream(Client, binary:copy(<<"bulk">>, 65536)) end),
    Reading = async(fun() -> drop_all(Server) end),
    {Mine, Peer} = pair(Config),
    [
        begin
            Data = <<Number:32>>,
            %% Half of the messages are requested before they arrive, the others after.
            Steps = [fun() -> inet:setopts(Mine, [{active, once}]) end, fun() -> gen_tcp:send(Peer, Data) end],
            [ok = Step() || Step <- case Number rem 2 of 0 -> Steps; 1 -> lists:reverse(Steps) end],
            ?assertEqual({tcp, Mine, Data}, next_message()),
            ok = gen_tcp:send(Mine, Data),
            ?assertEqual(Data, recv_exactly(Peer, 4))
        end
     || Number <- lists:seq(1, 200)
    ],
    ok = weir:stop_relay(Relay),
    _ = ended(Relay, closed),
    ?assertMatch({error, _}, await(Writing)),
    ?assertMatch({error, _}, await(Reading)).

stream(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> stream(Socket, Data);
        {error, _} = Error -> Error
    end.

drop_all(Socket) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, _} -> drop_all(Socket);
        {error, _} = Error -> Error
    end.

half_close_passes_through(Config) ->
    {Relay, Client, Server} = relay(Config),
    ok = gen_tcp:send(Client, <<"question">>),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({<<"question">>, closed}, recv_all(Server)),
    assert_no_message(),
    ok = gen_tcp:send(Server, <<"answer">>),
    ok = gen_tcp:close(Server),
    ?assertEqual({<<"answer">>, closed}, recv_all(Client)),
    ended(Relay, closed).

half_close_the_other_way(Config) ->
    {Relay, Client, Server} = relay(Config),
    ok = gen_tcp:send(Server, <<"all I say">>),
    ok = gen_tcp:shutdown(Server, write),
    ?assertEqual({<<"all I say">>, closed}, recv_all(Client)),
    ok = gen_tcp:send(Client, <<"thanks">>),
    ok = gen_tcp:close(Client),
    ?assertEqual({<<"thanks">>, closed}, recv_all(Server)),
    ended(Relay, closed).

the_sockets_are_closed_to_everybody(Config) ->
    {A, _Client} = socket_pair(Config, [binary, {active, false}]),
    {B, _Server} = socket_pair(Config, [binary, {active, false}]),
    Reference = inet:monitor(A),
    {ok, Relay} = weir:relay(A, B),
    ?assertMatch({'DOWN', Reference, socket, A, _}, next_message()),
    ?assertEqual({error, closed}, gen_tcp:recv(A, 0)),
    ?assertEqual({error, closed}, gen_tcp:send(B, <<"x">>)),
    ?assertEqual({error, {A, closed}}, weir:relay(A, B)),
    ok = gen_tcp:close(A),
    ok = gen_tcp:close(B),
    ?assertMatch({ok, _}, weir:relay_info(Relay)),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

statistics_count_both_ways(Config) ->
    {Relay, Client, Server} = relay(Config),
    [
        begin
            carried(Client, Server, <<"12345">>),
            timer:sleep(5),
            carried(Server, Client, <<"1234567">>)
        end
     || _ <- lists:seq(1, 20)
    ],
    ok = gen_tcp:close(Client),
    ok = gen_tcp:close(Server),
    Statistics = ended(Relay, closed),
    #{
        a_to_b := #{bytes := 100, packets := 20},
        b_to_a := #{bytes := 140, packets := 20},
        duration_us := Duration,
        first_byte_us := First,
        reply_us := #{count := 20, min := Min, max := Max, average := Average, p50 := Median, p99 := P99}
    } = Statistics,
    ?assert(First >= 4700 andalso First =< Duration, Statistics),
    %% Within the precision of the histogram, and of a clock that the VM adjusts.
    ?assert(Min >= 4700 andalso Median >= Min andalso P99 >= Median, Statistics),
    ?assert(Max >= Average andalso Average >= Min andalso Max =< Duration * 1.07, Statistics).

information_while_it_runs(Config) ->
    {Relay, Client, Server} = relay(Config),
    {ok, Before} = weir:relay_info(Relay),
    ?assertMatch(#{first_byte_us := undefined, reply_us := #{count := 0}, a_to_b := #{bytes := 0}}, Before),
    ?assertEqual(self(), maps:get(owner, Before)),
    carried(Client, Server, <<"12345">>),
    %% Bytes are counted after they were written, so they may arrive before.
    wait_until(fun() ->
        {ok, #{a_to_b := #{bytes := Bytes, packets := Packets}}} = weir:relay_info(Relay),
        {Bytes, Packets} =:= {5, 1}
    end),
    ?assert(lists:member(Relay, weir:relays())),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed),
    ?assertNot(lists:member(Relay, weir:relays())).

%% Beginnings ------------------------------------------------------------------

prefix_goes_first(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<" and more">>),
    {ok, Relay} = weir:relay(A, B, #{prefix => ["said ", <<"before">>]}),
    ?assertEqual(<<"said before and more">>, recv_exactly(Server, 20)),
    wait_until(fun() -> {ok, #{a_to_b := #{bytes := Bytes}}} = weir:relay_info(Relay), Bytes =:= 20 end),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% The line was read; the bytes after it are in the socket's buffer.
what_was_read_goes_along(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}, {packet, line}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<"hello\nrest of it">>),
    ?assertEqual({ok, <<"hello\n">>}, gen_tcp:recv(A, 0, patience())),
    ok = gen_tcp:send(Client, <<", and the end">>),
    {ok, Relay} = weir:relay(A, B),
    ?assertEqual(<<"rest of it, and the end">>, recv_exactly(Server, 23)),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

what_was_put_back_goes_along(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:unrecv(B, <<"greeting ">>),
    ok = gen_tcp:send(Server, <<"from B">>),
    {ok, Relay} = weir:relay(A, B, #{splice => true}),
    ?assertEqual(<<"greeting from B">>, recv_exactly(Client, 15)),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

what_was_queued_goes_first(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}, {high_watermark, 100_000_000}], [
        {recbuf, 4096}
    ]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    Queued = rand:bytes(1_000_000),
    ok = gen_tcp:send(A, Queued),
    ok = gen_tcp:send(Server, <<"then this">>),
    ok = gen_tcp:shutdown(Server, write),
    {ok, Relay} = weir:relay(A, B),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({<<Queued/binary, "then this">>, closed}, recv_all(Client)),
    #{b_to_a := #{bytes := 9}} = ended(Relay, closed).

ends_that_came_before(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<"last words">>),
    ok = gen_tcp:close(Client),
    ok = gen_tcp:shutdown(Server, write),
    {ok, Relay} = weir:relay(A, B),
    ?assertEqual({<<"last words">>, closed}, recv_all(Server)),
    ended(Relay, closed).

%% A process with its own pollset passes a socket to a pollset of a scheduler.
from_a_pollset_of_its_own(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    Reactor = async(fun() ->
        {ok, {Pollset, _Token}} = weir_nif:acquire(),
        {'$inet', weir_tcp, Handle} = A,
        %% It is registered there.
        {error, timeout} = gen_tcp:recv(A, 0, 0),
        ok = weir_nif:move(Handle, Pollset),
        {ok, Relay} = weir:relay(A, B, #{detached => true}),
        {ok, #{pollset := Home}} = weir:relay_info(Relay),
        {Relay, Home}
    end),
    ok = gen_tcp:controlling_process(A, pid(Reactor)),
    ok = gen_tcp:controlling_process(B, pid(Reactor)),
    {Relay, Home} = await(Reactor),
    ?assert(lists:member(Home, weir_pollsets:all())),
    kill(Reactor),
    carried(Client, Server, <<"there">>),
    carried(Server, Client, <<"and back">>),
    ok = weir:stop_relay(Relay).

borrowed_descriptors_stay_open(Config) ->
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Client = connect_raw(Port, []),
    Ours = accept_raw(Listener),
    ok = gen_tcp:close(Listener),
    {ok, Fd} = inet:getfd(Ours),
    {ok, A} = weir_tcp:fdopen(Fd, [binary, {active, false}]),
    {ok, Relay} = weir:relay(A, B),
    carried(Client, Server, <<"there">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed),
    carried(Client, Ours, <<"still there">>).
