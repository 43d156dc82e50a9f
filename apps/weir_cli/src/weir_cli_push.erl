%% @doc `weir push': serves channels over HTTP in the foreground, until SIGTERM or SIGINT. See {@link weir_pubsub_http}.
-module(weir_cli_push).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} -> {help, help()};
        {ok, Values, []} -> serve(Values);
        {ok, _, [Extra | _]} -> {usage, ["unexpected argument: ", Extra, " (weir push --help)"]};
        {error, Message} -> {usage, [Message, " (weir push --help)"]}
    end.

serve(#{ip := Ip, port := Port, max_connections := Connections, publishers := Publishers, poll_timeout := Seconds}) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Timeout = case Seconds of 0 -> infinity; _ -> 1000 * Seconds end,
    Routes = weir_pubsub_http:routes(#{publishers => Publishers, poll_timeout => Timeout}),
    weir_cli_foreground:serve(?MODULE, #{ip => Ip, port => Port, max_connections => Connections}, Routes).

options() ->
    [
        #{name => port, type => {integer, 0, 65535}, value => "P", default => 0,
            help => "port to listen on, 0 takes a free one (0)"},
        #{name => ip, type => {text, fun weir_cli_options:ip/1}, value => "ADDR", default => {127, 0, 0, 1},
            help => "IPv4 address to listen on, 0.0.0.0 is all (127.0.0.1)"},
        #{name => max_connections, type => {integer, 1, 10000000}, value => "N", default => 100000,
            help => "connections at a time (100000)"},
        #{name => publishers, type => {choice, [local, any]}, value => "WHO", default => local,
            help => "who may publish, delete and ask: `local`, this machine without pages of other sites, or `any` (local)"},
        #{name => poll_timeout, type => {integer, 0, 86400}, value => "S", default => 0,
            help => "seconds until a long poll without a message gets 408, 0 is never (0)"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help() ->
    [
        "weir push: serve channels over HTTP, as Nchan does, until SIGTERM or SIGINT (Ctrl+C)\n"
        "\n"
        "usage: weir push [OPTION...]\n"
        "\n"
        "The first line of output is `ready P`, with the port, once it listens. Its URLs:\n"
        "\n"
        "  /pub/ID      POST and PUT publish, GET tells about the channel, DELETE deletes it\n"
        "  /sub/ID      GET subscribes: a WebSocket, an event stream if Accept is text/event-stream, otherwise a long poll\n"
        "  /pubsub/ID   both\n"
        "\n",
        weir_cli_options:help(options())
    ].
