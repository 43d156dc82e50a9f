%% A session, a row in the table of weir_proxy_sessions. The atoms in the types are those of match specifications.
-record(session, {
    relay :: weir_relay:relay() | undefined | '_' | '$2' | '$3',
    proxy :: term(),
    frontend :: binary() | '_',
    backend :: binary() | '_',
    server :: binary() | '_',
    %% The peer addresses at both ends.
    client :: weir_tcp:name() | undefined | '_',
    address :: weir_tcp:name() | undefined | '_',
    %% When the client was accepted, in milliseconds of the system clock.
    accepted :: integer() | '_',
    %% Milliseconds in the queue, and until the server was connected.
    queued :: non_neg_integer() | '_',
    connected :: non_neg_integer() | none | '_',
    retries :: non_neg_integer() | '_',
    keeper :: pid() | undefined | '_' | '$1',
    %% The connection's process, which has ended or ends soon.
    process :: pid() | undefined | '_',
    %% The counters of the frontend, the backend and the server.
    numbers :: {atomics:atomics_ref(), atomics:atomics_ref() | none, atomics:atomics_ref() | none} | '_',
    %% When to end it, in milliseconds of the monotonic clock, and why. Any number is less than `infinity', as than any
    %% atom.
    due = {infinity, none} :: {integer() | infinity, none | life | operator} | '_' | {'$1', '$2'},
    %% The timer of `longest_life'.
    timer :: reference() | none | '_',
    %% Why the proxy has ended it; `none' if its client or server did.
    ended_by = none :: none | life | operator | down | '_'
}).
