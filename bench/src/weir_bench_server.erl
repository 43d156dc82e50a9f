%% @doc A server that is measured: an example on one of the backends, a reference server or a peer.
-module(weir_bench_server).

-export([start/3]).
-export([message_size/1]).

-export_type([server/0]).

-type server() :: #{
    program := weir_bench_program:program(),
    port := inet:port_number(),
    pid := string(),
    %% Of those that are several processes: the others, a server that they ask, and a directory of their own.
    others => [Pid :: string()],
    origin => server(),
    directory => file:filename(),
    %% Of those that have one: their configuration, and what changes it, the first time with 1; with 0 it stays and nobody is told.
    file => file:filename(),
    change => fun((Number :: non_neg_integer()) -> ok)
}.

%% On a busy machine an emulator needs long to start.
-define(READY_TIMEOUT, 60000).
%% What is served of a scenario that does not say how large a file.
-define(MEBIBYTE, 1048576).
%% Schedulers that sleep when they have nothing to do: spinning would count as the server's work.
-define(FLAGS, "+sbwt none +sbwtdcpu none +sbwtdio none").

%% @doc Starts the server of a scenario and waits until it listens. `Backend' is where a proxy connects to.
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

%% The measurer's own flags are not the server's.
environment(#{backend := Kind} = Run) when Kind =:= inet; Kind =:= socket; Kind =:= weir ->
    %% `weir run' is told with an option.
    Schedulers =
        case Run of
            #{server := weir_proxy} -> lists:flatten(io_lib:format(" +S ~b:~b", [schedulers(Run), schedulers(Run)]));
            #{} -> ""
        end,
    [{"ERL_FLAGS", ?FLAGS ++ Schedulers}, {"ERL_AFLAGS", false}, {"ERL_ZFLAGS", false}];
environment(_Native) ->
    [{"GOMAXPROCS", "1"}].

%% @doc Bytes of a message, where the load has messages of a size that can be chosen.
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
    [weir_bench_tree:weir(), "run", atom_to_list(Server), "--port", "0", "--schedulers", integer_to_list(schedulers(Run))] ++
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

of_peer(Server) when Server =:= ehttpd; Server =:= cowboy_hello; Server =:= http_hello; Server =:= http_process -> "http";
%% To a client that closes it is all the same.
of_peer(ws_echo) -> "websocket";
of_peer(Server) when Server =:= echo; Server =:= accept -> "echo".

works_on(#{server := Server}, Backend) when Server =:= proxy; Server =:= relay ->
    ["--to", "127.0.0.1:" ++ integer_to_list(Backend)];
works_on(#{server := Server} = Run, _Backend) when Server =:= file_httpd; Server =:= http_file ->
    ["--file", weir_bench_tree:file_of(maps:get(size, Run, ?MEBIBYTE))];
works_on(#{load := fanout} = Run, _Backend) ->
    %% Rate 0: the server is the limit.
    {ok, Size} = message_size(Run),
    ["--size", integer_to_list(Size), "--per-second", integer_to_list(maps:get(per_second, Run, 0))] ++
        send_buffer(Run);
works_on(Run, _Backend) ->
    send_buffer(Run).

send_buffer(Run) -> ["--sndbuf=" ++ integer_to_list(Bytes) || #{sndbuf := Bytes} <- [Run]].

%% The leash tells the pid of what it started, first of all. That of an example is the shell that waits for the
%% emulator, which tells its own once it is ready.
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
