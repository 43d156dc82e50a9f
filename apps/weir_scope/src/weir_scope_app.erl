%% @private
%% @doc In a release: samples the node from its start on.
-module(weir_scope_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2]).
-export([stop/1]).
-export([init/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    supervisor:start_link({local, weir_scope_sup}, ?MODULE, []).

-spec stop(term()) -> ok.
stop(_State) ->
    ok.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{intensity => 5, period => 60}, [#{id => weir_scope_sampler, start => {weir_scope_sampler, start_link, []}}]}}.
