%% The term of a socket: what gen_tcp and inet dispatch by, and what stands in messages. `weir_tcp:socket()' is its type.
-define(SOCKET(Handle), {'$inet', weir_tcp, Handle}).
