%% The table of counters matches the counters that exist: none is missing, none is superfluous.
-module(weir_counters_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        pollsets,
        who_wakes_a_poller,
        listeners,
        backlog_of_a_listener,
        reactors,
        reactors_count_from_their_beginning,
        groups,
        relays,
        every_row_is_whole
    ].

init_per_suite(Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_suite(_Config) ->
    ok.

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    weir_test_peer:end_case(Config).

pollsets(_Config) ->
    [Pollset | _] = weir:pollsets(),
    complete(pollset, maps:without([pollset, poller, scheduler, events_log2], Pollset)).

listeners(_Config) ->
    {ok, _} = weir:start_listener(
        ?MODULE, #{port => 0, ip => {127, 0, 0, 1}, max_connections => 5}, fun(_, _) -> ok end, []
    ),
    Info = weir:info(?MODULE),
    ok = weir:stop_listener(?MODULE),
    Counters = maps:without([name, pid, status, ip, port, handler, measured], Info),
    complete(listener, Counters).

%% Connections that the listener does not accept stay in the kernel's backlog.
backlog_of_a_listener(_Config) ->
    {ok, _} = weir:start_listener(
        ?MODULE, #{port => 0, ip => {127, 0, 0, 1}, max_connections => 1}, fun(_, _) -> timer:sleep(infinity) end, []
    ),
    #{backlog := 0, max_backlog := Max} = weir:info(?MODULE),
    ?assert(Max >= 1024),
    Clients = [
        element(2, {ok, _} = gen_tcp:connect({127, 0, 0, 1}, weir:get_port(?MODULE), []))
     || _ <- lists:seq(1, 4)
    ],
    weir_test_wait:wait_until(fun() ->
        #{backlog := Waiting} = weir:info(?MODULE),
        Waiting =:= 3
    end),
    lists:foreach(fun gen_tcp:close/1, Clients),
    ok = weir:stop_listener(?MODULE).

%% A sleeping poller is woken by its thread when data arrives.
who_wakes_a_poller(Config) ->
    {Socket, Peer} = weir_test_peer:socket_pair(Config, [binary, {active, true}]),
    Sum = fun(Name) -> lists:sum([maps:get(Name, Pollset) || Pollset <- weir:pollsets()]) end,
    Woken = Sum(wakes_by_thread),
    %% The poller may have been woken by another event already, so this is repeated.
    weir_test_wait:wait_until(fun() ->
        [
            weir_test_wait:wait_until(fun() -> process_info(Poller, status) =:= {status, waiting} end)
         || #{poller := Poller} <- weir:pollsets()
        ],
        ok = gen_tcp:send(Peer, <<"x">>),
        receive {tcp, Socket, <<"x">>} -> ok after weir_test_wait:patience() -> ct:fail(no_message) end,
        Sum(wakes_by_thread) > Woken
    end),
    ?assert(Sum(polling_ns) > 0).

%% A later reactor reuses the pollset of one that has ended.
reactors_count_from_their_beginning(_Config) ->
    Pollsets = [
        begin
            {ok, Reactor} = weir_reactor:start_link(#{module => reactor_probe, args => #{}}),
            {ok, Info = #{pollset := Pollset}} = weir_reactor:info(Reactor),
            ?assertMatch(#{accepts := 0, moved_in := 0, reads := 0, read_bytes := 0, writes := 0, sockets := 0}, Info),
            %% An adopted socket moves into the pollset.
            {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
            {ok, Port} = inet:port(Listen),
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {tcp_module, weir_tcp}]),
            {ok, _} = weir_reactor:adopt(Reactor, Socket, #{}),
            weir_test_wait:wait_until(fun() -> map_get(moved_in, element(2, weir_reactor:info(Reactor))) =:= 1 end),
            unlink(Reactor),
            Monitor = monitor(process, Reactor),
            exit(Reactor, kill),
            receive {'DOWN', Monitor, process, Reactor, _} -> ok end,
            weir_test_wait:wait_until(fun() -> not lists:member(Pollset, weir_nif:abandoned()) end),
            ok = gen_tcp:close(Listen),
            Pollset
        end
     || _ <- [1, 2, 3]
    ],
    ?assert(length(lists:usort(Pollsets)) < 3).

reactors(_Config) ->
    {ok, Reactor} = weir_reactor:start_link(#{module => reactor_probe, args => #{}}),
    {ok, #{module := reactor_probe, pollset := _} = Info} = weir_reactor:info(Reactor),
    complete(reactor, maps:without([module, pollset, events_log2], Info)),
    unlink(Reactor),
    Monitor = monitor(process, Reactor),
    exit(Reactor, shutdown),
    receive {'DOWN', Monitor, process, Reactor, _} -> ok end,
    ?assertEqual({error, noproc}, weir_reactor:info(Reactor)),
    ?assertEqual({error, noproc}, weir_reactor:info(no_such_reactor)).

groups(_Config) ->
    Groups = weir_nif:group_count(),
    {ok, Group} = weir_group:new(#{}),
    ?assertEqual(Groups + 1, weir_nif:group_count()),
    {ok, Info} = weir_group:info(Group),
    ok = weir_group:delete(Group),
    complete(group, maps:without([owner], Info)).

relays(Config) ->
    {A, Peer} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {B, OtherPeer} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    Relays = weir_nif:relay_count(),
    {ok, Relay} = weir:relay(A, B),
    ?assertEqual(Relays + 1, weir_nif:relay_count()),
    ok = gen_tcp:send(Peer, <<"ask">>),
    {ok, <<"ask">>} = gen_tcp:recv(OtherPeer, 3),
    ok = gen_tcp:send(OtherPeer, <<"answer">>),
    {ok, <<"answer">>} = gen_tcp:recv(Peer, 6),
    %% Bytes that have reached a peer are counted a moment later.
    weir_test_wait:wait_until(fun() ->
        {ok, Now} = weir:relay_info(Relay),
        Counted = weir_counters:values(relay, Now),
        {3, 6, 1} =:=
            {
                proplists:get_value(a_to_b_bytes, Counted),
                proplists:get_value(b_to_a_bytes, Counted),
                proplists:get_value(replies, Counted)
            }
    end),
    {ok, Info} = weir:relay_info(Relay),
    Values = weir_counters:values(relay, Info),
    ?assertEqual([Name || #{name := Name} <- weir_counters:table(relay)], [Name || {Name, _} <- Values]),
    ?assertEqual(
        [a_to_b, b_to_a, duration_us, ended_first, failed, first_byte_us, idle_us, owner, pollset, reply_us],
        lists:sort(maps:keys(Info))
    ).

every_row_is_whole(_Config) ->
    Rows = weir_counters:table(),
    [
        begin
            ?assert(lists:member(Kind, [counter, gauge])),
            ?assert(lists:member(Unit, [none, bytes, nanoseconds, microseconds])),
            ?assertMatch([_ | _], Help)
        end
     || #{kind := Kind, unit := Unit, help := Help} <- Rows
    ],
    Names = [{Subject, Name} || #{subject := Subject, name := Name} <- Rows],
    ?assertEqual(lists:sort(Names), lists:usort(Names)).

complete(Subject, Counted) ->
    ?assertEqual(lists:sort([Name || #{name := Name} <- weir_counters:table(Subject)]), lists:sort(maps:keys(Counted))),
    ?assertEqual(maps:size(Counted), length(weir_counters:values(Subject, Counted))).
