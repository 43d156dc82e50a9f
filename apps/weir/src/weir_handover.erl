%% @private
%% @doc Gives a socket of the caller's to another process, with the messages of it that have arrived.
-module(weir_handover).

-include("weir_socket.hrl").

-export([to/2]).

%% @doc Makes a process the owner. `badarg' for a process of another node.
-spec to(NewOwner :: pid(), weir_nif:handle()) -> ok | {error, closed | badarg | inet:posix()}.
to(NewOwner, Handle) ->
    Socket = ?SOCKET(Handle),
    %% Passive meanwhile: no message can come to the old owner after those that are forwarded.
    case weir_nif:getopts(Handle, [active]) of
        {ok, [{active, false}]} ->
            forward(Socket, NewOwner),
            set_owner(Handle, NewOwner);
        {ok, [{active, _} = Active]} ->
            _ = weir_nif:setopts(Handle, [{active, false}]),
            forward(Socket, NewOwner),
            case set_owner(Handle, NewOwner) of
                ok -> weir_nif:setopts(Handle, [Active]);
                Error -> Error
            end;
        {error, einval} ->
            forward(Socket, NewOwner),
            {error, closed}
    end.

set_owner(Handle, NewOwner) ->
    try
        weir_nif:set_owner(Handle, NewOwner)
    catch
        error:badarg -> {error, badarg}
    end.

forward(Socket, NewOwner) ->
    receive
        Message = {Tag, Socket, _} when Tag =:= tcp; Tag =:= tcp_error -> pass_on(Message, Socket, NewOwner);
        Message = {Tag, Socket} when Tag =:= tcp_closed; Tag =:= tcp_passive -> pass_on(Message, Socket, NewOwner);
        Message = {Socket, {data, _}} -> pass_on(Message, Socket, NewOwner)
    after 0 -> ok
    end.

pass_on(Message, Socket, NewOwner) ->
    NewOwner ! Message,
    forward(Socket, NewOwner).
