%% @doc Sets how many schedulers are online, as an operator does.
-module(weir_test_schedulers).

-export([set_online/1]).

-import(weir_test_wait, [wait_until/1]).

%% @doc Sets the number of schedulers online and returns when it is stable. Weir sometimes sets all schedulers online
%% for a moment and then restores the earlier number. It keeps a number that is set meanwhile; but if that number is
%% all schedulers, it may restore the earlier one, so it may have to be set again.
-spec set_online(pos_integer()) -> ok.
set_online(Count) ->
    wait_until(fun() ->
        _ = erlang:system_flag(schedulers_online, Count),
        Count < erlang:system_info(schedulers) orelse stays(Count)
    end).

%% No process is left that would change the number.
stays(Count) ->
    [undefined, Count, undefined] =:=
        [whereis(weir_schedulers), erlang:system_info(schedulers_online), whereis(weir_schedulers)].
