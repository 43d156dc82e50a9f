%% Measures scheduling on nodes with known run queues, with each tracer, and checks that other tracers are not
%% disturbed.
-module(weir_scope_schedules_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    who_is_ready_waits_for_those_before/1,
    turns_of_known_length/1,
    turns_by_messages/1,
    messages_are_bounded/1,
    migrations_of_known_number/1
]).
-export([long_turns/1, another_system_monitor_goes_on/1]).
-export([another_tracer_goes_on/1, an_observer_that_dies/1, one_at_a_time/1, ping_pong/1, bad_options/1]).
-export([collected/0, turn/2, hops/1, traced/1, ping/1, pong/0]).

-import(weir_test_wait, [wait_until/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, all}].

groups() ->
    [
        {all, [parallel], [
            who_is_ready_waits_for_those_before,
            turns_of_known_length,
            turns_by_messages,
            messages_are_bounded,
            migrations_of_known_number,
            long_turns,
            another_system_monitor_goes_on,
            another_tracer_goes_on,
            an_observer_that_dies,
            one_at_a_time,
            ping_pong,
            bad_options
        ]}
    ].

init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope_schedules")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

%% A node with this module and Weir's library; cases of OTP's tracer run without the library.
init_per_testcase(Case, Config) ->
    {Peer, Node} = weir_scope_distribution:node(["+S", "2"]),
    {Module, Beam, File} = code:get_object_code(?MODULE),
    {module, Module} = weir_scope_distribution:call(Peer, code, load_binary, [Module, File, Beam]),
    case lists:member(Case, [turns_by_messages, messages_are_bounded]) of
        true ->
            ok;
        false ->
            true = weir_scope_distribution:call(Peer, code, add_patha, [filename:dirname(code:which(weir))]),
            {ok, _} = weir_scope_distribution:call(Peer, application, ensure_all_started, [weir])
    end,
    View = weir_scope_distribution:view(Node),
    [{peer, Peer}, {node, Node}, {view, View} | Config].

end_per_testcase(_Case, Config) ->
    catch peer:stop(?config(peer, Config)),
    ok.

