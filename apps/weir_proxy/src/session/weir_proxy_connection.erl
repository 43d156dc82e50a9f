%% @private
%% @doc Serves a connection: applies rules, chooses a server, connects to it and starts the relay. Runs in the
%% connection's own process, which ends when the relay has begun.
-module(weir_proxy_connection).

-include("weir_proxy.hrl").
-include("weir_proxy_session.hrl").

-export([serve/2]).

%% The state of a connection before it has a relay.
-record(way, {
    client :: weir_tcp:socket(),
    %% The address that accepted it.
    endpoint :: weir_proxy_address:endpoint(),
    frontend :: #frontend{},
    %% The client's address, from the PROXY header if there is one. `undefined' if the client left before it was read.
    address = undefined :: weir_tcp:name() | undefined,
    accepted :: integer(),
    facts = #{} :: weir_proxy_rules:facts(),
    key = none :: term(),
    backend = none :: binary() | none,
    %% A module has chosen the backend.
    is_asked = false :: boolean(),
    prefix = <<>> :: binary(),
    queued = 0 :: non_neg_integer(),
    retries = 0 :: non_neg_integer()
}).

%% IP_BIND_ADDRESS_NO_PORT of ip(7): the port is chosen at connect(2), so that several servers can share it. A port
%% chosen by bind(2) is taken for all destinations.
-define(PORT_AT_CONNECT, {raw, 0, 24, <<1:32/native>>}).

%% Pause after all servers have been tried.
-define(RETRY_MS, 1000).

%% @doc Serves a connection of a listener. The listener's handler.
-spec serve(weir_tcp:socket(), {Proxy :: term(), Frontend :: binary(), weir_proxy_address:endpoint()}) -> ok.
serve(Client, {Proxy, Name, Endpoint}) ->
    case frontend(Proxy, Name, Endpoint) of
        Frontend = #frontend{numbers = Numbers} ->
            ok = weir_proxy_admissions:begun(Numbers),
            serve(#way{
                client = Client, endpoint = Endpoint, frontend = Frontend, accepted = erlang:system_time(millisecond)
            });
        %% The frontend and its address were removed.
        undefined ->
            gen_tcp:close(Client)
    end.

%% The frontend that it was accepted for, or, if that was removed, the one that has the address now.
frontend(Proxy, Name, Endpoint) ->
    case weir_proxy_store:frontend(Proxy, Name) of
        undefined -> weir_proxy_store:entrance(Proxy, Endpoint);
        Frontend -> Frontend
    end.

