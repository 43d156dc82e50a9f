%% @doc Runs a long job. SIGTERM and Ctrl-C end it together with the programs that it has started.
-module(weir_cli_job).

-export([run/1]).

%% @doc Calls `Job' in a separate process. Returns its result, `interrupted' after a signal, or `failed' if it crashes.
%% Programs that the job has started end with it, because its process owns their ports.
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
