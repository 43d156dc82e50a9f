%% A reactor serves each connection independently of the others: an echo reactor is the identity on each stream with
%% every way of sending; packets arrive once and in order.
-module(prop_reactor).
-behaviour(weir_reactor).

-include_lib("proper/include/proper.hrl").

-export([prop_echo/0]).
-export([prop_packets/0]).

-export([quietly/1, without_ours/2]).

-export([init/2, handle_data/3, handle_close/3, handle_writable/2, handle_info/2, handle_tick/2]).

%% How often a reader pauses: enough for buffers to fill.
-define(PAUSES, 30).

%% Connections, each with its way of sending, its chunks, its pauses and a fate. Those with the fate `good' get back
%% exactly what they sent, the others a prefix of it.
prop_echo() ->
    ?FORALL(
        {Connections, Tick},
        {resize(6, non_empty(list(connection()))), oneof([1, 5])},
        weir_test_property:holds(fun() -> sends_back(Connections, Tick) end)
    ).

sends_back(Connections, Tick) ->
    Options = #{module => ?MODULE, tick => Tick, max_send_queue => 100_000_000},
    Results = with_reactor(Options, fun(Reactor) ->
        Peers = [{open(Reactor, Connection), Connection} || Connection <- Connections],
        Clients = [client(Peer, Connection) || {Peer, Connection} <- Peers],
        [result(Client) || Client <- Clients]
    end),
    lists:all(fun is_right/1, lists:zip(Connections, Results)) orelse [sizes(Result) || Result <- Results].

sizes({Sent, Got, End}) -> {byte_size(Sent), byte_size(Got), End}.

is_right({#{fate := good}, {Sent, Got, End}}) -> Got =:= Sent andalso End =:= closed;
is_right({_, {Sent, Got, _End}}) -> Got =:= binary:part(Sent, 0, min(byte_size(Got), byte_size(Sent))).

%% Each packet is delivered once, in order, and sent back with its frame.
prop_packets() ->
    ?FORALL(
        {Type, Streams},
        {oneof([1, 2, 4, line]), resize(4, non_empty(list(stream())))},
        weir_test_property:holds(fun() -> delivers_packets(Type, Streams) end)
    ).

delivers_packets(Type, Streams) ->
    Indexed = [
        {Index, Stream, [packet(Type, Size) || Size <- Sizes]}
     || {Index, Stream = #{sizes := Sizes}} <- lists:zip(lists:seq(1, length(Streams)), Streams)
    ],
    Results = with_reactor(#{module => ?MODULE}, fun(Reactor) ->
        Clients = [client_of_packets(Reactor, Type, Stream) || Stream <- Indexed],
        [result(Client) || Client <- Clients]
    end),
    Delivered = delivered(),
    %% In order for each connection.
    Wrong = [
        {Index, {delivered, Got}, {expected, Packets}}
     || {Index, _, Packets} <- Indexed,
        Got <- [[Packet || {From, Packet} <- Delivered, From =:= Index]],
        Got =/= Packets
    ],
    (Wrong =:= [] andalso lists:all(fun is_whole/1, Results)) orelse {[sizes(Result) || Result <- Results], Wrong}.

client_of_packets(Reactor, Type, {Index, #{cuts := Cuts, slow := Slow, through := Through}, Packets}) ->
    Connection = #{
        way => {tell, self(), Index},
        fate => good,
        through => Through,
        options => [{packet, Type}],
        buffers => default,
        chunks => chunks(iolist_to_binary([frame(Type, Packet) || Packet <- Packets]), Cuts),
        slow => Slow
    },
    client(open(Reactor, Connection), Connection).

is_whole({Sent, Got, End}) -> Sent =:= Got andalso End =:= closed.

packet(line, Size) -> <<(binary:copy(<<"x">>, Size))/binary, "\n">>;
packet(1, Size) -> rand:bytes(Size rem 256);
packet(_, Size) -> rand:bytes(Size).

frame(line, Packet) -> Packet;
frame(Type, Packet) -> <<(byte_size(Packet)):Type/unit:8, Packet/binary>>.

chunks(Bytes, [{Size, Pause} | Cuts]) when byte_size(Bytes) > Size ->
    <<Chunk:Size/binary, Rest/binary>> = Bytes,
    [{Chunk, Pause} | chunks(Rest, Cuts)];
chunks(Bytes, _Cuts) ->
    [{Bytes, 0}].

delivered() ->
    receive
        {delivered, Index, Packet} -> [{Index, Packet} | delivered()]
    after 0 -> []
    end.

%%% Cases.

connection() ->
    ?LET(
        {Way, Fate, Through, Sizes, Buffers, Slow},
        {
            oneof([send, parts, nowait, tick, info]),
            frequency([{3, good}, {1, {oneof([error, exit, throw, garbage, unsendable, close, slow]), integer(0, 5)}}]),
            oneof([connect, adopt]),
            list({frequency([{5, integer(1, 500)}, {3, integer(500, 20000)}, {1, integer(20000, 300000)}]), pause()}),
            oneof([default, 16384]),
            pause()
        },
        #{
            way => Way,
            fate => Fate,
            through => Through,
            options => [],
            chunks => [{rand:bytes(Size), Pause} || {Size, Pause} <- Sizes],
            buffers => Buffers,
            slow => Slow
        }
    ).

stream() ->
    ?LET(
        {Sizes, Cuts, Slow, Through},
        {list(frequency([{5, integer(0, 300)}, {1, integer(300, 30000)}])), list({integer(1, 5000), pause()}), pause(),
            oneof([connect, adopt])},
        #{sizes => Sizes, cuts => Cuts, slow => Slow, through => Through}
    ).

pause() ->
    frequency([{15, 0}, {1, 1}, {1, 3}]).

%%% A reactor and its peers.

with_reactor(Options, Fun) ->
    {ok, Reactor} = weir_reactor:start_link(Options),
    Results =
        try
            Fun(Reactor)
        catch
            Class:Reason:Stack ->
                show(Reactor),
                erlang:raise(Class, Reason, Stack)
        end,
    _ = lists:keymember(timeout, 3, Results) andalso show(Reactor),
    ok = proc_lib:stop(Reactor),
    Results.

%% Calls a function while expected failures are not logged.
quietly(Fun) ->
    ok = logger:add_primary_filter(?MODULE, {fun ?MODULE:without_ours/2, []}),
    try
        Fun()
    after
        logger:remove_primary_filter(?MODULE)
    end.

without_ours(#{msg := {report, #{callback := {?MODULE, _}}}}, _) -> stop;
without_ours(_Event, _) -> ignore.

%% Prints the state of a reactor that has not sent back everything.
show(Reactor) ->
    Sockets = [{Socket, weir_nif:info(Handle)} || {'$inet', _, Handle} = Socket <- weir:sockets()],
    Process = process_info(Reactor, [status, current_stacktrace, messages, scheduler]),
    io:format("~p~n~p~n~p~n~p~n", [Process, weir_reactor:info(Reactor), Sockets, weir:pollsets()]).

%% The stock end of a connection of the reactor, which gets it in one of the ways that take arguments.
open(Reactor, Connection = #{through := Through, options := Options, buffers := Buffers}) ->
    Sizes =
        case Buffers of
            default -> [];
            Size -> [{recbuf, Size}, {sndbuf, Size}]
        end,
    Common = [binary, {active, false}, {nodelay, true} | Sizes],
    {ok, Listener} = gen_tcp:listen(0, [{ip, loopback} | Common]),
    {ok, Port} = inet:port(Listener),
    case Through of
        connect ->
            {ok, _} = weir_reactor:connect(Reactor, {127, 0, 0, 1}, Port, [{args, Connection} | Options ++ Sizes]);
        adopt ->
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [{tcp_module, weir_tcp} | Options ++ Common]),
            {ok, Socket} = weir_reactor:adopt(Reactor, Socket, Connection)
    end,
    {ok, Peer} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    Peer.

%% Sends everything from one process and receives as much in another.
client(Peer, #{chunks := Chunks, slow := Slow}) ->
    Self = self(),
    Reference = make_ref(),
    Sent = iolist_to_binary([Chunk || {Chunk, _} <- Chunks]),
    Receiver = spawn_link(fun() ->
        receive
            go -> ok
        end,
        {Got, End} = receive_all(Peer, byte_size(Sent), {Slow, ?PAUSES}, []),
        Self ! {Reference, Got, End},
        ok = gen_tcp:close(Peer)
    end),
    ok = gen_tcp:controlling_process(Peer, Receiver),
    _ = spawn_link(fun() ->
        %% Sends on a closed connection fail, which is ignored.
        lists:foreach(
            fun({Chunk, Pause}) ->
                _ = gen_tcp:send(Peer, Chunk),
                wait(Pause)
            end,
            Chunks
        )
    end),
    Receiver ! go,
    {Reference, Sent}.

%% The receiver has its own time limit.
result({Reference, Sent}) ->
    receive
        {Reference, Got, End} -> {Sent, Got, End}
    end.

%% After the last byte the peer ends the stream; nothing may arrive before the other end does so too.
receive_all(Peer, Missing, _Slow, Got) when Missing =< 0 ->
    _ = gen_tcp:shutdown(Peer, write),
    case gen_tcp:recv(Peer, 0, weir_test_wait:patience()) of
        {ok, Data} -> receive_all(Peer, Missing, {0, 0}, [Data | Got]);
        {error, End} -> {iolist_to_binary(lists:reverse(Got)), End}
    end;
receive_all(Peer, Missing, {Slow, Pauses}, Got) ->
    case gen_tcp:recv(Peer, 0, weir_test_wait:patience()) of
        {ok, Data} ->
            Pauses > 0 andalso wait(Slow),
            receive_all(Peer, Missing - byte_size(Data), {Slow, Pauses - 1}, [Data | Got]);
        {error, End} ->
            {iolist_to_binary(lists:reverse(Got)), End}
    end.

wait(0) -> ok;
wait(Milliseconds) -> timer:sleep(Milliseconds).

%%% The reactor: sends back what comes.

%% `waiting': received data that was not sent back yet, the last first.
init(Socket, #{way := Way, fate := Fate}) ->
    {ok, #{socket => Socket, way => Way, fate => Fate, waiting => []}}.

handle_data(Socket, Data, State = #{fate := {Fate, 0}}) ->
    fail(Fate, Socket, Data, State);
handle_data(Socket, Data, State = #{fate := {Fate, Left}}) ->
    echo(Socket, Data, State#{fate := {Fate, Left - 1}});
handle_data(Socket, Data, State) ->
    echo(Socket, Data, State).

fail(error, _Socket, _Data, _State) ->
    error(on_purpose);
fail(exit, _Socket, _Data, _State) ->
    exit(on_purpose);
fail(throw, _Socket, _Data, _State) ->
    throw(on_purpose);
fail(garbage, _Socket, _Data, _State) ->
    garbage;
fail(unsendable, _Socket, Data, State) ->
    {send, [Data | 256], State};
fail(close, _Socket, _Data, State) ->
    {close, State};
fail(slow, Socket, Data, State) ->
    timer:sleep(10),
    echo(Socket, Data, State#{fate := good}).

echo(_Socket, Data, State = #{way := send}) ->
    {send, Data, State};
echo(_Socket, Data, State = #{way := {tell, Pid, Index}}) ->
    Pid ! {delivered, Index, Data},
    {send, Data, State};
echo(_Socket, Data, State = #{way := parts}) ->
    Half = byte_size(Data) div 2,
    <<Front:Half/binary, Byte, Back/binary>> = Data,
    {send, [[Front], [Byte | Back]], State};
echo(Socket, Data, State = #{way := info}) ->
    ok = weir_reactor:send(Socket, {echo, Data}),
    {ok, State};
echo(_Socket, Data, State = #{way := tick, waiting := Waiting}) ->
    {ok, State#{waiting := [Data | Waiting]}};
echo(Socket, Data, State = #{way := nowait, waiting := Waiting}) ->
    send_nowait(Socket, iolist_to_binary(lists:reverse([Data | Waiting])), State).

send_nowait(Socket, Data, State) ->
    case weir:send_nowait(Socket, Data) of
        {ok, Taken} when Taken =:= byte_size(Data) ->
            {ok, State#{waiting := []}};
        {ok, Taken} ->
            <<_:Taken/binary, Rest/binary>> = Data,
            ok = weir:notify_writable(Socket),
            {ok, State#{waiting := [Rest]}};
        {error, _} ->
            {ok, State}
    end.

handle_writable(Socket, State = #{way := nowait, waiting := [_ | _] = Waiting}) ->
    send_nowait(Socket, iolist_to_binary(lists:reverse(Waiting)), State);
handle_writable(_Socket, State) ->
    {ok, State}.

handle_info({echo, Data}, State) ->
    {send, Data, State}.

handle_tick(_Socket, State = #{way := tick, waiting := [_ | _] = Waiting}) ->
    {send, lists:reverse(Waiting), State#{waiting := []}};
handle_tick(_Socket, State) ->
    {ok, State}.

handle_close(_Socket, _Reason, State) ->
    {ok, State}.
