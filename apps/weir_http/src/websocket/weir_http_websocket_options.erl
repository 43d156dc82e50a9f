%% @private
%% @doc The options of a WebSocket; see {@link weir_http_websocket:options()}.
-module(weir_http_websocket_options).

-export([settings/1]).

-include("weir_http_websocket.hrl").

-define(DEFAULTS, #settings{
    max_message = 1048576,
    max_pending = 262144,
    slow = close,
    idle_timeout = 60000,
    ping_interval = 30000,
    close_timeout = 5000,
    drain_code = 1001,
    origins = same,
    deflate = false
}).

%% Options of a single handshake, not part of the settings.
-define(OWN, [protocol, fields]).
-define(SHARED, [
    max_message, max_pending, slow, idle_timeout, ping_interval, close_timeout, drain_code, origins, deflate
]).

%% @doc Returns the settings for options. Fails with `{bad_option, Name, Value, Allowed}'.
-spec settings(weir_http_websocket:options()) -> #settings{}.
settings(Options) when map_size(Options) =:= 0 ->
    ?DEFAULTS;
settings(Options) ->
    case weir_checked_options:check(Options, ?OWN ++ ?SHARED, fun allowed/2) of
        ok -> weir_http_shared:term(?MODULE, maps:fold(fun set/3, ?DEFAULTS, Options));
        {error, Bad} -> error(Bad)
    end.

allowed(Name, Bytes) when Name =:= max_message; Name =:= max_pending ->
    (is_integer(Bytes) andalso Bytes > 0) orelse "a number of bytes from 1 on";
allowed(slow, Slow) ->
    lists:member(Slow, [close, drop]) orelse "close or drop";
allowed(close_timeout, Time) ->
    is_time(Time) orelse "milliseconds from 1 on";
allowed(Name, Time) when Name =:= idle_timeout; Name =:= ping_interval ->
    Time =:= infinity orelse is_time(Time) orelse "milliseconds from 1 on, or infinity";
allowed(drain_code, Code) ->
    lists:member(Code, [1001, 1012]) orelse "1001 or 1012";
allowed(origins, Origins) ->
    lists:member(Origins, [any, same]) orelse (is_list(Origins) andalso lists:all(fun is_binary/1, Origins)) orelse
        "any, same or a list of binaries such as <<\"https://example.org\">>";
allowed(deflate, Deflate) ->
    case weir_http_websocket_deflate:offer(Deflate) of
        {ok, _} -> true;
        {error, {bad_option, _, _, Allowed}} -> Allowed
    end;
allowed(protocol, Protocol) ->
    is_binary(Protocol) orelse "a binary of weir_http_websocket:protocols/1";
allowed(fields, Fields) ->
    is_list(Fields) orelse "a list of {Name, Value}".

is_time(Time) -> is_integer(Time) andalso Time > 0 andalso Time < 1 bsl 31.

set(max_message, Bytes, Settings) -> Settings#settings{max_message = Bytes};
set(max_pending, Bytes, Settings) -> Settings#settings{max_pending = Bytes};
set(slow, Slow, Settings) -> Settings#settings{slow = Slow};
set(idle_timeout, Time, Settings) -> Settings#settings{idle_timeout = Time};
set(ping_interval, Time, Settings) -> Settings#settings{ping_interval = Time};
set(close_timeout, Time, Settings) -> Settings#settings{close_timeout = Time};
set(drain_code, Code, Settings) -> Settings#settings{drain_code = Code};
set(origins, Origins, Settings) -> Settings#settings{origins = Origins};
set(deflate, Deflate, Settings) ->
    {ok, Offer} = weir_http_websocket_deflate:offer(Deflate),
    Settings#settings{deflate = Offer};
set(_Own, _Value, Settings) ->
    Settings.
