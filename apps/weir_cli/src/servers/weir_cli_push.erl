%% @doc `weir push': serves channels over HTTP in the foreground, until SIGTERM or SIGINT. SIGHUP reloads its file. See
%% {@link weir_pubsub_server}.
-module(weir_cli_push).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(["status" | Arguments]) ->
    weir_cli_push_status:run(Arguments);
run(["reload" | Arguments]) ->
    weir_cli_push_control:run(Arguments);
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} -> {help, help()};
        {ok, Values, []} -> configured(Values);
        {ok, _, [Extra | _]} -> {usage, ["unexpected argument: ", Extra, " (weir push --help)"]};
        {error, Message} -> {usage, [Message, " (weir push --help)"]}
    end.

configured(#{check := true} = Values) when not is_map_key(config, Values) ->
    {usage, "--check needs --config FILE (weir push --help)"};
configured(#{config := File} = Values) ->
    case [Name || Name <- [port, ip, max_connections, publishers, poll_timeout], is_map_key(Name, Values)] of
        [Name | _] ->
            {usage, [
                "--", atom_to_list(Name), " cannot be given with --config: set it in the file (weir push --help)"
            ]};
        [] ->
            from_file(File, Values)
    end;
configured(Values) ->
    serve(none, flags(Values)).

flags(Values) ->
    #{listeners := [Listener]} = Settings = weir_pubsub_file:defaults(),
    Who = maps:get(publishers, Values, local),
    Timeout = case maps:get(poll_timeout, Values, 0) of 0 -> infinity; Seconds -> 1000 * Seconds end,
    Settings#{
        listeners := [maps:merge(Listener, maps:with([ip, port, max_connections], Values))],
        rules := weir_pubsub_rules:new(#{publish => Who, presence => Who}, []),
        poll_timeout := Timeout
    }.

from_file(File, Values) ->
    case {weir_pubsub_file:read(File), Values} of
        {{ok, _}, #{check := true}} -> io:format("~ts is valid~n", [File]);
        {{ok, Settings}, _} -> serve(File, Settings);
        {{error, Faults}, _} -> {failed, lists:join("\nweir: ", faults(File, Faults))}
    end.

faults(File, Faults) -> [fault(File, Fault) || Fault <- Faults].

fault(File, {none, Text}) -> [File, ": ", Text];
fault(File, {Line, Text}) -> [File, $:, integer_to_list(Line), ": ", Text].

serve(File, Settings) ->
    weir_cli_signal:report_to(self()),
    _ = application:load(weir_pubsub),
    ok = application:set_env(weir_pubsub, broker, maps:get(broker, Settings)),
    {ok, _} = application:ensure_all_started(weir_pubsub),
    case weir_pubsub_server:start(Settings) of
        {ok, Server} ->
            File =:= none orelse os:set_signal(sighup, handle),
            started(File, Settings, Server);
        {error, Reason} ->
            {failed, explain(Reason)}
    end.

started(File, #{control := Control}, Server) ->
    case weir_cli_push_control:adjust(none, Control, self()) of
        ok ->
            Ports = lists:join($\s, [integer_to_list(Port) || Port <- weir_pubsub_server:ports(Server)]),
            io:format("ready ~ts~npid ~s~n", [Ports, os:getpid()]),
            loop(File, Control, Server);
        {error, Reason} ->
            ok = weir_pubsub_server:stop(Server),
            {failed, ["cannot listen at ", Control, ": ", listen_reason(Reason)]}
    end.

loop(File, Control, Server) ->
    receive
        stop ->
            ok = weir_cli_push_control:adjust(Control, none, self()),
            weir_pubsub_server:stop(Server);
        reload ->
            {_, Changed} = reload(File, Control, Server),
            loop(File, Control, Changed);
        {reload, From, Reference} ->
            {Faults, Changed} = reload(File, Control, Server),
            From ! {Reference, Faults},
            loop(File, Control, Changed)
    end.

%% A reload cannot move the control socket, because the client of `weir push reload' waits on it for the answer.
reload(File, Control, Server) ->
    case weir_pubsub_file:read(File) of
        {ok, #{control := Other}} when Other =/= Control ->
            unchanged([[File, ": a change of control needs a restart"]], Server);
        {ok, Settings} ->
            case weir_pubsub_server:change(Settings, Server) of
                {ok, Changed} ->
                    ok = weir_cli_notice:say("reloaded ~ts", [File]),
                    {[], Changed};
                {error, Reason} ->
                    unchanged([explain(Reason)], Server)
            end;
        {error, Faults} ->
            unchanged(faults(File, Faults), Server)
    end.

unchanged(Texts, Server) ->
    [ok = weir_cli_notice:complain("~ts", [Text]) || Text <- Texts],
    ok = weir_cli_notice:complain("the configuration is unchanged", []),
    {Texts, Server}.

explain({listen, Ip, Port, Reason}) ->
    ["cannot listen on ", inet:ntoa(Ip), " port ", integer_to_list(Port), ": ", listen_reason(Reason)];
explain({fixed, Ip, Port, Key}) ->
    [
        "the listener on ",
        inet:ntoa(Ip),
        " port ",
        integer_to_list(Port),
        ": a change of ",
        atom_to_list(Key),
        " needs a restart"
    ];
explain({access_log, Ip, Port, Reason}) ->
    [
        "cannot open the access log of the listener on ",
        inet:ntoa(Ip),
        " port ",
        integer_to_list(Port),
        ": ",
        listen_reason(Reason)
    ];
explain({fixed, broker}) ->
    "a change of the broker needs a restart";
explain({bad_key, {_, File}, Reason}) ->
    io_lib:format("~ts: ~tp", [File, Reason]).

listen_reason({bad_option, Name, _Value, Allowed}) -> [atom_to_list(Name), " needs ", Allowed];
listen_reason(Reason) when is_atom(Reason) -> inet:format_error(Reason);
listen_reason(Reason) -> io_lib:format("~0tp", [Reason]).

options() ->
    [
        #{
            name => config,
            type => {text, fun(File) -> {ok, File} end},
            value => "FILE",
            help => "configuration file in TOML, instead of the options below; SIGHUP reloads it"
        },
        #{
            name => check,
            type => flag,
            help => "only check the file"
        },
        #{
            name => port,
            type => {integer, 0, 65535},
            value => "P",
            help => "port to listen on, 0 takes a free one (0)"
        },
        #{
            name => ip,
            type => {text, fun weir_cli_options:ip/1},
            value => "ADDR",
            help => "IPv4 address to listen on, 0.0.0.0 is all (127.0.0.1)"
        },
        #{
            name => max_connections,
            type => {integer, 1, 10000000},
            value => "N",
            help => "most connections at a time (100000)"
        },
        #{
            name => publishers,
            type => {choice, [local, any]},
            value => "WHO",
            help =>
                "who may publish, delete and read information: local (this machine, but not pages of other sites) "
                "or any (local)"
        },
        #{
            name => poll_timeout,
            type => {integer, 0, 86400},
            value => "S",
            help => "seconds until a long poll without a message gets 408, 0 is never (0)"
        },
        #{
            name => help,
            type => flag,
            help => "this text"
        }
    ].

help() ->
    [
        "weir push: serve channels over HTTP, as Nchan does, until SIGTERM or SIGINT (Ctrl+C)\n"
        "\n"
        "usage: weir push [OPTION...]\n"
        "       weir push status [URL]    print figures of a server each second (weir push status --help)\n"
        "       weir push reload SOCKET   make a server reload its file (weir push reload --help)\n"
        "\n"
        "Prints `ready P` with its ports when it listens. URLs:\n"
        "\n"
        "  /pub/ID      POST and PUT publish, GET returns information about the channel, DELETE deletes it\n"
        "  /sub/ID      GET subscribes: a WebSocket, an event stream if Accept is text/event-stream,\n"
        "               otherwise a long poll\n"
        "  /pubsub/ID   both\n"
        "  /ws          one WebSocket for many channels (docs/guide/push_protocol.md)\n"
        "  /status, /metrics   state and counters of the server, for people, programs and Prometheus\n"
        "  /weir-push.js   a client for browsers and Node\n"
        "\n",
        weir_cli_options:help(options())
    ].
