%% @doc Measures scheduling: how long a ready process waits for its turn, how long turns are, and how many messages two
%% processes exchange. A turn is the time from when a process is scheduled in until it is scheduled out. Each
%% measurement uses some time of the node's schedulers, and ends after the given time.
%%
%% <dl>
%% <dt>`ready'</dt><dd>for every scheduler: a process that is bound to it yields once a millisecond and measures how
%% long it takes until it runs again. Every ready process waits as long. It needs no tracer and takes a thousandth of a
%% scheduler.</dd>
%% <dt>`running', `between'</dt><dd>the length of turns, and the time from the end of a turn to the next turn on the
%% same scheduler, which the SystemTap script sch.stp measured in 2013. Both need a tracer. Where Weir's library is
%% loaded, the tracer is native code: at both ends of each turn it reads the clock and updates a histogram. Elsewhere
%% OTP's tracer sends a message at both ends, which takes ten times as long as an empty turn. So it traces only a few
%% processes, and ends after 200,000 messages.</dd>
%% </dl>
%% Both tracers also count migrations, turns on another scheduler than the turn before, which the VM does not count.
%% Before OTP 27, processes that another tracer traces are left out. From OTP 27 on, tracing has its own session and
%% leaves out no process.
-module(weir_scope_schedules).

-export([tracer/0]).
-export([measure/1]).
-export([ping_pong/1]).

%% Dialyzer: results are exit reasons here, and the types of OTP do not have the spawn option `{scheduler, Number}'.
-dialyzer({nowarn_function, [apart/1, measured/1, seen/1, ping_pong/1, ping/1]}).

-export_type([options/0, tracer/0, schedules/0, scheduler/0, histogram/0]).

-type options() :: #{over => 10..60_000, tracer => tracer(), processes => 1..100}.
%% `over' (1000): milliseconds. `tracer' (the best one of the node): `none' measures `ready' only. `processes' (10):
%% how many of the busiest processes OTP's tracer traces.

-type histogram() :: [{Nanoseconds :: pos_integer(), Count :: pos_integer()}].
%% `Count' times were from `Nanoseconds', a power of two, to twice that.

-type scheduler() :: #{
    scheduler := pos_integer(), ready := histogram(), running => histogram(), between => histogram()
}.

-type tracer() :: native | otp | none.

-type schedules() :: #{
    tracer := tracer(),
    events := non_neg_integer(),
    complete := boolean(),
    running := histogram(),
    migrations => non_neg_integer(),
    long := weir_scope_long:long(),
    schedulers := [scheduler()]
}.
%% `events': events of the tracer. `complete': whether it ran for the whole time. `running': turns on all schedulers;
%% the native tracer has them for each scheduler too. `migrations': turns whose process had its turn before on another
%% scheduler; absent without a tracer. `long': turns and garbage collections of 20 ms or more.

%% What OTP's tracer has reported: since when each process runs, the scheduler where each ran last, and a histogram of
%% turns.
-record(told, {
    running = #{} :: #{pid() => integer()},
    places = #{} :: #{pid() => pos_integer()},
    migrations = 0 :: non_neg_integer(),
    turns = #{} :: #{pos_integer() => pos_integer()}
}).

%% The maximum number of messages of OTP's tracer.
-define(MOST_EVENTS, 200_000).

%% Milliseconds to wait for the turn of a process that is bound to a scheduler. If it has none, its scheduler went
%% offline.
-define(PATIENCE, 5000).

