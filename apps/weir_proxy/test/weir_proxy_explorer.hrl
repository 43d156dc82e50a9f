%% The state of a run, shared by both modules of the explorer.

%% Counters of a run: accepted connections, session events, refuse events, connections that the log reports as lost
%% with killed processes, and killed keepers.
-define(ACCEPTED, 1).
-define(SESSIONS, 2).
-define(REFUSED, 3).
-define(LOST, 4).
-define(KILLED_KEEPERS, 5).
-define(WHOLE, 6).

-record(run, {
    numbers :: counters:counters_ref(),
    %% Seeds of connections that a server has seen, and their errors.
    seen :: ets:table(),
    %% The first is always listened on, the others at times.
    ports :: [inet:port_number()],
    is_rough :: boolean(),
    stop :: counters:counters_ref()
}).
