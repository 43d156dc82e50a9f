%% @doc As `simple', with few processes for many connections: each has its share, and asks one after the other whether
%% something has come.
-module(weir_example_simple_readers).

-export([start/1]).

-define(READERS, 100).
%% Between two rounds, in milliseconds.
-define(PAUSE, 20).

%% @doc Starts the server. The options are for {@link weir_example_passive_connections:start/3}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    %% A reader that takes a while must not hold up the others: it does not answer whom it cannot send to at once.
    Listen = maps:get(listen, Options, []) ++ [{send_timeout, 0}],
    weir_example_passive_connections:start(Options#{listen => Listen}, 1, fun() ->
        Readers = list_to_tuple([spawn_link(fun() -> read([]) end) || _ <- lists:seq(1, ?READERS)]),
        %% Among a hundred readers that always have somebody to ask, the acceptor would have one turn in a hundred: with
        %% thousands of connections more come in between than the backlog holds.
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

%% With those that are given meanwhile, which wait for the next round: with one for each of them, thousands that connect
%% would have everybody asked thousands of times.
joined_by(Sockets, Until) ->
    receive
        {serve, Socket} -> joined_by([Socket | Sockets], Until)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
        Sockets
    end.

%% Answers what has come, if anything.
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
