%% @private
%% @doc The counters of proxies in the text format of Prometheus, with the names of HAProxy's exporter where they mean
%% the same.
-module(weir_proxy_metrics).

-export([text/0]).
-export([text/1]).

%% Name in the exporter, key of the counter, kind, help.
-define(SHARED, [
    {"current_sessions", current_sessions, gauge, "sessions now"},
    {"max_sessions", max_sessions, gauge, "most sessions at a time"},
    {"sessions_total", sessions_total, counter, "sessions since the start"},
    {"bytes_in_total", bytes_in, counter, "bytes of clients, counted when their session ends"},
    {"bytes_out_total", bytes_out, counter, "bytes of servers, counted when their session ends"}
]).
-define(FRONTEND, [
    {"requests_denied_total", rejected, counter, "connections that a rule has rejected"},
    {"denied_connections_total", denied, counter, "connections reset by allow, deny, per_address or max_connections"},
    {"connection_errors_total", connection_errors, counter, "clients for which there was no server"},
    {"client_aborts_total", aborted, counter, "clients that left before they had a server"}
]).
%% HAProxy does not have this one.
-define(FRONTEND_OURS, [{"failed_headers_total", failed_headers, counter, "connections whose PROXY header failed"}]).
-define(BACKEND, [
    {"current_queue", queue_current, gauge, "connections that wait for a place"},
    {"retry_warnings_total", retries, counter, "connections that were tried again"},
    {"redispatch_warnings_total", redispatches, counter, "connections that were tried at another server"}
]).
-define(SERVER, [
    {"connection_errors_total", connection_errors, counter, "connections that were refused or took too long"},
    {"weight", weight, gauge, "the weight"},
    {"check_failures_total", checks_failed, counter, "checks that failed"},
    {"check_up_down_total", downs, counter, "times that checks have taken it down"}
]).

%% @doc Returns the metrics of all running proxies.
-spec text() -> iodata().
text() -> text([Info || Name <- weir_proxy:proxies(), {ok, Info} <- [weir_proxy:info(Name)]]).

%% @doc Returns the metrics of these proxies.
-spec text([weir_proxy:info()]) -> iodata().
text(Infos) ->
    Frontends = [{[{"proxy", Name}], Numbers} || #{frontends := All} <- Infos, {Name, Numbers} <- maps:to_list(All)],
    Backends = [{[{"proxy", Name}], Numbers} || #{backends := All} <- Infos, {Name, Numbers} <- maps:to_list(All)],
    Servers = [
        {[{"proxy", Name}, {"server", Server}], Numbers}
     || {[{_, Name}], #{servers := All}} <- Backends, Numbers = #{name := Server} <- All
    ],
    [
        families("haproxy_frontend_", ?SHARED ++ ?FRONTEND, Frontends),
        families("weir_proxy_frontend_", ?FRONTEND_OURS, Frontends),
        families("haproxy_backend_", ?SHARED ++ ?BACKEND, Backends),
        families("haproxy_server_", ?SHARED ++ ?SERVER, Servers),
        "# HELP haproxy_process_dropped_logs_total lines of the access log that were dropped\n",
        "# TYPE haproxy_process_dropped_logs_total counter\nhaproxy_process_dropped_logs_total ",
        integer_to_list(lists:sum([Dropped || #{log_dropped := Dropped} <- Infos])), $\n,
        replies([{Labels, Numbers} || {Labels, Numbers = #{replies := Count}} <- Servers, Count > 0]),
        "# HELP haproxy_server_status whether a server is in that state\n# TYPE haproxy_server_status gauge\n",
        [sample("haproxy_server_status", Labels ++ [{"state", state(Is)}], flag(Is =:= State)) || {Labels, #{state := State}} <- Servers, Is <- [up, down, drain, maint, failing, unresolved]]
    ].

%% Not under a name of HAProxy, whose figure is the mean of the last 1,024 connections.
replies([]) -> [];
replies(Measured) ->
    [
        "# HELP weir_proxy_server_reply_seconds time that a server took to reply\n# TYPE weir_proxy_server_reply_seconds summary\n",
        [
            [
                sample("weir_proxy_server_reply_seconds_count", Labels, Count),
                series("weir_proxy_server_reply_seconds_sum", Labels, float_to_binary(Sum / 1_000_000_000, [short]))
            ]
         || {Labels, #{replies := Count, reply_ns := Sum}} <- Measured
        ]
    ].

state(State) -> string:uppercase(atom_to_binary(State)).

flag(true) -> 1;
flag(false) -> 0.

families(Prefix, Rows, Things) ->
    [
        [
            ["# HELP ", Prefix, Name, $\s, Help, "\n# TYPE ", Prefix, Name, $\s, atom_to_list(Kind), $\n],
            [sample([Prefix, Name], Labels, maps:get(Key, Numbers)) || {Labels, Numbers} <- Things]
        ]
     || {Name, Key, Kind, Help} <- Rows
    ].

sample(Name, Labels, Value) -> series(Name, Labels, integer_to_list(Value)).

series(Name, Labels, Value) ->
    [Name, ${, lists:join($,, [[Label, "=\"", escaped(Text), $"] || {Label, Text} <- Labels]), "} ", Value, $\n].

escaped(Text) -> re:replace(Text, "[\\\\\"]", "\\\\&", [global]).
