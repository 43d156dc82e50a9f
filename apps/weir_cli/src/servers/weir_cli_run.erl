%% @doc `weir run': serves one of the examples in the foreground, until SIGTERM or SIGINT.
%%
%% Once it listens, it prints `ready PORT' and then `pid PID' on standard output. PID is the emulator's, for `taskset',
%% `perf' and `top': `bin/weir' itself is a shell that waits for the emulator.
-module(weir_cli_run).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, [Name]} ->
            run_example(Name, Values);
        {ok, _, []} ->
            {usage, ["an example is missing: ", needed_example()]};
        {ok, _, [_, Extra | _]} ->
            {usage, ["only one example can run, unexpected argument: ", Extra, " (weir run --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir run --help)"]}
    end.

run_example(Name, Values) ->
    case [Example || #{name := Known} = Example <- examples(), atom_to_list(Known) =:= Name] of
        [] -> {usage, ["unknown example ", Name, ": ", needed_example()]};
        [Example] -> check(Example, Values)
    end.

check(#{name := Example, backends := Backends} = Of, #{backend := Backend} = Values) ->
    Name = atom_to_list(Example),
    Missing = [Needed || {Option, Needed} <- needs(Example), not is_map_key(Option, Values)],
    case {foreign(Of, Values), Missing, lists:member(Backend, Backends)} of
        {[Option | _], _, _} ->
            Takers = [atom_to_list(Taker) || #{name := Taker, options := Own} <- examples(), lists:member(Option, Own)],
            {usage, ["--", atom_to_list(Option), " is for ", lists:join(", ", Takers), ", not for ", Name]};
        {[], [Needed | _], _} ->
            {usage, [Name, " needs ", Needed]};
        {[], [], false} ->
            {usage, ["--backend ", atom_to_list(Backend), ": ", Name, " runs on weir only"]};
        {[], [], true} ->
            serve(Name, module(Example, Backend), Values)
    end.

%% The given options that only other examples take.
foreign(#{options := Own}, Values) ->
    Others = lists:usort(lists:append([Options || #{options := Options} <- examples()])) -- Own,
    [Option || Option <- Others, is_map_key(Option, Values)].

%% Only Weir has groups and channels. The other backends run a variant with a process for each member.
module(fanout, Backend) when Backend =/= weir -> weir_example_fanout_processes;
module(push, Backend) when Backend =/= weir -> weir_example_push_processes;
module(Name, _Backend) -> list_to_atom("weir_example_" ++ atom_to_list(Name)).

needs(Name) when Name =:= proxy; Name =:= relay -> [{to, "a backend: --to HOST:PORT"}];
needs(Name) when Name =:= file_httpd; Name =:= http_file -> [{file, "a file to serve: --file PATH"}];
needs(_) -> [].

needed_example() ->
    ["one of ", lists:join(", ", [atom_to_list(Name) || #{name := Name} <- examples()]), " is needed"].

serve(Name, Module, #{backend := Backend} = Values) ->
    weir_cli_signal:report_to(self()),
    %% The build puts the examples that belong to no application there (see examples/rebar.config).
    true = code:add_pathz(filename:join(code:lib_dir(weir_examples), "cowboy")),
    case {code:ensure_loaded(Module), start_backend(Backend)} of
        {{module, Module}, ok} ->
            start(Name, Module, Values);
        {{error, _}, _} ->
            {failed, ["the module ", atom_to_list(Module), " is missing: run `make build`"]};
        {_, {error, Reason}} ->
            {failed, io_lib:format("cannot start weir: ~0tp", [Reason])}
    end.

start(Name, Module, #{ip := Ip, port := Port, busy := Busy} = Values) ->
    case Module:start(example_options(Values)) of
        {ok, #{port := Actual, stop := Stop}} ->
            _ = [spawn(fun() -> compute(N) end) || N <- lists:seq(1, Busy)],
            _ = [spawn(fun observe/0) || #{scope := true} <- [Values]],
            _ = [ready_for_places() || #{places := true} <- [Values]],
            io:format("ready ~b~npid ~s~n", [Actual, os:getpid()]),
            until_stopped(Stop);
        {error, {not_installed, Application}} ->
            {failed, [Name, " needs ", atom_to_list(Application), ", which is not installed"]};
        {error, {not_opened, File, Reason}} ->
            {failed, ["cannot open ", File, ": ", file:format_error(Reason)]};
        {error, Reason} ->
            {failed, ["cannot listen on ", inet:ntoa(Ip), " port ", integer_to_list(Port), ": ", explain(Reason)]}
    end.

%% SIGUSR2 would kill an emulator that does not handle it. The module is loaded here so that the first report is not
%% slower.
ready_for_places() ->
    {module, _} = code:ensure_loaded(weir_cli_places),
    os:set_signal(sigusr2, handle).

until_stopped(Stop) ->
    receive
        stop ->
            Stop();
        places ->
            %% One report at a time: a process can have only one tracer.
            {_, Monitor} = spawn_monitor(fun weir_cli_places:print/0),
            receive {'DOWN', Monitor, process, _, _} -> until_stopped(Stop) end
    end.

example_options(#{backend := Backend, ip := Ip} = Values) ->
    Sockets = socket_options(Backend),
    Listen = Sockets ++ [{ip, Ip}] ++ maps:to_list(maps:with([sndbuf], Values)),
    Rate = maps:from_list([{rate, PerSecond} || #{'per-second' := PerSecond} <- [Values]]),
    Own = maps:with([acceptors, active, affinity, file, measure, packet, port, size, sleep, to, work], Values),
    maps:merge(Own, Rate#{listen => Listen, connect => Sockets}).

start_backend(weir) ->
    case application:ensure_all_started(weir) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end;
start_backend(_OfOtp) ->
    ok.

socket_options(weir) -> [{tcp_module, weir_tcp}];
socket_options(socket) -> [{inet_backend, socket}];
socket_options(inet) -> [].

explain(Reason) ->
    case inet:format_error(Reason) of
        "unknown POSIX error" ++ _ -> io_lib:format("~0tp", [Reason]);
        Text -> Text
    end.

%% Reads a sample of weir_scope once a second, as an open page does.
observe() ->
    {ok, _} = application:ensure_all_started(weir_scope),
    {ok, View} = weir_scope:open(node(), #{}),
    observe(View).

observe(View) ->
    {ok, _} = weir_scope:sample(View),
    timer:sleep(1000),
    observe(View).

compute(N) ->
    compute(N * 16807 rem 16#7fffffff).

examples() ->
    [
        example(echo, [acceptors, active, packet, work], "sends back all data; --active once by default"),
        example(
            proxy, [active, to], "connects each client to a backend (--to) and copies bytes both ways; --active once"
        ),
        example(ehttpd, [active], "answers HTTP requests with hello world!, keep-alive; --active once"),
        example(accept, [active], "one request, one reply, close; --active false"),
        example(game, [active], "sends 512 bytes to every connection every 500 ms, drops answers; --active true"),
        example(tls_echo, [active], "echo over TLS 1.3, with a self-signed certificate; --active once"),
        example(file_httpd, [file], "answers HTTP requests with a file (--file), by sendfile"),
        example(discard, [active], "drops all data; --active once"),
        example(chargen, [], "sends without end, 64 KiB at a time"),
        example(
            fanout_processes,
            [size, 'per-second'],
            "broadcasts messages to all connections; a process for each connection"
        ),
        example(push_processes, [], "a chat by long polls: GET /sub/ROOM, POST /pub/ROOM; a process for each client"),
        example(cowboy_hello, [], "Cowboy's hello world, where Cowboy is installed"),
        example(cowboy_ws_echo, [], "ws_echo by Cowboy, where Cowboy is installed"),
        example(ranch_echo, [active], "echo behind ranch, where ranch is installed; --active once"),
        example(ranch_simple, [acceptors, sleep], "simple behind ranch, where ranch is installed; --acceptors 100"),
        example(simple, [acceptors, sleep], "answers any data with ok, recv with a timeout; --acceptors 1"),
        example(simple_readers, [], "simple, with 100 processes for all connections"),
        example(simple_responders, [], "simple, with 200 processes that send the answers"),
        of_weir(echo_listener, [affinity, measure, work], "echo behind weir:start_listener, with {active, once}"),
        of_weir(accept_listener, [], "accept behind weir:start_listener, with {active, false}"),
        of_weir(echo_reactor, [packet, work], "echo by weir_reactor, one process for each scheduler"),
        of_weir(game_reactor, [], "game by weir_reactor"),
        of_weir(http_hello, [], "answers HTTP requests with Hello, world!, by weir_http"),
        of_weir(http_process, [], "http_hello with a process for each request"),
        of_weir(http_file, [file], "answers HTTP requests with a file (--file), by weir_http"),
        of_weir(ws_echo, [], "sends back every WebSocket message, by weir_http"),
        of_weir(ws_broadcast, [size, 'per-second'], "fanout on WebSockets, by weir_http and weir_group"),
        of_weir(sse_broadcast, [size, 'per-second'], "fanout on event streams, by weir_http and weir_group"),
        of_weir(
            sse_clock, ['per-second'], "sends the time to all clients on event streams, by weir_http and weir_group"
        ),
        of_weir(chat, [], "a chat: a page, an event stream, and POST to send a message"),
        of_weir(http_json, [], "answers a POST of JSON with the value, decoded and encoded again, by weir_http"),
        of_weir(notes, [], "a REST service on weir_http: notes in memory, as JSON"),
        of_weir(relay, [to], "proxy by weir:relay"),
        (of_weir(
            push, [], "push_processes with event streams and WebSockets, by weir_pubsub; other backends: push_processes"
        ))#{
            backends := [weir, inet, socket]
        },
        (of_weir(fanout, [size, 'per-second'], "fanout_processes by weir_group; other backends: fanout_processes"))#{
            backends := [weir, inet, socket]
        }
    ].

%% `Options' are those that only some examples take.
example(Name, Options, About) ->
    #{name => Name, options => Options, backends => [weir, inet, socket], about => About}.

of_weir(Name, Options, About) ->
    (example(Name, Options, About))#{backends := [weir]}.

options() ->
    of_listening() ++ of_examples() ++ for_measuring().

%% Where and how any example listens.
of_listening() ->
    [
        #{
            name => port,
            type => {integer, 0, 65535},
            value => "P",
            default => 0,
            help => "port to listen on, 0 takes a free one (0)"
        },
        #{
            name => ip,
            type => {text, fun weir_cli_options:ip/1},
            value => "ADDR",
            default => {127, 0, 0, 1},
            help => "IPv4 address to listen on, 0.0.0.0 is all (127.0.0.1)"
        },
        #{
            name => backend,
            type => {choice, [weir, inet, socket]},
            value => "B",
            default => weir,
            help => "weir, or gen_tcp's inet or socket (weir)"
        },
        #{
            name => active,
            type => {text, fun active/1},
            value => "MODE",
            help => "how connections receive: once, true, false or a number N (default of the example, see above)"
        }
    ].

%% What only some examples take.
of_examples() ->
    [
        #{
            name => packet,
            type => {text, fun packet/1},
            value => "TYPE",
            help => "packet type of the connections of echo and echo_reactor: 4 or line (raw bytes)"
        },
        #{
            name => file,
            type => {text, fun(File) -> {ok, File} end},
            value => "PATH",
            help => "file that file_httpd and http_file serve, required there"
        },
        #{
            name => to,
            type => {text, fun host_and_port/1},
            value => "HOST:PORT",
            help => "backend of proxy and relay, required there"
        },
        #{
            name => size,
            type => {integer, 8, 1 bsl 20},
            value => "BYTES",
            help => "size of a broadcast message; it begins with the time of the broadcast (128)"
        },
        #{
            name => 'per-second',
            type => {integer, 0, 1000000},
            value => "RATE",
            help => "broadcasts per second, 0 is as fast as the connections take them (10)"
        },
        #{
            name => sndbuf,
            type => {integer, 1, 1 bsl 30},
            value => "BYTES",
            help => "limit of the kernel's send buffer of each connection (the kernel's choice)"
        },
        #{
            name => acceptors,
            type => {integer, 1, 10000},
            value => "N",
            help => "number of accepting processes (default of the example, see above)"
        },
        #{
            name => affinity,
            type => {choice, [soft, bound]},
            value => "A",
            help => "soft or bound: whether connections of echo_listener stay on their schedulers (soft)"
        },
        #{
            name => sleep,
            type => {integer, 1, 10000},
            value => "MS",
            help => "poll connections for data and sleep MS between polls (block in recv)"
        }
    ].

for_measuring() ->
    [
        #{
            name => schedulers,
            type => {integer, 1, 1024},
            value => "N",
            help => "schedulers of the emulator (as many as cores)"
        },
        #{
            name => busy,
            type => {integer, 0, 100000},
            value => "N",
            default => 0,
            help => "for measuring: N processes beside the server that use CPU all the time (0)"
        },
        #{
            name => work,
            type => {integer, 0, 1000},
            value => "US",
            help =>
                "for measuring: microseconds of CPU that echo, echo_listener and echo_reactor use for each message (0)"
        },
        #{
            name => places,
            type => flag,
            help => "for measuring: SIGUSR2 prints how Weir's sockets are spread over pollsets"
        },
        #{
            name => scope,
            type => flag,
            help => "for measuring: run weir_scope in the node and read it once a second"
        },
        #{
            name => measure,
            type => flag,
            help => "echo_listener measures how long its replies take"
        },
        #{
            name => help,
            type => flag,
            help => "this text"
        }
    ].

active("once") -> {ok, once};
active("true") -> {ok, true};
active("false") -> {ok, false};
active(Text) ->
    case string:to_integer(Text) of
        {N, ""} when N >= 1, N =< 32767 -> {ok, N};
        _ -> {error, "once, true, false or a whole number from 1 to 32767 is needed"}
    end.

packet("4") -> {ok, 4};
packet("line") -> {ok, line};
packet(_) -> {error, "4 or line is needed"}.

host_and_port(Text) ->
    case string:split(Text, ":", trailing) of
        [[_ | _] = Host, PortText] ->
            case {string:to_integer(PortText), inet:parse_ipv4strict_address(Host)} of
                {{Port, ""}, {ok, Ip}} when Port >= 1, Port =< 65535 -> {ok, {Ip, Port}};
                {{Port, ""}, {error, einval}} when Port >= 1, Port =< 65535 -> {ok, {Host, Port}};
                _ -> {error, needed_host_and_port()}
            end;
        _ ->
            {error, needed_host_and_port()}
    end.

needed_host_and_port() ->
    "HOST:PORT is needed, such as 127.0.0.1:8080".

help() ->
    Width = lists:max([length(atom_to_list(Name)) || #{name := Name} <- examples()]),
    [
        "usage: weir run EXAMPLE [OPTION...]\n"
        "\n"
        "Serves an example in the foreground. Prints \"ready PORT\" when it listens, then \"pid PID\". SIGTERM and\n"
        "SIGINT (Ctrl-C) stop it.\n"
        "\n",
        [
            ["  ", string:pad(atom_to_list(Name), Width), "   ", About, "\n"]
         || #{name := Name, about := About} <- examples()
        ],
        "\n",
        weir_cli_options:help(options())
    ].
