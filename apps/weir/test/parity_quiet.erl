%% Waits until nothing more will happen in a session: both kernels have received everything, and the socket has taken
%% its data unless no process wants it.
-module(parity_quiet).

-export([settle/1]).

-include("parity_session.hrl").

%% Milliseconds for bytes to cross the loopback, and for a socket to take data. If no process wants the data, the
%% whole time passes, so the times are short; the patience of a session multiplies them.
-define(CARRIED, 300).
-define(TAKEN, 12).
-define(CLOSED, 100).

-spec settle(#session{}) -> ok.
settle(Session = #session{patience = Patience}) ->
    ok = wait(fun() -> is_carried(Session) end, ?CARRIED * Patience),
    Limit =
        case leaves_at_the_end(Session) of
            true -> ?CLOSED;
            false -> ?TAKEN
        end,
    wait(fun() -> is_taken(Session) end, Limit * Patience).

is_carried(#session{socket = Socket, peer = Peer}) ->
    {One, Other} = Sights = {parity_wire:look(Socket), parity_wire:look(Peer)},
    {parity_wire:is_carried(One, Other) andalso not has_pending(Socket), Sights}.

%% `delay_send' may hold data back.
has_pending(Socket) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Pending}]} -> Pending > 0;
        {error, _} -> false
    end.

%% Whether no data is left or wanted, and answered calls have returned.
is_taken(Session = #session{socket = Socket, waiting = Waiting, read_shut = ReadShut}) ->
    Inside = [
        maps:get(Name, Session#session.processes)
     || {Name, Reference} <- maps:to_list(Waiting), not has_returned(Reference)
    ],
    Sight = parity_wire:look(Socket),
    Taken =
        case is_queued(Socket) orelse Sight of
            true -> false;
            gone -> true;
            #{active := false} when Inside =:= [] -> true;
            _ -> not (ReadShut orelse parity_wire:has_unread(Sight))
        end,
    {Taken andalso not lists:any(fun(Process) -> is_answered(Process, Socket) end, Inside), {Sight, queued(Session)}}.

%% Whether a process other than the owner has left work for the socket's poller.
is_queued({'$inet', _, Handle}) ->
    case weir_nif:info(Handle) of
        {ok, #{queued := Queued}} -> Queued;
        {error, closed} -> false
    end;
is_queued(_Port) ->
    false.

queued(#session{processes = Processes, killed = Killed}) ->
    [process_info(Pid, message_queue_len) || Pid <- maps:values(maps:without(Killed, Processes))].

has_returned(Reference) ->
    {messages, Messages} = process_info(self(), messages),
    lists:any(fun(Message) -> element(1, Message) =:= Reference end, Messages).

%% Whether a process in recv has its answer: the answer of inet or Weir is in its mailbox.
is_answered(Process, Socket) ->
    case process_info(Process, [status, current_function, messages]) of
        [{status, waiting}, {current_function, {Module, _, _}}, {messages, Messages}] when Module =/= parity_session ->
            lists:any(fun(Message) -> is_answer(Message, Socket) end, Messages);
        _ ->
            true
    end.

is_answer({inet_async, Socket, _, _}, Socket) -> true;
is_answer({'EXIT', Socket, _}, Socket) -> true;
is_answer({'$weir', Handle, _, _}, {'$inet', _, Handle}) -> true;
is_answer(_, _) -> false.

leaves_at_the_end(#session{socket = Socket}) ->
    inet:getopts(Socket, [exit_on_close]) =:= {ok, [{exit_on_close, true}]}.

%% Checks until the condition is true, or nothing has changed for this long. The first checks do not pause, because
%% most things happen at once.
wait(Condition, Milliseconds) ->
    wait(Condition, Milliseconds, 0, undefined, 3).

wait(Condition, Milliseconds, Deadline, Before, Eager) ->
    Now = erlang:monotonic_time(millisecond),
    case Condition() of
        {true, _} ->
            ok;
        {false, Before} when Now > Deadline ->
            ok;
        {false, Before} ->
            _ =
                case Eager of
                    0 -> timer:sleep(1);
                    _ -> erlang:yield()
                end,
            wait(Condition, Milliseconds, Deadline, Before, max(0, Eager - 1));
        {false, Changed} ->
            wait(Condition, Milliseconds, Now + Milliseconds, Changed, Eager)
    end.
