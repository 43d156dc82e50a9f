%% @doc Samples the schedulers: utilisation by the VM's count, CPU time of the thread by the kernel's count, time that
%% the thread waited for a processor, and the length of the run queue.
%%
%% If a thread uses far more CPU time than its scheduler is busy, the scheduler looks for work (busy waiting). If a
%% thread waits, it is throttled, or shares the processor with other programs.
-module(weir_scope_schedulers).

-export([open/1]).
-export([read/2]).
-export([between/3]).

-export_type([sources/0, reading/0, scheduler/0, thread/0]).

-type kind() :: normal | dirty_cpu | dirty_io.

-opaque sources() :: [{{kind() | other, pos_integer() | binary()}, weir_scope_files:source()}].

-opaque reading() :: #{
    walls := [{kind(), pos_integer(), Busy :: integer(), All :: integer()}],
    threads := #{
        {kind() | other, pos_integer() | binary()} => {Cpu :: integer(), Waited :: integer(), Turns :: integer()}
    },
    queues := [non_neg_integer()]
}.

-type scheduler() :: #{
    kind := kind(),
    number := pos_integer(),
    utilisation := float(),
    run_queue => non_neg_integer(),
    cpu => float(),
    waited => float()
}.
%% `utilisation': the fraction of the time in which it ran something, 0 to 1. `cpu', `waited': the fractions in which
%% its thread was on a processor, and was ready but had none (Linux only). `run_queue': only for normal schedulers.

-type thread() :: #{name := binary(), cpu := float(), waited := float(), turns := float()}.
%% A thread that is not a scheduler: pollers, `aux', `async', and threads of native code. `turns': how often per second
%% it got a processor. Threads of a kind, such as `async_1' and `async_2', are separate.

%% The maximum number of threads. They are looked up once, because the VM starts its threads at boot.
-define(MOST_THREADS, 512).

%% @doc Finds the threads of the node, and turns `scheduler_wall_time' on. That stays on while the process lives that
%% makes the calls on the node.
-spec open(weir_scope_facts:ask()) -> sources().
open(Ask) ->
    _ = Ask(erlang, system_flag, [scheduler_wall_time, true]),
    case weir_scope_files:names(Ask, "/proc/self/task") of
        unknown ->
            [];
        Names ->
            [
                {Thread, Source}
             || Id <- lists:sublist(Names, ?MOST_THREADS), {Thread, Source} <- thread(Ask, "/proc/self/task/" ++ Id)
            ]
    end.

thread(Ask, Directory) ->
    case weir_scope_files:text(Ask, Directory ++ "/comm") of
        unknown -> [];
        Name -> [{called(string:trim(Name)), weir_scope_files:open(Ask, Directory ++ "/schedstat")}]
    end.

%% `1_scheduler', `1_dirty_cpu_sch', `10_dirty_io_sch' in OTP 25, `erts_sched_1', `erts_dcpus_1', `erts_dios_1' from
%% OTP 26 on.
called(Name) ->
    case re:run(Name, "^([0-9]+)_(scheduler|dirty_cpu|dirty_io)", [{capture, all_but_first, binary}]) of
        {match, [Number, Kind]} ->
            {kind(Kind), binary_to_integer(Number)};
        nomatch ->
            case re:run(Name, "^erts_(sched|dcpus|dios)_([0-9]+)$", [{capture, all_but_first, binary}]) of
                {match, [Kind, Number]} -> {kind(Kind), binary_to_integer(Number)};
                nomatch -> {other, Name}
            end
    end.

kind(<<"scheduler">>) -> normal;
kind(<<"sched">>) -> normal;
kind(<<"dirty_cpu">>) -> dirty_cpu;
kind(<<"dcpus">>) -> dirty_cpu;
kind(<<"dirty_io">>) -> dirty_io;
kind(<<"dios">>) -> dirty_io.

-spec read(weir_scope_facts:ask(), sources()) -> reading().
read(Ask, Sources) ->
    #{
        walls => walls(Ask),
        threads => maps:from_list([
            {Thread, Times}
         || {Thread, Source} <- Sources, Times <- times(weir_scope_files:read(Ask, Source))
        ]),
        queues => Ask(erlang, statistics, [run_queue_lengths])
    }.

%% Schedulers that are offline are left out: their times do not change.
walls(Ask) ->
    case Ask(erlang, statistics, [scheduler_wall_time_all]) of
        undefined ->
            [];
        All ->
            Info = fun(Item) -> Ask(erlang, system_info, [Item]) end,
            Normal = Info(schedulers),
            Dirty = Info(dirty_cpu_schedulers),
            Online = #{
                normal => Info(schedulers_online),
                dirty_cpu => Info(dirty_cpu_schedulers_online),
                dirty_io => Info(dirty_io_schedulers)
            },
            [
                {Kind, Number, Busy, Whole}
             || {Id, Busy, Whole} <- lists:sort(All),
                {Kind, Number} <- [place(Id, Normal, Dirty)],
                Number =< maps:get(Kind, Online)
            ]
    end.

place(Id, Normal, _Dirty) when Id =< Normal -> {normal, Id};
place(Id, Normal, Dirty) when Id =< Normal + Dirty -> {dirty_cpu, Id - Normal};
place(Id, Normal, Dirty) -> {dirty_io, Id - Normal - Dirty}.

times(unknown) ->
    [];
times(Text) ->
    [Cpu, Waited, Turns | _] = [
        binary_to_integer(Number)
     || Number <- binary:split(string:trim(Text), <<" ">>, [global])
    ],
    [{Cpu, Waited, Turns}].

%% @doc Returns what has happened between two readings that are `Ns' nanoseconds apart.
-spec between(reading(), reading(), pos_integer()) -> #{schedulers := [scheduler()], threads := [thread()]}.
between(#{walls := Walls, threads := Threads}, #{walls := LaterWalls, threads := LaterThreads, queues := Queues}, Ns) ->
    Earlier = maps:from_list([{{Kind, Number}, {Busy, Whole}} || {Kind, Number, Busy, Whole} <- Walls]),
    Used = maps:from_list([
        {Thread, {(Cpu - Cpu0) / Ns, (Waited - Waited0) / Ns, (Turns - Turns0) * 1_000_000_000 / Ns}}
     || {Thread, {Cpu, Waited, Turns}} <- maps:to_list(LaterThreads),
        {ok, {Cpu0, Waited0, Turns0}} <- [maps:find(Thread, Threads)]
    ]),
    #{
        schedulers => [
            scheduler(Key, ratio(Busy - Busy0, Whole - Whole0), Used, Queues)
         || {Kind, Number, Busy, Whole} <- LaterWalls,
            Key <- [{Kind, Number}],
            {ok, {Busy0, Whole0}} <- [maps:find(Key, Earlier)]
        ],
        threads => [
            #{name => Name, cpu => Cpu, waited => Waited, turns => Turns}
         || {{other, Name}, {Cpu, Waited, Turns}} <- lists:sort(maps:to_list(Used))
        ]
    }.

scheduler({Kind, Number} = Key, Utilisation, Used, Queues) ->
    Scheduler = #{kind => Kind, number => Number, utilisation => Utilisation},
    With =
        case Used of
            #{Key := {Cpu, Waited, _}} -> Scheduler#{cpu => Cpu, waited => Waited};
            _ -> Scheduler
        end,
    case Kind of
        normal when Number =< length(Queues) -> With#{run_queue => lists:nth(Number, Queues)};
        _ -> With
    end.

ratio(_Busy, Whole) when Whole =< 0 -> 0.0;
ratio(Busy, Whole) -> min(1.0, max(0, Busy) / Whole).
