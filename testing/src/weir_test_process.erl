%% @doc Processes that end with their test, even when a time limit kills it.
-module(weir_test_process).

-export([start/1]).

%% @doc Starts a monitored process that is killed when its caller ends, for any reason. It is not linked: its failure
%% arrives as a message.
-spec start(fun(() -> term())) -> {pid(), reference()}.
start(Fun) ->
    Caller = self(),
    {Pid, _} = Started = spawn_monitor(Fun),
    _ = spawn(fun() -> guard(monitor(process, Caller), Pid, monitor(process, Pid)) end),
    Started.

guard(CallerMonitor, Pid, Monitor) ->
    receive
        {'DOWN', CallerMonitor, process, _, _} -> exit(Pid, kill);
        {'DOWN', Monitor, process, _, _} -> ok
    end.
