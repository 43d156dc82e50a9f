%% @doc Relays, behind {@link weir:relay/3}: their options, and the calls of the native side.
-module(weir_relay).

-include("weir_socket.hrl").

-export([start/3]).
-export([stop/1]).
-export([info/1]).
-export([list/0]).
-export([of_listener/1]).
-export([new_latency/0]).
-export([latency/1]).

-export_type([relay/0, latency/0, server/0, options/0, native/0, statistics/0, traffic/0, times/0, info/0, refused/0]).

-opaque relay() :: {weir_relay, weir_nif:relay()}.

-opaque latency() :: {weir_latency, reference()}.
%% Times of replies, of any number of relays: see {@link new_latency/0}.

-type server() :: {connect, weir_tcp:name(), timeout()}.
%% Where to connect to, and the milliseconds until that has failed.

-type options() :: #{
    prefix => iodata(),
    buffer => 1..16#100000,
    splice => auto | boolean(),
    idle_timeout => timeout(),
    half_close_timeout => timeout(),
    detached => boolean(),
    owner => pid(),
    latency => latency()
}.
%% See {@link weir:relay/3}.

-type native() :: {
    Buffer :: pos_integer(), Pipe :: pos_integer(), Splice :: auto | boolean(),
    {IdleTimeout :: timeout(), HalfCloseTimeout :: timeout()}, Detached :: boolean(), Observed :: boolean(),
    reference() | undefined
}.
%% The options as the native part has them.

-type traffic() :: #{bytes := non_neg_integer(), packets := non_neg_integer()}.
%% What has come from one side: bytes, and reads of the kernel that gave any.

-type times() ::
    #{count := 0}
    | #{
        count := pos_integer(),
        min := non_neg_integer(),
        max := non_neg_integer(),
        average := float(),
        deviation := float(),
        p50 := non_neg_integer(),
        p90 := non_neg_integer(),
        p95 := non_neg_integer(),
        p99 := non_neg_integer(),
        p999 := non_neg_integer()
    }.
%% Microseconds, each within 6 %; those beyond an hour count as an hour.

