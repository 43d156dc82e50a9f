%% The state of a session of operations on a connection.
-record(session, {
    socket :: inet:socket() | undefined,
    ports :: #{inet:port_number() => here | there},
    peer :: gen_tcp:socket(),
    processes :: #{parity_sequence:name() => pid()},
    killed = [] :: [parity_sequence:name()],
    %% Processes in a call that may take long.
    waiting = #{} :: #{parity_sequence:name() => reference()},
    %% The own side was shut down for reading, which ends its input.
    read_shut = false :: boolean(),
    %% A recv of a length has timed out with fewer bytes.
    short = false :: boolean(),
    %% A packet type with header fields only was used.
    had_fields = false :: boolean(),
    %% All data that the socket should deliver: from the peer, and from unrecv at its place.
    stream = <<>> :: binary(),
    put_back = false :: boolean(),
    patience :: pos_integer()
}).
