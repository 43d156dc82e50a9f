%% @doc Weir: fast TCP for stock Erlang/OTP.
%%
%% Start the application `weir' and give `{tcp_module, weir_tcp}' to `gen_tcp:listen/2' or `gen_tcp:connect/3,4'. This module
%% has the rest: listeners, relays and inspection.
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
%% A pollset and what it has done since it was made. `events' counts sockets that polls found ready; `events_min' and
%% `events_max' are the fewest and most of a poll that found any, and the i-th number of `events_log2', counted from 0,
%% is how many polls found 2^i to 2^(i+1)-1 of them (the last: or more). `asleep_ns' are nanoseconds, as are `polling_ns' in polls that found
%% something and `between_ns' from the end of the poll before to these, unless the poller slept: a socket waits so long at most. `wakes_by_thread'
%% and `wakes_by_process' are by whom it was woken. `faults' are sockets that a fault of Weir itself has closed. `asked_away' are requests on
%% this scheduler for data of sockets that another one polls, `moved_in' and `moved_out' sockets that came and went. `contended': how often
%% somebody had to wait for the lock of its list.
%%
%% The idea is the first table of Wei Cao's "pollset per scheduler": times, events, min, max, avg for each scheduler.

%% @doc The pollsets and their counters. Cheap: it reads numbers, and asks one process who polls. Empty where Weir has
%% no native part, and before the application was started or the first socket opened: nothing that reads starts anything.
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

%% @doc The reactors, and how long their callbacks take. Cheap: it reads numbers and asks none of them, so it tells of one that is in a
%% callback just now. See {@link weir_reactor:measure/2}.
-spec reactors() -> [weir_reactor:summary()].
reactors() -> weir_reactors:all().

%% @doc All open sockets of Weir, listening ones included. Walks the whole table, so it costs time in proportion to the
%% most sockets that were ever open at once, in pieces of a thousand that delay no other work.
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

%% @doc Whether a socket is one of Weir's, by its term: open or closed, listening or connected, and also a socket of `ssl'
%% on top of one. `false' for every other term.
%%
%% Use it to check that the option has its effect. Before OTP 29 a bare `inet' or `inet6' in front of `{tcp_module,
%% weir_tcp}' has gen_tcp take OTP's own module without an error, and where Weir has no native part the sockets are OTP's.
-spec is_weir(term()) -> boolean().
is_weir(?SOCKET(Handle)) -> is_integer(Handle);
is_weir(Secure) when element(1, Secure) =:= sslsocket -> holds_socket(Secure, 3);
is_weir(_Other) -> false.

%% The socket beneath is in another place of the term with each release of ssl.
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
            %% Closed meanwhile.
            []
    end.

owner(undefined) -> "-";
owner(Pid) -> pid_to_list(Pid).

address({ok, {local, <<0, Name/binary>>}}) -> ["local:@", printable(Name)];
address({ok, {local, Path}}) -> ["local:", printable(Path)];
address({ok, {IP, Port}}) when tuple_size(IP) =:= 8 -> [$[, inet:ntoa(IP), "]:", integer_to_list(Port)];
address({ok, {IP, Port}}) -> [inet:ntoa(IP), $:, integer_to_list(Port)];
address({error, _}) -> "*:*".

%% A path may hold any byte but null, and a name even that.
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

%% @doc Takes a live connection to another scheduler, with what has come for it and what is still to be sent: nothing is
%% lost or reordered. Fails with `badarg' for a scheduler that is not there.
%%
%% The socket moves to that scheduler's pollset at once, and stays there, whichever scheduler its owner runs on later and also when the
%% scheduler goes offline. Its owner moves too only if the owner is the caller, because in the VM no process can move another one;
%% afterwards the VM may move it again, unless it is bound. To move a connection of another process together with that process, ask it
%% to make this call. The caller stays where it is if the VM does not let a process choose (the option is not documented), or if the
%% scheduler is offline: then another polls the socket. `{error, reactor}': the state of a reactor's connection may hold its monitors.
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

%% @doc Sends as much as the kernel takes at once, and returns the number of bytes. It never waits and never queues.
%% `{ok, 0}' means that the kernel is full, or that bytes of other sends are queued before these; then use
%% {@link notify_writable/1} to learn when to go on. `einval' on a socket with packets (`{packet, 4}' and so on), which do not
%% go out in parts. For sockets of processes and of reactors, from any process.
%%
%% The idea is Zhi Jia Wang's patch of OTP for servers that must not block on a slow reader.
-spec send_nowait(weir_tcp:socket(), iodata()) ->
    {ok, BytesTaken :: non_neg_integer()} | {error, closed | inet:posix()}.
