%% A reactor that holds connections and notifies a process when they open and close.
-module(weir_load_holder).
-behaviour(weir_reactor).

-export([init/2, handle_data/3, handle_close/3]).

init(_Socket, Pid) ->
    Pid ! opened,
    {ok, Pid}.

handle_data(_Socket, _Data, Pid) ->
    {ok, Pid}.

handle_close(_Socket, _Reason, Pid) ->
    Pid ! closed,
    {ok, Pid}.
