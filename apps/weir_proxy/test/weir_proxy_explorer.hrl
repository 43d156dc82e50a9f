%% What both modules of the explorer know of a run.

%% Numbers of a run: connections that were accepted, events of sessions, of refusals, and what was lost with killed processes, as the log says; then
%% keepers that were killed.
-define(ACCEPTED, 1).
-define(SESSIONS, 2).
-define(REFUSED, 3).
-define(LOST, 4).
-define(KILLED_KEEPERS, 5).
-define(WHOLE, 6).

-record(run, {
    numbers :: counters:counters_ref(),
    %% Seeds of connections that a server has seen, and what was wrong with them.
    seen :: ets:table(),
    %% Those that are always listened on, and those that come and go.
    ports :: [inet:port_number()],
    is_rough :: boolean(),
    stop :: counters:counters_ref()
}).
