%% @doc Measures the cost of monitoring a node with many processes and sockets. The node runs in its own emulator with
%% one scheduler, and the monitoring tool runs inside it. The node measures the CPU time of its own threads as the
%% kernel counts it.
-module(weir_bench_node).

-export([looks/0]).
-export([measure/2]).
-export([main/0]).

-export_type([looks/0]).

%% Monitoring tools. `nobody' and `messages' are baselines for the tracer.
-type looks() :: weir_scope | recon | observer_cli | nobody | messages.

%% Milliseconds for starting the node and filling it.
-define(MARGIN, 120000).

%% @doc Returns the names of the tools.
-spec looks() -> [looks()].
looks() -> [weir_scope, recon, observer_cli, nobody, messages].

%% @doc Measures in a new node. The load of the run selects the measurement: see {@link main/0}.
-spec measure(weir_bench_scenario:run(), weir_bench_machine:pin()) ->
    {ok, weir_bench_sample:sample()} | {error, binary()}.
measure(#{load := Load, looks := Looks, warmup := Warmup, duration := Duration} = Run, Pin) ->
    Settings = (maps:with([processes, connections, of_sockets, size], Run))#{
        load => Load, looks => Looks, warmup => Warmup, duration => Duration
    },
    Program = weir_bench_program:start(
        Pin ++ ["erl", "-noinput", "+S", "1", "+P", "1048576"] ++
            ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "-pa"] ++ paths() ++
            ["-s", atom_to_list(?MODULE), "main", "-extra", lists:flatten(io_lib:format("~0tp.", [Settings]))],
        [{Name, false} || Name <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]]
    ),
    case weir_bench_program:await_exit(Program, Warmup + 3 * Duration + ?MARGIN) of
        {ok, Output} ->
            told(weir_bench_driver:report(Output));
        {error, Failure} ->
            ok = weir_bench_program:stop(Program),
            {error, <<"node ", (weir_bench_program:explain(Failure))/binary>>}
    end.

told({ok, Metrics}) ->
    {ok, #{
        metrics => maps:from_list([{binary_to_existing_atom(Name), Value} || {Name, Value} <- maps:to_list(Metrics)]),
        errors => 0
    }};
told({error, _} = Error) ->
    Error.

%% Code paths outside OTP.
paths() -> [Path || Path <- code:get_path(), Path =/= ".", string:prefix(Path, code:lib_dir()) =:= nomatch].

%% @doc The node's part: prints metrics as JSON and halts. The setting `load' is one of
%% <dl>
%% <dt>`sampler'</dt><dd>the CPU time a second of a tool that samples once a second</dd>
%% <dt>`top'</dt><dd>the CPU time of one table of the busiest processes or sockets, and the longest time that it kept
%% another process waiting</dd>
%% <dt>`tracer'</dt><dd>messages that two processes exchange while their schedules are traced</dd>
%% <dt>`history'</dt><dd>the memory of ten minutes and of a day</dd>
%% </dl>
-spec main() -> no_return().
main() ->
    Status =
        try
            [Text] = init:get_plain_arguments(),
            {ok, Tokens, _} = erl_scan:string(Text),
            {ok, Settings} = erl_parse:parse_term(Tokens),
            %% The JSON must be on one line.
            io:format("~ts~n", [string:replace(weir_json:encode(run(Settings)), "\n", " ", all)]),
            0
        catch
            Class:Reason:Stack ->
                io:format("~0tp~n", [{Class, Reason, Stack}]),
                1
        end,
    halt(Status).

run(#{
    load := sampler,
    looks := Looks,
    processes := Processes,
    connections := Sockets,
    warmup := Warmup,
    duration := Duration
}) ->
    _ = hold(Processes, Sockets, Looks),
    ok = timer:sleep(Warmup),
    Alone = cpu_while(fun() -> timer:sleep(Duration) end),
    ok = weir_bench_looker:begin_looking(Looks),
    ok = timer:sleep(Warmup),
    LookedAt = cpu_while(fun() -> timer:sleep(Duration) end),
    %% Microseconds in a millisecond are milliseconds in a second.
    #{cpu_ms_per_s => max(0, LookedAt - Alone) / Duration};
