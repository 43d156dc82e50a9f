%% @private
%% @doc How a reactor begins: bound to its scheduler, so that it is there from its first step on.
%%
%% If that scheduler goes offline at this moment, the process does not run, and nobody is told. So the caller, which waits for it,
%% looks from time to time, and has it begin on another scheduler.
-module(weir_reactor_start).

-export([start_link/2]).
-export([started/2]).

%% With which heap a reactor begins; see weir_reactor_connections.
-define(HEAP_WORDS, 32768).

%% Words of binaries on the way that make a collection worth it: 4 MiB.
-define(BINARY_WORDS, 524288).

%% How often it is looked whether the scheduler is online.
-define(LOOK_MS, 50).

%% @doc Starts a reactor, whose PROXY headers are among these handshakes.
-spec start_link(weir_reactor:options(), weir_handshake:handshakes()) -> {ok, pid()} | {error, term()}.
start_link(Options, Handshakes) ->
    case {weir_reactor_options:new(Options), weir_pollsets:ensure_started()} of
        {{ok, Normal = #{scheduler := undefined}}, ok} -> begin_on(weir_pollsets:here(), Normal, Handshakes);
        {{ok, Normal = #{scheduler := Scheduler}}, ok} -> begin_on(Scheduler, Normal, Handshakes);
        {{ok, _}, {error, _} = Error} -> Error;
        {{error, _} = Error, _} -> Error
    end.

begin_on(Wanted, Options, Handshakes) ->
    Scheduler = weir_pollsets:substitute(Wanted),
    {Pid, Bound} = spawn_reactor([self(), Scheduler, Options, Handshakes], Scheduler),
    case await(Pid, monitor(process, Pid), Bound) of
        offline -> begin_on(Wanted, Options, Handshakes);
        Result -> Result
    end.

spawn_reactor(Arguments, Scheduler) ->
    Options = [link, {min_heap_size, ?HEAP_WORDS}, {min_bin_vheap_size, ?BINARY_WORDS}],
    try
        {proc_lib:spawn_opt(weir_reactor_process, init, Arguments, [{scheduler, Scheduler} | Options]), Scheduler}
    catch
        %% This VM does not bind processes.
        error:badarg -> {proc_lib:spawn_opt(weir_reactor_process, init, Arguments, Options), anywhere}
    end.

-dialyzer({nowarn_function, spawn_reactor/2}).

await(Pid, Monitor, Scheduler) ->
    receive
        {?MODULE, Pid, Result} ->
            _ = demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            ok = forget(Pid),
            {error, Reason}
    after ?LOOK_MS ->
        case Scheduler =:= anywhere orelse weir_pollsets:substitute(Scheduler) of
            Online when Online =:= true; Online =:= Scheduler ->
                await(Pid, Monitor, Scheduler);
            _ ->
                %% It stands still, and somebody has to see that it dies.
                _ = unlink(Pid),
                _ = spawn(fun() -> weir_shutdown:processes([Pid], brutal_kill) end),
                _ = demonitor(Monitor, [flush]),
                ok = forget(Pid),
                offline
        end
    end.

%% What it has told the caller, who may trap exits.
forget(Pid) ->
    receive
        {'EXIT', Pid, _} -> forget(Pid);
        {?MODULE, Pid, _} -> forget(Pid)
    after 0 -> ok
    end.

%% @doc Tells the process that waits for a reactor that it has begun, or why it has not.
-spec started(pid(), {ok, pid()} | {error, term()}) -> ok.
started(Parent, Result) ->
    Parent ! {?MODULE, self(), Result},
    ok.
