%% An echo reactor that first sends the address in the PROXY header, if there is one.
-module(weir_listener_reactor).
-behaviour(weir_reactor).

-export([init/2, handle_data/3, handle_close/3]).

init(_Socket, args) ->
    case weir:proxy_header() of
        {ok, #{src_address := Address}} -> {send, inet:ntoa(Address), none};
        _ -> {ok, none}
    end.

handle_data(_Socket, Data, State) -> {send, Data, State}.

handle_close(_Socket, _Reason, State) -> {ok, State}.
