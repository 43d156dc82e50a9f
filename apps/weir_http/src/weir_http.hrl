%% Flags of a request from the native part (see native/src/head.rs).
-define(KEEP_ALIVE, 1).
-define(VERSION_1_1, 2).
-define(EXPECT_CONTINUE, 4).
-define(PLAIN_PATH, 8).

%% Flags of a response for the native part (see native/src/response.rs).
-define(SAY_CLOSE, 1).
-define(SAY_KEEP_ALIVE, 2).
-define(NO_LENGTH, 4).
-define(CHUNKED, 8).
-define(SAY_UPGRADE, 16).

%% The configuration of a listener. Connections look it up with each batch of requests. Times are in ticks.
-record(http, {
    name :: weir_listener:name(),
    routes :: weir_http_routes:routes(),
    limits :: weir_http_nif:limits(),
    max_body :: non_neg_integer(),
    max_requests :: pos_integer() | infinity,
    tick :: pos_integer(),
    header_ticks :: pos_integer() | infinity,
    idle_ticks :: pos_integer() | infinity,
    body_ticks :: pos_integer() | infinity,
    %% Bytes received that extend the time for a body by a tick.
    body_bytes :: pos_integer(),
    counters :: weir_http_counters:counters(),
    reports :: weir_reports:limit(),
    %% 1: whether the listener drains. 2: when all lasting connections are closed, in milliseconds of the monotonic
    %% clock.
    draining :: atomics:atomics_ref(),
    %% The options, until the listener is started.
    log :: weir_http_log:log() | weir_http_log:options() | off,
    request_ids :: off | make | take,
    gzip :: weir_http_gzip:gzip()
}).
