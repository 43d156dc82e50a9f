%% @doc Weir: fast TCP for stock Erlang/OTP.
%%
%% Start the application `weir' and pass `{tcp_module, weir_tcp}' to `gen_tcp:listen/2' or `gen_tcp:connect/3,4'. This
%% module has the rest: listeners, relays and inspection.
-module(weir).

-include("weir_socket.hrl").

-export([pollsets/0]).
-export([reactors/0]).
-export([sockets/0]).
-export([is_weir/1]).
-export([i/0]).
-export([migrate/2]).
-export([send_nowait/2]).
-export([notify_writable/1]).

%% Listeners.
-export([start_listener/4]).
-export([child_spec/4]).
-export([stop_listener/1]).
-export([suspend_listener/1]).
-export([resume_listener/1]).
-export([drain_listener/2]).
-export([listeners/0]).
-export([info/1]).
-export([latency/1]).
-export([connections/1]).
-export([set_options/2]).
-export([set_max_connections/2]).
-export([get_port/1]).
-export([handshake/1]).
-export([handshake/2]).
-export([proxy_header/0]).

%% Relays.
-export([relay/2]).
-export([relay/3]).
-export([stop_relay/1]).
-export([relay_info/1]).
-export([relays/0]).

-export_type([pollset/0]).

-type pollset() :: #{
    pollset := pos_integer(),
    poller := pid() | undefined,
    scheduler := pos_integer() | anywhere | undefined,
    sockets := non_neg_integer(),
    polls := non_neg_integer(),
    empty_polls := non_neg_integer(),
    events := non_neg_integer(),
    events_min := non_neg_integer(),
    events_max := non_neg_integer(),
    events_log2 := [non_neg_integer()],
    sleeps := non_neg_integer(),
    asleep_ns := non_neg_integer(),
    gathers := non_neg_integer(),
    wakes_by_thread := non_neg_integer(),
    wakes_by_process := non_neg_integer(),
    polling_ns := non_neg_integer(),
    between_ns := non_neg_integer(),
    reads := non_neg_integer(),
    read_bytes := non_neg_integer(),
    writes := non_neg_integer(),
    written_bytes := non_neg_integer(),
    short_writes := non_neg_integer(),
    file_waits := non_neg_integer(),
    files_cut := non_neg_integer(),
    accepts := non_neg_integer(),
    asked_away := non_neg_integer(),
    faults := non_neg_integer(),
    moved_in := non_neg_integer(),
    moved_out := non_neg_integer(),
    contended := non_neg_integer()
}.
%% A pollset and its counters since its creation; {@link weir_counters:table/0} explains each. `events_log2' is a
%% histogram of ready sockets per poll: element i, from 0, counts the polls that returned 2^i to 2^(i+1)-1, the last
%% also all larger ones. After Wei Cao's "pollset per scheduler".

%% @doc Returns the pollsets and their counters. Cheap: reads numbers, and asks one process for the pollers. Returns
%% `[]' if Weir has no native part, and before the application is started or a socket is opened.
-spec pollsets() -> [pollset()].
pollsets() ->
    case is_pid(whereis(weir_pollsets)) andalso weir_nif:available() of
        true ->
            Pollers = weir_pollsets:pollers(),
            [pollset(Number, maps:get(Number, Pollers, {undefined, undefined})) || Number <- weir_pollsets:all()];
        false ->
            []
    end.

pollset(Number, {Poller, Scheduler}) ->
    (weir_nif:counters(Number))#{pollset => Number, poller => Poller, scheduler => Scheduler}.

%% @doc Returns the reactors and how long their callbacks take. Cheap: reads counters and calls no reactor, so it also
%% shows a reactor that is in a callback right now. See {@link weir_reactor:measure/2}.
-spec reactors() -> [weir_reactor:summary()].
reactors() -> weir_reactors:all().

%% @doc Returns all open sockets of Weir, listening sockets included. Walks the whole socket table in pieces that
%% delay no other work; the cost is proportional to the highest number of sockets that were ever open at once.
-spec sockets() -> [weir_tcp:socket()].
sockets() ->
    case weir_nif:available() of
        true -> sockets(0);
        false -> []
    end.

sockets(Piece) ->
    case weir_nif:sockets(Piece) of
        {ok, Handles} -> [?SOCKET(Handle) || Handle <- Handles] ++ sockets(Piece + 1);
        done -> []
    end.

%% @doc Returns whether a term is a socket of Weir: open or closed, listening or connected, or a socket of `ssl' on
%% top of one. `false' for every other term.
%%
%% Use it to check that the option took effect. Before OTP 29, gen_tcp silently uses OTP's own module if a bare `inet'
%% or `inet6' precedes `{tcp_module, weir_tcp}'. Without the native part, sockets are always OTP's.
-spec is_weir(term()) -> boolean().
is_weir(?SOCKET(Handle)) -> is_integer(Handle);
is_weir(Secure) when element(1, Secure) =:= sslsocket -> holds_socket(Secure, 3);
is_weir(_Other) -> false.

