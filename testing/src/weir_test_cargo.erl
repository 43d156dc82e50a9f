%% @doc Reads what `cargo test --quiet' has printed.
-module(weir_test_cargo).

-export([results/3]).

%% @doc The results of a crate, from the output of cargo and its exit status. Tests that passed are counted, those that failed
%% are named. Output without a single result (a compiler error, say) is a failure.
-spec results(string(), binary(), integer()) -> [weir_test_report:result()].
results(Crate, Output, Status) ->
    Passed = sum(Output, "passed"),
    Ignored = sum(Output, "ignored"),
    Failed = names(Output),
    result(Crate, passed, Passed) ++ result(Crate, {skipped, "marked with ignore"}, Ignored) ++
        [one(Crate, Name, {failed, text(Output)}) || Name <- Failed] ++
        [one(Crate, "cargo test", {failed, text(Output)}) || Status =/= 0, Failed =:= []].

result(Crate, Outcome, Count) -> [one(Crate, "a test", Outcome) || _ <- lists:seq(1, Count)].

one(Crate, Name, Outcome) -> #{part => Crate, name => Name, time => 0, outcome => Outcome}.

%% Of lines such as `test result: ok. 3 passed; 0 failed; 1 ignored; ...'.
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

%% The end of the output has the reasons.
text(Output) -> unicode:characters_to_list(binary:part(Output, byte_size(Output), -min(3000, byte_size(Output)))).
