%% What stands for a connection in the process dictionary of its reactor, by its handle: its state, or one of these.

%% The state `undefined', which means no connection there.
-define(UNDEFINED, '$weir_undefined').

%% `init/2' was not called yet.
-record(pending, {what :: {connecting, Args :: term()} | {header, weir_reactor_header:header()}}).
