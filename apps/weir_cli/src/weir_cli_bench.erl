%% @doc `weir bench': the full matrix of measurements.
-module(weir_cli_bench).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} -> {help, help()};
        {ok, #{list := true}, []} -> {help, weir_bench_matrix:list()};
        {ok, Values, []} -> weir_cli_job:run(fun() -> weir_bench_matrix:run(Values) end);
        {ok, _, [Operand | _]} -> {usage, ["weir bench takes options only, and what is ", Operand, "?"]};
        {error, Message} -> {usage, [Message, " (weir bench --help)"]}
    end.

options() ->
    [
        #{name => only, type => {text, fun scenarios/1}, value => "NAME,...",
            help => "these scenarios only (all)"},
        #{name => repeat, type => {integer, 1, 1000}, value => "N", default => 5,
            help => "measurements of each, in turn (5)"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs, more noise"},
        #{name => results, type => {text, fun(Directory) -> {ok, Directory} end}, value => "DIR",
            help => "where to write what was measured (bench/results)"},
        #{name => list, type => flag,
            help => "list the scenarios"},
        #{name => help, type => flag,
            help => "this text"}
    ].

scenarios(Text) ->
    weir_bench_scenarios:select(string:lexemes(Text, ",")).

help() ->
    [
        "usage: weir bench [OPTION...]\n"
        "\n"
        "Measures every scenario on stock gen_tcp, on Weir and, as the limit, on a server in native code. The server\n"
        "runs on one core, the client on another; backends take turns. Results are written as they come, as JSON and\n"
        "as tables in Markdown: what an interrupted run has measured is there.\n"
        "\n",
        weir_cli_options:help(options())
    ].