%% Each release of ssl keeps the underlying socket in another place of its term.
holds_socket(?SOCKET(_), _Depth) -> true;
holds_socket(Tuple, Depth) when is_tuple(Tuple), Depth > 0 ->
    lists:any(fun(Element) -> holds_socket(Element, Depth - 1) end, tuple_to_list(Tuple));
holds_socket(_Other, _Depth) -> false.

%% @doc Prints all open sockets of Weir, as `inet:i/0' prints those of OTP.
-spec i() -> ok.
i() ->
    Header = ["Socket", "Pollset", "Recv", "Sent", "Owner", "Local Address", "Foreign Address", "State"],
    Rows = [Row || Socket <- sockets(), Row <- row(Socket)],
    Table = [Header | Rows],
    Widths = [lists:max([string:length(Cell) || Cell <- Column]) || Column <- transpose(Table)],
    lists:foreach(fun(Row) -> io:put_chars([line(Row, Widths), $\n]) end, Table).

row(Socket = {_, _, Handle}) ->
    case inet:getstat(Socket, [recv_oct, send_oct]) of
        {ok, [{recv_oct, Received}, {send_oct, Sent}]} ->
            case weir_nif:info(Handle) of
                {ok, #{pollset := Pollset, owner := Owner, state := State}} ->
                    Numbers = [integer_to_list(Number) || Number <- [Handle, Pollset, Received, Sent]],
                    Addresses = [address(weir_tcp:sockname(Socket)), address(weir_tcp:peername(Socket))],
                    [Numbers ++ [owner(Owner) | Addresses] ++ [string:uppercase(atom_to_list(State))]];
                {error, closed} ->
                    []
            end;
        {error, einval} ->
            %% Closed since sockets/0 returned it.
            []
    end.

owner(undefined) -> "-";
owner(Pid) -> pid_to_list(Pid).

address({ok, {local, <<0, Name/binary>>}}) -> ["local:@", printable(Name)];
address({ok, {local, Path}}) -> ["local:", printable(Path)];
address({ok, {IP, Port}}) when tuple_size(IP) =:= 8 -> [$[, inet:ntoa(IP), "]:", integer_to_list(Port)];
address({ok, {IP, Port}}) -> [inet:ntoa(IP), $:, integer_to_list(Port)];
address({error, _}) -> "*:*".

%% A path may contain any byte but null; an abstract name may contain null as well.
printable(Path) ->
    case unicode:characters_to_list(Path) of
        String when is_list(String) -> lists:map(fun shown/1, String);
        _ -> lists:map(fun shown/1, binary_to_list(Path))
    end.

shown(Character) when Character < $\s; Character >= 16#7f, Character < 16#a0 -> $.;
shown(Character) -> Character.

transpose([[] | _]) -> [];
transpose(Rows) -> [[hd(Row) || Row <- Rows] | transpose([tl(Row) || Row <- Rows])].

line([Cell], [_Width]) -> Cell;
line([Cell | Cells], [Width | Widths]) -> [string:pad(Cell, Width), $\s | line(Cells, Widths)].

%% @doc Moves a live connection to another scheduler, with its received and queued bytes: nothing is lost or reordered.
%%
%% The socket joins that scheduler's pollset at once and stays there, even if its owner runs elsewhere later or the
%% scheduler goes offline. The owner moves too only if it is the caller, because a process cannot move another one. To
%% move a connection together with its process, make that process call this. The VM may move an unbound process again
%% later. The caller stays where it is if the VM lacks the (undocumented) process flag, or if the scheduler is
%% offline: then another scheduler polls the socket.
%%
%% Errors: `reactor' for a connection of a reactor, whose state may hold monitors; `closed'; an `inet:posix()' of the
%% kernel. Fails with `badarg' if the scheduler does not exist.
-spec migrate(weir_tcp:socket(), Scheduler :: pos_integer()) -> ok | {error, closed | reactor | inet:posix()}.
migrate(?SOCKET(Handle), Scheduler) ->
    Self = self(),
    case weir_nif:place(Handle, Scheduler) of
        ok ->
            case weir_nif:owner(Handle) of
                {ok, Self} -> weir_affinity:move_to(Scheduler);
                _ -> ok
            end;
        Error ->
            Error
    end.

