%% @private
%% @doc Ends processes as a supervisor does: asked first, and killed when they take too long.
%%
%% A process that is bound to a scheduler which is offline does not run, and so does not even die: `init:stop/0' would wait
%% for it without end. So when some stay, all schedulers are online until they are gone.
-module(weir_shutdown).

-export([processes/2]).

%% How long a process that runs takes to end if there is nothing to wait for.
-define(PROMPT_MS, 100).

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

await(Processes, Deadline) ->
    case gone(Processes, min(Deadline, deadline(?PROMPT_MS))) of
        Left when map_size(Left) =:= 0 -> ok;
        Left -> weir_schedulers:with_all_online(fun() -> await_or_kill(Left, Deadline) end)
    end.

await_or_kill(Processes, Deadline) ->
    Left = gone(Processes, Deadline),
    lists:foreach(fun(Pid) -> exit(Pid, kill) end, maps:values(Left)),
    #{} = gone(Left, infinity),
    ok.

%% Waits for processes, and returns those that are not gone at the deadline. Any number is smaller than an atom.
gone(Left, _Deadline) when map_size(Left) =:= 0 ->
    Left;
gone(Left, Deadline) ->
    receive
        {'DOWN', Reference, process, _, _} when is_map_key(Reference, Left) ->
            gone(maps:remove(Reference, Left), Deadline)
    after remaining(Deadline) ->
        Left
    end.

remaining(infinity) -> infinity;
remaining(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).
