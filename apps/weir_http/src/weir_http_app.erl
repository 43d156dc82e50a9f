%% @private
%% @doc The application: processes that outlive reactors and requests.
-module(weir_http_app).
-behaviour(application).
-behaviour(supervisor).

-export([start/2]).
-export([stop/1]).
-export([init/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    %% Load all modules now: on a busy node, a first call that loads code waits for many rounds of the run queue.
    {ok, Modules} = application:get_key(weir_http, modules),
    _ = code:ensure_modules_loaded(Modules),
    case supervisor:start_link({local, weir_http_sup}, ?MODULE, []) of
        {ok, _} = Started -> Started;
        {error, _} = Error -> Error
    end.

-spec stop(term()) -> ok.
stop(_State) -> ok.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_http_log:new_table(),
    Workers = [weir_http_worker:initial_call(), weir_http_websocket_process:initial_call()],
    Orphans = #{id => weir_http_orphans, start => {weir_http_orphans, start_link, [Workers]}},
    Files = #{id => weir_http_open_files, start => {weir_http_open_files, start_link, []}},
    Logs = #{
        id => weir_http_log_sup, start => {weir_http_log_sup, start_link, []}, type => supervisor, shutdown => infinity
    },
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, [Orphans, Files, Logs]}}.
