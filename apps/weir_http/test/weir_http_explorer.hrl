%% What the modules of the explorer know of a run.

%% Answers that clients have got whole.
-define(ANSWERED, 1).

%% What is known of a listener. Versions of its routes: the last one that an operator has begun to give it, and the last one whose call has
%% returned. Then changes that may end connections, and those that may refuse new ones: an odd number while one goes on.
-define(BEGUN, 1).
-define(GIVEN, 2).
-define(ENDS, 3).
-define(REFUSALS, 4).

-record(run, {
    numbers :: counters:counters_ref(),
    %% Ids of requests that were answered and must be in the log, callbacks of what lasts, and what was wrong.
    seen :: ets:table(),
    listeners :: [{weir_listener:name(), atomics:atomics_ref()}],
    %% Of all event streams.
    group :: weir_group:group(),
    stop :: counters:counters_ref()
}).
