%% @doc Who listens on a node, how many connections wait there, and how many the kernel has dropped: OTP's ports and Weir's sockets. Those of
%% OTP's `socket' are not looked at.
-module(weir_scope_listeners).

-export([all/1]).

-export_type([listener/0]).

-type listener() :: #{
    kind := port | weir | distribution,
    ip := inet:ip_address(),
    port := inet:port_number(),
    owner => pid(),
    buffer := non_neg_integer(),
    waiting => non_neg_integer(),
    backlog => non_neg_integer(),
    dropped => non_neg_integer()
}.
%% `kind': `distribution' is that of the node itself. `buffer': bytes that are read at once into its connections. On Linux: `waiting', the
%% connections that nobody has accepted yet, `backlog', the most of them, and `dropped', those that came while it was full, or while there was no
%% memory, since it listens. Weir's have a socket for each pollset.

%% So many are asked about at once.
-define(SLICE, 100).

%% @doc Looks at every socket once.
-spec all(weir_scope_facts:ask()) -> [listener()].
all(Ask) -> in_slices(Ask, fun of_ports/2, Ask(erlang, ports, [])) ++ of_weir(Ask, 0).

of_ports(Ask, Ports) ->
    listeners(Ask, [Port || {Port, {name, "tcp_inet"}} <- answers(Ask, fun erlang:port_info/2, Ports, name)]).

of_weir(Ask, Piece) ->
    case Ask(erlang, whereis, [weir_pollsets]) =/= undefined andalso Ask(weir_nif, sockets, [Piece]) of
        {ok, Handles} -> in_slices(Ask, fun listeners/2, [{'$inet', weir_tcp, Handle} || Handle <- Handles]) ++ of_weir(Ask, Piece + 1);
        _ -> []
    end.

in_slices(_Ask, _Fun, []) ->
    [];
in_slices(Ask, Fun, Sockets) ->
    {Slice, Rest} = slice(Sockets, ?SLICE, []),
    Fun(Ask, Slice) ++ in_slices(Ask, Fun, Rest).

slice([Socket | Rest], Left, Slice) when Left > 0 -> slice(Rest, Left - 1, [Socket | Slice]);
slice(Rest, _Left, Slice) -> {Slice, Rest}.

%% One question.
answers(Ask, Function, Elements, Argument) ->
    lists:zip(Elements, Ask(lists, zipwith, [Function, Elements, lists:duplicate(length(Elements), Argument)])).

%% It has moved no byte, and has a port and no peer.
listeners(Ask, Sockets) ->
    Silent = [Socket || {Socket, {ok, [{recv_oct, 0}, {send_oct, 0}]}} <- answers(Ask, fun inet:getstat/2, Sockets, [recv_oct, send_oct])],
    Alone = [Socket || {Socket, {error, enotconn}} <- lists:zip(Silent, Ask(lists, map, [fun inet:peername/1, Silent]))],
    lists:append([listener(Ask, Socket) || Socket <- Alone]).

listener(Ask, Socket) ->
    case {Ask(inet, sockname, [Socket]), Ask(inet, getopts, [Socket, [buffer]])} of
        {{ok, {Ip, Port}}, {ok, [{buffer, Buffer}]}} when is_integer(Port), Port > 0 ->
            Known = maps:merge(owner(Ask, Socket), maps:merge(queue(Ask, Socket), dropped(Ask, Socket))),
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

%% Of a socket that listens Linux has both in struct tcp_info, where others have what is on its way (tcpi_unacked and tcpi_sacked).
queue(Ask, Socket) ->
    case Ask(inet, getopts, [Socket, [{raw, 6, 11, 32}]]) of
        {ok, [{raw, 6, 11, <<_:24/binary, Waiting:32/native, Backlog:32/native>>}]} -> #{waiting => Waiting, backlog => Backlog};
        _ -> #{}
    end.

%% SO_MEMINFO: the ninth number is SK_MEMINFO_DROPS.
dropped(Ask, Socket) ->
    case Ask(inet, getopts, [Socket, [{raw, 1, 55, 36}]]) of
        {ok, [{raw, 1, 55, <<_:32/binary, Dropped:32/native>>}]} -> #{dropped => Dropped};
        _ -> #{}
    end.
