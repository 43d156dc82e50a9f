%% Runs programs of a PropEr state machine in one process and in two at once. Results of concurrent calls must be
%% possible for some sequential order: the calls are linearizable.
%%
%% Besides the callbacks of proper_statem a model has `with/1', which creates the world of a program, runs it, and
%% cleans up. The first argument of each command is the variable ?WORLD; call/2 calls a function with what `with/1'
%% has created.
-module(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([check/2]).
-export([call/2]).
-export([outcome/1]).

%% How often each program of two processes is run: the schedulers decide the order.
-define(TIMES, 3).
%% Milliseconds that a process waits for the other before its first call. The other may have no calls.
-define(WAIT_MS, 2).
%% Calls begin at multiples of this many microseconds.
-define(BEAT_US, 20).

%% The number of processes that have reached their first call, and what the model has created.
-opaque world() :: {Come :: atomics:atomics_ref(), Made :: term()}.
-export_type([world/0]).

-callback with(fun((World :: term()) -> Result)) -> Result.

%% Runs this many programs of two processes, and half as many of one.
check(Model, Programs) ->
    ok = weir_test_property:shrink(sequential(Model), Programs div 2),
    ok = weir_test_property:shrink(parallel(Model), Programs).

%% In one process: checks the model itself.
sequential(Model) ->
    ?FORALL(
        Program,
        commands(Model),
        weir_test_property:holds(fun() ->
            Model:with(fun(Made) ->
                {History, _State, Result} = run_commands(Model, Program, world(Made)),
                Result =:= ok orelse {failed, Result, [{'after', State, got, Got} || {State, Got} <- History]}
            end)
        end)
    ).

%% First in one process, then in two at once.
parallel(Model) ->
    ?FORALL(
        Program,
        parallel_commands(Model),
        weir_test_property:holds(
            fun() ->
                Model:with(fun(Made) ->
                    {Before, Beside, Result} = run_parallel_commands(Model, Program, world(Made)),
                    Result =:= ok orelse
                        {failed, Result, {got_before, [Got || {_, Got} <- Before]},
                            {got_beside, [returned(Each) || Each <- Beside]}}
                end)
            end,
            ?TIMES
        )
    ).

returned(History) ->
    [{Function, Arguments, Got} || {{set, _, {call, _, Function, [_World | Arguments]}}, Got} <- History].

world(Made) ->
    _ = put(?MODULE, ready),
    [{world, {atomics:new(1, []), Made}}].

%% Calls a function with what the model has created. Calls of a microsecond would rarely overlap, so each process gets
%% its own scheduler, they wait for each other, and their calls begin at the same moments.
-spec call(world(), fun((Made :: term()) -> term())) -> term().
call({Come, Made}, Call) ->
    _ = get(?MODULE) =:= ready orelse begin_together(Come),
    ok = await_beat(erlang:monotonic_time(microsecond) div ?BEAT_US),
    outcome(fun() -> Call(Made) end).

%% The result or exception of a call. PropEr cannot report an exception.
outcome(Call) ->
    try
        Call()
    catch
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.

begin_together(Come) ->
    _ = put(?MODULE, ready),
    ok = weir_affinity:move_to(atomics:add_get(Come, 1, 1)),
    await_other(Come, erlang:monotonic_time(millisecond) + ?WAIT_MS).

await_other(Come, Deadline) ->
    case atomics:get(Come, 1) < 2 andalso erlang:monotonic_time(millisecond) < Deadline of
        true -> erlang:yield(), await_other(Come, Deadline);
        false -> ok
    end.

await_beat(Beat) ->
    case erlang:monotonic_time(microsecond) div ?BEAT_US of
        Beat -> await_beat(Beat);
        _ -> ok
    end.
