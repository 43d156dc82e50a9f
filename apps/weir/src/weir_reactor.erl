%% @doc One process that serves many connections: a callback module is called with what has come for each of them, and
%% what it returns is sent.
%%
%% A reactor has a pollset of its own. One native call takes all writes of the batch before and returns all events of the
%% next, so that no message, no mailbox and no context switch stands between a connection and its code. That is what
%% native servers do, and it comes with their rule: <em>a callback must not wait</em>. While one runs, all connections of
%% the reactor wait. One that takes longer than `long_callback_ms' is named in a warning.
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
%% All are about one connection, whose state comes last. `init/2', `handle_data/3' and `handle_close/3' are needed, the
%% others are optional. Sockets are ordinary ones for `inet:setopts/2', `inet:peername/1', `gen_tcp:send/2' and so on;
%% `gen_tcp:recv/2', `file:sendfile/2' and `gen_tcp:controlling_process/2', which would wait for the reactor or take the
%% socket away from it, are refused.
%% <ul>
%% <li>`init(Socket, Args)': there is a connection, accepted, connected or adopted.</li>
%% <li>`handle_data(Socket, Data, State)': bytes have come, or a packet, by the options of the socket.</li>
%% <li>`handle_close(Socket, Reason, State)': the connection is closed already. `closed': by the peer, or by
%% `gen_tcp:close/1' on the socket. `send_queue_full': the peer does not read, and more than `max_send_queue' bytes wait for
%% it. Otherwise an error such as `econnreset' or `etimedout'; `emsgsize' for a bad packet; `enodata', see <em>Files</em>.
%% For a connection of {@link connect/4} that failed, Reason is `{connect, Posix}', and in place of a state there are the
%% Args for `init/2', which was not called. Nothing can be sent any more: the only result is `{ok, State}'.</li>
%% <li>`handle_writable(Socket, State)': the kernel takes output again. Called after {@link weir:notify_writable/1}, and
%% when a connection that was not read because of its send queue is read again: in that case some output still waits.</li>
%% <li>`handle_info(Message, State)': a message for this connection. See {@link send/2} and {@link weir_group:join/3}.</li>
%% <li>`handle_tick(Socket, State)': for every connection, once in `tick' milliseconds. Beside the results below it may return
%% `{sleep, Ticks, State}': it is not called again for this connection before so many ticks have passed, or {@link tick_soon/1}
%% was called. So thousands of idle connections cost nothing. A sleep ends after 63 ticks at the latest, and may end early.</li>
%% <li>`begin_tick(Args)': once for each tick, before it comes to connections. `due': it is for those that do not sleep. `all': it is
%% for all, and what they sleep is what they say then.</li>
%% <li>`terminate(Reason, State)': the reactor forgets the connection: the last call, exactly one for each `init/2' that
%% returned a state. Reason is the one of `handle_close/3'; `normal' after `{close, State}'; `{handoff, Pid}' or
%% `{relay, Socket}'; `{error, {Class, Reason, Stacktrace}}' after a callback that raised, returned what it may not, or named
%% a process or socket that the connection cannot go to; or why the reactor ends.</li>
%% </ul>
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Output, State}': sent with all others of this batch. A binary, or a list of binaries, goes to the kernel as
%% it is. Nothing waits: what the kernel does not take is queued, see below. In a list there may be parts of files, see
%% below.</li>
%% <li>`{close, State}' and `{close, Output, State}': what was sent goes out first. `handle_close/3' is not called.</li>
%% <li>`{relay, Socket2, State}': {@link weir:relay/3} joins the two connections, Data of this callback first;
%% `{relay, Socket2, Prefix, State}': Prefix in place of Data, as it is. Data of packets goes with its frame. Socket2 may be
%% a connection of this reactor, which forgets it too, or a socket of the reactor's process. If they cannot be joined both
%% are closed, but not a Socket2 of another process.</li>
%% <li>`{handoff, Pid, State}': the connection becomes an ordinary passive socket of that process, which gets
%% `{weir_reactor, handoff, Socket}'. Data of this callback, and bytes that were read after it, can still be received;
%% `{handoff, Pid, Unread, State}': Unread in place of Data. If the process is dead the connection is closed.</li>
%% </ul>
%% From `init/2', `handle_tick/2', `handle_info/2' and `handle_writable/2' there is no Data that would be unread. Packets of
%% HTTP are terms and no bytes, and cannot be put back: a connection leaves before it is framed so. A callback that raises,
%% or returns something else, closes its own connection, with a report in the log. The same holds if it sends a term that is
%% no output, more than its packets allow, or a file as a packet. Data that it had sent before goes out.
%%
%% <h2>Files</h2>
%% `{send, [Head, {sendfile, File, Offset, Length}, ...], State}' sends a part of a file in its turn, by sendfile(2): nothing is
%% copied, and nothing is read into memory for it. {@link weir_file} opens files. A part that the kernel does not have in
%% memory is read by a process meanwhile, and neither the reactor nor other connections wait for the disk. If a file has
%% become shorter than that part, the connection is closed with the reason `enodata', after what there was. Bytes of files count
%% as waiting for the peer (`high_watermark', `send_pend'), but not for `max_send_queue': they need no memory. A connection
%% cannot be made a relay while a file is in its queue (`ebusy').
%%
%% <h2>PROXY headers</h2>
%% With `proxy_protocol' a connection begins with such a header, of version 1 or 2. `init/2' is called when it has come, and
%% gets it from {@link weir:proxy_header/0}; what is behind it is framed by the options of the connection. One that does not
%% begin so, or not within `handshake_timeout', is closed, and no callback hears of it.
%%
%% <h2>Slow readers</h2>
%% While more than `high_watermark' bytes wait for a peer, its own requests are not read; down at `low_watermark' they are
%% again, and `handle_writable/2' is called. Further sends (ticks, broadcasts) fill the queue up to
%% `max_send_queue' bytes; then the connection is closed. So the memory of a connection is bounded. One send onto an empty
%% queue is taken whole, however large it is.
%%
%% <h2>Scheduler</h2>
%% A reactor starts on the scheduler in its options, or on one that is online if that is not. With `affinity' `soft' the VM may
%% move it when schedulers are unevenly loaded. `bound' keeps it there, and <em>its connections stand still</em> while that
%% scheduler is offline, also those in the backlog of its listening socket. A listener has other reactors listen on that socket
%% meanwhile. No connection moves to another reactor: its state may hold timers and monitors of
%% the process.
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
%% `module' is the callback module. `args' (`undefined') is for its `init/2'. `listen' (`none') is a listening socket of
%% Weir's, whose connections the reactor takes, with its options; it stays its owner's, and survives the reactor.
%% `scheduler' is where it begins, that of the caller unless told otherwise, `affinity' (`soft') how firmly. `tick'
%% (`infinity') and `long_callback_ms' (100) are milliseconds, `max_send_queue' (1 MiB) bytes. `proxy_protocol' (`false') has
%% accepted connections begin with a PROXY header, for which there are `handshake_timeout' (5000) milliseconds. `measure' (`false'): see {@link measure/2}. `name'
%% registers the process.

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
%% weir:pollset()}. Each is described in {@link weir_counters:table/0}.

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
%% A reactor, with the scheduler that it began on. `callbacks': the events of its sockets, the messages and the ticks that it had callbacks
%% for, since it began, and `callback_ns' the nanoseconds that these took. `measured' and `times': see {@link measure/2}.

%% How long info/1 waits for a reactor that is in a callback.
-define(INFO_MS, 5000).

-callback init(Socket :: weir_tcp:socket(), Args :: term()) -> result().
-callback handle_data(Socket :: weir_tcp:socket(), Data :: term(), State :: term()) -> result().
-callback handle_close(Socket :: weir_tcp:socket(), Reason :: term(), State :: term()) -> {ok, State :: term()}.
-callback handle_writable(Socket :: weir_tcp:socket(), State :: term()) -> result().
-callback handle_info(Message :: term(), State :: term()) -> result().
-callback handle_tick(Socket :: weir_tcp:socket(), State :: term()) -> result() | {sleep, Ticks :: pos_integer(), State :: term()}.
-callback begin_tick(Args :: term()) -> all | due.
-callback terminate(Reason :: term(), State :: term()) -> term().

-optional_callbacks([handle_writable/2, handle_info/2, handle_tick/2, begin_tick/1, terminate/2]).

%% @doc Starts a reactor. It ends with its parent, or by a `shutdown' of its supervisor: then `terminate/2' is called for
%% every connection, for three seconds at most, and all are closed. If it is killed its connections are closed too; the
%% listening socket and its backlog are not touched, and wait for the next reactor.
%%
%% Errors: `no_native_part' where there is no native part; `{bad_option, Option, Value, Allowed}', also for a `module' without
%% the callbacks that are needed; what is wrong with the listening socket; `emfile' if there are 1024 such processes already.
-spec start_link(options()) -> {ok, pid()} | {error, term()}.
start_link(Options) ->
    weir_reactor_start:start_link(Options, weir_handshake:new(undefined)).

%% @doc A reactor for a supervisor; in Elixir `{:weir_reactor, options}' in a list of children. The id is `{weir_reactor, Module}',
%% with the scheduler if the options name one: several reactors of one module fit into a supervisor if each has its own scheduler.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(#{module := Module} = Options) ->
    Id =
        case Options of
            #{scheduler := Scheduler} -> {?MODULE, Module, Scheduler};
            #{} -> {?MODULE, Module}
        end,
    #{id => Id, start => {?MODULE, start_link, [Options]}, shutdown => 5000}.

%% @doc Makes a reactor take the connections of another listening socket, as `listen' of {@link start_link/1}. If that socket
%% is closed by then, there is no message.
-spec listen(Reactor :: pid(), weir_tcp:socket()) -> ok.
listen(Reactor, ?SOCKET(Handle)) ->
    Reactor ! {'$weir_reactor', {listen, Handle}},
    ok.

%% @doc Opens a connection in a reactor, from any process or from a callback. Does not wait: `init/2' is called when the
%% connection is open, or `handle_close/3' with `{connect, Posix}' if it failed. The options are those of
%% `gen_tcp:connect/3' (`{ip, Address}' chooses where it comes from), and `{args, Args}' for `init/2', in place of the
%% reactor's own. `binary' is the default here.
%%
%% Errors are those that show at once: no descriptor (`emfile'), an address that cannot be bound (`eaddrnotavail',
%% `eaddrinuse'), no such reactor (`noproc'). Exits with `badarg' for wrong arguments, as gen_tcp does. A
%% host must be an address: resolve a name before, in a process that may wait.
-spec connect(Reactor :: pid() | atom(), inet:socket_address(), inet:port_number(), [option()]) ->
    {ok, weir_tcp:socket()} | {error, noproc | no_native_part | inet:posix()}.
connect(Reactor, Address, Port, Options) ->
    {Args, ConnectOptions} = take_args(Options),
    case weir_open:unconnected(Address, Port, [binary | ConnectOptions]) of
        {ok, Handle, Native} -> give(Reactor, Handle, {connect, Handle, Native, Args});
        {error, _} = Error -> Error
    end.

%% @doc Gives a connection of the caller's to a reactor, which calls `init/2' with Args. What was not received goes to
%% `handle_data/3'. Nobody may be receiving from it or waiting for its send queue: then, or if it is closed meanwhile, the
%% reactor closes it and nothing is called.
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
    %% From now on the connection ends with the reactor, and not with the caller.
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

%% @doc Sends a message to a connection: its reactor calls `handle_info(Message, State)'. Nothing says whether it was still
%% there to read it, as with `!'; the error is for a socket that is closed already or is no reactor's.
%%
%% A message of any other origin gets there too if its first element is `{weir_reactor, Socket}', whole: with
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

%% @doc Ends the sleep of a connection that `handle_tick/2' has begun: it is called for it with the next tick. Only in callbacks of the
%% reactor of that connection; elsewhere, and in a reactor without ticks, it does nothing.
-spec tick_soon(weir_tcp:socket()) -> ok.
tick_soon(?SOCKET(Handle)) -> weir_reactor_ticks:soon(Handle).

%% @doc Begins to measure how long `handle_data/3' takes, or ends it. Of one batch of events in sixteen each call is timed: the clock is read
%% twice for it. `times' of {@link weir:reactors/0} has how many took about so long, within 128 ns or 6 percent, since the reactor began. A
%% listener has its reactors do so with its own option `measure', which can change while it runs.
-spec measure(Reactor :: pid() | atom(), boolean()) -> ok.
measure(Reactor, Measured) when is_boolean(Measured) ->
    Reactor ! {'$weir_reactor', {measure, Measured}},
    ok.

%% @doc The state and the counters of a reactor. Waits until the callback that it is in has returned, 5 seconds at most: `timeout'.
%% `noproc' if it is not there.
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
        %% A name that nobody has.
        error:badarg ->
            _ = demonitor(Monitor, [flush]),
            {error, noproc}
    end.