serve(Way = #way{client = Client}) ->
    case peer(Client) of
        {ok, Address} -> served(Way#way{address = Address});
        {error, _} -> refuse(Way, gone)
    end.

served(Way) ->
    try route(Way) of
        ok -> ok;
        {failed, Why, Last} -> refuse(Last, Why)
    catch
        Class:Reason:Stack ->
            ok = unserved(self(), Way, crashed),
            erlang:raise(Class, Reason, Stack)
    end.

peer(Client) ->
    case weir:proxy_header() of
        {ok, #{src_address := Address, src_port := Port}} -> {ok, {Address, Port}};
        {ok, #{src_address := Path}} -> {ok, {local, Path}};
        _ -> inet:peername(Client)
    end.

refuse(Way = #way{client = Client}, Why) ->
    ok = unserved(self(), Way, Why),
    gen_tcp:close(Client).

refusal(reject) -> rejected;
refusal(gone) -> aborted;
refusal(_) -> connection_errors.

%% Counts and logs a connection that ends without a relay.
unserved(Pid, Way = #way{frontend = Frontend}, Why) ->
    _ = weir_proxy_counters:add(Frontend#frontend.numbers, refusal(Why), 1),
    ok = weir_proxy_admissions:ended(Pid),
    Session = #session{
        proxy = Frontend#frontend.proxy,
        frontend = Frontend#frontend.name,
        backend = case Way#way.backend of none -> Frontend#frontend.name; Backend -> Backend end,
        server = <<"<NOSRV>">>,
        client = Way#way.address,
        address = undefined,
        accepted = Way#way.accepted,
        queued = Way#way.queued,
        connected = none,
        retries = Way#way.retries,
        numbers = {Frontend#frontend.numbers, none, none},
        timer = none
    },
    ok = weir_proxy_event:refuse(Why, Session),
    weir_proxy_log:unserved(Why, Session).

%%% Rules.

route(Way = #way{frontend = #frontend{route = {backend, Backend}}}) ->
    balance(Way, Backend);
route(Way = #way{frontend = #frontend{route = {rules, Rules}}, facts = Known}) ->
    Facts = maps:merge(
        Known, weir_proxy_facts:of_connection(Way#way.client, Way#way.address, weir_proxy_rules:wants_port(Rules))
    ),
    decide(weir_proxy_rules:decide(Facts, Rules), Rules, Way#way{facts = Facts}).

decide({backend, Backend}, _Rules, Way) -> balance(Way, Backend);
decide(reject, _Rules, Way) -> {failed, reject, Way};
decide({module, Module, Args}, _Rules, Way) -> ask(Module, Args, Way);
decide(first_bytes, Rules, Way = #way{client = Client, frontend = Frontend, facts = Facts}) ->
    case weir_proxy_facts:of_first_bytes(Client, first_bytes_timeout(Frontend)) of
        {ok, More} ->
            All = maps:merge(Facts, More),
            decide(weir_proxy_rules:decide(All, Rules), Rules, Way#way{facts = All});
        {error, _} ->
            {failed, gone, Way}
    end.

first_bytes_timeout(#frontend{config = #{first_bytes_timeout := Timeout}}) -> Timeout.

ask(Module, Args, Way = #way{client = Client, facts = Facts, frontend = Frontend}) ->
    Self = self(),
    Ended = fun(Why) -> unserved(Self, Way, Why) end,
    Asked = fun() -> Module:route(Client, Facts, Args) end,
    Told = Way#way{is_asked = true},
    case weir_proxy_facts:in_time(Asked, first_bytes_timeout(Frontend), Ended) of
        {backend, Backend} -> balance(Told, name(Backend));
        {backend, Backend, Options} ->
            Key = maps:get(key, Options, none),
            %% Converted here, so that a prefix that is not iodata crashes as a fault of the module.
            balance(Told#way{key = Key, prefix = iolist_to_binary(maps:get(prefix, Options, <<>>))}, name(Backend));
        reject -> {failed, reject, Told}
    end.

name(Backend) when is_atom(Backend) -> atom_to_binary(Backend);
name(Backend) -> iolist_to_binary(Backend).

%%% Choosing a server.

balance(Way = #way{frontend = #frontend{proxy = Proxy}}, Name) ->
    case weir_proxy_store:backend(Proxy, Name) of
        undefined ->
            case route_again(Way) of
                unchanged -> {failed, no_backend, Way#way{backend = Name}};
                Routed -> Routed
            end;
        Backend ->
            case with_name(Way#way{backend = Name}, Backend) of
                {ok, Known} -> to_one_of(Known, Backend, key(Known, Backend));
                {failed, _, _} = Failed -> Failed
            end
    end.

%% Its backend was removed after its frontend was read. The address's current frontend may name another one. The choice
%% of a module is final, because the module may have talked to the client.
route_again(#way{is_asked = true}) ->
    unchanged;
route_again(Way = #way{frontend = Before = #frontend{proxy = Proxy}, endpoint = Endpoint}) ->
    case weir_proxy_store:entrance(Proxy, Endpoint) of
        undefined ->
            unchanged;
        #frontend{version = Same} when Same =:= Before#frontend.version ->
            unchanged;
        Frontend = #frontend{numbers = Numbers} ->
            ok = weir_proxy_admissions:moved(Numbers),
            route(Way#way{frontend = Frontend})
    end.

%% The backend was removed, and added again under the same name.
balance_again(Way = #way{frontend = #frontend{numbers = Numbers}, backend = Name}) ->
    ok = weir_proxy_admissions:moved(Numbers),
    balance(Way, Name).

%% Reads the server name if the key needs it and no rule has read it.
with_name(
    Way = #way{client = Client, facts = Facts, frontend = Frontend}, Backend = #backend{config = #{hash_key := sni}}
) when
    not is_map_key(protocol, Facts)
->
    case has_key(Backend) andalso weir_proxy_facts:of_first_bytes(Client, first_bytes_timeout(Frontend)) of
        false -> {ok, Way};
        {ok, More} -> {ok, Way#way{facts = maps:merge(Facts, More)}};
        {error, _} -> {failed, gone, Way}
    end;
with_name(Way, _Backend) ->
    {ok, Way}.

has_key(#backend{config = #{balance := Balance, stick := Stick}}) -> Balance =:= hash orelse Stick =/= off.

key(Way, Backend) ->
    case has_key(Backend) of
        true -> key_of(Way, Backend);
        false -> none
    end.

key_of(#way{facts = #{sni := Name}}, #backend{config = #{hash_key := sni}}) -> Name;
key_of(#way{key = Key}, #backend{config = #{hash_key := rule}}) when Key =/= none -> Key;
%% Otherwise the client's address is the key.
key_of(#way{address = {Address, _Port}}, _Backend) -> Address.

to_one_of(Way = #way{frontend = #frontend{proxy = Proxy}}, Backend = #backend{config = #{retries := Retries}}, Key) ->
    ok = weir_proxy_admissions:balanced(Proxy, Backend),
    try_servers(Way, Backend, Key, Retries, []).

try_servers(Way = #way{frontend = #frontend{proxy = Proxy}}, Backend, Key, Retries, Tried) ->
    case weir_proxy_place:take(Proxy, Backend, Key, Tried) of
        {ok, Server, Waited} ->
            Placed = waited(Waited, Way),
            %% Yield, so that connections that came together are opened one right after the other. Waking a process
            %% that waits for a packet costs the sender more than the packet does, and a server that is still busy with
            %% the last one needs no wake-up.
            true = erlang:yield(),
            Start = erlang:monotonic_time(millisecond),
            case relay(Placed, Backend, Server) of
                {ok, Relay, Keeper} ->
                    began(Placed, Backend, {Server, Key}, erlang:monotonic_time(millisecond) - Start, Relay, Keeper);
                {error, {connect, Reason}} ->
                    ok = failed(Server, Backend, Reason),
                    again(Placed, Backend, Key, Retries, [Server#server.name | Tried], Reason);
                {error, Reason} ->
                    {failed, unrelayed(Reason, Placed), Placed}
            end;
        none when Tried =/= [] ->
            %% All servers were tried: start again after a pause.
            ok = pause(Backend),
            go_on(Way, Backend, Key, Retries, []);
        none ->
            {failed, none, Way};
        {another, Waited} ->
            balance_again(waited(Waited, Way));
        {error, Why, Waited} ->
            {failed, Why, waited(Waited, Way)}
    end.

waited(Milliseconds, Way = #way{queued = Before}) -> Way#way{queued = Before + Milliseconds}.

%% Why there is no relay: the client has left, or a resource is exhausted. Any other reason is a fault of the proxy,
%% and is logged.
unrelayed({Client, _}, #way{client = Client}) ->
    gone;
unrelayed(Reason, #way{frontend = #frontend{proxy = Proxy, name = Name}}) ->
    case weir_proxy_health:is_of_this_machine(Reason) of
        true ->
            exhausted;
        false ->
            ok = weir_reports:log(error, #{
                what => "cannot start a relay, and closed the connection",
                proxy => Proxy,
                frontend => Name,
                reason => Reason
            }),
            crashed
    end.

again(Way, _Backend, _Key, 0, _Tried, Reason) ->
    {failed, case weir_proxy_health:is_of_this_machine(Reason) of true -> exhausted; false -> refused end, Way};
again(Way = #way{retries = Before}, Backend = #backend{numbers = Numbers}, Key, Retries, Tried, _Reason) ->
    _ = weir_proxy_counters:add(Numbers, retries, 1),
    _ = weir_proxy_counters:add(Numbers, redispatches, 1),
    go_on(Way#way{retries = Before + 1}, Backend, Key, Retries - 1, Tried).

%% Looks the backend up again, because servers may have changed. If it was removed and there is no other, its servers
%% are still used.
go_on(
    Way = #way{frontend = #frontend{proxy = Proxy}},
    Backend = #backend{name = Name, numbers = Numbers},
    Key,
    Retries,
    Tried
) ->
    case weir_proxy_store:backend(Proxy, Name) of
        Current = #backend{numbers = Numbers} ->
            try_servers(Way, Current, Key, Retries, Tried);
        undefined ->
            case route_again(Way) of
                unchanged -> try_servers(Way, Backend, Key, Retries, Tried);
                Routed -> Routed
            end;
        _Another ->
            balance_again(Way)
    end.

pause(#backend{config = #{connect_timeout := Timeout}}) ->
    timer:sleep(min(?RETRY_MS, Timeout)).

%%% Connecting and relaying.

relay(Way = #way{client = Client, frontend = Frontend, prefix = Prefix}, Backend = #backend{config = Config}, Server) ->
    #frontend{config = #{idle_timeout := Idle, half_close_timeout := HalfClose}} = Frontend,
    Keeper = weir_proxy_sessions:keeper(),
    Header = weir_proxy_outgoing:header(Config, Client, Way#way.address, Way#way.facts),
    Options = measured(Server, #{
        owner => Keeper,
        detached => true,
        idle_timeout => Idle,
        half_close_timeout => HalfClose,
        prefix => [Header, Prefix]
    }),
    case relay_to(Server, Backend, Client, Options) of
        {ok, Relay} -> {ok, Relay, Keeper};
        {error, _} = Error -> Error
    end.

relay_to(#server{address = {Address, Port}}, #backend{config = #{source := Source} = Config}, Client, Options) when
    Source =/= undefined, Address =/= local
->
    case connect_from(Source, Address, Port, Config) of
        {ok, Socket} ->
            case weir:relay(Client, Socket, Options) of
                {ok, _} = Started ->
                    Started;
                {error, Reason} ->
                    %% The client or the server has left already.
                    ok = gen_tcp:close(Socket),
                    {error, case Reason of {Socket, Why} -> {connect, Why}; _ -> Reason end}
            end;
        {error, Reason} ->
            {error, {connect, Reason}}
    end;
relay_to(#server{address = Address}, #backend{config = #{connect_timeout := Timeout}}, Client, Options) ->
    weir:relay(Client, {connect, Address, Timeout}, Options).

connect_from(Source, Address, Port, #{connect_timeout := Timeout}) ->
    try
        weir_tcp:connect(
            Address, Port, [{ip, Source}, ?PORT_AT_CONNECT, {nodelay, true}, binary, {active, false}], Timeout
        )
    catch
        %% The source and the server are of different address families.
        exit:badarg -> {error, einval}
    end.

failed(Server, Backend, Reason) ->
    ok = weir_proxy_admissions:displaced(),
    case weir_proxy_health:is_of_this_machine(Reason) of
        true -> ok;
        false -> refused(Server, Backend)
    end.

refused(#server{name = Name, numbers = Numbers}, #backend{process = Process, config = #{passive := Passive}}) ->
    _ = weir_proxy_counters:add(Numbers, connection_errors, 1),
    Failures = weir_proxy_counters:add(Numbers, failures, 1),
    case Passive of
        #{fall := Fall} when Failures >= Fall -> weir_proxy_backend:failing(Process, Name);
        _ -> ok
    end.

began(Way, Backend, {Server, Key}, Took, Relay, Keeper) ->
    ok = weir_proxy_counters:clear(Server#server.numbers, failures),
    ok = stick(Way, Backend, Key, Server),
    weir_proxy_sessions:begun(session(Way, Backend, Server, Took, Relay, Keeper)).

measured(#server{latency = none}, Options) -> Options;
measured(#server{latency = Latency}, Options) -> Options#{latency => Latency}.

stick(_Way, #backend{config = #{stick := off}}, _Key, _Server) ->
    ok;
stick(
    #way{frontend = #frontend{proxy = Proxy}},
    #backend{name = Name, numbers = Numbers, config = #{stick := Expire}},
    Key,
    Server
) ->
    ok = weir_proxy_sticks:remember(Numbers, Key, Server#server.name, erlang:monotonic_time(millisecond) + Expire),
    case weir_proxy_store:backend(Proxy, Name) of
        #backend{numbers = Numbers} -> ok;
        %% The backend was removed, and its entries with it, perhaps before this one was added.
        _ -> weir_proxy_sticks:forget(Numbers, all)
    end.

session(Way, Backend, Server, Took, Relay, Keeper) ->
    Frontend = Way#way.frontend,
    {Due, Timer} = life(Frontend, Relay),
    #session{
        relay = Relay,
        proxy = Frontend#frontend.proxy,
        frontend = Frontend#frontend.name,
        backend = Backend#backend.name,
        server = Server#server.name,
        client = Way#way.address,
        address = Server#server.address,
        accepted = Way#way.accepted,
        queued = Way#way.queued,
        connected = Took,
        retries = Way#way.retries,
        keeper = Keeper,
        process = self(),
        numbers = {Frontend#frontend.numbers, Backend#backend.numbers, Server#server.numbers},
        due = Due,
        timer = Timer
    }.

life(#frontend{config = #{longest_life := infinity}}, _Relay) ->
    {{infinity, none}, none};
life(#frontend{config = #{longest_life := Life, life_jitter := Percent}}, Relay) ->
    %% Vary the length, so that connections that began together do not all end together.
    Less = round(Life * Percent / 100 * rand:uniform()),
    weir_proxy_sessions:end_later(Relay, max(1, Life - Less)).
