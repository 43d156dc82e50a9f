%% The term of a socket: gen_tcp and inet dispatch by it, and messages contain it. Its type is `weir_tcp:socket()'.
-define(SOCKET(Handle), {'$inet', weir_tcp, Handle}).
