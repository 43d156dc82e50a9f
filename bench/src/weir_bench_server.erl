%% @doc A measured server: an example on one of the backends, a reference server or a peer.
-module(weir_bench_server).

-export([start/3]).
-export([message_size/1]).

-export_type([server/0]).

-type server() :: #{
    program := weir_bench_program:program(),
    port := inet:port_number(),
    pid := string(),
    %% Servers of several processes: the other pids, the origin that they forward to, and their directory.
    others => [Pid :: string()],
    origin => server(),
    directory => file:filename(),
    %% Servers with a configuration: its file, and a function that changes it. The first change is 1; 0 writes the
    %% initial text and sends no signal.
    file => file:filename(),
    change => fun((Number :: non_neg_integer()) -> ok)
}.

%% An emulator may start slowly on a busy machine.
-define(READY_TIMEOUT, 60000).
%% Size of the served file if the scenario does not give one.
-define(MEBIBYTE, 1048576).
%% Idle schedulers sleep: spinning would count as work of the server.
-define(FLAGS, "+sbwt none +sbwtdcpu none +sbwtdio none").

%% @doc Starts the server of a run and waits until it listens. A proxy connects to `Backend'.
-spec start(weir_bench_scenario:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, server()} | {error, binary()}.
start(#{backend := haproxy} = Run, Pin, Backend) ->
    explained(weir_bench_haproxy:start(Run, Pin, Backend));
start(#{backend := envoy}, Pin, Backend) ->
    explained(weir_bench_envoy:start(Pin, Backend));
start(#{backend := pushpin}, Pin, _Backend) ->
    explained(weir_bench_pushpin:start(Pin));
start(#{backend := nginx} = Run, Pin, Backend) ->
    explained(weir_bench_nginx:start(Run, Pin, Backend));
start(#{server := weir_proxy} = Run, Pin, Backend) ->
    Port = weir_bench_machine:free_port(),
    Settings = (maps:with([sni], Run))#{port => Port, backend => Backend},
    {File, Kept} = weir_bench_configuration:write(io_lib:format("~b.toml", [Port]), fun(Changes) ->
        weir_bench_proxy:configuration(Settings#{servers => weir_bench_proxy:servers(Changes)})
    end),
    case start_here(Run#{file => File}, Pin, Backend) of
        {ok, Server} ->
            {ok, weir_bench_configuration:keep(Kept, "HUP", Server)};
        {error, _} = Error ->
            ok = weir_bench_configuration:delete(Kept),
            Error
    end;
start(Run, Pin, Backend) ->
    start_here(Run, Pin, Backend).

start_here(#{backend := Kind} = Run, Pin, Backend) ->
    Program = weir_bench_program:start(Pin ++ command(Run, Backend), environment(Run)),
    case listening(Program, Kind) of
        {ok, Port, Pid} ->
            {ok, #{program => Program, port => Port, pid => Pid}};
        {error, Failure} ->
            ok = weir_bench_program:stop(Program),
            explained({error, Failure})
    end.

explained({ok, _} = Started) -> Started;
explained({error, Failure}) -> {error, <<"server ", (weir_bench_program:explain(Failure))/binary>>}.

%% The server must not inherit the bench's emulator flags.
environment(#{backend := Kind} = Run) when Kind =:= inet; Kind =:= socket; Kind =:= weir ->
    %% `weir run' has an option for that.
    Schedulers =
        case Run of
            #{server := weir_proxy} -> lists:flatten(io_lib:format(" +S ~b:~b", [schedulers(Run), schedulers(Run)]));
            #{} -> ""
        end,
    [{"ERL_FLAGS", ?FLAGS ++ Schedulers}, {"ERL_AFLAGS", false}, {"ERL_ZFLAGS", false}];
environment(_Native) ->
    [{"GOMAXPROCS", "1"}].

