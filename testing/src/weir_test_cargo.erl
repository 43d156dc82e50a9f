%% @doc Runs the tests of a Rust crate and reports their results to the runner.
-module(weir_test_cargo).

-export([run/1]).

%% @doc Runs `cargo test' in a directory with a Cargo.toml. Passed tests are counted, failed tests are named. Output
%% without a single result (a compiler error, for example) is a failure.
-spec run(file:filename()) -> ok.
run(Crate) ->
    Port = open_port({spawn_executable, os:find_executable("cargo")}, [
        {args, ["test", "--quiet", "--release", "--locked", "--manifest-path", filename:join(Crate, "Cargo.toml")]},
        stderr_to_stdout, exit_status, binary
    ]),
    Start = erlang:monotonic_time(millisecond),
    {Status, Output} = output(Port, <<>>),
    io:put_chars(Output),
    tell(list_to_atom(Crate), erlang:monotonic_time(millisecond) - Start, results(Output) ++ fault(Output, Status)).

%% Cargo reports the time of the whole run only.
tell(Crate, Time, [{Name, Outcome} | Results]) ->
    weir_test_connection:tell({result, Crate, [], Name, Time, Outcome}),
    tell(Crate, 0, Results);
tell(_Crate, _Time, []) ->
    ok.

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, <<Output/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> {Status, Output}
    end.

results(Output) ->
    [{"a test", passed} || _ <- lists:seq(1, sum(Output, "passed"))] ++
        [{"a test", {skipped, "marked with ignore"}} || _ <- lists:seq(1, sum(Output, "ignored"))] ++
        [{Name, {failed, text(Output)}} || Name <- names(Output)].

%% Cargo failed, but none of its tests did.
fault(_Output, 0) -> [];
fault(Output, _Status) -> [{"cargo test", {failed, text(Output)}} || names(Output) =:= []].

%% Adds the numbers in lines such as `test result: ok. 3 passed; 0 failed; 1 ignored; ...'.
sum(Output, Word) ->
    case re:run(Output, ["^test result: .*?([0-9]+) ", Word], [global, multiline, {capture, [1], list}]) of
        {match, Counts} -> lists:sum([list_to_integer(Count) || [Count] <- Counts]);
        nomatch -> 0
    end.

names(Output) ->
    case re:run(Output, "^---- (.*) stdout ----$", [global, multiline, {capture, [1], list}]) of
        {match, Names} -> [Name || [Name] <- Names];
        nomatch -> []
    end.

%% The reasons are at the end of the output.
text(Output) -> unicode:characters_to_list(binary:part(Output, byte_size(Output), -min(3000, byte_size(Output)))).
