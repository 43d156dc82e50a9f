%% @doc Listeners: their options, handlers and information. The functions to use are in {@link weir}.
%%
%% A listener accepts connections on a port. Each connection is served on the scheduler that polls its socket. A
%% listener has a listening socket and a worker for each online scheduler, and adapts when their number changes.
%% Connections do not depend on the listener's process: it may die at any time, and its successor listens on the same
%% port.
%%
%% Listeners and connections emit events: see {@link weir_event}.
-module(weir_listener).

-include("weir_socket.hrl").

-export([start/4]).
-export([child_spec/1]).
-export([child_spec/4]).
-export([start_link/4]).
-export([stop/1]).
-export([suspend/1]).
-export([resume/1]).
-export([drain/2]).
-export([drain_until/2]).
-export([names/0]).
-export([info/1]).
-export([latency/1]).
-export([connections/1]).
-export([relays/1]).
-export([set_options/2]).
-export([port/1]).

-export_type([name/0, handler/0, connection/0, options/0, changes/0, prefix/0, info/0, latency/0]).
-export_type([bad_option/0, no_listener/0, not_started/0]).

-type name() :: term().

-type handler() :: fun((connection(), Args :: term()) -> term()) | module().
%% The handler of connections:
%% <ul>
%% <li>a fun, called with the socket and the listener's arguments in a process for each connection, which owns the
%% socket. When it returns, the connection is closed;</li>
%% <li>a module with ranch's protocol callback `start_link(Name, Transport, Args)', see {@link weir:handshake/1};</li>
%% <li>a module of the behaviour {@link weir_reactor}, which serves many connections in one process for each online
%% scheduler.</li>
%% </ul>

-type connection() :: weir_tcp:socket() | ssl:sslsocket().
%% The argument of a fun: a socket of gen_tcp, passive unless `socket_opts' say otherwise; with `tls' a socket of ssl.