send_nowait(?SOCKET(Handle), Data) ->
    weir_nif:send_now(Handle, Data).

%% @doc Tells the caller, once, when the kernel takes output and nothing is queued: by the message
%% `{weir_writable, Socket}', or by `handle_writable' if the caller is the socket's reactor. A close of the socket ends
%% the wait too; the next send then returns the error. A later call, by any process, replaces this one.
-spec notify_writable(weir_tcp:socket()) -> ok | {error, closed | inet:posix()}.
notify_writable(?SOCKET(Handle)) ->
    weir_nif:notify_writable(Handle).

%%% Listeners.

%% @doc Starts a listener: it accepts connections on a port. A process on the scheduler that polls the socket serves each.
%% `Name' is any term; the options and kinds of handlers are described at {@link weir_listener:options()} and {@link
%% weir_listener:handler()}. The listener lives until {@link stop_listener/1}, also when the caller ends.
%%
%% Errors: `{bad_option, Option, Value, Allowed}'; `{already_started, Pid}'; `no_native_part' on a system without it;
%% `{not_started, weir}' and `{not_started, ssl}'; those of `gen_tcp:listen/2', of which `eaddrinuse' can also mean that other
%% sockets with SO_REUSEPORT listen there.
-spec start_listener(weir_listener:name(), weir_listener:options(), weir_listener:handler(), Args :: term()) ->
    {ok, pid()} | {error, weir_listener:bad_option() | weir_listener:not_started() | term()}.
start_listener(Name, Options, Handler, Args) -> weir_listener:start(Name, Options, Handler, Args).

%% @doc A child specification of a listener, for your own supervisor. Its start returns the errors of {@link
%% start_listener/4}. The supervisor stops it, not {@link stop_listener/1}. If Weir is stopped and started again meanwhile, it
%% listens again.
-spec child_spec(weir_listener:name(), weir_listener:options(), weir_listener:handler(), Args :: term()) ->
    supervisor:child_spec().
child_spec(Name, Options, Handler, Args) -> weir_listener:child_spec(Name, Options, Handler, Args).

%% @doc Stops a listener. Its connections get the exit signal `shutdown', and are killed after the time of the option
%% `shutdown'; returns when all have ended, their relays too. A process whose connection is closed already is not one of them. To wait
%% for connections instead, see {@link drain_listener/2}.
%% Errors: `{no_listener, Name}', also for one of {@link child_spec/4}.
-spec stop_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener()}.
stop_listener(Name) -> weir_listener:stop(Name).

%% @doc Closes the listening sockets; connections go on. The kernel resets connections in the backlog.
-spec suspend_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener()}.
suspend_listener(Name) -> weir_listener:suspend(Name).

%% @doc Listens again, on the same port. Errors: `{no_listener, Name}', and those of `gen_tcp:listen/2', such as
%% `eaddrinuse' if another program has taken the port.
-spec resume_listener(weir_listener:name()) -> ok | {error, weir_listener:no_listener() | term()}.
resume_listener(Name) -> weir_listener:resume(Name).

%% @doc Suspends a listener and waits until its connections are closed, relays of them too. Connections in the backlog are
%% accepted before, unless `max_connections' keeps them waiting. After `Timeout' milliseconds the error says how many are not closed.
-spec drain_listener(weir_listener:name(), timeout()) ->
    ok | {error, {timeout, Remaining :: pos_integer()} | weir_listener:no_listener()}.
drain_listener(Name, Timeout) -> weir_listener:drain(Name, Timeout).

%% @doc The names of all listeners.
-spec listeners() -> [weir_listener:name()].
listeners() -> weir_listener:names().

