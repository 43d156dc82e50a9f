%% @private
%% @doc The application: checks its configuration, and starts a shard for each scheduler that is online.
-module(weir_pubsub_app).
-behaviour(application).

-export([start/2]).
-export([stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    %% Otherwise a first call would load code, and wait for many rounds of the run queue beside processes that
    %% compute.
    {ok, Modules} = application:get_key(weir_pubsub, modules),
    _ = code:ensure_modules_loaded(Modules),
    ok = weir_pubsub_id:init(),
    ok = weir_pubsub_counters:init(),
    %% The number stays the same: channels are spread over shards by their names.
    Shards = length(weir_pollsets:online()),
    case weir_pubsub_policies:begin_with(application:get_env(weir_pubsub, config, #{})) of
        ok ->
            case weir_pubsub_broker:configure(application:get_env(weir_pubsub, broker, #{})) of
                ok -> weir_pubsub_sup:start_link(Shards);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    weir_pubsub_shards:clear().
