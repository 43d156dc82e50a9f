%% @private
%% @doc On which scheduler a process runs. The VM lets a process choose for itself, and documents it nowhere.
-module(weir_affinity).

-export([move_to/1]).

%% @doc Has the calling process go on on another scheduler. One that is bound is bound there; another is free to be taken
%% elsewhere by the VM again. Nothing happens where the VM does not know how, and for a scheduler that is offline, on which
%% a bound process would stand still.
-spec move_to(Scheduler :: pos_integer()) -> ok.
move_to(Scheduler) ->
    case Scheduler =< erlang:system_info(schedulers_online) of
        true -> bind(Scheduler);
        false -> ok
    end.

bind(Scheduler) ->
    %% The flag's old value is the scheduler that it was bound to, or 0.
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
