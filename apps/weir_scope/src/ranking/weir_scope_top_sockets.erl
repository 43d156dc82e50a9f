%% @doc The sockets of a node with most traffic: see {@link weir_scope_top}.
-module(weir_scope_top_sockets).

-export([keys/0]).
-export([top/4]).

-import(weir_scope_look, [sliced/3, each/6, now_us/0, rate/3, add/5]).

-export_type([key/0, socket/0]).

-type key() :: bytes | in | out | queue | idle.

-type socket() :: #{
    socket := term(),
    kind := weir | port | socket,
    owner => pid() | undefined,
    local => term(),
    peer => term(),
    in := float(),
    out := float(),
    queue := non_neg_integer(),
    idle => float(),
    rtt_us => non_neg_integer(),
    resent => non_neg_integer()
}.
%% `kind': a socket of Weir, a port (gen_tcp's default), or OTP's `socket'. `in', `out': bytes per second. `queue':
%% bytes that wait to be sent. From tcp_info of Linux: `idle', seconds since data were last received or sent; `rtt_us',
%% the round-trip time in microseconds; `resent', segments retransmitted since the connection began. There is no age:
%% neither the VM nor the kernel keeps it.

%% @doc Returns the position of each key in the tuple of values.
-spec keys() -> #{key() => pos_integer()}.
keys() -> #{in => 1, out => 2, queue => 3, bytes => 4, idle => 5}.

%% @doc Returns the `Most' sockets that are largest by a key. They are read twice, `Over' milliseconds apart.
-spec top(weir_scope_facts:ask(), key(), pos_integer(), pos_integer()) -> [socket()].
top(Ask, By, Most, Over) ->
    #{By := Index} = keys(),
    Table = ets:new(?MODULE, [set, private]),
    First = fun(_Kind, Key, {In, Out, _}, At, none) ->
        _ = ets:insert(Table, {Key, At, In, Out}),
        none
    end,
    none = each_socket(Ask, First, none),
    ok = timer:sleep(Over),
    %% tcp_info is only read for all sockets if they are sorted by `idle'.
    Idle =
        case By of
            idle -> fun(Kind, Key) -> maps:get(idle, tcp_info(Ask, Kind, named(Kind, Key)), 0) end;
            _ -> fun(_, _) -> 0 end
        end,
    Second = fun(Kind, Key, {In, Out, Queue}, Now, Top) ->
        case ets:lookup(Table, Key) of
            [{_, At, In0, Out0}] ->
                {InRate, OutRate} = {rate(In - In0, At, Now), rate(Out - Out0, At, Now)},
                add(Index, {InRate, OutRate, Queue, InRate + OutRate, Idle(Kind, Key)}, {Kind, Key}, Most, Top);
            [] ->
                Top
        end
    end,
    Top = each_socket(Ask, Second, weir_scope_look:none()),
    [socket(Ask, Kind, named(Kind, Key), Values) || {_, {Kind, Key}, Values} <- weir_scope_look:largest(Top)].

%% The key of a socket in the table, and the socket of a key. Keys of different kinds are different.
known(weir, {'$inet', _, Handle}) -> Handle;
known(_, Socket) -> Socket.

named(weir, Handle) -> {'$inet', weir_tcp, Handle};
named(_, Socket) -> Socket.

each_socket(Ask, Fun, State) ->
    of_weir(Ask, Fun, of_module(Ask, Fun, of_ports(Ask, Fun, State))).

of_ports(Ask, Fun, State) ->
    Counted = fun(Ports, Then) ->
        Tcp = each(
            Ask,
            fun erlang:port_info/2,
            Ports,
            name,
            fun(Port, Name, Found) -> [Port || Name =:= {name, "tcp_inet"}] ++ Found end,
            []
        ),
        getstat(Ask, port, Fun, Then, Tcp)
    end,
    sliced(Counted, State, Ask(erlang, ports, [])).

%% All sockets of a slice have the same time.
getstat(Ask, Kind, Fun, State, Sockets) ->
    At = now_us(),
    Counted = fun
        (Socket, {ok, [{recv_oct, In}, {send_oct, Out}, {send_pend, Queue}]}, Then) ->
            Fun(Kind, known(Kind, Socket), {In, Out, Queue}, At, Then);
        (_Socket, {error, _}, Then) ->
            Then
    end,
    each(Ask, fun inet:getstat/2, Sockets, [recv_oct, send_oct, send_pend], Counted, State).

%% A node that has not loaded the module has no such sockets.
of_module(Ask, Fun, State) ->
    case Ask(code, is_loaded, [socket]) of
        false ->
            State;
        _ ->
            sliced(
                fun(Sockets, Then) ->
                    lists:foldl(fun(Socket, Last) -> module_socket(Ask, Fun, Socket, Last) end, Then, Sockets)
                end,
                State,
                Ask(socket, which_sockets, [tcp])
            )
    end.

module_socket(Ask, Fun, Socket, State) ->
    try Ask(socket, info, [Socket]) of
        #{counters := #{read_byte := In, write_byte := Out}} -> Fun(socket, Socket, {In, Out, 0}, now_us(), State);
        _ -> State
    catch
        %% The socket is closed.
        error:_ -> State
    end.

of_weir(Ask, Fun, State) ->
    case {Ask(erlang, whereis, [weir_sup]), Ask(erlang, function_exported, [weir_nif, traffic, 1])} of
        {undefined, _} -> State;
        {_, true} -> told(Ask, Fun, State, 0);
        {_, false} -> asked(Ask, Fun, State, 0)
    end.

told(Ask, Fun, State, Piece) ->
    case Ask(weir_nif, traffic, [Piece]) of
        {ok, Sockets} ->
            At = now_us(),
            Counted = fun(Slice, Then) ->
                lists:foldl(
                    fun({Handle, In, Out, Queue}, Last) -> Fun(weir, Handle, {In, Out, Queue}, At, Last) end,
                    Then,
                    Slice
                )
            end,
            told(Ask, Fun, sliced(Counted, State, Sockets), Piece + 1);
        done ->
            State
    end.

%% An older Weir needs a call for each socket.
asked(Ask, Fun, State, Piece) ->
    case Ask(weir_nif, sockets, [Piece]) of
        {ok, Handles} ->
            Counted = fun(Slice, Then) -> getstat(Ask, weir, Fun, Then, [named(weir, Handle) || Handle <- Slice]) end,
            asked(Ask, Fun, sliced(Counted, State, Handles), Piece + 1);
        done ->
            State
    end.

socket(Ask, Kind, Socket, {In, Out, Queue, _, _}) ->
    Known = #{
        socket => Socket,
        kind => Kind,
        owner => owner(Ask, Kind, Socket),
        local => address(Ask, Kind, sockname, Socket),
        peer => address(Ask, Kind, peername, Socket),
        in => In,
        out => Out,
        queue => Queue
    },
    maps:merge(maps:filter(fun(_, Value) -> Value =/= unknown end, Known), tcp_info(Ask, Kind, Socket)).

%% The bytes of Linux' struct tcp_info up to the last of these numbers. The option has this number only on Linux. Its
%% times are milliseconds, and begin with the connection.
-define(TCP_INFO, 104).

tcp_info(Ask, Kind, Socket) ->
    case raw(Ask, Kind, Socket) of
        <<_:44/binary, Sent:32/native, _:32, Received:32/native, _:12/binary, Rtt:32/native, _:28/binary,
            Resent:32/native>> ->
            #{idle => min(Sent, Received) / 1000, rtt_us => Rtt, resent => Resent};
        _ ->
            #{}
    end.

raw(Ask, socket, Socket) ->
    case Ask(socket, getopt_native, [Socket, {6, 11}, ?TCP_INFO]) of
        {ok, Value} -> Value;
        {error, _} -> unknown
    end;
raw(Ask, _, Socket) ->
    case Ask(inet, getopts, [Socket, [{raw, 6, 11, ?TCP_INFO}]]) of
        {ok, [{raw, 6, 11, Value}]} -> Value;
        _ -> unknown
    end.

owner(Ask, port, Port) ->
    case Ask(erlang, port_info, [Port, connected]) of
        {connected, Pid} -> Pid;
        undefined -> unknown
    end;
owner(Ask, weir, {_, _, Handle}) ->
    case Ask(weir_nif, info, [Handle]) of
        {ok, #{owner := Owner}} -> Owner;
        {error, _} -> unknown
    end;
owner(Ask, socket, Socket) ->
    try Ask(socket, info, [Socket]) of
        #{owner := Owner} -> Owner;
        _ -> unknown
    catch
        error:_ -> unknown
    end.

address(Ask, socket, Which, Socket) ->
    case Ask(socket, Which, [Socket]) of
        {ok, #{addr := Address, port := Port}} -> {Address, Port};
        _ -> unknown
    end;
address(Ask, _, Which, Socket) ->
    case Ask(inet, Which, [Socket]) of
        {ok, Address} -> Address;
        {error, _} -> unknown
    end.
