%% Visits of nodes without Weir: what is found there, and that nothing stays.
-module(weir_scope_visit_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    what_is_wrong_is_found/1,
    from_afar/1,
    nothing_stays/1,
    a_visitor_that_dies/1,
    what_was_there_stays/1,
    nobody_there/1
]).
-export([
    a_node_that_hangs/1,
    several_at_once/1,
    a_visit_that_is_ended_twice/1,
    ended_by_another_process/1,
    late_answers/1,
    this_node/1
]).

-import(weir_test_wait, [wait_until/1]).

-define(PATIENCE, (weir_test_wait:patience())).

-define(OURS, [list_to_atom(Ours) || {Ours, _, _} <- code:all_available(), lists:prefix("weir_scope", Ours)]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        what_is_wrong_is_found,
        from_afar,
        nothing_stays,
        a_visitor_that_dies,
        what_was_there_stays,
        nobody_there,
        a_node_that_hangs,
        several_at_once,
        a_visit_that_is_ended_twice,
        ended_by_another_process,
        late_answers,
        this_node
    ].

%% The nodes are reached by distribution, as the nodes of users are.
init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

%% A stock node.
init_per_testcase(Case, Config) ->
    %% Only these cases have a large port table: the VM walks through it for a list of ports, which takes seconds on a
    %% busy machine.
    Large = [Flag || Flag <- ["+Q", "16777216"], lists:member(Case, [what_is_wrong_is_found, from_afar])],
    {Peer, Node} = weir_scope_distribution:node(["+c", "false" | Large]),
    false = weir_scope_distribution:call(Peer, code, is_loaded, [weir_scope_facts]),
    non_existing = weir_scope_distribution:call(Peer, code, which, [weir_scope_facts]),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    catch peer:stop(?config(peer, Config)),
    ok.