%% @doc The state and the counters of a listener. Cheap.
-spec info(weir_listener:name()) -> weir_listener:info() | {error, weir_listener:no_listener()}.
info(Name) -> weir_listener:info(Name).

%% @doc How long replies of a listener took, from its start on, if it measures that: `weir:set_options(Name, #{measure => true})' begins
%% it, also for connections that there are. What happened in a second is the difference of two calls; `weir_scope' makes the table of
%% tcprstat of them.
%%
%% A reply is timed as tcprstat does it: from the last bytes read before it to its first ones written, or, in a relay whose client came
%% through the listener, read from the server. Bytes that wait in the kernel are not seen, nor messages of a group.
-spec latency(weir_listener:name()) -> weir_listener:latency() | {error, weir_listener:no_listener()}.
latency(Name) -> weir_listener:latency(Name).

%% @doc The connections of a listener, each with the process that it was accepted for. Walks the table of sockets, as
%% {@link sockets/0}. Those that are relayed are among {@link relays/0} instead.
-spec connections(weir_listener:name()) ->
    [{weir_tcp:socket(), pid()}] | {error, weir_listener:no_listener()}.
connections(Name) -> weir_listener:connections(Name).

%% @doc Changes options of a listener while it runs. This closes nothing and refuses nothing: existing connections keep
%% their options, connections that begin when this has returned have the new ones.
%%
%% `Changes' is a map of {@link weir_listener:options()}, and may have `handler' and `args' as well. Other options stay;
%% within `socket_opts', each option that is not named stays. All values are checked as by {@link start_listener/4}; if one is
%% wrong, nothing changes. The one exception is a socket option that the kernel refuses on a listening socket: the options
%% before it in the list are set.
%%
%% `port', `ip' and `fd' cannot change. Of a listener for reactors only `socket_opts', `max_connections', `overload',
%% `max_rate', `per_address', `allow', `deny', `measure' and `shutdown' can.
%%
%% Errors: `{bad_option, Option, Value, Allowed}', `{no_listener, Name}', `{not_started, ssl}'.
-spec set_options(weir_listener:name(), weir_listener:changes()) ->
    ok | {error, weir_listener:bad_option() | weir_listener:no_listener() | weir_listener:not_started()}.
set_options(Name, Changes) -> weir_listener:set_options(Name, Changes).

%% @doc Sets the most connections of a listener: {@link set_options/2} of `max_connections'. Existing connections stay.
-spec set_max_connections(weir_listener:name(), non_neg_integer() | infinity) ->
    ok | {error, weir_listener:bad_option() | weir_listener:no_listener()}.
