%% @private
%% @doc The options of a listener: which there are, what they are when nobody says, and what is wrong with those that are
%% wrong. They are normalised here, once.
-module(weir_listener_options).

-export([new/3]).

-export_type([options/0, handler/0, normal/0, limits/0, prefix/0, bad_option/0]).

-type handler() :: fun((weir_listener:connection(), Args :: term()) -> term()) | module().

-type prefix() :: inet:ip_address() | string() | {inet:ip_address(), Bits :: 0..128}.
%% Addresses that begin alike: `"10.0.0.0/8"', `{{10, 0, 0, 0}, 8}', `"::1"', `{127, 0, 0, 1}'.

-type options() :: #{
    port => inet:port_number(),
    ip => inet:ip_address() | any | loopback | {local, binary() | string()},
    fd => non_neg_integer(),
    socket_opts => [gen_tcp:listen_option()],
    tls => [ssl:tls_server_option()],
    handshake_timeout => timeout(),
    proxy_protocol => boolean(),
    max_connections => non_neg_integer() | infinity,
    overload => pause | reset,
    max_rate => pos_integer() | infinity,
    per_address => pos_integer() | infinity,
    allow => [prefix()],
    deny => [prefix()],
    placement => local | least_loaded,
    affinity => soft | bound,
    shutdown => timeout() | brutal_kill,
    balance => off | #{interval := pos_integer(), threshold := pos_integer()},
    reactor => map()
}.
%% <dl>
%% <dt>`port' (0)</dt><dd>0 takes a free one, the same for all schedulers and for as long as the listener is there.</dd>
%% <dt>`ip' (`any')</dt><dd>Where to listen. `{local, Path}' is a unix socket. Its file stays when
%% the listener is gone; the next takes its place.</dd>
%% <dt>`fd'</dt><dd>A descriptor that somebody else has opened and bound, such as an init system. It is duplicated,
%% and never closed.</dd>
%% <dt>`socket_opts'</dt><dd>Options of `gen_tcp:listen/2', before those of ranch's: `binary', `{active, false}',
%% `{reuseaddr, true}', `{nodelay, true}', `{backlog, 1024}', `{send_timeout, 30000}', `{send_timeout_close,
%% true}'.</dd>
%% <dt>`tls'</dt><dd>Options of `ssl:handshake/3': connections are of TLS. The application `ssl' has to be started.</dd>
%% <dt>`handshake_timeout' (5000)</dt><dd>Milliseconds for the PROXY header and the TLS handshake, each.</dd>
%% <dt>`proxy_protocol' (`false')</dt><dd>Connections begin with a PROXY header, version 1 or 2; those that do not are
%% closed.</dd>
%% <dt>`max_connections' (`infinity'), `overload' (`pause')</dt><dd>How many connections there are at most, and what happens
%% to those beyond: they wait in the backlog, or are reset.</dd>
%% <dt>`max_rate' (`infinity')</dt><dd>Connections accepted in a second; others wait in the backlog.</dd>
%% <dt>`per_address' (`infinity')</dt><dd>Connections of one address; those beyond are reset.</dd>
%% <dt>`allow', `deny' (`[]')</dt><dd>Whose connections are not reset. The longest prefix decides, and one that is on both
%% lists denies. Who is on none is allowed, unless there is an `allow'.</dd>
%% <dt>`placement' (`local')</dt><dd>A connection stays on the scheduler that accepts it, or goes to the one with the fewest
%% sockets. Not for reactors.</dd>
%% <dt>`affinity' (`soft')</dt><dd>The process of a connection begins on the scheduler of its socket, and is free to go;
%% or is bound to it, and then stands still while that is offline.</dd>
%% <dt>`shutdown' (5000)</dt><dd>How long connections may take to end when the listener is stopped.</dd>
%% <dt>`balance' (`off')</dt><dd>Every `interval' milliseconds sockets go from the busiest pollset to the idlest, if the
%% former does more than `threshold' percent more. Not for reactors.</dd>
%% <dt>`reactor' (`#{}')</dt><dd>Options of `weir_reactor:start_link/1', for a handler that is a reactor's: `affinity',
%% `tick', `long_callback_ms', `max_send_queue'.</dd>
%% </dl>

