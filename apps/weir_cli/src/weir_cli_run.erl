%% @doc `weir run': serves one of the examples in the foreground, until SIGTERM or SIGINT.
%%
%% The first line on standard output is `ready PORT', once it listens. The second is `pid PID', the emulator's: what
%% `taskset', `perf' and `top' want (`bin/weir' itself is a shell that waits for it).
-module(weir_cli_run).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} -> {help, help()};
        {ok, Values, [Name]} -> run_example(Name, Values);
        {ok, _, []} -> {usage, ["an example is missing: ", needed_example()]};
        {ok, _, [_, Extra | _]} -> {usage, ["one example at a time, and what is ", Extra, "? (weir run --help)"]};
        {error, Message} -> {usage, [Message, " (weir run --help)"]}
    end.

run_example(Name, Values) ->
    case {[Module || {Module, _} <- examples(), atom_to_list(Module) =:= Name], Values} of
        {[], _} -> {usage, ["no example ", Name, ": ", needed_example()]};
        {[proxy], #{to := _}} -> serve(proxy, Values);
        {[proxy], _} -> {usage, "proxy needs its backend: --to HOST:PORT"};
        {[Module], #{to := _}} -> {usage, ["--to is for proxy, not for ", atom_to_list(Module)]};
        {[Module], _} -> serve(Module, Values)
    end.

needed_example() ->
    ["one of ", lists:join(", ", [atom_to_list(Module) || {Module, _} <- examples()]), " is needed"].

serve(Module, #{backend := Backend, ip := Ip, port := Port, busy := Busy} = Values) ->
    weir_cli_signal:report_to(self()),
    case start_backend(Backend) of
        ok ->
            Sockets = socket_options(Backend),
            Options = maps:merge(maps:with([active, port, to], Values), #{
                listen => Sockets ++ [{ip, Ip}], connect => Sockets
            }),
            case Module:start(Options) of
                {ok, #{port := Actual} = Server} ->
                    _ = [spawn(fun() -> compute(N) end) || N <- lists:seq(1, Busy)],
                    io:format("ready ~b~npid ~s~n", [Actual, os:getpid()]),
                    receive stop -> acceptors:stop(Server) end;
                {error, Reason} ->
                    {failed, [
                        "cannot listen on ", inet:ntoa(Ip), " port ", integer_to_list(Port), ": ", explain(Reason)
                    ]}
            end;
        {error, Reason} ->
            {failed, io_lib:format("cannot start weir: ~0tp", [Reason])}
    end.

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

%% Computes for ever.
compute(N) ->
    compute(N * 16807 rem 16#7fffffff).

examples() ->
    [
        {echo, "sends back what comes; --active once unless told otherwise"},
        {proxy, "connects each client to a backend (--to), bytes both ways; --active once"},
        {ehttpd, "answers HTTP requests with hello world!, keep-alive; --active once"},
        {accept, "one request, one reply, close; --active false"},
        {game, "512 bytes to every connection every 500 ms, answers are dropped; --active true"}
    ].

options() ->
    [
        #{name => port, type => {integer, 0, 65535}, value => "P", default => 0,
            help => "port to listen on, 0 takes a free one (0)"},
        #{name => ip, type => {text, fun ip/1}, value => "ADDR", default => {127, 0, 0, 1},
            help => "IPv4 address to listen on, 0.0.0.0 is all (127.0.0.1)"},
        #{name => backend, type => {choice, [weir, inet, socket]}, value => "B", default => weir,
            help => "weir, or inet or socket of gen_tcp (weir)"},
        #{name => active, type => {text, fun active/1}, value => "MODE",
            help => "how connections receive: once, true, false or a number N (the example's own, above)"},
        #{name => to, type => {text, fun host_and_port/1}, value => "HOST:PORT",
            help => "the backend of proxy, which needs one"},
        #{name => schedulers, type => {integer, 1, 1024}, value => "N",
            help => "schedulers of the emulator (as many as cores)"},
        #{name => busy, type => {integer, 0, 100000}, value => "N", default => 0,
            help => "for measuring: N processes beside the server that compute for ever (0)"},
        #{name => help, type => flag,
            help => "this text"}
    ].

ip(Text) ->
    case inet:parse_ipv4strict_address(Text) of
        {ok, Ip} -> {ok, Ip};
        {error, einval} -> {error, "an IPv4 address is needed, such as 127.0.0.1"}
    end.

active("once") -> {ok, once};
active("true") -> {ok, true};
active("false") -> {ok, false};
active(Text) ->
    case string:to_integer(Text) of
        {N, ""} when N >= 1, N =< 32767 -> {ok, N};
        _ -> {error, "once, true, false or a whole number from 1 to 32767 is needed"}
    end.

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
    Width = lists:max([length(atom_to_list(Module)) || {Module, _} <- examples()]),
    [
        "usage: weir run EXAMPLE [OPTION...]\n"
        "\n"
        "Serves an example in the foreground. Prints \"ready PORT\" when it listens, then \"pid PID\"; SIGTERM and\n"
        "SIGINT (Ctrl-C) stop it.\n"
        "\n",
        [["  ", string:pad(atom_to_list(Module), Width), "   ", About, "\n"] || {Module, About} <- examples()],
        "\n",
        weir_cli_options:help(options())
    ].