set_max_connections(Name, Max) -> weir_listener:set_options(Name, #{max_connections => Max}).

%% @doc The port of a listener, also while it is suspended; `undefined' for a unix socket.
-spec get_port(weir_listener:name()) -> inet:port_number() | undefined | {error, weir_listener:no_listener()}.
get_port(Name) -> weir_listener:port(Name).

%% @doc In a process that `start_link(Name, Transport, Args)' has started: waits for the connection, reads its PROXY header
%% and negotiates TLS if the listener says so. The same as `ranch:handshake/1', which works as well where ranch is there.
%% A peer that fails at that ends the process, with reason `normal'.
-spec handshake(weir_listener:name()) -> {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name) -> weir_connection:handshake(Name).

%% @doc {@link handshake/1} with options of `ssl:handshake/3', which come before those of the listener.
-spec handshake(weir_listener:name(), [ssl:tls_server_option()]) ->
    {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name, Options) -> weir_connection:handshake(Name, Options).

%% @doc The PROXY header of the connection that the calling process serves, if its listener has `proxy_protocol'.
-spec proxy_header() -> {ok, weir_proxy_header:header()} | undefined.
proxy_header() -> weir_connection:proxy_header().

%%% Relays.

%% @doc The same as {@link relay/3} without options.
-spec relay(weir_tcp:socket(), weir_tcp:socket() | weir_relay:server()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused()}.
relay(A, B) ->
    weir_relay:start(A, B, #{}).

%% @doc Joins two connections: native code copies the bytes of each to the other, and no process runs for them.
%%
%% Both sockets must be the caller's, connected, and plain: TCP over IPv4 or IPv6 or local, in any mixture, but not under
%% `ssl'. Afterwards they are closed for all processes, and their monitors fire. Bytes that were read but not delivered, and
%% bytes that were queued for sending, go along in order; put bytes that the caller has received into
%% `prefix'. So make the sockets passive before: data that comes as a message is not relayed.
%%
%% In place of B there may be `{connect, Server, Timeout}' with `{Address, Port}' or `{local, Path}': then the relay connects, with
%% `nodelay', and begins in the same call if the server is on the same machine. That costs half of a connect by gen_tcp and a relay.
%%
%% The end of one direction is passed on and the other goes on (half-close); a reset is passed on as a reset. A side that
%% takes nothing stops the other: the relay reads only what it has room for. When both directions have ended, or at the first
%% failure, the owner (the caller, if the option `owner' names no other process) gets
%% ```
%% {weir_relay, Relay, closed, Statistics}
%% {weir_relay, Relay, {error, Reason}, Statistics}
%% '''
%% with `timeout' or an `inet:posix()' (mostly `econnreset') as the reason. The statistics are those of {@link
%% weir_relay:statistics()}.
%%
%% Options:
%% <dl>
%% <dt>`prefix' (none)</dt><dd>goes to B first, as if it had just come from A</dd>
%% <dt>`buffer' (65536)</dt><dd>bytes of each direction that may have been read and not written, up to 1048576. A
%%   direction that is spliced may hold 262144 by reference, unless another number than the default is given</dd>
%% <dt>`splice' (`auto')</dt><dd>`true' has bytes go by splice(2), through a pipe of the kernel, which takes two
%%   descriptors for each direction; `auto' does so while a direction is bulk, where it is cheaper, and `false' never</dd>
%% <dt>`idle_timeout' (`infinity')</dt><dd>milliseconds without a byte in either direction that end the relay</dd>
%% <dt>`half_close_timeout' (`infinity')</dt><dd>milliseconds that one direction may go on after the other has ended</dd>
%% <dt>`detached' (`false')</dt><dd>the relay goes on when its owner dies; otherwise it ends then</dd>
%% <dt>`owner' (the caller)</dt><dd>the process of this node that gets the message when the relay ends</dd>
%% <dt>`latency' (none)</dt><dd>what times of replies of B are added to as well: {@link weir_relay:new_latency/0}</dd>
%% </dl>
%%
%% Errors, after which both sockets are as they were: `{connect, Reason}' for a server that was not reached, `timeout', an
%% `inet:posix()' or, if Weir stops meanwhile, `closed'. `{Socket, Reason}' names the one that is `closed', `not_owner' (of
%% another process), `reactor' (of the reactor that calls: the connection leaves it first), `enotconn' (not connected, or no longer), `ebusy'
%% (a file is being sent on it) or `epipe' (it is being shut down for writing). `{bad_socket, Term, Needed}' is for a term that is no socket
%% of Weir, or the same socket twice, `{bad_option, Name, Value, Allowed}' for a wrong option, and `no_native_part' for a system without
%% it; a posix reason is the kernel's, or `esrch' for an owner that is dead, unless the relay is `detached'.
-spec relay(weir_tcp:socket(), weir_tcp:socket() | weir_relay:server(), weir_relay:options()) ->
    {ok, weir_relay:relay()} | {error, weir_relay:refused()}.
relay(A, B, Options) ->
    weir_relay:start(A, B, Options).

%% @doc Ends a relay, from any process; nothing happens if it has ended. Both connections are closed. What was read from
%% one and not written to the other is lost; in that case the other connection is reset, so that its peer notices the loss. The
%% owner gets `{weir_relay, Relay, closed, Statistics}'.
-spec stop_relay(weir_relay:relay()) -> ok.
stop_relay(Relay) ->
    weir_relay:stop(Relay).

%% @doc The statistics of a relay until now, its owner and its pollset.
-spec relay_info(weir_relay:relay()) -> {ok, weir_relay:info()} | {error, closed}.
relay_info(Relay) ->
    weir_relay:info(Relay).

%% @doc All relays, at the cost of {@link sockets/0}.
-spec relays() -> [weir_relay:relay()].
relays() ->
    weir_relay:list().
