%% @private
%% @doc The listeners of a proxy: one for each address of its frontends. A listener is named after its address and
%% knows its frontend by name. The frontend of each address is in weir_proxy_store too, for connections that were
%% accepted before a change.
-module(weir_proxy_listeners).

-export([open/4]).
-export([resume/3]).
-export([change/4]).
-export([suspend/2]).
-export([stop/2]).
-export([stop_relays/1]).
-export([is_there/2]).
-export([connections/2]).
-export([all/1]).
-export([bound/2]).
-export([refused/2]).
-export([await_end/2]).

-type endpoint() :: weir_proxy_address:endpoint().
-type frontends() :: #{binary() => weir_proxy_config:frontend()}.
-type wanted() :: [{endpoint(), Frontend :: binary()}].
-type fault() :: {listen, Address :: binary(), Reason :: term()}.

-define(LISTENER(Proxy, Endpoint), {weir_proxy, Proxy, Endpoint}).

%% Enough to accept a backlog on a busy machine, and the interval at which a listener's status is looked at.
-define(BACKLOG_MS, 5000).
-define(LOOK_MS, 5).

%% Interval at which remaining connections are counted.
-define(LAST_MS, 50).

%% @doc Opens new listeners. If one fails, the others before it stay open. `IsShared': another program may listen on
%% the same address.
-spec open(Proxy :: term(), wanted(), IsShared :: boolean(), frontends()) -> ok | {error, fault()}.
open(_Proxy, [], _IsShared, _Frontends) ->
    ok;
open(Proxy, [{Endpoint, Frontend} | Others], IsShared, Frontends) ->
    Options = where(Endpoint, (options(maps:get(Frontend, Frontends)))#{shared => IsShared}),
    ok = weir_proxy_store:save({entrance, Proxy, Endpoint}, Frontend),
    case
        weir:start_listener(
            ?LISTENER(Proxy, Endpoint), Options, fun weir_proxy_connection:serve/2, {Proxy, Frontend, Endpoint}
        )
    of
        {ok, _} -> open(Proxy, Others, IsShared, Frontends);
        {error, Reason} -> {error, {listen, weir_proxy_address:to_text(Endpoint), Reason}}
    end.

where({local, Path}, Options) -> Options#{ip => {local, Path}};
%% IPv6 only: IPv4 clients have an endpoint of their own, so that rules see IPv4 addresses.
where({Address, Port}, Options = #{socket_opts := Settings}) when tuple_size(Address) =:= 8 ->
    Options#{ip => Address, port => Port, socket_opts => [{ipv6_v6only, true} | Settings]};
where({Address, Port}, Options) -> Options#{ip => Address, port => Port}.

options(Frontend = #{backlog := Backlog}) ->
    Same = maps:with(
        [max_connections, overload, max_rate, per_address, allow, deny, proxy_protocol, measure], Frontend
    ),
    Same#{socket_opts => [{backlog, Backlog}]}.

%% @doc Resumes listeners that were suspended.
-spec resume(Proxy :: term(), wanted(), frontends()) -> ok | {error, fault()}.
resume(_Proxy, [], _Frontends) ->
    ok;
resume(Proxy, [{Endpoint, Frontend} | Others], Frontends) ->
    ok = change(Proxy, Endpoint, Frontend, maps:get(Frontend, Frontends)),
    case weir:resume_listener(?LISTENER(Proxy, Endpoint)) of
        ok -> resume(Proxy, Others, Frontends);
        {error, Reason} -> {error, {listen, weir_proxy_address:to_text(Endpoint), Reason}}
    end.

%% @doc Assigns a listener to a frontend and sets its options.
-spec change(Proxy :: term(), endpoint(), Frontend :: binary(), weir_proxy_config:frontend()) -> ok.
change(Proxy, Endpoint, Frontend, Config) ->
    Options = maps:remove(socket_opts, options(Config)),
    ok = weir_proxy_store:save({entrance, Proxy, Endpoint}, Frontend),
    ok = weir:set_options(?LISTENER(Proxy, Endpoint), Options#{args => {Proxy, Frontend, Endpoint}}).

%% @doc Suspends listeners: they accept the connections in their backlogs and refuse new ones. Does not wait for
%% connections to end.
-spec suspend(Proxy :: term(), [endpoint()]) -> ok.
suspend(Proxy, Endpoints) ->
    %% Only running ones: the drain of a suspended listener could end after this call, and suspend it after the next
    %% resume.
    Listeners = [
        ?LISTENER(Proxy, Endpoint)
     || Endpoint <- Endpoints, #{status := running} <- [weir:info(?LISTENER(Proxy, Endpoint))]
    ],
    Drains = [
        {Listener, spawn_monitor(fun() -> weir:drain_listener(Listener, ?BACKLOG_MS) end)}
     || Listener <- Listeners
    ],
    lists:foreach(fun({Listener, {_Pid, Monitor}}) -> await_suspended(Listener, Monitor) end, Drains).

await_suspended(Listener, Drain) ->
    case weir:info(Listener) of
        #{status := running} ->
            receive
                {'DOWN', Drain, process, _, _} -> ok
            after ?LOOK_MS ->
                await_suspended(Listener, Drain)
            end;
        _ ->
            true = demonitor(Drain, [flush]),
            ok
    end.

%% @doc Closes listeners and their connections. Missing ones are skipped.
-spec stop(Proxy :: term(), [endpoint()]) -> ok.
stop(Proxy, Endpoints) ->
    lists:foreach(
        fun(Endpoint) ->
            _ = weir:stop_listener(?LISTENER(Proxy, Endpoint)),
            weir_proxy_store:forget({entrance, Proxy, Endpoint})
        end,
        Endpoints
    ).

%% @doc Stops the relays of connections that were accepted for a process.
-spec stop_relays(pid()) -> ok.
stop_relays(Pid) ->
    Listeners = [Listener || Listener = ?LISTENER(_, _) <- weir:listeners()],
    lists:foreach(fun(Listener) -> stop_relays(Pid, weir_listener:relays(Listener)) end, Listeners).

stop_relays(_Pid, {error, _}) -> ok;
stop_relays(Pid, Relays) -> lists:foreach(fun weir:stop_relay/1, [Relay || {Relay, Of} <- Relays, Of =:= Pid]).

%% @doc Returns how many connections of an address are open, including sessions.
-spec connections(Proxy :: term(), endpoint()) -> non_neg_integer().
connections(Proxy, Endpoint) ->
    case weir:info(?LISTENER(Proxy, Endpoint)) of
        #{connections := Count} -> Count;
        {error, _} -> 0
    end.

%% @doc Returns the addresses that have a listener.
-spec all(Proxy :: term()) -> [endpoint()].
all(Proxy) -> [Endpoint || ?LISTENER(Of, Endpoint) <- weir:listeners(), Of =:= Proxy].

-spec is_there(Proxy :: term(), endpoint()) -> boolean().
is_there(Proxy, Endpoint) -> is_map(weir:info(?LISTENER(Proxy, Endpoint))).

%% @doc Returns the address of a listener as text, with the actual port if 0 was configured.
-spec bound(Proxy :: term(), endpoint()) -> binary().
bound(Proxy, Endpoint = {Address, 0}) when Address =/= local ->
    case weir:get_port(?LISTENER(Proxy, Endpoint)) of
        Port when is_integer(Port) -> weir_proxy_address:to_text({Address, Port});
        _ -> weir_proxy_address:to_text(Endpoint)
    end;
bound(_Proxy, Endpoint) ->
    weir_proxy_address:to_text(Endpoint).

%% @doc Returns how many connections the listeners of these addresses refused before a process served them, since each
%% was opened.
-spec refused(Proxy :: term(), [endpoint()]) -> #{denied | failed_headers => non_neg_integer()}.
refused(Proxy, Endpoints) ->
    Infos = [Info || Endpoint <- Endpoints, Info = #{} <- [weir:info(?LISTENER(Proxy, Endpoint))]],
    Sum = fun(Keys) -> lists:sum([maps:get(Key, Info) || Info <- Infos, Key <- Keys]) end,
    #{denied => Sum([denied, crowded, overload]), failed_headers => Sum([failed_handshakes])}.

%% @doc Waits until a proxy has no connections, including sessions, or until `Deadline' (milliseconds of the monotonic
%% clock). Returns how many are left.
-spec await_end(Proxy :: term(), Deadline :: integer() | infinity) -> non_neg_integer().
await_end(Proxy, Deadline) ->
    %% Sessions may outlive their listener.
    Now = max(weir_proxy_sessions:count(Proxy), lists:sum([connections(Proxy, Endpoint) || Endpoint <- all(Proxy)])),
    case {Now, Deadline =/= infinity andalso erlang:monotonic_time(millisecond) >= Deadline} of
        {0, _} -> 0;
        {Left, true} -> Left;
        {_, false} ->
            timer:sleep(?LAST_MS),
            await_end(Proxy, Deadline)
    end.
