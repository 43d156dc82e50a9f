%% Failures on purpose: samples that fail, nodes that hang, and large nodes.
-module(weir_scope_misfortune_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    samples_that_fail/1,
    no_sample_ever/1,
    no_sample_from_afar/1,
    a_recording_is_kept/1,
    a_node_that_loads_nothing/1,
    a_visitor_that_never_comes/1
]).
-export([a_large_dictionary/1, a_large_node/1]).
-export([ask/1]).

-import(weir_scope_distribution, [bring/2, application/2, load/3]).
-import(weir_test_wait, [wait_until/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        samples_that_fail,
        no_sample_ever,
        no_sample_from_afar,
        a_recording_is_kept,
        a_node_that_loads_nothing,
        a_visitor_that_never_comes,
        a_large_dictionary,
        a_large_node
    ].

init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope_misfortune")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

%% A node with as many descriptors as the system allows, up to 32,768.
init_per_testcase(_Case, Config) ->
    Shell = "ulimit -n 32768 2>/dev/null || ulimit -n $(ulimit -Hn); exec \"$@\"",
    {Peer, Node} = weir_scope_distribution:node(["+S", "2", "+P", "300000", "+Q", "65536"], #{
        exec => {"/bin/sh", ["-c", Shell, "sh", os:find_executable("erl")]}
    }),
    _ = bring(Peer, weir_scope_load),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    catch peer:stop(?config(peer, Config)),
    ok.

%% A module of the application, replaced by one that fails.
broken() ->
    Forms = [
        begin
            {ok, Tokens, _} = erl_scan:string(Text),
            {ok, Form} = erl_parse:parse_form(Tokens),
            Form
        end
     || Text <- [
            "-module(weir_scope_machine).",
            "-export([open/1, read/2, between/3]).",
            "open(_) -> none.",
            "read(_, _) -> error(on_purpose).",
            "between(_, _, _) -> #{}."
        ]
    ],
    {ok, Module, Beam} = compile:forms(Forms),
    {Module, Beam}.

break(Peer) ->
    {Module, Beam} = broken(),
    {module, Module} = weir_scope_distribution:call(Peer, code, load_binary, [Module, "broken", Beam]).

%% The release goes on, reports the reason, tries again at growing intervals, and samples again as soon as it can.
samples_that_fail(Config) ->
    Peer = ?config(peer, Config),
    _ = application(Peer, weir_scope),
    Sampler = weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_sampler]),
    Latest = fun() -> weir_scope_distribution:call(Peer, weir_scope_sampler, latest, [weir_scope_sampler]) end,
    #{at := Before} = Latest(),
    ?assertEqual(error, maps:find(failures, Latest())),
    _ = break(Peer),
    wait_until(fun() -> is_map_key(failing, Latest()) end),
    #{failing := Why, failures := First, at := At} = Sample = Latest(),
    ?assertNotEqual(nomatch, string:find(Why, "on_purpose")),
    ?assert(At >= Before),
    Metrics = unicode:characters_to_binary(weir_scope_metrics:text(Sample)),
    ?assertNotEqual(nomatch, string:find(Metrics, ["beam_scope_failures_total ", integer_to_list(First), "\n"])),
    [{text, [Told, Why, ""]} | _] = weir_scope_page:page(overview, #{sample => Sample}, []),
    ?assertNotEqual(nomatch, string:find(Told, "samples have failed")),
    wait_until(fun() -> maps:get(failures, Latest()) > First end),
    ?assertMatch(#{at := At}, Latest()),
    ?assertEqual(Sampler, weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_sampler])),
    _ = weir_scope_distribution:call(Peer, code, purge, [weir_scope_machine]),
    {module, _} = weir_scope_distribution:call(Peer, code, load_file, [weir_scope_machine]),
    wait_until(fun() -> not is_map_key(failing, Latest()) end),
    #{failures := Failures, at := Again} = Latest(),
    ?assert(Failures > First andalso Again > At),
    ?assertEqual(Sampler, weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_sampler])),
    ?assertEqual([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000], [
        weir_scope_sampler:pause(Streak)
     || Streak <- [0, 1, 2, 3, 4, 5, 6, 1000]
    ]).

%% The node starts all the same, and views get the reason.
no_sample_ever(Config) ->
    {Peer, Node} = {?config(peer, Config), ?config(node, Config)},
    _ = break(Peer),
    _ = application(Peer, weir_scope),
    View = weir_scope_distribution:view(Node),
    wait_until(fun() -> element(1, weir_scope:sample(View)) =:= error end),
    {error, {not_sampled, Node, Why} = Reason} = weir_scope:sample(View),
    ?assertNotEqual(nomatch, string:find(Why, "on_purpose")),
    ?assertNotEqual(nomatch, string:find(weir_scope_feed:explain(Reason), "cannot be sampled")),
    ?assertEqual({ok, []}, weir_scope:history(View, second, 0)),
    ok = weir_scope:close(View).

%% A fun that asks this node as if it were another one, and fails for one item.
ask(Broken) ->
    fun
        (erlang, statistics, [Item]) when Item =:= Broken -> error(badarg);
        (Module, Function, Arguments) -> apply(Module, Function, Arguments)
    end.

no_sample_from_afar(_Config) ->
    Sampler = weir_scope_sampler:from_afar(?MODULE, context_switches),
    ?assertExit({not_sampled, _}, weir_scope_sampler:latest(Sampler)),
    ?assert(is_process_alive(Sampler)),
    ok = gen_server:stop(Sampler).

