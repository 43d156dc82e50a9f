%% @doc `weir demo chat': a chat in the browser, on the push server, until SIGTERM or SIGINT. Robots can join, and the
%% page shows how long messages take to reach them.
-module(weir_cli_chat).

-export([run/1]).

-define(PUBLIC, [<<"chat/lobby">>, <<"chat/kitchen">>, <<"chat/garden">>, <<"chat/library">>, <<"chat/rooftop">>]).

%% Every client may publish to the dial. Only the server publishes the delays.
-define(DIAL, <<"demo/dial">>).
-define(DELAY, <<"demo/delay">>).

-define(LISTENER, ?MODULE).

%% Milliseconds that connections have to end after the signal.
-define(DRAIN_MS, 2000).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, []} ->
            serve(Values);
        {ok, _, [Operand | _]} ->
            {usage, ["weir demo chat takes only options, unexpected argument: ", Operand, " (weir demo chat --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir demo chat --help)"]}
    end.

serve(#{ip := Ip, port := Port, robots := Robots}) ->
    weir_cli_signal:report_to(self()),
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(policies()),
    case weir_http:start_listener(?LISTENER, #{ip => Ip, port => Port, max_connections => 5000}, routes()) of
        {ok, _} ->
            Own = weir:get_port(?LISTENER),
            {ok, Loads} = weir_cli_chat_robots:start_link(Own, ?PUBLIC, {?DIAL, ?DELAY}),
            {ok, _} = weir_pubsub:publish(?DIAL, integer_to_binary(Robots)),
            io:format("ready ~b~npid ~s~nOpen http://~s:~b/ in two windows. Ctrl+C ends it.~n", [
                Own, os:getpid(), shown(Ip), Own
            ]),
            receive
                stop -> ok
            end,
            ok = weir_cli_chat_robots:stop(Loads),
            _ = weir_http:drain_listener(?LISTENER, ?DRAIN_MS),
            weir_http:stop_listener(?LISTENER);
        {error, Reason} ->
            {failed, ["cannot listen on ", inet:ntoa(Ip), " port ", integer_to_list(Port), ": ", explain(Reason)]}
    end.

shown({0, 0, 0, 0}) -> {ok, Name} = inet:gethostname(), Name;
shown(Ip) -> inet:ntoa(Ip).

explain(Reason) when is_atom(Reason) -> inet:format_error(Reason);
explain(Reason) -> io_lib:format("~0tp", [Reason]).

policies() ->
    #{
        channels => [
            {<<"chat/*">>, #{max_messages => 200, max_message => 4096, presence => true}},
            {?DIAL, #{max_messages => 1, max_message => 16}},
            {?DELAY, #{max_messages => 120}}
        ],
        total => #{channels => 1000}
    }.

routes() ->
    May = fun(Right, _Request, Channel) -> may(Right, Channel) end,
    Http = weir_pubsub_http:routes(#{
        publishers => fun(_Request, Channel) -> may(publish, Channel) end,
        subscribers => fun(_Request, Channel) -> may(subscribe, Channel) end,
        poll_timeout => 30000
    }),
    Pages = filename:join(code:priv_dir(weir_cli), "chat"),
    [weir_pubsub_ws:route(#{may => May, origins => same}) | weir_pubsub_script:routes()] ++ Http ++
        [weir_http_directory:route("/", Pages, #{fields => [{<<"cache-control">>, <<"no-cache">>}]})].

may(_Right, Channel) when Channel =:= ?DIAL -> true;
may(Right, Channel) when Channel =:= ?DELAY -> Right =/= publish;
may(_Right, Channel) -> lists:member(Channel, ?PUBLIC).

options() ->
    [
        #{name => port, type => {integer, 0, 65535}, value => "P", default => 0,
            help => "port to listen on, 0 takes a free one (0)"},
        #{name => ip, type => {text, fun weir_cli_options:ip/1}, value => "ADDR", default => {127, 0, 0, 1},
            help => "IPv4 address to listen on; 0.0.0.0 is all, so that phones can connect too (127.0.0.1)"},
        #{name => robots, type => {integer, 0, weir_cli_chat_robots:most()}, value => "N", default => 0,
            help => "robots that chat from the start; a dial on the page changes the number (0)"},
        #{name => help, type => flag,
            help => "this text"}
    ].

help() ->
    [
        "weir demo chat: serve a chat room for the browser, until SIGTERM or SIGINT (Ctrl+C)\n"
        "\n"
        "usage: weir demo chat [OPTION...]\n"
        "\n"
        "Prints `ready P` with the port when it listens. Open its page in two windows. The page has rooms,\n"
        "shows who is here, and catches up on messages after its connection was cut. A dial adds up to 1,000\n"
        "robots that chat, each with its own connection. A chart shows how long messages between robots take.\n"
        "\n",
        weir_cli_options:help(options())
    ].
