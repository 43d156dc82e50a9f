%% @doc Runs a long job so that SIGTERM and Ctrl-C end it, and with it the programs that it has started.
-module(weir_cli_job).

-export([run/1]).

%% @doc Calls `Job' in a process of its own and returns what it returns, or `interrupted' after a signal. Programs that
%% the job has started end with it, because they are tied to ports that its process owns.
-spec run(fun(() -> ok | {failed, iodata()})) -> weir_cli:outcome().
run(Job) ->
    weir_cli_signal:report_to(self()),
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> Self ! {outcome, Job()} end),
    receive
        {outcome, Outcome} ->
            demonitor(Monitor, [flush]),
            Outcome;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {failed, io_lib:format("~0tp", [Reason])};
        stop ->
            exit(Pid, kill),
            receive {'DOWN', Monitor, process, Pid, _} -> ok end,
            weir_bench_progress:clear(),
            interrupted
    end.
