%% @doc Relays: the implementation of {@link weir:relay/3}, with its options.
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
%% Reply times, of any number of relays: see {@link new_latency/0}.

-type server() :: {connect, weir_tcp:name(), timeout()}.
%% The server to connect to, and the timeout of the connect in milliseconds.

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
%% The options as the native part takes them.

-type traffic() :: #{bytes := non_neg_integer(), packets := non_neg_integer()}.
%% What one side has sent: bytes, and reads of the kernel that returned any.

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
%% Microseconds, each within 6 %; times beyond an hour count as an hour.

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
%% What a relay has done. `duration_us': since it began; `idle_us': since bytes last moved; `first_byte_us': from its
%% beginning to the first byte of B. `reply_us': the response times of tcprstat, from the last bytes of A, the client,
%% to the first bytes of B, the server, after them. `failed': the side whose connection was reset, if that ended the
%% relay. `ended_first': the side whose end of data was passed on first.

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
%% The statistics so far, with the owner and the pollset.

-type refused() ::
    {connect, timeout | closed | inet:posix()}
    | {weir_tcp:socket(), closed | not_owner | reactor | enotconn | ebusy | epipe}
    | {bad_socket, term(), Needed :: string()}
    | weir_checked_options:bad_option()
    | no_native_part
    | inet:posix().
%% Why a relay was not started: the server was not reached, a socket cannot be relayed, a term is no socket of Weir,
%% an option is wrong, the system is unsupported, or the kernel's error.

%% The size of one read: a receiver that keeps up leaves the buffer empty.
-define(BUFFER, 16#10000).
-define(BUFFER_MAX, 16#100000).

%% A pipe of this size costs a stream 5 % less than one of 64 KiB. It only references memory that the sockets hold
%% anyway.
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

%% Checked first: a server should not get a connection without an owner.
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
        %% Looked up now: after the start the sockets are gone.
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
        %% A term was never a socket here, the latency is wrong, or the owner's pid is of an earlier incarnation of
        %% this node.
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
                %% Weir was stopped and has closed this socket, which the caller does not know.
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
    {error, {bad_socket, Socket, "a different socket is needed"}};
check_ends(?SOCKET(A), ?SOCKET(B)) when is_integer(A), is_integer(B) -> ok;
check_ends(?SOCKET(A), B) when is_integer(A) -> {error, {bad_socket, B, needed_socket()}};
check_ends(A, _B) -> {error, {bad_socket, A, needed_socket()}}.

is_server({local, _}) ->
    true;
is_server({Address, Port}) when is_tuple(Address), is_integer(Port), Port >= 0, Port =< 65535 ->
    weir_address:is_valid(Address);
is_server(_) ->
    false.

needed_latency() -> "a result of weir_relay:new_latency/0".

needed_owner() -> "a process of this node".

needed_socket() ->
    "a socket of {tcp_module, weir_tcp} is needed, without TLS".

native(#{splice := Splice, idle_timeout := Idle, half_close_timeout := HalfClose, detached := Detached} = Options) ->
    #{buffer := Buffer} = Options,
    Latency = case Options of #{latency := {weir_latency, Native}} -> Native; #{} -> undefined end,
    {Buffer, pipe(Buffer), Splice, {Idle, HalfClose}, Detached, weir_relay_observer:is_wanted(), Latency}.

%% The default has larger pipes; another buffer size is also that of the pipes.
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
%% @doc Returns the relays of connections that came through a listener, each with the process that its connection was
%% accepted for.
-spec of_listener(weir_nif:listener()) -> [{relay(), pid()}].
of_listener(Listener) -> of_listener(Listener, 0).

of_listener(Listener, Piece) ->
    case weir_nif:listener_relays(Listener, Piece) of
        {ok, Relays} -> [{{weir_relay, Relay}, Pid} || {Relay, Pid} <- Relays] ++ of_listener(Listener, Piece + 1);
        done -> []
    end.

%% @doc Creates reply times for the option `latency'. All relays started with them add to them, for example all relays
%% to one server. They take 110 KiB at most, and are freed when no term refers to them.
-spec new_latency() -> latency().
new_latency() -> {weir_latency, weir_nif:latency_new()}.

%% @doc Returns the reply times since their creation; see {@link weir:latency/1}.
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
