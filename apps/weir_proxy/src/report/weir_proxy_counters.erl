%% @doc The counters of a frontend, a backend or a server. Connections add to them directly, without a process. They
%% have the names of HAProxy's statistics where they mean the same.
%%
%% {@link table/0} describes them, and the listeners' counters beside them, in the form of {@link
%% weir_counters:table/0}. Exporters and `docs/counters.md' are made from it.
-module(weir_proxy_counters).

-export([new/0]).
-export([add/3]).
-export([get/2]).
-export([clear/2]).
-export([begun/1]).
-export([take/2]).
-export([ended/3]).
-export([to_map/1]).
-export([table/0]).
-export([values/2]).

-export_type([name/0, subject/0, row/0]).

-type name() ::
    current_sessions | max_sessions | sessions_total | bytes_in | bytes_out | connection_errors | retries | redispatches
    | queue_current | queue_total | failures | aborted | rejected | sticks | resets | early_closes.

-type subject() :: proxy_frontend | proxy_backend | proxy_server.
%% Where the values are: in the `frontends' and `backends' of {@link weir_proxy:info/1}, or the maps of
%% {@link weir_proxy:servers/2}.

-type row() :: #{
    subject := subject(), name := atom(), kind := counter | gauge, unit := bytes | nanoseconds | none, help := string()
}.

%% In the order of their indexes.
-define(NAMES, [
    current_sessions, max_sessions, sessions_total, bytes_in, bytes_out, connection_errors, retries, redispatches,
    queue_current, queue_total, failures, aborted, rejected, sticks, resets, early_closes
]).

-define(CURRENT, 1).
-define(MAX, 2).
-define(TOTAL, 3).
-define(IN, 4).
-define(OUT, 5).

%% @doc Returns new counters, all 0.
-spec new() -> atomics:atomics_ref().
new() -> atomics:new(length(?NAMES), [{signed, true}]).

place(current_sessions) -> ?CURRENT;
place(max_sessions) -> ?MAX;
place(sessions_total) -> ?TOTAL;
place(bytes_in) -> ?IN;
place(bytes_out) -> ?OUT;
place(connection_errors) -> 6;
place(retries) -> 7;
place(redispatches) -> 8;
place(queue_current) -> 9;
place(queue_total) -> 10;
%% Connections in a row that were refused or took too long.
place(failures) -> 11;
place(aborted) -> 12;
place(rejected) -> 13;
%% Keys whose server is remembered.
place(sticks) -> 14;
%% Connections in a row that a server reset before it sent a byte.
place(resets) -> 15;
%% Connections in a row that a server closed before it sent a byte.
place(early_closes) -> 16.

%% @doc Adds to a counter and returns its new value.
-spec add(atomics:atomics_ref(), name(), integer()) -> integer().
add(Numbers, Name, N) -> atomics:add_get(Numbers, place(Name), N).

-spec get(atomics:atomics_ref(), name()) -> integer().
get(Numbers, Name) -> atomics:get(Numbers, place(Name)).

%% @doc Sets a counter to 0. Does not write if it is 0 already, as it mostly is.
-spec clear(atomics:atomics_ref(), name()) -> ok.
clear(Numbers, Name) ->
    case get(Numbers, Name) of
        0 -> ok;
        Count -> atomics:sub(Numbers, place(Name), Count)
    end.

%% @doc Counts a session that has begun.
-spec begun(atomics:atomics_ref()) -> ok.
begun(Numbers) ->
    count(Numbers, atomics:add_get(Numbers, ?CURRENT, 1)).

count(Numbers, Current) ->
    ok = atomics:add(Numbers, ?TOTAL, 1),
    raise(Numbers, Current, atomics:get(Numbers, ?MAX)).

%% Another process may raise it at the same time.
raise(Numbers, Current, Most) when Current > Most ->
    case atomics:compare_exchange(Numbers, ?MAX, Most, Current) of
        ok -> ok;
        More -> raise(Numbers, Current, More)
    end;
raise(_Numbers, _Current, _Most) ->
    ok.

%% @doc Counts a session, unless there are `Limit' already; returns whether it did. Called before connecting, so that
%% the limit is never exceeded. It does not add and then undo: in between, others would see a full server, and nothing
%% would notify them.
-spec take(atomics:atomics_ref(), pos_integer() | infinity) -> boolean().
take(Numbers, infinity) ->
    ok = begun(Numbers),
    true;
take(Numbers, Limit) ->
    take(Numbers, Limit, atomics:get(Numbers, ?CURRENT)).

take(Numbers, Limit, Current) when Current < Limit ->
    case atomics:compare_exchange(Numbers, ?CURRENT, Current, Current + 1) of
        ok ->
            ok = count(Numbers, Current + 1),
            true;
        Now ->
            take(Numbers, Limit, Now)
    end;
take(_Numbers, _Limit, _Current) ->
    false.

%% @doc Counts a session that has ended, with the bytes of its client and of its server.
-spec ended(atomics:atomics_ref(), non_neg_integer(), non_neg_integer()) -> ok.
ended(Numbers, In, Out) ->
    %% The bytes first: a reader who sees that the session has ended sees its bytes, too.
    ok = atomics:add(Numbers, ?IN, In),
    ok = atomics:add(Numbers, ?OUT, Out),
    atomics:sub(Numbers, ?CURRENT, 1).

%% @doc Returns the values of all counters.
-spec to_map(atomics:atomics_ref()) -> #{name() => integer()}.
to_map(Numbers) ->
    maps:from_list([{Name, get(Numbers, Name)} || Name <- ?NAMES]).

%% @doc Returns the descriptions of all counters.
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
