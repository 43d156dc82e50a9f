%% @doc Sets how many schedulers are online, as an operator does.
-module(weir_test_schedulers).

-export([set_online/1]).

-import(weir_test_wait, [wait_until/1]).

%% @doc Returns when the number is set, and will stay. Weir has all schedulers online for a moment now and then, and sets back the number
%% before. Another number that is set meanwhile is seen and kept, as documented; that of all schedulers may have to be set again.
-spec set_online(pos_integer()) -> ok.
set_online(Count) ->
    wait_until(fun() ->
        _ = erlang:system_flag(schedulers_online, Count),
        Count < erlang:system_info(schedulers) orelse stays(Count)
    end).

%% Nobody is there who would set another one.
stays(Count) ->
    [undefined, Count, undefined] =:= [whereis(weir_schedulers), erlang:system_info(schedulers_online), whereis(weir_schedulers)].
