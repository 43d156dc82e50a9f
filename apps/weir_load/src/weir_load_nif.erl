%% @doc The native boundary of the load generator: histograms, alarms and TLS. A wrong argument is a `badarg'.
%%
%% Internal: {@link weir_load_histogram} and {@link weir_load_tls} are what others use.
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

%% TLS as a client, from bytes to bytes.
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

%% `tls_certificate' if the server is not who it should be, `tls_alert' if it has refused, and `tls_error' for the
%% rest; and a line about it.
-type tls_failure() :: {tls_certificate | tls_alert | tls_error, Text :: string()}.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

load() ->
    case weir_library:file(weir_load, ?MODULE) of
        {ok, File} -> erlang:load_nif(File, 0);
        {error, _} = Error -> Error
    end.

%% @doc An empty histogram.
-spec new() -> histogram().
new() -> ?NOT_LOADED.

%% @doc Counts at most 4096 values. One past an hour counts as an hour.
-spec record_some(histogram(), [non_neg_integer()]) -> ok.
record_some(_Histogram, _Nanoseconds) -> ?NOT_LOADED.

%% @doc Adds what the second has counted to the first.
-spec merge(histogram(), histogram()) -> ok.
merge(_Histogram, _Added) -> ?NOT_LOADED.

%% @doc The values at percentiles, floats from 0.0 to 100.0; 0 for an empty histogram.
-spec percentiles(histogram(), [float()]) -> [non_neg_integer()].
percentiles(_Histogram, _Percentiles) -> ?NOT_LOADED.

%% @doc Count, shortest, longest, mean and standard deviation.
-spec summary(histogram()) ->
    {non_neg_integer(), non_neg_integer(), non_neg_integer(), Mean :: float(), Deviation :: float()}.
summary(_Histogram) -> ?NOT_LOADED.

%% @doc HdrHistogram's V2 encoding, compressed.
-spec serialise(histogram()) -> binary().
serialise(_Histogram) -> ?NOT_LOADED.

%% @doc The histogram that was serialised.
-spec deserialise(binary()) -> histogram().
deserialise(_Bytes) -> ?NOT_LOADED.

%% @doc An alarm for the caller, with a thread behind it, until it is garbage.
-spec alarm_start() -> alarm().
alarm_start() -> ?NOT_LOADED.

%% @doc The owner gets the message `weir_load_alarm' in so many nanoseconds, an hour at most. What was set before and
%% has not gone off is forgotten.
-spec alarm_set(alarm(), Nanoseconds :: non_neg_integer()) -> ok.
alarm_set(_Alarm, _Nanoseconds) -> ?NOT_LOADED.

%% @doc What connections share: the certificates, in DER, of those who sign for servers, or `anybody' where any server
%% will do; and application protocols to offer.
-spec tls_settings([binary()] | anybody, Protocols :: [binary()]) -> {ok, tls_settings()} | {error, tls_failure()}.
tls_settings(_Trust, _Protocols) -> ?NOT_LOADED.

%% @doc A connection to a server of this name or address, and the first bytes to send.
-spec tls_connect(tls_settings(), Server :: binary()) -> {ok, {tls_session(), binary()}} | {error, tls_failure()}.
tls_connect(_Settings, _Server) -> ?NOT_LOADED.

%% @doc Whether the handshake is still going on.
-spec tls_is_handshaking(tls_session()) -> boolean().
tls_is_handshaking(_Session) -> ?NOT_LOADED.

%% @doc The bytes to send for these. During the handshake there are none; they are among what {@link tls_received/2}
%% wants sent when it is over.
-spec tls_send(tls_session(), binary()) -> {ok, binary()} | {error, tls_failure()}.
tls_send(_Session, _Plain) -> ?NOT_LOADED.

%% @doc Takes bytes that have come: what the server has said, and what has to be sent.
-spec tls_received(tls_session(), binary()) ->
    {ok, {Plain :: binary(), Reply :: binary()}} | {error, tls_failure()}.
tls_received(_Session, _Cipher) -> ?NOT_LOADED.
