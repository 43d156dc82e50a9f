%% The state of a driver, shared by weir_load_driver and weir_load_connections.

-record(driver, {
    share :: weir_load_engine:share(),
    profile :: weir_load_profile:profile(),
    reactor :: weir_load_reactor:reactor(),
    phase = opening :: opening | waiting | running | draining | over,
    %% Writes for the next native call, last one first.
    writes = [] :: [weir_load_reactor:write()],
    %% Requests that wait for their turn or for an answer.
    pending = 0 :: non_neg_integer(),
    sample = weir_load_sample:new() :: weir_load_sample:sample(),
    %% While opening: the next number to dial, the numbers of dials and open connections, and the last error.
    to_open :: pos_integer(),
    opening_since :: integer(),
    dialed = 0 :: non_neg_integer(),
    dialing = 0 :: non_neg_integer(),
    opened = 0 :: non_neg_integer(),
    last_error = none :: none | atom(),
    %% Set by `go'.
    timetable :: weir_load_engine:timetable() | undefined,
    next = done :: {Due :: integer(), weir_load_schedule:arrivals()} | done,
    second = 0 :: integer(),
    %% Whether connections ask by themselves: a closed loop before the end of its window.
    asks = false :: boolean(),
    %% When the next timed action is due.
    wake_at = never :: integer() | never,
    %% When the next scan for timeouts begins, and which connections the current scan has left.
    scan_at :: integer(),
    to_scan = [] :: [weir_load_connections:key()],
    %% The number of the connection whose turn it is, or of the next new one if each arrival has its own.
    turn :: pos_integer(),
    last_answer = none :: none | integer()
}).
