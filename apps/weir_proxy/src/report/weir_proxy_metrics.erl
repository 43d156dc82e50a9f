%% @private
%% @doc The counters of proxies in the text format of Prometheus, with the names of HAProxy's exporter where they mean
%% the same.
-module(weir_proxy_metrics).

-export([text/0]).
-export([text/1]).

%% Name in the exporter, key of the counter, kind, help.
-define(SHARED, [
    {"current_sessions", current_sessions, gauge, "current sessions"},
    {"max_sessions", max_sessions, gauge, "highest number of sessions at a time"},
    {"sessions_total", sessions_total, counter, "sessions since the start"},
    {"bytes_in_total", bytes_in, counter, "bytes received from clients, counted when a session ends"},
    {"bytes_out_total", bytes_out, counter, "bytes received from servers, counted when a session ends"}
]).
-define(FRONTEND, [
    {"requests_denied_total", rejected, counter, "connections rejected by a rule"},
    {"denied_connections_total", denied, counter, "connections reset by allow, deny, per_address or max_connections"},
    {"connection_errors_total", connection_errors, counter, "clients that got no server"},
    {"client_aborts_total", aborted, counter, "clients that left before they had a server"}
]).
%% HAProxy does not have this one.
-define(FRONTEND_OURS, [{"failed_headers_total", failed_headers, counter, "connections without a valid PROXY header"}]).
-define(BACKEND, [
    {"current_queue", queue_current, gauge, "connections in the queue"},
    {"retry_warnings_total", retries, counter, "connection attempts after a failed one"},
    {"redispatch_warnings_total", redispatches, counter, "connection attempts at another server after a failed one"}
]).
-define(SERVER, [
    {"connection_errors_total", connection_errors, counter, "connection attempts that were refused or timed out"},
    {"weight", weight, gauge, "weight"},
    {"check_failures_total", checks_failed, counter, "failed checks"},
    {"check_up_down_total", downs, counter, "times that checks or the agent marked it down"}
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
        "# HELP haproxy_process_dropped_logs_total dropped lines of the access log\n",
        "# TYPE haproxy_process_dropped_logs_total counter\nhaproxy_process_dropped_logs_total ",
        integer_to_list(lists:sum([Dropped || #{log_dropped := Dropped} <- Infos])),
        $\n,
        replies([{Labels, Numbers} || {Labels, Numbers = #{replies := Count}} <- Servers, Count > 0]),
        "# HELP haproxy_server_status 1 if the server is in this state, otherwise 0\n"
        "# TYPE haproxy_server_status gauge\n",
        [
            sample("haproxy_server_status", Labels ++ [{"state", state(Is)}], flag(Is =:= State))
         || {Labels, #{state := State}} <- Servers, Is <- [up, down, drain, maint, failing, unresolved]
        ]
    ].

%% Not under a name of HAProxy, whose figure is the mean of the last 1,024 connections.
replies([]) ->
    [];
replies(Measured) ->
    [
        "# HELP weir_proxy_server_reply_seconds reply times of the server\n"
        "# TYPE weir_proxy_server_reply_seconds summary\n",
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