-type statistics() :: #{
    a_to_b := traffic(),
    b_to_a := traffic(),
    duration_us := non_neg_integer(),
    idle_us := non_neg_integer(),
    first_byte_us := non_neg_integer() | undefined,
    reply_us := times(),
    failed := a | b | undefined,
    ended_first := a | b | undefined
}.
%% What a relay has done: `duration_us' since it began, `idle_us' since bytes last moved, `first_byte_us' from its
%% beginning to the first byte of B. `reply_us' is from the last bytes of A, the client, to the first ones of B, the
%% server, after them, for each time that B replied to A: the response time of tcprstat. `failed' is the side whose connection
%% was reset, if that has ended it. `ended_first': of the two sides the one whose end of data was passed on first.

-type info() :: #{
    owner := pid(),
    pollset := pos_integer(),
    a_to_b := traffic(),
    b_to_a := traffic(),
    duration_us := non_neg_integer(),
    idle_us := non_neg_integer(),
    first_byte_us := non_neg_integer() | undefined,
    reply_us := times(),
    failed := undefined,
    ended_first := a | b | undefined
}.
%% The statistics so far, and who and where.

-type refused() ::
    {connect, timeout | closed | inet:posix()}
    | {weir_tcp:socket(), closed | not_owner | reactor | enotconn | ebusy | epipe}
    | {bad_socket, term(), Needed :: string()}
    | weir_checked_options:bad_option()
    | no_native_part
    | inet:posix().
%% Why there is no relay: why a server was not reached, which socket cannot be relayed and why, what is no socket of Weir's, an option that is wrong, a
%% system without the native part, or what the kernel said.

%% As large as what one read takes: a receiver that keeps up leaves it empty.
-define(BUFFER, 16#10000).
-define(BUFFER_MAX, 16#100000).

%% A pipe of this size costs a stream 5 % less than one of 64 KiB. It holds references to what the sockets hold anyway.
-define(PIPE, 16#40000).

-define(DEFAULTS, #{
    prefix => <<>>,
    buffer => ?BUFFER,
    splice => auto,
    idle_timeout => infinity,
    half_close_timeout => infinity,
    detached => false
}).

-define(STARTED, [weir, relay, start]).

%% @doc See {@link weir:relay/3}.
-spec start(weir_tcp:socket(), weir_tcp:socket() | server(), options()) -> {ok, relay()} | {error, refused()}.
start(A, B, Options) ->
    Known = [owner, latency | maps:keys(?DEFAULTS)],
    case {check_ends(A, B), weir_checked_options:check(Options, Known, fun allowed/2), weir_nif:available()} of
        {ok, ok, true} -> owned(A, B, maps:merge(?DEFAULTS, Options));
        {ok, ok, false} -> {error, no_native_part};
        {ok, {error, _} = Error, _} -> Error;
        {{error, _} = Error, _, _} -> Error
    end.

%% Before anything else: a server should not get a connection that nobody is there for.
owned(A, B, #{owner := Owner, detached := false} = Options) when Owner =/= self() ->
    case is_process_alive(Owner) of
        true -> join(A, B, Options);
        false -> {error, esrch}
    end;
owned(A, B, Options) ->
    join(A, B, Options).

join(?SOCKET(A) = SocketA, B, #{prefix := Prefix} = Options) ->
    Owner = maps:get(owner, Options, self()),
    try
        %% Afterwards there are no sockets to be asked for their peers.
        Peers = weir_event:is_attached(?STARTED) andalso #{peer_a => peer(SocketA), peer_b => peer(B)},
        {Peers, native_join(A, B, Owner, iolist_to_binary(Prefix), native(Options))}
    of
        {Known, {ok, Number}} ->
            Relay = {weir_relay, Number},
            ok = started(Relay, Owner, Known),
            {ok, Relay};
        {_, {wait, Handle, Operation}} -> await(SocketA, Handle, Operation, B, Options);
        {_, {error, {connect, _}} = Error} -> Error;
        {_, {error, {Handle, Reason}}} -> {error, {?SOCKET(Handle), Reason}};
        {_, {error, Reason}} -> {error, Reason}
    catch
        %% One of them was never a socket here, the latency is something else, or the owner is of an earlier life of this node.
        error:badarg -> {error, unknown([SocketA | [B || ?SOCKET(_) <- [B]]], Options)}
    end.

native_join(A, ?SOCKET(B), Owner, Prefix, Native) ->
    weir_nif:relay_start(A, B, weir_pollsets:here(), Owner, Prefix, Native);
native_join(A, {connect, Server, _Timeout}, Owner, Prefix, Native) ->
    case server(Server) of
        {ok, Address} -> weir_nif:relay_connect(A, Address, weir_pollsets:here(), Owner, Prefix, Native);
        {error, Reason} -> {error, {connect, Reason}}
    end.

server({local, _} = Path) -> weir_address:native(local, Path, 0);
server({Address, Port}) -> weir_address:native(weir_address:family(Address), Address, Port).

await(A, Handle, Operation, {connect, _, Timeout}, Options) ->
    case weir_operation:await(Handle, Operation, Timeout) of
        ok ->
            case join(A, ?SOCKET(Handle), Options) of
                {ok, _} = Started -> Started;
                %% A stop of Weir may close it, and the caller does not know this socket.
                {error, {?SOCKET(Handle), Reason}} -> close_and(Handle, {error, {connect, Reason}});
                {error, _} = Error -> close_and(Handle, Error)
            end;
        {error, Reason} ->
            close_and(Handle, {error, {connect, Reason}})
    end.

close_and(Handle, Result) ->
    _ = weir_nif:close(Handle, now),
    Result.

unknown([Socket = ?SOCKET(Handle) | Sockets], Options) ->
    try weir_nif:owner(Handle) of
        _ -> unknown(Sockets, Options)
    catch
        error:badarg -> {bad_socket, Socket, needed_socket()}
    end;
unknown([], #{latency := {weir_latency, Native} = Latency} = Options) ->
    try weir_nif:latency_seen(Native) of
        _ -> unknown([], maps:remove(latency, Options))
    catch
        error:badarg -> {bad_option, latency, Latency, needed_latency()}
    end;
unknown([], Options) ->
    {bad_option, owner, maps:get(owner, Options, self()), needed_owner()}.

started(_Relay, _Owner, false) ->
    ok;
started(Relay, Owner, Peers) ->
    Times = #{monotonic_time => erlang:monotonic_time(), system_time => erlang:system_time()},
    weir_event:execute(?STARTED, Times, Peers#{relay => Relay, owner => Owner}).

peer({connect, Server, _Timeout}) ->
    Server;
peer(Socket) ->
    case weir_tcp:peername(Socket) of
        {ok, Peer} -> Peer;
        {error, _} -> undefined
    end.

check_ends(?SOCKET(A), {connect, Server, Timeout}) when is_integer(A) ->
    case {is_server(Server), weir_checked_options:time(0, Timeout)} of
        {true, true} -> ok;
        {true, Allowed} -> {error, {bad_option, connect, Timeout, Allowed}};
        {false, _} -> {error, {bad_option, connect, Server, "{Address, Port} or {local, Path}"}}
    end;
check_ends(?SOCKET(Handle) = Socket, ?SOCKET(Handle)) ->
    {error, {bad_socket, Socket, "two different sockets are needed"}};
check_ends(?SOCKET(A), ?SOCKET(B)) when is_integer(A), is_integer(B) -> ok;
check_ends(?SOCKET(A), B) when is_integer(A) -> {error, {bad_socket, B, needed_socket()}};
check_ends(A, _B) -> {error, {bad_socket, A, needed_socket()}}.

is_server({local, _}) -> true;
is_server({Address, Port}) when is_tuple(Address), is_integer(Port), Port >= 0, Port =< 65535 -> weir_address:is_valid(Address);
is_server(_) -> false.

needed_latency() -> "what weir_relay:new_latency/0 has returned".

needed_owner() -> "a process of this node".

needed_socket() ->
    "a socket of {tcp_module, weir_tcp} is needed, without TLS".

native(#{splice := Splice, idle_timeout := Idle, half_close_timeout := HalfClose, detached := Detached} = Options) ->
    #{buffer := Buffer} = Options,
    Latency = case Options of #{latency := {weir_latency, Native}} -> Native; #{} -> undefined end,
    {Buffer, pipe(Buffer), Splice, {Idle, HalfClose}, Detached, weir_relay_observer:is_wanted(), Latency}.

%% Who asks for another buffer gets pipes like that.
pipe(?BUFFER) -> ?PIPE;
pipe(Buffer) -> Buffer.

allowed(prefix, Prefix) ->
    try iolist_size(Prefix) of
        _ -> true
    catch
        error:badarg -> "iodata"
    end;
allowed(buffer, Bytes) ->
    is_integer(Bytes) andalso Bytes >= 1 andalso Bytes =< ?BUFFER_MAX orelse "a number of bytes from 1 to 1048576";
allowed(owner, Owner) ->
    is_pid(Owner) andalso node(Owner) =:= node() orelse needed_owner();
allowed(latency, {weir_latency, Native}) when is_reference(Native) -> true;
allowed(latency, _Latency) -> needed_latency();
allowed(splice, Splice) ->
    is_boolean(Splice) orelse Splice =:= auto orelse "auto, true or false";
allowed(detached, Detached) ->
    is_boolean(Detached) orelse "true or false";
allowed(Timeout, Time) when Timeout =:= idle_timeout; Timeout =:= half_close_timeout ->
    weir_checked_options:time(1, Time).

%% @private
%% @doc The relays of connections that came through a listener, each with the process that its connection was accepted for.
-spec of_listener(weir_nif:listener()) -> [{relay(), pid()}].
of_listener(Listener) -> of_listener(Listener, 0).

of_listener(Listener, Piece) ->
    case weir_nif:listener_relays(Listener, Piece) of
        {ok, Relays} -> [{{weir_relay, Relay}, Pid} || {Relay, Pid} <- Relays] ++ of_listener(Listener, Piece + 1);
        done -> []
    end.

%% @doc New times of replies, for the option `latency' of relays: all relays that are started with them add to them, such as those to one
%% server. They take 110 KiB at most, and are gone when nobody has them any more.
-spec new_latency() -> latency().
new_latency() -> {weir_latency, weir_nif:latency_new()}.

