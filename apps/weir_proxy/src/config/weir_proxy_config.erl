%% @doc Checks the configuration of a proxy, a map, as a whole. Pure functions.
%%
%% Keys are atoms. Names of frontends, backends and servers, and addresses, are text. Times are milliseconds, or text
%% such as `<<"5s">>'. Keys and words may also be binaries, as a file gives them. The guide lists all options.
-module(weir_proxy_config).

-export([new/1]).

-export_type([config/0, frontend/0, backend/0, server/0, health/0, agent/0, log/0, bad_option/0]).

-type config() :: #{
    frontends := #{binary() => frontend()},
    backends := #{binary() => backend()},
    log := log() | off,
    control := binary() | off,
    statistics := weir_proxy_address:endpoint() | off
}.

-type frontend() :: #{
    listen := [weir_proxy_address:endpoint(), ...],
    backend := binary() | undefined,
    rules := [weir_proxy_rules:rule()],
    proxy_protocol := boolean(),
    max_connections := non_neg_integer() | infinity,
    overload := pause | reset,
    max_rate := pos_integer() | infinity,
    per_address := pos_integer() | infinity,
    allow := [weir_proxy_address:prefix()],
    deny := [weir_proxy_address:prefix()],
    backlog := pos_integer(),
    measure := boolean(),
    first_bytes_timeout := timeout(),
    idle_timeout := timeout(),
    half_close_timeout := timeout(),
    longest_life := timeout(),
    life_jitter := 0..100
}.

-type backend() :: #{
    servers := [server()],
    balance := weir_proxy_balancer:kind(),
    hash_key := address | sni | rule,
    hash_load := pos_integer() | infinity,
    stick := pos_integer() | off,
    retries := non_neg_integer(),
    connect_timeout := timeout(),
    queue_timeout := timeout(),
    max_queue := non_neg_integer() | infinity,
    send_proxy := off | v1 | v2,
    unique_id := boolean(),
    source := inet:ip_address() | undefined,
    slow_start := non_neg_integer(),
    on_down := keep | close,
    resolve_interval := pos_integer(),
    measure := boolean(),
    health := health() | off,
    agent := agent() | off,
    passive := #{fall := pos_integer(), back_off := pos_integer(), resets := boolean(), early_closes := boolean()} | off
}.

-type server() :: #{
    name := binary(),
    address := weir_proxy_address:endpoint(),
    weight := 0..256,
    priority := 0..255,
    max_connections := pos_integer() | infinity
}.

-type health() :: #{
    kind := atom(), interval := pos_integer(), timeout := pos_integer(), rise := pos_integer(), fall := pos_integer(),
    send_proxy := off | v1 | v2, _ => _
}.

-type agent() :: #{
    kind := agent, port := inet:port_number(), interval := pos_integer(), timeout := pos_integer(), send := binary()
}.

-type log() :: #{
    file := binary() | undefined,
    syslog := weir_proxy_address:endpoint() | undefined,
    format := weir_proxy_log_line:format()
}.

-type bad_option() :: weir_proxy_schema:bad_option().
%% The path to the wrong option, its value, and in words what is allowed.

%% The default of `hash_load', in percent.
-define(HASH_LOAD, 125).

%% @doc Checks a configuration and fills in the defaults.
-spec new(term()) -> {ok, config()} | {error, bad_option()}.
new(Given) ->
    try
        Config = weir_proxy_schema:table([], Given, fields()),
        ok = together(Config),
        {ok, Config}
    catch
        throw:{bad_option, _, _, _} = Bad -> {error, Bad}
    end.

fields() ->
    [
        {frontends, fun(Path, Map) -> weir_proxy_schema:names(Path, Map, fun frontend/2) end},
        {backends, fun(Path, Map) -> weir_proxy_schema:names(Path, Map, fun backend/2) end},
        {log, or_off(fun weir_proxy_log:options/2), off},
        {control, or_off(fun weir_proxy_address:path/2), off},
        {statistics, or_off(fun bindable_port/2), off}
    ].

