%% @private
%% @doc Connections that have no relay yet, and where each of them is counted: in its frontend, its backend and its
%% server. They are uncounted exactly once: by the connection's process, or by {@link weir_proxy_reaper} if that was
%% killed.
-module(weir_proxy_admissions).

-include("weir_proxy.hrl").

-export([init_table/0]).
-export([begun/1]).
-export([balanced/2]).
-export([placed/2]).
-export([displaced/0]).
-export([moved/1]).
-export([relayed/1]).
-export([ended/1]).
-export([lost/1]).
-export([relaying/0]).
-export([remaining/1]).
-export([killed/0]).
-export([is_used/1]).

-define(TABLE, ?MODULE).

%% Positions in a row.
-define(BACKEND, 3).
-define(SERVER, 4).

-type numbers() :: atomics:atomics_ref().
-type row() :: {
    pid(),
    Frontend :: numbers(),
    Backend :: {Proxy :: term(), Name :: binary(), numbers()} | none,
    Server :: numbers() | none
}.

%% @doc Makes the table; the caller owns it.
-spec init_table() -> ok.
init_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {write_concurrency, auto}]),
    ok.

%% @doc Counts the connection of the calling process in a frontend.
-spec begun(numbers()) -> ok.
begun(Frontend) ->
    ok = weir_proxy_counters:begun(Frontend),
    true = ets:insert(?TABLE, {self(), Frontend, none, none}),
    ok.

%% @doc Counts the connection of the calling process in a backend.
-spec balanced(Proxy :: term(), #backend{}) -> ok.
balanced(Proxy, #backend{name = Name, numbers = Numbers}) ->
    ok = weir_proxy_counters:begun(Numbers),
    true = ets:update_element(?TABLE, self(), {?BACKEND, {Proxy, Name, Numbers}}),
    ok.

%% @doc Records that a place at a server was taken for a connection. Returns `false' if the connection has ended; the
%% caller must give the place back then.
-spec placed(pid(), numbers()) -> boolean().
placed(Pid, Server) -> ets:update_element(?TABLE, Pid, {?SERVER, Server}).

%% @doc Gives back the server's place of the calling process, after connecting has failed.
-spec displaced() -> ok.
displaced() ->
    [{_, _, Backend, Server}] = ets:lookup(?TABLE, self()),
    true = ets:update_element(?TABLE, self(), {?SERVER, none}),
    free(Server, Backend).

%% @doc Recounts the connection of the calling process, which is routed again from the start: only in a frontend with
%% these numbers, which may be the same one.
-spec moved(numbers()) -> ok.
moved(Frontend) ->
    [{_, Before, Backend, Server}] = ets:lookup(?TABLE, self()),
    ok = case Before of Frontend -> ok; _ -> weir_proxy_counters:begun(Frontend) end,
    true = ets:insert(?TABLE, {self(), Frontend, none, none}),
    ok = leave(Server, Backend),
    case Before of Frontend -> ok; _ -> weir_proxy_counters:ended(Before, 0, 0) end.

%% @doc Forgets a connection that has become a session, which is counted instead from here on.
-spec relayed(pid()) -> ok.
relayed(Pid) ->
    true = ets:delete(?TABLE, Pid),
    ok.

%% @doc Uncounts a connection that ends without a relay.
-spec ended(pid()) -> ok.
ended(Pid) ->
    case ets:take(?TABLE, Pid) of
        [Row] -> give_back(Row);
        %% It was uncounted already.
        [] -> ok
    end.

%% @doc Uncounts the connection of a process that was killed. Returns `false' if that had been done already.
-spec lost(pid()) -> boolean().
lost(Pid) ->
    case ets:take(?TABLE, Pid) of
        [Row = {_, Frontend, _, _}] ->
            _ = weir_proxy_counters:add(Frontend, connection_errors, 1),
            ok = give_back(Row),
            true;
        [] ->
            false
    end.

-spec give_back(row()) -> ok.
give_back({_, Frontend, Backend, Server}) ->
    ok = leave(Server, Backend),
    weir_proxy_counters:ended(Frontend, 0, 0).

leave(_Server, none) ->
    ok;
leave(Server, Backend = {_, _, Numbers}) ->
    ok = free(Server, Backend),
    weir_proxy_counters:ended(Numbers, 0, 0).

free(none, _Backend) ->
    ok;
free(Server, {Proxy, Name, Numbers}) ->
    ok = weir_proxy_counters:ended(Server, 0, 0),
    weir_proxy_store:freed(Proxy, Name, Numbers).

%% @doc Returns the processes whose connections have a place at a server. Each may have a relay that is not a session
%% yet.
-spec relaying() -> [pid()].
relaying() -> ets:select(?TABLE, [{{'$1', '_', '_', '$2'}, [{'=/=', '$2', none}], ['$1']}]).

%% @doc Returns those of `Pids' whose connections are not sessions yet.
-spec remaining([pid()]) -> [pid()].
remaining(Pids) -> [Pid || Pid <- Pids, ets:member(?TABLE, Pid)].

%% @doc Returns the processes that have died with a connection. `placed': it has a place at a server.
-spec killed() -> [{pid(), placed | unplaced}].
killed() ->
    [
        {Pid, case Server of none -> unplaced; _ -> placed end}
     || {Pid, Server} <- ets:select(?TABLE, [{{'$1', '_', '_', '$2'}, [], [{{'$1', '$2'}}]}]), not is_process_alive(Pid)
    ].

%% @doc Returns whether a connection is counted in the frontend with these numbers.
-spec is_used(numbers()) -> boolean().
is_used(Frontend) -> ets:select_count(?TABLE, [{{'_', Frontend, '_', '_'}, [], [true]}]) > 0.