-type limits() :: #{
    max_connections := non_neg_integer() | infinity,
    overload := pause | reset,
    max_rate := pos_integer() | infinity,
    per_address := pos_integer() | infinity,
    allow := [{inet:ip_address(), 0..128}],
    deny := [{inet:ip_address(), 0..128}],
    placement := local | least_loaded
}.

-type normal() :: #{
    port := inet:port_number(),
    ip := weir_address:address(),
    fd := non_neg_integer() | undefined,
    socket_opts := [gen_tcp:listen_option()],
    tls := [ssl:tls_server_option()] | undefined,
    handshake_timeout := timeout(),
    proxy_protocol := boolean(),
    max_connections := non_neg_integer() | infinity,
    overload := pause | reset,
    max_rate := pos_integer() | infinity,
    per_address := pos_integer() | infinity,
    allow := [{inet:ip_address(), 0..128}],
    deny := [{inet:ip_address(), 0..128}],
    placement := local | least_loaded,
    affinity := soft | bound,
    shutdown := timeout() | brutal_kill,
    balance := off | #{interval := pos_integer(), threshold := pos_integer()},
    reactor := map(),
    handler := {function, fun((_, _) -> term())} | {protocol, module()} | {reactor, module()},
    args := term()
}.
%% All options, with a value each.

-type bad_option() :: {bad_option, Name :: term(), Value :: term(), Allowed :: string()}.
%% What was wrong, and what is allowed.

-define(DEFAULTS, #{
    port => 0,
    ip => any,
    fd => undefined,
    socket_opts => [],
    tls => undefined,
    handshake_timeout => 5000,
    proxy_protocol => false,
    max_connections => infinity,
    overload => pause,
    max_rate => infinity,
    per_address => infinity,
    allow => [],
    deny => [],
    placement => local,
    affinity => soft,
    shutdown => 5000,
    balance => off,
    reactor => #{}
}).

%% Those of ranch_tcp.
-define(SOCKET_OPTS, [
    binary,
    {active, false},
    {reuseaddr, true},
    {nodelay, true},
    {backlog, 1024},
    {send_timeout, 30000},
    {send_timeout_close, true}
]).

