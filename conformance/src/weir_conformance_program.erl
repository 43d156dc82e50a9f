%% @doc Runs an external program.
-module(weir_conformance_program).

-export([run/3]).

-export_type([settings/0]).

-type settings() :: #{
    env => [{Name :: string(), Value :: string() | false}],
    cd => file:filename(),
    limit => timeout()
}.
%% Environment variables to add, the working directory, and the time limit in milliseconds. The program is also killed
%% when the caller gets the message `{weir_conformance_program, time_is_up}'.

%% @doc Runs a program, which is looked up in PATH, until it ends. Returns its output and exit status, or the output
%% so far if the time limit is reached.
-spec run(string(), [string()], settings()) ->
    {ok, Output :: binary(), Status :: integer()} | {timeout, Output :: binary()}.
run(Program, Arguments, Settings) ->
    case os:find_executable(Program) of
        false -> error({not_found, Program});
        Path -> start(Path, Arguments, Settings)
    end.

start(Path, Arguments, Settings) ->
    Port = open_port({spawn_executable, Path}, [
        {args, Arguments},
        {env, maps:get(env, Settings, [])},
        {cd, maps:get(cd, Settings, ".")},
        binary,
        exit_status,
        stderr_to_stdout,
        hide
    ]),
    Deadline =
        case maps:get(limit, Settings, infinity) of
            infinity -> infinity;
            Limit -> erlang:monotonic_time(millisecond) + Limit
        end,
    collect(Port, Deadline, []).

collect(Port, Deadline, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, Deadline, [Output | Data]);
        {Port, {exit_status, Status}} -> {ok, iolist_to_binary(Output), Status};
        {?MODULE, time_is_up} -> time_is_up(Port, Output)
    after left(Deadline) ->
        time_is_up(Port, Output)
    end.

time_is_up(Port, Output) ->
    kill(Port),
    {timeout, iolist_to_binary(Output)}.

left(infinity) -> infinity;
left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

kill(Port) ->
    _ =
        case erlang:port_info(Port, os_pid) of
            {os_pid, Pid} -> os:cmd("kill -9 " ++ integer_to_list(Pid));
            undefined -> ok
        end,
    try
        true = port_close(Port),
        ok
    catch
        error:badarg -> ok
    end.
