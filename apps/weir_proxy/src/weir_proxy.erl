%% @doc A TCP proxy and load balancer. Its configuration can change while it runs, without closing a connection.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_proxy),
%% ok = weir_proxy:start(main, #{
%%     frontends => #{web => #{listen => "0.0.0.0:80", backend => web}},
%%     backends => #{web => #{servers => ["10.0.0.1:80", "10.0.0.2:80"]}}
%% }).
%% '''
%%
%% A connection is accepted on the scheduler that serves it. Rules choose its backend, and the backend's balancer
%% chooses a server. Then native code relays the bytes ({@link weir:relay/3}) and the connection's process ends. The
%% guide (`docs/guide/proxy.md') lists all options.
-module(weir_proxy).

-export([start/2]).
-export([take_over/2]).
-export([await_successor/1]).
-export([change/2]).
-export([stop/1]).
-export([stop/2]).
-export([proxies/0]).
-export([info/1]).
-export([servers/2]).
-export([latency/1]).
-export([sessions/1]).
-export([drain/3]).
-export([drain/4]).
-export([disable/3]).
-export([enable/3]).
-export([set_weight/4]).
-export([close_sessions/3]).

-export_type([name/0, error/0, info/0, session/0]).

-include("weir_proxy_session.hrl").

-type name() :: term().
%% The name of a proxy: any term.

-type error() ::
    weir_proxy_config:bad_option()
    | {already_started, name()}
    | {no_proxy, name()}
    | {no_backend, binary()}
    | {no_server, binary()}
    | {listen, Address :: binary(), Reason :: term()}
    | {log, FileOrAddress :: binary(), Reason :: term()}
    | {take_over, Control :: binary(), Reason :: term()}
    | {not_started, weir_proxy | weir}
    | no_native_part.
%% `bad_option': the path to the wrong option, its value, and what is allowed. `listen': the address, and the reason as
%% in {@link weir:start_listener/4}. `log': the access log that cannot be written. `take_over': the control socket of
%% the other proxy, and why that proxy did not leave.

-type info() :: #{
    frontends := #{binary() => map()},
    backends := #{binary() => map()},
    sessions := non_neg_integer(),
    log_dropped := non_neg_integer()
}.
%% Frontends with their addresses (`listen'), backends with their `servers', and the counters of each. `log_dropped':
%% lines of the access log that were dropped since it was opened.

-type session() :: #{
    frontend := binary(),
    backend := binary(),
    server := binary(),
    client := binary(),
    address := binary(),
    age_ms := non_neg_integer(),
    bytes_in := non_neg_integer(),
    bytes_out := non_neg_integer(),
    idle_ms := non_neg_integer()
}.

%% @doc Starts a proxy. Checks the whole configuration first ({@link weir_proxy_config}). If it is wrong, or an address
%% cannot be listened on, returns an error and leaves nothing running.
-spec start(name(), map()) -> ok | {error, error()}.
start(Name, Given) -> start(Name, Given, start).

%% @doc Starts a proxy in place of one in another program: a new version takes over from an old one, and no client is
%% refused. The other program runs on this machine, as the same user, with the same `control' socket. Both listen until
%% the new proxy is ready. Then the old one accepts the connections in its backlogs, refuses new ones, and keeps those
%% that it has; see {@link await_successor/1}. If there is no other proxy, this is {@link start/2}.
%%
%% If it fails, the old proxy goes on. The connections that the new one has accepted are served first, for at most 30
%% seconds.
-spec take_over(name(), map()) -> ok | {error, error()}.
take_over(Name, Given) -> start(Name, Given, take_over).

%% @doc Returns when another program has taken over from a proxy. Call {@link stop/2} then, to wait for its
%% connections.
-spec await_successor(name()) -> ok | {error, {no_proxy, name()}}.
await_successor(Name) -> weir_proxy_store:call(Name, await_successor).

start(Name, Given, How) ->
    case {weir_proxy_config:new(Given), weir_proxy_store:saved({proxy, Name}), whereis(weir_proxy_instances)} of
        {{error, _} = Error, _, _} -> Error;
        {_, {ok, _}, _} -> {error, {already_started, Name}};
        {{ok, #{control := off}}, _, _} when How =:= take_over ->
            {error, {bad_option, [control], off, "the path of the other proxy's control socket"}};
        {_, none, undefined} -> {error, {not_started, weir_proxy}};
        {{ok, Config}, none, _} ->
            case weir_proxy_sup:start_proxy(Name, {How, Config}) of
                {ok, _} -> ok;
                {error, {shutdown, Reason}} -> {error, Reason}
            end
    end.

%% @doc Changes the configuration of a running proxy. Checks the whole new configuration first. If it is wrong, or a
%% new address cannot be listened on, returns an error and changes nothing.
%%
%% Addresses that stay keep their listening sockets. Existing connections go on, even if the new configuration does not
%% have their frontend, backend or server. Servers that keep their name keep their state, their counters, and what an
%% operator has set.
-spec change(name(), map()) -> ok | {error, error()}.
change(Name, Given) ->
    case weir_proxy_config:new(Given) of
        {ok, _} = Checked -> weir_proxy_store:call(Name, {change, fun() -> Checked end});
        {error, _} = Error -> Error
    end.

%% @doc Stops a proxy and closes its connections.
-spec stop(name()) -> ok | {error, {no_proxy, name()}}.
stop(Name) -> weir_proxy_store:call(Name, stop).

%% @doc Stops a proxy when its connections have ended, including those without a server yet, or after `Timeout'
%% milliseconds. New connections are refused; those in the backlogs are still accepted. Returns
%% `{error, {timeout, Count}}' if it has closed `Count' connections at the timeout.
-spec stop(name(), timeout()) -> ok | {error, {no_proxy, name()} | {timeout, pos_integer()}}.
stop(Name, Timeout) ->
    case weir_proxy_store:call(Name, suspend) of
        ok ->
            Left = weir_proxy_listeners:await_end(Name, deadline(Timeout)),
            case {stop(Name), Left} of
                {ok, 0} -> ok;
                {ok, _} -> {error, {timeout, Left}};
                {{error, _} = Error, _} -> Error
            end;
        {error, _} = Error ->
            Error
    end.

deadline(infinity) -> infinity;
deadline(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

%% @doc Returns the names of all proxies.
-spec proxies() -> [name()].
proxies() -> weir_proxy_store:proxies().

%% @doc Returns the frontends and backends of a proxy with their counters.
-spec info(name()) -> {ok, info()} | {error, {no_proxy, name()}}.
info(Name) -> weir_proxy_store:call(Name, info).

%% @doc Returns the servers of a backend with their counters and states: `up', `down' (by its checks or its agent),
%% `failing' (by the option `passive': connections to it fail), `drain', `maint' (disabled), `unresolved' (its name has
%% no address).
-spec servers(name(), Backend :: atom() | iodata()) -> {ok, [map()]} | {error, {no_backend, binary()}}.
servers(Name, Backend) ->
    case weir_proxy_backend:servers(Name, text(Backend)) of
        {error, _} = Error -> Error;
        Servers -> {ok, Servers}
    end.

%% @doc Returns how long servers took to reply, for backends with the option `measure'. Counts from the moment when the
%% option was set; subtract two results to measure an interval. `weir_scope' makes a table like that of tcprstat from
%% them. Cheap: it asks no process.
-spec latency(name()) -> #{Backend :: binary() => #{Server :: binary() => weir_listener:latency()}}.
latency(Name) ->
    maps:from_list([
        {Backend, Servers}
     || {Backend, Members} <- weir_proxy_store:members(Name),
        Servers <- [
            maps:from_list([
                {weir_proxy_server:name(Member), Latency}
             || Member <- Members, Latency = #{} <- [weir_proxy_server:latency(Member)]
            ])
        ],
        map_size(Servers) > 0
    ]).

%% @doc Returns the sessions of a proxy. It asks each relay for its counters, which takes long with many sessions.
-spec sessions(name()) -> [session()].
sessions(Name) ->
    Now = erlang:system_time(millisecond),
    [
        #{
            frontend => Frontend,
            backend => Backend,
            server => Server,
            client => weir_proxy_address:to_text(Client),
            address => weir_proxy_address:to_text(Address),
            age_ms => max(0, Now - Accepted),
            bytes_in => In,
            bytes_out => Out,
            idle_ms => Idle div 1000
        }
     || #session{
            relay = Relay,
            frontend = Frontend,
            backend = Backend,
            server = Server,
            client = Client,
            address = Address,
            accepted = Accepted
        } <- weir_proxy_sessions:list(Name),
        {ok, #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}, idle_us := Idle}} <- [weir:relay_info(Relay)]
    ].

%% @doc Drains a server: it gets no new connections, and its sessions go on.
-spec drain(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
drain(Name, Backend, Server) -> set(Name, Backend, Server, {admin, drain}).

%% @doc Drains a server, and closes its sessions evenly over `Within' milliseconds, even if it is enabled again before
%% they have passed. Returns the number of sessions. The error `bad_option' means that `Within' is out of range.
-spec drain(name(), atom() | iodata(), atom() | iodata(), Within :: non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, {no_backend | no_server, binary()} | weir_proxy_config:bad_option()}.
drain(Name, Backend, Server, Within) when is_integer(Within), Within >= 0, Within =< 16#ffffffff ->
    case drain(Name, Backend, Server) of
        ok -> {ok, weir_proxy_sessions:close_within(Name, {server, text(Backend), text(Server)}, Within)};
        {error, _} = Error -> Error
    end;
drain(_Name, _Backend, _Server, Within) ->
    {error, {bad_option, [within], Within, "a number of milliseconds from 0 to 4294967295"}}.

%% @doc Disables a server: it gets no new connections and is not checked. Its sessions go on.
-spec disable(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
disable(Name, Backend, Server) -> set(Name, Backend, Server, {admin, maint}).

%% @doc Enables a server that was drained or disabled.
-spec enable(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
enable(Name, Backend, Server) -> set(Name, Backend, Server, {admin, ready}).

%% @doc Sets the weight of a server, until a new configuration changes its configured weight. With 0 it gets no new
%% connections.
-spec set_weight(name(), atom() | iodata(), atom() | iodata(), 0..256) ->
    ok | {error, {no_backend | no_server, binary()} | weir_proxy_config:bad_option()}.
set_weight(Name, Backend, Server, Weight) when is_integer(Weight), Weight >= 0, Weight =< 256 ->
    set(Name, Backend, Server, {weight, Weight});
set_weight(_Name, Backend, Server, Weight) ->
    {error, {bad_option, [backends, text(Backend), servers, text(Server), weight], Weight, "a number from 0 to 256"}}.

%% @doc Closes all sessions of a server. Returns how many there were.
-spec close_sessions(name(), atom() | iodata(), atom() | iodata()) -> non_neg_integer().
close_sessions(Name, Backend, Server) ->
    weir_proxy_sessions:close(Name, {server, text(Backend), text(Server)}, operator).

set(Name, Backend, Server, What) -> weir_proxy_backend:set(Name, text(Backend), text(Server), What).

text(Name) when is_atom(Name) -> atom_to_binary(Name);
text(Name) -> iolist_to_binary(Name).
