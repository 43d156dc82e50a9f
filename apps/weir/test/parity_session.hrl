%% A session of operations on a connection, as its parts see it.
-record(session, {
    socket :: inet:socket() | undefined,
    ports :: #{inet:port_number() => here | there},
    peer :: gen_tcp:socket(),
    processes :: #{parity_sequence:name() => pid()},
    killed = [] :: [parity_sequence:name()],
    %% Who is in a call that may take long.
    waiting = #{} :: #{parity_sequence:name() => reference()},
    %% Its own side was shut down for reading, which ends its input.
    read_shut = false :: boolean(),
    %% An exact recv has timed out with fewer bytes than it wanted.
    short = false :: boolean(),
    %% It has had a packet type that knows header fields only.
    had_fields = false :: boolean(),
    %% All that the socket is to deliver: what the peer has sent, and what was put
    %% back where it was put back.
    stream = <<>> :: binary(),
    put_back = false :: boolean(),
    patience :: pos_integer()
}).
