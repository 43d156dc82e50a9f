%% The states of a connection, as its reactor keeps them.

%% Between requests.
-record(idle, {
    key :: term(),
    client :: weir_http_request:client(),
    requests = 0 :: non_neg_integer(),
    %% Ticks without a request, and bytes that the client had not read at the last check.
    quiet = 0 :: non_neg_integer(),
    pending = 0 :: non_neg_integer(),
    %% When its sleep ends, in milliseconds of the monotonic clock. `awake': every tick is delivered.
    until = awake :: awake | integer() | infinity,
    %% When the connection began; undefined if no event handler wants it.
    since :: weir_http_observation:since()
}).

%% A head is incomplete. On a new connection it is still empty.
-record(head, {idle :: #idle{}, bytes = <<>> :: binary(), ticks = 0 :: non_neg_integer()}).

%% The body of a request is incomplete. The response may already be decided, but is sent after the body.
-record(body, {
    idle :: #idle{},
    request :: weir_http_request:request(),
    found :: weir_http_routes:found(),
    body :: weir_http_body:body(),
    ticks = 0 :: non_neg_integer()
}).

%% The client has to read the responses to its earlier requests first.
-record(paused, {idle :: #idle{}, bytes :: binary(), is_read = true :: boolean()}).

%% A process serves the request; see weir_http_request_process.
-record(busy, {
    idle :: #idle{},
    wanted :: weir_http_response:wanted(),
    pid :: pid(),
    monitor :: reference(),
    %% The request without its body, and the bytes received after it.
    request :: weir_http_request:request(),
    bytes = <<>> :: binary(),
    seen :: weir_http_observation:seen(),
    is_read = true :: boolean(),
    %% A body that comes in pieces; `whole' once the process has all of it. Whether the process waits for a piece.
    body = whole :: whole | weir_http_body:body() | {ended, binary(), Trailers :: binary()},
    is_reading = false :: boolean(),
    %% Whether the response has begun, and whether the process waits until the client has read it.
    has_begun = false :: boolean(),
    is_waiting = false :: boolean(),
    %% Ticks that the process has waited for the body, and ticks in which the client has read nothing.
    ticks = 0 :: non_neg_integer(),
    quiet = 0 :: non_neg_integer(),
    pending = 0 :: non_neg_integer()
}).

%% Not in the cycle of requests and responses: an event stream, a held request, a WebSocket; see weir_http_upgrade.
-record(switched, {
    idle :: #idle{},
    module :: module(),
    state :: weir_http_upgrade:state(),
    seen :: weir_http_observation:seen()
}).

%% The last response is sent; further input is discarded.
-record(closing, {idle :: #idle{}, ticks = 0 :: non_neg_integer()}).
