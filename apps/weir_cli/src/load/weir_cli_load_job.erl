%% @doc Runs a plan of load. SIGTERM and Ctrl-C end a run early; what it has measured until then is kept.
-module(weir_cli_load_job).

-export([runs/3]).

%% @doc Runs a plan `Count' times, one run after the other. Stops early after a run that a signal has ended. Returns
%% the outcomes of all runs, or the first failure.
-spec runs(pos_integer(), weir_load_run:plan(), fun((weir_load_run:news()) -> ok)) ->
    {ok, [weir_load_run:outcome(), ...]} | {error, iodata()} | {unoffered, iodata()}.
runs(Count, Plan, Show) ->
    case run(Plan, Show) of
        {ok, #{interrupted := false} = Outcome} when Count > 1 ->
            case runs(Count - 1, Plan, Show) of
                {ok, Outcomes} -> {ok, [Outcome | Outcomes]};
                Failure -> Failure
            end;
        {ok, Outcome} ->
            {ok, [Outcome]};
        Failure ->
            Failure
    end.

%% A run links to its drivers, so it has a process of its own. Signals go to that process.
run(Plan, Show) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> Self ! {run, self(), weir_load_run:run(Plan, Show)} end),
    weir_cli_signal:report_to(Pid),
    receive
        {run, Pid, Result} ->
            demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} -> {error, io_lib:format("the load generator crashed: ~0tp", [Reason])}
    end.
