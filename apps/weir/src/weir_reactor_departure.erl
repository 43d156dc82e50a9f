%% @private
%% @doc How a connection leaves its reactor: for a process, or for a relay. What was sent goes first, and what was read but
%% not used comes with it.
-module(weir_reactor_departure).

-include("weir_socket.hrl").

-export([to_process/6]).
-export([to_relay/5]).

-type events() :: [weir_reactor_process:event()].
-type writes() :: [weir_reactor_process:write()].


%% @doc Makes a connection an ordinary socket of a process, which is told, and reads Unread first. What it has done in the
%% current batch is taken out of the events and writes. After an error it is closed. Returns why it is gone, too.
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

%% @doc Joins a connection with another socket, to which Unread goes first, framed as it came, or Prefix as it is.
%% `IsOurs' says that the other socket is a connection of the reactor too. After an error both are closed, but not a socket
%% that is another process's. Returns why each of the two is gone, too.
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
        %% A handle that was never one.
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
            %% A dead process, or packets that are terms and no bytes.
            error:badarg -> {error, badarg}
        end,
    {Left, OtherEvents, OtherWrites}.

%% Data that has come, or that was sent.
is_of(Handle, [Handle | _Data]) -> true;
is_of(_Handle, _Other) -> false.

send_and_leave(Handle, [[_ | Output] | Writes], Pid, Home, Unread) ->
    case weir_nif:reactor_write(Handle, Output) of
        {error, Reason} = Error when Reason =:= emsgsize; Reason =:= einval; Reason =:= badarg -> Error;
        %% The next process of the connection finds out that it is broken.
        _ -> send_and_leave(Handle, Writes, Pid, Home, Unread)
    end;
send_and_leave(Handle, [], Pid, Home, Unread) ->
    weir_nif:reactor_leave(Handle, Pid, Home, [iolist_to_binary(Data) || Data <- Unread]).
