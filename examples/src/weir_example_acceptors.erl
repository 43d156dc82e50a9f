%% @doc What the example servers share: a listening socket and the processes that accept on it.
%%
%% Several processes wait in `gen_tcp:accept/1' on one socket, so that one that is busy handing a connection over does
%% not hold up the next. Each connection is served by a process of its own.
-module(weir_example_acceptors).

-export([start/2]).

-export_type([server/0]).

-define(ACCEPTORS, 8).
%% How long to wait when the system cannot give a descriptor, in milliseconds: others have to close some first.
-define(PAUSE, 100).

%% `stop' closes the listening socket, which ends the acceptors. Connections go on.
-type server() :: #{port := inet:port_number(), stop := fun(() -> ok)}.

%% @doc Listens, and has `Serve' called with each connection, in a new process that owns it.
%%
%% `acceptors' is how many processes accept (8). `port' is the port to listen on, 0 (the default) takes a free one. `listen'
%% are options that come before our own: the backend (`{inet_backend, socket}', `{tcp_module, weir_tcp}') and the address (`{ip, Address}'). The socket that
%% `Serve' gets is passive. The caller owns the listening socket: when it ends, so does the server. Connections go on.
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
            _ = [spawn_link(fun() -> accept(Socket, Serve) end) || _ <- lists:seq(1, maps:get(acceptors, Options, ?ACCEPTORS))],
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
            %% The client left while it waited in the backlog.
            accept(Listen, Serve);
        {error, _} ->
            %% Out of descriptors (emfile, enfile) or memory: it fails again at once, so let others close some.
            timer:sleep(?PAUSE),
            accept(Listen, Serve)
    end.

%% The connection must belong to the process before that touches it, hence the message.
hand_over(Socket, Serve) ->
    Pid = spawn(fun() -> receive go -> Serve(Socket) end end),
    %% It fails only when the client has left already, which the process finds out by itself.
    _ = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go.