%% @doc How long the replies took, from the beginning on; see {@link weir:latency/1}.
-spec latency(latency()) -> weir_listener:latency().
latency({weir_latency, Native}) ->
    {Sum, Times} = weir_nif:latency_seen(Native),
    #{measured => true, replies => lists:sum([Count || {_, Count} <- Times]), reply_ns => Sum, times => Times}.

%% @doc See {@link weir:stop_relay/1}.
-spec stop(relay()) -> ok.
stop({weir_relay, Relay}) ->
    weir_nif:relay_stop(Relay).

%% @doc See {@link weir:relay_info/1}.
-spec info(relay()) -> {ok, info()} | {error, closed}.
info({weir_relay, Relay}) ->
    case weir_nif:relay_info(Relay) of
        {ok, {Owner, Pollset, Statistics}} -> {ok, Statistics#{owner => Owner, pollset => Pollset}};
        {error, closed} -> {error, closed}
    end.

%% @doc See {@link weir:relays/0}.
-spec list() -> [relay()].
list() ->
    case weir_nif:available() of
        true -> list(0);
        false -> []
    end.

list(Piece) ->
    case weir_nif:relays(Piece) of
        {ok, Relays} -> [{weir_relay, Relay} || Relay <- Relays] ++ list(Piece + 1);
        done -> []
    end.
