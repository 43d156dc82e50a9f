%% Programs of a state machine of PropEr, run by one process and by two at once. What calls return side by side must be what they would
%% return one after the other, in some order: they are linearizable.
%%
%% Beside the callbacks of proper_statem a model has `with/1', which makes what a program works on, runs it, and clears away. The first
%% argument of each command is the variable ?WORLD; call/2 has it do something with what `with/1' has made.
-module(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([check/2]).
-export([call/2]).
-export([outcome/1]).

%% Each program of two processes is run so many times: the schedulers decide what comes first.
-define(TIMES, 3).
%% Milliseconds that one process waits for the other before its first call. One that has not come by then has no calls, or does not run.
-define(WAIT_MS, 2).
%% Calls begin at multiples of so many microseconds.
-define(BEAT_US, 20).

%% How many of its processes have come to their first call, and what the model has made.
-opaque world() :: {Come :: atomics:atomics_ref(), Made :: term()}.
-export_type([world/0]).

-callback with(fun((World :: term()) -> Result)) -> Result.

%% So many programs for two processes, and half as many for one.
check(Model, Programs) ->
    ok = weir_test_property:shrink(sequential(Model), Programs div 2),
    ok = weir_test_property:shrink(parallel(Model), Programs).

%% By one process: the model is right about calls that come one after the other.
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

%% First by one process, then by two at once.
parallel(Model) ->
    ?FORALL(
        Program,
        parallel_commands(Model),
        weir_test_property:holds(
            fun() ->
                Model:with(fun(Made) ->
                    {Before, Beside, Result} = run_parallel_commands(Model, Program, world(Made)),
                    Result =:= ok orelse {failed, Result, {got_before, [Got || {_, Got} <- Before]}, {got_beside, [returned(Each) || Each <- Beside]}}
                end)
            end,
            ?TIMES
        )
    ).

returned(History) -> [{Function, Arguments, Got} || {{set, _, {call, _, Function, [_World | Arguments]}}, Got} <- History].

world(Made) ->
    _ = put(?MODULE, ready),
    [{world, {atomics:new(1, []), Made}}].

%% Does something with what the model has made. Calls that last a microsecond would hardly ever meet: so the two processes have a
%% scheduler each, wait for each other, and begin their calls at the same moments.
-spec call(world(), fun((Made :: term()) -> term())) -> term().
call({Come, Made}, Call) ->
    _ = get(?MODULE) =:= ready orelse begin_together(Come),
    ok = await_beat(erlang:monotonic_time(microsecond) div ?BEAT_US),
    outcome(fun() -> Call(Made) end).

%% What a call returns or raises. PropEr cannot tell of an exception.
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
