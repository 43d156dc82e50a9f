%% What a handler has chosen for its WebSockets: one term for all that have chosen the same. Times are milliseconds.
-record(settings, {
    max_message :: pos_integer(),
    max_pending :: pos_integer(),
    slow :: close | drop,
    idle_timeout :: timeout(),
    ping_interval :: timeout(),
    close_timeout :: pos_integer(),
    drain_code :: 1001 | 1012,
    origins :: any | same | [binary()],
    deflate :: false | weir_http_websocket_deflate:offer()
}).

%% A WebSocket, to its reactor. Times are ticks, counted from anywhere.
-record(websocket, {
    handler :: module(),
    state :: term(),
    settings :: #settings{},
    deflate = none :: none | weir_http_websocket_deflate:deflate(),
    %% `opening': the handshake is not written yet. `paused': the client takes what was sent first. `closing': we have sent a
    %% close frame.
    phase = opening :: opening | open | paused | {closing, Until :: integer()},
    %% What frames have begun; bytes that are not decoded yet; and the message of those that are.
    begun = none :: weir_http_nif:begun(),
    bytes = <<>> :: binary(),
    message = <<>> :: binary(),
    %% What was decoded, or has come, and waits for the end of a phase.
    items = [] :: [weir_http_nif:item() | {info, term()}],
    is_read = true :: boolean(),
    %% Whether bytes have come since the last tick, and when a tick has found that so; when a ping was sent, and what the client
    %% had not taken then.
    has_come = true :: boolean(),
    seen :: integer(),
    pinged :: integer(),
    pending = 0 :: non_neg_integer(),
    opened :: integer()
}).
