%% A session, as it is in the table of weir_proxy_sessions.
-record(session, {
    relay :: weir_relay:relay() | undefined | '_' | '$2' | '$3',
    proxy :: term(),
    frontend :: binary() | '_',
    backend :: binary() | '_',
    server :: binary() | '_',
    %% Who is at both ends.
    client :: weir_tcp:name() | undefined | '_',
    address :: weir_tcp:name() | undefined | '_',
    %% Milliseconds of the system's clock when the client came; then milliseconds waited for a place, and for the server.
    accepted :: integer() | '_',
    queued :: non_neg_integer() | '_',
    connected :: non_neg_integer() | none | '_',
    retries :: non_neg_integer() | '_',
    keeper :: pid() | undefined | '_' | '$1',
    %% Of the connection, which has ended, or ends soon.
    process :: pid() | undefined | '_',
    %% Of the frontend, the backend and the server.
    numbers :: {atomics:atomics_ref(), atomics:atomics_ref() | none, atomics:atomics_ref() | none} | '_',
    %% When it is to be ended, in milliseconds of the monotonic clock, and why. Any number is less than an atom.
    due = {infinity, none} :: {integer() | infinity, none | life | operator} | '_' | {'$1', '$2'},
    %% Of the longest life.
    timer :: reference() | none | '_',
    %% Who has ended it, if it did not end by itself.
    ended_by = none :: none | life | operator | down | '_'
}).
