%% Programs of a state machine of PropEr, run by one process and by two at once. What calls return side by side must be what they would
%% return one after the other, in some order: they are linearizable.
%%
%% Beside the callbacks of proper_statem a model has `with/1', which makes what a program works on, runs it, and clears away. A
%% command gets that as its first argument, the variable of ?WORLD.
-module(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([check/2]).
-export([outcome/1]).

%% Each program of two processes is run so many times: the schedulers decide what comes first.
-define(TIMES, 3).

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
            Model:with(fun(World) ->
                {History, _State, Result} = run_commands(Model, Program, [{world, World}]),
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
                Model:with(fun(World) ->
                    {Before, Beside, Result} = run_parallel_commands(Model, Program, [{world, World}]),
                    Result =:= ok orelse {failed, Result, {got_before, [Got || {_, Got} <- Before]}, {got_beside, [returned(Each) || Each <- Beside]}}
                end)
            end,
            ?TIMES
        )
    ).

returned(History) -> [{Function, Arguments, Got} || {{set, _, {call, _, Function, [_World | Arguments]}}, Got} <- History].

%% What a call returns or raises. PropEr cannot tell of an exception.
outcome(Call) ->
    try
        Call()
    catch
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.
