%% @doc `weir serve': serves the files of a directory over HTTP in the foreground, until SIGTERM or SIGINT.
%%
%% Once it listens, it prints `ready PORT' and then `pid PID' on standard output, as {@link weir_cli_run} does.
-module(weir_cli_serve).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, [Directory]} ->
            check(Directory, Values);
        {ok, _, []} ->
            {usage, "a directory is missing (weir serve --help)"};
        {ok, _, [_, Extra | _]} ->
            {usage, ["only one directory can be served, unexpected argument: ", Extra, " (weir serve --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir serve --help)"]}
    end.

check(Directory, Values) ->
    case filelib:is_dir(Directory) of
        true -> serve(Directory, Values);
        false -> {failed, ["not a directory: ", Directory]}
    end.

serve(Directory, #{ip := Ip, port := Port} = Values) ->
    Links =
        case Values of
            #{'follow-links' := true} -> follow;
            #{} -> refuse
        end,
    Log =
        case Values of
            #{'access-log' := File} -> #{to => {file, File}};
            #{} -> off
        end,
    weir_cli_foreground:serve(?MODULE, #{ip => Ip, port => Port, access_log => Log}, [
        weir_http_directory:route("/", Directory, #{symbolic_links => Links})
    ]).

options() ->
    [
        #{name => port, type => {integer, 0, 65535}, value => "P", default => 0,
            help => "port to listen on, 0 takes a free one (0)"},
        #{name => ip, type => {text, fun weir_cli_options:ip/1}, value => "ADDR", default => {127, 0, 0, 1},
            help => "IPv4 address to listen on, 0.0.0.0 is all (127.0.0.1)"},
        #{name => 'follow-links', type => flag,
            help => "follow symbolic links, also to files outside of DIR"},
        #{name => 'access-log', type => {text, fun weir_cli_options:output_file/1}, value => "FILE",
            help => "write a line for each request to FILE, in the combined format of Apache and nginx (no log)"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help() ->
    [
        "weir serve: serve the files of a directory over HTTP, until SIGTERM or SIGINT (Ctrl+C)\n"
        "\n"
        "usage: weir serve DIR [OPTION...]\n"
        "\n"
        "Prints `ready P` with the port when it listens. A path that ends in a slash serves the index.html of\n"
        "that directory. Names that begin with a dot are never served, symbolic links only with\n"
        "--follow-links. Clients that accept it get FILE.br or FILE.gz in place of FILE.\n"
        "\n",
        weir_cli_options:help(options())
    ].
