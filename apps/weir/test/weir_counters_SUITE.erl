%% The table of counters is that of what is counted: nothing is missing and nothing is in it that is not there.
-module(weir_counters_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() ->
    [{timetrap, {seconds, 60}}].

all() ->
    [pollsets, listeners, reactors, groups, relays, every_row_is_whole].

init_per_suite(Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_suite(_Config) ->
    ok.

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

pollsets(_Config) ->
    [Pollset | _] = weir:pollsets(),
    complete(pollset, maps:without([pollset, poller, scheduler, events_log2], Pollset)).

listeners(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{port => 0, ip => {127, 0, 0, 1}, max_connections => 5}, fun(_, _) -> ok end, []),
    Info = weir:info(?MODULE),
    ok = weir:stop_listener(?MODULE),
    Counters = maps:without([name, pid, status, ip, port, handler, measured], Info),
    complete(listener, Counters).

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
    {ok, Group} = weir_group:new(#{}),
    {ok, Info} = weir_group:info(Group),
    ok = weir_group:delete(Group),
    complete(group, maps:without([owner], Info)).

relays(Config) ->
    {A, Peer} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {B, OtherPeer} = weir_test_peer:socket_pair(Config, [binary, {active, false}]),
    {ok, Relay} = weir:relay(A, B),
    ok = gen_tcp:send(Peer, <<"ask">>),
    {ok, <<"ask">>} = gen_tcp:recv(OtherPeer, 3),
    ok = gen_tcp:send(OtherPeer, <<"answer">>),
    {ok, <<"answer">>} = gen_tcp:recv(Peer, 6),
    {ok, Info} = weir:relay_info(Relay),
    Values = weir_counters:values(relay, Info),
    ?assertEqual([Name || #{name := Name} <- weir_counters:table(relay)], [Name || {Name, _} <- Values]),
    ?assertEqual({3, 6, 1}, {
        proplists:get_value(a_to_b_bytes, Values),
        proplists:get_value(b_to_a_bytes, Values),
        proplists:get_value(replies, Values)
    }),
    ?assertEqual([a_to_b, b_to_a, duration_us, failed, first_byte_us, idle_us, owner, pollset, reply_us], lists:sort(maps:keys(Info))).

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