%% Takes turns of `Microseconds' with sleeps between them, for ever.
turn(Microseconds, Sleep) ->
    spin(erlang:monotonic_time(microsecond) + Microseconds),
    timer:sleep(Sleep),
    turn(Microseconds, Sleep).

%% The VM schedules a process out after 4,000 reductions. A read of the clock here takes at most one.
spin(Until) ->
    case erlang:monotonic_time(microsecond) of
        Now when Now >= Until -> ok;
        _ -> spin(Until)
    end.

busy(Config, Microseconds, Sleep) ->
    erlang:spawn_opt(?config(node, Config), ?MODULE, turn, [Microseconds, Sleep], [{scheduler, 1}]).

count(Histogram) -> lists:sum([Count || {_, Count} <- Histogram]).

%% On the first scheduler ten processes that never sleep are in front of a process that becomes ready. Each takes a
%% turn of 4,000 reductions, which is tens of microseconds. The second scheduler is idle.
who_is_ready_waits_for_those_before(Config) ->
    _ = [busy(Config, 1_000_000_000, 0) || _ <- lists:seq(1, 10)],
    {ok, #{tracer := none, events := 0, complete := true, schedulers := [First, Second]}} = weir_scope:schedules(
        ?config(view, Config), #{tracer => none}
    ),
    #{scheduler := 1, ready := Busy} = First,
    #{scheduler := 2, ready := Idle} = Second,
    ?assert(count(Busy) > 0),
    ?assert(count(Idle) > 0),
    {Shortest, _} = hd(Busy),
    {Least, _} = hd(Idle),
    ?assert(Shortest >= 32_768, Busy),
    ?assert(Least =< 8192, Idle).

%% After each sleep of 10 ms there is a turn of 20 microseconds by the clock, so there are turns of 2^14 ns or more. (A
%% longer one might be split into two, if 4,000 reads of the clock take less time.)
turns_of_known_length(Config) ->
    _ = busy(Config, 20, 10),
    {ok, #{tracer := native, events := Events, schedulers := Schedulers}} = weir_scope:schedules(
        ?config(view, Config), #{over => 1000}
    ),
    [#{running := Running, between := Between}] = [Scheduler || #{scheduler := 1} = Scheduler <- Schedulers],
    ?assert(Events > 0),
    Long = [{From, Count} || {From, Count} <- Running, From >= 16_384],
    ?assert(count(Long) > 0, Running),
    ?assert(count(Between) > 0),
    %% On a busy machine some may be long.
    ?assert(lists:any(fun({From, _}) -> From =< 10_000_000 end, Between)),
    ?assertEqual({error, closed}, weir_scope_distribution:call(?config(peer, Config), weir_nif, schedules_end, [1])).

turns_by_messages(Config) ->
    Busy = busy(Config, 20, 10),
    {ok, otp} = weir_scope:tracer(?config(view, Config)),
    {ok, #{tracer := otp, complete := true, events := Events, running := Running}} = weir_scope:schedules(
        ?config(view, Config), #{over => 1000}
    ),
    ?assert(Events > 0),
    Long = [{From, Count} || {From, Count} <- Running, From >= 16_384],
    ?assert(count(Long) > 0, Running),
    ?assertEqual({flags, []}, weir_scope_distribution:call(?config(peer, Config), erlang, trace_info, [Busy, flags])).

%% Two processes exchange messages without a pause, so the tracer reaches its limit long before the time is over.
messages_are_bounded(Config) ->
    Pong = spawn(?config(node, Config), ?MODULE, pong, []),
    Ping = spawn(?config(node, Config), ?MODULE, ping, [Pong]),
    {ok, #{complete := false, events := 200_000}} = weir_scope:schedules(?config(view, Config), #{
        over => 60_000, processes => 2
    }),
    [
        ?assertEqual({flags, []}, weir_scope_distribution:call(?config(peer, Config), erlang, trace_info, [Pid, flags]))
     || Pid <- [Ping, Pong]
    ].

%% A process that moves to the other scheduler for each of its turns counts its moves. Each tracer must count a good
%% part of them: the process is asked some time before the tracer begins and after it has ended. Other processes do not
%% move so often.
migrations_of_known_number(Config) ->
    Hopping = spawn(?config(node, Config), ?MODULE, hops, [0]),
    [
        begin
            Before = hopped(Hopping),
            {ok, #{tracer := Tracer, migrations := Migrations}} = weir_scope:schedules(?config(view, Config), #{
                over => 3000, tracer => Tracer
            }),
            Hops = hopped(Hopping) - Before,
            ct:log("~p: ~p of ~p", [Tracer, Migrations, Hops]),
            ?assert(Hops > 0),
            ?assert(4 * Migrations > Hops, {Migrations, Hops}),
            ?assert(Migrations < 2 * Hops + 1000, {Migrations, Hops})
        end
     || Tracer <- [native, otp]
    ].

%% It must be one of the busiest processes, which OTP's tracer traces.
hops(Times) ->
    _ = process_flag(scheduler, 1 + Times rem 2),
    spin(erlang:monotonic_time(microsecond) + 200),
    receive
        {hopped, Whom} -> Whom ! {hopped, Times}
    after 10 -> ok
    end,
    hops(Times + 1).

hopped(Pid) ->
    Pid ! {hopped, self()},
    receive {hopped, Times} -> Times end.

ping(Pong) ->
    Pong ! self(),
    receive Pong -> ping(Pong) end.

pong() ->
    receive Ping -> Ping ! self() end,
    pong().

%% A garbage collection of a heap of some million words is a long one.
long_turns(Config) ->
    {Peer, View} = {?config(peer, Config), ?config(view, Config)},
    Collected = spawn(?config(node, Config), ?MODULE, collected, []),
    %% Wait until it has built its heap.
    _ = asked(Collected),
    [_ | _] = long_collections(Collected, View),
    ?assertEqual(undefined, weir_scope_distribution:call(Peer, erlang, system_monitor, [])).

%% On a busy machine a whole measurement may lie within one collection, so this repeats it.
long_collections(Pid, View) ->
    Before = asked(Pid),
    {ok, #{long := {ok, Turns}}} = weir_scope:schedules(View, #{tracer => none}),
    After = asked(Pid),
    case
        [
            Turn
         || #{who := Who, milliseconds := Time, name := _, kind := long_gc} = Turn <- Turns, Who =:= Pid, Time >= 20
        ]
    of
        [] when After - Before < 100 -> long_collections(Pid, View);
        Found -> Found
    end.

asked(Pid) ->
    Pid ! {collections, self()},
    receive {collections, Number} -> Number after weir_test_wait:patience() -> ct:fail(no_answer) end.

collected() ->
    hold(lists:seq(1, 5_000_000), 0).

hold(List, Number) ->
    true = erlang:garbage_collect(),
    receive {collections, Whom} -> Whom ! {collections, Number + 1} after 1 -> ok end,
    hold(List, Number + 1).

%% Before OTP 28 the node has only one system monitor, and the result names it.
another_system_monitor_goes_on(Config) ->
    {Peer, View} = {?config(peer, Config), ?config(view, Config)},
    Other = spawn(?config(node, Config), ?MODULE, traced, [0]),
    undefined = weir_scope_distribution:call(Peer, erlang, system_monitor, [Other, [{long_gc, 1}]]),
    {ok, #{long := Long}} = weir_scope:schedules(View, #{tracer => none, over => 100}),
    case weir_scope_distribution:call(Peer, erlang, function_exported, [trace, system, 3]) of
        true -> ?assertMatch({ok, _}, Long);
        false -> ?assertEqual({error, {system_monitor, Other}}, Long)
    end,
    ?assertMatch({Other, [{long_gc, 1}]}, weir_scope_distribution:call(Peer, erlang, system_monitor, [])).

%% A process that another tracer traces is still traced by it afterwards, with the same flags, and that tracer misses
%% nothing.
another_tracer_goes_on(Config) ->
    {Peer, View} = {?config(peer, Config), ?config(view, Config)},
    Busy = busy(Config, 10, 10),
    Tracer = spawn(?config(node, Config), ?MODULE, traced, [0]),
    1 = weir_scope_distribution:call(Peer, erlang, trace, [Busy, true, [running, {tracer, Tracer}]]),
    [{ok, #{}} = weir_scope:schedules(View, #{over => 200, tracer => With}) || With <- [native, otp]],
    ?assertMatch({flags, [_ | _]}, weir_scope_distribution:call(Peer, erlang, trace_info, [Busy, flags])),
    ?assertEqual({tracer, Tracer}, weir_scope_distribution:call(Peer, erlang, trace_info, [Busy, tracer])),
    Before = told(Tracer),
    {ok, #{}} = weir_scope:schedules(View, #{over => 200}),
    wait_until(fun() -> told(Tracer) > Before end).

traced(Events) ->
    receive
        {told, Whom} -> Whom ! {told, Events}, traced(Events);
        _ -> traced(Events + 1)
    end.

told(Tracer) ->
    Tracer ! {told, self()},
    receive {told, Events} -> Events end.

%% The caller is killed. Its tracer is removed, also from busy processes.
an_observer_that_dies(Config) ->
    {Peer, Node} = {?config(peer, Config), ?config(node, Config)},
    Busy = busy(Config, 100, 10),
    Observer = spawn(fun() ->
        weir_scope:schedules(weir_scope_distribution:view(Node), #{over => 60_000})
    end),
    wait_until(fun() -> weir_scope_distribution:call(Peer, weir_nif, schedules_begin, [0]) =:= {error, busy} end),
    exit(Observer, kill),
    ok = weir_scope:close(?config(view, Config)),
    wait_until(fun() -> weir_scope_distribution:call(Peer, erlang, trace_info, [Busy, flags]) =:= {flags, []} end),
    ?assert(weir_scope_distribution:call(Peer, erlang, is_process_alive, [Busy])),
    wait_until(fun() -> weir_scope_distribution:call(Peer, code, is_loaded, [weir_scope_schedules]) =:= false end).

one_at_a_time(Config) ->
    Peer = ?config(peer, Config),
    {ok, Session} = weir_scope_distribution:call(Peer, weir_nif, schedules_begin, [60_000]),
    ?assertEqual({error, busy}, weir_scope:schedules(?config(view, Config), #{})),
    {ok, []} = weir_scope_distribution:call(Peer, weir_nif, schedules_end, [Session]),
    ?assertMatch({ok, #{tracer := native}}, weir_scope:schedules(?config(view, Config), #{over => 10})).

ping_pong(Config) ->
    {ok, #{round_trips := Trips, in_2013 := 832_296}} = weir_scope:ping_pong(?config(view, Config), 100),
    ?assert(Trips > 0).

bad_options(Config) ->
    View = ?config(view, Config),
    [
        ?assertMatch({error, {bad_option, Key, Value, _}}, weir_scope:schedules(View, #{Key => Value}))
     || {Key, Value} <- [{over, 60_001}, {over, 9}, {over, x}, {tracer, dbg}, {processes, 0}, {other, 1}]
    ],
    [
        ?assertMatch({error, {bad_option, milliseconds, Value, _}}, weir_scope:ping_pong(View, Value))
     || Value <- [0, 10_001, x]
    ],
    Afar = weir_scope_distribution:view(?config(node, Config), false),
    ?assertEqual({error, {needs_load, schedules}}, weir_scope:schedules(Afar, #{})),
    ?assertEqual({error, {needs_load, ping_pong}}, weir_scope:ping_pong(Afar, 100)),
    ok = weir_scope:close(Afar).
