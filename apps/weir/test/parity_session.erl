%% Runs one sequence of operations on a connection whose one end is the socket
%% under test and whose other end, the peer, is a passive stock socket; and
%% writes down all that a program could see of it.
%%
%% After each step the session waits until nothing more is going to happen: both
%% kernels have what was sent, and the socket, if anybody wants its data, has
%% taken it. So what is seen follows from the sequence and not from timing.
-module(parity_session).

-export([observe/3]).

-export_type([observation/0]).

-type observation() :: [{parity_sequence:step() | opened | finally, Outcome :: term(), mailboxes()}].
-type mailboxes() :: [{parity_sequence:name(), [term()]}].
%% What each step gave, and what every process had in its mailbox after it. The
%% socket is `socket' in it, ports are `here' and `there'.

-record(session, {
    socket :: inet:socket() | undefined,
    ports :: #{inet:port_number() => here | there},
    peer :: gen_tcp:socket(),
    processes :: #{parity_sequence:name() => pid()},
    killed = [] :: [parity_sequence:name()],
    %% Who is in a call that may take long.
    waiting = #{} :: #{parity_sequence:name() => reference()},
    %% Its own side was shut down for reading, which ends its input.
    read_shut = false :: boolean(),
    %% An exact recv has timed out with fewer bytes than it wanted.
    short = false :: boolean(),
    %% It has had a packet type that knows header fields only.
    had_fields = false :: boolean(),
    %% All that the socket is to deliver: what the peer has sent, and what was put
    %% back where it was put back.
    stream = <<>> :: binary(),
    put_back = false :: boolean(),
    patience :: pos_integer()
}).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(NAMES, [a, b, c]).

%% How long to wait for what must happen.
-define(LIMIT, 10000).
%% How long for bytes to cross the loopback, and for a socket to take what has
%% come. Where it does not want it these are waited for in full, so they are
%% short; a session with more patience takes so many times as long.
-define(CARRIED, 300).
-define(TAKEN, 12).
-define(CLOSED, 100).

%% Runs a sequence on sockets that are opened with the options of the backend.
%% Patience is a factor on all times that are waited in vain.
-spec observe(parity_sequence:sequence(), Backend :: [gen_tcp:option()], Patience :: pos_integer()) ->
    observation() | {crashed, term()}.
observe(Sequence, Backend, Patience) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({observed, run(Sequence, Backend, Patience)}) end),
    receive
        {'DOWN', Monitor, process, Pid, {observed, Observation}} -> Observation;
        {'DOWN', Monitor, process, Pid, Reason} -> {crashed, Reason}
    end.

run({Role, Options, Steps}, Backend, Patience) ->
    Runner = self(),
    Processes = maps:from_list([{Name, start(Runner)} || Name <- ?NAMES]),
    case open(Role, Backend ++ Options, Processes) of
        {{ok, Socket}, Peer} ->
            Session = seen_fields(#session{
                socket = Socket,
                ports = ports(Peer),
                peer = Peer,
                processes = Processes,
                patience = Patience
            }),
            ok = settle(Session),
            Opened = {opened, ok, mailboxes(Session)},
            {Observed, Last} = lists:mapfoldl(fun observe_step/2, Session, Steps),
            {Finally, Ended} = observe_step(finally, Last),
            clean_up(Ended),
            [Opened | Observed] ++ [Finally];
        {Error, _} ->
            [stop(Pid) || Pid <- maps:values(Processes)],
            [{opened, Error, []}]
    end.

