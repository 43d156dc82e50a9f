%% @doc A TCP proxy and load balancer whose configuration changes while it runs, with every connection kept.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_proxy),
%% ok = weir_proxy:start(main, #{
%%     frontends => #{web => #{listen => "0.0.0.0:80", backend => web}},
%%     backends => #{web => #{servers => ["10.0.0.1:80", "10.0.0.2:80"]}}
%% }).
%% '''
%%
%% A connection is accepted on the scheduler that serves it, goes by rules to a backend, and there to a server that takes
%% connections. Then native code relays it ({@link weir:relay/3}), and no process is left. The guide (`docs/guide/proxy.md') lists
%% all options.
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
%% Of a proxy: any term.

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
%% `bad_option': the path to the option that is wrong, its value, and what is allowed. `listen': an address that cannot be
%% listened on, and why, as {@link weir:start_listener/4} says. `log': an access log that cannot be written. `take_over': what the proxy
%% behind that control socket answers.

-type info() :: #{
    frontends := #{binary() => map()}, backends := #{binary() => map()}, sessions := non_neg_integer(), log_dropped := non_neg_integer()
}.
%% Frontends with their addresses (`listen'), backends with their `servers', and the numbers of all. `log_dropped': lines of the access
%% log that could not be written, since it was opened.

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

%% @doc Starts a proxy. The configuration is checked as a whole first ({@link weir_proxy_config}); if it is wrong, or an address
%% cannot be listened on, nothing is left of the attempt.
-spec start(name(), map()) -> ok | {error, error()}.
start(Name, Given) -> start(Name, Given, start).

%% @doc The same in place of a proxy of another program, of the same user on this machine, whose `control' is the same: a new version
%% takes over from an old one, and no client is refused. Both listen until the new one is ready. Then the old one accepts what its
%% backlogs hold, refuses what comes, and keeps its connections; see {@link await_successor/1}. Where there is no other, this starts a
%% proxy.
%%
%% If it fails the old one goes on. Clients that have come to the new one meanwhile are served first, for 30 seconds at most.
-spec take_over(name(), map()) -> ok | {error, error()}.
take_over(Name, Given) -> start(Name, Given, take_over).

%% @doc Returns when another program has taken over from a proxy. The caller may wait for its connections with {@link stop/2}.
-spec await_successor(name()) -> ok | {error, {no_proxy, name()}}.
await_successor(Name) -> weir_proxy_memory:call(Name, await_successor).

start(Name, Given, How) ->
    case {weir_proxy_config:new(Given), weir_proxy_memory:saved({proxy, Name}), whereis(weir_proxy_instances)} of
        {{error, _} = Error, _, _} -> Error;
        {_, {ok, _}, _} -> {error, {already_started, Name}};
        {{ok, #{control := off}}, _, _} when How =:= take_over ->
            {error, {bad_option, [control], off, "the control socket of the proxy that is taken over from"}};
        {_, none, undefined} -> {error, {not_started, weir_proxy}};
        {{ok, Config}, none, _} ->
            case weir_proxy_sup:start_proxy(Name, {How, Config}) of
                {ok, _} -> ok;
                {error, {shutdown, Reason}} -> {error, Reason}
            end
    end.

%% @doc Changes a proxy that runs to another configuration. It is checked as a whole before anything happens; if it is wrong, or a new
%% address cannot be listened on, nothing changes.
%%
%% Addresses that stay keep their listening sockets. Connections keep their relays, whatever becomes of their frontend, backend or
%% server: one that has ended in the new configuration gets no new connections, and its old ones go on. Servers that stay, by their
%% name, keep their state, their numbers, and what an operator has set.
-spec change(name(), map()) -> ok | {error, error()}.
change(Name, Given) ->
    case weir_proxy_config:new(Given) of
        {ok, _} = Checked -> weir_proxy_memory:call(Name, {change, fun() -> Checked end});
        {error, _} = Error -> Error
    end.

%% @doc Stops a proxy and ends its connections.
-spec stop(name()) -> ok | {error, {no_proxy, name()}}.
stop(Name) -> weir_proxy_memory:call(Name, stop).

%% @doc Stops a proxy when its connections have ended, those without a server yet too, or after so many milliseconds. What the backlogs
%% hold is accepted; new connections are refused meanwhile.
%% `{error, {timeout, HowMany}}' says how many connections were ended.
-spec stop(name(), timeout()) -> ok | {error, {no_proxy, name()} | {timeout, pos_integer()}}.
stop(Name, Timeout) ->
    case weir_proxy_memory:call(Name, suspend) of
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

%% @doc The names of all proxies.
-spec proxies() -> [name()].
proxies() -> weir_proxy_memory:proxies().

%% @doc A proxy as it is now.
-spec info(name()) -> {ok, info()} | {error, {no_proxy, name()}}.
info(Name) -> weir_proxy_memory:call(Name, info).

%% @doc The servers of a backend, with their states: `up', `down' (by its checks), `failing' (it refuses connections), `drain', `maint'
%% (disabled), `unresolved' (its name has no address).
-spec servers(name(), Backend :: atom() | iodata()) -> {ok, [map()]} | {error, {no_backend, binary()}}.
servers(Name, Backend) ->
    case weir_proxy_backend:servers(Name, text(Backend)) of
        {error, _} = Error -> Error;
        Servers -> {ok, Servers}
    end.

%% @doc How long the servers of a proxy took to reply, of backends with the option `measure': for each server from the time on at which that
%% was set. What happened in a second is the difference of two calls; `weir_scope' makes the table of tcprstat of them. Cheap; no process
%% is asked.
-spec latency(name()) -> #{Backend :: binary() => #{Server :: binary() => weir_listener:latency()}}.
latency(Name) ->
    maps:from_list([
        {Backend, Servers}
     || {Backend, Members} <- weir_proxy_memory:members(Name),
        Servers <- [maps:from_list([{weir_proxy_server:name(Member), Latency} || Member <- Members, Latency = #{} <- [weir_proxy_server:latency(Member)]])],
        map_size(Servers) > 0
    ]).

%% @doc The sessions of a proxy. It asks each relay for its counters: with many sessions this takes long.
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
     || #session{relay = Relay, frontend = Frontend, backend = Backend, server = Server, client = Client, address = Address,
            accepted = Accepted} <- weir_proxy_sessions:list(Name),
        {ok, #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}, idle_us := Idle}} <- [weir:relay_info(Relay)]
    ].

%% @doc Gives a server no new connections; those that it has go on.
-spec drain(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
drain(Name, Backend, Server) -> set(Name, Backend, Server, {admin, drain}).

%% @doc The same, and ends the sessions that it has, evenly over so many milliseconds, also where it is enabled before. Returns how
%% many there are.
-spec drain(name(), atom() | iodata(), atom() | iodata(), Within :: non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, {no_backend | no_server, binary()} | weir_proxy_config:bad_option()}.
drain(Name, Backend, Server, Within) when is_integer(Within), Within >= 0, Within =< 16#ffffffff ->
    case drain(Name, Backend, Server) of
        ok -> {ok, weir_proxy_sessions:close_within(Name, {server, text(Backend), text(Server)}, Within)};
        {error, _} = Error -> Error
    end;
drain(_Name, _Backend, _Server, Within) ->
    {error, {bad_option, [within], Within, "a number of milliseconds from 0 to 4294967295"}}.

%% @doc The same as {@link drain/3}, and ends the checks of the server.
-spec disable(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
disable(Name, Backend, Server) -> set(Name, Backend, Server, {admin, maint}).

%% @doc Gives a server connections again.
-spec enable(name(), atom() | iodata(), atom() | iodata()) -> ok | {error, {no_backend | no_server, binary()}}.
enable(Name, Backend, Server) -> set(Name, Backend, Server, {admin, ready}).

%% @doc Gives a server another weight, until a configuration gives it another one. 0 is no new connections.
-spec set_weight(name(), atom() | iodata(), atom() | iodata(), 0..256) ->
    ok | {error, {no_backend | no_server, binary()} | weir_proxy_config:bad_option()}.
set_weight(Name, Backend, Server, Weight) when is_integer(Weight), Weight >= 0, Weight =< 256 ->
    set(Name, Backend, Server, {weight, Weight});
set_weight(_Name, Backend, Server, Weight) ->
    {error, {bad_option, [backends, text(Backend), servers, text(Server), weight], Weight, "a number from 0 to 256"}}.

%% @doc Ends all sessions of a server; returns how many there were.
-spec close_sessions(name(), atom() | iodata(), atom() | iodata()) -> non_neg_integer().
close_sessions(Name, Backend, Server) -> weir_proxy_sessions:close(Name, {server, text(Backend), text(Server)}, operator).

set(Name, Backend, Server, What) -> weir_proxy_backend:set(Name, text(Backend), text(Server), What).

text(Name) when is_atom(Name) -> atom_to_binary(Name);
text(Name) -> iolist_to_binary(Name).