-type prefix() :: inet:ip_address() | string() | {inet:ip_address(), Bits :: 0..128}.
%% A prefix of addresses: `"10.0.0.0/8"', `{{10, 0, 0, 0}, 8}', `"::1"', `{127, 0, 0, 1}'.

-type options() :: #{
    port => inet:port_number(),
    ip => inet:ip_address() | string() | any | loopback | {local, binary() | string()},
    fd => non_neg_integer(),
    shared => boolean(),
    mode => 0..8#777,
    socket_opts => [gen_tcp:listen_option()],
    tls => [ssl:tls_server_option()] | undefined,
    handshake_timeout => timeout(),
    proxy_protocol => boolean(),
    max_connections => non_neg_integer() | infinity,
    overload => pause | reset,
    max_rate => pos_integer() | infinity,
    per_address => pos_integer() | infinity,
    allow => [prefix()],
    deny => [prefix()],
    placement => local | least_loaded,
    measure => boolean(),
    affinity => soft | bound,
    shutdown => timeout() | brutal_kill,
    balance => off | #{interval := pos_integer(), threshold := pos_integer()},
    reactor => map()
}.
%% Defaults are in parentheses.
%% <dl>
%% <dt>`port' (0)</dt><dd>0: the kernel chooses a free port, which stays the same while the listener exists.</dd>
%% <dt>`ip' (`any')</dt><dd>Where to listen: an address as a tuple or as text, `any', or `loopback'. `{local, Path}'
%% is a Unix socket. Its file stays when the listener ends; the next listener replaces it.</dd>
%% <dt>`fd'</dt><dd>A descriptor that another program, such as an init system, has opened and bound. Weir duplicates
%% it and never closes it.</dd>
%% <dt>`shared' (`false')</dt><dd>Other listeners of the same user may use the address too, also in other programs;
%% the kernel distributes connections. Use it to replace a program by its new version. A Unix socket instead passes to
%% the new listener; the old one keeps its connections.</dd>
%% <dt>`mode'</dt><dd>The permissions of a Unix socket's file, such as `8#600', which decide who may connect. They are
%% set before it listens. Without this option the program's umask applies.</dd>
%% <dt>`socket_opts'</dt><dd>Options of `gen_tcp:listen/2'. They follow those of ranch: `binary', `{active, false}',
%% `{reuseaddr, true}', `{nodelay, true}', `{backlog, 1024}', `{send_timeout, 30000}' and `{send_timeout_close,
%% true}'. For a module with `start_link/3' without TLS they also follow `{buffer, 1460}', which Cowboy's limits on
%% headers need.</dd>
%% <dt>`tls' (`undefined')</dt><dd>Options of `ssl:handshake/3': connections use TLS. Start the application `ssl'
%% first. The start of the listener checks the values and reads certificates and keys. Not for reactors.</dd>
%% <dt>`handshake_timeout' (5000)</dt><dd>Milliseconds for the PROXY header and the TLS handshake, each.</dd>
%% <dt>`proxy_protocol' (`false')</dt><dd>Connections begin with a PROXY header, version 1 or 2; others are
%% closed.</dd>
%% <dt>`max_connections' (`infinity'), `overload' (`pause')</dt><dd>The connection limit. Further connections wait in
%% the backlog (`pause') or are reset (`reset'). A connection counts until it is closed, also in a relay ({@link
%% weir:relay/3}).</dd>
%% <dt>`max_rate' (`infinity')</dt><dd>Connections accepted per second; others wait in the backlog.</dd>
%% <dt>`per_address' (`infinity')</dt><dd>Connections per address; further ones are reset.</dd>
%% <dt>`allow', `deny' (`[]')</dt><dd>Prefixes of addresses whose connections are accepted or reset. The longest match
%% decides; a prefix on both lists denies. Without a match an address is allowed, unless there is an `allow'.</dd>
%% <dt>`placement' (`local')</dt><dd>`local': a connection stays on the scheduler that accepts it. `least_loaded': it
%% goes to the scheduler with the fewest sockets. Not for reactors.</dd>
%% <dt>`measure' (`false')</dt><dd>Whether to measure reply times: {@link weir:latency/1}. Costs two clock reads for a
%% request and its reply, and 110 KiB at most; nothing while it is off. Reactors also measure their callbacks: {@link
%% weir_reactor:measure/2}.</dd>
%% <dt>`affinity' (`soft')</dt><dd>`soft': the process of a connection starts on the scheduler of its socket, and the
%% VM may move it. `bound': it stays there, and does not run while that scheduler is offline.</dd>
%% <dt>`shutdown' (5000)</dt><dd>Milliseconds for the processes of connections to end when the listener is
%% stopped.</dd>
%% <dt>`balance' (`off')</dt><dd>Every `interval' milliseconds move sockets from the busiest pollset to the idlest, if
%% the busiest does more than `threshold' percent more. Not for reactors.</dd>
%% <dt>`reactor' (`#{}')</dt><dd>Options of {@link weir_reactor:start_link/1}, if the handler is a reactor:
%% `affinity', `tick', `long_callback_ms', `max_send_queue'.</dd>
%% </dl>

-type changes() :: map().
%% The argument of {@link weir:set_options/2}: options of {@link options()}, and `handler' and `args'.

