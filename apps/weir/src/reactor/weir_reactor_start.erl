%% @private
%% @doc Starts a reactor, bound to its scheduler, so that it runs there from the first instruction.
%%
%% If that scheduler goes offline at this moment the new process does not run, and no process is notified. So the
%% caller, which waits for it, checks periodically and starts another process on another scheduler.
-module(weir_reactor_start).

-export([start_link/2]).
-export([started/2]).

%% The initial heap of a reactor; see weir_reactor_heap.
-define(HEAP_WORDS, 32768).

%% The words of binaries that trigger a collection: 4 MiB.
-define(BINARY_WORDS, 524288).

%% Interval between checks whether the scheduler is online.
-define(LOOK_MS, 50).

%% @doc Starts a reactor, whose PROXY headers count among these handshakes.
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
        %% This VM cannot bind processes.
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
                %% It is frozen. Another process waits for its death.
                _ = unlink(Pid),
                _ = spawn(fun() -> weir_shutdown:processes([Pid], brutal_kill) end),
                _ = demonitor(Monitor, [flush]),
                ok = forget(Pid),
                offline
        end
    end.

%% Drops its messages to the caller, who may trap exits.
forget(Pid) ->
    receive
        {'EXIT', Pid, _} -> forget(Pid);
        {?MODULE, Pid, _} -> forget(Pid)
    after 0 -> ok
    end.

%% @doc Notifies the process that waits for a reactor that it has begun, or why it failed.
-spec started(pid(), {ok, pid()} | {error, term()}) -> ok.
started(Parent, Result) ->
    Parent ! {?MODULE, self(), Result},
    ok.
