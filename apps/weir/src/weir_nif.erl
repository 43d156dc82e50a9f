%% @private
%% @doc The native boundary: descriptors, buffers, queues and counters are on the other side.
%%
%% Internal to Weir; nothing here is checked beyond what keeps the VM safe. Each call is bounded, well under a
%% millisecond, but for those that may wait for a disk on a dirty scheduler ({@link sendfile_from_disk/1}, `file_open' and so on).
%% A wrong argument is a `badarg'. A handle whose socket is closed gives `{error, closed}' or, where gen_tcp says so, `einval'.
%% An operation that has to wait returns `{wait, Operation}'. Its result comes as a message `{'$weir', Handle,
%% Operation, Result}', exactly one, unless {@link cancel/2} takes the operation back. `renew' in place of a result has the
%% process wait on with the code that is current.
%% A library has one module, so this one is a list of all its functions. It may be loaded again while there are sockets:
%% the same library goes on with what it has, and another one takes it over, if its types are the same (see
%% `native/src/nif/library.rs'). Otherwise the load fails, with the reason, and the module stays as it was.
-module(weir_nif).

-on_load(load/0).

-export([available/0, loaded/0, renew/1, make/1, set_online/1, pollers/0, claim/1, acquire/0, poll/2, sleep/3, counters/1, contention/0, panics/0]).

%% Sockets.
-export([
    open/3, open_in/4, fdopen/4, bind/2, listen/2, refuse/1, has_backlog/1, duplicate/2, accept/3, connect/2, send/2,
    sendfile_begin/4, sendfile_continue/1, sendfile_from_disk/1, recv/3, unrecv/2, cancel/2, shutdown/2, close/2, activate_once/1, tell/3,
    setopts/2, getopts/2, getstat/1, sockname/1, peername/1, owner/1, set_owner/3, passivate/1, unsettled/1, all_unsettled/1, settled/3, monitor/2, demonitor/2, move/2, place/2, evacuate/1,
    info/1, sockets/1, traffic/1, send_now/2, notify_writable/1
]).

%% Listeners.
-export([
    listener_new/2, listener_add_socket/3, listener_own/1, listener_retry/1, listener_set_acceptor/2,
    listener_waiting/2, listener_accept/3, listener_accept_for/4, listener_discard/2, listener_clear/1, listener_set_version/2,
    listener_set_limits/2, listener_info/1, listener_latency/1, listener_exempt/1, listener_connections/2, listener_relays/2
]).

%% Reactors.
-export([
    reactor_begin/3, react/3, reactor_listen/2, reactor_resume/1, reactor_join/2, reactor_connect/3,
    reactor_write/2, reactor_leave/4, reactor_of/1, abandoned/0, reap/2, lingering/1, left_behind/1, give_up/1
]).

%% Files that they send.
-export([file_open/1, file_open_below/2, file_read/3, file_fetch/1, file_resume/1, file_waiting/1]).

%% Groups.
-export([group_count/0, group_new/1, group_delete/1, group_join/4, group_leave/2, group_withdraw/1, group_broadcast/5, group_size/1, group_info/1]).

%% A tracer: see `erl_tracer'.
-export([schedules_begin/1, schedules_end/1, enabled/3, enabled_running_procs/3, trace/5]).

%% Relays.
-export([
    relay_count/0, relay_start/6, relay_connect/6, relay_stop/1, relay_info/1, relay_peers/1, relay_expire/1, relays_due/1, relays/1, latency_new/0, latency_seen/1
]).

-export_type([handle/0, pollset/0, operation/0, listener/0, relay/0, latency/0, group/0]).

-type handle() :: non_neg_integer().
%% A socket: a slot of the native table and the generation of the socket that lives there.

-type pollset() :: pos_integer().
%% The number of a pollset, which is the number of its scheduler; from 1025 on, of a process with a pollset of its own.

-type operation() :: non_neg_integer().

-opaque listener() :: reference().
%% What the listening sockets of a listener have in common: limits, the count of connections, and an accept queue for each
%% scheduler, numbered from 1, where connections wait for a process. It lives as long as anybody holds it.

-type latency() :: reference().
%% Times of replies. They live as long as anybody holds them, or a relay adds to them.

-type group() :: non_neg_integer().
-type relay() :: non_neg_integer().
%% Slots and generations in tables of their own.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

%% Only the module itself can load its library.
load() -> weir_native:load(?MODULE, fun(File) -> erlang:load_nif(File, 0) end).

%% @doc Whether the native part is there.
-spec available() -> boolean().
available() ->
    try
        loaded()
    catch
        error:{not_loaded, ?MODULE} -> false
    end.
%% @doc True from the native part.
-spec loaded() -> true.
loaded() -> ?NOT_LOADED.
%% @doc Sends `renew' to all that wait at sockets of one piece of the table of {@link sockets/1}: they renew their code.
-spec renew(non_neg_integer()) -> ok | done.
renew(_Piece) -> ?NOT_LOADED.

%%% Pollsets

%% @doc Makes the pollset of a scheduler, if there is none. Errors are those of epoll_create1(2).
-spec make(pollset()) -> ok | {error, inet:posix()}.
make(_Pollset) -> ?NOT_LOADED.
%% @doc Says how many schedulers are online, the first ones. What comes for the pollset of another one goes to the pollset of one of
%% these; what is there stays until {@link evacuate/1}.
-spec set_online(Schedulers :: pos_integer()) -> ok.
set_online(_Schedulers) -> ?NOT_LOADED.
%% @doc The processes that poll, pollers and reactors.
-spec pollers() -> [pid()].
pollers() -> ?NOT_LOADED.
%% @doc Makes the caller the poller of a pollset, which is made if there is none. The token is needed to poll, and
%% outlives its holder no longer than to the next claim. Errors are those of epoll_create1(2).
-spec claim(pollset()) -> {ok, Token :: non_neg_integer()} | {error, inet:posix()}.
claim(_Pollset) -> ?NOT_LOADED.
%% @doc Makes the caller, until it dies, the poller of a pollset that is no scheduler's. `emfile' when all 1024 are taken.
-spec acquire() -> {ok, {pollset(), Token :: non_neg_integer()}} | {error, inet:posix()}.
acquire() -> ?NOT_LOADED.
%% @doc Reads, writes, accepts and delivers for all sockets that are ready, within the bound of a call. Returns how
%% many there were, or `bulk' if they were nothing but bulk streams, `relays' if these were relays, and the nanoseconds
%% since the poll before; `stale' if another process is the poller now.
-spec poll(pollset(), Token :: non_neg_integer()) ->
    {Events :: non_neg_integer() | bulk | relays, RoundNs :: non_neg_integer()} | stale.
poll(_Pollset, _Token) -> ?NOT_LOADED.
%% @doc Lets the caller sleep: `weir_wake' is sent to it, once, when there is something to do. With `Bulk' the pollset's
%% thread serves meanwhile as long as nothing comes but bulk streams. `busy': there is something to do already.
-spec sleep(pollset(), Token :: non_neg_integer(), Bulk :: boolean()) -> asleep | busy | stale.
sleep(_Pollset, _Token, _Bulk) -> ?NOT_LOADED.
%% @doc The counters of a pollset since it was made; see {@link weir:pollsets/0}.
-spec counters(pollset()) -> #{atom() => non_neg_integer() | [non_neg_integer()]}.
counters(_Pollset) -> ?NOT_LOADED.
%% @doc How often somebody has waited for a lock of each table. Those of pollsets are in {@link counters/1}.
-spec contention() -> #{sockets | relays | groups => non_neg_integer()}.
contention() -> ?NOT_LOADED.
%% @doc How many panics of the native part there were, and what the last one has said. Each is a fault of Weir.
-spec panics() -> {non_neg_integer(), binary()}.
panics() -> ?NOT_LOADED.

%%% Sockets

%% @doc A stream socket of the caller's, neither bound nor connected. `Module' is what its term and its messages carry.
-spec open(module(), weir_address:family(), pollset()) -> {ok, handle()} | {error, inet:posix()}.
open(_Module, _Family, _Pollset) -> ?NOT_LOADED.
%% @doc The same in the network namespace at a path. It waits for the file system, on a dirty scheduler.
-spec open_in(module(), weir_address:family(), pollset(), Path :: binary()) -> {ok, handle()} | {error, inet:posix()}.
open_in(_Module, _Family, _Pollset, _Path) -> ?NOT_LOADED.
%% @doc The same around a descriptor, which a close leaves open. `einval' if that is not a stream of this family.
-spec fdopen(module(), weir_address:family(), pollset(), non_neg_integer()) -> {ok, handle()} | {error, inet:posix()}.
fdopen(_Module, _Family, _Pollset, _Fd) -> ?NOT_LOADED.
%% @doc bind(2). `einval' for a local path that is too long.
-spec bind(handle(), weir_address:native()) -> ok | {error, closed | inet:posix()}.
bind(_Handle, _Address) -> ?NOT_LOADED.
%% @doc listen(2).
-spec listen(handle(), Backlog :: integer()) -> ok | {error, closed | inet:posix()}.
listen(_Handle, _Backlog) -> ?NOT_LOADED.
%% @doc Has the kernel take no new connections: those whose handshake has begun can still be accepted. Not to be taken back.
-spec refuse(handle()) -> ok | {error, closed | inet:posix()}.
refuse(_Handle) -> ?NOT_LOADED.
%% @doc Whether connections wait that nobody has accepted; `true' if the kernel cannot tell.
-spec has_backlog(handle()) -> boolean() | {error, closed}.
has_backlog(_Handle) -> ?NOT_LOADED.
%% @doc Makes another listening socket of the caller on the descriptor of one, on a pollset: both have the same backlog.
-spec duplicate(handle(), pollset()) -> {ok, handle()} | {error, closed | inet:posix()}.
duplicate(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc A connection with the options of the listening socket, owned by the caller. `Now' has the kernel asked even if the
%% pollset has not heard of one. The result of a wait is `{ok, Handle}' or `{error, Reason}'.
-spec accept(handle(), pollset(), Now :: boolean()) ->
    {ok, handle()} | {wait, operation()} | {error, closed | inet:posix()}.
accept(_Handle, _Pollset, _Now) -> ?NOT_LOADED.
%% @doc connect(2). The result of a wait is `ok' or `{error, Reason}'.
-spec connect(handle(), weir_address:native()) -> ok | {wait, operation()} | {error, closed | inet:posix()}.
connect(_Handle, _Address) -> ?NOT_LOADED.
%% @doc Writes what the kernel takes and queues the rest, of at most 64 binaries. `wait': over the high watermark; the
%% result is `ok' or `{error, Reason}'. `full': the queue took nothing; the result is `retry' when it has room, or
%% `{error, Reason}'. `Timeout' is the socket's `send_timeout'.
-spec send(handle(), binary() | [binary()]) ->
    ok | {wait | full, operation(), timeout()} | {error, closed | econnreset | inet:posix()}.
send(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Has bytes of a file, of {@link prim_file:get_handle/1}, sent after what is queued and before what others send from
%% now on. The file may be closed then. The owner of the socket drives the transfer by {@link sendfile_continue/1}.
-spec sendfile_begin(handle(), File :: binary(), Offset :: non_neg_integer(), Length :: non_neg_integer()) ->
    ok | {error, not_owner | closed | inet:posix()}.
sendfile_begin(_Handle, _File, _Offset, _Length) -> ?NOT_LOADED.
%% @doc Sends the next part of the file, if it is in memory: to be called again after `more', and after a wait whose result
%% is `retry'. `{ok, Sent}' and `{error, Reason}' end the transfer. `disk': call {@link sendfile_from_disk/1} first.
-spec sendfile_continue(handle()) ->
    {ok, Sent :: non_neg_integer()} | more | disk | {wait, operation()} | {error, closed | inet:posix()}.
sendfile_continue(_Handle) -> ?NOT_LOADED.
%% @doc Sends the part of which {@link sendfile_continue/1} has said `disk', on a dirty scheduler.
-spec sendfile_from_disk(handle()) -> more | {error, closed}.
sendfile_from_disk(_Handle) -> ?NOT_LOADED.
%% @doc Reads `Length' bytes, or what there is if that is 0. `Now' as for {@link accept/3}. A wait ends with `{ok, Data}' too.
-spec recv(handle(), Length :: non_neg_integer(), Now :: boolean()) ->
    {ok, binary() | string()} | {wait, operation()} | {error, closed | inet:posix()}.
recv(_Handle, _Length, _Now) -> ?NOT_LOADED.
%% @doc Puts bytes back in front of what will be read.
-spec unrecv(handle(), binary()) -> ok | {settle, Told :: non_neg_integer()} | {error, closed | inet:posix()}.
unrecv(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Takes a waiting operation back. `replied': the result is in the mailbox of the process that waits.
-spec cancel(handle(), operation()) -> ok | {error, replied}.
cancel(_Handle, _Operation) -> ?NOT_LOADED.
%% @doc shutdown(2), after the last queued byte.
-spec shutdown(handle(), read | write | read_write) -> ok | {error, closed | inet:posix()}.
shutdown(_Handle, _How) -> ?NOT_LOADED.
%% @doc Closes. `flush' waits for the send queue first (the result of the wait is `ok' or `{error, Reason}', and the
%% socket is still to be closed); `background' has it sent although nobody waits; `now' throws it away; `descriptor'
%% closes only that, and leaves a socket without one.
-spec close(handle(), flush | background | now | descriptor) -> ok | {wait, operation()}.
close(_Handle, _When) -> ?NOT_LOADED.
%% @doc `setopts(Handle, [{active, once}])', the option that is set once for each message. After `{settle, Told}' the caller,
%% the owner, calls {@link weir_succession:finish/2}.
-spec activate_once(handle()) -> ok | {settle, Told :: non_neg_integer()} | {error, einval}.
activate_once(_Handle) -> ?NOT_LOADED.
%% @doc Sends the owner, which calls, what waits. It says how its queue is kept. One that is `off_heap' has taken all messages
%% up to number `Told' into it.
-spec tell(handle(), Told :: non_neg_integer(), on_heap | off_heap) -> ok.
tell(_Handle, _Told, _Queue) -> ?NOT_LOADED.
%% @doc The owner of a socket whose poller waits until that has taken all messages up to number `Told' into its queue; `done' if
%% none does.
-spec unsettled(handle()) -> {Owner :: pid(), Told :: non_neg_integer()} | done.
unsettled(_Handle) -> ?NOT_LOADED.
%% @doc Those sockets of a piece of the table; `done' behind the last piece.
-spec all_unsettled(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
all_unsettled(_Piece) -> ?NOT_LOADED.
%% @doc The owner has taken those messages, and its queue is kept so.
-spec settled(handle(), Told :: non_neg_integer(), on_heap | off_heap) -> ok.
settled(_Handle, _Told, _Queue) -> ?NOT_LOADED.
%% @doc Applies options in order up to the first that fails. They have been checked by {@link weir_options}. `{settle, Told}' as
%% {@link activate_once/1}.
-spec setopts(handle(), [weir_options:setting()]) -> ok | {settle, Told :: non_neg_integer()} | {error, inet:posix()}.
setopts(_Handle, _Settings) -> ?NOT_LOADED.
%% @doc The values of options, without those that the kernel does not give. Unknown names are a `badarg'.
-spec getopts(handle(), [atom() | tuple()]) -> {ok, [tuple()]} | {error, einval}.
getopts(_Handle, _Names) -> ?NOT_LOADED.
%% @doc All of `inet:getstat/1', in its order.
-spec getstat(handle()) -> {ok, [{inet:stat_option(), non_neg_integer()}]} | {error, einval}.
getstat(_Handle) -> ?NOT_LOADED.
%% @doc getsockname(2).
-spec sockname(handle()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
sockname(_Handle) -> ?NOT_LOADED.
%% @doc getpeername(2).
-spec peername(handle()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
peername(_Handle) -> ?NOT_LOADED.
%% @doc The process that gets the messages; `undefined' if it is dead and its last bytes are still being sent.
-spec owner(handle()) -> {ok, pid() | undefined} | {error, closed}.
owner(_Handle) -> ?NOT_LOADED.
%% @doc Gives the socket to another process, which the caller may have `Forwarded' messages to. Only its owner can. A dead process
%% is a `badarg'.
-spec set_owner(handle(), pid(), Forwarded :: boolean()) -> ok | {error, closed | not_owner}.
set_owner(_Handle, _Pid, _Forwarded) -> ?NOT_LOADED.
%% @doc `{active, false}'; returns what it was before.
-spec passivate(handle()) -> {ok, {active, boolean() | once | -32768..32767}} | {error, einval}.
passivate(_Handle) -> ?NOT_LOADED.
%% @doc Has `{'DOWN', Reference, socket, Socket, normal}' sent to the caller when the socket closes.
-spec monitor(handle(), reference()) -> ok | {error, closed}.
monitor(_Handle, _Reference) -> ?NOT_LOADED.
%% @doc Takes a {@link monitor/2} back. False if there was none.
-spec demonitor(handle(), reference()) -> boolean().
demonitor(_Handle, _Reference) -> ?NOT_LOADED.
%% @doc Takes the socket to another pollset; not a connection of a `reactor'.
-spec move(handle(), pollset()) -> ok | {error, closed | reactor | inet:posix()}.
move(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc The same for a place that somebody has chosen: {@link evacuate/1} leaves it there.
-spec place(handle(), pollset()) -> ok | {error, closed | reactor | inet:posix()}.
place(_Handle, _Pollset) -> ?NOT_LOADED.
%% @doc Takes some dozens of sockets in one piece of the table of {@link sockets/1} from pollsets of schedulers that are offline to those
%% of others: `more' if the piece has others, `done' behind the last. Those stay that were placed, those whose process is bound, and
%% listening sockets of listeners.
-spec evacuate(Piece :: non_neg_integer()) -> ok | more | done.
evacuate(_Piece) -> ?NOT_LOADED.
%% @doc What is known of a socket.
-spec info(handle()) -> {ok, #{atom() => term()}} | {error, closed}.
info(_Handle) -> ?NOT_LOADED.
%% @doc The open sockets of one piece of the table, by the number of the piece from 0 on; `done' behind the last.
-spec sockets(non_neg_integer()) -> {ok, [handle()]} | done.
sockets(_Piece) -> ?NOT_LOADED.
%% @doc The same sockets with the bytes that they have received and sent, and that wait to be sent.
-spec traffic(non_neg_integer()) ->
    {ok, [{handle(), Received :: non_neg_integer(), Sent :: non_neg_integer(), Waiting :: non_neg_integer()}]} | done.
traffic(_Piece) -> ?NOT_LOADED.
%% @doc Writes what the kernel takes now, and nothing if something is queued. `einval' for a socket with packets.
-spec send_now(handle(), iodata()) -> {ok, Taken :: non_neg_integer()} | {error, closed | inet:posix()}.
send_now(_Handle, _Data) -> ?NOT_LOADED.
%% @doc Has `{weir_writable, Socket}' sent to the caller, or `{writable, Handle}' put into its batch if it is the socket's
%% reactor, once the kernel takes output and nothing is queued, or there is no sense in waiting any more.
-spec notify_writable(handle()) -> ok | {error, closed | inet:posix()}.
notify_writable(_Handle) -> ?NOT_LOADED.

%%% Listeners

%% @doc A listener with so many queues, for the first pollsets.
-spec listener_new(Queues :: pos_integer(), weir_listener_options:limits()) -> listener().
listener_new(_Queues, _Limits) -> ?NOT_LOADED.
%% @doc Has a listening socket, with the options that it has now, accept into a queue, or for its reactor.
-spec listener_add_socket(listener(), Queue :: pos_integer() | reactor, handle()) -> ok | {error, closed | inet:posix()}.
listener_add_socket(_Listener, _Queue, _Handle) -> ?NOT_LOADED.
%% @doc Makes the caller the process that is told of pauses which only time ends, and ends those that there are: by
%% `{weir_listener, throttled, Milliseconds}' (the rate) and `{weir_listener, exhausted, Reason}' (accept(2) failed), each
%% once up to the next {@link listener_retry/1}, and `{weir_listener, recovered}' with the first connection after that.
-spec listener_own(listener()) -> ok.
listener_own(_Listener) -> ?NOT_LOADED.
%% @doc Has accepting tried again.
-spec listener_retry(listener()) -> ok.
listener_retry(_Listener) -> ?NOT_LOADED.
%% @doc Makes the caller the acceptor of a queue, which gets `{weir_accept, Count}' for a batch: how many wait now.
-spec listener_set_acceptor(listener(), Queue :: pos_integer()) -> non_neg_integer().
listener_set_acceptor(_Listener, _Queue) -> ?NOT_LOADED.
%% @doc How many connections wait in a queue.
-spec listener_waiting(listener(), Queue :: pos_integer()) -> non_neg_integer().
listener_waiting(_Listener, _Queue) -> ?NOT_LOADED.
%% @doc Has connections begin with this version of the options from now on, and with no other.
-spec listener_set_version(listener(), Version :: non_neg_integer()) -> ok.
listener_set_version(_Listener, _Version) -> ?NOT_LOADED.
%% @doc Makes the connection that has waited longest a socket of the caller. `outdated': the listener's options have another
%% version, and the acceptor is told of the connection once more.
-spec listener_accept(listener(), Queue :: pos_integer(), Version :: non_neg_integer()) ->
    {ok, handle()} | empty | outdated | {error, inet:posix()}.
listener_accept(_Listener, _Queue, _Version) -> ?NOT_LOADED.
%% @doc The same for another process; the connection waits on if that is dead. `empty' too if the caller is not the acceptor of the
%% queue.
-spec listener_accept_for(listener(), Queue :: pos_integer(), pid(), Version :: non_neg_integer()) ->
    {ok, handle()} | empty | outdated | {error, noproc | inet:posix()}.
listener_accept_for(_Listener, _Queue, _Pid, _Version) -> ?NOT_LOADED.
%% @doc Closes the connection that has waited longest.
-spec listener_discard(listener(), Queue :: pos_integer()) -> ok.
listener_discard(_Listener, _Queue) -> ?NOT_LOADED.
%% @doc Ends a listener: closes all connections that wait, and those that would.
-spec listener_clear(listener()) -> ok.
listener_clear(_Listener) -> ?NOT_LOADED.
%% @doc Has other limits hold from now on. Connections that are there stay.
-spec listener_set_limits(listener(), weir_listener_options:limits()) -> ok.
listener_set_limits(_Listener, _Limits) -> ?NOT_LOADED.
%% @doc The counts of a listener.
-spec listener_info(listener()) -> #{atom() => non_neg_integer() | infinity | boolean()}.
listener_info(_Listener) -> ?NOT_LOADED.
%% @doc The sum of the times of its replies, in nanoseconds, and how many took how long; see {@link weir_listener:latency()}.
-spec listener_latency(listener()) -> {non_neg_integer(), [{non_neg_integer(), pos_integer()}]}.
listener_latency(_Listener) -> ?NOT_LOADED.
%% @doc Has a connection not count against the limit of connections any more.
-spec listener_exempt(handle()) -> ok | {error, closed}.
listener_exempt(_Handle) -> ?NOT_LOADED.
%% @doc Its connections in one piece of the table of {@link sockets/1}: each with the process that it was accepted for.
-spec listener_connections(listener(), non_neg_integer()) -> {ok, [{handle(), pid(), pollset()}]} | done.
listener_connections(_Listener, _Piece) -> ?NOT_LOADED.
%% @doc Its connections in relays, by pieces of the table of {@link relays/1}: each with the process it was accepted for.
-spec listener_relays(listener(), non_neg_integer()) -> {ok, [{relay(), pid()}]} | done.
listener_relays(_Listener, _Piece) -> ?NOT_LOADED.

%%% Reactors

%% @doc Makes the caller's own pollset that of a reactor: when the caller dies, all sockets there are closed, and what
%% has to stay goes to the pollset `Home'. More than `MaxSendQueue' bytes that a peer does not take end its connection.
%% This and those that take a socket are `badarg' for a pollset that another process polls.
-spec reactor_begin(pollset(), Home :: pollset(), MaxSendQueue :: non_neg_integer()) -> ok.
reactor_begin(_Pollset, _Home, _MaxSendQueue) -> ?NOT_LOADED.
%% @doc Makes the writes, the last of which comes first, then takes the events of the sockets that are ready, in order.
%% How many sockets there were, and the nanoseconds since the call before, are for {@link weir_wait_strategy}.
-spec react(pollset(), Token :: non_neg_integer(), [weir_reactor_process:write()]) ->
    {[weir_reactor_process:event()], Sockets :: non_neg_integer(), RoundNs :: non_neg_integer()} | stale.
react(_Pollset, _Token, _Writes) -> ?NOT_LOADED.
%% @doc Takes a listening socket, of any owner, to the caller's pollset: its connections are the caller's, as events.
-spec reactor_listen(pollset(), handle()) -> ok | {error, closed | inet:posix()}.
reactor_listen(_Pollset, _Handle) -> ?NOT_LOADED.
%% @doc Has a listening socket asked again for connections.
-spec reactor_resume(handle()) -> ok.
reactor_resume(_Handle) -> ?NOT_LOADED.
%% @doc Makes a connected socket of the caller's one of its reactor.
-spec reactor_join(pollset(), handle()) -> ok | {error, closed | not_owner | inet:posix()}.
reactor_join(_Pollset, _Handle) -> ?NOT_LOADED.
%% @doc The same, and begins to connect it, which the event `connected' or `refused' ends. An error closes the socket.
-spec reactor_connect(pollset(), handle(), weir_address:native()) -> ok | {error, closed | not_owner | inet:posix()}.
reactor_connect(_Pollset, _Handle, _Address) -> ?NOT_LOADED.
%% @doc Makes a socket of the calling reactor a passive one of another process. `Unread' is put in front of its input.
-spec reactor_leave(handle(), pid(), pollset(), Unread :: [binary()]) ->
    ok | {error, closed | not_reactor | inet:posix()}.
reactor_leave(_Handle, _Pid, _Pollset, _Unread) -> ?NOT_LOADED.
%% @doc Sends on a reactor's socket what is not sent with a batch, in one call of its own.
-spec reactor_write(handle(), weir_reactor:output()) -> ok | {error, closed | not_reactor | badarg | einval | emsgsize}.
reactor_write(_Handle, _Output) -> ?NOT_LOADED.
%% @doc Opens a file, or one below a directory, on a dirty scheduler; see {@link weir_file}.
-spec file_open(binary()) -> {ok, weir_file:file(), Size :: non_neg_integer(), ModifiedNs :: integer()} | {error, weir_file:reason()}.
file_open(_Path) -> ?NOT_LOADED.
-spec file_open_below(binary(), [binary()]) ->
    {ok, weir_file:file(), Size :: non_neg_integer(), ModifiedNs :: integer()} | {error, weir_file:reason()}.
file_open_below(_Directory, _Names) -> ?NOT_LOADED.
%% @doc Reads a part of a file, of 16 MiB at most, on a dirty scheduler.
-spec file_read(weir_file:file(), Offset :: non_neg_integer(), Length :: non_neg_integer()) -> {ok, binary()} | {error, file:posix()}.
file_read(_File, _Offset, _Length) -> ?NOT_LOADED.
%% @doc Reads what a socket's queue waits for, on a dirty scheduler. Nothing is done for one that waits for nothing.
-spec file_fetch(handle()) -> ok.
file_fetch(_Handle) -> ?NOT_LOADED.
%% @doc Has a socket go on for which {@link file_fetch/1} has read.
-spec file_resume(handle()) -> ok.
file_resume(_Handle) -> ?NOT_LOADED.
%% @doc The sockets of a piece of the table that wait for {@link file_fetch/1}; `done' behind the last piece.
-spec file_waiting(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
file_waiting(_Piece) -> ?NOT_LOADED.
%% @doc The reactor of a socket.
-spec reactor_of(handle()) -> {ok, pid()} | {error, closed | not_reactor}.
reactor_of(_Handle) -> ?NOT_LOADED.
%% @doc The pollsets of dead reactors, which {@link reap/2} has to clear.
-spec abandoned() -> [pollset()].
abandoned() -> ?NOT_LOADED.
%% @doc Closes some dozens of sockets that a dead reactor has left in one piece of the table of {@link sockets/1}: `more' if
%% the piece has others, `done' behind the last; then the pollset is free. `badarg' if it is not {@link abandoned/0}.
-spec reap(pollset(), Piece :: non_neg_integer()) -> ok | more | done.
reap(_Pollset, _Piece) -> ?NOT_LOADED.
%% @doc The sockets of one piece of the table of {@link sockets/1} without an owner, whose queue is still being sent.
-spec lingering(Piece :: non_neg_integer()) -> {ok, [handle()]} | done.
lingering(_Piece) -> ?NOT_LOADED.
%% @doc How many bytes of such a socket its peer has not taken; `done' if it is closed.
-spec left_behind(handle()) -> non_neg_integer() | done.
left_behind(_Handle) -> ?NOT_LOADED.
%% @doc Closes such a socket; what is left of its queue is lost.
-spec give_up(handle()) -> ok.
give_up(_Handle) -> ?NOT_LOADED.

%%% Relays

%% @doc Times of replies, to which any number of relays add.
-spec latency_new() -> latency().
latency_new() -> ?NOT_LOADED.
%% @doc Their sum, in nanoseconds, and how many took how long; see {@link weir_listener:latency()}.
-spec latency_seen(latency()) -> {non_neg_integer(), [{non_neg_integer(), pos_integer()}]}.
latency_seen(_Latency) -> ?NOT_LOADED.
%% @doc Joins two connected sockets of the caller's on a pollset, for an owner, which closes both to everybody. `Prefix' goes to the
%% second one first. An error names the socket that is in no state for it, and leaves both as they were. If a timeout may
%% pass in the next 10 seconds, {@link weir_relay_timer} is sent `{weir_relay, Relay, Milliseconds}': when to call {@link relay_expire/1}.
-spec relay_start(handle(), handle(), pollset(), Owner :: pid(), Prefix :: binary(), weir_relay:native()) ->
    {ok, relay()} | {error, {handle(), closed | not_owner | reactor | enotconn | ebusy | epipe} | inet:posix()}.
relay_start(_A, _B, _Pollset, _Owner, _Prefix, _Options) -> ?NOT_LOADED.
%% @doc Connects to a server and joins a socket of the caller's with that, if the connection stands at once. Otherwise the caller waits for
%% the operation of a new socket, as after {@link connect/2}, and joins them then.
-spec relay_connect(handle(), weir_address:native(), pollset(), Owner :: pid(), Prefix :: binary(), weir_relay:native()) ->
    {ok, relay()}
    | {wait, handle(), operation()}
    | {error, {connect, inet:posix()} | {handle(), closed | not_owner | reactor | enotconn | ebusy | epipe} | inet:posix()}.
relay_connect(_A, _Server, _Pollset, _Owner, _Prefix, _Options) -> ?NOT_LOADED.
%% @doc How many relays there are.
-spec relay_count() -> non_neg_integer().
relay_count() -> ?NOT_LOADED.
%% @doc Ends a relay, if it has not ended. Its owner is told.
-spec relay_stop(relay()) -> ok.
relay_stop(_Relay) -> ?NOT_LOADED.
%% @doc Who owns a relay, where it is polled, and what it has carried.
-spec relay_info(relay()) -> {ok, {pid(), pollset(), weir_relay:statistics()}} | {error, closed}.
relay_info(_Relay) -> ?NOT_LOADED.
%% @doc The addresses of the peers of its first and second socket; `undefined' of one that has gone.
-spec relay_peers(relay()) -> {ok, {weir_tcp:name() | undefined, weir_tcp:name() | undefined}} | {error, closed}.
relay_peers(_Relay) -> ?NOT_LOADED.
%% @doc Ends a relay if a timeout has passed, or returns after how many milliseconds to call again; `done': it has none, has ended, or
%% {@link relays_due/1} will name it.
-spec relay_expire(relay()) -> pos_integer() | done.
relay_expire(_Relay) -> ?NOT_LOADED.
%% @doc Those relays of one piece of their table whose timeouts may pass in the next 10 seconds, and that were not named yet,
%% with the milliseconds after which to call {@link relay_expire/1}; `done' behind the last piece.
-spec relays_due(non_neg_integer()) -> {ok, [{relay(), non_neg_integer()}]} | done.
relays_due(_Piece) -> ?NOT_LOADED.
%% @doc The relays of one piece of their table, by the number of the piece from 0 on; `done' behind the last.
-spec relays(non_neg_integer()) -> {ok, [relay()]} | done.
relays(_Piece) -> ?NOT_LOADED.

%%% A tracer

%% @doc Begins to measure turns of schedulers, of processes that are traced by `{weir_nif, Session}' with the flag `running_procs', and ends
%% it after so many milliseconds, 120,000 at most: then the tracer goes from each process at its next event. `busy': somebody does.
-spec schedules_begin(Milliseconds :: non_neg_integer()) -> {ok, Session :: non_neg_integer()} | {error, busy}.
schedules_begin(_Milliseconds) -> ?NOT_LOADED.
%% @doc Ends it. Of each scheduler: histograms of the time from the end of a turn to the next, and of turns. The i-th number, from 0, counts
%% those of 2^i to 2^(i+1)-1 nanoseconds. Schedulers that have slept for 10 ms are left out of the first. The last is how many of its turns were
%% those of a process that ran on another scheduler before.
-spec schedules_end(Session :: non_neg_integer()) ->
    {ok, [{Scheduler :: pos_integer(), [non_neg_integer()], [non_neg_integer()], Migrations :: non_neg_integer()}]} | {error, closed}.
schedules_end(_Session) -> ?NOT_LOADED.
%% @doc Asked by the VM whether the tracer is in use.
-spec enabled(atom(), non_neg_integer(), term()) -> discard | remove.
enabled(_Tag, _Session, _Tracee) -> ?NOT_LOADED.
%% @doc Asked by the VM when a process begins or ends a turn. Nothing is told of it.
-spec enabled_running_procs(atom(), non_neg_integer(), term()) -> discard | remove.
enabled_running_procs(_Tag, _Session, _Tracee) -> ?NOT_LOADED.
%% @doc Never called: nothing is told. The VM wants it to be there.
-spec trace(atom(), term(), term(), term(), term()) -> ok.
trace(_Tag, _Session, _Tracee, _Term, _Options) -> ?NOT_LOADED.

%%% Groups

%% @doc A group of the caller's, which is deleted when the caller dies. `emfile' when there are 65536.
-spec group_new(weir_group:settings()) -> {ok, group()} | {error, emfile}.
group_new(_Settings) -> ?NOT_LOADED.
%% @doc How many groups there are.
-spec group_count() -> non_neg_integer().
group_count() -> ?NOT_LOADED.
%% @doc Deletes a group; nothing happens if it is gone.
-spec group_delete(group()) -> ok.
group_delete(_Group) -> ?NOT_LOADED.
%% @doc Makes a connected socket a member, for one message or for all. It gets `First' before them; otherwise it is no member. `closed'
%% is the socket or the group.
-spec group_join(group(), handle(), Once :: boolean(), First :: binary()) -> ok | {error, closed | enotconn | emsgsize | full}.
group_join(_Group, _Handle, _Once, _First) -> ?NOT_LOADED.
%% @doc Ends a membership.
-spec group_leave(group(), handle()) -> ok | {error, not_member}.
group_leave(_Group, _Handle) -> ?NOT_LOADED.
%% @doc Ends the memberships of a socket for one message. `served': it has had that, and its reactor will be told.
-spec group_withdraw(handle()) -> ok | {error, served | closed}.
group_withdraw(_Handle) -> ?NOT_LOADED.
%% @doc Sends a message to all members but `Except', by their pollsets, and returns how many those are. `{weir_group,
%% {weir_group, Group}, Reference, Outcomes}' follows, if a reference is given, when it has been through. A member that leaves
%% because of this message has its owner told the mark.
-spec group_broadcast(group(), binary(), Except :: handle() | undefined, reference() | undefined, Mark :: non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, busy | closed | emsgsize}.
group_broadcast(_Group, _Message, _Except, _Reference, _Mark) -> ?NOT_LOADED.
%% @doc How many members there are; none if the group is deleted.
-spec group_size(group()) -> non_neg_integer().
group_size(_Group) -> ?NOT_LOADED.
%% @doc See {@link weir_group:info/1}.
-spec group_info(group()) -> {ok, weir_group:info()} | {error, closed}.
group_info(_Group) -> ?NOT_LOADED.
