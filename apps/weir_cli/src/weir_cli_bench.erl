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
        {ok, #{help := true}, _} -> {help, help(Suite)};
        {ok, #{list := true, repeat := Rounds}, []} -> {help, weir_bench_matrix:list(Suite, Rounds)};
        {ok, Values, []} -> weir_cli_job:run(fun() -> weir_bench_matrix:run(Suite, Values) end);
        {ok, _, [Command]} when Command =:= "document"; Command =:= "page" -> {usage, ["files of results are needed: weir bench ", Command, " RESULTS.json..."]};
        {ok, _, ["document" | Files]} -> written(weir_bench_measurements:update(Files));
        {ok, _, ["page" | Files]} -> written(weir_bench_page:write(Files));
        {ok, _, [Operand | _]} ->
            {usage, ["weir bench takes options, document or page RESULTS..., and what is ", Operand, "?"]};
        {error, Message} -> {usage, [Message, " (weir bench --help)"]}
    end.

written({ok, Files}) -> io:put_chars([[File, "\n"] || File <- Files]);
written({error, Message}) -> {failed, Message}.

options(Suite) ->
    [
        #{name => only, type => {text, fun(Text) -> weir_bench_suite:chosen(string:lexemes(Text, ","), Suite) end},
            value => "NAME,...", help => "these scenarios, chapters or sets only (all)"},
        #{name => repeat, type => {integer, 1, 1000}, value => "N", default => 5,
            help => "measurements of each, in turn (5)"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs, more noise"},
        #{name => results, type => {text, fun(Directory) -> {ok, Directory} end}, value => "DIR",
            help => "where to write what was measured (bench/results)"},
        #{name => list, type => flag,
            help => "list the scenarios and how long they take"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help(Suite) ->
    [
        "usage: weir bench [OPTION...]\n"
        "       weir bench document RESULTS.json...\n"
        "       weir bench page RESULTS.json...\n"
        "       weir bench scaling [OPTION...]      (see bench/scaling --help)\n"
        "\n"
        "Measures every scenario on stock gen_tcp, on Weir, on peers and, as the limit, on a server in native code. The\n"
        "server runs on one core, the client on another; contestants take turns. Results are written as they come, as\n"
        "JSON, as tables in Markdown and as a page with charts: what an interrupted run has measured is there. A peer\n"
        "that is not installed is skipped.\n"
        "\n"
        "bench/priv/suite.config lists what is measured. `document' writes tables and charts of these results into\n"
        "docs/measurements.md, docs/targets.md and docs/seeds.md; of two results with the same scenario and OTP release the\n"
        "later run counts. `page' writes the page of each result beside it.\n"
        "\n",
        weir_cli_options:help(options(Suite))
    ].
