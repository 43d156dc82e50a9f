%% What connections look up. Written when a configuration or a state changes, read by every connection.

%% A server as a connection sees it. Its counters are in `numbers', see weir_proxy_counters.
-record(server, {
    name :: binary(),
    %% `unresolved': its name has no address yet.
    address :: weir_tcp:name() | unresolved,
    numbers :: atomics:atomics_ref(),
    %% Reply times, if the backend has `measure'.
    latency = none :: weir_relay:latency() | none,
    max_connections = infinity :: pos_integer() | infinity,
    %% The balancer's weight: above 0, in steps of 1/?WEIGHT_STEPS.
    weight = 1 :: pos_integer()
}).

%% Steps in a unit of weight. A slow start raises the weight step by step.
-define(WEIGHT_STEPS, 16).

-record(backend, {
    name :: binary(),
    process :: pid(),
    %% The sums over all servers.
    numbers :: atomics:atomics_ref(),
    balancer :: weir_proxy_balancer:balancer(),
    config :: weir_proxy_config:backend()
}).

-record(frontend, {
    proxy :: term(),
    name :: binary(),
    numbers :: atomics:atomics_ref(),
    route :: {backend, binary()} | {rules, weir_proxy_rules:rules()},
    config :: weir_proxy_config:frontend(),
    %% Unique for each publication, so that a connection notices a change.
    version :: integer()
}).

-define(FRONTEND(Proxy, Name), {weir_proxy, Proxy, frontend, Name}).
-define(BACKEND(Proxy, Name), {weir_proxy, Proxy, backend, Name}).
