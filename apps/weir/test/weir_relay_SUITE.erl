%% Relays: what a connection sees through one, how it ends, and what it leaves
%% behind. After each case descriptors, sockets and relays are what they were.
-module(weir_relay_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    connect_raw/2, accept_raw/1, socket_pair/2, socket_pair/3, keep/1, reset/1, async/1, await/1, kill/1, pid/1,
    wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2
]).

-define(PATIENCE, 10000).
%% A timeout that a case waits for, and one that it must not see.
-define(SOON, 100).
-define(LATER, 30000).

suite() ->
    [{timetrap, {seconds, 120}}].

all() ->
    [{group, streams}, {group, beginnings}, {group, endings}, {group, bounds}, {group, timeouts}, {group, refusals},
        {group, misfortune}].

groups() ->
    [
        {streams, [], [
            bytes_flow_both_ways,
            between_all_families,
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
        ]},
        {endings, [], [
            reset_passes_as_reset,
            reset_of_a_side_that_is_not_read,
            stopped_by_anybody,
            stopped_with_bytes_that_wait,
            ends_with_its_owner,
            detached_outlives_its_owner,
            another_process_owns_it,
            linger_is_not_waited_for
        ]},
        {bounds, [], [a_side_that_never_reads, a_side_that_never_reads_spliced, pipes_are_given_back]},
        {timeouts, [], [
            idle_timeout,
            traffic_puts_the_idle_timeout_off,
            half_close_timeout,
            half_close_timeout_is_for_half_closes,
            a_long_timeout_has_no_timer,
            a_long_timeout_passes,
            the_timer_is_killed
        ]},
        {refusals, [], [
            sockets_of_others,
            sockets_that_are_closed,
            sockets_that_listen,
            sockets_that_are_none,
            options_that_are_wrong,
            refused_sockets_are_as_they_were,
            relays_that_are_none
        ]},
        {misfortune, [], [
            owners_killed,
            pollers_killed,
            peers_reset,
            stopped_while_data_flies,
            the_same_two_in_either_order,
            no_descriptors_for_pipes
        ]}
    ].

