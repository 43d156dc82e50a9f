%% Compares what is shown of a node with other sources, and checks that nothing stays there.
-module(weir_scope_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([
    all/0,
    groups/0,
    suite/0,
    init_per_group/2,
    end_per_group/2,
    init_per_suite/1,
    end_per_suite/1,
    init_per_testcase/2,
    end_per_testcase/2
]).
-export([who_sends_to_many/1, a_short_look_beside_a_long_one/1]).
-export([known_shares/1, bytes_of_sockets/1, top_processes/1, counts/1, microstates_put_back/1, history_grows/1]).
-export([
    allocators_by_another_way/1,
    pollsets_of_weir/1,
    bad_options/1,
    nothing_stays/1,
    an_observer_that_dies/1,
    a_node_that_dies/1
]).
-export([polls_by_strace/1, sockets_of_all_kinds/1]).

-import(weir_scope_test, [view/1, bring/2, next/1, traces/1]).
-import(weir_test_wait, [wait_until/1]).

-include("view_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, loaded}, {group, from_afar}, allocators_by_another_way, polls_by_strace].

groups() ->
    Both = [
        known_shares,
        bytes_of_sockets,
        sockets_of_all_kinds,
        top_processes,
        counts,
        microstates_put_back,
        a_short_look_beside_a_long_one,
        history_grows,
        pollsets_of_weir,
        who_sends_to_many,
        bad_options,
        nothing_stays,
        an_observer_that_dies,
        a_node_that_dies
    ],
    [{loaded, [parallel], Both}, {from_afar, [parallel], Both}].

init_per_group(loaded, Config) -> [{load, true} | Config];
init_per_group(from_afar, Config) -> [{load, false} | Config].

end_per_group(_Group, _Config) -> ok.

%% A process bound to the first scheduler is busy for 20, 50 and 90 % of half a second, and measures its busy time by
%% the clock. The VM must count at least as much, whatever else the machine does, and at most that of all processes
%% there, the sampler included.
known_shares(Config) ->
    bring(Config, weir_scope_load),
    View = view(Config),
    Clock = erlang:monotonic_time(microsecond),
    Before = on_first_scheduler(Config),
    {ok, #{at := Begin}} = weir_scope:sample(View),
    Busy = lists:sum([
        begin
            Pid = erlang:spawn_opt(?config(node, Config), weir_scope_load, busy_for, [self(), Share, 5], [
                {scheduler, 1}
            ]),
            receive
                {Pid, Us} -> Us / 1.0e6
            end
        end
     || Share <- [0.2, 0.5, 0.9]
    ]),
    {ok, _} = next(View),
    {ok, _} = next(View),
    {ok, [#{columns := Columns, rows := Rows}]} = weir_scope:history(View, second, Begin),
    [Index] = [
        Index
     || {Index, <<"scheduler.normal.1.utilisation">>} <- lists:zip(lists:seq(1, length(Columns)), Columns)
    ],
    Seen = lists:sum([lists:nth(Index, Row) * seconds(At, Begin, Rows) || {At, Row} <- Rows]),
    {Active, Total} = on_first_scheduler(Config),
    All =
        (Active - element(1, Before)) / (Total - element(2, Before)) * (erlang:monotonic_time(microsecond) - Clock) /
            1.0e6,
    ct:log("~p of ~p, and of ~p with what else ran there", [Seen, Busy, All]),
    ?assert(Busy > 0.75),
    ?assert(Seen > 0.9 * Busy - 0.1),
    ?assert(Seen < 1.1 * All + 0.1),
    ok = weir_scope:close(View).

on_first_scheduler(Config) ->
    Times = weir_scope_distribution:call(?config(peer, Config), erlang, statistics, [scheduler_wall_time]),
    {1, Active, Total} = lists:keyfind(1, 1, Times),
    {Active, Total}.

%% Samples until all bytes are seen: the number of sent bytes is known exactly.
bytes_of_sockets(Config) ->
    bring(Config, weir_scope_load),
    View = view(Config),
    {ok, #{at := Begin}} = weir_scope:sample(View),
    Sent = erpc:call(?config(node, Config), weir_scope_load, transfer, [10_000_000]),
    {ok, _} = next(View),
    {ok, _} = next(View),
    {ok, [#{columns := Columns, rows := Rows}]} = weir_scope:history(View, second, Begin),
    [Index] = [Index || {Index, <<"vm.bytes_in">>} <- lists:zip(lists:seq(1, length(Columns)), Columns)],
    Seen = lists:sum([lists:nth(Index, Row) * seconds(At, Begin, Rows) || {At, Row} <- Rows]),
    ct:log("~p of ~p", [Seen, Sent]),
    %% Other ports of the node, such as its connection to the tests, transfer some kilobytes. Times are whole
    %% milliseconds.
    ?assert(abs(Seen - Sent) < 0.05 * Sent),
    ok = weir_scope:close(View).

seconds(At, Begin, Rows) ->
    Earlier = lists:max([Begin | [Before || {Before, _} <- Rows, Before < At]]),
    (At - Earlier) / 1000.

sockets_of_all_kinds(Config) ->
    bring(Config, weir_scope_load),
    View = view(Config),
    Pid = erlang:spawn(?config(node, Config), weir_scope_load, chatter, [self(), [inet, socket]]),
    receive
        {Pid, ready} -> ok
    end,
    %% Sockets of distribution may be among them. On a busy machine nothing may be sent for a short time.
    {_, _, Sockets} = ?waitMatch({[port, socket], true, _}, begin
        {ok, Some} = weir_scope:sockets(View, #{by => out, over => 500, most => 10}),
        Sending = [
            {Kind, Owner}
         || #{kind := Kind, owner := Owner, local := {_, _}, peer := {_, _}, out := Out} <- Some, is_pid(Owner), Out > 0
        ],
        %% gen_tcp has a process for each `socket', which is its owner.
        {lists:usort([Kind || {Kind, _} <- Sending]), lists:member({port, Pid}, Sending), Some}
    end),
    Rates = [Out || #{out := Out} <- Sockets],
    ?assertEqual(lists:reverse(lists:sort(Rates)), Rates),
    ok = weir_scope:close(View).

top_processes(Config) ->
    bring(Config, weir_scope_load),
    Node = ?config(node, Config),
    View = view(Config),
    Busy = erlang:spawn(Node, weir_scope_load, busy, [1.0]),
    Full = erlang:spawn(Node, timer, sleep, [infinity]),
    [erlang:send(Full, message) || _ <- lists:seq(1, 5000)],
    Large = erlang:spawn(Node, weir_scope_load, hold, [self(), 1_000_000]),
    receive
        {Large, ready} -> ok
    end,
    {ok, [#{pid := First, reductions := Reductions, name := Name} | _]} = weir_scope:processes(View, #{over => 500}),
    ?assertEqual({Busy, {weir_scope_load, busy, 1}}, {First, Name}),
    ?assert(Reductions > 1000),
    ?assertMatch(
        {ok, [#{pid := Full, queue := 5000}]}, weir_scope:processes(View, #{by => queue, over => 10, most => 1})
    ),
    ?assertMatch(
        {ok, [#{pid := Large, memory := Memory}]} when Memory > 8_000_000,
        weir_scope:processes(View, #{by => memory, over => 10, most => 1})
    ),
    ok = weir_scope:close(View).

counts(Config) ->
    Node = ?config(node, Config),
    View = view(Config),
    Pids = [erlang:spawn(Node, timer, sleep, [infinity]) || _ <- lists:seq(1, 1000)],
    {ok, _} = next(View),
    {ok, #{activity := #{counts := #{processes := Processes}}, memory := Memory, node := Node}} = next(View),
    ?assert(
        abs(Processes - weir_scope_distribution:call(?config(peer, Config), erlang, system_info, [process_count])) < 20
    ),
    ?assert(Processes > length(Pids)),
    #{rss := Rss, carriers := Carriers, blocks := Blocks, kinds := #{total := Total}} = Memory,
    ?assert(Carriers >= Blocks),
    ?assert(abs(Blocks - Total) < Total div 2),
    {ok, Status} = file:read_file(
        "/proc/" ++ weir_scope_distribution:call(?config(peer, Config), os, getpid, []) ++ "/status"
    ),
    {match, [Kib]} = re:run(Status, "VmRSS:\\s*([0-9]+)", [{capture, all_but_first, list}]),
    ?assert(abs(Rss - list_to_integer(Kib) * 1024) < 0.2 * Rss),
    ok = weir_scope:close(View).

%% Microstate accounting is off or on afterwards as it was before, also if the observer dies.
microstates_put_back(Config) ->
    Node = ?config(node, Config),
    View = view(Config),
    Flag = fun() -> erpc:call(Node, erlang, system_flag, [microstate_accounting, false]) end,
    {ok, States} = weir_scope:microstates(View, 100),
    ?assertEqual(false, Flag()),
    [?assert(abs(1.0 - lists:sum(maps:values(Parts))) < 0.001) || #{type := scheduler, states := Parts} <- States],
    ?assertEqual(2, length([Id || #{type := scheduler, id := Id} <- States])),
    _ = erpc:call(Node, erlang, system_flag, [microstate_accounting, true]),
    {ok, _} = weir_scope:microstates(View, 100),
    ?assertEqual(true, Flag()),
    ok = weir_scope:close(View),
    Observer = spawn(fun() -> weir_scope:microstates(view(Config), 60_000) end),
    wait_until(fun() -> counts_microstates(Node) end),
    exit(Observer, kill),
    wait_until(fun() -> not counts_microstates(Node) end).

%% Each measurement has its own duration. The VM counts until the last one has ended.
a_short_look_beside_a_long_one(Config) ->
    Node = ?config(node, Config),
    View = view(Config),
    Long = spawn(fun() -> weir_scope:microstates(View, 60_000) end),
    wait_until(fun() -> counts_microstates(Node) end),
    ?assertMatch({ok, [_ | _]}, weir_scope:microstates(View, 50)),
    ?assert(counts_microstates(Node)),
    exit(Long, kill),
    ok = weir_scope:close(View),
    wait_until(fun() -> not counts_microstates(Node) end).

counts_microstates(Node) ->
    Sum = fun() ->
        lists:sum([
            Time
         || #{counters := Counters} <- erpc:call(Node, erlang, statistics, [microstate_accounting]),
            Time <- maps:values(Counters)
        ])
    end,
    Before = Sum(),
    Sum() =/= Before.

history_grows(Config) ->
    View = view(Config),
    {ok, #{at := First}} = weir_scope:sample(View),
    {ok, #{at := Second, over := Over}} = next(View),
    ?assert(Over > 0.4),
    {ok, [#{columns := Columns, rows := Rows}]} = weir_scope:history(View, second, 0),
    %% On a busy machine there may be another sample between them.
    Times = [At || {At, _} <- Rows],
    ?assertEqual([], [First, Second] -- Times),
    ?assertEqual(lists:usort(Times), Times),
    [?assertEqual(length(Columns), length(Row)) || {_, Row} <- Rows],
    ?assertEqual(lists:usort(Columns), lists:sort(Columns)),
    %% A minute is added when the next one begins.
    {ok, Minutes} = weir_scope:history(View, minute, 0),
    {ok, [#{rows := Seconds}]} = weir_scope:history(View, second, 0),
    ?assert(
        length([Row || #{rows := All} <- Minutes, Row <- All]) <
            length(lists:usort([At div 60_000 || {At, _} <- Seconds]))
    ),
    ok = weir_scope:close(View).

%% Compares with the VM's item `allocator' instead of `allocator_sizes', summed as in recon_alloc.
allocators_by_another_way(Config) ->
    Node = ?config(node, Config),
    Peer = ?config(peer, Config),
    View = view(Config),
    {ok, _} = next(View),
    {ok, #{memory := #{carriers := Carriers, blocks := Blocks}}} = weir_scope:sample(View),
    ok = weir_scope:close(View),
    Instances = [
        Kind
     || Name <- weir_scope_distribution:call(Peer, erlang, system_info, [alloc_util_allocators]),
        {instance, _, Items} <- weir_scope_distribution:call(Peer, erlang, system_info, [{allocator, Name}]),
        {Which, Kind} <- Items,
        lists:member(Which, [mbcs, mbcs_pool, sbcs])
    ],
    Current = fun(Key, Kind) -> case lists:keyfind(Key, 1, Kind) of false -> 0; Found -> element(2, Found) end end,
    OfCarriers = lists:sum([Current(carriers_size, Kind) || Kind <- Instances]),
    OfBlocks = lists:sum([Current(size, Sizes) || Kind <- Instances, {blocks, Types} <- Kind, {_, Sizes} <- Types]),
    ct:log("carriers ~p ~p, blocks ~p ~p of ~p", [Carriers, OfCarriers, Blocks, OfBlocks, Node]),
    %% They differ by the modules of the visit, and by other activity of the VM.
    ?assert(abs(Carriers - OfCarriers) < 0.15 * OfCarriers),
    ?assert(abs(Blocks - OfBlocks) < 0.15 * OfBlocks).

%% A registered process with a thousand links, and the doctor's facts about poll threads.
who_sends_to_many(Config) ->
    bring(Config, weir_scope_load),
    Crowd = erlang:spawn(?config(node, Config), weir_scope_load, crowd, [self(), 1000]),
    receive
        {Crowd, ready} -> ok
    after weir_test_wait:patience() -> ct:fail(no_crowd)
    end,
    true = weir_scope_distribution:call(?config(peer, Config), erlang, register, [rooms, Crowd]),
    {ok, Facts} = weir_scope_visit:facts(?config(node, Config), #{load => ?config(load, Config), over => 10}),
    #{
        broadcasters := Broadcasters,
        timed_receivers := [],
        scheduler_poll := _,
        run_queue := _,
        over := #{poller_cpu_ns := Pollers}
    } = Facts,
    ?assertEqual([{rooms, 1000, normal}], [Broadcaster || {rooms, _, _} = Broadcaster <- Broadcasters]),
    ?assertMatch([_ | _], maps:keys(Pollers)).

%% A known number of requests on a node with Weir: at least as many events and accepts are counted.
pollsets_of_weir(Config) ->
    Peer = ?config(peer, Config),
    bring(Config, weir_scope_load),
    {ok, #{weir := none}} = weir_scope:sample(Before = view(Config)),
    ok = weir_scope:close(Before),
    true = weir_scope_distribution:call(Peer, code, add_patha, [filename:dirname(code:which(weir))]),
    {ok, _} = weir_scope_distribution:call(Peer, application, ensure_all_started, [weir]),
    {ok, Port} = weir_scope_distribution:call(Peer, weir_scope_load, listen, []),
    View = view(Config),
    {ok, #{at := Begin}} = weir_scope:sample(View),
    ok = weir_scope_distribution:call(Peer, weir_scope_load, requests, [Port, 10, 100]),
    {ok, _} = next(View),
    {ok, #{weir := #{pollsets := Pollsets}}} = next(View),
    wait_until(fun() ->
        {ok, #{weir := #{listeners := Listeners}}} = weir_scope:sample(View),
        %% A sample has no rates of a listener that was not in the sample before.
        [Open || #{name := scope_test, port := Same, connections := Open} <- Listeners, Same =:= Port] =:= [0]
    end),
    [
        ?assertMatch(
            #{times := _, revents := _, min := Min, max := Max, avg := _, timeouts := _} when Min =< Max, Pollset
        )
     || Pollset <- Pollsets
    ],
    ?assertEqual(2, length([Number || #{pollset := Number} <- Pollsets, Number < 1025])),
    {ok, Series} = weir_scope:history(View, second, Begin),
    %% Ten connections and a thousand requests of 64 bytes: the bytes and accepts are known, the number of reads is
    %% not.
    ?assert(abs(total(Series, "bytes_in", Begin) - 64_000) < 6400),
    ?assert(abs(total(Series, "bytes_out", Begin) - 64_000) < 6400),
    ?assert(abs(total(Series, "accepts", Begin) - 10) < 1),
    ok = weir_scope:close(View).

%% Compares with strace(1) in the same seconds. The VM's poll sets call epoll_wait. Weir calls epoll_pwait, once for
%% each poll and once before each sleep. The counters are read outside of and within the time of strace: it must see at
%% least as many as the latter.
polls_by_strace(Config) ->
    case os:find_executable("strace") of
        false -> {skip, "no strace"};
        Strace -> polls_by(Strace, Config)
    end.

polls_by(Strace, Config) ->
    Peer = ?config(peer, Config),
    bring(Config, weir_scope_load),
    true = weir_scope_distribution:call(Peer, code, add_patha, [filename:dirname(code:which(weir))]),
    {ok, _} = weir_scope_distribution:call(Peer, application, ensure_all_started, [weir]),
    {ok, Port} = weir_scope_distribution:call(Peer, weir_scope_load, listen, []),
    View = view(Config),
    Pid = weir_scope_distribution:call(Peer, os, getpid, []),
    Outer = polls_and_sleeps(View),
    {Program, Arguments} = bound(Strace),
    Tracer = open_port({spawn_executable, Program}, [
        {args, Arguments ++ ["-c", "-f", "-e", "trace=epoll_pwait", "-p", Pid]},
        exit_status,
        stderr_to_stdout,
        {line, 200},
        binary
    ]),
    receive
        {Tracer, {data, {eol, Line}}} ->
            ct:log("~s", [Line]),
            Before = polls_and_sleeps(View),
            ok = weir_scope_load:requests(Port, 10, 50),
            After = polls_and_sleeps(View),
            {os_pid, TracerPid} = erlang:port_info(Tracer, os_pid),
            _ = os:cmd("kill -INT " ++ integer_to_list(TracerPid)),
            Calls = traced(Tracer),
            All = polls_and_sleeps(View) - Outer,
            ok = weir_scope:close(View),
            ct:log("~p polls and sleeps, ~p calls, ~p with those before and after", [After - Before, Calls, All]),
            ?assert(After - Before > 500),
            ?assert(Calls >= After - Before),
            %% A sleeping thread polls once more when strace attaches, and a thread that stands in for a poller without
            %% a processor polls without being counted. So this bound only detects a counter that misses every second
            %% poll.
            ?assert(Calls =< 2 * All + 100);
        {Tracer, {exit_status, _}} ->
            {skip, "strace may not look at processes here"}
    end.

%% Makes the program end with the virtual machine of the tests.
bound(Program) ->
    case os:find_executable("setpriv") of
        false -> {Program, []};
        Setpriv -> {Setpriv, ["--pdeathsig", "TERM", Program]}
    end.

polls_and_sleeps(View) ->
    {ok, _} = next(View),
    {ok, #{weir := #{pollsets := Pollsets}}} = next(View),
    lists:sum([Polls + Sleeps || #{totals := #{polls := Polls, sleeps := Sleeps}} <- Pollsets]).

%% Matches lines such as `100.00    1.200719         129      9297           epoll_pwait'.
traced(Tracer) ->
    receive
        {Tracer, {data, {eol, Line}}} ->
            case
                re:run(Line, "^ *[0-9.]+ +[0-9.]+ +[0-9]+ +([0-9]+) .*epoll_pwait$", [{capture, all_but_first, list}])
            of
                {match, [Calls]} -> list_to_integer(Calls);
                nomatch -> traced(Tracer)
            end
    after weir_test_wait:patience() -> ct:fail(no_summary)
    end.

total(Series, Key, Begin) ->
    lists:sum([
        lists:nth(Index, Row) * seconds(At, Begin, Rows)
     || #{columns := Columns, rows := Rows} <- Series,
        {At, Row} <- Rows,
        {Index, Column} <- lists:zip(lists:seq(1, length(Columns)), Columns),
        match =:= re:run(Column, "^pollset\\.[0-9]+\\." ++ Key ++ "$", [{capture, none}])
    ]).

bad_options(Config) ->
    View = view(Config),
    ?assertEqual(
        {error, {bad_option, by, size, {one_of, [binaries, collections, growth, memory, queue, reductions]}}},
        weir_scope:processes(View, #{by => size})
    ),
    ?assertEqual({error, {bad_option, most, 0, {between, 1, 1000}}}, weir_scope:sockets(View, #{most => 0})),
    ?assertEqual({error, {bad_option, over, 1, {between, 10, 60000}}}, weir_scope:processes(View, #{over => 1})),
    ?assertEqual({error, {bad_option, long, 1, {one_of, [by, most, over]}}}, weir_scope:processes(View, #{long => 1})),
    [
        ?assertEqual(
            {error, {bad_option, milliseconds, Wrong, {between, 1, 60000}}}, weir_scope:microstates(View, Wrong)
        )
     || Wrong <- [0, 60_001, 1.0]
    ],
    ok = weir_scope:close(View).

nothing_stays(Config) ->
    Before = traces(Config),
    View = view(Config),
    {ok, _} = weir_scope:sample(View),
    {ok, _} = weir_scope:processes(View, #{over => 10}),
    ok = weir_scope:close(View),
    wait_until(fun() -> traces(Config) =:= Before end).

an_observer_that_dies(Config) ->
    Before = traces(Config),
    Self = self(),
    Observer = spawn(fun() ->
        View = view(Config),
        {ok, _} = weir_scope:sample(View),
        Self ! looking,
        weir_scope:processes(View, #{over => 60_000})
    end),
    receive looking -> ok end,
    exit(Observer, kill),
    wait_until(fun() -> traces(Config) =:= Before end).

a_node_that_dies(Config) ->
    View = view(Config),
    {ok, _} = weir_scope:sample(View),
    peer:stop(?config(peer, Config)),
    Gone = {error, {no_connection, ?config(node, Config)}},
    wait_until(fun() -> weir_scope:sample(View) =:= Gone end),
    ?assertMatch({error, {no_connection, _}}, weir_scope:processes(View, #{})),
    ok = weir_scope:close(View),
    ?assertMatch(
        {error, {no_connection, _}},
        weir_scope:open(?config(node, Config), #{load => proplists:get_value(load, Config, true)})
    ).
