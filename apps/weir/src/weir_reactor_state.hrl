%% The values of a reactor's process dictionary, by the connection's handle: the state, or one of these.

%% The state `undefined', because get/1 returns `undefined' for no connection.
-define(UNDEFINED, '$weir_undefined').

%% `init/2' has not been called yet.
-record(pending, {what :: {connecting, Args :: term()} | {header, weir_reactor_header:header()}}).
