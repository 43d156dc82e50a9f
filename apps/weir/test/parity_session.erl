%% Runs a sequence of operations on a connection between the socket under test and a passive stock socket, the peer.
%% Records everything that a program could observe.
%%
%% After each step the session waits until nothing more will happen: both kernels have received everything, and the
%% socket has taken its data unless no process wants it. So the observation depends on the sequence and not on timing.
-module(parity_session).

-export([observe/3]).

-export_type([observation/0]).

-type observation() :: [{parity_sequence:step() | opened | finally, Outcome :: term(), mailboxes()}].
-type mailboxes() :: [{parity_sequence:name(), [term()]}].
%% The outcome of each step, and every process's mailbox after it. The socket is replaced by `socket', ports by `here'
%% and `there'.

-include("parity_session.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).
-define(NAMES, [a, b, c]).

%% Runs a sequence on sockets that are opened with the options of the backend. Patience multiplies all waiting times.
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
            ok = parity_quiet:settle(Session),
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
    %% Weir keeps unsent data of an ended owner until it is sent.
    catch gen_tcp:close(Socket).

%% Opening ----------------------------------------------------------------------

open(accepted, Options, #{a := Owner}) ->
    case attempt(fun() -> gen_tcp:listen(0, [{ip, ?LOOPBACK} | Options]) end) of
        {ok, Listener} ->
            {ok, Port} = inet:port(Listener),
            Peer = connect(Port),
            Accepted = call(Owner, fun() -> gen_tcp:accept(Listener, weir_test_wait:patience()) end),
            ok = gen_tcp:close(Listener),
            {Accepted, Peer};
        Error ->
            {Error, undefined}
    end;
open(connected, Options, #{a := Owner}) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, ?LOOPBACK} | peer_options()]),
    {ok, Port} = inet:port(Listener),
    case call(Owner, fun() -> gen_tcp:connect(?LOOPBACK, Port, Options, weir_test_wait:patience()) end) of
        {ok, Socket} ->
            {ok, Peer} = gen_tcp:accept(Listener, weir_test_wait:patience()),
            ok = gen_tcp:close(Listener),
            {{ok, Socket}, Peer};
        Error ->
            ok = gen_tcp:close(Listener),
            {Error, undefined}
    end.

connect(Port) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, peer_options(), weir_test_wait:patience()),
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
        case parity_differences:is_passed_over(Step, Session) of
            true -> {passed_over, Session};
            false -> step(Step, Session)
        end,
    ok = parity_quiet:settle(Next),
    {Returned, Settled} = returned(seen_fields(Next)),
    {{Step, normal([Outcome | Returned], Settled), mailboxes(Settled)}, Settled}.

seen_fields(Session = #session{had_fields = Had}) ->
    Session#session{had_fields = Had orelse parity_differences:knows_fields_only(Session)}.

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
    Undelivered = parity_differences:undelivered(Session),
    Delivered = binary:part(Stream, 0, byte_size(Stream) - byte_size(Undelivered)),
    Longer = <<Delivered/binary, Data/binary, Undelivered/binary>>,
    {call(process(Name, Session), fun() -> perform(Call, Session) end), Session#session{
        stream = Longer, put_back = true
    }};
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

%% Returns all data that the socket has sent, and the state of the connection from the peer's side.
drain(#session{peer = Peer}) ->
    drain(Peer, []).

drain(Peer, Data) ->
    case gen_tcp:recv(Peer, 0, 0) of
        {ok, More} -> drain(Peer, [Data | More]);
        {error, Reason} -> {iolist_to_binary(Data), Reason}
    end.

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

%% A process that runs the calls it is sent, and keeps messages of sockets. It traps exits: the end of a linked port
%% would kill it, which is not compared ("owner and socket").
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
    after weir_test_wait:patience() -> {does_not_return, element(2, process_info(Process, current_stacktrace))}
    end.

%% Waits until the process blocks in the call or waits for the next one.
begins(Process) ->
    receive
        {Process, begins} -> begun(Process)
    end.

begun(Process) ->
    weir_test_wait:wait_until(fun() ->
        case process_info(Process, [status, current_function]) of
            [{status, waiting}, {current_function, {Module, _, _}}] when Module =/= erts_internal -> true;
            Other -> Other
        end
    end),
    begun.

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

%% "owner and socket": the exit signal of a port, and the driver's answer to a recv that has already returned because
%% of it.
is_of_port({'EXIT', Socket, _}, Socket) -> true;
is_of_port({inet_async, Socket, _, {error, closed}}, Socket) -> true;
is_of_port(_, _) -> false.

%% Replaces parts of a term that differ from run to run.
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
