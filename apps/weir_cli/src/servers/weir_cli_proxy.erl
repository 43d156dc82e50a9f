%% @doc `weir proxy': runs a TCP proxy in the foreground, until SIGTERM or SIGINT; SIGHUP reloads its file. Also the
%% commands for a running proxy. See {@link weir_proxy}.
-module(weir_cli_proxy).

-export([run/1]).

-define(COMMANDS, [
    "status", "servers", "sessions", "drain", "enable", "disable", "close-sessions", "set-weight", "reload"
]).

-spec run([string()]) -> weir_cli:outcome().
run([Command | Arguments] = All) ->
    case lists:member(Command, ?COMMANDS) of
        true -> ask(Command, Arguments);
        false -> serve(All)
    end;
run([]) ->
    serve([]).

serve(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, _, [Extra | _]} ->
            usage(["unexpected argument: ", Extra]);
        {ok, #{config := _} = Values, []} when
            is_map_key(listen, Values);
            is_map_key(to, Values);
            is_map_key(balance, Values);
            is_map_key(control, Values)
        ->
            [Option | _] = [Each || Each <- [listen, to, balance, control], is_map_key(Each, Values)],
            usage(["--", atom_to_list(Option), " cannot be given with --config: set it in the file"]);
        {ok, #{config := File, check := true}, []} ->
            check(File);
        {ok, #{check := true}, []} ->
            usage("--check needs --config FILE");
        {ok, #{config := File, 'take-over' := true} = Values, []} ->
            start(fun() -> weir_proxy_file:take_over(proxy, File) end, Values);
        {ok, #{config := File} = Values, []} ->
            start(fun() -> weir_proxy_file:start(proxy, File) end, Values);
        {ok, #{listen := _, to := _, 'take-over' := true} = Values, []} ->
            start(fun() -> weir_proxy:take_over(proxy, one_route(Values)) end, Values);
        {ok, #{listen := _, to := _} = Values, []} ->
            start(fun() -> weir_proxy:start(proxy, one_route(Values)) end, Values);
        {ok, _, []} ->
            usage("--config FILE, or --listen ADDRESS and --to ADDRESS,... are needed");
        {error, Message} ->
            usage(Message)
    end.

usage(Message) -> {usage, [Message, " (weir proxy --help)"]}.

check(File) ->
    case weir_proxy_file:read(File) of
        {ok, _} -> io:format("~ts is valid~n", [File]);
        {error, Fault} -> {failed, weir_proxy_file:explain(Fault)}
    end.

one_route(#{listen := Listen, to := Servers} = Values) ->
    Balance = maps:get(balance, Values, round_robin),
    Options = #{
        frontends => #{main => #{listen => Listen, backend => main}},
        backends => #{main => #{servers => Servers, balance => Balance}}
    },
    maps:merge(Options, maps:with([control], Values)).

start(Start, #{drain := Seconds}) ->
    weir_cli_signal:report_to(self()),
    {ok, _} = application:ensure_all_started(weir_proxy),
    case Start() of
        ok ->
            ok = os:set_signal(sighup, handle),
            {ok, #{frontends := Frontends}} = weir_proxy:info(proxy),
            Listen = lists:append([Addresses || #{listen := Addresses} <- maps:values(Frontends)]),
            ok = weir_cli_notice:say("ready ~ts~npid ~s", [
                lists:join($\s, [port(Address) || Address <- Listen]), os:getpid()
            ]),
            Main = self(),
            _ = spawn(fun() -> await_successor(Main) end),
            loop(Seconds * 1000);
        {error, Reason} ->
            {failed, weir_proxy_file:explain(Reason)}
    end.

await_successor(Main) ->
    try weir_proxy:await_successor(proxy) of
        ok -> Main ! succeeded;
        {error, {no_proxy, _}} -> ok
    catch
        %% The proxy's process was killed; its supervisor starts it again.
        exit:_ ->
            timer:sleep(1000),
            await_successor(Main)
    end.

%% Returns the port of an address, or the path of a unix socket.
port(Address) ->
    case string:split(Address, ":", trailing) of
        [<<"unix">>, Path] -> Path;
        [_, Port] -> Port
    end.

loop(Drain) ->
    receive
        reload ->
            case weir_proxy_file:reload(proxy) of
                ok -> weir_cli_notice:say("reloaded", []);
                {error, Reason} ->
                    ok = weir_cli_notice:complain("~ts", [weir_proxy_file:explain(Reason)]),
                    weir_cli_notice:complain("the configuration is unchanged", [])
            end,
            loop(Drain);
        succeeded ->
            ok = weir_cli_notice:say("another proxy has taken over", []),
            stop(Drain);
        stop ->
            stop(Drain)
    end.

stop(Drain) ->
    case weir_proxy:stop(proxy, Drain) of
        ok -> ok;
        {error, {timeout, Left}} -> weir_cli_notice:complain("closed ~b connections that were still open", [Left])
    end.

%%% Commands for a running proxy.

ask(Command, Arguments) ->
    case weir_cli_options:parse(ask_options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, #{control := Path} = Values, Words} ->
            asked(weir_proxy_control:ask(Path, [Command | Words]), Path, Values);
        {ok, _, _} ->
            usage("--control PATH is needed: the socket that the proxy's configuration names");
        {error, Message} ->
            usage(Message)
    end.

asked({ok, #{<<"error">> := Text}}, _Path, _Values) -> {failed, Text};
asked({ok, #{<<"ok">> := true}}, _Path, _Values) -> ok;
asked({ok, #{<<"ok">> := Value}}, _Path, #{json := true}) -> io:put_chars(weir_json:encode(Value));
asked({ok, #{<<"ok">> := Value}}, _Path, _Values) -> io:put_chars(weir_cli_proxy_table:text(Value));
asked({error, Reason}, Path, _Values) -> {failed, [Path, ": ", reason(Reason)]}.

reason(closed) -> "the proxy did not answer";
reason(Reason) when is_atom(Reason) -> inet:format_error(Reason);
reason(Reason) -> io_lib:format("~0tp", [Reason]).

ask_options() ->
    [
        #{name => control, type => {text, fun(Path) -> {ok, Path} end}, value => "PATH",
            help => "control socket of the proxy"},
        #{name => json, type => flag,
            help => "print the whole answer as JSON"},
        #{name => help, type => flag,
            help => "this text"}
    ].

options() ->
    [
        #{
            name => config,
            type => {text, fun(File) -> {ok, File} end},
            value => "FILE",
            help => "configuration file in TOML; SIGHUP reloads it"
        },
        #{name => check, type => flag, help => "only check the file"},
        #{
            name => listen,
            type => {text, fun words/1},
            value => "ADDR,...",
            help => "addresses to listen on: 0.0.0.0:80, [::]:80, :80, unix:PATH; port 0 takes a free one"
        },
        #{
            name => to,
            type => {text, fun words/1},
            value => "ADDR,...",
            help => "servers: 10.0.0.1:80, NAME:80, unix:PATH"
        },
        #{
            name => balance,
            type => {choice, [round_robin, least_connections, random, hash]},
            value => "HOW",
            help =>
                "round_robin, least_connections, random (the better of two), hash (by the client's address) "
                "(round_robin)"
        },
        #{
            name => control,
            type => {text, fun(Path) -> {ok, Path} end},
            value => "PATH",
            help => "unix socket for the commands below, if there is no --config"
        },
        #{
            name => user,
            type => {text, fun(Name) -> {ok, Name} end},
            value => "NAME",
            help => "if root starts the proxy: run it as this user, who may still listen on ports below 1024"
        },
        #{
            name => 'take-over',
            type => flag,
            help => "take over from the running proxy with the same control socket, which then ends as after SIGTERM"
        },
        #{
            name => drain,
            type => {integer, 0, 86400},
            value => "S",
            default => 30,
            help => "seconds that connections have to end after SIGTERM or SIGINT (30)"
        },
        #{name => help, type => flag, help => "this text"}
    ].

words(Text) ->
    case [unicode:characters_to_binary(Word) || Word <- string:lexemes(Text, ",")] of
        [] -> {error, "one or more addresses, separated by commas, are needed"};
        Words -> {ok, Words}
    end.

help() ->
    [
        "weir proxy: balance TCP connections over servers, until SIGTERM or SIGINT (Ctrl+C)\n"
        "\n"
        "usage: weir proxy --listen ADDR --to ADDR,... [OPTION...]\n"
        "       weir proxy --config FILE [--check]\n"
        "       weir proxy COMMAND --control PATH [--json]\n"
        "\n"
        "Prints `ready` and its ports when it listens, then `pid` and its process id.\n"
        "SIGTERM, SIGINT: new clients are refused, connections go on. The proxy ends with the last one, or\n"
        "after --drain seconds.\n"
        "SIGHUP: it reads its file again. Listening sockets and connections stay open. A wrong file changes\n"
        "nothing.\n"
        "\n",
        weir_cli_options:help(options()),
        "\n"
        "commands:\n"
        "  status, servers, sessions                       print its state, its servers, or its connections\n"
        "  drain BACKEND SERVER                            send no new connections to a server\n"
        "  drain BACKEND SERVER SECONDS                    the same, and close its connections evenly over that time\n"
        "  disable BACKEND SERVER                          send no new connections and no checks to a server\n"
        "  enable BACKEND SERVER                           send connections to a server again\n"
        "  close-sessions BACKEND SERVER                   close a server's connections now and print how many\n"
        "  set-weight BACKEND SERVER WEIGHT                set a server's share of new connections: 0 to 256\n"
        "  reload                                          reload the file, as SIGHUP does\n"
    ].
