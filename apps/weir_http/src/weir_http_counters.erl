%% @doc The counters of an HTTP listener, in addition to those of {@link weir_counters}. `weir_http:info/1', exporters
%% and `docs/counters.md' are made from this table.
-module(weir_http_counters).

-export([new/0]).
-export([add/2, add/3]).
-export([add_for/2]).
-export([get/1]).
-export([table/0]).
-export([values/2]).

-include("weir_http.hrl").

-export_type([counters/0, name/0, row/0]).

-opaque counters() :: counters:counters_ref().

-type name() ::
    requests
    | refused
    | timeouts
    | crashes
    | cut_off
    | log_dropped
    | streams
    | stream_slow
    | stream_dropped
    | held
    | held_timeouts
    | held_lost
    | websockets
    | websocket_messages
    | websocket_failures
    | websocket_slow
    | websocket_dropped.

-type row() :: #{subject := http_listener, name := name(), kind := counter, unit := none, help := string()}.

%% @private
%% @doc Returns new counters at zero.
-spec new() -> counters().
new() -> counters:new(length(rows()), [write_concurrency]).

%% @private
%% @doc Adds one.
-spec add(counters(), name()) -> ok.
add(Counters, Name) -> add(Counters, Name, 1).

%% @private
%% @doc Adds Count.
-spec add(counters(), name(), non_neg_integer()) -> ok.
add(Counters, Name, Count) -> counters:add(Counters, index(Name), Count).

%% @private
%% @doc Adds one for the listener with that key, unless it is stopped: a TLS connection may outlive its listener.
-spec add_for(Key :: term(), name()) -> ok.
add_for(Key, Name) ->
    case persistent_term:get(Key, forgotten) of
        #http{counters = Counters} -> add(Counters, Name);
        forgotten -> ok
    end.

%% @private
%% @doc Returns all counters by name.
-spec get(counters()) -> #{name() => non_neg_integer()}.
get(Counters) ->
    maps:from_list([{Name, counters:get(Counters, index(Name))} || {Name, _, _, _} <- rows()]).

index(requests) -> 1;
index(refused) -> 2;
index(timeouts) -> 3;
index(crashes) -> 4;
index(log_dropped) -> 5;
index(streams) -> 6;
index(stream_slow) -> 7;
index(stream_dropped) -> 8;
index(held) -> 9;
index(held_timeouts) -> 10;
index(held_lost) -> 11;
index(websockets) -> 12;
index(websocket_messages) -> 13;
index(websocket_failures) -> 14;
index(websocket_slow) -> 15;
index(websocket_dropped) -> 16;
index(cut_off) -> 17.

%% @doc Returns all counters, in the form of {@link weir_counters:table/0}: exporters append the two.
-spec table() -> [row(), ...].
table() ->
    [
        #{subject => http_listener, name => Name, kind => Kind, unit => Unit, help => Help}
     || {Name, Kind, Unit, Help} <- rows()
    ].

%% @doc Returns the values in the map of `weir_http:info/1', in the order of the table; see
%% {@link weir_counters:values/2}.
-spec values(http_listener, map()) -> [{name(), non_neg_integer()}].
values(http_listener, Info) -> [{Name, map_get(Name, Info)} || {Name, _, _, _} <- rows()].

rows() ->
    [
        {requests, counter, none, "requests with a complete, valid head"},
        {refused, counter, none, "requests refused with a 4xx or 5xx and a close, before a handler saw them"},
        {timeouts, counter, none,
            "connections closed because a request took too long to arrive, the client did not read its response, or a "
            "WebSocket was silent"},
        {crashes, counter, none,
            "requests, event streams and WebSockets whose handler raised or returned an invalid result"},
        {cut_off, counter, none, "responses cut off because their file became shorter while it was sent"},
        {log_dropped, counter, none,
            "lines of the access log that were lost: they came too fast, the file could not be written, or the writer "
            "was killed"},
        {streams, counter, none, "event streams opened"},
        {stream_slow, counter, none, "event streams closed because the client did not read fast enough"},
        {stream_dropped, counter, none, "sends to an event stream dropped because the client did not read fast enough"},
        {held, counter, none, "requests held"},
        {held_timeouts, counter, none, "held requests answered because their timeout passed"},
        {held_lost, counter, none, "held requests whose client disconnected before the answer"},
        {websockets, counter, none, "WebSockets opened"},
        {websocket_messages, counter, none, "messages received on WebSockets"},
        {websocket_failures, counter, none, "WebSockets closed because the client broke the protocol or a limit"},
        {websocket_slow, counter, none, "WebSockets closed because the client did not read fast enough"},
        {websocket_dropped, counter, none, "frames dropped because the client did not read fast enough"}
    ].
