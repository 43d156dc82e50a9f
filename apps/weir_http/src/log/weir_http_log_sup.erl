%% @private
%% @doc The supervisors of the writers of access logs.
%%
%% Writers that are killed too often end their supervisor. Another one then starts a writer for each open log, and the
%% failure is logged. Lines handed over in between are counted as dropped.
-module(weir_http_log_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([start_writers/0]).
-export([start_writer/1]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() -> supervisor:start_link(?MODULE, logs).

%% @doc Starts the supervisor of the writers, registered under the name of this module.
-spec start_writers() -> supervisor:startlink_ret().
start_writers() -> supervisor:start_link({local, ?MODULE}, ?MODULE, writers).

%% @doc Starts the writer of a log. Exits like `gen_server:call/2' if the supervisor is not running.
-spec start_writer(weir_http_log:log()) -> {ok, pid()} | {error, term()}.
start_writer(Log) -> supervisor:start_child(?MODULE, [Log]).

-spec init(logs | writers) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(logs) ->
    Writers = #{id => writers, start => {?MODULE, start_writers, []}, type => supervisor, shutdown => infinity},
    Again = #{id => again, start => {weir_http_log, begin_again, []}},
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10}, [Writers, Again]}};
init(writers) ->
    Writer = #{id => writer, start => {weir_http_log, start_link, []}, restart => transient},
    {ok, {#{strategy => simple_one_for_one, intensity => 10, period => 10}, [Writer]}}.
