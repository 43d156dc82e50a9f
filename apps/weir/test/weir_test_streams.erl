%% Load beside a case: an echo server, and clients that check every byte.
-module(weir_test_streams).

-export([start_echo/2]).
-export([begin_echo/2]).
-export([start_streams/2]).
-export([stop_streams/1]).
-export([assert_streams_go_on/1]).

-import(weir_test_peer, [listen/2, async/1, await/1, pid/1]).
-import(weir_test_wait, [wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

-type mode() :: passive | true | once | pos_integer().
-type stream() :: {weir_test_peer:async(), counters:counters_ref()}.

-export_type([mode/0, stream/0]).

%% Starts an echo server with a process for each connection, in one of the given modes. Returns its listener, which it
%% owns, and port.
-spec start_echo(weir_test_peer:config(), [mode(), ...]) -> {inet:socket(), inet:port_number()}.
start_echo(Config, Modes) ->
    %% Connections that were reset also stay in the backlog. If it is full, a peer waits for the kernel's retries: one
    %% second, then two, and so on.
    {Listener, Port} = listen(Config, [binary, {active, false}, {nodelay, true}, {backlog, 4096}]),
    Server = async(fun() -> accept_echoes(Listener, Modes) end),
    ok = gen_tcp:controlling_process(Listener, pid(Server)),
    {Listener, Port}.

accept_echoes(Listener, [Mode | Modes]) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            Echo = spawn(fun() ->
                receive
                    go -> begin_echo(Socket, Mode)
                end
            end),
            %% The peer may have reset it: then the echo finds it closed.
            _ = gen_tcp:controlling_process(Socket, Echo),
            Echo ! go,
            accept_echoes(Listener, Modes ++ [Mode]);
        {error, closed} ->
            ok
    end.

%% Serves a connection of the caller until it ends.
-spec begin_echo(inet:socket(), mode()) -> ok.
begin_echo(Socket, passive) ->
    echo_received(Socket);
begin_echo(Socket, Mode) ->
    _ = inet:setopts(Socket, [{active, Mode}]),
    echo_messages(Socket, Mode).

echo_received(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            echo_received(Socket);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

echo_messages(Socket, Mode) ->
    receive
        {tcp, Socket, Data} ->
            _ = gen_tcp:send(Socket, Data),
            _ = [inet:setopts(Socket, [{active, once}]) || Mode =:= once],
            echo_messages(Socket, Mode);
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Mode}]),
            echo_messages(Socket, Mode);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.

%% Clients of an echo server, on stock sockets, that send consecutive 32-bit numbers and check that they come back:
%% none lost, duplicated, changed or out of order.
-spec start_streams(inet:port_number(), pos_integer()) -> [stream()].
start_streams(Port, Count) ->
    [start_stream(Port) || _ <- lists:seq(1, Count)].

start_stream(Port) ->
    Position = counters:new(1, []),
    Client = async(fun() ->
        Options = [binary, {active, false}, {nodelay, true}],
        {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, Options, weir_test_wait:patience()),
        Sent = stream(Socket, Position, 0, queue:new()),
        ok = gen_tcp:close(Socket),
        Sent
    end),
    {Client, Position}.

%% Several blocks are in flight at any time.
stream(Socket, Position, Next, Blocks) ->
    receive
        stop ->
            lists:foreach(fun(Block) -> check_block(Socket, Position, Block) end, queue:to_list(Blocks)),
            Next
    after 0 ->
        Size = 1 + Next rem 997,
        ok = gen_tcp:send(Socket, numbers(Next, Size)),
        Sent = queue:in({Next, Size}, Blocks),
        case queue:len(Sent) < 4 of
            true ->
                stream(Socket, Position, Next + Size, Sent);
            false ->
                {{value, Block}, Rest} = queue:out(Sent),
                check_block(Socket, Position, Block),
                stream(Socket, Position, Next + Size, Rest)
        end
    end.

check_block(Socket, Position, {First, Size}) ->
    Expected = numbers(First, Size),
    case gen_tcp:recv(Socket, byte_size(Expected), weir_test_wait:patience()) of
        {ok, Expected} -> counters:put(Position, 1, First + Size);
        {ok, Other} -> exit({wrong_data, {at, First}, binary:longest_common_prefix([Other, Expected])});
        {error, Reason} -> exit({Reason, {at, First}})
    end.

numbers(First, Count) ->
    <<<<N:32>> || N <- lists:seq(First, First + Count - 1)>>.

%% Stops them, and fails if anything was wrong.
-spec stop_streams([stream()]) -> ok.
stop_streams(Streams) ->
    [pid(Client) ! stop || {Client, _} <- Streams],
    lists:foreach(
        fun({Client, Position}) ->
            Sent = await(Client),
            Sent = counters:get(Position, 1)
        end,
        Streams
    ).

-spec assert_streams_go_on([stream()]) -> ok.
assert_streams_go_on(Streams) ->
    Before = [{Stream, counters:get(Position, 1)} || {_, Position} = Stream <- Streams],
    lists:foreach(
        fun({{Client, Position}, Old}) ->
            wait_until(fun() ->
                is_process_alive(pid(Client)) orelse ct:fail({stream_died, await(Client)}),
                counters:get(Position, 1) > Old orelse {position, counters:get(Position, 1), of_stream, pid(Client)}
            end)
        end,
        Before
    ).
