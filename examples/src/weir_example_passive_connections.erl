%% @doc A listening socket and acceptors that pass connections to other processes, shared by examples in passive mode.
%% A process need not own a passive socket to receive and send.
-module(weir_example_passive_connections).

-export([start/3]).

%% @doc Listens and starts `Acceptors' acceptors. Each calls `Give' once, and then the returned function with each
%% connection. `port' is the port to listen on (default 0: a free one); `listen' are options that come before our own.
%% Connections belong to their acceptors, which run until the caller ends or calls `stop'. Errors are those of
%% `gen_tcp:listen/2'.
-spec start(Options, Acceptors :: pos_integer(), Give) -> {ok, weir_example_acceptors:server()} | {error, term()} when
    Options :: #{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _},
    Give :: fun(() -> fun((gen_tcp:socket()) -> ok)).
start(Options, Acceptors, Give) ->
    Ours = [binary, {active, false}, {backlog, 1024}, {buffer, 65536}, {keepalive, true}, {reuseaddr, true}],
    case gen_tcp:listen(maps:get(port, Options, 0), maps:get(listen, Options, []) ++ Ours) of
        {ok, Socket} ->
            {ok, Port} = inet:port(Socket),
            _ = [spawn_link(fun() -> accept(Socket, Give()) end) || _ <- lists:seq(1, Acceptors)],
            {ok, #{port => Port, stop => fun() -> gen_tcp:close(Socket) end}};
        {error, _} = Error ->
            Error
    end.

accept(Listen, Give) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            Give(Socket),
            accept(Listen, Give);
        {error, econnaborted} ->
            accept(Listen, Give);
        {error, closed} ->
            ok
    end.
