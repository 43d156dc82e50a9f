%% Set-up and clean-up of the suites of channels over HTTP: each has a listener, and those with the group
%% `nchan' have an Nchan.

init_per_group(Group, Config) -> weir_pubsub_nchan:init_group(Group, Config).

end_per_group(_Group, _Config) -> ok.

init_per_testcase(Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    start(#{publishers => any}),
    weir_pubsub_nchan:init_case(Case, groups(), Config).

end_per_testcase(_Case, Config) ->
    _ = weir_http:stop_listener(?MODULE),
    ok = application:stop(weir_pubsub),
    weir_pubsub_nchan:end_case(Config).

start(Options) -> start(Options, #{}).

start(Options, Listener) ->
    {ok, _} = weir_http:start_listener(?MODULE, Listener#{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(Options)).

%% The kernel buffers little for clients that do not read.
start_with_small_buffers() ->
    ok = weir_http:stop_listener(?MODULE),
    start(#{publishers => any}, #{socket_opts => [{sndbuf, 16#10000}]}).

port() -> weir:get_port(?MODULE).

set(Options) -> ok = weir_http:set_routes(?MODULE, weir_pubsub_http:routes(Options)).
