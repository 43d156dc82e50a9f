%% @private
%% @doc Moves processes between schedulers. In the VM a process can only move itself, by an undocumented process flag.
-module(weir_affinity).

-export([move_to/1]).

%% @doc Moves the calling process to another scheduler. A bound process is bound there; the VM may move an unbound one
%% away again. Does nothing if the VM lacks the flag, or if the scheduler is offline, where a bound process would
%% stand still.
-spec move_to(Scheduler :: pos_integer()) -> ok.
move_to(Scheduler) ->
    case Scheduler =< erlang:system_info(schedulers_online) of
        true -> bind(Scheduler);
        false -> ok
    end.

bind(Scheduler) ->
    %% The flag returns the scheduler that the process was bound to, or 0.
    try erlang:process_flag(scheduler, Scheduler) of
        0 ->
            _ = erlang:process_flag(scheduler, 0),
            ok;
        _ ->
            ok
    catch
        error:badarg -> ok
    end.

-dialyzer({nowarn_function, bind/1}).
