%% @doc One process that serves many connections. It calls a callback module with each connection's input, and sends
%% what the callback returns.
%%
%% A reactor has a pollset of its own. One native call writes the output of the last batch and returns the events of
%% the next. So there is no message, mailbox or context switch between a connection and its code. This is how native
%% servers work, and it has their rule: <em>a callback must not block</em>. While a callback runs, all connections of
%% the reactor wait. A callback that takes longer than `long_callback_ms' is named in a warning.
%%
%% ```
%% -module(shout).
%% -behaviour(weir_reactor).
%% -export([init/2, handle_data/3, handle_close/3]).
%%
%% init(_Socket, _Args) -> {ok, 0}.
%% handle_data(_Socket, Data, Count) -> {send, string:uppercase(Data), Count + 1}.
%% handle_close(_Socket, _Reason, Count) -> {ok, Count}.
%% '''
%%
%% <h2>Callbacks</h2>
%% Each call is for one connection, whose state is the last argument. `init/2', `handle_data/3' and `handle_close/3'
%% are required, the others are optional. `inet:setopts/2', `inet:peername/1', `gen_tcp:send/2' and so on work as for
%% other sockets. `gen_tcp:recv/2', `file:sendfile/2' and `gen_tcp:controlling_process/2' are refused, because they
%% would block the reactor or take the socket away from it.
%% <ul>
%% <li>`init(Socket, Args)': a connection begins: accepted, connected or adopted.</li>
%% <li>`handle_data(Socket, Data, State)': bytes, or a packet, as the options of the socket say.</li>
%% <li>`handle_close(Socket, Reason, State)': the connection is closed. `closed': by the peer, or by
%% `gen_tcp:close/1'. `send_queue_full': the peer does not read, and more than `max_send_queue' bytes are queued for
%% it. Otherwise an error such as `econnreset' or `etimedout'; `emsgsize' for a bad packet; `enodata', see
%% <em>Files</em>. If a connection of {@link connect/4} failed, Reason is `{connect, Posix}', and State is the Args
%% for `init/2', which was not called. The only result is `{ok, State}', because nothing can be sent any more.</li>
%% <li>`handle_writable(Socket, State)': the kernel takes output again. Called after {@link weir:notify_writable/1};
%% and when reading resumes after the send queue was above its high watermark: then some output is still queued.</li>
%% <li>`handle_info(Message, State)': a message for this connection. See {@link send/2} and {@link
%% weir_group:join/3}.</li>
%% <li>`handle_tick(Socket, State)': every `tick' milliseconds, for each connection. Besides the results below it may
%% return `{sleep, Ticks, State}': it is not called for this connection until this many ticks have passed, or {@link
%% tick_soon/1} is called. So thousands of idle connections cost nothing. A sleep lasts 63 ticks at most, and may end
%% early.</li>
%% <li>`begin_tick(Args)': once per tick, before `handle_tick/2' is called for connections. `due': for those that do
%% not sleep. `all': for all, which ends all sleeps.</li>
%% <li>`terminate(Reason, State)': the last call for a connection, exactly one for each `init/2' that returned a
%% state. Reason is that of `handle_close/3'; `normal' after `{close, State}'; `{handoff, Pid}' or `{relay, Socket}';
%% `{error, {Class, Reason, Stacktrace}}' after a callback that raised, returned a wrong value, or named a process or
%% socket that the connection cannot go to; or the reason why the reactor ends.</li>
%% </ul>
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Output, State}': sends with all other output of this batch. A binary, or a list of binaries, goes to
%% the kernel without a copy. Never blocks: output that the kernel does not take is queued, see <em>Slow readers</em>.
%% A list may contain parts of files, see <em>Files</em>.</li>
%% <li>`{close, State}' and `{close, Output, State}': closes after earlier output and this. `handle_close/3' is not
%% called.</li>
%% <li>`{relay, Socket2, State}': {@link weir:relay/3} joins the two connections, with Data of this callback first;
%% `{relay, Socket2, Prefix, State}': with Prefix as it is in place of Data. Data of packets includes the frame.
%% Socket2 may be a connection of this reactor, which leaves it too, or a socket of the reactor's process. If joining
%% fails both are closed, except a Socket2 of another process.</li>
%% <li>`{handoff, Pid, State}': the connection becomes an ordinary passive socket of that process, which gets
%% `{weir_reactor, handoff, Socket}'. The process can still receive Data of this callback and the bytes read after it;
%% `{handoff, Pid, Unread, State}': Unread in place of Data. If the process is dead the connection is closed.</li>
%% </ul>
%% `init/2', `handle_tick/2', `handle_info/2' and `handle_writable/2' have no Data that could be put back. Packets of
%% HTTP are terms and cannot be put back either: let a connection leave before it is framed as HTTP. A callback that
%% raises or returns a wrong value closes its own connection, with a report in the log; so does output that is no
%% iodata, is longer than the packet type allows, or has a file where packets are sent. Earlier output is still sent.
%%
%% <h2>Files</h2>
%% `{send, [Head, {sendfile, File, Offset, Length}, ...], State}' sends a part of a file in order, by sendfile(2),
%% without a copy in memory. {@link weir_file} opens files. If a part is not in the page cache, another process reads
%% it; neither the reactor nor other connections wait for the disk. If the file has become shorter than the part, the
%% available bytes are sent and the connection is closed with the reason `enodata'. Bytes of files count as queued for
%% the peer (`high_watermark', `send_pend'), but not for `max_send_queue', because they need no memory. A connection
%% cannot become a relay while a file is in its queue (`ebusy').
%%
%% <h2>PROXY headers</h2>
%% With `proxy_protocol' a connection begins with a PROXY header, of version 1 or 2. `init/2' is called after it, and
%% gets it by {@link weir:proxy_header/0}; the bytes after the header are framed by the options of the connection. A
%% connection without a valid header within `handshake_timeout' is closed without a callback.
%%
%% <h2>Slow readers</h2>
%% While more than `high_watermark' bytes are queued for a peer, its requests are not read. At `low_watermark' reading
%% resumes, and `handle_writable/2' is called. Further sends (ticks, broadcasts) may fill the queue up to
%% `max_send_queue' bytes; the next send beyond that closes the connection. This bounds the memory of a connection. One
%% send onto an empty queue is taken whole, however large it is, and so are all sends of the turn that fills the queue.
%%
%% <h2>Scheduler</h2>
%% A reactor starts on the scheduler in its options, or on an online one if that is offline. With `affinity' `soft'
%% the VM may move it when schedulers are unevenly loaded. `bound' keeps it there, and <em>its connections stop</em>
%% while that scheduler is offline, also those in the backlog of its listening socket. A listener lets other reactors
%% listen on that socket then. Connections never move to another reactor, because their state may hold timers and
%% monitors of the process.
-module(weir_reactor).

-include("weir_socket.hrl").

-export([start_link/1]).
-export([child_spec/1]).
-export([listen/2]).
-export([connect/4]).
-export([adopt/3]).
-export([send/2]).
-export([tick_soon/1]).
-export([measure/2]).
-export([info/1]).

-export_type([option/0, options/0, result/0, result/1, output/0, info/0, summary/0]).

-type options() :: #{
    module := module(),
    args => term(),
    listen => weir_tcp:socket() | none,
    scheduler => pos_integer(),
    affinity => soft | bound,
    tick => pos_integer() | infinity,
    long_callback_ms => pos_integer() | infinity,
    max_send_queue => pos_integer(),
    proxy_protocol => boolean(),
    handshake_timeout => timeout(),
    measure => boolean(),
    name => atom()
}.
%% `module' is the callback module, and `args' (`undefined') is for its `init/2'. `listen' (`none') is a listening
%% socket of Weir: the reactor takes its connections, with its options; the socket keeps its owner and outlives the
%% reactor. `scheduler' (that of the caller) is where the reactor starts, and `affinity' (`soft') whether it may move.
%% `tick' (`infinity') and `long_callback_ms' (100) are milliseconds, `max_send_queue' (1 MiB) bytes. With
%% `proxy_protocol' (`false') accepted connections begin with a PROXY header, within `handshake_timeout' (5000)
%% milliseconds. `measure' (`false'): see {@link measure/2}. `name' registers the process.

-type option() :: {args, term()} | gen_tcp:connect_option().

-type output() ::
    iodata() | [iodata() | {sendfile, weir_file:file(), Offset :: non_neg_integer(), Length :: non_neg_integer()}].
%% Bytes, or a list of bytes and parts of files.

-type result(State) ::
    {ok, State}
    | {send, output(), State}
    | {close, State}
    | {close, output(), State}
    | {relay, weir_tcp:socket(), State}
    | {relay, weir_tcp:socket(), Prefix :: binary(), State}
    | {handoff, pid(), State}
    | {handoff, pid(), Unread :: binary(), State}.

-type result() :: result(term()).

-type info() :: #{
    module := module(),
    pollset := pos_integer(),
    connections := non_neg_integer(),
    atom() => non_neg_integer() | [non_neg_integer()]
}.
%% A reactor: its callback module, its connections, and the counters of its own pollset, which are those of {@link
%% weir:pollset()}. {@link weir_counters:table/0} explains each.

-type summary() :: #{
    reactor := pid(),
    module := module(),
    pollset := pos_integer(),
    scheduler := pos_integer(),
    callbacks := non_neg_integer(),
    callback_ns := non_neg_integer(),
    measured := boolean(),
    times := [{Nanoseconds :: non_neg_integer(), Count :: pos_integer()}]
}.
%% A reactor, and the scheduler that it started on. `callbacks': events, messages and ticks for which callbacks were
%% called, and `callback_ns' the nanoseconds that these took. `measured' and `times': see {@link measure/2}.

%% Milliseconds that info/1 waits for a reactor that is in a callback.
-define(INFO_MS, 5000).

-callback init(Socket :: weir_tcp:socket(), Args :: term()) -> result().
-callback handle_data(Socket :: weir_tcp:socket(), Data :: term(), State :: term()) -> result().
-callback handle_close(Socket :: weir_tcp:socket(), Reason :: term(), State :: term()) -> {ok, State :: term()}.
-callback handle_writable(Socket :: weir_tcp:socket(), State :: term()) -> result().
-callback handle_info(Message :: term(), State :: term()) -> result().
-callback handle_tick(Socket :: weir_tcp:socket(), State :: term()) ->
    result() | {sleep, Ticks :: pos_integer(), State :: term()}.
-callback begin_tick(Args :: term()) -> all | due.
-callback terminate(Reason :: term(), State :: term()) -> term().

-optional_callbacks([handle_writable/2, handle_info/2, handle_tick/2, begin_tick/1, terminate/2]).

%% @doc Starts a reactor, linked to the caller. It ends with its parent, or by a `shutdown' of its supervisor:
%% `terminate/2' is called for every connection, for three seconds at most, and all connections are closed. If it is
%% killed its connections are closed too. The listening socket and its backlog stay for the next reactor.
%%
%% Errors: `no_native_part' on an unsupported system; `{bad_option, Option, Value, Allowed}', also for a `module'
%% without the required callbacks; an error of the listening socket; `emfile' if 1024 reactors are running.
-spec start_link(options()) -> {ok, pid()} | {error, term()}.
start_link(Options) ->
    weir_reactor_start:start_link(Options, weir_handshake:new(undefined)).

%% @doc Returns a child specification of a reactor; in Elixir `{:weir_reactor, options}' in a list of children. The id
%% is `{weir_reactor, Module}', with the scheduler if the options name one: so a supervisor can have a reactor of one
%% module for each scheduler.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(#{module := Module} = Options) ->
    Id =
        case Options of
            #{scheduler := Scheduler} -> {?MODULE, Module, Scheduler};
            #{} -> {?MODULE, Module}
        end,
    #{id => Id, start => {?MODULE, start_link, [Options]}, shutdown => 5000}.

%% @doc Makes a reactor take the connections of another listening socket, as `listen' of {@link start_link/1}. Does
%% nothing if that socket is closed.
-spec listen(Reactor :: pid(), weir_tcp:socket()) -> ok.
listen(Reactor, ?SOCKET(Handle)) ->
    Reactor ! {'$weir_reactor', {listen, Handle}},
    ok.

%% @doc Opens a connection in a reactor, from any process or from a callback. Does not wait: `init/2' is called when
%% the connection is open, or `handle_close/3' with `{connect, Posix}' if it fails. The options are those of
%% `gen_tcp:connect/3' (`{ip, Address}' sets the local address), and `{args, Args}' for `init/2' in place of the
%% reactor's own. `binary' is the default here.
%%
%% Returns only immediate errors: no descriptor (`emfile'), an address that cannot be bound (`eaddrnotavail',
%% `eaddrinuse'), no such reactor (`noproc'), no native part (`no_native_part'). Exits with `badarg' for wrong
%% arguments, as gen_tcp. The host must be an address: resolve names first, in a process that may block.
-spec connect(Reactor :: pid() | atom(), inet:socket_address(), inet:port_number(), [option()]) ->
    {ok, weir_tcp:socket()} | {error, noproc | no_native_part | inet:posix()}.
connect(Reactor, Address, Port, Options) ->
    {Args, ConnectOptions} = take_args(Options),
    case weir_open:unconnected(Address, Port, [binary | ConnectOptions]) of
        {ok, Handle, Native} -> give(Reactor, Handle, {connect, Handle, Native, Args});
        {error, _} = Error -> Error
    end.

%% @doc Gives a connection of the caller to a reactor, which calls `init/2' with Args. Unread input goes to
%% `handle_data/3'. No process may be receiving from it or waiting for its send queue: in that case, or if it is
%% closed by then, the reactor closes it without a callback.
-spec adopt(Reactor :: pid() | atom(), weir_tcp:socket(), Args :: term()) ->
    {ok, weir_tcp:socket()} | {error, noproc | closed | not_owner}.
adopt(Reactor, ?SOCKET(Handle), Args) ->
    give(Reactor, Handle, {adopt, Handle, Args}).

give(undefined, Handle, _Message) ->
    _ = weir_nif:close(Handle, now),
    {error, noproc};
give(Name, Handle, Message) when is_atom(Name) ->
    give(whereis(Name), Handle, Message);
give(Reactor, Handle, Message) when is_pid(Reactor) ->
    %% From now on the connection ends with the reactor, not with the caller.
    try weir_nif:set_owner(Handle, Reactor, false) of
        ok ->
            Reactor ! {'$weir_reactor', Message},
            {ok, ?SOCKET(Handle)};
        {error, _} = Error ->
            Error
    catch
        error:badarg -> give(undefined, Handle, Message)
    end.

take_args(Options) when is_list(Options) ->
    case lists:keytake(args, 1, Options) of
        {value, {args, Args}, Others} -> {{args, Args}, Others};
        false -> {default, Options}
    end;
take_args(_Options) ->
    exit(badarg).

%% @doc Sends a message to a connection: its reactor calls `handle_info(Message, State)'. As with `!', the message is
%% lost if the connection ends first. Errors: the socket is closed already, or is not a reactor's.
%%
%% Any message whose first element is `{weir_reactor, Socket}' is delivered in the same way, whole. With
%% `erlang:monitor(process, Pid, [{tag, {weir_reactor, Socket}}])' the `handle_info/2' of that connection gets
%% `{{weir_reactor, Socket}, Reference, process, Pid, Reason}'.
-spec send(weir_tcp:socket(), Message :: term()) -> ok | {error, closed | not_reactor}.
send(?SOCKET(Handle), Message) ->
    case weir_nif:reactor_of(Handle) of
        {ok, Reactor} ->
            Reactor ! {'$weir_reactor', {message, Handle, Message}},
            ok;
        {error, _} = Error ->
            Error
    end.

%% @doc Ends the sleep of a connection: `handle_tick/2' is called for it at the next tick. Only works in callbacks of
%% its reactor; elsewhere, and in a reactor without ticks, it does nothing.
-spec tick_soon(weir_tcp:socket()) -> ok.
tick_soon(?SOCKET(Handle)) -> weir_reactor_ticks:soon(Handle).

%% @doc Starts or stops measuring how long `handle_data/3' takes. Each call in one of sixteen batches is timed, with
%% two reads of the clock. `times' of {@link weir:reactors/0} is the histogram since the reactor started, within 128
%% ns or 6 percent. A listener sets this for its reactors by its option `measure', which can change while it runs.
-spec measure(Reactor :: pid() | atom(), boolean()) -> ok.
measure(Reactor, Measured) when is_boolean(Measured) ->
    Reactor ! {'$weir_reactor', {measure, Measured}},
    ok.

%% @doc Returns the state and the counters of a reactor. Waits for its current callback to return, 5 seconds at most.
%% Errors: `timeout'; `noproc' if there is no such reactor.
-spec info(Reactor :: pid() | atom()) -> {ok, info()} | {error, noproc | timeout}.
info(Reactor) ->
    Monitor = monitor(process, Reactor, [{alias, demonitor}]),
    try
        Reactor ! {'$weir_reactor', {info, Monitor, Monitor}},
        receive
            {Monitor, Info} ->
                _ = demonitor(Monitor, [flush]),
                Info;
            {'DOWN', Monitor, process, _, _} ->
                {error, noproc}
        after ?INFO_MS ->
            _ = demonitor(Monitor, [flush]),
            {error, timeout}
        end
    catch
        %% The name is not registered.
        error:badarg ->
            _ = demonitor(Monitor, [flush]),
            {error, noproc}
    end.
