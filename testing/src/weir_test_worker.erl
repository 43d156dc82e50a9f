%% @doc A virtual machine that runs one part of the tests and reports each result to the runner.
-module(weir_test_worker).

-export([main/0]).

%% @doc Runs the part that the runner names, in a process of its own. The arguments of the command line are the
%% runner's port and the number of the part. Returns at once: the emulator has booted only after that.
-spec main() -> ok.
main() ->
    _ = spawn(fun work/0),
    ok.

work() ->
    [Port, Number] = [list_to_integer(Argument) || Argument <- init:get_plain_arguments()],
    {Part, Logs} = weir_test_connection:open(Port, Number),
    ok = weir_test_chaos:start(),
    try
        run(Part, Logs)
    catch
        Class:Reason:Stack -> weir_test_connection:tell({broken, {Class, Reason, Stack}})
    end,
    weir_test_connection:tell(finished).

run(#{kind := cargo, crate := Crate}, _Logs) ->
    weir_test_cargo:run(Crate);
run(#{kind := units, modules := Modules}, _Logs) ->
    weir_test_units:run(Modules);
run(#{kind := suites, directory := Directory, suites := Suites} = Part, Logs) ->
    Chosen = [{Key, Value} || {Key, Value} <- maps:to_list(maps:with([group, testcase], Part))],
    Outcome = ct:run_test([
        {suite, [filename:join(Directory, Suite) || Suite <- Suites]},
        {auto_compile, false},
        {logdir, Logs},
        {event_handler, weir_test_events},
        {multiply_timetraps, weir_test_wait:stretch()}
        | Chosen
    ]),
    case Outcome of
        {error, Reason} -> weir_test_connection:tell({broken, Reason});
        _ -> ok
    end.
