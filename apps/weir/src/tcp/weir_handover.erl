%% @private
%% @doc Gives a socket of the caller to another process, with its messages in the caller's mailbox.
-module(weir_handover).

-include("weir_socket.hrl").

-export([to/2]).

%% @doc Makes a process the owner. `badarg' for a process of another node.
-spec to(NewOwner :: pid(), weir_nif:handle()) -> ok | {error, closed | badarg | inet:posix()}.
to(NewOwner, Handle) ->
    Socket = ?SOCKET(Handle),
    %% Passive during the handover, so that no message comes to the old owner after the forwarded ones.
    case weir_nif:passivate(Handle) of
        {ok, Active} ->
            Forwarded = forward(Socket, NewOwner, false),
            case set_owner(Handle, NewOwner, Forwarded) of
                ok when Active =:= {active, false} -> ok;
                ok -> weir_nif:setopts(Handle, [Active]);
                Error -> Error
            end;
        {error, einval} ->
            _ = forward(Socket, NewOwner, false),
            {error, closed}
    end.

set_owner(Handle, NewOwner, Forwarded) ->
    try
        weir_nif:set_owner(Handle, NewOwner, Forwarded)
    catch
        error:badarg -> {error, badarg}
    end.

%% Returns whether there were messages.
forward(Socket, NewOwner, Forwarded) ->
    receive
        Message = {Tag, Socket, _} when Tag =:= tcp; Tag =:= tcp_error -> pass_on(Message, Socket, NewOwner);
        Message = {Tag, Socket} when Tag =:= tcp_closed; Tag =:= tcp_passive -> pass_on(Message, Socket, NewOwner);
        Message = {Socket, {data, _}} -> pass_on(Message, Socket, NewOwner)
    after 0 -> Forwarded
    end.

pass_on(Message, Socket, NewOwner) ->
    NewOwner ! Message,
    forward(Socket, NewOwner, true).