run(#{load := top, looks := Looks, processes := Processes, connections := Sockets} = Settings) ->
    _ = hold(Processes, Sockets, Looks),
    Of =
        case Settings of
            #{of_sockets := true} -> sockets;
            #{} -> processes
        end,
    Top = fun() -> weir_bench_looker:top(Looks, Of) end,
    %% The first call loads modules.
    _ = Top(),
    Cpu = cpu_while(Top),
    %% The shortest of three: it excludes waits caused by other processes of the machine.
    #{cpu_ms => Cpu / 1000, max_us => lists:min([longest_wait(Top) || _ <- [1, 2, 3]])};
run(#{load := tracer, looks := Looks, warmup := Warmup, duration := Duration}) ->
    {ok, _} = application:ensure_all_started(weir),
    ok = weir_bench_looker:begin_tracing(Looks, Warmup + Duration),
    ok = timer:sleep(Warmup div 2),
    #{round_trips := Trips} = weir_scope_schedules:ping_pong(Duration),
    #{requests_per_s => Trips};
run(#{load := history, looks := weir_scope} = Settings) ->
    {ok, _} = application:ensure_all_started(weir),
    Numbers = with_more(weir_bench_looker:numbers(), Settings),
    {module, _} = code:ensure_loaded(weir_scope_history),
    true = erlang:garbage_collect(),
    Before = erlang:memory(total),
    Histories = spawn_link(fun() -> remember(Numbers) end),
    Histories ! {is_full, self()},
    receive
        full -> ok
    end,
    #{memory_kib => (erlang:memory(total) - Before) / 1024}.

%% Adds columns as a node with more schedulers, allocators and listeners has them.
with_more(Numbers, #{size := Columns}) ->
    Numbers ++
        [{<<"more.", (integer_to_binary(Number))/binary>>, 0.5} || Number <- lists:seq(length(Numbers) + 1, Columns)];
with_more(Numbers, _) ->
    Numbers.

%% A day with a row a minute, then ten minutes with a row a second.
remember(Numbers) ->
    Day = 24 * 60,
    Minutes = [Minute * 60_000 || Minute <- lists:seq(1, Day)],
    Seconds = [Day * 60_000 + Second * 1000 || Second <- lists:seq(1, 600)],
    History = lists:foldl(
        fun(At, History) -> weir_scope_history:add(At, Numbers, History) end,
        weir_scope_history:new(),
        Minutes ++ Seconds
    ),
    true = erlang:garbage_collect(),
    receive
        {is_full, Asker} -> Asker ! full
    end,
    %% Keeps the table alive: this process owns it.
    receive
        {is_full, _} -> History
    end.

%% Idle processes, and sockets in pairs: Weir's, or gen_tcp's for tools that know no others.
hold(Processes, Sockets, Looks) ->
    _ = [spawn_link(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, Processes)],
    Options = [{tcp_module, weir_tcp} || Looks =:= weir_scope] ++ [binary, {active, false}, {ip, {127, 0, 0, 1}}],
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listener} = gen_tcp:listen(0, Options),
    {ok, Port} = inet:port(Listener),
    [pair(Listener, Port, Options) || _ <- lists:seq(1, Sockets div 2)].

pair(Listener, Port, Options) ->
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, lists:keydelete(ip, 1, Options)),
    {ok, Server} = gen_tcp:accept(Listener),
    {Client, Server}.

%% CPU time in microseconds.
cpu_while(Fun) ->
    Before = cpu(),
    _ = Fun(),
    After = cpu(),
    maps:fold(fun(Thread, Ns, Sum) -> Sum + Ns - maps:get(Thread, Before, 0) end, 0, After) / 1000.

%% CPU time in nanoseconds by thread (proc(5), schedstat).
cpu() ->
    {ok, Threads} = file:list_dir("/proc/self/task"),
    maps:from_list([
        {Thread, binary_to_integer(hd(binary:split(Stat, <<" ">>)))}
     || Thread <- Threads, {ok, Stat} <- [file:read_file(["/proc/self/task/", Thread, "/schedstat"])]
    ]).

%% The longest time, in microseconds, that another process of normal priority waited for the only scheduler.
longest_wait(Fun) ->
    Self = self(),
    Waiter = spawn_link(fun() -> waits(Self, erlang:monotonic_time(microsecond), 0) end),
    _ = Fun(),
    Waiter ! enough,
    receive {waited, Waiter, Longest} -> Longest end.

waits(Whom, Since, Longest) ->
    receive
        enough -> Whom ! {waited, self(), Longest}
    after 0 ->
        true = erlang:yield(),
        Now = erlang:monotonic_time(microsecond),
        waits(Whom, Now, max(Longest, Now - Since))
    end.