%% @doc Returns the bytes of a message, if the load has messages with a size.
-spec message_size(weir_bench_scenario:run()) -> {ok, pos_integer()} | none.
message_size(#{server := http_file}) -> none;
message_size(#{size := Size}) -> {ok, Size};
message_size(#{load := Load}) when Load =:= echo; Load =:= proxy -> {ok, 64};
message_size(_) -> none.

command(#{backend := reference, server := Server} = Run, Backend) ->
    [weir_bench_tree:reference(), atom_to_list(reference(Server)), "--port", "0" | works_on(Run, Backend)];
command(#{backend := Peer, server := Server}, _Backend) when Peer =:= go; Peer =:= tokio ->
    [weir_bench_peers:executable(Peer), of_peer(Server), "--port", "0"];
command(#{server := weir_proxy, file := File}, _Backend) ->
    [weir_bench_tree:weir(), "proxy", "--config", File, "--drain", "0"];
command(#{backend := Kind, server := Server} = Run, Backend) ->
    [
        weir_bench_tree:weir(),
        "run",
        atom_to_list(Server),
        "--port",
        "0",
        "--schedulers",
        integer_to_list(schedulers(Run))
    ] ++
        ["--backend", atom_to_list(Kind)] ++
        [io_lib:format("--active=~p", [Active]) || #{active := Active} <- [Run]] ++
        [
            lists:concat(["--", Option, "=", map_get(Option, Run)])
         || Option <- [acceptors, affinity, busy, packet, sleep, work], is_map_key(Option, Run)
        ] ++
        ["--" ++ atom_to_list(Flag) || Flag <- [measure, scope], #{Flag := true} <- [Run]] ++
        ["--places" || #{counts := true, backend := weir} <- [Run]] ++
        works_on(Run, Backend).

schedulers(Run) -> maps:get(schedulers, Run, 1).

reference(proxy) -> relay;
reference(ehttpd) -> http;
reference(cowboy_hello) -> http;
reference(Server) when Server =:= http_hello; Server =:= http_process -> http;
reference(Server) when Server =:= file_httpd; Server =:= http_file -> file;
reference(fanout_processes) -> fanout;
reference(Same) -> Same.

of_peer(Server) when Server =:= ehttpd; Server =:= cowboy_hello; Server =:= http_hello; Server =:= http_process ->
    "http";
%% Clients of `accept' connect and close, so the echo server serves them too.
of_peer(ws_echo) ->
    "websocket";
of_peer(Server) when Server =:= echo; Server =:= accept -> "echo".

works_on(#{server := Server}, Backend) when Server =:= proxy; Server =:= relay ->
    ["--to", "127.0.0.1:" ++ integer_to_list(Backend)];
works_on(#{server := Server} = Run, _Backend) when Server =:= file_httpd; Server =:= http_file ->
    ["--file", weir_bench_tree:file_of(maps:get(size, Run, ?MEBIBYTE))];
works_on(#{load := fanout} = Run, _Backend) ->
    %% Rate 0: as fast as the server can.
    {ok, Size} = message_size(Run),
    ["--size", integer_to_list(Size), "--per-second", integer_to_list(maps:get(per_second, Run, 0))] ++
        send_buffer(Run);
works_on(Run, _Backend) ->
    send_buffer(Run).

send_buffer(Run) -> ["--sndbuf=" ++ integer_to_list(Bytes) || #{sndbuf := Bytes} <- [Run]].

%% The leash prints the pid of its child first. For an example that is the shell that waits for the emulator; the
%% emulator prints its own pid when it is ready.
listening(Program, Backend) ->
    case await_number(Program, <<"pid ">>) of
        {ok, Pid} ->
            case await_number(Program, <<"ready ">>) of
                {ok, Port} when Backend =:= inet; Backend =:= socket; Backend =:= weir ->
                    with_port(await_number(Program, <<"pid ">>), list_to_integer(Port));
                {ok, Port} ->
                    {ok, list_to_integer(Port), Pid};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

with_port({ok, Pid}, Port) -> {ok, Port, Pid};
with_port({error, _} = Error, _Port) -> Error.

await_number(Program, Prefix) ->
    weir_bench_program:await(Program, number_after(Prefix), ?READY_TIMEOUT).

number_after(Prefix) ->
    Size = byte_size(Prefix),
    fun
        (<<Start:Size/binary, Number/binary>>) when Start =:= Prefix -> {ok, binary_to_list(Number)};
        (_) -> no
    end.