%% @doc Sends what the kernel takes at once and returns the number of bytes taken. Never waits and never queues. Works
%% for sockets of processes and of reactors, from any process.
%%
%% `{ok, 0}': the kernel's buffer is full, or earlier sends are still queued; {@link notify_writable/1} tells when to
%% go on. `einval': the socket has a `packet' option, and packets cannot be sent in parts. After Zhi Jia Wang's patch
%% of OTP for servers that must not block on a slow reader.
-spec send_nowait(weir_tcp:socket(), iodata()) ->
    {ok, BytesTaken :: non_neg_integer()} | {error, closed | inet:posix()}.
send_nowait(?SOCKET(Handle), Data) ->
    weir_nif:send_now(Handle, Data).

%% @doc Notifies the caller, once, when the kernel takes output and the send queue is empty: by the message
%% `{weir_writable, Socket}', or by `handle_writable' if the caller is the socket's reactor. Closing the socket
%% notifies too; the next send then returns the error. A later call, by any process, replaces this one.
-spec notify_writable(weir_tcp:socket()) -> ok | {error, closed | inet:posix()}.
notify_writable(?SOCKET(Handle)) ->
    weir_nif:notify_writable(Handle).

%%% Listeners.

%% @doc Starts a listener, which accepts connections on a port. Each connection is served on the scheduler that polls
%% its socket. `Name' is any term. See {@link weir_listener:options()} and {@link weir_listener:handler()}. The
%% listener runs until {@link stop_listener/1}, also after the caller has ended.
%%
%% Errors: `{bad_option, Option, Value, Allowed}'; `{already_started, Pid}'; `no_native_part' on an unsupported
%% system; `{not_started, weir}' and `{not_started, ssl}'; errors of `gen_tcp:listen/2'. `eaddrinuse' can also mean
%% that other sockets with SO_REUSEPORT listen on the port.
-spec start_listener(weir_listener:name(), weir_listener:options(), weir_listener:handler(), Args :: term()) ->
    {ok, pid()} | {error, weir_listener:bad_option() | weir_listener:not_started() | term()}.
start_listener(Name, Options, Handler, Args) -> weir_listener:start(Name, Options, Handler, Args).

%% @doc Returns a child specification of a listener for your own supervisor. Its start function returns the errors of
%% {@link start_listener/4}. Stop it by its supervisor, not by {@link stop_listener/1}. If Weir is stopped and started
%% again, the listener listens again.
-spec child_spec(weir_listener:name(), weir_listener:options(), weir_listener:handler(), Args :: term()) ->
    supervisor:child_spec().
child_spec(Name, Options, Handler, Args) -> weir_listener:child_spec(Name, Options, Handler, Args).