or_off(Kind) ->
    fun
        (_Path, Off) when Off =:= off; Off =:= <<"off">>; Off =:= false -> off;
        (Path, Value) -> Kind(Path, Value)
    end.

frontend(Path, Map) ->
    weir_proxy_schema:table(Path, Map, [
        {listen, fun endpoints/2},
        {backend, optional(weir_proxy_schema:text()), undefined},
        {rules, list_of(fun weir_proxy_rules:rule/2), []},
        {proxy_protocol, weir_proxy_schema:boolean(), false},
        {max_connections, weir_proxy_schema:limit(0), infinity},
        {overload, weir_proxy_schema:word([pause, reset]), pause},
        {max_rate, weir_proxy_schema:limit(1), infinity},
        {per_address, weir_proxy_schema:limit(1), infinity},
        {allow, list_of(fun weir_proxy_address:prefix/2), []},
        {deny, list_of(fun weir_proxy_address:prefix/2), []},
        {backlog, weir_proxy_schema:integer(1, 65535), 4096},
        {measure, weir_proxy_schema:boolean(), false},
        {first_bytes_timeout, weir_proxy_schema:time(1), 5000},
        {idle_timeout, weir_proxy_schema:time_or_infinity(1), 3600_000},
        {half_close_timeout, weir_proxy_schema:time_or_infinity(1), 60_000},
        {longest_life, weir_proxy_schema:time_or_infinity(1), infinity},
        {life_jitter, weir_proxy_schema:integer(0, 100), 10}
    ]).

optional(Kind) ->
    fun
        (_Path, undefined) -> undefined;
        (Path, Value) -> Kind(Path, Value)
    end.

list_of(Kind) -> fun(Path, List) -> weir_proxy_schema:list(Path, List, Kind) end.

%% One address, or a list of them. A string is a list too, but begins with an integer.
endpoints(Path, Value) ->
    case is_list(Value) andalso Value =/= [] andalso not is_integer(hd(Value)) of
        true -> weir_proxy_schema:list(Path, Value, fun bindable/2);
        false -> [bindable(Path, Value)]
    end.

bindable(Path, Value) ->
    case weir_proxy_address:endpoint(Path, Value) of
        {name, _, _} ->
            weir_proxy_schema:refuse(Path, Value, "an address of this machine and a port, or \"unix:PATH\"");
        Endpoint ->
            Endpoint
    end.

bindable_port(Path, Value) ->
    case weir_proxy_address:endpoint(Path, Value) of
        {Address, Port} when is_tuple(Address) -> {Address, Port};
        _ -> weir_proxy_schema:refuse(Path, Value, "an address of this machine and a port, or off")
    end.

