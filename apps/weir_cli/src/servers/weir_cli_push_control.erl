%% @doc `weir push reload': makes a server reload its file, and prints the errors of the file. The server listens on a
%% unix socket that only its user may open.
-module(weir_cli_push_control).

-export([run/1]).
-export([adjust/3]).
-export([serve/2]).

%% Milliseconds. A reload may have to wait for listeners.
-define(ANSWER_MS, 60000).
-define(ASK_MS, 5000).
-define(LONGEST_LINE, 100).

%% @doc Runs the command.
-spec run([string()]) -> weir_cli:outcome().
run([Help]) when Help =:= "--help"; Help =:= "-h" -> {help, help()};
run([Path]) -> told(ask(Path), Path);
run(_) -> {usage, "one argument is needed: the server's socket, `control` in its file (weir push reload --help)"}.

told({ok, []}, _Path) -> ok;
told({ok, Faults}, _Path) -> {failed, [lists:join("\nweir: ", Faults), "\nweir: the configuration is unchanged"]};
told({error, Reason}, Path) -> {failed, [Path, ": ", reason(Reason)]}.

reason(closed) -> "the server did not answer";
reason(Reason) -> inet:format_error(Reason).

ask(Path) ->
    case gen_tcp:connect({local, Path}, 0, [binary, {active, false}], ?ASK_MS) of
        {ok, Socket} ->
            Answer = case gen_tcp:send(Socket, "reload\n") of ok -> read(Socket, []); {error, _} = Failed -> Failed end,
            ok = gen_tcp:close(Socket),
            Answer;
        {error, _} = Error ->
            Error
    end.

read(Socket, Read) ->
    case gen_tcp:recv(Socket, 0, ?ANSWER_MS) of
        {ok, Data} -> read(Socket, [Read, Data]);
        {error, closed} -> answer(weir_json:decode(iolist_to_binary(Read)));
        {error, _} = Error -> Error
    end.

answer({ok, #{<<"faults">> := Faults}}) -> {ok, Faults};
answer(_) -> {error, closed}.

%% @doc Replaces one control socket by another; `none' is no socket. For each request `Server' gets `{reload, From,
%% Reference}', and answers with `{Reference, Faults}'. Returns an error if the new socket cannot be opened.
-spec adjust(Before :: none | file:filename_all(), Wanted :: none | file:filename_all(), pid()) -> ok | {error, term()}.
adjust(Same, Same, _Server) ->
    ok;
adjust(none, Path, Server) ->
    case
        weir:start_listener(
            ?MODULE, #{ip => {local, Path}, mode => 8#600, max_connections => 16}, fun ?MODULE:serve/2, Server
        )
    of
        {ok, _} -> ok;
        {error, Reason} -> {error, Reason}
    end;
adjust(_Before, Wanted, Server) ->
    ok = weir:stop_listener(?MODULE),
    adjust(none, Wanted, Server).

%% @doc Handles a connection to the control socket.
-spec serve(weir_tcp:socket(), pid()) -> ok.
serve(Socket, Server) ->
    ok = inet:setopts(Socket, [{packet, line}, {packet_size, ?LONGEST_LINE}]),
    case gen_tcp:recv(Socket, 0, ?ASK_MS) of
        {ok, <<"reload\n">>} ->
            _ = gen_tcp:send(Socket, weir_json:compact(#{faults => reloaded(Server)})),
            ok;
        _ ->
            ok
    end.

reloaded(Server) ->
    Reference = monitor(process, Server),
    Server ! {reload, self(), Reference},
    receive
        {Reference, Faults} -> [unicode:characters_to_binary(Fault) || Fault <- Faults];
        {'DOWN', Reference, process, _, _} -> [<<"the server is stopping">>]
    after ?ANSWER_MS -> [<<"the server is busy and did not answer in 60 seconds">>]
    end.

help() ->
    "weir push reload: make a server reload its configuration, as SIGHUP does, and print the errors in it\n"
    "\n"
    "usage: weir push reload SOCKET\n"
    "\n"
    "SOCKET is `control` in the server's file. Exit code: 0 the file is in use, 1 the file has errors and\n"
    "nothing changed.\n".
