%% @private
%% @doc The application: samples the node from the start, and serves the page if it is configured.
-module(weir_scope_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2]).
-export([stop/1]).
-export([init/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    case page(application:get_env(weir_scope, http, off)) of
        {ok, Page} -> supervisor:start_link({local, weir_scope_sup}, ?MODULE, Page);
        {error, _} = Error -> Error
    end.

page(off) ->
    {ok, []};
page(Options) ->
    case weir_scope_web:check(Options) of
        {ok, Checked} ->
            Start = {weir_scope_web, start_link, [{weir_scope_feed, {node(), #{}}}, Checked]},
            {ok, [#{id => weir_scope_web, type => supervisor, start => Start}]};
        {error, _} = Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    ok.

-spec init([supervisor:child_spec()]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Page) ->
    {ok, {#{intensity => 5, period => 60}, [
        #{id => weir_scope_sampler, start => {weir_scope_sampler, start_link, []}},
        #{id => weir_scope_events, start => {weir_scope_events, start_link, []}}
        | Page
    ]}}.
