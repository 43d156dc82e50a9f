%% @private
%% @doc The application. It starts the proxies in its environment: `{proxies, #{Name => Config}}'.
-module(weir_proxy_app).
-behaviour(application).

-export([start/2]).
-export([stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    %% Load all code now: if run queues are long, loading it at the first call takes long.
    {ok, Modules} = application:get_key(weir_proxy, modules),
    _ = code:ensure_modules_loaded(Modules),
    {ok, Supervisor} = weir_proxy_sup:start_link(),
    case start_all(maps:to_list(application:get_env(weir_proxy, proxies, #{}))) of
        ok -> {ok, Supervisor};
        {error, _} = Error -> Error
    end.

start_all([]) -> ok;
start_all([{Name, Config} | Others]) ->
    case weir_proxy:start(Name, Config) of
        ok -> start_all(Others);
        {error, Reason} -> {error, {proxy, Name, Reason}}
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    weir_proxy_store:clear().
