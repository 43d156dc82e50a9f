%% @private
%% @doc Connections that have no relay yet, and what each of them counts for: its frontend, its backend, its place at a server. All of that is
%% given back once: by the connection's process, or, if that was killed, by a look at the processes that are left, every second.
-module(weir_proxy_pending).
-behaviour(gen_server).

-include("weir_proxy.hrl").

-export([init_table/0]).
-export([begun/1]).
-export([balanced/2]).
-export([placed/2]).
-export([displaced/0]).
-export([relayed/0]).
-export([ended/1]).

-export([start_link/0]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-define(TABLE, ?MODULE).
-define(LOOK_MS, 1000).

%% Places in a row.
-define(BACKEND, 3).
-define(SERVER, 4).

-type numbers() :: atomics:atomics_ref().
-type row() :: {
    pid(), Frontend :: numbers(), Backend :: {Proxy :: term(), Name :: binary(), numbers()} | none, Server :: numbers() | none
}.

%% @doc Makes the table; the caller owns it.
-spec init_table() -> ok.
init_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {write_concurrency, true}]),
    ok.

%% @doc The calling process has a connection of a frontend.
-spec begun(numbers()) -> ok.
begun(Frontend) ->
    ok = weir_proxy_numbers:begun(Frontend),
    true = ets:insert(?TABLE, {self(), Frontend, none, none}),
    ok.

%% @doc Its connection goes to a backend.
-spec balanced(Proxy :: term(), #backend{}) -> ok.
balanced(Proxy, #backend{name = Name, numbers = Numbers}) ->
    ok = weir_proxy_numbers:begun(Numbers),
    true = ets:update_element(?TABLE, self(), {?BACKEND, {Proxy, Name, Numbers}}),
    ok.

%% @doc A connection has been given a place at a server, which was taken for it. `false' if it has ended meanwhile: the place is free.
-spec placed(pid(), numbers()) -> boolean().
placed(Pid, Server) -> ets:update_element(?TABLE, Pid, {?SERVER, Server}).

%% @doc The server of the calling process could not be reached.
-spec displaced() -> ok.
displaced() ->
    [{_, _, Backend, Server}] = ets:lookup(?TABLE, self()),
    true = ets:update_element(?TABLE, self(), {?SERVER, none}),
    free(Server, Backend).

%% @doc Its connection has a relay, and what it counts for is a session's from here on.
-spec relayed() -> ok.
relayed() ->
    true = ets:delete(?TABLE, self()),
    ok.

%% @doc A connection ends without a relay.
-spec ended(pid()) -> ok.
ended(Pid) ->
    case ets:take(?TABLE, Pid) of
        [Row] -> give_back(Row);
        %% Done already.
        [] -> ok
    end.

-spec give_back(row()) -> ok.
give_back({_, Frontend, Backend, Server}) ->
    ok = free(Server, Backend),
    _ = case Backend of
        none -> ok;
        {_, _, Numbers} -> weir_proxy_numbers:ended(Numbers, 0, 0)
    end,
    weir_proxy_numbers:ended(Frontend, 0, 0).

free(none, _Backend) ->
    ok;
free(Server, {Proxy, Name, Numbers}) ->
    ok = weir_proxy_numbers:ended(Server, 0, 0),
    weir_proxy_memory:freed(Proxy, Name, Numbers).

%%% The process.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, []}.
init([]) ->
    look_later(),
    {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, {error, unknown}, []}.
handle_call(_Request, _From, State) -> {reply, {error, unknown}, State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), []) -> {noreply, []}.
handle_info(look, State) ->
    Pids = ets:select(?TABLE, [{{'$1', '_', '_', '_'}, [], ['$1']}]),
    lists:foreach(fun(Pid) -> is_process_alive(Pid) orelse ended(Pid) end, Pids),
    look_later(),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.
