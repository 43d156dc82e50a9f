%% The state of a run, shared by the modules of the explorer.

%% Complete responses received by clients.
-define(ANSWERED, 1).

%% State of a listener. Versions of its routes: the last whose set_routes/2 has begun, and the last whose call has
%% returned. Then numbers of changes that may end connections, and that may refuse new ones: odd while one is in
%% progress.
-define(BEGUN, 1).
-define(GIVEN, 2).
-define(ENDS, 3).
-define(REFUSALS, 4).

-record(run, {
    numbers :: counters:counters_ref(),
    %% Ids of answered requests that must be in the log, callbacks of streams and WebSockets, and faults.
    seen :: ets:table(),
    listeners :: [{weir_listener:name(), atomics:atomics_ref()}],
    %% The group of all event streams.
    group :: weir_group:group(),
    stop :: counters:counters_ref()
}).