init_per_group(_Group, Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    [{relays, length(weir:relays())} | weir_test_peer:init_case(Config)].

end_per_testcase(_Case, Config) ->
    case weir_test_peer:end_case(Config) of
        ok ->
            case length(weir:relays()) =< proplists:get_value(relays, Config) of
                true -> ok;
                false -> {fail, {relays_left, weir:relays()}}
            end;
        Fail ->
            Fail
    end.

%% Two stock peers with a relay of the caller's between them.
relay(Config) ->
    relay(Config, #{}).

relay(Config, Options) ->
    {A, Client} = pair(Config),
    {B, Server} = pair(Config),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

%% A peer that has heard the end may still have something to say.
pair(Config) ->
    socket_pair(Config, [binary, {active, false}, {nodelay, true}], [{exit_on_close, false}]).

ended(Relay, Result) ->
    {weir_relay, Relay, Result, Statistics} = next_message(),
    ?assertEqual({error, closed}, weir:relay_info(Relay)),
    Statistics.

carried(From, To, Data) ->
    ok = gen_tcp:send(From, Data),
    ?assertEqual(Data, recv_exactly(To, byte_size(Data))).

is_closed(Socket) ->
    {error, Reason} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    Reason.

%% How a connection ended, where a reset is told apart.
end_of(Socket) ->
    ok = inet:setopts(Socket, [{show_econnreset, true}]),
    is_closed(Socket).

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
    {ok, Peer} = keep(gen_tcp:connect(Address, Port, Family ++ [binary, {active, false}, {exit_on_close, false}], ?PATIENCE)),
    {ok, Socket} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    ok = gen_tcp:close(Listener),
    _ = Clean(),
    {Socket, Peer}.

bulk_both_ways_at_once(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => Splice}),
            There = rand:bytes(8_000_000),
            Back = rand:bytes(8_000_000),
            %% A stock socket throws away what a blocked sender has queued when the end of input comes.
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

sender(Socket, Data) ->
    async(fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:shutdown(Socket, write)
    end).

%% Whoever polls waits in the kernel as long as there are bulk streams only. All other sockets are there on the same
%% pollsets, and each way to be noticed is tried: by the kernel, and by what a process puts on the ready list.
others_are_served_beside_bulk(Config) ->
    {Relay, Client, Server} = relay(Config, #{splice => true}),
    Writing = async(fun() -> stream(Client, binary:copy(<<"bulk">>, 65536)) end),
    Reading = async(fun() -> drop_all(Server) end),
    {Mine, Peer} = pair(Config),
    [
        begin
            Data = <<Number:32>>,
            ok = gen_tcp:send(Peer, Data),
            %% Half of them are there when they are asked for, and the others not yet.
            _ = Number rem 2 =:= 0 andalso timer:sleep(2),
            ok = inet:setopts(Mine, [{active, once}]),
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
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
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
    ?assert(First >= 5000 andalso First =< Duration, Statistics),
    %% Within the precision of the histogram.
    ?assert(Min >= 4700 andalso Median >= Min andalso P99 >= Median, Statistics),
    ?assert(Max >= Average andalso Average >= Min andalso Max =< Duration * 1.07, Statistics).

information_while_it_runs(Config) ->
    {Relay, Client, Server} = relay(Config),
    {ok, Before} = weir:relay_info(Relay),
    ?assertMatch(#{first_byte_us := undefined, reply_us := #{count := 0}, a_to_b := #{bytes := 0}}, Before),
    ?assertEqual(self(), maps:get(owner, Before)),
    carried(Client, Server, <<"12345">>),
    {ok, #{a_to_b := #{bytes := 5, packets := 1}}} = weir:relay_info(Relay),
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
    {ok, #{a_to_b := #{bytes := 20}}} = weir:relay_info(Relay),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% The line is taken, what came with it is in the socket.
what_was_read_goes_along(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}, {packet, line}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<"hello\nrest of it">>),
    ?assertEqual({ok, <<"hello\n">>}, gen_tcp:recv(A, 0, ?PATIENCE)),
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

%% A process that polls for itself gives a socket to a pollset of a scheduler.
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

%% The client is not read from while the server takes nothing.
reset_of_a_side_that_is_not_read(Config) ->
    {Relay, Client, Server} = relay(Config),
    fill(Client),
    reset(Client),
    #{failed := a} = ended(Relay, {error, econnreset}),
    _ = drain(Server).

drain(Socket) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, _} -> drain(Socket);
        {error, Reason} -> Reason
    end.

%% Sends until nothing is taken any more; returns how much was.
fill(Socket) ->
    ok = inet:setopts(Socket, [{send_timeout, 200}, {high_watermark, 1}, {low_watermark, 1}]),
    fill(Socket, binary:copy(<<"x">>, 65536), 0).

fill(Socket, Data, Sent) ->
    case gen_tcp:send(Socket, Data) of
        ok -> fill(Socket, Data, Sent + byte_size(Data));
        {error, timeout} -> Sent
    end.

stopped_by_anybody(Config) ->
    {Relay, Client, Server} = relay(Config),
    carried(Client, Server, <<"x">>),
    ok = await(async(fun() -> weir:stop_relay(Relay) end)),
    ?assertEqual([closed, closed], [end_of(Client), end_of(Server)]),
    ended(Relay, closed),
    ok = weir:stop_relay(Relay),
    assert_no_message().

%% Who would take a part for the whole is reset.
stopped_with_bytes_that_wait(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => Splice}),
            _ = fill(Client),
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

owned_relay(Config, Options) ->
    Owner = async(fun() ->
        receive
            {relay, A, B} ->
                {ok, Relay} = weir:relay(A, B, Options),
                Relay
        end
    end),
    {A, Client} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:controlling_process(A, pid(Owner)),
    ok = gen_tcp:controlling_process(B, pid(Owner)),
    pid(Owner) ! {relay, A, B},
    {Owner, await(Owner), Client, Server}.

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

%% Bounds ----------------------------------------------------------------------

a_side_that_never_reads(Config) ->
    never_reads(Config, #{splice => false, buffer => 1000}).

a_side_that_never_reads_spliced(Config) ->
    never_reads(Config, #{splice => true}).

never_reads(Config, Options) ->
    {Relay, Client, Server} = relay(Config, Options),
    Sent = fill(Client),
    {ok, #{a_to_b := #{bytes := Taken}}} = weir:relay_info(Relay),
    %% Mostly in the buffers of the kernel, which are some megabytes each.
    ?assert(Taken =< Sent + 65536),
    ?assert(Sent < 32_000_000),
    {ok, #{a_to_b := #{bytes := Same}}} = weir:relay_info(Relay),
    ?assertEqual(Taken, Same),
    %% The other direction does not care.
    carried(Server, Client, <<"well">>),
    %% It goes on where it is read.
    _ = recv_exactly(Server, Sent),
    carried(Server, Client, <<"and again">>),
    reset(Client),
    {weir_relay, Relay, {error, econnreset}, _} = next_message().

pipes_are_given_back(Config) ->
    {Relay, Client, Server} = relay(Config),
    Before = weir_test_peer:descriptors(),
    Data = rand:bytes(20_000_000),
    Sender = async(fun() -> gen_tcp:send(Client, Data) end),
    ?assertEqual(Data, recv_exactly(Server, 20_000_000)),
    ok = await(Sender),
    [carried(Client, Server, <<"small">>) || _ <- lists:seq(1, 50)],
    wait_until(fun() -> weir_test_peer:descriptors() =< Before end),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% Timeouts --------------------------------------------------------------------

idle_timeout(Config) ->
    {Relay, Client, Server} = relay(Config, #{idle_timeout => ?SOON, half_close_timeout => ?LATER}),
    #{duration_us := Duration} = ended(Relay, {error, timeout}),
    ?assert(Duration >= ?SOON * 1000),
    ?assertEqual([closed, closed], [end_of(Client), end_of(Server)]).

traffic_puts_the_idle_timeout_off(Config) ->
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 1000}),
    [
        begin
            carried(Server, Client, <<"I am there">>),
            timer:sleep(100)
        end
     || _ <- lists:seq(1, 15)
    ],
    #{duration_us := Duration, idle_us := Idle} = ended(Relay, {error, timeout}),
    ?assert(Duration >= 2_400_000),
    ?assert(Idle >= 1_000_000).

half_close_timeout(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => ?SOON}),
    carried(Client, Server, <<"x">>),
    timer:sleep(2 * ?SOON),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual(closed, is_closed(Server)),
    #{duration_us := Duration} = ended(Relay, {error, timeout}),
    ?assert(Duration >= 3 * ?SOON * 1000),
    ?assertEqual(closed, end_of(Client)).

half_close_timeout_is_for_half_closes(Config) ->
    {Relay, Client, Server} = relay(Config, #{half_close_timeout => ?SOON}),
    timer:sleep(5 * ?SOON),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

%% One would be kept for as long as the timeout, however short the relay is.
a_long_timeout_has_no_timer(Config) ->
    Timer = whereis(weir_relay_timer),
    1 = erlang:trace(Timer, true, ['receive']),
    {Relay, Client, Server} = relay(Config, #{idle_timeout => 3600_000, half_close_timeout => 60_000}),
    carried(Client, Server, <<"x">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed),
    %% What it has got before is known by then.
    _ = gen_server:call(Timer, anything),
    Got = [Message || {trace, Of, 'receive', Message = {weir_relay, _, _}} <- flushed(), Of =:= Timer],
    1 = erlang:trace(Timer, false, ['receive']),
    ?assertEqual([], Got).

flushed() ->
    receive Message -> [Message | flushed()] after 0 -> [] end.

%% Longer than what has a timer from its beginning.
a_long_timeout_passes(Config) ->
    {Relay, _Client, _Server} = relay(Config, #{idle_timeout => 10_500}),
    receive
        {weir_relay, Relay, Result, #{duration_us := Duration}} ->
            ?assertEqual({error, timeout}, Result),
            ?assert(Duration >= 10_500_000)
    after 60_000 -> ct:fail(no_end)
    end.

the_timer_is_killed(Config) ->
    {Relay, _Client, _Server} = relay(Config, #{idle_timeout => 5 * ?SOON}),
    exit(whereis(weir_relay_timer), kill),
    ended(Relay, {error, timeout}).

%% Refusals --------------------------------------------------------------------

sockets_of_others(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    Other = async(fun() -> ok end),
    ok = gen_tcp:controlling_process(B, pid(Other)),
    ?assertEqual({error, {B, not_owner}}, weir:relay(A, B)),
    ?assertEqual({error, {B, not_owner}}, weir:relay(B, A)).

sockets_that_are_closed(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    {C, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(B),
    ?assertEqual({error, {B, closed}}, weir:relay(A, B)),
    ?assertEqual({error, {B, closed}}, weir:relay(B, A)),
    ok = gen_tcp:close(Peer),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, ?PATIENCE)),
    ?assertEqual({error, {C, enotconn}}, weir:relay(A, C)).

sockets_that_listen(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {Listener, _Port} = weir_test_peer:listen(Config, []),
    ?assertEqual({error, {Listener, enotconn}}, weir:relay(A, Listener)).

sockets_that_are_none(Config) ->
    {A, Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertMatch({error, {bad_socket, Peer, _}}, weir:relay(A, Peer)),
    ?assertMatch({error, {bad_socket, Peer, _}}, weir:relay(Peer, A)),
    ?assertMatch({error, {bad_socket, A, _}}, weir:relay(A, A)),
    ?assertMatch({error, {bad_socket, {sslsocket, x, y}, _}}, weir:relay(A, {sslsocket, x, y})),
    Forged = {'$inet', weir_tcp, 16#ffffff},
    ?assertMatch({error, {bad_socket, Forged, _}}, weir:relay(A, Forged)),
    ?assertMatch({error, {bad_socket, Forged, _}}, weir:relay(Forged, A)),
    %% What was good is as it was.
    ok = gen_tcp:send(Peer, <<"here">>),
    ?assertEqual({ok, <<"here">>}, gen_tcp:recv(A, 4, 5000)).

options_that_are_wrong(Config) ->
    {A, _} = socket_pair(Config, [binary, {active, false}]),
    {B, _} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir:relay(A, B, #{Name => Value}))
     || {Name, Value} <- [
            {prefix, prefix},
            {prefix, [300]},
            {buffer, 0},
            {buffer, 1048577},
            {splice, always},
            {idle_timeout, 0},
            {idle_timeout, 1.5},
            {half_close_timeout, never},
            {half_close_timeout, 16#100000000},
            {detached, yes},
            {owner, owner},
            {frob, 1}
        ]
    ].

refused_sockets_are_as_they_were(Config) ->
    {A, Client} = socket_pair(Config, [binary, {active, false}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}]),
    {C, _} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:close(C),
    ok = gen_tcp:unrecv(A, <<"put back, ">>),
    {error, {C, closed}} = weir:relay(A, C, #{prefix => <<"prefix">>}),
    ok = gen_tcp:send(Client, <<"sent">>),
    ?assertEqual(<<"put back, ">>, recv_exactly(A, 10)),
    ?assertEqual(<<"sent">>, recv_exactly(A, 4)),
    {ok, Relay} = weir:relay(A, B),
    carried(Client, Server, <<"there">>),
    ok = weir:stop_relay(Relay),
    ended(Relay, closed).

relays_that_are_none(_Config) ->
    Never = {weir_relay, 16#ffffff},
    ?assertError(badarg, weir:relay_info(Never)),
    ?assertError(badarg, weir:stop_relay(Never)),
    ?assertError(function_clause, weir:stop_relay(17)).

%% Misfortune ------------------------------------------------------------------

owners_killed(Config) ->
    Owned = [owned_relay(Config, #{splice => Splice}) || _ <- lists:seq(1, 15), Splice <- [auto, true, false]],
    Senders = [async(fun() -> flood(Client) end) || {_, _, Client, _} <- Owned],
    timer:sleep(100),
    [kill(Owner) || {Owner, _, _, _} <- Owned],
    [ok = await(Sender) || Sender <- Senders],
    wait_until(fun() -> [Relay || {_, Relay, _, _} <- Owned, weir:relay_info(Relay) =/= {error, closed}] =:= [] end).

%% Sends until it fails.
flood(Socket) ->
    case gen_tcp:send(Socket, binary:copy(<<"x">>, 10000)) of
        ok -> flood(Socket);
        {error, _} -> ok
    end.

pollers_killed(Config) ->
    {_, Client, Server} = relay(Config),
    weir_test_peer:silence_pollers(),
    try
        Data = rand:bytes(10_000_000),
        Sender = sender(Client, Data),
        Killer = async(fun Kill() ->
            [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
            receive
                stop -> ok
            after 20 -> Kill()
            end
        end),
        ?assertEqual({Data, closed}, recv_all(Server)),
        pid(Killer) ! stop,
        ok = await(Killer),
        ok = await(Sender),
        ok = gen_tcp:close(Server),
        ?assertEqual(closed, is_closed(Client)),
        {weir_relay, _, closed, _} = next_message()
    after
        weir_test_peer:unsilence_pollers()
    end.

peers_reset(Config) ->
    Relays = [relay(Config, #{splice => Splice}) || _ <- lists:seq(1, 20), Splice <- [auto, true, false]],
    Senders = [async(fun() -> flood(Socket) end) || {_, Client, Server} <- Relays, Socket <- [Client, Server]],
    timer:sleep(50),
    [reset(lists:nth(1 + N rem 2, [Client, Server])) || {N, {_, Client, Server}} <- lists:enumerate(Relays)],
    [ok = await(Sender) || Sender <- Senders],
    [
        receive
            {weir_relay, Relay, {error, _}, _} -> ok
        after ?PATIENCE -> ct:fail({not_ended, weir:relay_info(Relay)})
        end
     || {Relay, _, _} <- Relays
    ].

stopped_while_data_flies(Config) ->
    Relays = [relay(Config) || _ <- lists:seq(1, 50)],
    Senders = [async(fun() -> flood(Client) end) || {_, Client, _} <- Relays],
    Readers = [async(fun() -> drain(Server) end) || {_, _, Server} <- Relays],
    [ok = gen_tcp:controlling_process(Server, pid(Reader)) || {{_, _, Server}, Reader} <- lists:zip(Relays, Readers)],
    timer:sleep(50),
    Stoppers = [async(fun() -> [weir:stop_relay(Relay) || {Relay, _, _} <- Relays] end) || _ <- [1, 2, 3]],
    [await(Async) || Async <- Stoppers ++ Senders ++ Readers],
    [{weir_relay, _, _, _} = next_message() || _ <- Relays],
    assert_no_message().

%% Two processes cannot own the same sockets, but they can ask.
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

%% Without descriptors for a pipe bytes are copied.
no_descriptors_for_pipes(_Config) ->
    weir_test_peer:on_node(?MODULE, bulk_without_descriptors, "ulimit -n 60;", []).

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