backend(Path, Map) ->
    Backend = weir_proxy_schema:table(Path, Map, [
        {servers, list_of(fun server/2)},
        {balance, weir_proxy_schema:word([round_robin, least_connections, random, hash]), round_robin},
        {hash_key, weir_proxy_schema:word([address, sni, rule]), address},
        {hash_load, fun hash_load/2, ?HASH_LOAD},
        {stick, or_off(weir_proxy_schema:time(1)), off},
        {retries, weir_proxy_schema:integer(0, 100), 3},
        {connect_timeout, weir_proxy_schema:time(1), 5000},
        {queue_timeout, weir_proxy_schema:time(1), 5000},
        {max_queue, weir_proxy_schema:limit(0), 10_000},
        {send_proxy, weir_proxy_schema:word([off, v1, v2]), off},
        {unique_id, weir_proxy_schema:boolean(), false},
        {source, optional(fun weir_proxy_address:ip/2), undefined},
        {slow_start, weir_proxy_schema:time(0), 0},
        {on_down, weir_proxy_schema:word([keep, close]), keep},
        {resolve_interval, weir_proxy_schema:time(100), 10_000},
        {measure, weir_proxy_schema:boolean(), false},
        {health, or_off(fun weir_proxy_health:options/2), off},
        {agent, or_off(fun weir_proxy_agent:options/2), off},
        {passive, or_off(fun passive/2), off}
    ]),
    ok = reachable(Path, Backend),
    ok = identified(Path, Backend),
    ok = effective(Path, Backend),
    Names = [Name || #{name := Name} <- maps:get(servers, Backend)],
    case Names -- lists:usort(Names) of
        [] ->
            Backend#{health := introduced(Backend)};
        [Twice | _] ->
            weir_proxy_schema:refuse(Path ++ [servers], Twice, "a name that no other server of the backend has")
    end.

%% Checks send the same PROXY header as connections do, but not to another port: what listens there may not expect it.
introduced(#{health := Health = #{send_proxy := undefined, port := undefined}, send_proxy := Version}) ->
    Health#{send_proxy := Version};
introduced(#{health := Health = #{send_proxy := undefined}}) ->
    Health#{send_proxy := off};
introduced(#{health := Health}) ->
    Health.

%% A source address reaches only servers of its own address family. The family of names is not known yet.
reachable(_Path, #{source := undefined}) ->
    ok;
reachable(Path, #{source := Source, servers := Servers}) ->
    case
        [
            Address
         || #{address := {Address, _Port}} <- Servers, is_tuple(Address), tuple_size(Address) =/= tuple_size(Source)
        ]
    of
        [] ->
            ok;
        _ ->
            weir_proxy_schema:refuse(
                Path ++ [source],
                iolist_to_binary(inet:ntoa(Source)),
                "an address of the same family (IPv4 or IPv6) as the servers"
            )
    end.

%% Only version 2 of the PROXY header can carry an id.
identified(Path, #{unique_id := true, send_proxy := Send}) when Send =/= v2 ->
    weir_proxy_schema:refuse(Path ++ [unique_id], true, "false; true needs send_proxy v2");
identified(_Path, _Backend) -> ok.

%% Refuses options that would have no effect.
effective(Path, #{hash_key := Key, balance := Balance, stick := off}) when Key =/= address, Balance =/= hash ->
    weir_proxy_schema:refuse(Path ++ [hash_key], Key, "address; other keys need balance hash, or stick");
effective(Path, #{slow_start := Time, health := off, agent := off}) when Time > 0 ->
    weir_proxy_schema:refuse(Path ++ [slow_start], Time, "0; a slow start needs health or agent");
effective(Path, #{on_down := close, health := off, agent := off}) ->
    weir_proxy_schema:refuse(Path ++ [on_down], close, "keep; close needs health or agent");
effective(Path, #{hash_load := Load, balance := Balance}) when Load =/= ?HASH_LOAD, Balance =/= hash ->
    weir_proxy_schema:refuse(Path ++ [hash_load], Load, [
        integer_to_list(?HASH_LOAD), "; other loads need balance hash"
    ]);
effective(Path, Backend = #{servers := [_ | _] = Servers}) ->
    case [Address || #{address := Address} <- Servers, element(1, Address) =/= local] of
        [] -> effective_locally(Path, Backend);
        _ -> ok
    end;
effective(_Path, _Backend) ->
    ok.

%% Unix sockets have no port for an agent and no source address.
effective_locally(Path, #{agent := #{port := Port}}) ->
    weir_proxy_schema:refuse(Path ++ [agent, port], Port, "no agent, because all servers are unix sockets");
effective_locally(Path, #{source := Source}) when Source =/= undefined ->
    weir_proxy_schema:refuse(
        Path ++ [source], iolist_to_binary(inet:ntoa(Source)), "no source, because all servers are unix sockets"
    );
effective_locally(_Path, _Backend) ->
    ok.

hash_load(_Path, Infinity) when Infinity =:= infinity; Infinity =:= <<"infinity">> -> infinity;
hash_load(Path, Value) -> (weir_proxy_schema:integer(101, 100_000))(Path, Value).

passive(Path, Map) ->
    weir_proxy_schema:table(Path, Map, [
        {fall, weir_proxy_schema:integer(1, 1000), 3},
        {back_off, weir_proxy_schema:time(1), 10_000},
        {resets, weir_proxy_schema:boolean(), false},
        {early_closes, weir_proxy_schema:boolean(), false}
    ]).

%% An address, or a table with the key `address'.
server(Path, Map) when is_map(Map) ->
    Server = weir_proxy_schema:table(Path, Map, [
        {address, fun reachable_endpoint/2},
        {name, weir_proxy_schema:name(), undefined},
        {weight, weir_proxy_schema:integer(0, 256), 1},
        {priority, weir_proxy_schema:integer(0, 255), 0},
        {max_connections, weir_proxy_schema:limit(1), infinity}
    ]),
    case Server of
        #{name := undefined, address := Address} -> Server#{name := weir_proxy_address:to_text(Address)};
        #{} -> Server
    end;
server(Path, Address) ->
    server(Path, #{address => reachable_endpoint(Path, Address)}).

reachable_endpoint(Path, Value) ->
    Endpoint = weir_proxy_address:endpoint(Path, Value),
    case Endpoint of
        {local, _} -> Endpoint;
        _ when element(tuple_size(Endpoint), Endpoint) > 0 -> Endpoint;
        _ -> weir_proxy_schema:refuse(Path, Value, "a port from 1 to 65535")
    end.

%% Checks options against each other: backends that are named must exist, and no address is listened on twice.
together(#{frontends := Frontends, backends := Backends, control := Control, statistics := Page}) ->
    Known = maps:keys(Backends),
    lists:foreach(fun({Name, Frontend}) -> routes([frontends, Name], Frontend, Known) end, maps:to_list(Frontends)),
    ok = keyed(maps:values(Frontends), maps:to_list(Backends)),
    once(
        [{[control], {local, Control}} || Control =/= off] ++ [{[statistics], Page} || {_, Port} <- [Page], Port > 0] ++
            [
                {[frontends, Name, listen], Endpoint}
             || {Name, #{listen := Listen}} <- maps:to_list(Frontends), Endpoint <- Listen
            ]
    ).

routes(Path, #{backend := Default, rules := Rules}, Known) ->
    Wanted =
        [{Path ++ [backend], Default} || Default =/= undefined] ++
            [
                {Path ++ [rules, Place, backend], Backend}
             || {Place, Rule} <- lists:zip(lists:seq(1, length(Rules)), Rules),
                Backend <- weir_proxy_rules:backends(Rule)
            ],
    case {Wanted, [One || One = {_, Backend} <- Wanted, not lists:member(Backend, Known)]} of
        {[], []} when Rules =:= [] ->
            weir_proxy_schema:refuse(Path ++ [backend], undefined, [
                "needed: the name of a backend", [[": ", known(Known)] || Known =/= []]
            ]);
        {_, []} ->
            ok;
        {_, [{Where, Unknown} | _]} ->
            weir_proxy_schema:refuse(Where, Unknown, ["the name of a backend: ", known(Known)])
    end.

%% Only a module returns a key, so `hash_key' `rule' needs a rule with a module. Which backend it chooses is not known
%% here.
keyed(Frontends, Backends) ->
    case [Name || {Name, #{hash_key := rule}} <- lists:sort(Backends)] of
        [] ->
            ok;
        [First | _] ->
            lists:any(fun weir_proxy_rules:has_module/1, lists:append([Rules || #{rules := Rules} <- Frontends])) orelse
                weir_proxy_schema:refuse(
                    [backends, First, hash_key], rule, "address or sni; rule needs a rule with a module"
                ),
            ok
    end.

known(Known) -> lists:join(", ", Known).

%% Refuses port 0 twice, too: an address is identified by what was configured, and only a new one gets a port from the
%% kernel.
once(Listens) ->
    Endpoints = [Endpoint || {_, Endpoint} <- Listens],
    case Endpoints -- lists:usort(Endpoints) of
        [] ->
            ok;
        [Twice | _] ->
            {Path, _} = lists:last([Listen || Listen = {_, Endpoint} <- Listens, Endpoint =:= Twice]),
            weir_proxy_schema:refuse(
                Path, weir_proxy_address:to_text(Twice), "an address that occurs once in the configuration"
            )
    end.
