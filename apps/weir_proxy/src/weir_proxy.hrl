%% What a connection looks up: values that are made when something changes, and read by every connection.

%% A server as a connection sees it. What is counted of it is in `numbers', see weir_proxy_numbers.
-record(server, {
    name :: binary(),
    %% Where it is; a name that has no address yet is `unresolved'.
    address :: weir_tcp:name() | unresolved,
    numbers :: atomics:atomics_ref(),
    %% How long its replies take, if that is measured.
    latency = none :: weir_relay:latency() | none,
    max_connections = infinity :: pos_integer() | infinity,
    %% As a balancer takes it: above 0, in steps of ?WEIGHT_STEPS to a unit.
    weight = 1 :: pos_integer()
}).

%% Steps of a unit of weight, by which a server starts slowly.
-define(WEIGHT_STEPS, 16).

-record(backend, {
    name :: binary(),
    process :: pid(),
    %% Of the backend in all.
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
    %% Tells it from one before it or after it that is the same otherwise.
    version :: integer()
}).

-define(FRONTEND(Proxy, Name), {weir_proxy, Proxy, frontend, Name}).
-define(BACKEND(Proxy, Name), {weir_proxy, Proxy, backend, Name}).
