%% @doc `weir demo': stock gen_tcp and Weir side by side. `weir demo chat' is {@link weir_cli_chat}.
-module(weir_cli_demo).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(["chat" | Arguments]) ->
    weir_cli_chat:run(Arguments);
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, []} ->
            ended(weir_cli_job:run(fun() -> weir_bench_demo:run(Values) end));
        {ok, _, [Operand | _]} ->
            {usage, ["weir demo takes only options, unexpected argument: ", Operand, " (weir demo --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir demo --help)"]}
    end.

ended(ok) -> io:format("~nNext: bin/weir demo chat, a chat room in the browser with up to 1,000 robots in it.~n");
ended(Other) -> Other.

options() ->
    [
        #{name => json, type => {text, fun weir_cli_options:output_file/1}, value => "FILE",
            help => "also write the table to FILE, as JSON"},
        #{name => quick, type => flag, default => false,
            help => "shorter runs with more noise"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help() ->
    [
        "usage: weir demo [OPTION...]\n"
        "       weir demo chat [OPTION...]    a chat room in the browser (weir demo chat --help)\n"
        "\n"
        "Measures echo, proxy and ehttpd on stock gen_tcp, on Weir, and in native code as the limit. Each\n"
        "server runs on one core and the client on another; the servers take turns. Ends with a table, in\n"
        "less than two minutes.\n"
        "\n",
        weir_cli_options:help(options())
    ].
