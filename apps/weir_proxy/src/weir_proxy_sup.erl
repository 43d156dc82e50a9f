%% @private
%% @doc Supervises what all proxies share, and the supervisors of backends and of proxies. Owns the ETS tables.
-module(weir_proxy_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([start_backend/2]).
-export([start_proxy/2]).
-export([stop_child/2]).
-export([start_children/2]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, all).

%% @doc Starts the process of a backend. It uses the state in {@link weir_proxy_store} if there is one, otherwise this
%% configuration.
-spec start_backend(Proxy :: term(), {binary(), weir_proxy_config:backend()}) -> {ok, pid()} | {error, term()}.
start_backend(Proxy, Backend) -> supervisor:start_child(weir_proxy_backends, [Proxy, Backend]).

-spec start_proxy(term(), {start | take_over, weir_proxy_config:config()}) -> {ok, pid()} | {error, term()}.
start_proxy(Name, Config) -> supervisor:start_child(weir_proxy_instances, [Name, Config]).

-spec stop_child(weir_proxy_backends | weir_proxy_instances, pid()) -> ok.
stop_child(Supervisor, Pid) ->
    _ = supervisor:terminate_child(Supervisor, Pid),
    ok.

%% @doc Starts a supervisor of processes of one kind. If the supervisor before was killed or gave up, its children
%% ended with it and are started again here.
-spec start_children(atom(), module()) -> {ok, pid()} | {error, term()}.
start_children(Name, Module) ->
    case supervisor:start_link({local, Name}, ?MODULE, {children, Module}) of
        {ok, Supervisor} ->
            %% A child that fails to start is in the log.
            lists:foreach(fun(Arguments) -> supervisor:start_child(Supervisor, Arguments) end, before(Module)),
            {ok, Supervisor};
        {error, _} = Error ->
            Error
    end.

before(weir_proxy_backend) -> [[Proxy, {Name, Config}] || {Proxy, Name, Config} <- weir_proxy_store:started(backend)];
before(weir_proxy_instance) -> [[Name, {start, Config}] || {Name, Config} <- weir_proxy_store:started(proxy)].

-spec init(all | {children, module()}) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    ok = weir_proxy_store:init(),
    ok = weir_proxy_sessions:init(),
    ok = weir_proxy_sticks:init_table(),
    ok = weir_proxy_admissions:init_table(),
    Keepers = [
        #{id => {weir_proxy_sessions, Number}, start => {weir_proxy_sessions, start_link, [Number]}}
     || Number <- lists:seq(1, weir_proxy_sessions:keepers())
    ],
    Children = [
        #{id => Name, start => {?MODULE, start_children, [Name, Module]}, type => supervisor, shutdown => infinity}
     || {Name, Module} <- [{weir_proxy_backends, weir_proxy_backend}, {weir_proxy_instances, weir_proxy_instance}]
    ],
    Reaper = #{id => weir_proxy_reaper, start => {weir_proxy_reaper, start_link, []}},
    %% Must not give up if all keepers are killed at once.
    Intensity = 20 + length(Keepers),
    {ok, {#{strategy => one_for_one, intensity => Intensity, period => 10}, [Reaper | Keepers] ++ Children}};
init({children, Module}) ->
    Child = #{id => Module, start => {Module, start_link, []}, restart => transient, shutdown => 5000},
    {ok, {#{strategy => simple_one_for_one, intensity => 20, period => 10}, [Child]}}.
