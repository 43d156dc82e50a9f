%% @doc The table of a proxy's counters, in the form of {@link weir_counters:table/0}. Exporters and `docs/counters.md'
%% are made from it.
-module(weir_proxy_counters).

-export([table/0]).
-export([values/2]).

-export_type([subject/0, row/0]).

-type subject() :: proxy_frontend | proxy_backend | proxy_server.
%% Where the values are: in the `frontends' and `backends' of {@link weir_proxy:info/1}, or the maps of
%% {@link weir_proxy:servers/2}.

-type row() :: #{subject := subject(), name := atom(), kind := counter | gauge, unit := bytes | nanoseconds | none, help := string()}.

%% @doc Returns all counters.
-spec table() -> [row(), ...].
table() ->
    [
        #{subject => Subject, name => Name, kind => Kind, unit => Unit, help => Help}
     || Subject <- [proxy_frontend, proxy_backend, proxy_server], {Name, Kind, Unit, Help} <- rows(Subject)
    ].

%% @doc Returns the values of a subject's counters from its map, in the order of the table.
-spec values(subject(), map()) -> [{Name :: atom(), integer()}].
values(Subject, Info) -> [{Name, map_get(Name, Info)} || {Name, _, _, _} <- rows(Subject)].

rows(proxy_frontend) ->
    shared() ++ [
        {rejected, counter, none, "connections that a rule has rejected"},
        {aborted, counter, none, "clients that left before they had a server"},
        {connection_errors, counter, none, "clients for which there was no server"},
        {denied, counter, none, "connections reset by allow, deny, per_address or max_connections"},
        {failed_headers, counter, none, "connections whose PROXY header failed"}
    ];
rows(proxy_backend) ->
    shared() ++ [
        {queue_current, gauge, none, "connections that wait for a place"},
        {queue_total, counter, none, "connections that had to wait for a place"},
        {retries, counter, none, "connections that were tried again"},
        {redispatches, counter, none, "connections that were tried at another server"},
        {sticks, gauge, none, "clients whose server is remembered"}
    ];
rows(proxy_server) ->
    shared() ++ [
        {connection_errors, counter, none, "connections that were refused or took too long"},
        {failures, gauge, none, "connections in a row that were refused or took too long"},
        {resets, gauge, none, "connections in a row that it has reset before it has sent a byte"},
        {early_closes, gauge, none, "connections in a row that it has closed before it has sent a byte"},
        {replies, counter, none, "replies that were measured, where the backend has measure"},
        {reply_ns, counter, nanoseconds, "the sum of their times"},
        {checks_failed, counter, none, "checks that failed"},
        {downs, counter, none, "times that checks or the agent have taken it down"}
    ].

shared() ->
    [
        {current_sessions, gauge, none, "sessions now"},
        {max_sessions, gauge, none, "most sessions at a time"},
        {sessions_total, counter, none, "sessions since the start"},
        {bytes_in, counter, bytes, "bytes of clients, counted when their session ends"},
        {bytes_out, counter, bytes, "bytes of servers, counted when their session ends"}
    ].
