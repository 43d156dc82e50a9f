%% @private
%% @doc The native boundary: descriptors, buffers, queues and counters are on the other side.
%%
%% Internal to Weir: arguments are checked only as far as the VM's safety needs. Each call is bounded, well under a
%% millisecond; calls that may wait for a disk run on a dirty scheduler ({@link sendfile_from_disk/1}, `file_open' and
%% so on). A wrong argument is a `badarg'. A handle of a closed socket gives `{error, closed}' or, where gen_tcp does,
%% `einval'.
%%
%% An operation that has to wait returns `{wait, Operation}'. Its result comes as exactly one message `{'$weir',
%% Handle, Operation, Result}', unless {@link cancel/2} cancels it. The result `renew' makes the process wait on in
%% the current version of the code.
%%
%% A native library belongs to one module, so this one lists all its functions. It may be loaded again while sockets
%% are open: the same library keeps its state, and another library takes it over if its types are the same (see
%% `native/src/nif/library.rs'). Otherwise the load fails with the reason, and the module stays as it was.
-module(weir_nif).

-on_load(load/0).

-export([
    available/0,
    loaded/0,
    renew/1,
    make/1,
    set_online/1,
    pollers/0,
    claim/1,
    acquire/0,
    poll/2,
    sleep/3,
    counters/1,
    contention/0,
    panics/0
]).

%% Sockets.
-export([
    open/3,
    open_in/4,
    fdopen/4,
    bind/2,
    listen/2,
    refuse/1,
    has_backlog/1,
    duplicate/2,
    accept/3,
    connect/2,
    send/2,
    sendfile_begin/4,
    sendfile_continue/1,
    sendfile_from_disk/1,
    recv/3,
    unrecv/2,
    cancel/2,
    shutdown/2,
    close/2,
    activate_once/1,
    tell/3,
    setopts/2,
    getopts/2,
    getstat/1,
    sockname/1,
    peername/1,
    owner/1,
    set_owner/3,
    passivate/1,
    unsettled/1,
    all_unsettled/1,
    settled/3,
    monitor/2,
    demonitor/2,
    move/2,
    place/2,
    evacuate/1,
    info/1,
    sockets/1,
    traffic/1,
    send_now/2,
    notify_writable/1
]).

%% Listeners.
-export([
    listener_new/2,
    listener_add_socket/3,
    listener_own/1,
    listener_retry/1,
    listener_set_acceptor/3,
    listener_waiting/2,
    listener_accept/3,
    listener_accept_for/4,
    listener_discard/2,
    listener_clear/1,
    listener_set_version/2,
    listener_set_limits/2,
    listener_info/1,
    listener_latency/1,
    listener_exempt/1,
    listener_connections/2,
    listener_relays/2
]).

%% Reactors.
-export([
    reactor_begin/3, react/3, reactor_listen/2, reactor_resume/1, reactor_join/2, reactor_connect/3,
    reactor_write/2, reactor_leave/4, reactor_of/1, abandoned/0, reap/2, lingering/1, left_behind/1, give_up/1
]).

%% Files that reactors send.
-export([file_open/1, file_open_below/2, file_read/3, file_fetch/1, file_resume/1, file_waiting/1]).

%% Groups.
-export([
    group_count/0,
    group_new/1,
    group_delete/1,
    group_join/4,
    group_leave/2,
    group_withdraw/1,
    group_broadcast/5,
    group_size/1,
    group_info/1
]).

%% The tracer: see `erl_tracer'.
-export([schedules_begin/1, schedules_end/1, enabled/3, enabled_running_procs/3, trace/5]).

%% Relays.
-export([
    relay_count/0,
    relay_start/6,
    relay_connect/6,
    relay_stop/1,
    relay_info/1,
    relay_peers/1,
    relay_expire/1,
    relays_due/1,
    relays/1,
    latency_new/0,
    latency_seen/1
]).

-export_type([handle/0, pollset/0, operation/0, listener/0, relay/0, latency/0, group/0]).

-type handle() :: non_neg_integer().
%% A socket: its slot in the native table and the slot's generation.

-type pollset() :: pos_integer().
%% The number of a pollset: that of its scheduler, or from 1025 on that of a pollset which a process acquired.

-type operation() :: non_neg_integer().

-opaque listener() :: reference().
%% What the listening sockets of a listener share: limits, the count of connections, and an accept queue per
%% scheduler, numbered from 1. It lives as long as a term refers to it.

-type latency() :: reference().
%% Reply times. They live as long as a term refers to them or a relay adds to them.

-type group() :: non_neg_integer().
-type relay() :: non_neg_integer().
%% A slot and its generation, in a table of its own.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

%% A module can only load its own library.
load() -> weir_native:load(?MODULE, fun(File) -> erlang:load_nif(File, 0) end).

%% @doc Whether the native part is loaded.
-spec available() -> boolean().
available() ->
    try
        loaded()
    catch
        error:{not_loaded, ?MODULE} -> false
    end.
%% @doc `true' from the native part.
-spec loaded() -> true.
loaded() -> ?NOT_LOADED.
%% @doc Sends `renew' to all processes that wait at sockets in one piece of the table of {@link sockets/1}; they
%% continue in the current code.
-spec renew(non_neg_integer()) -> ok | done.
renew(_Piece) -> ?NOT_LOADED.

%%% Pollsets

%% @doc Creates the pollset of a scheduler, if it does not exist. Errors are those of epoll_create1(2).
-spec make(pollset()) -> ok | {error, inet:posix()}.
make(_Pollset) -> ?NOT_LOADED.
%% @doc Sets the number of schedulers online, which are the first ones. Sockets bound for the pollset of an offline
%% scheduler go to one of these pollsets instead. Sockets already there stay until {@link evacuate/1}.
-spec set_online(Schedulers :: pos_integer()) -> ok.
set_online(_Schedulers) -> ?NOT_LOADED.
%% @doc Returns the processes that poll: pollers and reactors.
-spec pollers() -> [pid()].
pollers() -> ?NOT_LOADED.
%% @doc Makes the caller the poller of a pollset, and creates the pollset if it does not exist. Polling needs the
%% token, which the next claim invalidates. Errors are those of epoll_create1(2).
-spec claim(pollset()) -> {ok, Token :: non_neg_integer()} | {error, inet:posix()}.
claim(_Pollset) -> ?NOT_LOADED.
%% @doc Makes the caller, until it dies, the poller of a pollset that belongs to no scheduler. `emfile' if all 1024
%% are taken.
-spec acquire() -> {ok, {pollset(), Token :: non_neg_integer()}} | {error, inet:posix()}.
acquire() -> ?NOT_LOADED.
%% @doc Reads, writes, accepts and delivers for all ready sockets, within the bound of a call. Returns the number of
%% these sockets, or `bulk' if all were bulk streams, or `relays' if all were bulk relays; and the nanoseconds since
%% the last poll. `stale' if another process is the poller now.
-spec poll(pollset(), Token :: non_neg_integer()) ->
    {Events :: non_neg_integer() | bulk | relays, RoundNs :: non_neg_integer()} | stale.
poll(_Pollset, _Token) -> ?NOT_LOADED.
%% @doc Prepares the caller to sleep: it gets `weir_wake', once, when there is work. With `Bulk' the pollset's thread
%% serves as long as only bulk streams are ready. `busy': there is work already.
-spec sleep(pollset(), Token :: non_neg_integer(), Bulk :: boolean()) -> asleep | busy | stale.
sleep(_Pollset, _Token, _Bulk) -> ?NOT_LOADED.
%% @doc Returns the counters of a pollset; see {@link weir:pollsets/0}.
-spec counters(pollset()) -> #{atom() => non_neg_integer() | [non_neg_integer()]}.
counters(_Pollset) -> ?NOT_LOADED.
%% @doc Returns the lock waits of each table. Those of pollsets are in {@link counters/1}.
-spec contention() -> #{sockets | relays | groups => non_neg_integer()}.
contention() -> ?NOT_LOADED.
%% @doc Returns the number of panics in the native part and the message of the last one. Each is a bug of Weir.
-spec panics() -> {non_neg_integer(), binary()}.
panics() -> ?NOT_LOADED.

%%% Sockets

%% @doc Opens a stream socket of the caller, neither bound nor connected. `Module' is the one in its term and its
%% messages.
-spec open(module(), weir_address:family(), pollset()) -> {ok, handle()} | {error, inet:posix()}.
open(_Module, _Family, _Pollset) -> ?NOT_LOADED.
%% @doc The same in the network namespace at a path. It waits for the file system, on a dirty scheduler.
-spec open_in(module(), weir_address:family(), pollset(), Path :: binary()) -> {ok, handle()} | {error, inet:posix()}.
open_in(_Module, _Family, _Pollset, _Path) -> ?NOT_LOADED.
%% @doc The same for an existing descriptor, which close leaves open. `einval' if it is not a stream of this family.
-spec fdopen(module(), weir_address:family(), pollset(), non_neg_integer()) -> {ok, handle()} | {error, inet:posix()}.
fdopen(_Module, _Family, _Pollset, _Fd) -> ?NOT_LOADED.
%% @doc bind(2). `einval' if a local path is too long.
-spec bind(handle(), weir_address:native()) -> ok | {error, closed | inet:posix()}.
bind(_Handle, _Address) -> ?NOT_LOADED.
%% @doc listen(2).
-spec listen(handle(), Backlog :: integer()) -> ok | {error, closed | inet:posix()}.
listen(_Handle, _Backlog) -> ?NOT_LOADED.
%% @doc Makes the kernel refuse new connections. Those whose handshake has begun can still be accepted. Cannot be
%% undone.
-spec refuse(handle()) -> ok | {error, closed | inet:posix()}.
refuse(_Handle) -> ?NOT_LOADED.
%% @doc Whether the backlog holds connections; `true' if the kernel cannot tell.
-spec has_backlog(handle()) -> boolean() | {error, closed}.
has_backlog(_Handle) -> ?NOT_LOADED.
%% @doc Duplicates the descriptor of a listening socket into another socket of the caller, on a pollset. Both share
%% one backlog.
-spec duplicate(handle(), pollset()) -> {ok, handle()} | {error, closed | inet:posix()}.
duplicate(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc Accepts a connection with the options of the listening socket; the caller owns it. With `Now' the kernel is
%% asked even if the pollset has no event. A wait ends with `{ok, Handle}' or `{error, Reason}'.
-spec accept(handle(), pollset(), Now :: boolean()) ->
    {ok, handle()} | {wait, operation()} | {error, closed | inet:posix()}.
accept(_Handle, _Pollset, _Now) -> ?NOT_LOADED.
%% @doc connect(2). A wait ends with `ok' or `{error, Reason}'.
-spec connect(handle(), weir_address:native()) -> ok | {wait, operation()} | {error, closed | inet:posix()}.
connect(_Handle, _Address) -> ?NOT_LOADED.
%% @doc Writes what the kernel takes and queues the rest; 64 binaries at most. `wait': the queue is over its high
%% watermark; the wait ends with `ok' or `{error, Reason}'. `full': the queue has taken nothing; the wait ends with
%% `retry' when it has room, or `{error, Reason}'. `Timeout' is the socket's `send_timeout'.
-spec send(handle(), binary() | [binary()]) ->
    ok | {wait | full, operation(), timeout()} | {error, closed | econnreset | inet:posix()}.
send(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Queues a part of a file, given by {@link prim_file:get_handle/1}, after what is queued and before later sends.
%% The file may then be closed. The owner of the socket drives the transfer by {@link sendfile_continue/1}.
-spec sendfile_begin(handle(), File :: binary(), Offset :: non_neg_integer(), Length :: non_neg_integer()) ->
    ok | {error, not_owner | closed | inet:posix()}.
sendfile_begin(_Handle, _File, _Offset, _Length) -> ?NOT_LOADED.
%% @doc Sends the next part of the file, if it is in the page cache. Call it again after `more', and after a wait that
%% ends with `retry'. `{ok, Sent}' and `{error, Reason}' end the transfer. `disk': call {@link sendfile_from_disk/1}
%% first.
-spec sendfile_continue(handle()) ->
    {ok, Sent :: non_neg_integer()} | more | disk | {wait, operation()} | {error, closed | inet:posix()}.
sendfile_continue(_Handle) -> ?NOT_LOADED.
%% @doc Sends a part for which {@link sendfile_continue/1} has returned `disk', on a dirty scheduler.
-spec sendfile_from_disk(handle()) -> more | {error, closed}.
sendfile_from_disk(_Handle) -> ?NOT_LOADED.
%% @doc Reads `Length' bytes, or all available bytes if it is 0. `Now' as for {@link accept/3}. A wait may also end
%% with `{ok, Data}'.
-spec recv(handle(), Length :: non_neg_integer(), Now :: boolean()) ->
    {ok, binary() | string()} | {wait, operation()} | {error, closed | inet:posix()}.
recv(_Handle, _Length, _Now) -> ?NOT_LOADED.
%% @doc Puts bytes back in front of the input.
-spec unrecv(handle(), binary()) -> ok | {settle, Told :: non_neg_integer()} | {error, closed | inet:posix()}.
unrecv(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Cancels a waiting operation. `replied': its result is in the mailbox of the waiting process already.
-spec cancel(handle(), operation()) -> ok | {error, replied}.
cancel(_Handle, _Operation) -> ?NOT_LOADED.
%% @doc shutdown(2), after the last queued byte.
-spec shutdown(handle(), read | write | read_write) -> ok | {error, closed | inet:posix()}.
shutdown(_Handle, _How) -> ?NOT_LOADED.
%% @doc Closes. `flush': after the send queue is empty; a wait ends with `ok' or `{error, Reason}', and then the
%% socket still has to be closed. `background': the queue is sent without a waiting process. `now': the queue is
%% discarded. `descriptor': closes only the descriptor and leaves a socket without one.
-spec close(handle(), flush | background | now | descriptor) -> ok | {wait, operation()}.
close(_Handle, _When) -> ?NOT_LOADED.
%% @doc `setopts(Handle, [{active, once}])', the option that is set for each message. After `{settle, Told}' the
%% caller, who is the owner, calls {@link weir_succession:finish/2}.
-spec activate_once(handle()) -> ok | {settle, Told :: non_neg_integer()} | {error, einval}.
activate_once(_Handle) -> ?NOT_LOADED.
%% @doc Sends pending messages to the owner, who is the caller and says how its message queue is kept. An `off_heap'
%% owner has fetched all messages up to number `Told' into its queue.
-spec tell(handle(), Told :: non_neg_integer(), on_heap | off_heap) -> ok.
tell(_Handle, _Told, _Queue) -> ?NOT_LOADED.
%% @doc Returns the owner of a socket whose poller waits until the owner has fetched all messages up to number `Told'
%% into its queue; `done' if no poller waits.
-spec unsettled(handle()) -> {Owner :: pid(), Told :: non_neg_integer()} | done.
unsettled(_Handle) -> ?NOT_LOADED.
%% @doc Returns such sockets in one piece of the table; `done' after the last piece.
-spec all_unsettled(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
all_unsettled(_Piece) -> ?NOT_LOADED.
%% @doc The owner has fetched these messages, and keeps its queue in this way.
-spec settled(handle(), Told :: non_neg_integer(), on_heap | off_heap) -> ok.
settled(_Handle, _Told, _Queue) -> ?NOT_LOADED.
%% @doc Applies options in order, up to the first that fails. {@link weir_options} has checked them. `{settle, Told}'
%% as {@link activate_once/1}.
-spec setopts(handle(), [weir_options:setting()]) -> ok | {settle, Told :: non_neg_integer()} | {error, inet:posix()}.
setopts(_Handle, _Settings) -> ?NOT_LOADED.
%% @doc Returns the values of options, except those that the kernel does not provide. Unknown names are a `badarg'.
-spec getopts(handle(), [atom() | tuple()]) -> {ok, [tuple()]} | {error, einval}.
getopts(_Handle, _Names) -> ?NOT_LOADED.
%% @doc Returns all statistics of `inet:getstat/1', in its order.
-spec getstat(handle()) -> {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, einval}.
getstat(_Handle) -> ?NOT_LOADED.
%% @doc getsockname(2).
-spec sockname(handle()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
sockname(_Handle) -> ?NOT_LOADED.
%% @doc getpeername(2).
-spec peername(handle()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
peername(_Handle) -> ?NOT_LOADED.
%% @doc Returns the process that gets the messages; `undefined' if it is dead and the send queue is still being sent.
-spec owner(handle()) -> {ok, pid() | undefined} | {error, closed}.
owner(_Handle) -> ?NOT_LOADED.
%% @doc Gives the socket to another process; only its owner can. `Forwarded': the caller has forwarded messages to
%% that process. A dead process is a `badarg'.
-spec set_owner(handle(), pid(), Forwarded :: boolean()) -> ok | {error, closed | not_owner}.
set_owner(_Handle, _Pid, _Forwarded) -> ?NOT_LOADED.
%% @doc Sets `{active, false}' and returns the previous value.
-spec passivate(handle()) -> {ok, {active, boolean() | once | -32768..32767}} | {error, einval}.
passivate(_Handle) -> ?NOT_LOADED.
%% @doc Makes the socket send `{'DOWN', Reference, socket, Socket, normal}' to the caller when it closes.
-spec monitor(handle(), reference()) -> ok | {error, closed}.
monitor(_Handle, _Reference) -> ?NOT_LOADED.
%% @doc Cancels a {@link monitor/2}. `false' if there was none.
-spec demonitor(handle(), reference()) -> boolean().
demonitor(_Handle, _Reference) -> ?NOT_LOADED.
%% @doc Moves the socket to another pollset; not a connection of a `reactor'.
-spec move(handle(), pollset()) -> ok | {error, closed | reactor | inet:posix()}.
move(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc The same for a place that a user has chosen: {@link evacuate/1} does not move the socket.
-spec place(handle(), pollset()) -> ok | {error, closed | reactor | inet:posix()}.
place(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc Moves some dozens of sockets in one piece of the table of {@link sockets/1} from pollsets of offline
%% schedulers to those of others. `more': the piece has others; `done' after the last piece. Sockets stay if they were
%% placed, if their process is bound, or if they are listening sockets of listeners.
-spec evacuate(Piece :: non_neg_integer()) -> ok | more | done.
evacuate(_Piece) -> ?NOT_LOADED.
%% @doc Returns information about a socket.
-spec info(handle()) -> {ok, #{atom() => term()}} | {error, closed}.
info(_Handle) -> ?NOT_LOADED.
%% @doc Returns the open sockets in one piece of the table; pieces are numbered from 0. `done' after the last.
-spec sockets(non_neg_integer()) -> {ok, [handle()]} | done.
sockets(_Piece) -> ?NOT_LOADED.
%% @doc The same sockets with their bytes received, sent and waiting to be sent.
-spec traffic(non_neg_integer()) ->
    {ok, [{handle(), Received :: non_neg_integer(), Sent :: non_neg_integer(), Waiting :: non_neg_integer()}]} | done.
traffic(_Piece) -> ?NOT_LOADED.
%% @doc Writes what the kernel takes now; nothing while the send queue is not empty. `einval' for a socket with
%% packets.
-spec send_now(handle(), iodata()) -> {ok, Taken :: non_neg_integer()} | {error, closed | inet:posix()}.
send_now(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Makes the socket send `{weir_writable, Socket}' to the caller, or add `{writable, Handle}' to its batch if the
%% caller is the socket's reactor, once the kernel takes output and the send queue is empty, or the connection has
%% ended.
-spec notify_writable(handle()) -> ok | {error, closed | inet:posix()}.
notify_writable(_Handle) -> ?NOT_LOADED.

%%% Listeners

%% @doc Creates a listener with this many queues, for the first pollsets.
-spec listener_new(Queues :: pos_integer(), weir_listener_options:limits()) -> listener().
listener_new(_Queues, _Limits) -> ?NOT_LOADED.
%% @doc Makes a listening socket, with its current options, accept into a queue or for its reactor.
-spec listener_add_socket(listener(), Queue :: pos_integer() | reactor, handle()) ->
    ok | {error, closed | inet:posix()}.
listener_add_socket(_Listener, _Queue, _Handle) -> ?NOT_LOADED.
%% @doc Makes the caller the process that is notified of pauses which only time ends, and ends current pauses.
%% `{weir_listener, throttled, Milliseconds}': the rate limit; `{weir_listener, exhausted, Reason}': accept(2) failed.
%% Each is sent once until the next {@link listener_retry/1}. `{weir_listener, recovered}' comes with the first
%% connection after that.
-spec listener_own(listener()) -> ok.
listener_own(_Listener) -> ?NOT_LOADED.
%% @doc Tries to accept again.
-spec listener_retry(listener()) -> ok.
listener_retry(_Listener) -> ?NOT_LOADED.
%% @doc Makes a process the acceptor of a queue: it gets `{weir_accept, Count}' for each batch. Returns the number of
%% waiting connections, of which it is not notified.
-spec listener_set_acceptor(listener(), Queue :: pos_integer(), pid()) -> non_neg_integer().
listener_set_acceptor(_Listener, _Queue, _Acceptor) -> ?NOT_LOADED.
%% @doc Returns the number of waiting connections in a queue.
-spec listener_waiting(listener(), Queue :: pos_integer()) -> non_neg_integer().
listener_waiting(_Listener, _Queue) -> ?NOT_LOADED.
%% @doc From now on connections begin only with this version of the options.
-spec listener_set_version(listener(), Version :: non_neg_integer()) -> ok.
listener_set_version(_Listener, _Version) -> ?NOT_LOADED.
%% @doc Makes the connection that has waited longest a socket of the caller. `outdated': the listener's options have
%% another version, and the acceptor is notified of the connection again.
-spec listener_accept(listener(), Queue :: pos_integer(), Version :: non_neg_integer()) ->
    {ok, handle()} | empty | outdated | {error, inet:posix()}.
listener_accept(_Listener, _Queue, _Version) -> ?NOT_LOADED.
%% @doc The same for another process. If that is dead the connection waits on. Also `empty' if the caller is not the
%% acceptor of the queue.
-spec listener_accept_for(listener(), Queue :: pos_integer(), pid(), Version :: non_neg_integer()) ->
    {ok, handle()} | empty | outdated | {error, noproc | inet:posix()}.
listener_accept_for(_Listener, _Queue, _Pid, _Version) -> ?NOT_LOADED.
%% @doc Closes the connection that has waited longest.
-spec listener_discard(listener(), Queue :: pos_integer()) -> ok.
listener_discard(_Listener, _Queue) -> ?NOT_LOADED.
%% @doc Ends a listener: closes all waiting connections, also later ones.
-spec listener_clear(listener()) -> ok.
listener_clear(_Listener) -> ?NOT_LOADED.
%% @doc Sets other limits. Existing connections stay.
-spec listener_set_limits(listener(), weir_listener_options:limits()) -> ok.
listener_set_limits(_Listener, _Limits) -> ?NOT_LOADED.
%% @doc Returns the counters of a listener.
-spec listener_info(listener()) -> #{atom() => non_neg_integer() | infinity | boolean()}.
listener_info(_Listener) -> ?NOT_LOADED.
%% @doc Returns the sum of its reply times in nanoseconds, and their histogram; see {@link weir_listener:latency()}.
-spec listener_latency(listener()) -> {non_neg_integer(), [{non_neg_integer(), pos_integer()}]}.
listener_latency(_Listener) -> ?NOT_LOADED.
%% @doc Exempts a connection from the limit of connections.
-spec listener_exempt(handle()) -> ok | {error, closed}.
listener_exempt(_Handle) -> ?NOT_LOADED.
%% @doc Returns its connections in one piece of the table of {@link sockets/1}, each with the process that it was
%% accepted for.
-spec listener_connections(listener(), non_neg_integer()) -> {ok, [{handle(), pid(), pollset()}]} | done.
listener_connections(_Listener, _Piece) -> ?NOT_LOADED.
%% @doc Returns its relayed connections in one piece of the table of {@link relays/1}, each with the process that it
%% was accepted for.
-spec listener_relays(listener(), non_neg_integer()) -> {ok, [{relay(), pid()}]} | done.
listener_relays(_Listener, _Piece) -> ?NOT_LOADED.

%%% Reactors

%% @doc Makes the caller's own pollset that of a reactor. When the caller dies all its connections are closed, and
%% sockets that have to stay go to the pollset `Home'. A connection whose send queue exceeds `MaxSendQueue' bytes is
%% closed. This and the functions that take a socket raise `badarg' for a pollset that another process polls.
-spec reactor_begin(pollset(), Home :: pollset(), MaxSendQueue :: non_neg_integer()) -> ok.
reactor_begin(_Pollset, _Home, _MaxSendQueue) -> ?NOT_LOADED.
%% @doc Performs the writes, given last one first. Then returns the events of the ready sockets, in order, the number
%% of these sockets, and the nanoseconds since the last call, for {@link weir_wait_strategy}.
-spec react(pollset(), Token :: non_neg_integer(), [weir_reactor_process:write()]) ->
    {[weir_reactor_process:event()], Sockets :: non_neg_integer(), RoundNs :: non_neg_integer()} | stale.
react(_Pollset, _Token, _Writes) -> ?NOT_LOADED.
%% @doc Moves a listening socket, of any owner, to the caller's pollset. The caller gets its connections as events.
-spec reactor_listen(pollset(), handle()) -> ok | {error, closed | inet:posix()}.
reactor_listen(_Pollset, _Handle) -> ?NOT_LOADED.
%% @doc Makes a listening socket accept again.
-spec reactor_resume(handle()) -> ok.
reactor_resume(_Handle) -> ?NOT_LOADED.
%% @doc Moves a connected socket of the caller into its reactor.
-spec reactor_join(pollset(), handle()) -> ok | {error, closed | not_owner | inet:posix()}.
reactor_join(_Pollset, _Handle) -> ?NOT_LOADED.
%% @doc The same, and begins to connect; the event `connected' or `refused' follows. An error closes the socket.
-spec reactor_connect(pollset(), handle(), weir_address:native()) -> ok | {error, closed | not_owner | inet:posix()}.
reactor_connect(_Pollset, _Handle, _Address) -> ?NOT_LOADED.
%% @doc Makes a socket of the calling reactor a passive socket of another process. `Unread' is put in front of its
%% input.
-spec reactor_leave(handle(), pid(), pollset(), Unread :: [binary()]) ->
    ok | {error, closed | not_reactor | inet:posix()}.
reactor_leave(_Handle, _Pid, _Pollset, _Unread) -> ?NOT_LOADED.
%% @doc Sends output of a reactor's socket in a call of its own, outside a batch.
-spec reactor_write(handle(), weir_reactor:output()) -> ok | {error, closed | not_reactor | badarg | einval | emsgsize}.
reactor_write(_Handle, _Output) -> ?NOT_LOADED.
%% @doc Opens a file, or a file below a directory, on a dirty scheduler; see {@link weir_file}.
-spec file_open(binary()) ->
    {ok, weir_file:file(), Size :: non_neg_integer(), ModifiedNs :: integer()} | {error, weir_file:reason()}.
file_open(_Path) -> ?NOT_LOADED.
-spec file_open_below(binary(), [binary()]) ->
    {ok, weir_file:file(), Size :: non_neg_integer(), ModifiedNs :: integer()} | {error, weir_file:reason()}.
file_open_below(_Directory, _Names) -> ?NOT_LOADED.
%% @doc Reads a part of a file, 16 MiB at most, on a dirty scheduler.
-spec file_read(weir_file:file(), Offset :: non_neg_integer(), Length :: non_neg_integer()) ->
    {ok, binary()} | {error, file:posix()}.
file_read(_File, _Offset, _Length) -> ?NOT_LOADED.
%% @doc Reads the part of a file that a socket's queue waits for, on a dirty scheduler. Does nothing if it waits for
%% none.
-spec file_fetch(handle()) -> ok.
file_fetch(_Handle) -> ?NOT_LOADED.
%% @doc Continues a socket after {@link file_fetch/1}.
-spec file_resume(handle()) -> ok.
file_resume(_Handle) -> ?NOT_LOADED.
%% @doc Returns the sockets in one piece of the table that wait for {@link file_fetch/1}; `done' after the last piece.
-spec file_waiting(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
file_waiting(_Piece) -> ?NOT_LOADED.
%% @doc Returns the reactor of a socket.
-spec reactor_of(handle()) -> {ok, pid()} | {error, closed | not_reactor}.
reactor_of(_Handle) -> ?NOT_LOADED.
%% @doc Returns the pollsets of dead reactors, which {@link reap/2} has to clear.
-spec abandoned() -> [pollset()].
abandoned() -> ?NOT_LOADED.
%% @doc Closes some dozens of the sockets that a dead reactor has left in one piece of the table of {@link sockets/1}.
%% `more': the piece has others. `done' after the last piece: the pollset is free. `badarg' if the pollset is not
%% {@link abandoned/0}.
-spec reap(pollset(), Piece :: non_neg_integer()) -> ok | more | done.
reap(_Pollset, _Piece) -> ?NOT_LOADED.
%% @doc Returns the sockets in one piece of the table of {@link sockets/1} that linger: their owner is dead, and their
%% queue is still being sent.
-spec lingering(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
lingering(_Piece) -> ?NOT_LOADED.
%% @doc Returns the bytes of a lingering socket that its peer has not taken; `done' if the socket is closed.
-spec left_behind(handle()) -> non_neg_integer() | done.
left_behind(_Handle) -> ?NOT_LOADED.
%% @doc Closes a lingering socket and discards its queue.
-spec give_up(handle()) -> ok.
give_up(_Handle) -> ?NOT_LOADED.

%%% Relays

%% @doc Creates reply times, to which any number of relays add.
-spec latency_new() -> latency().
latency_new() -> ?NOT_LOADED.
%% @doc Returns their sum in nanoseconds, and their histogram; see {@link weir_listener:latency()}.
-spec latency_seen(latency()) -> {non_neg_integer(), [{non_neg_integer(), pos_integer()}]}.
latency_seen(_Latency) -> ?NOT_LOADED.
%% @doc Joins two connected sockets of the caller on a pollset, for an owner. Both sockets are closed for all
%% processes. `Prefix' goes to the second one first. An error names the unsuitable socket, and leaves both as they
%% were. If a timeout may pass in the next 10 seconds, {@link weir_relay_timer} gets `{weir_relay, Relay,
%% Milliseconds}': when to call {@link relay_expire/1}.
-spec relay_start(handle(), handle(), pollset(), Owner :: pid(), Prefix :: binary(), weir_relay:native()) ->
    {ok, relay()} | {error, {handle(), closed | not_owner | reactor | enotconn | ebusy | epipe} | inet:posix()}.
relay_start(_A, _B, _Pollset, _Owner, _Prefix, _Options) -> ?NOT_LOADED.
%% @doc Connects to a server and joins a socket of the caller with that connection, if it is established at once.
%% Otherwise the caller waits for the operation of a new socket, as after {@link connect/2}, and then joins them.
-spec relay_connect(
    handle(), weir_address:native(), pollset(), Owner :: pid(), Prefix :: binary(), weir_relay:native()
) ->
    {ok, relay()}
    | {wait, handle(), operation()}
    | {error,
        {connect, inet:posix()} | {handle(), closed | not_owner | reactor | enotconn | ebusy | epipe} | inet:posix()}.
relay_connect(_A, _Server, _Pollset, _Owner, _Prefix, _Options) -> ?NOT_LOADED.
%% @doc Returns the number of relays.
-spec relay_count() -> non_neg_integer().
relay_count() -> ?NOT_LOADED.
%% @doc Ends a relay, if it has not ended, and notifies its owner.
-spec relay_stop(relay()) -> ok.
relay_stop(_Relay) -> ?NOT_LOADED.
%% @doc Returns the owner, the pollset and the statistics of a relay.
-spec relay_info(relay()) -> {ok, {pid(), pollset(), weir_relay:statistics()}} | {error, closed}.
relay_info(_Relay) -> ?NOT_LOADED.
%% @doc Returns the addresses of both peers; `undefined' for one that is gone.
-spec relay_peers(relay()) -> {ok, {weir_tcp:name() | undefined, weir_tcp:name() | undefined}} | {error, closed}.
relay_peers(_Relay) -> ?NOT_LOADED.
%% @doc Ends a relay whose timeout has passed; otherwise returns the milliseconds after which to call again. `done':
%% it has no timeout, has ended, or {@link relays_due/1} will return it.
-spec relay_expire(relay()) -> pos_integer() | done.
relay_expire(_Relay) -> ?NOT_LOADED.
%% @doc Returns the relays in one piece of their table whose timeouts may pass in the next 10 seconds and that were
%% not returned before, each with the milliseconds after which to call {@link relay_expire/1}; `done' after the last
%% piece.
-spec relays_due(non_neg_integer()) -> {ok, [{relay(), non_neg_integer()}]} | done.
relays_due(_Piece) -> ?NOT_LOADED.
%% @doc Returns the relays in one piece of their table; pieces are numbered from 0. `done' after the last.
-spec relays(non_neg_integer()) -> {ok, [relay()]} | done.
relays(_Piece) -> ?NOT_LOADED.

%%% Tracer

%% @doc Begins to measure the turns of processes that are traced by `{weir_nif, Session}' with the flag
%% `running_procs'. Ends after this time, 120,000 ms at most; the tracer then leaves each process at its next event.
%% `busy': another session is running.
-spec schedules_begin(Milliseconds :: non_neg_integer()) -> {ok, Session :: non_neg_integer()} | {error, busy}.
schedules_begin(_Milliseconds) -> ?NOT_LOADED.
%% @doc Ends the session. Returns for each scheduler: a histogram of the times between the end of a turn and the next
%% turn, a histogram of turns, and the number of turns whose process ran on another scheduler before. Element i, from
%% 0, counts 2^i to 2^(i+1)-1 nanoseconds. The first histogram omits times in which the scheduler slept for 10 ms.
-spec schedules_end(Session :: non_neg_integer()) ->
    {ok, [{Scheduler :: pos_integer(), [non_neg_integer()], [non_neg_integer()], Migrations :: non_neg_integer()}]}
    | {error, closed}.
schedules_end(_Session) -> ?NOT_LOADED.
%% @doc Called by the VM to ask whether the tracer is in use.
-spec enabled(atom(), non_neg_integer(), term()) -> discard | remove.
enabled(_Tag, _Session, _Tracee) -> ?NOT_LOADED.
%% @doc Called by the VM when a process begins or ends a turn. Emits no trace message.
-spec enabled_running_procs(atom(), non_neg_integer(), term()) -> discard | remove.
enabled_running_procs(_Tag, _Session, _Tracee) -> ?NOT_LOADED.
%% @doc Never called, because no trace message is emitted. The VM requires it.
-spec trace(atom(), term(), term(), term(), term()) -> ok.
trace(_Tag, _Session, _Tracee, _Term, _Options) -> ?NOT_LOADED.

%%% Groups

%% @doc Creates a group of the caller, which is deleted when the caller dies. `emfile' if there are 65536 groups.
-spec group_new(weir_group:settings()) -> {ok, group()} | {error, emfile}.
group_new(_Settings) -> ?NOT_LOADED.
%% @doc Returns the number of groups.
-spec group_count() -> non_neg_integer().
group_count() -> ?NOT_LOADED.
%% @doc Deletes a group. Does nothing if it is gone.
-spec group_delete(group()) -> ok.
group_delete(_Group) -> ?NOT_LOADED.
%% @doc Makes a connected socket a member, for one message or for all. It gets `First' before them; if it cannot, it
%% does not become a member. `closed' is the socket or the group.
-spec group_join(group(), handle(), Once :: boolean(), First :: binary()) ->
    ok | {error, closed | enotconn | emsgsize | full}.
group_join(_Group, _Handle, _Once, _First) -> ?NOT_LOADED.
%% @doc Ends a membership.
-spec group_leave(group(), handle()) -> ok | {error, not_member}.
group_leave(_Group, _Handle) -> ?NOT_LOADED.
%% @doc Ends the one-message memberships of a socket. `served': it has got its message, and its reactor will be
%% notified.
-spec group_withdraw(handle()) -> ok | {error, served | closed}.
group_withdraw(_Handle) -> ?NOT_LOADED.
%% @doc Sends a message to all members except `Except', through their pollsets, and returns the number of members.
%% With a reference, `{weir_group, {weir_group, Group}, Reference, Outcomes}' follows when all have been served. The
%% owner of a member that leaves because of this message gets the mark.
-spec group_broadcast(
    group(), binary(), Except :: handle() | undefined, reference() | undefined, Mark :: non_neg_integer()
) ->
    {ok, non_neg_integer()} | {error, busy | closed | emsgsize}.
group_broadcast(_Group, _Message, _Except, _Reference, _Mark) -> ?NOT_LOADED.
%% @doc Returns the number of members; 0 if the group is deleted.
-spec group_size(group()) -> non_neg_integer().
group_size(_Group) -> ?NOT_LOADED.
%% @doc See {@link weir_group:info/1}.
-spec group_info(group()) -> {ok, weir_group:info()} | {error, closed}.
group_info(_Group) -> ?NOT_LOADED.