what_is_wrong_is_found(Config) ->
    Peer = ?config(peer, Config),
    {ok, _} = weir_scope_distribution:call(Peer, gen_tcp, listen, [0, [{backlog, 7}]]),
    Slow = weir_scope_distribution:call(Peer, erlang, spawn, [timer, sleep, [infinity]]),
    [erlang:send(Slow, message) || _ <- lists:seq(1, 12000)],
    {ok, #{findings := Findings} = Report} = weir_scope_doctor:examine(?config(node, Config), #{
        patience => ?PATIENCE, over => 100
    }),
    Found = [{Rule, Severity} || #{rule := Rule, severity := Severity} <- Findings],
    ct:log("~ts", [weir_scope_doctor:text(Report)]),
    ?assertEqual([], [{time_correction_off, warning}, {large_port_table, warning}, {long_queue, critical}] -- Found),
    ?assertEqual(critical, weir_scope_doctor:worst(Report)),
    #{unknown := Unknown} = Report,
    ?assertEqual(undefined, proplists:get_value(busy_waiting, Unknown)).

%% Without modules on the node the doctor finds the same.
from_afar(Config) ->
    Node = ?config(node, Config),
    {ok, #{findings := Findings, unknown := Unknown}} = weir_scope_doctor:examine(Node, #{
        patience => ?PATIENCE, over => 100, load => false
    }),
    Found = [Rule || #{rule := Rule} <- Findings],
    ?assertEqual([], [time_correction_off, large_port_table] -- Found),
    ?assertEqual(undefined, proplists:get_value(busy_waiting, Unknown)),
    %% The VM resets the flag when the process that has set it ends, which is a moment after the answer.
    wait_until(fun() ->
        weir_scope_distribution:call(?config(peer, Config), erlang, statistics, [scheduler_wall_time]) =:= undefined
    end),
    nothing_of_ours(Config).

nothing_stays(Config) ->
    Peer = ?config(peer, Config),
    Before = lists:sort(weir_scope_distribution:call(Peer, erlang, processes, [])),
    {ok, _} = weir_scope_visit:facts(?config(node, Config), #{patience => ?PATIENCE, over => 100}),
    nothing_of_ours(Config),
    %% Distribution itself has new processes.
    New = lists:sort(weir_scope_distribution:call(Peer, erlang, processes, [])) -- Before,
    Functions = [weir_scope_distribution:call(Peer, erlang, process_info, [Pid, current_function]) || Pid <- New],
    ?assertEqual([], [Function || {_, {Module, _, _}} = Function <- Functions, lists:member(Module, ?OURS)]),
    wait_until(
        fun() -> weir_scope_distribution:call(Peer, erlang, statistics, [scheduler_wall_time]) =:= undefined end
    ).

a_visitor_that_dies(Config) ->
    Node = ?config(node, Config),
    Visitor = spawn(fun() -> weir_scope_visit:facts(Node, #{patience => ?PATIENCE, over => 60_000}) end),
    wait_until(fun() ->
        weir_scope_distribution:call(?config(peer, Config), code, is_loaded, [weir_scope_processes]) =/= false
    end),
    exit(Visitor, kill),
    nothing_of_ours(Config).

%% Modules that were loaded before the visit stay.
what_was_there_stays(Config) ->
    Peer = ?config(peer, Config),
    {module, _} = weir_scope_distribution:call(Peer, code, load_binary, load(weir_scope_vm)),
    {ok, _} = weir_scope_visit:facts(?config(node, Config), #{patience => ?PATIENCE, over => 100}),
    wait_until(fun() -> loaded(Config) =:= [weir_scope_vm] end).

load(Module) ->
    {Module, Beam, File} = code:get_object_code(Module),
    [Module, File, Beam].

nobody_there(_Config) ->
    Node = 'nobody@127.0.0.1',
    ?assertEqual({error, {no_connection, Node}}, weir_scope_visit:facts(Node, #{})),
    ?assertEqual({error, {no_connection, Node}}, weir_scope_visit:facts(Node, #{load => false})).

%% A stopped node, like one that swaps or hangs in native code.
a_node_that_hangs(Config) ->
    Node = ?config(node, Config),
    Pid = weir_scope_distribution:call(?config(peer, Config), os, getpid, []),
    {ok, _} = weir_scope_visit:facts(Node, #{patience => ?PATIENCE, over => 10}),
    _ = os:cmd("kill -STOP " ++ Pid),
    try
        ?assertEqual({error, {timeout, Node}}, weir_scope_visit:facts(Node, #{patience => 500, over => 10}))
    after
        os:cmd("kill -CONT " ++ Pid)
    end.

%% Several visits begin at once, repeatedly: one loads the modules that the others use, and the modules go with the
%% last visit.
several_at_once(Config) ->
    Node = ?config(node, Config),
    Self = self(),
    [
        begin
            _ = [
                spawn_link(fun() ->
                    Self ! {visited, weir_scope_visit:facts(Node, #{patience => ?PATIENCE, over => Over})}
                end)
             || Over <- [50, 10, 30, 10]
            ],
            [
                receive
                    {visited, Visited} -> ?assertMatch({ok, _}, Visited)
                end
             || _ <- [1, 2, 3, 4]
            ],
            nothing_of_ours(Config)
        end
     || _ <- [1, 2, 3]
    ].

%% The other visit of the same process goes on.
a_visit_that_is_ended_twice(Config) ->
    Node = ?config(node, Config),
    {ok, First} = weir_scope_visit:begin_visit(Node, #{patience => ?PATIENCE}),
    {ok, Second} = weir_scope_visit:begin_visit(Node, #{patience => ?PATIENCE}),
    ok = weir_scope_visit:end_visit(First),
    ok = weir_scope_visit:end_visit(First),
    ?assertMatch({ok, [_ | _]}, weir_scope_visit:call(Second, weir_scope_clocks, costs, [], 1000)),
    ok = weir_scope_visit:end_visit(Second),
    ok = weir_scope_visit:end_visit(Second),
    nothing_of_ours(Config).

ended_by_another_process(Config) ->
    Node = ?config(node, Config),
    {ok, Visit} = weir_scope_visit:begin_visit(Node, #{patience => ?PATIENCE}),
    {Other, Monitor} = spawn_monitor(fun() -> exit(weir_scope_visit:end_visit(Visit)) end),
    receive {'DOWN', Monitor, process, Other, Reason} -> ?assertEqual(ok, Reason) end,
    ?assertEqual([], loaded(Config)).

%% A late answer of the node does not stay in the caller's mailbox.
late_answers(Config) ->
    pong = net_adm:ping(?config(node, Config)),
    Ask = weir_scope_remote:ask({?config(node, Config), 5000}),
    Gate = spawn_link(fun gate/0),
    ?assertError({erpc, timeout}, Ask(gen_server, call, [Gate, open, infinity])),
    Gate ! enough,
    %% The node answers in order, so the late answer came before this one.
    ?assertEqual(?config(node, Config), Ask(erlang, node, [])),
    weir_test_wait:assert_no_message().

%% Answers a call only after the message `enough'.
gate() ->
    receive enough -> receive {'$gen_call', From, open} -> gen_server:reply(From, opened) end end.

this_node(_Config) ->
    {ok, Facts} = weir_scope_visit:facts(node(), #{patience => ?PATIENCE, over => 50}),
    #{
        over := #{ns := Ns, scheduler_busy_ns := Busy, scheduler_cpu_ns := _},
        rss := Rss,
        memory := #{total := Total},
        carriers := Carriers,
        blocks := Blocks
    } = Facts,
    ?assert(Ns >= 50_000_000),
    ?assert(Busy > 0),
    %% Resident memory, carriers and blocks: each contains the next.
    ?assert(Carriers >= Blocks),
    ?assert(abs(Blocks - Total) < Total div 2),
    ?assert(Rss > Blocks div 2).

nothing_of_ours(Config) ->
    wait_until(fun() -> loaded(Config) =:= [] end).

loaded(Config) ->
    [
        Module
     || Module <- ?OURS, weir_scope_distribution:call(?config(peer, Config), code, is_loaded, [Module]) =/= false
    ].
