%% @private
%% @doc Ends processes as a supervisor does: asked first, and killed when they take too long.
-module(weir_shutdown).

-export([processes/2]).

%% @doc Ends processes, all at once, and returns when all are gone. The caller may be linked to them.
-spec processes([pid()], timeout() | brutal_kill) -> ok.
processes(Pids, brutal_kill) ->
    await(ask(Pids, kill), infinity);
processes(Pids, Time) ->
    await(ask(Pids, shutdown), deadline(Time)).

ask(Pids, Reason) ->
    maps:from_list([
        begin
            Reference = monitor(process, Pid),
            exit(Pid, Reason),
            {Reference, Pid}
        end
     || Pid <- Pids
    ]).

deadline(infinity) -> infinity;
deadline(Time) -> erlang:monotonic_time(millisecond) + Time.

await(Left, _Deadline) when map_size(Left) =:= 0 ->
    ok;
await(Left, Deadline) ->
    receive
        {'DOWN', Reference, process, _, _} when is_map_key(Reference, Left) ->
            await(maps:remove(Reference, Left), Deadline)
    after remaining(Deadline) ->
        lists:foreach(fun(Pid) -> exit(Pid, kill) end, maps:values(Left)),
        await(Left, infinity)
    end.

remaining(infinity) -> infinity;
remaining(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
