%% @private
%% @doc Moves a connection out of its reactor, to a process or into a relay. Earlier output is sent first, and unread
%% input moves along.
-module(weir_reactor_departure).

-include("weir_socket.hrl").

-export([to_process/6]).
-export([to_relay/5]).

-type events() :: [weir_reactor_process:event()].
-type writes() :: [weir_reactor_process:write()].


%% @doc Makes a connection an ordinary socket of a process, and notifies the process, which reads Unread first.
%% Removes the connection's events and writes from the current batch. After an error the connection is closed. Also
%% returns the reason of the departure.
-spec to_process(weir_nif:handle(), pid(), Unread :: [term()], Home :: weir_nif:pollset(), events(), writes()) ->
    {Reason :: term(), events(), writes()}.
to_process(Handle, Pid, Unread, Home, Events, Writes) ->
    {Left, NewEvents, NewWrites} = leave(Handle, Pid, Unread, Home, Events, Writes),
    case Left of
        ok ->
            Pid ! {weir_reactor, handoff, ?SOCKET(Handle)},
            {{handoff, Pid}, NewEvents, NewWrites};
        {error, Why} ->
            ok = weir_nif:close(Handle, background),
            {failed(handoff, Why), NewEvents, NewWrites}
    end.

failed(What, Why) -> {error, {error, {What, Why}, []}}.

%% @doc Joins a connection with another socket, which first gets Unread, framed as it came, or Prefix as it is.
%% `IsOurs': the other socket is a connection of the reactor too. After an error both are closed, except a socket of
%% another process. Also returns the reasons of both departures.
-spec to_relay(
    {weir_nif:handle(), Other :: weir_nif:handle(), IsOurs :: boolean()},
    {Unread :: [term()], Prefix :: binary()},
    Home :: weir_nif:pollset(),
    events(),
    writes()
) -> {{Reason :: term(), OtherReason :: term()}, events(), writes()}.
to_relay({Handle, Other, IsOurs}, {Unread, Prefix}, Home, Events, Writes) ->
    {Left, Events1, Writes1} = leave(Handle, self(), Unread, Home, Events, Writes),
    {OtherLeft, Events2, Writes2} =
        case IsOurs of
            true -> leave(Other, self(), [], Home, Events1, Writes1);
            false -> {ok, Events1, Writes1}
        end,
    case join(Left, OtherLeft, Handle, Other, Prefix) of
        {ok, _Relay} ->
            {{{relay, ?SOCKET(Other)}, {relay, ?SOCKET(Handle)}}, Events2, Writes2};
        {error, Why} ->
            IsMine = IsOurs orelse is_mine(Other),
            _ = [weir_nif:close(Each, background) || {Each, true} <- [{Handle, true}, {Other, IsMine}]],
            {{failed(relay, Why), failed(relay, Why)}, Events2, Writes2}
    end.

is_mine(Handle) ->
    try
        weir_nif:owner(Handle) =:= {ok, self()}
    catch
        %% The handle was never valid.
        error:badarg -> false
    end.

join(ok, ok, Handle, Other, Prefix) ->
    weir_relay:start(?SOCKET(Handle), ?SOCKET(Other), #{prefix => Prefix, detached => true});
join({error, _} = Error, _, _Handle, _Other, _Prefix) ->
    Error;
join(ok, {error, _} = Error, _Handle, _Other, _Prefix) ->
    Error.

leave(Handle, Pid, Unread, Home, Events, Writes) ->
    {Ours, OtherWrites} = lists:partition(fun(Write) -> is_of(Handle, Write) end, Writes),
    {Later, OtherEvents} = lists:partition(fun(Event) -> is_of(Handle, Event) end, Events),
    All = Unread ++ [Data || [_ | Data] <- Later],
    Left =
        try
            send_and_leave(Handle, lists:reverse(Ours), Pid, Home, All)
        catch
            %% The process is dead, or the data is terms, not bytes.
            error:badarg -> {error, badarg}
        end,
    {Left, OtherEvents, OtherWrites}.

%% Received data or output of a connection.
is_of(Handle, [Handle | _Data]) -> true;
is_of(_Handle, _Other) -> false.

send_and_leave(Handle, [[_ | Output] | Writes], Pid, Home, Unread) ->
    case weir_nif:reactor_write(Handle, Output) of
        {error, Reason} = Error when Reason =:= emsgsize; Reason =:= einval; Reason =:= badarg -> Error;
        %% The next owner of the connection finds the error.
        _ -> send_and_leave(Handle, Writes, Pid, Home, Unread)
    end;
send_and_leave(Handle, [], Pid, Home, Unread) ->
    weir_nif:reactor_leave(Handle, Pid, Home, [iolist_to_binary(Data) || Data <- Unread]).