clean_up(#session{socket = Socket, peer = Peer, processes = Processes}) ->
    _ = inet:setopts(Peer, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Peer),
    [stop(Pid) || Pid <- maps:values(Processes)],
    %% Weir keeps what its owner left behind until it is sent.
    catch gen_tcp:close(Socket).

%% Opening ----------------------------------------------------------------------

open(accepted, Options, #{a := Owner}) ->
    case attempt(fun() -> gen_tcp:listen(0, [{ip, ?LOOPBACK} | Options]) end) of
        {ok, Listener} ->
            {ok, Port} = inet:port(Listener),
            Peer = connect(Port),
            Accepted = call(Owner, fun() -> gen_tcp:accept(Listener, ?LIMIT) end),
            ok = gen_tcp:close(Listener),
            {Accepted, Peer};
        Error ->
            {Error, undefined}
    end;
open(connected, Options, #{a := Owner}) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, ?LOOPBACK} | peer_options()]),
    {ok, Port} = inet:port(Listener),
    case call(Owner, fun() -> gen_tcp:connect(?LOOPBACK, Port, Options, ?LIMIT) end) of
        {ok, Socket} ->
            {ok, Peer} = gen_tcp:accept(Listener, ?LIMIT),
            ok = gen_tcp:close(Listener),
            {{ok, Socket}, Peer};
        Error ->
            ok = gen_tcp:close(Listener),
            {Error, undefined}
    end.

connect(Port) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_options(), ?LIMIT),
    Peer.

peer_options() ->
    [binary, {active, false}, {nodelay, true}, {show_econnreset, true}, {exit_on_close, false}].

ports(Peer) ->
    {ok, {_, There}} = inet:sockname(Peer),
    {ok, {_, Here}} = inet:peername(Peer),
    #{Here => here, There => there}.

%% Steps ------------------------------------------------------------------------

observe_step(Step, Session) ->
    {Outcome, Next} =
        case is_passed_over(Step, Session) of
            true -> {passed_over, Session};
            false -> step(Step, Session)
        end,
    ok = settle(Next),
    {Returned, Settled} = returned(seen_fields(Next)),
    {{Step, normal([Outcome | Returned], Settled), mailboxes(Settled)}, Settled}.

seen_fields(Session = #session{had_fields = Had}) ->
    Session#session{had_fields = Had orelse knows_fields_only(option(packet, Session))}.

knows_fields_only(Packet) ->
    Packet =:= httph orelse Packet =:= httph_bin.

knows_requests(Packet) ->
    Packet =:= http orelse Packet =:= http_bin.

%% A process that is dead or in a call cannot do anything; the rest are rows of
%% docs/differences.md.
is_passed_over({peer, _}, _Session) ->
    false;
is_passed_over(finally, _Session) ->
    false;
is_passed_over({Name, Call}, Session = #session{killed = Killed, waiting = Waiting}) ->
    lists:member(Name, Killed) orelse
        case is_map_key(Name, Waiting) of
            %% "a process killed in `recv`"
            true -> true;
            false -> is_different(Call, process(Name, Session), Session)
        end.

is_different({recv, Length, Timeout}, Process, Session) ->
    %% "a packet that is longer than `buffer`, and `recv(S, 0, 0)`"
    (Length =:= 0 andalso Timeout =:= 0 andalso option(packet, Session) =/= raw andalso
        byte_size(undelivered(Session)) > 0) orelse
        %% "fewer bytes than were asked for, the end behind them, and `recv(S, N, 0)`"
        (Length > byte_size(undelivered(Session)) andalso Timeout =:= 0 andalso has_ended(Session)) orelse
        is_different({recv_waiting, Length}, Process, Session);
is_different({recv_waiting, Length}, _Process, Session = #session{short = Short}) ->
    %% "`recv(S, N, T)` that timed out", "`recv` with `{deliver, port}`"
    (Short andalso Length =:= 0) orelse option(deliver, Session) =:= port;
is_different({setopts, Options}, _Process, Session) ->
    lists:any(fun(Option) -> is_different_option(Option, Session) end, Options);
is_different({send, Data}, _Process, Session) ->
    %% "longer than `{packet, 1}` or `{packet, 2}` can say"
    iolist_size(Data) > 255 andalso option(packet, Session) =:= 1;
is_different({unrecv, Data}, _Process, Session = #session{waiting = Waiting}) ->
    %% "`unrecv` of a part of a packet", "`unrecv` while a process is in `recv`"
    Packet = option(packet, Session),
    map_size(Waiting) > 0 orelse not is_whole(Packet, Data) orelse
        (Packet =/= raw andalso byte_size(Data) > option(buffer, Session));
is_different({give_to, _}, Process, Session) ->
    %% "`controlling_process` by an owner that has not seen all messages"
    {messages, Messages} = process_info(Process, messages),
    Tags = [element(1, Message) || Message <- Messages],
    lists:member(tcp_passive, Tags) orelse lists:member(tcp_error, Tags) orelse
        (lists:member(tcp_closed, Tags) andalso option(exit_on_close, Session) =/= undefined);
is_different(_Call, _Process, _Session) ->
    false.

%% "`recv(S, N, T)` that timed out", "`active` set while a process is in `recv`"
is_different_option({active, _}, #session{short = Short, waiting = Waiting}) ->
    Short orelse map_size(Waiting) > 0;
%% "half a packet is read and the packet type or `packet_size` changes"
is_different_option({Name, Value}, Session = #session{short = Short, waiting = Waiting}) when
    Name =:= packet; Name =:= packet_size
->
    Short orelse map_size(Waiting) > 0 orelse may_be_half_read(Session) orelse may_have_grown(Session) orelse
        (knows_requests(Value) andalso may_expect_fields(Session));
%% "`line_delimiter` changes behind half a line"
is_different_option({line_delimiter, _}, Session) ->
    option(packet, Session) =:= line andalso undelivered(Session) =/= <<>>;
%% "`recv` with `{deliver, port}`"
is_different_option({deliver, port}, #session{waiting = Waiting}) ->
    map_size(Waiting) > 0;
is_different_option(_Option, _Session) ->
    false.

option(Name, #session{socket = Socket}) ->
    case inet:getopts(Socket, [Name]) of
        {ok, [{Name, Value}]} -> Value;
        _ -> undefined
    end.

has_ended(#session{socket = Socket, read_shut = ReadShut}) ->
    ReadShut orelse parity_wire:has_ended(parity_wire:look(Socket)).

%% The driver counts what it has delivered.
undelivered(#session{socket = Socket, stream = Stream}) ->
    case inet:getstat(Socket, [recv_oct]) of
        {ok, [{recv_oct, Delivered}]} when Delivered =< byte_size(Stream) ->
            binary:part(Stream, Delivered, byte_size(Stream) - Delivered);
        _ ->
            <<>>
    end.

%% Nothing but packets that are complete.
is_whole(Packet, _Data) when Packet =:= raw; Packet =:= 0; Packet =:= undefined ->
    true;
is_whole(_Packet, <<>>) ->
    true;
is_whole(line, _Data) ->
    %% A line may be longer than what was put back.
    false;
is_whole(Http, Data) when Http =:= http; Http =:= http_bin ->
    %% Nobody says here whether the first line has been taken. A header is not whole before the next line begins.
    is_whole(httph, Data);
is_whole(Packet, Data) ->
    case erlang:decode_packet(Packet, Data, []) of
        {ok, _, Rest} -> is_whole(Packet, Rest);
        _ -> false
    end.

%% Of a packet whose length is known some bytes may have been read and others not.
%% What was put back counts as such: "`unrecv` of a part of a packet".
may_be_half_read(Session = #session{socket = Socket, put_back = PutBack}) ->
    case {undelivered(Session), option(packet, Session), parity_wire:look(Socket)} of
        {<<>>, _, _} -> false;
        {_, Raw, _} when Raw =:= raw; Raw =:= 0 -> PutBack;
        {_, _, gone} -> false;
        {_, _, #{unread := Unread}} when Unread > 0 -> true;
        %% "a buffer that has grown"
        {Data, Packet, _} -> PutBack orelse byte_size(Data) >= option(buffer, Session) orelse has_begun(Packet, Data)
    end.

%% "a buffer that has grown": up to `packet_size`, for a packet of an unknown length.
may_have_grown(Session) ->
    undelivered(Session) =/= <<>> andalso option(packet_size, Session) > option(buffer, Session).

%% "from `httph` or `httph_bin` to `http` or `http_bin`": not where a header field has come.
may_expect_fields(Session = #session{had_fields = Had}) ->
    Had andalso not (knows_fields_only(option(packet, Session)) andalso undelivered(Session) =/= <<>>).

%% It begins with whole packets, and then comes one whose length is known.
has_begun(_Packet, <<>>) ->
    false;
has_begun(Packet, Data) ->
    case erlang:decode_packet(Packet, Data, []) of
        {ok, _, Rest} -> has_begun(Packet, Rest);
        {more, undefined} -> false;
        {more, _} -> true;
        %% What was read of a bad packet is thrown away, and nobody knows where the next begins.
        {error, _} -> true
    end.

step(finally, Session) ->
    {drain(Session), Session};
step({peer, {send, Data}}, Session = #session{peer = Peer, stream = Stream}) ->
    case gen_tcp:send(Peer, Data) of
        ok -> {ok, Session#session{stream = <<Stream/binary, Data/binary>>}};
        Error -> {Error, Session}
    end;
step({peer, drain}, Session) ->
    {drain(Session), Session};
step({peer, {shutdown, How}}, Session = #session{peer = Peer}) ->
    {gen_tcp:shutdown(Peer, How), Session};
step({peer, close}, Session = #session{peer = Peer}) ->
    {gen_tcp:close(Peer), Session};
step({peer, reset}, Session = #session{peer = Peer}) ->
    _ = inet:setopts(Peer, [{linger, {true, 0}}]),
    {gen_tcp:close(Peer), Session};
step({Name, kill}, Session = #session{killed = Killed}) ->
    {stop(process(Name, Session)), Session#session{killed = [Name | Killed]}};
step({Name, flush}, Session = #session{socket = Socket}) ->
    Messages = call(process(Name, Session), fun flush/0),
    {[Message || Message <- Messages, not is_of_port(Message, Socket)], Session};
step({Name, {recv_waiting, Length}}, Session = #session{socket = Socket, waiting = Waiting}) ->
    Process = process(Name, Session),
    Self = self(),
    Reference = ask(Process, fun() ->
        Self ! {Process, begins},
        gen_tcp:recv(Socket, Length)
    end),
    {begins(Process), Session#session{waiting = Waiting#{Name => Reference}}};
step({Name, Call = {shutdown, How}}, Session = #session{read_shut = ReadShut}) ->
    Result = call(process(Name, Session), fun() -> perform(Call, Session) end),
    {Result, Session#session{read_shut = ReadShut orelse How =/= write}};
step({Name, Call = {unrecv, Data}}, Session = #session{stream = Stream}) ->
    Undelivered = undelivered(Session),
    Delivered = binary:part(Stream, 0, byte_size(Stream) - byte_size(Undelivered)),
    Longer = <<Delivered/binary, Data/binary, Undelivered/binary>>,
    {call(process(Name, Session), fun() -> perform(Call, Session) end), Session#session{stream = Longer, put_back = true}};
step({Name, Call = {recv, Length, _}}, Session) when Length > 0 ->
    Result = call(process(Name, Session), fun() -> perform(Call, Session) end),
    {Result, Session#session{short = is_short(Result)}};
step({Name, Call}, Session) ->
    {call(process(Name, Session), fun() -> perform(Call, Session) end), Session}.

is_short({error, timeout}) -> true;
is_short(_) -> false.

perform({send, Data}, #session{socket = Socket}) -> gen_tcp:send(Socket, Data);
perform({recv, Length, Timeout}, #session{socket = Socket}) -> gen_tcp:recv(Socket, Length, Timeout);
perform({unrecv, Data}, #session{socket = Socket}) -> gen_tcp:unrecv(Socket, Data);
perform({setopts, Options}, #session{socket = Socket}) -> inet:setopts(Socket, Options);
perform({getopts, Names}, #session{socket = Socket}) -> inet:getopts(Socket, Names);
perform({getstat, Names}, #session{socket = Socket}) -> inet:getstat(Socket, Names);
perform({shutdown, How}, #session{socket = Socket}) -> gen_tcp:shutdown(Socket, How);
perform({give_to, Name}, Session = #session{socket = Socket}) ->
    gen_tcp:controlling_process(Socket, process(Name, Session));
perform(monitor, #session{socket = Socket}) -> is_reference(inet:monitor(Socket));
perform(sockname, #session{socket = Socket}) -> inet:sockname(Socket);
perform(peername, #session{socket = Socket}) -> inet:peername(Socket);
perform(close, #session{socket = Socket}) -> gen_tcp:close(Socket).

%% All that the socket has sent, and how the peer finds the connection.
drain(#session{peer = Peer}) ->
    drain(Peer, []).

drain(Peer, Data) ->
    case gen_tcp:recv(Peer, 0, 0) of
        {ok, More} -> drain(Peer, [Data | More]);
        {error, Reason} -> {iolist_to_binary(Data), Reason}
    end.

%% The calls that were waiting and have returned.
returned(Session = #session{waiting = Waiting}) ->
    lists:foldl(
        fun(Name, {Returned, Left = #session{waiting = Before}}) ->
            Reference = maps:get(Name, Before),
            receive
                {Reference, Result} ->
                    {Returned ++ [{Name, Result}], Left#session{waiting = maps:remove(Name, Before)}}
            after 0 -> {Returned, Left}
            end
        end,
        {[], Session},
        lists:sort(maps:keys(Waiting))
    ).

%% Processes --------------------------------------------------------------------

%% A process that does what it is asked, and keeps what sockets send it. That
%% the end of a port that it is linked to kills it is not compared: "owner and
%% socket".
start(Runner) ->
    spawn(fun() ->
        process_flag(trap_exit, true),
        serve(monitor(process, Runner))
    end).

serve(Monitor) ->
    receive
        {call, From, Reference, Function} ->
            From ! {Reference, attempt(Function)},
            serve(Monitor);
        {'DOWN', Monitor, process, _, _} ->
            ok
    end.

attempt(Function) ->
    try
        Function()
    catch
        Class:Reason -> {Class, Reason}
    end.

process(Name, #session{processes = Processes}) ->
    maps:get(Name, Processes).

ask(Process, Function) ->
    Reference = make_ref(),
    Process ! {call, self(), Reference, Function},
    Reference.

call(Process, Function) ->
    Reference = ask(Process, Function),
    receive
        {Reference, Result} -> Result
    after ?LIMIT -> {does_not_return, element(2, process_info(Process, current_stacktrace))}
    end.

%% The process has come as far as it gets: it waits in the call or for the next.
begins(Process) ->
    receive
        {Process, begins} -> begun(Process)
    end.

begun(Process) ->
    case process_info(Process, [status, current_function]) of
        [{status, waiting}, {current_function, {Module, _, _}}] when Module =/= erts_internal ->
            begun;
        _ ->
            pause(1),
            begun(Process)
    end.

stop(Process) ->
    Monitor = monitor(process, Process),
    exit(Process, kill),
    receive
        {'DOWN', Monitor, process, Process, _} -> ok
    end.

flush() ->
    receive
        Message when element(1, Message) =/= call -> [Message | flush()]
    after 0 -> []
    end.

mailboxes(Session = #session{processes = Processes, killed = Killed}) ->
    [{Name, mailbox(Pid, Session)} || {Name, Pid} <- lists:sort(maps:to_list(maps:without(Killed, Processes)))].

mailbox(Pid, Session = #session{socket = Socket}) ->
    {messages, Messages} = process_info(Pid, messages),
    [normal(Message, Session) || Message <- Messages, not is_of_port(Message, Socket)].

%% "owner and socket": the end of a port, and the driver's answer to a recv that
%% has taken that for its answer.
is_of_port({'EXIT', Socket, _}, Socket) -> true;
is_of_port({inet_async, Socket, _, {error, closed}}, Socket) -> true;
is_of_port(_, _) -> false.

%% A term without what differs from run to run.
normal(Socket, #session{socket = Socket}) ->
    socket;
normal({'DOWN', Reference, _Kind, Socket, _Reason}, #session{socket = Socket}) when is_reference(Reference) ->
    %% "`inet:monitor`"
    {'DOWN', socket};
normal({Socket, {data, Data}}, #session{socket = Socket}) ->
    %% "`{deliver, port}`"
    {socket, {data, iolist_to_binary(Data)}};
normal(Term, Session) when is_tuple(Term) ->
    list_to_tuple(normal(tuple_to_list(Term), Session));
normal([Head | Tail], Session) ->
    [normal(Head, Session) | normal(Tail, Session)];
normal(Port, #session{ports = Ports}) when is_map_key(Port, Ports) ->
    maps:get(Port, Ports);
normal(Pid, _) when is_pid(Pid) ->
    pid;
normal(Term, _) ->
    Term.

%% Quiet ------------------------------------------------------------------------

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

%% What `delay_send' holds back is still to go.
has_pending(Socket) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Pending}]} -> Pending > 0;
        {error, _} -> false
    end.

%% Nothing is there, or nobody wants it; and who was answered has returned.
is_taken(Session = #session{socket = Socket, waiting = Waiting, read_shut = ReadShut}) ->
    Inside = [process(Name, Session) || {Name, Reference} <- maps:to_list(Waiting), not has_returned(Reference)],
    Sight = parity_wire:look(Socket),
    Taken =
        case Sight of
            gone -> true;
            #{active := false} when Inside =:= [] -> true;
            _ -> not (ReadShut orelse parity_wire:has_unread(Sight))
        end,
    {Taken andalso not lists:any(fun(Process) -> is_answered(Process, Socket) end, Inside), {Sight, queued(Session)}}.

queued(#session{processes = Processes, killed = Killed}) ->
    [process_info(Pid, message_queue_len) || Pid <- maps:values(maps:without(Killed, Processes))].

has_returned(Reference) ->
    {messages, Messages} = process_info(self(), messages),
    lists:any(fun(Message) -> element(1, Message) =:= Reference end, Messages).

%% A process in recv has its answer: it is on its way back, or inet's or Weir's
%% message is in its mailbox.
is_answered(Process, Socket) ->
    case process_info(Process, [status, current_function, messages]) of
        [{status, waiting}, {current_function, {Module, _, _}}, {messages, Messages}] when Module =/= ?MODULE ->
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

%% Looks until it is so, or nothing has changed for so long. Without a pause at
%% first, as most comes at once.
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
                    0 -> pause(1);
                    _ -> erlang:yield()
                end,
            wait(Condition, Milliseconds, Deadline, Before, max(0, Eager - 1));
        {false, Changed} ->
            wait(Condition, Milliseconds, Now + Milliseconds, Changed, Eager)
    end.

pause(Milliseconds) ->
    receive
    after Milliseconds -> ok
    end.
