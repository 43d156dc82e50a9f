%% @doc `bench/scaling': measures servers with one, two and more schedulers.
-module(weir_cli_scaling).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_bench_scaling:read() of
        {ok, Suite} -> run(Arguments, Suite);
        {error, Message} -> {failed, Message}
    end.

run(Arguments, #{scenarios := Scenarios} = Suite) ->
    case weir_cli_options:parse(options(Suite), Arguments) of
        {ok, #{help := true}, _} -> {help, help(Scenarios, options(Suite))};
        {ok, Values, []} -> weir_cli_job:run(fun() -> weir_bench_scaling:run(Suite, Values) end);
        {ok, _, [Operand | _]} -> {usage, ["bench/scaling takes options, and what is ", Operand, "?"]};
        {error, Message} -> {usage, [Message, " (bench/scaling --help)"]}
    end.

options(Suite) ->
    [
        #{name => schedulers, type => {text, fun numbers/1}, value => "N,...",
            help => "numbers of schedulers (1, 2, 4, ... as far as half of the cores; 1,2,8 on fewer than 8)"},
        #{name => only, type => {text, fun(Text) -> weir_bench_suite:chosen(string:lexemes(Text, ","), Suite) end},
            value => "NAME,...", help => "these servers only (all)"},
        #{name => repeat, type => {integer, 1, 1000}, value => "N", default => 3,
            help => "measurements of each, in turn (3)"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs, more noise"},
        #{name => results, type => {text, fun(Directory) -> {ok, Directory} end}, value => "DIR",
            help => "where to write what was measured (bench/results)"},
        #{name => help, type => flag,
            help => "this text"}
    ].

numbers(Text) ->
    Numbers = [string:to_integer(Part) || Part <- string:split(Text, ",", all)],
    case [Number || {Number, ""} <- Numbers, is_integer(Number), Number >= 1, Number =< 512] of
        Valid when length(Valid) =:= length(Numbers) -> {ok, lists:usort(Valid)};
        _ -> {error, "whole numbers from 1 to 512 with commas between them are needed"}
    end.

help(Scenarios, Options) ->
    [
        "usage: bench/scaling [OPTION...]\n"
        "       bench/scaling --tarball FILE\n"
        "\n"
        "Measures servers with 1, 2 and more schedulers. Where the machine has twice as many cores as schedulers, the server\n"
        "has as many cores as schedulers and the clients have others: requests/s, CPU time and p99. Where not, all share the\n"
        "cores, and what is told are counts: CPU time, context switches and futexes for a request (by perf, where that may\n"
        "count them), the share of the busiest pollset, and the share of sockets that are polled elsewhere than their owners\n"
        "run. Writes tables and every measurement as DATE-scaling-otpRELEASE.md, .html and .json, and curves as .svg.\n"
        "\n"
        "--tarball FILE writes all that it needs, Erlang's runtime too, for a machine without Erlang and network, of the same\n"
        "processor and with the same glibc or a later one: tar xf FILE && ./weir-scaling/scaling.\n"
        "\n",
        [["  ", string:pad(atom_to_list(Name), 22), Title, "\n"] || #{name := Name, title := Title} <- Scenarios],
        "\n",
        weir_cli_options:help(Options)
    ].
