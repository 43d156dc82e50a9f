%% A reactor that echoes data.
-module(weir_event_echo).
-behaviour(weir_reactor).

-export([init/2, handle_data/3, handle_close/3]).

init(_Socket, _Args) -> {ok, none}.

handle_data(_Socket, Data, State) -> {send, Data, State}.

handle_close(_Socket, _Reason, State) -> {ok, State}.
