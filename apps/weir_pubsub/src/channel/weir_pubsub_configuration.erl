%% @private
%% @doc The current configuration: policies and limits in one term, so that readers see both of the same version. One
%% process changes it.
-module(weir_pubsub_configuration).
-behaviour(gen_server).

-include("weir_pubsub.hrl").

-export([start_link/0]).
-export([current/0]).
-export([set/1]).
-export([change/1]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).

-export_type([configuration/0, change/0]).

-type configuration() :: #configuration{}.

-type change() :: fun((Before :: configuration() | none) -> configuration()).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Returns the current configuration. A caller that needs several parts of it calls this once.
-spec current() -> configuration().
current() -> persistent_term:get(?MODULE).

%% @doc Changes the configuration in the calling process. For the start of the application, before this process runs.
-spec set(change()) -> ok.
set(Change) -> persistent_term:put(?MODULE, Change(persistent_term:get(?MODULE, none))).

%% @doc Changes the configuration, in the order of the calls.
-spec change(change()) -> ok | {error, weir_pubsub:unavailable()}.
change(Change) ->
    try
        gen_server:call(?MODULE, {change, Change}, infinity)
    catch
        exit:{noproc, _} -> {error, {not_started, weir_pubsub}};
        exit:_ -> {error, unavailable}
    end.

%% The configuration is a persistent term, which outlives this process.
-spec init([]) -> {ok, []}.
init([]) -> {ok, []}.

-spec handle_call({change, change()}, gen_server:from(), []) -> {reply, ok, []}.
handle_call({change, Change}, _From, State) -> {reply, set(Change), State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Other, State) -> {noreply, State}.
