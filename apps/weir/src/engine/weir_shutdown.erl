%% @private
%% @doc Ends processes as a supervisor does: with `shutdown' first, and with `kill' after a timeout.
%%
%% A process bound to an offline scheduler does not run, and so does not die: `init:stop/0' would wait for it forever.
%% If some processes remain, all schedulers are put online until they are dead.
-module(weir_shutdown).

-export([processes/2]).

%% A running process that has nothing to wait for ends within this time.
-define(PROMPT_MS, 100).

%% @doc Ends processes concurrently, and returns when all are dead. The caller may be linked to them.
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

%% Waits for processes, and returns those alive at the deadline. In the term order any number is smaller than an atom.
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
