%% @doc The listening sockets of a node, with the connections that wait in their backlogs and those that the kernel has
%% dropped. They are OTP's ports, Weir's sockets, and sockets of OTP's module `socket'.
-module(weir_scope_listeners).

-export([all/1]).

-export_type([listener/0]).

-type listener() :: #{
    kind := port | weir | socket | distribution,
    ip := inet:ip_address(),
    port := inet:port_number(),
    owner => pid(),
    buffer => non_neg_integer(),
    waiting => non_neg_integer(),
    backlog => non_neg_integer(),
    dropped => non_neg_integer()
}.
%% `kind': `distribution' is the listener of the node's distribution. `buffer': bytes that one read of its connections
%% takes at most; absent for `socket', where each call gives the size. On Linux also `waiting', the connections that
%% are not accepted yet; `backlog', their limit; and `dropped', connections dropped since it listens because the
%% backlog was full or memory was short. A listener of Weir has a socket for each pollset.

%% Sockets in one call.
-define(SLICE, 100).

%% @doc Returns all listening sockets. It reads every socket once.
-spec all(weir_scope_facts:ask()) -> [listener()].
all(Ask) -> in_slices(Ask, fun of_ports/2, Ask(erlang, ports, [])) ++ of_module(Ask) ++ of_weir(Ask, 0).

of_ports(Ask, Ports) ->
    listeners(Ask, [Port || {Port, {name, "tcp_inet"}} <- answers(Ask, fun erlang:port_info/2, Ports, name)]).

%% A node that has not loaded the module has no such sockets.
of_module(Ask) ->
    case Ask(code, is_loaded, [socket]) of
        false -> [];
        _ -> in_slices(Ask, fun module_listeners/2, Ask(socket, which_sockets, [tcp]))
    end.

module_listeners(Ask, Sockets) ->
    lists:append([
        module_listener(Ask, Socket)
     || {Socket, {ok, true}} <- answers(Ask, fun socket:getopt/2, Sockets, {socket, acceptconn})
    ]).

module_listener(Ask, Socket) ->
    try {Ask(socket, sockname, [Socket]), Ask(socket, info, [Socket])} of
        {{ok, #{addr := Ip, port := Port}}, #{owner := Owner}} ->
            Raw = fun(Level, Option, Bytes) -> Ask(socket, getopt_native, [Socket, {Level, Option}, Bytes]) end,
            [
                maps:merge(
                    #{kind => socket, ip => Ip, port => Port, owner => Owner},
                    maps:merge(queue(Raw(6, 11, 32)), dropped(Raw(1, 55, 36)))
                )
            ];
        _ ->
            []
    catch
        %% The socket is closed.
        error:_ -> []
    end.

of_weir(Ask, Piece) ->
    case Ask(erlang, whereis, [weir_pollsets]) =/= undefined andalso Ask(weir_nif, sockets, [Piece]) of
        {ok, Handles} ->
            in_slices(Ask, fun listeners/2, [{'$inet', weir_tcp, Handle} || Handle <- Handles]) ++
                of_weir(Ask, Piece + 1);
        _ ->
            []
    end.

in_slices(_Ask, _Fun, []) ->
    [];
in_slices(Ask, Fun, Sockets) ->
    {Slice, Rest} = slice(Sockets, ?SLICE, []),
    Fun(Ask, Slice) ++ in_slices(Ask, Fun, Rest).

slice([Socket | Rest], Left, Slice) when Left > 0 -> slice(Rest, Left - 1, [Socket | Slice]);
slice(Rest, _Left, Slice) -> {Slice, Rest}.

%% Calls `Function(Element, Argument)' for all elements in one call to the node.
answers(Ask, Function, Elements, Argument) ->
    lists:zip(Elements, Ask(lists, zipwith, [Function, Elements, lists:duplicate(length(Elements), Argument)])).

%% A listening socket has moved no byte, and has a port but no peer.
listeners(Ask, Sockets) ->
    Moved = answers(Ask, fun inet:getstat/2, Sockets, [recv_oct, send_oct]),
    Silent = [
        Socket
     || {Socket, {ok, [{recv_oct, 0}, {send_oct, 0}]}} <- Moved
    ],
    Alone = [
        Socket
     || {Socket, {error, enotconn}} <- lists:zip(Silent, Ask(lists, map, [fun inet:peername/1, Silent]))
    ],
    lists:append([listener(Ask, Socket) || Socket <- Alone]).

listener(Ask, Socket) ->
    case {Ask(inet, sockname, [Socket]), Ask(inet, getopts, [Socket, [buffer]])} of
        {{ok, {Ip, Port}}, {ok, [{buffer, Buffer}]}} when is_integer(Port), Port > 0 ->
            Known = maps:merge(
                owner(Ask, Socket), maps:merge(queue(raw(Ask, Socket, 6, 11, 32)), dropped(raw(Ask, Socket, 1, 55, 36)))
            ),
            [Known#{ip => Ip, port => Port, buffer => Buffer}];
        _ ->
            []
    end.

owner(Ask, Port) when is_port(Port) ->
    Kernel = Ask(erlang, whereis, [net_kernel]),
    case Ask(erlang, port_info, [Port, connected]) of
        {connected, Kernel} -> #{kind => distribution, owner => Kernel};
        {connected, Pid} -> #{kind => port, owner => Pid};
        undefined -> #{kind => port}
    end;
owner(Ask, {_, _, Handle}) ->
    case Ask(weir_nif, info, [Handle]) of
        {ok, #{owner := Owner}} when is_pid(Owner) -> #{kind => weir, owner => Owner};
        _ -> #{kind => weir}
    end.

%% For a listening socket Linux puts both numbers into tcpi_unacked and tcpi_sacked of struct tcp_info.
queue({ok, <<_:24/binary, Waiting:32/native, Backlog:32/native>>}) -> #{waiting => Waiting, backlog => Backlog};
queue(_) -> #{}.

%% SO_MEMINFO: the ninth number is SK_MEMINFO_DROPS.
dropped({ok, <<_:32/binary, Dropped:32/native>>}) -> #{dropped => Dropped};
dropped(_) -> #{}.

raw(Ask, Socket, Level, Option, Bytes) ->
    case Ask(inet, getopts, [Socket, [{raw, Level, Option, Bytes}]]) of
        {ok, [{raw, Level, Option, Value}]} -> {ok, Value};
        _ -> unknown
    end.
