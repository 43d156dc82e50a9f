%% @doc The table of a proxy's counters, in the form of {@link weir_counters:table/0}. Exporters and `docs/counters.md'
%% are made from it.
-module(weir_proxy_counters).

-export([table/0]).
-export([values/2]).

-export_type([subject/0, row/0]).

-type subject() :: proxy_frontend | proxy_backend | proxy_server.
%% Where the values are: in the `frontends' and `backends' of {@link weir_proxy:info/1}, or the maps of
%% {@link weir_proxy:servers/2}.

-type row() :: #{
    subject := subject(), name := atom(), kind := counter | gauge, unit := bytes | nanoseconds | none, help := string()
}.

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
        {rejected, counter, none, "connections rejected by a rule"},
        {aborted, counter, none, "clients that left before they had a server"},
        {connection_errors, counter, none, "clients that got no server"},
        {denied, counter, none, "connections reset by allow, deny, per_address or max_connections"},
        {failed_headers, counter, none, "connections without a valid PROXY header"}
    ];
rows(proxy_backend) ->
    shared() ++ [
        {queue_current, gauge, none, "connections in the queue"},
        {queue_total, counter, none, "connections that had to wait in the queue"},
        {retries, counter, none, "connection attempts after a failed one"},
        {redispatches, counter, none, "connection attempts at another server after a failed one"},
        {sticks, gauge, none, "clients whose server is remembered"}
    ];
rows(proxy_server) ->
    shared() ++ [
        {connection_errors, counter, none, "connection attempts that were refused or timed out"},
        {failures, gauge, none, "consecutive connection attempts that were refused or timed out"},
        {resets, gauge, none, "consecutive connections that it reset before it sent a byte"},
        {early_closes, gauge, none, "consecutive connections that it closed before it sent a byte"},
        {replies, counter, none, "measured replies, if the backend has the option measure"},
        {reply_ns, counter, nanoseconds, "sum of the measured reply times"},
        {checks_failed, counter, none, "failed checks"},
        {downs, counter, none, "times that checks or the agent marked it down"}
    ].

shared() ->
    [
        {current_sessions, gauge, none, "current sessions"},
        {max_sessions, gauge, none, "highest number of sessions at a time"},
        {sessions_total, counter, none, "sessions since the start"},
        {bytes_in, counter, bytes, "bytes received from clients, counted when a session ends"},
        {bytes_out, counter, bytes, "bytes received from servers, counted when a session ends"}
    ].