-type info() :: #{
    name := name(),
    pid := pid(),
    status := running | suspended,
    ip := any | loopback | undefined | inet:ip_address() | inet:local_address() | map(),
    port := inet:port_number() | undefined,
    handler := {function, fun((_, _) -> term())} | {protocol | reactor, module()},
    connections := non_neg_integer(),
    waiting := non_neg_integer(),
    backlog => non_neg_integer(),
    max_backlog => non_neg_integer(),
    max_connections := non_neg_integer() | infinity,
    accepted := non_neg_integer(),
    overload := non_neg_integer(),
    denied := non_neg_integer(),
    crowded := non_neg_integer(),
    full_pauses := non_neg_integer(),
    rate_pauses := non_neg_integer(),
    failed_handshakes := non_neg_integer(),
    measured := boolean(),
    replies := non_neg_integer(),
    reply_ns := non_neg_integer()
}.
%% `connections' are accepted and not closed; `waiting' are those without a process yet. `backlog' are in the kernel
%% and not yet accepted, and beyond `max_backlog' the kernel drops connections; both only for TCP, and while the
%% listener has sockets. The others count since the start of the listener. `accepted': connections. Reset connections:
%% `overload' (above `max_connections'), `denied' (by `allow' or `deny') and `crowded' (above `per_address').
%% `full_pauses' and `rate_pauses': how often `max_connections' and `max_rate' have paused accepting.
%% `failed_handshakes': accepted connections whose TLS handshake or PROXY header failed. `replies': measured replies,
%% and `reply_ns' the sum of their times in nanoseconds. `measured' is the option `measure'.

-type latency() :: #{
    measured := boolean(),
    replies := non_neg_integer(),
    reply_ns := non_neg_integer(),
    times := [{Nanoseconds :: non_neg_integer(), Count :: pos_integer()}]
}.
%% Reply times since the start of a listener. `times' is a histogram, within 1.6 percent or 64 ns; 137 seconds or more
%% count as 137 seconds.

-type bad_option() :: weir_checked_options:bad_option().
%% A wrong or unknown option, and the allowed values. In a list, Value is the wrong element.

-type no_listener() :: {no_listener, name()}.
%% No listener of this name is running.

-type not_started() :: {not_started, weir | ssl}.
%% Start this application first.

%% A draining listener waits HANDSHAKE_MS for TCP handshakes in progress, then at most BACKLOG_MS until its backlog is
%% accepted: a busy machine needs time.
-define(HANDSHAKE_MS, 50).
-define(BACKLOG_MS, 5000).

%% Interval between checks while draining.
-define(DRAIN_MS, 20).

%% @private
-spec start(name(), options(), handler(), term()) -> {ok, pid()} | {error, term()}.
start(Name, Options, Handler, Args) ->
    case is_possible() of
        ok -> weir_listener_sup:start_listener(child_spec(Name, Options, Handler, Args));
        {error, _} = Error -> Error
    end.

is_possible() ->
    case whereis(weir_listener_sup) of
        undefined -> {error, {not_started, weir}};
        _ -> is_native()
    end.

is_native() ->
    case weir_nif:available() of
        true -> ok;
        false -> {error, no_native_part}
    end.

%% @doc The same as {@link weir:child_spec/4}, for Elixir: `{:weir_listener, {name, options, handler, args}}' in a
%% list of children.
-spec child_spec({name(), options(), handler(), Args :: term()}) -> supervisor:child_spec().
child_spec({Name, Options, Handler, Args}) ->
    child_spec(Name, Options, Handler, Args).

%% @private
%% terminate/2 has its own time limit for connections.
-spec child_spec(name(), options(), handler(), term()) -> supervisor:child_spec().
child_spec(Name, Options, Handler, Args) ->
    #{id => {?MODULE, Name}, start => {?MODULE, start_link, [Name, Options, Handler, Args]}, shutdown => infinity}.

%% @private
-spec start_link(name(), options(), handler(), term()) -> {ok, pid()} | {error, term()}.
start_link(Name, Options, Handler, Args) ->
    case {is_possible(), weir_listener_options:new(Options, Handler, Args)} of
        {ok, {ok, Normal}} -> weir_listener_process:start_link(Name, Normal);
        {ok, {error, _} = Error} -> Error;
        {{error, _} = Error, _} -> Error
    end.

%% @private
-spec stop(name()) -> ok | {error, no_listener()}.
stop(Name) -> weir_listener_sup:stop_listener(Name).

%% @private
-spec suspend(name()) -> ok | {error, no_listener()}.
suspend(Name) -> weir_listener_names:call(Name, suspend).

%% @private
-spec resume(name()) -> ok | {error, term()}.
resume(Name) -> weir_listener_names:call(Name, resume).

%% @private
-spec drain(name(), timeout()) -> ok | {error, {timeout, Remaining :: pos_integer()} | no_listener()}.
drain(Name, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    Deadline =
        case Timeout of
            infinity -> infinity;
            _ -> erlang:monotonic_time(millisecond) + Timeout
        end,
    _ = weir_listener_names:call(Name, close_backlog),
    ok = timer:sleep(min(?HANDSHAKE_MS, Timeout)),
    ok = accept_backlog(Name, min(?BACKLOG_MS, Timeout) div ?DRAIN_MS),
    %% The listener may be stopped at any time.
    suspend_and_drain(weir_listener_names:call(Name, listener), Name, Deadline).

suspend_and_drain({ok, Listener}, Name, Deadline) ->
    case suspend(Name) of
        ok -> drain_until(Listener, Deadline);
        {error, _} = Error -> Error
    end;
suspend_and_drain({error, _} = Error, _Name, _Deadline) ->
    Error.

accept_backlog(_Name, 0) ->
    ok;
accept_backlog(Name, Looks) ->
    case {weir_listener_names:call(Name, has_backlog), info(Name)} of
        {true, #{connections := Now, max_connections := Most}} when Now < Most ->
            ok = timer:sleep(?DRAIN_MS),
            accept_backlog(Name, Looks - 1);
        _ ->
            ok
    end.

%% @private
%% May wait long, so each round continues in the current code.
-spec drain_until(weir_nif:listener(), integer() | infinity) -> ok | {error, {timeout, pos_integer()}}.
drain_until(Listener, Deadline) ->
    case weir_nif:listener_info(Listener) of
        #{connections := 0} ->
            ok;
        #{connections := Remaining} ->
            %% In the term order any number is smaller than an atom.
            case erlang:monotonic_time(millisecond) < Deadline of
                true ->
                    timer:sleep(?DRAIN_MS),
                    ?MODULE:drain_until(Listener, Deadline);
                false ->
                    {error, {timeout, Remaining}}
            end
    end.

%% @private
-spec names() -> [name()].
names() -> [Name || {Name, _} <- weir_listener_names:all()].

%% @private
-spec info(name()) -> info() | {error, no_listener()}.
info(Name) -> weir_listener_names:call(Name, info).

%% @private
-spec latency(name()) -> latency() | {error, no_listener()}.
latency(Name) ->
    case weir_listener_names:call(Name, listener) of
        {ok, Listener} ->
            {Sum, Times} = weir_nif:listener_latency(Listener),
            #{measured := Measured} = weir_nif:listener_info(Listener),
            #{
                measured => Measured,
                replies => lists:sum([Count || {_, Count} <- Times]),
                reply_ns => Sum,
                times => Times
            };
        {error, _} = Error ->
            Error
    end.

%% @private
-spec connections(name()) -> [{weir_tcp:socket(), pid()}] | {error, no_listener()}.
connections(Name) ->
    case weir_listener_names:call(Name, listener) of
        {ok, Listener} -> [{?SOCKET(Handle), Pid} || {Handle, Pid, _} <- weir_listener_connections:all(Listener)];
        {error, _} = Error -> Error
    end.

%% @private
%% The relayed connections, by their relays.
-spec relays(name()) -> [{weir_relay:relay(), pid()}] | {error, no_listener()}.
relays(Name) ->
    case weir_listener_names:call(Name, listener) of
        {ok, Listener} -> weir_relay:of_listener(Listener);
        {error, _} = Error -> Error
    end.

%% @private
-spec set_options(name(), changes()) -> ok | {error, bad_option() | no_listener() | not_started()}.
set_options(Name, Changes) -> weir_listener_names:call(Name, {set_options, Changes}).

%% @private
-spec port(name()) -> inet:port_number() | undefined | {error, no_listener()}.
port(Name) -> weir_listener_names:call(Name, port).
