%% @doc A listening socket and acceptor processes, shared by the example servers.
%%
%% Several processes wait in `gen_tcp:accept/1' on one socket, so that a process that hands over a connection does not
%% delay the next. Each connection has a process of its own.
-module(weir_example_acceptors).

-export([start/2]).

-export_type([server/0]).

-define(ACCEPTORS, 8).
%% Pause after an accept failed for lack of descriptors, in milliseconds: some must be closed first.
-define(PAUSE, 100).

%% `stop' closes the listening socket, which ends the acceptors. Connections stay open.
-type server() :: #{port := inet:port_number(), stop := fun(() -> ok)}.

%% @doc Listens, and calls `Serve' with each connection in a new process that owns it.
%%
%% `acceptors' is the number of acceptors (default: 8). `port' is the port to listen on (default 0: a free one).
%% `listen' are options that come before our own: the backend (`{inet_backend, socket}', `{tcp_module, weir_tcp}') and
%% the address (`{ip, Address}'). The socket passed to `Serve' is passive. The caller owns the listening socket: when
%% it ends, so does the server. Connections stay open.
%%
%% Errors are those of `gen_tcp:listen/2'.
-spec start(Options, Serve) -> {ok, server()} | {error, term()} when
    Options :: #{acceptors => pos_integer(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _},
    Serve :: fun((gen_tcp:socket()) -> term()).
start(Options, Serve) ->
    Ours = [binary, {active, false}, {nodelay, true}, {reuseaddr, true}, {backlog, 1024}],
    case gen_tcp:listen(maps:get(port, Options, 0), maps:get(listen, Options, []) ++ Ours) of
        {ok, Socket} ->
            {ok, Port} = inet:port(Socket),
            _ = [
                spawn_link(fun() -> accept(Socket, Serve) end)
             || _ <- lists:seq(1, maps:get(acceptors, Options, ?ACCEPTORS))
            ],
            {ok, #{port => Port, stop => fun() -> gen_tcp:close(Socket) end}};
        {error, _} = Error ->
            Error
    end.

accept(Listen, Serve) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            hand_over(Socket, Serve),
            accept(Listen, Serve);
        {error, closed} ->
            ok;
        {error, econnaborted} ->
            %% The client closed while it was in the backlog.
            accept(Listen, Serve);
        {error, _} ->
            %% No descriptors (emfile, enfile) or memory: accept would fail again at once, so wait until some are
            %% free.
            timer:sleep(?PAUSE),
            accept(Listen, Serve)
    end.

%% The process must own the connection before it uses it, hence the message.
hand_over(Socket, Serve) ->
    Pid = spawn(fun() -> receive go -> Serve(Socket) end end),
    %% This fails only if the client has already closed, which the process notices itself.
    _ = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go.
