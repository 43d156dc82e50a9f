%% @doc `weir load compare': compares two reports of `weir load --json'.
-module(weir_cli_load_compare).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run([Help | _]) when Help =:= "--help"; Help =:= "-h" ->
    {help, help()};
run(["-" ++ _ = Option | _]) ->
    {usage, ["unknown option ", Option, " (weir load compare --help)"]};
run([FileA, FileB]) ->
    case {read(FileA), read(FileB)} of
        {{ok, A}, {ok, B}} ->
            case weir_load_compare:compare(A, B) of
                {ok, #{rows := Rows} = Comparison} ->
                    io:put_chars(weir_load_compare:text(Comparison)),
                    case [Figure || #{figure := Figure, verdict := worse} <- Rows] of
                        [] -> ok;
                        Worse -> {failed, ["B is worse: ", lists:join(", ", Worse)]}
                    end;
                {error, Message} ->
                    {usage, Message}
            end;
        {{error, Message}, _} -> {usage, Message};
        {_, {error, Message}} -> {usage, Message}
    end;
run(_) ->
    {usage, "two files are needed: weir load compare A.json B.json"}.

read(File) ->
    case file:read_file(File) of
        {ok, Text} ->
            case weir_json:decode(Text) of
                {ok, Value} -> {ok, Value};
                {error, {not_json, At}} -> {error, [File, " is not JSON: byte ", integer_to_list(At), " is wrong"]}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

help() ->
    "usage: weir load compare A.json B.json\n"
    "\n"
    "Compares two reports of `weir load --json', such as of a server before and after a change. Prints\n"
    "for each figure the ratio of B to A and its 95 % confidence interval. Reports made with --repeat are\n"
    "compared by their runs, others by their seconds. Exit code: 1 B is worse in some figure, 0 it is\n"
    "not.\n".
