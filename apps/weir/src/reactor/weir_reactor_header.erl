%% @private
%% @doc The PROXY header of a reactor's connection, which is read before the module's `init/2' is called.
%%
%% In the meantime the connection is in the mode `{active, once}' and raw. Bytes after the header in the same segment
%% are put back, and framed by the connection's options.
-module(weir_reactor_header).

-export([begin_with/3]).
-export([data/2]).
-export([ended/2]).

-export_type([header/0]).

-include("weir_socket.hrl").

-record(header, {
    handle :: weir_nif:handle(),
    %% The connection's packet type, restored after the header.
    packet :: term(),
    timer :: reference() | none,
    handshakes :: weir_handshake:handshakes(),
    %% When it began, and the peer.
    start :: integer(),
    peer :: weir_tcp:name() | undefined,
    read = <<>> :: binary()
}).

-opaque header() :: #header{}.

%% @doc Begins to read the header of a connection of the calling reactor. After the timeout the reactor gets
%% `{'$weir_reactor', {header_timeout, Handle}}'.
-spec begin_with(weir_nif:handle(), timeout(), weir_handshake:handshakes()) -> header().
begin_with(Handle, Timeout, Handshakes) ->
    Peer = weir_handshake:peer(?SOCKET(Handle)),
    %% A closed connection has no options, and its close is the next event.
    Packet =
        case weir_nif:getopts(Handle, [packet]) of
            {ok, [{packet, Type}]} -> Type;
            _ -> raw
        end,
    Timer =
        case Timeout of
            infinity -> none;
            _ -> erlang:send_after(Timeout, self(), {'$weir_reactor', {header_timeout, Handle}})
        end,
    _ = weir_nif:setopts(Handle, [{packet, raw}, {active, once}]),
    Start = erlang:monotonic_time(),
    #header{handle = Handle, packet = Packet, timer = Timer, handshakes = Handshakes, start = Start, peer = Peer}.

%% @doc Parses received bytes. After `ok' the connection delivers as usual.
-spec data(iodata(), header()) ->
    {ok, weir_proxy_protocol:header()} | {more, header()} | {error, weir_proxy_protocol:reason()}.
data(Data, Header = #header{handle = Handle, packet = Packet, read = Before}) ->
    Read = iolist_to_binary([Before, Data]),
    case weir_proxy_protocol:parse(Read) of
        {ok, Value, Rest} ->
            _ = weir_nif:unrecv(Handle, Rest),
            _ = weir_nif:setopts(Handle, [{packet, Packet}, {active, true}]),
            ended({ok, Value}, Header);
        more ->
            _ = weir_nif:activate_once(Handle),
            {more, Header#header{read = Read}};
        {error, _} = Error ->
            ended(Error, Header)
    end.

%% @doc Stops waiting for the header. Counts and reports the result, and returns it.
-spec ended(Result, header()) -> Result when Result :: {ok, weir_proxy_protocol:header()} | {error, term()}.
ended(Result, #header{timer = Timer, handshakes = Handshakes, start = Start, peer = Peer}) ->
    _ = Timer =/= none andalso erlang:cancel_timer(Timer),
    weir_handshake:ended(proxy, Peer, Start, Result, Handshakes).
