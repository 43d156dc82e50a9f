%% @doc As `simple', with few processes for many connections: each process polls its share of them in turn.
-module(weir_example_simple_readers).

-export([start/1]).

-define(READERS, 100).
%% Milliseconds between two rounds.
-define(PAUSE, 20).

%% @doc Starts the server. Options: see {@link weir_example_passive_connections:start/3}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    %% A client that does not read must not block its reader: the answer is dropped if it cannot be sent at once.
    Listen = maps:get(listen, Options, []) ++ [{send_timeout, 0}],
    weir_example_passive_connections:start(Options#{listen => Listen}, 1, fun() ->
        Readers = list_to_tuple([spawn_link(fun() -> read([]) end) || _ <- lists:seq(1, ?READERS)]),
        %% At normal priority the acceptor would get one turn in a hundred beside the busy readers, and meanwhile more
        %% of thousands of clients would connect than the backlog holds.
        _ = process_flag(priority, high),
        Turn = counters:new(1, []),
        fun(Socket) ->
            ok = counters:add(Turn, 1, 1),
            element(counters:get(Turn, 1) rem ?READERS + 1, Readers) ! {serve, Socket},
            ok
        end
    end).

read(Sockets) ->
    Open = [Socket || Socket <- Sockets, is_open(Socket)],
    read(joined_by(Open, erlang:monotonic_time(millisecond) + ?PAUSE)).

%% New connections are collected until the next round. With a round for each of them, thousands of new clients would
%% make each connection be polled thousands of times.
joined_by(Sockets, Until) ->
    receive
        {serve, Socket} -> joined_by([Socket | Sockets], Until)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
        Sockets
    end.

%% Answers pending data, if any.
is_open(Socket) ->
    case gen_tcp:recv(Socket, 0, 0) of
        {ok, _Request} ->
            _ = gen_tcp:send(Socket, <<"ok">>),
            true;
        {error, timeout} ->
            true;
        {error, _} ->
            _ = gen_tcp:close(Socket),
            false
    end.