%% @doc All options of a listener, or what is wrong with one.
-spec new(options(), handler(), Args :: term()) -> {ok, normal()} | {error, bad_option()}.
new(Options, Handler, Args) when is_map(Options) ->
    try
        Given = maps:map(fun value/2, Options),
        Socket = maps:get(socket_opts, Given, []),
        All = maps:merge(?DEFAULTS, Given),
        {ok, together(All#{socket_opts := defaults(Socket), handler => handler(Handler), args => Args})}
    catch
        throw:{bad_option, _, _, _} = Bad -> {error, Bad}
    end;
new(Options, _Handler, _Args) ->
    {error, {bad_option, options, Options, "a map"}}.

-spec bad(term(), term(), string()) -> no_return().
bad(Name, Value, Allowed) -> throw({bad_option, Name, Value, Allowed}).

value(port, Port) when is_integer(Port), Port >= 0, Port =< 65535 -> Port;
value(port, Port) -> bad(port, Port, "0..65535");
value(ip, undefined) -> bad(ip, undefined, "an address, any, loopback or {local, Path}");
value(ip, IP) ->
    case not is_map(IP) andalso weir_address:is_valid(IP) of
        true -> IP;
        false -> bad(ip, IP, "an address, any, loopback or {local, Path}")
    end;
value(fd, Fd) when is_integer(Fd), Fd >= 0 -> Fd;
value(fd, Fd) -> bad(fd, Fd, "the number of an open descriptor");
value(socket_opts, Options) when is_list(Options) ->
    case [Option || Option <- Options, is_reserved(Option)] of
        [] -> Options;
        [Option | _] -> bad(socket_opts, Option, "options of gen_tcp:listen/2 but ip, port, fd and tcp_module")
    end;
value(socket_opts, Options) -> bad(socket_opts, Options, "a list of options of gen_tcp:listen/2");
value(tls, Options) when is_list(Options) -> Options;
value(tls, Options) -> bad(tls, Options, "a list of options of ssl:handshake/3");
value(handshake_timeout, Time) -> timeout(handshake_timeout, Time);
value(proxy_protocol, Value) when is_boolean(Value) -> Value;
value(proxy_protocol, Value) -> bad(proxy_protocol, Value, "true or false");
value(max_connections, infinity) -> infinity;
value(max_connections, Max) when is_integer(Max), Max >= 0, Max =< 16#ffffffff -> Max;
value(max_connections, Max) -> bad(max_connections, Max, "0..4294967295 or infinity");
value(overload, Value) when Value =:= pause; Value =:= reset -> Value;
value(overload, Value) -> bad(overload, Value, "pause or reset");
value(Name, infinity) when Name =:= max_rate; Name =:= per_address -> infinity;
value(Name, Limit) when
    Name =:= max_rate orelse Name =:= per_address, is_integer(Limit), Limit > 0, Limit =< 16#ffffffff
->
    Limit;
value(Name, Limit) when Name =:= max_rate; Name =:= per_address -> bad(Name, Limit, "1..4294967295 or infinity");
value(Name, Prefixes) when (Name =:= allow orelse Name =:= deny), is_list(Prefixes) ->
    [prefix(Name, Prefix) || Prefix <- Prefixes];
value(Name, Prefixes) when Name =:= allow; Name =:= deny -> bad(Name, Prefixes, "a list of addresses with prefixes");
value(placement, Value) when Value =:= local; Value =:= least_loaded -> Value;
value(placement, Value) -> bad(placement, Value, "local or least_loaded");
value(affinity, Value) when Value =:= soft; Value =:= bound -> Value;
value(affinity, Value) -> bad(affinity, Value, "soft or bound");
value(shutdown, brutal_kill) -> brutal_kill;
value(shutdown, Time) -> timeout(shutdown, Time);
value(balance, off) -> off;
value(balance, Balance = #{interval := Interval, threshold := Threshold}) when
    map_size(Balance) =:= 2, is_integer(Interval), Interval > 0, is_integer(Threshold), Threshold > 0
->
    Balance;
value(balance, Balance) -> bad(balance, Balance, "off or #{interval => Milliseconds, threshold => Percent}");
value(reactor, Options) when is_map(Options) -> Options;
value(reactor, Options) -> bad(reactor, Options, "a map of options of weir_reactor:start_link/1");
value(Name, Value) -> bad(Name, Value, "no such option; there are " ++ names()).

names() -> lists:append(lists:join(", ", [atom_to_list(Name) || Name <- maps:keys(?DEFAULTS)])).

timeout(_Name, infinity) -> infinity;
timeout(_Name, Time) when is_integer(Time), Time >= 0 -> Time;
timeout(Name, Time) -> bad(Name, Time, "milliseconds or infinity").

is_reserved({Name, _}) -> lists:member(Name, [ip, ifaddr, port, fd, tcp_module, inet_backend]);
is_reserved(_) -> false.

prefix(Name, Text) when is_list(Text) ->
    {Address, Bits} =
        case string:split(Text, "/") of
            [Whole] -> {Whole, undefined};
            [Front, Length] -> {Front, string:to_integer(Length)}
        end,
    case {inet:parse_strict_address(Address), Bits} of
        {{ok, IP}, undefined} -> prefix(Name, IP);
        {{ok, IP}, {Number, []}} -> prefix(Name, {IP, Number});
        _ -> bad(Name, Text, "an address, or one with a prefix such as \"10.0.0.0/8\"")
    end;
prefix(Name, {IP, Bits} = Prefix) ->
    Most =
        case weir_address:is_valid(IP) andalso weir_address:family(IP) of
            inet -> 32;
            inet6 -> 128;
            _ -> -1
        end,
    case is_integer(Bits) andalso Bits >= 0 andalso Bits =< Most of
        true -> Prefix;
        false -> bad(Name, Prefix, "{Address, Bits}, with at most as many bits as the address has")
    end;
prefix(Name, IP) when tuple_size(IP) =:= 4 -> prefix(Name, {IP, 32});
prefix(Name, IP) when tuple_size(IP) =:= 8 -> prefix(Name, {IP, 128});
prefix(Name, Other) -> bad(Name, Other, "an address, or one with a prefix such as \"10.0.0.0/8\"").

%% Ours come where the user says nothing: the last of equal names counts.
defaults(Options) -> ?SOCKET_OPTS ++ Options.

handler(Function) when is_function(Function, 2) ->
    {function, Function};
handler(Module) when is_atom(Module) ->
    _ = code:ensure_loaded(Module),
    case {erlang:function_exported(Module, handle_data, 3), erlang:function_exported(Module, start_link, 3)} of
        {true, _} -> {reactor, Module};
        {_, true} -> {protocol, Module};
        _ -> bad(handler, Module, "a fun of two arguments, or a module that exports start_link/3 or handle_data/3")
    end;
handler(Other) ->
    bad(handler, Other, "a fun of two arguments, or a module that exports start_link/3 or handle_data/3").

%% What does not go together.
together(Options = #{handler := {reactor, _}}) ->
    for_reactor(Options),
    apart(Options);
together(#{reactor := Reactor}) when map_size(Reactor) > 0 ->
    bad(reactor, Reactor, "nothing, unless the handler is a module with handle_data/3");
together(Options = #{proxy_protocol := Proxy, tls := Tls, socket_opts := Socket}) when Proxy; Tls =/= undefined ->
    case [Option || {Name, Value} = Option <- Socket, Name =:= active orelse Name =:= packet, Value =/= false] of
        [] -> apart(Options);
        [Option | _] -> bad(socket_opts, Option, "nothing of the kind before a PROXY header or a handshake: set it after")
    end;
together(Options) ->
    apart(Options).

%% What a reactor has no use for is refused rather than ignored.
for_reactor(#{tls := Tls}) when Tls =/= undefined ->
    bad(tls, Tls, "nothing for a reactor: a handshake needs a process for each connection");
for_reactor(#{placement := least_loaded}) ->
    bad(placement, least_loaded, "local for reactors: each takes the connections of its own listening socket");
for_reactor(#{balance := Balance}) when Balance =/= off ->
    bad(balance, Balance, "off for reactors: a connection's state may hold timers and monitors, and cannot leave its process");
for_reactor(#{affinity := bound}) ->
    bad(affinity, bound, "soft; reactors are bound by reactor => #{affinity => bound}");
for_reactor(#{handler := {reactor, Module}, reactor := Reactor, socket_opts := Socket}) ->
    case maps:to_list(maps:with([module, args, listen, scheduler, name, proxy_protocol, handshake_timeout], Reactor)) of
        [] -> ok;
        [Ours | _] -> bad(reactor, Ours, "no such option here: the listener sees to it")
    end,
    case weir_reactor_options:new(Reactor#{module => Module}) of
        {ok, _} -> ok;
        {error, {bad_option, Bad}} -> bad(reactor, Bad, "an option of weir_reactor:start_link/1")
    end,
    case [Option || {active, Value} = Option <- Socket, not is_boolean(Value)] of
        [] -> ok;
        [Option | _] -> bad(socket_opts, Option, "true or false for reactors, whose connections begin active")
    end.

apart(#{affinity := bound, handler := {Kind, _}}) when Kind =/= function ->
    bad(affinity, bound, "soft: a module starts its processes itself; only those of a fun can be bound");
apart(#{fd := Fd, ip := IP}) when Fd =/= undefined, IP =/= any ->
    bad(ip, IP, "nothing beside fd: a descriptor is bound already");
apart(#{fd := Fd, port := Port}) when Fd =/= undefined, Port =/= 0 ->
    bad(port, Port, "nothing beside fd: a descriptor is bound already");
apart(#{ip := {local, _}, port := Port}) when Port =/= 0 ->
    bad(port, Port, "nothing beside {local, Path}");
apart(Options) ->
    Options.
