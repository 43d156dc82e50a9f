%% What a connection is, to the reactor: one of these records.

%% Between requests.
-record(idle, {
    key :: term(),
    client :: weir_http_request:client(),
    requests = 0 :: non_neg_integer(),
    %% Ticks without a request, and bytes that the client had not taken at the last look.
    quiet = 0 :: non_neg_integer(),
    pending = 0 :: non_neg_integer(),
    %% Whether ticks come to it, or how long not: milliseconds of the monotonic time.
    until = awake :: awake | integer() | infinity,
    %% When the connection began, if somebody wants to hear of its end.
    since :: weir_http_observation:since()
}).

%% A head has begun to come; nothing of it yet on a new connection.
-record(head, {idle :: #idle{}, bytes = <<>> :: binary(), ticks = 0 :: non_neg_integer()}).

%% The body of a request is coming. The response may be decided already, but not before its turn.
-record(body, {
    idle :: #idle{},
    request :: weir_http_request:request(),
    found :: weir_http_routes:found(),
    body :: weir_http_body:body(),
    ticks = 0 :: non_neg_integer()
}).

%% The client takes the responses to its former requests first.
-record(paused, {idle :: #idle{}, bytes :: binary(), is_read = true :: boolean()}).

%% A process serves the request; see weir_http_busy.
-record(busy, {
    idle :: #idle{},
    wanted :: weir_http_response:wanted(),
    pid :: pid(),
    monitor :: reference(),
    %% The request without its body, and what came behind it.
    request :: weir_http_request:request(),
    bytes = <<>> :: binary(),
    seen :: weir_http_observation:seen(),
    is_read = true :: boolean(),
    %% A body that comes in pieces: `whole' when the process has it, and whether it waits for a piece.
    body = whole :: whole | weir_http_body:body() | {ended, binary(), Trailers :: binary()},
    is_reading = false :: boolean(),
    %% The process has begun to respond; and waits until that is taken.
    has_begun = false :: boolean(),
    is_waiting = false :: boolean(),
    %% Ticks that it has waited for the body, and ticks in which the client has taken nothing.
    ticks = 0 :: non_neg_integer(),
    quiet = 0 :: non_neg_integer(),
    pending = 0 :: non_neg_integer()
}).

%% No requests and responses: an event stream, a held request, a WebSocket; see weir_http_switched.
-record(switched, {
    idle :: #idle{},
    module :: module(),
    state :: weir_http_switched:state(),
    seen :: weir_http_observation:seen()
}).

%% The last response is sent, what still comes is thrown away.
-record(closing, {idle :: #idle{}, ticks = 0 :: non_neg_integer()}).
