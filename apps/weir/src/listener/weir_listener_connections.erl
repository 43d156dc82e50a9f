%% @private
%% @doc The connections of a listener: lists them and ends them.
-module(weir_listener_connections).

-export([all/1]).
-export([stop/2]).

%% @doc Returns the connections: each socket with the process that it was accepted for, and its pollset.
-spec all(weir_nif:listener()) -> [{weir_nif:handle(), pid(), weir_nif:pollset()}].
all(Listener) -> pieces(fun(Piece) -> weir_nif:listener_connections(Listener, Piece) end, 0).

relays(Listener) -> pieces(fun(Piece) -> weir_nif:listener_relays(Listener, Piece) end, 0).

pieces(Take, Piece) ->
    case Take(Piece) of
        {ok, Some} -> Some ++ pieces(Take, Piece + 1);
        done -> []
    end.

%% @doc Ends the processes of connections and relays within a time, then closes the remaining connections and relays.
-spec stop(weir_nif:listener(), timeout() | brutal_kill) -> ok.
stop(Listener, Shutdown) ->
    Processes = [Pid || {_, Pid, _} <- all(Listener)] ++ [Pid || {_, Pid} <- relays(Listener)],
    ok = weir_shutdown:processes(Processes, Shutdown),
    %% The rest was given to other processes, or has no owner.
    lists:foreach(fun({Handle, _, _}) -> weir_nif:close(Handle, now) end, all(Listener)),
    lists:foreach(fun({Relay, _}) -> weir_nif:relay_stop(Relay) end, relays(Listener)).