%% @doc Stops a listener. Processes of its connections get the exit signal `shutdown', and are killed after the time
%% of the option `shutdown'. Returns when all of them and the relays of its connections have ended. A process whose
%% connection is closed already is not stopped. To wait for connections instead, see {@link drain_listener/2}. Errors:
%% `{no_listener, Name}', also for a listener of {@link child_spec/4}.
-spec stop_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener()}.
stop_listener(Name) -> weir_listener:stop(Name).

%% @doc Closes the listening sockets; existing connections go on. The kernel resets connections in the backlog.
-spec suspend_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener()}.
suspend_listener(Name) -> weir_listener:suspend(Name).

%% @doc Listens again, on the same port. Errors: `{no_listener, Name}', and those of `gen_tcp:listen/2', such as
%% `eaddrinuse' if another program has taken the port.
-spec resume_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener() | term()}.
resume_listener(Name) -> weir_listener:resume(Name).

%% @doc Suspends a listener and waits until its connections and their relays are closed. Connections in the backlog
%% are accepted first, unless `max_connections' is reached. After `Timeout' milliseconds returns `{error, {timeout,
%% Remaining}}', with the number of open connections.
-spec drain_listener(weir_listener:name(), timeout()) ->
    ok | {error, {timeout, Remaining :: pos_integer()} | weir_listener:no_listener()}.
drain_listener(Name, Timeout) -> weir_listener:drain(Name, Timeout).

%% @doc Returns the names of all listeners.
-spec listeners() -> [weir_listener:name()].
listeners() -> weir_listener:names().

%% @doc Returns the state and the counters of a listener. Cheap.
-spec info(weir_listener:name()) -> weir_listener:info() | {error, weir_listener:no_listener()}.
info(Name) -> weir_listener:info(Name).

%% @doc Returns the reply times of a listener since its start, if it measures them. `weir:set_options(Name, #{measure
%% => true})' starts measuring, also for existing connections. For an interval, subtract two results; `weir_scope'
%% shows them as tcprstat does.
%%
%% A reply is timed as in tcprstat: from the last bytes read to the first bytes written after them. In a relay whose
%% client came through the listener, it ends at the first bytes read from the server. Time that bytes wait in the
%% kernel is not included, nor are messages of a group.
-spec latency(weir_listener:name()) -> weir_listener:latency() | {error, weir_listener:no_listener()}.
latency(Name) -> weir_listener:latency(Name).

%% @doc Returns the connections of a listener, each with the process that it was accepted for. Costs as much as {@link
%% sockets/0}. Relayed connections are among {@link relays/0} instead.
-spec connections(weir_listener:name()) ->
    [{weir_tcp:socket(), pid()}] | {error, weir_listener:no_listener()}.
connections(Name) -> weir_listener:connections(Name).

%% @doc Changes options of a listener while it runs. No connection is closed or rejected: existing connections keep
%% their options, and connections that begin after the return have the new ones.
%%
%% `Changes' is a map of {@link weir_listener:options()}, and may have `handler' and `args' as well. Options not named
%% stay; so do those within `socket_opts'. All values are checked as by {@link start_listener/4}; if one is wrong,
%% nothing changes. The exception is a socket option that the kernel refuses on a listening socket: the options before
%% it in the list are set.
%%
%% `port', `ip', `fd', `shared' and `mode' cannot change. A listener for reactors can only change `socket_opts',
%% `max_connections', `overload', `max_rate', `per_address', `allow', `deny', `measure' and `shutdown'.
%%
%% Errors: `{bad_option, Option, Value, Allowed}', `{no_listener, Name}', `{not_started, ssl}'.
-spec set_options(weir_listener:name(), weir_listener:changes()) ->
    ok | {error, weir_listener:bad_option() | weir_listener:no_listener() | weir_listener:not_started()}.
set_options(Name, Changes) -> weir_listener:set_options(Name, Changes).

%% @doc Sets `max_connections' of a listener, as {@link set_options/2}. Existing connections stay open.
-spec set_max_connections(weir_listener:name(), non_neg_integer() | infinity) ->
    ok | {error, weir_listener:bad_option() | weir_listener:no_listener()}.
set_max_connections(Name, Max) -> weir_listener:set_options(Name, #{max_connections => Max}).

%% @doc Returns the port of a listener, also while it is suspended; `undefined' for a Unix socket.
-spec get_port(weir_listener:name()) -> inet:port_number() | undefined | {error, weir_listener:no_listener()}.
get_port(Name) -> weir_listener:port(Name).

%% @doc Waits for the connection in a process started by `start_link(Name, Transport, Args)'; reads its PROXY header
%% and negotiates TLS if the listener has these options. The same as `ranch:handshake/1', which also works if ranch is
%% present. The process exits with reason `normal' after `closed', `timeout', `not_proxy' and TLS alerts, and raises
%% other errors.
-spec handshake(weir_listener:name()) -> {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name) -> weir_connection:handshake(Name).

%% @doc {@link handshake/1} with options of `ssl:handshake/3', which precede those of the listener.
-spec handshake(weir_listener:name(), [ssl:tls_server_option()]) ->
    {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name, Options) -> weir_connection:handshake(Name, Options).

%% @doc Returns the PROXY header of the calling process's connection, if its listener has `proxy_protocol'.
-spec proxy_header() -> {ok, weir_proxy_protocol:header()} | undefined.
proxy_header() -> weir_connection:proxy_header().