%% The node is gone before its first sample, so the existing file is kept.
a_recording_is_kept(Config) ->
    File = filename:join(?config(priv_dir, Config), "before.jsonl"),
    ok = file:write_file(File, "what was recorded before\n"),
    View = weir_scope_distribution:view(?config(node, Config), false),
    ok = peer:stop(?config(peer, Config)),
    ?assertMatch(
        {error, {no_connection, _}}, weir_scope_recording:record({?config(node, Config), View}, File, #{seconds => 1})
    ),
    ?assertEqual({ok, <<"what was recorded before\n">>}, file:read_file(File)),
    ok = weir_scope:close(View).

%% The node's code server hangs, as on a slow disk. Nothing stays of an abandoned visit.
a_node_that_loads_nothing(Config) ->
    Node = ?config(node, Config),
    Hangs = code_server_hangs(Node),
    ?assertEqual({error, {timeout, Node}}, weir_scope:open(Node, #{patience => 500})),
    View = weir_scope_distribution:view(Node, false),
    ?assertMatch({ok, #{node := Node}}, weir_scope:sample(View)),
    ok = weir_scope:close(View),
    Hangs ! enough,
    nothing_stays(Config),
    Next = weir_scope_distribution:view(Node),
    ok = weir_scope:close(Next),
    nothing_stays(Config).

%% Loads the modules of OTP that a visit needs, and then suspends the code server.
code_server_hangs(Node) ->
    [
        begin
            View = weir_scope_distribution:view(Node, Load),
            {ok, _} = weir_scope:sample(View),
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ],
    load(Node, suspend, [code_server]).

nothing_stays(Config) ->
    Call = fun(Module, Function, Arguments) ->
        weir_scope_distribution:call(?config(peer, Config), Module, Function, Arguments)
    end,
    wait_until(fun() ->
        Call(erlang, whereis, [weir_scope_guest]) =:= undefined andalso
            [
                Module
             || {Module, _} <- Call(code, all_loaded, []),
                lists:prefix("weir_scope", atom_to_list(Module)),
                Module =/= weir_scope_load
            ] =:= []
    end).

%% The visitor that has started the guest is gone before the guest runs.
a_visitor_that_never_comes(Config) ->
    {Peer, Node} = {?config(peer, Config), ?config(node, Config)},
    Hangs = code_server_hangs(Node),
    Visitor = spawn(fun() -> weir_scope:open(Node, #{}) end),
    wait_until(fun() -> is_pid(weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_guest])) end),
    exit(Visitor, kill),
    Hangs ! enough,
    nothing_stays(Config).

%% Reading the name of a process does not copy its whole dictionary.
a_large_dictionary(Config) ->
    Node = ?config(node, Config),
    Self = self(),
    Ask = fun
        (erlang, process_info, [Pid, dictionary] = Arguments) ->
            Self ! {copied, Pid},
            erpc:call(Node, erlang, process_info, Arguments);
        (Module, Function, Arguments) ->
            try erpc:call(Node, Module, Function, Arguments)
            catch error:{exception, Reason, _} -> error(Reason)
            end
    end,
    Large = load(Node, dictionary, [100_000]),
    ?assertMatch(#{name := _}, weir_scope_process:name(Ask, Large)),
    receive {copied, Large} -> ct:fail(copied) after 0 -> ok end,
    %% A process that proc_lib has started has the name of its initial call.
    Supervisor = erpc:call(Node, erlang, whereis, [logger_std_h_default]),
    ?assertMatch(#{name := _}, weir_scope_process:name(Ask, Supervisor)),
    Small = load(Node, small, []),
    ?assertMatch(#{name := {weir_scope_load, small, 1}, label := somebody}, weir_scope_process:name(Ask, Small)),
    exit(Small, kill),
    wait_until(fun() -> weir_scope_process:name(Ask, Small) =:= gone end).

%% 50,000 processes, 4,000 sockets or as many as the limit allows, and a queue of 100,000 messages.
a_large_node(Config) ->
    {Peer, Node} = {?config(peer, Config), ?config(node, Config)},
    Limit = list_to_integer(string:trim(weir_scope_distribution:call(Peer, os, cmd, ["ulimit -n"]))),
    Connections = min(2000, (Limit - 500) div 2),
    _ = load(Node, sockets, [Connections]),
    _ = load(Node, crowd, [50_000]),
    Full = erlang:spawn(Node, timer, sleep, [infinity]),
    _ = [Full ! message || _ <- lists:seq(1, 100_000)],
    Talks = load(Node, chatter, [[inet]]),
    View = weir_scope_distribution:view(Node),
    {ok, #{activity := #{counts := #{processes := Processes, ports := Ports}}}} = weir_scope:sample(View),
    ?assert(Processes > 50_000),
    ?assert(Ports > 2 * Connections),
    ct:log("~p processes, ~p ports, ~p", [Processes, Ports, maps:get(cost, weir_scope_distribution:next(View), none)]),
    ct:log("processes"),
    {ok, [#{pid := Full, queue := 100_000}]} = weir_scope:processes(View, #{by => queue, most => 1, over => 10}),
    ct:log("sockets"),
    {ok, [#{owner := Talks} | _]} = weir_scope:sockets(View, #{most => 3, over => 100}),
    ct:log("doctor"),
    {ok, #{findings := Findings}} = weir_scope_doctor:examine(Node, #{
        patience => weir_test_wait:patience(), over => 100
    }),
    ct:log("doctor from afar"),
    ?assertMatch([#{severity := critical}], [Finding || #{rule := long_queue} = Finding <- Findings]),
    ok = weir_scope:close(View),
    %% Without modules there, the report lists the rules that could not be checked.
    {ok, #{unknown := Unknown}} = weir_scope_doctor:examine(Node, #{
        patience => weir_test_wait:patience(), over => 100, load => false
    }),
    ?assertMatch({_, [queues]}, lists:keyfind(long_queue, 1, Unknown)).
