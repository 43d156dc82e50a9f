%% The options of a handler's WebSockets. Equal settings share one term. Times are milliseconds.
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

%% A WebSocket in its reactor. Times are milliseconds of the monotonic clock.
-record(websocket, {
    handler :: module(),
    state :: term(),
    settings :: #settings{},
    deflate = none :: none | weir_http_websocket_deflate:deflate(),
    %% `opening': the handshake is not written yet. `paused': the client has to read our output first. `closing': we
    %% have sent a close frame.
    phase = opening :: opening | open | paused | {closing, Until :: integer()},
    %% The unfinished frame and message; bytes that are not decoded yet; and the decoded part of the message.
    begun = none :: weir_http_nif:begun(),
    bytes = <<>> :: binary(),
    message = <<>> :: binary(),
    %% Decoded items, and messages of processes, that wait for the end of a phase.
    items = [] :: [weir_http_nif:item() | {info, term()}],
    is_read = true :: boolean(),
    %% Whether bytes have arrived since the last tick; when a tick last noticed that; when the last ping was sent; and
    %% how many bytes the client had not read at the last timeout check.
    has_come = true :: boolean(),
    seen :: integer(),
    pinged :: integer(),
    pending = 0 :: non_neg_integer(),
    opened :: integer()
}).