%%% Relays.

%% @doc The same as {@link relay/3} without options.
-spec relay(weir_tcp:socket(), weir_tcp:socket() | weir_relay:server()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused()}.
relay(A, B) ->
    weir_relay:start(A, B, #{}).

%% @doc Joins two connections: native code copies the bytes between them, without a process.
%%
%% Both sockets must be the caller's, connected and without TLS: TCP over IPv4 or IPv6, or Unix sockets, in any
%% combination. Afterwards they are closed for all processes, and their monitors fire. Bytes that were read but not
%% delivered, and bytes queued for sending, are relayed in order. Data that the caller has received is not: pass it as
%% `prefix', and make the sockets passive first.
%%
%% B may be `{connect, Server, Timeout}' with `{Address, Port}' or `{local, Path}'. Then the relay connects, with
%% `nodelay', and begins in the same call if the server is on the same machine. That costs half as much as a connect
%% by gen_tcp and a relay.
%%
%% The end of one direction is passed on while the other goes on (half-close); a reset is passed on as a reset. The
%% relay reads only what it has room for, so a side that does not read stops the other. When both directions have
%% ended, or at the first failure, the owner (the caller, unless the option `owner' names another process) gets
%% ```
%% {weir_relay, Relay, closed, Statistics}
%% {weir_relay, Relay, {error, Reason}, Statistics}
%% '''
%% with the reason `timeout' or an `inet:posix()', mostly `econnreset'. See {@link weir_relay:statistics()}.
%%
%% Options:
%% <dl>
%% <dt>`prefix' (none)</dt><dd>goes to B first, as if it had just come from A</dd>
%% <dt>`buffer' (65536)</dt><dd>bytes that each direction may have read and not yet written, up to 1048576. With the
%% default, a spliced direction may hold 262144 by reference</dd>
%% <dt>`splice' (`auto')</dt><dd>`true': move bytes by splice(2), through a pipe of the kernel, which takes two
%% descriptors for each direction. `auto': only while a direction is bulk, where it is cheaper. `false': never</dd>
%% <dt>`idle_timeout' (`infinity')</dt><dd>milliseconds without a byte in either direction that end the relay</dd>
%% <dt>`half_close_timeout' (`infinity')</dt><dd>milliseconds that one direction may outlive the other</dd>
%% <dt>`detached' (`false')</dt><dd>whether the relay goes on when its owner dies</dd>
%% <dt>`owner' (the caller)</dt><dd>the process of this node that gets the message when the relay ends</dd>
%% <dt>`latency' (none)</dt><dd>where to add the reply times of B as well: {@link weir_relay:new_latency/0}</dd>
%% </dl>
%%
%% Errors leave both sockets as they were. `{connect, Reason}': the server was not reached; `timeout', an
%% `inet:posix()', or `closed' if Weir was stopped. `{Socket, Reason}': this socket is `closed', of another process
%% (`not_owner'), of the calling reactor (`reactor': it must leave the reactor first), not connected (`enotconn'),
%% sending a file (`ebusy') or being shut down for writing (`epipe'). `{bad_socket, Term, Needed}': no socket of Weir,
%% or the same socket twice. `{bad_option, Name, Value, Allowed}': a wrong option. `no_native_part': an unsupported
%% system. `esrch': the owner is dead and the relay not `detached'. Any other `inet:posix()' is the kernel's.
-spec relay(weir_tcp:socket(), weir_tcp:socket() | weir_relay:server(), weir_relay:options()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused()}.
relay(A, B, Options) ->
    weir_relay:start(A, B, Options).

%% @doc Ends a relay and closes both connections, from any process. Does nothing if it has ended. Bytes that were read
%% and not yet written are lost, and the connection that misses them is reset so that its peer notices. The owner gets
%% `{weir_relay, Relay, closed, Statistics}'.
-spec stop_relay(weir_relay:relay()) -> ok.
stop_relay(Relay) ->
    weir_relay:stop(Relay).

%% @doc Returns the statistics of a relay so far, its owner and its pollset.
-spec relay_info(weir_relay:relay()) -> {ok, weir_relay:info()} | {error, closed}.
relay_info(Relay) ->
    weir_relay:info(Relay).

%% @doc Returns all relays. Costs as much as {@link sockets/0}.
-spec relays() -> [weir_relay:relay()].
relays() ->
    weir_relay:list().
