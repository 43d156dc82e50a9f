%% @doc The native boundary of the load generator: histograms, alarms and TLS. Raises `badarg' for a wrong argument.
%%
%% Internal: use {@link weir_load_histogram} and {@link weir_load_tls}.
-module(weir_load_nif).

-on_load(load/0).

%% Histograms of nanoseconds. They are mutable, and any process may use them.
-export([new/0]).
-export([record_some/2]).
-export([merge/2]).
-export([percentiles/2]).
-export([summary/1]).
-export([serialise/1]).
-export([deserialise/1]).

%% Alarms.
-export([alarm_start/0]).
-export([alarm_set/2]).

%% A TLS client without a socket: it takes and returns bytes.
-export([tls_settings/2]).
-export([tls_connect/2]).
-export([tls_is_handshaking/1]).
-export([tls_send/2]).
-export([tls_received/2]).

-export_type([histogram/0, alarm/0, tls_settings/0, tls_session/0, tls_failure/0]).

-opaque histogram() :: reference().
-opaque alarm() :: reference().
-opaque tls_settings() :: reference().
-opaque tls_session() :: reference().

%% `tls_certificate': the server's certificate is not trusted. `tls_alert': the server has refused. `tls_error':
%% anything else. The text explains it in one line.
-type tls_failure() :: {tls_certificate | tls_alert | tls_error, Text :: string()}.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

load() ->
    case weir_library:file(weir_load, ?MODULE) of
        {ok, File} -> erlang:load_nif(File, 0);
        {error, _} = Error -> Error
    end.

%% @doc Returns an empty histogram.
-spec new() -> histogram().
new() -> ?NOT_LOADED.

%% @doc Counts at most 4096 values. A value longer than an hour counts as an hour.
-spec record_some(histogram(), [non_neg_integer()]) -> ok.
record_some(_Histogram, _Nanoseconds) -> ?NOT_LOADED.

%% @doc Adds the counts of the second histogram to the first.
-spec merge(histogram(), histogram()) -> ok.
merge(_Histogram, _Added) -> ?NOT_LOADED.

%% @doc Returns the values at percentiles from 0.0 to 100.0, all 0 for an empty histogram.
-spec percentiles(histogram(), [float()]) -> [non_neg_integer()].
percentiles(_Histogram, _Percentiles) -> ?NOT_LOADED.

%% @doc Returns the count, minimum, maximum, mean and standard deviation.
-spec summary(histogram()) ->
    {non_neg_integer(), non_neg_integer(), non_neg_integer(), Mean :: float(), Deviation :: float()}.
summary(_Histogram) -> ?NOT_LOADED.

%% @doc Returns HdrHistogram's V2 encoding, compressed.
-spec serialise(histogram()) -> binary().
serialise(_Histogram) -> ?NOT_LOADED.

%% @doc Returns the histogram of an encoding.
-spec deserialise(binary()) -> histogram().
deserialise(_Bytes) -> ?NOT_LOADED.

%% @doc Returns an alarm of the calling process. It has a thread until it is garbage collected.
-spec alarm_start() -> alarm().
alarm_start() -> ?NOT_LOADED.

%% @doc Sends `weir_load_alarm' to the owner in `Nanoseconds', at most an hour. Replaces an earlier setting that has
%% not gone off.
-spec alarm_set(alarm(), Nanoseconds :: non_neg_integer()) -> ok.
alarm_set(_Alarm, _Nanoseconds) -> ?NOT_LOADED.

%% @doc Returns the settings that connections share: the trusted root certificates in DER, or `anybody' to accept any
%% server, and the application protocols to offer.
-spec tls_settings([binary()] | anybody, Protocols :: [binary()]) -> {ok, tls_settings()} | {error, tls_failure()}.
tls_settings(_Trust, _Protocols) -> ?NOT_LOADED.

%% @doc Starts a connection to a server of this name or address. Returns it with the first bytes to send.
-spec tls_connect(tls_settings(), Server :: binary()) -> {ok, {tls_session(), binary()}} | {error, tls_failure()}.
tls_connect(_Settings, _Server) -> ?NOT_LOADED.

%% @doc Returns whether the handshake is still going on.
-spec tls_is_handshaking(tls_session()) -> boolean().
tls_is_handshaking(_Session) -> ?NOT_LOADED.

%% @doc Encrypts bytes and returns what to send. During the handshake it returns nothing and keeps the bytes: they are
%% in the reply of {@link tls_received/2} at the end of the handshake.
-spec tls_send(tls_session(), binary()) -> {ok, binary()} | {error, tls_failure()}.
tls_send(_Session, _Plain) -> ?NOT_LOADED.

%% @doc Decrypts received bytes. Returns what the server has sent, and bytes to send in reply.
-spec tls_received(tls_session(), binary()) ->
    {ok, {Plain :: binary(), Reply :: binary()}} | {error, tls_failure()}.
tls_received(_Session, _Cipher) -> ?NOT_LOADED.
