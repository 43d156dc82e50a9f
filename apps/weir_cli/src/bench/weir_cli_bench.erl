%% @doc `weir bench': measures the scenarios of the suite, and writes documents from the results.
-module(weir_cli_bench).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(["scaling" | Arguments]) ->
    weir_cli_scaling:run(Arguments);
run(Arguments) ->
    case weir_bench_suite:read() of
        {ok, Suite} -> run(Arguments, Suite);
        {error, Message} -> {failed, Message}
    end.

run(Arguments, Suite) ->
    case weir_cli_options:parse(options(Suite), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help(Suite)};
        {ok, #{list := true, repeat := Rounds}, []} ->
            {help, weir_bench_matrix:list(Suite, Rounds)};
        {ok, Values, []} ->
            weir_cli_job:run(fun() -> weir_bench_matrix:run(Suite, Values) end);
        {ok, _, ["page"]} ->
            {usage, ["files of results are needed: weir bench page RESULTS.json..."]};
        {ok, _, ["document"]} ->
            written(weir_bench_measurements:update());
        {ok, _, ["page" | Files]} ->
            written(weir_bench_page:write(Files));
        {ok, _, Operands} ->
            [Operand | _] = Operands -- ["document"],
            {usage, ["unexpected argument: ", Operand, " (weir bench --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir bench --help)"]}
    end.

written({ok, Files}) -> io:put_chars([[File, "\n"] || File <- Files]);
written({error, Message}) -> {failed, Message}.

options(Suite) ->
    [
        #{name => only, type => {text, fun(Text) -> weir_bench_suite:chosen(string:lexemes(Text, ","), Suite) end},
            value => "NAME,...", help => "only these scenarios, chapters or sets (all)"},
        #{name => repeat, type => {integer, 1, 1000}, value => "N", default => 5,
            help => "measurements of each contestant, in turn (5)"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs with more noise"},
        #{name => results, type => {text, fun(Directory) -> {ok, Directory} end}, value => "DIR",
            help => "directory of the results (bench/results)"},
        #{name => list, type => flag,
            help => "list the scenarios and how long they take"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help(Suite) ->
    [
        "usage: weir bench [OPTION...]\n"
        "       weir bench document\n"
        "       weir bench page RESULTS.json...\n"
        "       weir bench scaling [OPTION...]      (see bench/scaling --help)\n"
        "\n"
        "Measures every scenario on stock gen_tcp, on Weir, on peers, and on a server in native code as the\n"
        "limit. The server runs on one core and the client on another; contestants take turns. Results are\n"
        "written after each measurement, as JSON, as tables in Markdown and as a page with charts. An\n"
        "interrupted run keeps them. A peer that is not installed is skipped.\n"
        "\n"
        "bench/priv/suite.config lists the scenarios and their targets; a run ends with those that it missed.\n"
        "`document' writes tables and charts of the files in bench/results into README.md,\n"
        "docs/measurements.md, the pages below it, docs/seeds.md and docs/faq.md; of two results with the same\n"
        "scenario and OTP release it takes the later one. `page' writes a page beside each file of results.\n"
        "\n",
        weir_cli_options:help(options(Suite))
    ].
