%% Many sockets of one owner with bursts of data, options that cut it, and moves between pollsets: each socket
%% delivers its data once, in order, and its end last.
-module(prop_delivery).

-include_lib("proper/include/proper.hrl").

-export([prop_delivery/0]).

prop_delivery() ->
    ?FORALL(
        {Connections, Moves},
        {resize(16, non_empty(list(connection()))), list(move())},
        weir_test_property:holds(fun() -> delivered(Connections, Moves) end)
    ).

delivered(Connections, Moves) ->
    Sockets = [open(Connection) || Connection <- Connections],
    Mover = spawn_link(fun() -> move(Moves, [Socket || {Socket, _, _} <- Sockets]) end),
    Received = receive_all(
        maps:from_list([{Socket, Active} || {Socket, Active, _} <- Sockets]),
        maps:from_list([{Socket, []} || {Socket, _, _} <- Sockets])
    ),
    _ = weir_test_wait:wait_for_end(Mover),
    Wrong = [
        {Socket, Active, {sent, byte_size(Sent)}, {received, byte_size(Got)}, binary:longest_common_prefix([Sent, Got])}
     || {Socket, Active, Sent} <- Sockets,
        Got <- [iolist_to_binary(lists:reverse(maps:get(Socket, Received)))],
        Got =/= Sent
    ],
    Wrong =:= [] orelse {wrong, Wrong}.

connection() ->
    {
        oneof([true, once, 1, 7, 100]),
        oneof([1, 10, 1000, 65536]),
        list(frequency([{4, integer(1, 500)}, {1, integer(500, 20000)}]))
    }.

move() ->
    {non_neg_integer(), integer(1, erlang:system_info(schedulers))}.

%% A pair whose other end is written by its own process.
open({Active, Buffer, Bursts}) ->
    %% Pieces of one byte need only little data.
    Sizes = [min(Size, Buffer * 200) || Size <- Bursts],
    Sent = iolist_to_binary([rand:bytes(Size) || Size <- Sizes]),
    {ok, Listener} = gen_tcp:listen(0, [
        {tcp_module, weir_tcp}, binary, {active, false}, {buffer, Buffer}, {ip, loopback}
    ]),
    {ok, Port} = inet:port(Listener),
    spawn_link(fun() ->
        {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
        send(Peer, Sizes, Sent)
    end),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    ok = inet:setopts(Socket, [{active, Active}]),
    {Socket, Active, Sent}.

send(Peer, [], <<>>) ->
    ok = gen_tcp:close(Peer);
send(Peer, [Size | Sizes], Data) ->
    <<Burst:Size/binary, Rest/binary>> = Data,
    ok = gen_tcp:send(Peer, Burst),
    send(Peer, Sizes, Rest).

move([], _Sockets) ->
    ok;
move([{Index, Pollset} | Moves], Sockets) ->
    %% The socket may already be closed.
    _ = weir:migrate(lists:nth(1 + Index rem length(Sockets), Sockets), Pollset),
    erlang:yield(),
    move(Moves, Sockets).

%% Collects the data of each socket until all are closed.
receive_all(Modes, Received) when map_size(Modes) =:= 0 ->
    Received;
receive_all(Modes, Received) ->
    receive
        {tcp, Socket, Data} ->
            %% maps:get fails if data arrives after the end.
            Active = maps:get(Socket, Modes),
            _ = [inet:setopts(Socket, [{active, once}]) || Active =:= once],
            receive_all(Modes, maps:update_with(Socket, fun(Before) -> [Data | Before] end, Received));
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, maps:get(Socket, Modes)}]),
            receive_all(Modes, Received);
        {tcp_closed, Socket} ->
            receive_all(maps:remove(Socket, Modes), Received)
    after weir_test_wait:patience() -> error({nothing_comes_from, Modes})
    end.
