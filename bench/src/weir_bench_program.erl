%% @doc An external program that ends with the process that started it.
%%
%% It runs under `bench/leash', which ends it when our end of the pipe closes, for any reason. Its standard output and
%% error are read as lines.
-module(weir_bench_program).

-export([start/2]).
-export([await/3]).
-export([await_exit/2]).
-export([stop/1]).
-export([explain/1]).

-export_type([program/0, failure/0]).

-opaque program() :: port().
-type failure() :: {exited | timeout, Output :: [binary()]}.

%% Longer than the leash waits before SIGKILL.
-define(STOP_TIMEOUT, 10000).

%% @doc Starts a program: its path, looked up in PATH if it has no slash, and its arguments. A value of `false'
%% removes a variable from the environment.
-spec start([string(), ...], [{string(), string() | false}]) -> program().
start(Command, Environment) ->
    open_port({spawn_executable, weir_bench_tree:leash()}, [
        {args, Command}, {env, Environment}, {line, 65536}, exit_status, stderr_to_stdout, binary
    ]).

%% @doc Waits for a line that `Match' maps to a result.
-spec await(program(), fun((binary()) -> {ok, Result} | no), timeout()) -> {ok, Result} | {error, failure()}.
await(Port, Match, Timeout) ->
    await(Port, Match, deadline(Timeout), []).

await(Port, Match, Deadline, Output) ->
    case next(Port, Deadline) of
        {line, Line} ->
            case Match(Line) of
                {ok, _} = Found -> Found;
                no -> await(Port, Match, Deadline, [Line | Output])
            end;
        {exit, _Status} ->
            {error, {exited, lists:reverse(Output)}};
        timeout ->
            {error, {timeout, lists:reverse(Output)}}
    end.

%% @doc Waits until the program ends and returns its output, or an error if its exit code is not 0.
-spec await_exit(program(), timeout()) -> {ok, [binary()]} | {error, failure()}.
await_exit(Port, Timeout) ->
    await_exit(Port, deadline(Timeout), []).

await_exit(Port, Deadline, Output) ->
    case next(Port, Deadline) of
        {line, Line} -> await_exit(Port, Deadline, [Line | Output]);
        {exit, 0} -> {ok, lists:reverse(Output)};
        {exit, _} -> {error, {exited, lists:reverse(Output)}};
        timeout -> {error, {timeout, lists:reverse(Output)}}
    end.

%% @doc Stops the program and waits until it has ended. It may have ended already.
-spec stop(program()) -> ok.
stop(Port) ->
    %% Any line stops the leash. The port is already closed if the program has ended.
    try port_command(Port, "stop\n") of
        true -> discard(Port, deadline(?STOP_TIMEOUT))
    catch
        error:badarg -> discard(Port, deadline(0))
    end.

discard(Port, Deadline) ->
    case next(Port, Deadline) of
        {line, _} -> discard(Port, Deadline);
        {exit, _} -> ok;
        timeout -> close(Port)
    end.

%% The port is already closed if the program has ended.
close(Port) ->
    try port_close(Port) of
        true -> ok
    catch
        error:badarg -> ok
    end.

next(Port, Deadline) ->
    receive
        {Port, {data, {_Eol, Line}}} -> {line, Line};
        {Port, {exit_status, Status}} -> {exit, Status}
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        timeout
    end.

deadline(Timeout) ->
    erlang:monotonic_time(millisecond) + Timeout.

%% @doc Returns a failure as a sentence with the last line that the program printed, which is most likely the reason.
-spec explain(failure()) -> binary().
explain({What, Output}) ->
    How = case What of exited -> <<"ended">>; timeout -> <<"did not answer in time">> end,
    case [Line || Line <- Output, Line =/= <<>>, binary:match(Line, <<"pid ">>) =/= {0, 4}] of
        [] -> How;
        Lines -> <<How/binary, ": ", (utf8(lists:last(Lines)))/binary>>
    end.

%% A program may print bytes that are not UTF-8.
utf8(Line) ->
    case unicode:characters_to_binary(Line) of
        Valid when is_binary(Valid) -> Valid;
        _ -> unicode:characters_to_binary(Line, latin1)
    end.