%% Round trips per second of `ipctest' in 2013, on its author's machine.
-define(PING_PONG_2013, 832_296).

%% @doc Measures waits and turns. Returns `busy' if another measurement uses the native tracer.
-spec measure(options()) -> {ok, schedules()} | {error, busy | {bad_option, atom(), term(), term()}}.
measure(Options) ->
    case check(Options) of
        ok -> apart(fun() -> measured(maps:merge(#{over => 1000, processes => 10, tracer => tracer()}, Options)) end);
        {error, _} = Error -> Error
    end.

check(Options) ->
    Allowed = #{over => {between, 10, 60_000}, processes => {between, 1, 100}, tracer => {one_of, [native, otp, none]}},
    Wrong = fun
        (over, Value) -> not (is_integer(Value) andalso Value >= 10 andalso Value =< 60_000);
        (processes, Value) -> not (is_integer(Value) andalso Value >= 1 andalso Value =< 100);
        (tracer, native) -> tracer() =/= native;
        (tracer, Value) -> not lists:member(Value, [otp, none]);
        (_, _) -> true
    end,
    case [{Key, Value} || {Key, Value} <- maps:to_list(Options), Wrong(Key, Value)] of
        [] -> ok;
        [{Key, Value} | _] -> {error, {bad_option, Key, Value, maps:get(Key, Allowed, {one_of, maps:keys(Allowed)})}}
    end.

%% @doc Returns the best tracer of this node. An older Weir has no native tracer.
-spec tracer() -> native | otp.
tracer() ->
    case
        code:is_loaded(weir_nif) =/= false andalso erlang:function_exported(weir_nif, schedules_begin, 1) andalso
            weir_nif:available()
    of
        true -> native;
        false -> otp
    end.

%% Calls a fun in a process that ends with the caller. All that the fun has started ends with that process.
apart(Fun) ->
    {Pid, Monitor} = spawn_opt(fun() -> exit({measured, Fun()}) end, [
        monitor, {message_queue_data, off_heap}, {priority, high}
    ]),
    Guard = guard(self(), Pid),
    receive
        {'DOWN', Monitor, process, Pid, {measured, Result}} ->
            exit(Guard, kill),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            exit(Guard, kill),
            error(Reason)
    end.

guard(Caller, Pid) ->
    spawn(fun() ->
        Monitor = monitor(process, Caller),
        receive {'DOWN', Monitor, process, Caller, _} -> exit(Pid, kill) end
    end).

measured(#{over := Over, tracer := Tracer} = Options) ->
    Until = erlang:monotonic_time(millisecond) + Over,
    Watcher = self(),
    Probes = [
        {Scheduler, spawn_opt(fun() -> probe(Watcher, #{}) end, [link, {scheduler, Scheduler}])}
     || Scheduler <- lists:seq(1, erlang:system_info(schedulers_online))
    ],
    Long = spawn_opt(fun() -> long(Watcher) end, [link, {priority, high}]),
    receive {ready, Long} -> ok end,
    case traced(Tracer, Options, Until) of
        {ok, Traced, Turns} ->
            lists:foreach(fun(Pid) -> Pid ! enough end, [Long | [Probe || {_, Probe} <- Probes]]),
            {ok, Traced#{
                tracer => Tracer,
                long => receive {long, Long, Turned} -> Turned end,
                schedulers => [
                    (maps:get(Scheduler, Turns, #{}))#{scheduler => Scheduler, ready => sorted(seen(Probe))}
                 || {Scheduler, Probe} <- Probes
                ]
            }};
        {error, _} = Error ->
            Error
    end.

long(Watcher) ->
    Self = self(),
    Watcher ! {long, Self, weir_scope_long:watch(fun() -> Watcher ! {ready, Self} end)}.

%% Yields once a millisecond and records the time until it runs again: the processes before it in the run queue have
%% their turns first.
probe(Watcher, Histogram) ->
    receive
        enough -> Watcher ! {seen, self(), Histogram}
    after 1 ->
        Begin = erlang:monotonic_time(nanosecond),
        true = erlang:yield(),
        probe(Watcher, add(erlang:monotonic_time(nanosecond) - Begin, Histogram))
    end.

%% A probe on a scheduler that went offline does not answer.
seen(Probe) ->
    receive
        {seen, Probe, Histogram} -> Histogram
    after ?PATIENCE ->
        #{}
    end.

%% Adds a time to a histogram by powers of two.
add(Nanoseconds, Histogram) ->
    Power = power(max(1, Nanoseconds), 1),
    maps:update_with(Power, fun(Count) -> Count + 1 end, 1, Histogram).

power(Nanoseconds, Power) when Nanoseconds < 2 * Power -> Power;
power(Nanoseconds, Power) -> power(Nanoseconds, 2 * Power).

sorted(Histogram) -> lists:sort(maps:to_list(Histogram)).

traced(none, _Options, Until) ->
    wait_until(Until),
    {ok, #{events => 0, complete => true, running => []}, #{}};
traced(native, #{over := Over}, Until) ->
    case weir_nif:schedules_begin(Over + 1000) of
        {ok, Session} ->
            ok = keep(Session),
            End = begin_tracing({weir_nif, Session}, all, [running_procs]),
            wait_until(Until),
            ok = End(),
            {ok, Schedulers} = weir_nif:schedules_end(Session),
            Turns = [
                {Scheduler, #{between => powers(Between), running => powers(Running)}}
             || {Scheduler, Between, Running, _} <- Schedulers
            ],
            Traced = #{
                events => lists:sum([
                    Count
                 || {_, #{between := Between, running := Running}} <- Turns, {_, Count} <- Between ++ Running
                ]),
                complete => true,
                running => together([Running || {_, #{running := Running}} <- Turns]),
                migrations => lists:sum([Migrations || {_, _, _, Migrations} <- Schedulers])
            },
            {ok, Traced, maps:from_list(Turns)};
        {error, busy} = Busy ->
            Busy
    end;
traced(otp, #{processes := Most}, Until) ->
    Top = weir_scope_top:processes(#{most => Most, over => 100}),
    End = begin_tracing(self(), [Pid || #{pid := Pid} <- Top, Pid =/= self()], [
        running_procs, scheduler_id, monotonic_timestamp
    ]),
    {Events, #told{turns = Turns, migrations = Migrations}} = told(Until, 0, #told{}),
    ok = End(),
    {ok, #{events => Events, complete => Events < ?MOST_EVENTS, running => sorted(Turns), migrations => Migrations},
        #{}}.

together(Histograms) ->
    Add = fun({From, Count}, Known) -> maps:update_with(From, fun(Sum) -> Sum + Count end, Count, Known) end,
    sorted(lists:foldl(Add, #{}, lists:append(Histograms))).

%% Ends the native tracer if this process is killed, for example when the modules of a visit are removed. So the
%% process that does it runs none of these modules. From OTP 27 on the trace session has ended already, and
%% erlang:trace/3 with a tracer module would end the traces of all tracers.
-define(KEEPER, "
    Monitor = erlang:monitor(process, Tracing),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    weir_nif:schedules_end(Session),
    erlang:function_exported(trace, session_create, 3)
        orelse erlang:trace(all, false, [running_procs, {tracer, weir_nif, Session}]).
").

keep(Session) ->
    {ok, Tokens, _} = erl_scan:string(?KEEPER),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    _ = spawn(erl_eval, exprs, [Expressions, [{'Tracing', self()}, {'Session', Session}]]),
    ok.

powers(Counts) ->
    [{1 bsl Power, Count} || {Power, Count} <- lists:zip(lists:seq(0, length(Counts) - 1), Counts), Count > 0].

wait_until(Until) -> timer:sleep(max(0, Until - erlang:monotonic_time(millisecond))).

%% Begins tracing, from OTP 27 on in a session. Returns a fun that ends it. Before OTP 27 a process has one tracer:
%% `all' leaves traced processes out, and a single traced process is refused. No trace is left if this process dies:
%% the VM ends the traces of a dead tracer process, and a session without references. The native tracer is ended by the
%% keeper, and by itself after its time.
begin_tracing(Tracer, Whom, Flags) ->
    _ = code:ensure_loaded(trace),
    case erlang:function_exported(trace, session_create, 3) of
        true ->
            Session = apply(trace, session_create, [weir_scope, Tracer, []]),
            lists:foreach(fun(Pid) -> set_in(Session, Pid, Flags) end, each(Whom)),
            fun() -> _ = apply(trace, session_destroy, [Session]), ok end;
        false ->
            Option = case Tracer of {Module, State} -> {tracer, Module, State}; Pid -> {tracer, Pid} end,
            Set = fun(On) -> lists:foreach(fun(Pid) -> set(Pid, On, [Option | Flags]) end, each(Whom)) end,
            ok = Set(true),
            fun() -> Set(false) end
    end.

set_in(Session, Pid, Flags) ->
    try
        apply(trace, process, [Session, Pid, true, Flags])
    catch
        error:badarg -> 0
    end.

%% A process that has ended, or that another tracer traces, is left out.
set(Pid, On, Flags) ->
    try
        erlang:trace(Pid, On, Flags)
    catch
        error:badarg -> 0
    end.

each(all) -> [all];
each(Pids) -> Pids.

%% Receives the messages of OTP's tracer, until the time is over or there are enough.
told(_Until, ?MOST_EVENTS, Told) ->
    {?MOST_EVENTS, Told};
told(Until, Events, #told{running = Running, turns = Turns} = Told) ->
    receive
        {trace_ts, Pid, in, _, Scheduler, At} ->
            told(Until, Events + 1, runs(Pid, Scheduler, Told#told{running = Running#{Pid => At}}));
        {trace_ts, Pid, out, _, _, At} when is_map_key(Pid, Running) ->
            {Since, Others} = maps:take(Pid, Running),
            told(Until, Events + 1, Told#told{running = Others, turns = add(At - Since, Turns)});
        Event when element(1, Event) =:= trace_ts ->
            told(Until, Events + 1, Told)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
        {Events, Told}
    end.

runs(Pid, Scheduler, #told{places = Places, migrations = Migrations} = Told) ->
    case Places of
        #{Pid := Scheduler} -> Told;
        #{Pid := _Other} -> Told#told{places = Places#{Pid := Scheduler}, migrations = Migrations + 1};
        #{} -> Told#told{places = Places#{Pid => Scheduler}}
    end.

%% @doc Two processes on the first scheduler send a message to and fro for 1 to 10,000 milliseconds, and keep that
%% scheduler busy. Returns round trips per second as `ipctest' counted them, and its figure of 2013.
-spec ping_pong(Milliseconds :: 1..10_000) -> #{round_trips := float(), in_2013 := pos_integer()}.
ping_pong(Milliseconds) when Milliseconds >= 1, Milliseconds =< 10_000 ->
    #{round_trips => apart(fun() -> ping(Milliseconds) end), in_2013 => ?PING_PONG_2013}.

ping(Milliseconds) ->
    Watcher = self(),
    Pong = spawn_opt(fun pong/0, [link, {scheduler, 1}]),
    _ = spawn_opt(
        fun() ->
            Begin = erlang:monotonic_time(nanosecond),
            Trips = pings(Pong, Begin + Milliseconds * 1_000_000, 0),
            Watcher ! {trips, Trips * 1.0e9 / (erlang:monotonic_time(nanosecond) - Begin)}
        end,
        [link, {scheduler, 1}]
    ),
    receive {trips, Rate} -> Rate end.

%% The clock is read once for 100 round trips.
pings(Pong, Until, Trips) ->
    trips(Pong, 100),
    case erlang:monotonic_time(nanosecond) of
        Now when Now >= Until -> Trips + 100;
        _ -> pings(Pong, Until, Trips + 100)
    end.

trips(_Pong, 0) ->
    ok;
trips(Pong, Left) ->
    Pong ! self(),
    receive Pong -> trips(Pong, Left - 1) end.

pong() ->
    receive Ping -> Ping ! self() end,
    pong().
