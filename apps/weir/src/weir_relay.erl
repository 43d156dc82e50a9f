%% @doc Relays, behind {@link weir:relay/3}: what may be asked for, and how it is said to the native side.
-module(weir_relay).

-export([start/3]).
-export([stop/1]).
-export([info/1]).
-export([list/0]).

-export_type([relay/0, options/0, statistics/0, traffic/0, times/0, info/0, refused/0]).

-opaque relay() :: {weir_relay, weir_nif:relay()}.

-type options() :: #{
    prefix => iodata(),
    buffer => 1..16#100000,
    splice => auto | boolean(),
    idle_timeout => timeout(),
    half_close_timeout => timeout(),
    detached => boolean()
}.
%% See {@link weir:relay/3}.

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
    reply_us := times()
}.
%% What a relay has done: `duration_us' since it began, `idle_us' since bytes last moved, `first_byte_us' from its
%% beginning to the first byte of B. `reply_us' is from the last bytes of A, the client, to the first ones of B, the
%% server, after them, for each time that B replied to A: the response time of tcprstat.

-type info() :: #{
    owner := pid(),
    pollset := pos_integer(),
    a_to_b := traffic(),
    b_to_a := traffic(),
    duration_us := non_neg_integer(),
    idle_us := non_neg_integer(),
    first_byte_us := non_neg_integer() | undefined,
    reply_us := times()
}.
%% The statistics so far, and who and where.

-type refused() :: {weir_tcp:socket(), closed | not_owner | enotconn | ebusy | epipe}.
%% Which socket cannot be relayed, and why.

%% As large as what one read takes: a receiver that keeps up leaves it empty.
-define(BUFFER, 16#10000).
-define(BUFFER_MAX, 16#100000).

%% A pipe of this size costs a stream 5 % less than one of 64 KiB. It holds references to what the sockets hold anyway.
-define(PIPE, 16#40000).

%% As long as the VM's own timers take.
-define(TIMEOUT_MAX, 16#ffffffff).

-define(DEFAULTS, #{
    prefix => <<>>,
    buffer => ?BUFFER,
    splice => auto,
    idle_timeout => infinity,
    half_close_timeout => infinity,
    detached => false
}).

%% @doc See {@link weir:relay/3}.
-spec start(weir_tcp:socket(), weir_tcp:socket(), options()) -> {ok, relay()} | {error, refused() | inet:posix()}.
start({'$inet', weir_tcp, HandleA}, {'$inet', weir_tcp, HandleB}, Options) when HandleA =/= HandleB ->
    maps:foreach(fun check/2, Options),
    #{prefix := Prefix} = All = maps:merge(?DEFAULTS, Options),
    case weir_nif:relay_start(HandleA, HandleB, weir_pollsets:here(), iolist_to_binary(Prefix), native(All)) of
        {ok, Relay} -> {ok, {weir_relay, Relay}};
        {error, {Handle, Reason}} -> {error, {{'$inet', weir_tcp, Handle}, Reason}};
        {error, Reason} -> {error, Reason}
    end;
start({'$inet', weir_tcp, Handle} = Socket, {'$inet', weir_tcp, Handle}, _Options) ->
    error({bad_socket, Socket, "two different sockets are needed"});
start({'$inet', weir_tcp, _}, B, _Options) ->
    error({bad_socket, B, needed_socket()});
start(A, _B, _Options) ->
    error({bad_socket, A, needed_socket()}).

needed_socket() ->
    "a socket of {tcp_module, weir_tcp} is needed, without TLS".

native(#{splice := Splice, idle_timeout := Idle, half_close_timeout := HalfClose, detached := Detached} = Options) ->
    #{buffer := Buffer} = Options,
    {Buffer, pipe(Buffer), Splice, Idle, HalfClose, Detached}.

%% Who asks for another buffer gets pipes like that.
pipe(?BUFFER) -> ?PIPE;
pipe(Buffer) -> Buffer.

check(prefix, Value) ->
    try iolist_size(Value) of
        _ -> ok
    catch
        error:badarg -> bad_option(prefix, Value, "iodata")
    end;
check(buffer, Value) when is_integer(Value), Value >= 1, Value =< ?BUFFER_MAX -> ok;
check(buffer, Value) -> bad_option(buffer, Value, "a number of bytes from 1 to 1048576");
check(splice, Value) when Value =:= auto; is_boolean(Value) -> ok;
check(splice, Value) -> bad_option(splice, Value, "auto, true or false");
check(Timeout, infinity) when Timeout =:= idle_timeout; Timeout =:= half_close_timeout -> ok;
check(Timeout, Value) when Timeout =:= idle_timeout; Timeout =:= half_close_timeout ->
    case is_integer(Value) andalso Value >= 1 andalso Value =< ?TIMEOUT_MAX of
        true -> ok;
        false -> bad_option(Timeout, Value, "milliseconds from 1 to 4294967295, or infinity")
    end;
check(detached, Value) when is_boolean(Value) -> ok;
check(detached, Value) -> bad_option(detached, Value, "true or false");
check(Name, Value) ->
    Names = lists:join(", ", [atom_to_list(Known) || Known <- maps:keys(?DEFAULTS)]),
    bad_option(Name, Value, lists:append(["there is no such option, but " | Names])).

-spec bad_option(term(), term(), string()) -> no_return().
bad_option(Name, Value, Allowed) ->
    error({bad_option, {Name, Value}, Allowed}).

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
