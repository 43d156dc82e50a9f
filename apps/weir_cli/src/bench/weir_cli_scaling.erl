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
        {ok, #{help := true}, _} ->
            {help, help(Scenarios, options(Suite))};
        {ok, Values, []} ->
            weir_cli_job:run(fun() -> weir_bench_scaling:run(Suite, Values) end);
        {ok, _, [Operand | _]} ->
            {usage, ["bench/scaling takes only options, unexpected argument: ", Operand, " (bench/scaling --help)"]};
        {error, Message} ->
            {usage, [Message, " (bench/scaling --help)"]}
    end.

options(Suite) ->
    [
        #{name => schedulers, type => {text, fun numbers/1}, value => "N,...",
            help => "numbers of schedulers (1, 2, 4, ... up to half of the cores; 1,2,8 on fewer than 8 cores)"},
        #{name => only, type => {text, fun(Text) -> weir_bench_suite:chosen(string:lexemes(Text, ","), Suite) end},
            value => "NAME,...", help => "only these servers (all)"},
        #{name => repeat, type => {integer, 1, 1000}, value => "N", default => 3,
            help => "measurements of each server, in turn (3)"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs with more noise"},
        #{name => results, type => {text, fun(Directory) -> {ok, Directory} end}, value => "DIR",
            help => "directory of the results (bench/results)"},
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
        "Measures servers with 1, 2 and more schedulers. If the machine has twice as many cores as\n"
        "schedulers, the server gets a core for each scheduler and the clients get others; the results are\n"
        "requests/s, CPU time and p99. Otherwise server and clients share the cores, and the results are\n"
        "counts: CPU time, context switches and futexes for a request (by perf, if it may count them), the\n"
        "share of the busiest pollset, and the share of sockets that another scheduler polls than the one of\n"
        "their owner. Writes tables and all measurements as DATE-scaling-otpRELEASE.md, .html and .json, and\n"
        "curves as .svg.\n"
        "\n"
        "--tarball FILE writes everything it needs, with Erlang's runtime, for a machine without Erlang or\n"
        "network. That machine needs the same kind of processor and the same glibc or a later one. Run there:\n"
        "tar xf FILE && ./weir-scaling/scaling\n"
        "\n",
        [["  ", string:pad(atom_to_list(Name), 22), Title, "\n"] || #{name := Name, title := Title} <- Scenarios],
        "\n",
        weir_cli_options:help(Options)
    ].
