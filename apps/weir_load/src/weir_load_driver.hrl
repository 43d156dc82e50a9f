%% The state of a driver, which weir_load_driver and weir_load_connections change.

-record(driver, {
    share :: weir_load_engine:share(),
    profile :: weir_load_profile:profile(),
    reactor :: weir_load_reactor:reactor(),
    phase = opening :: opening | waiting | running | draining | over,
    %% For the next call, the last one first.
    writes = [] :: [weir_load_reactor:write()],
    %% Requests that wait, for their turn or for an answer.
    pending = 0 :: non_neg_integer(),
    sample = weir_load_sample:new() :: weir_load_sample:sample(),
    %% While opening: the number that is dialed next, how many are dialed and open, and what went wrong last.
    to_open :: pos_integer(),
    opening_since :: integer(),
    dialed = 0 :: non_neg_integer(),
    dialing = 0 :: non_neg_integer(),
    opened = 0 :: non_neg_integer(),
    last_error = none :: none | atom(),
    %% From `go' on.
    timetable :: weir_load_engine:timetable() | undefined,
    next = done :: {Due :: integer(), weir_load_schedule:arrivals()} | done,
    second = 0 :: integer(),
    %% Whether it is a closed loop in its window.
    asks = false :: boolean(),
    %% When time brings something next.
    wake_at = never :: integer() | never,
    %% When to look next for what has waited too long, and where this look has still to look.
    scan_at :: integer(),
    to_scan = [] :: [weir_load_connections:key()],
    %% The number of the connection whose turn it is, or of the next one, where each arrival has its own.
    turn :: pos_integer(),
    last_answer = none :: none | integer()
}).
