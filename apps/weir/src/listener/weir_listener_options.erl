%% @private
%% @doc The options of a listener ({@link weir_listener:options()}): defaults, checks, and which may change while it
%% runs. They are normalised here, once.
-module(weir_listener_options).

-export([new/3]).
-export([change/2]).

-export_type([given/0, normal/0, limits/0, refused/0]).

-type given() :: {weir_listener:options(), weir_listener:handler(), Args :: term()}.
%% The arguments that the listener was started with.

-type limits() :: #{
    max_connections := non_neg_integer() | infinity,
    overload := pause | reset,
    max_rate := pos_integer() | infinity,
    per_address := pos_integer() | infinity,
    allow := [{inet:ip_address(), 0..128}],
    deny := [{inet:ip_address(), 0..128}],
    placement := local | least_loaded,
    affinity := soft | bound,
    measure := boolean()
}.

-type normal() :: #{
    port := inet:port_number(),
    ip := weir_address:address(),
    fd := non_neg_integer() | undefined,
    shared := boolean(),
    mode := 0..8#777 | undefined,
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
    measure := boolean(),
    affinity := soft | bound,
    shutdown := timeout() | brutal_kill,
    balance := off | #{interval := pos_integer(), threshold := pos_integer()},
    reactor := map(),
    handler := {function, fun((_, _) -> term())} | {protocol, module()} | {reactor, module()},
    args := term(),
    given := given()
}.
%% All options with their values, and the arguments that they are derived from.

-type refused() :: weir_checked_options:bad_option() | {not_started, ssl}.
%% A wrong option, or an application that is not running.

-define(DEFAULTS, #{
    port => 0,
    ip => any,
    fd => undefined,
    shared => false,
    mode => undefined,
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
    measure => false,
    affinity => soft,
    shutdown => 5000,
    balance => off,
    reactor => #{}
}).

%% The defaults of ranch_tcp.
-define(SOCKET_OPTS, [
    binary,
    {active, false},
    {reuseaddr, true},
    {nodelay, true},
    {backlog, 1024},
    {send_timeout, 30000},
    {send_timeout_close, true}
]).

%% gen_tcp's read size. Cowboy checks the length of a header after a read, so with 64 KiB its limits would not hold.
-define(PROTOCOL_SOCKET_OPTS, [{buffer, 1460}]).

%% Fixed properties of the listening sockets.
-define(FIXED, [port, ip, fd, shared, mode]).

%% Options that can change for running reactors; the others were passed to them at their start.
-define(CHANGES_FOR_REACTORS, [
    socket_opts, max_connections, overload, max_rate, per_address, allow, deny, measure, shutdown, given
]).

%% @doc Returns all options of a listener, or the first wrong one.
-spec new(weir_listener:options(), weir_listener:handler(), Args :: term()) -> {ok, normal()} | {error, refused()}.
new(Options, Handler, Args) when is_map(Options) ->
    try
        Given = maps:map(fun value/2, Options),
        Known = handler(Handler),
        All = (maps:merge(?DEFAULTS, Given))#{handler => Known, args => Args, given => {Options, Handler, Args}},
        Complete = All#{socket_opts := defaults(All) ++ maps:get(socket_opts, Given, [])},
        ok = together(Complete),
        ok = tls(Complete),
        {ok, Complete}
    catch
        throw:{refused, Refused} -> {error, Refused}
    end;
new(Options, _Handler, _Args) ->
    {error, {bad_option, options, Options, "a map"}}.

%% @doc Applies changes to the options of a running listener; `handler' and `args' may be among them. Within
%% `socket_opts' only the named ones change.
-spec change(weir_listener:changes(), normal()) -> {ok, normal()} | {error, refused()}.
change(Changes, Old = #{given := {Options, Handler, Args}}) when is_map(Changes) ->
    Changed = maps:merge(Options, maps:without([handler, args], Changes)),
    Given =
        case {Options, Changes} of
            {#{socket_opts := Before}, #{socket_opts := Now}} ->
                Changed#{socket_opts := with_others(Now, Before)};
            _ ->
                Changed
        end,
    case new(Given, maps:get(handler, Changes, Handler), maps:get(args, Changes, Args)) of
        {ok, New} ->
            try
                ok = may_become(Old, New),
                {ok, New}
            catch
                throw:{refused, Refused} -> {error, Refused}
            end;
        {error, _} = Error ->
            Error
    end;
change(Changes, _Old) ->
    {error, {bad_option, options, Changes, "a map"}}.

%% Appends the new options to the old ones that they do not replace. Wrong ones are found by the check of all options.
with_others(Now, Before) ->
    case is_proper(Now) of
        true ->
            Said = [name(Option) || Option <- Now],
            [Option || Option <- Before, not lists:member(name(Option), Said)] ++ Now;
        false ->
            Now
    end.

name({raw, Level, Name, _}) -> {raw, Level, Name};
name(Option) when tuple_size(Option) > 0 -> element(1, Option);
name(Mode) when Mode =:= binary; Mode =:= list -> mode;
name(Option) -> Option.

may_become(Old, New) ->
    Different = [Name || {Name, Value} <- maps:to_list(New), maps:get(Name, Old) =/= Value],
    Kinds = [element(1, maps:get(handler, Options)) || Options <- [Old, New]],
    case [Name || Name <- Different, lists:member(Name, ?FIXED)] of
        [Fixed | _] -> bad(Fixed, maps:get(Fixed, New), "its old value: a running listener cannot change it");
        [] -> ok
    end,
    case lists:member(reactor, Kinds) andalso Different -- ?CHANGES_FOR_REACTORS of
        false -> ok;
        [] -> ok;
        [Other | _] -> bad(Other, maps:get(Other, New), "its old value: running reactors cannot change it")
    end.

-spec bad(term(), term(), string()) -> no_return().
bad(Name, Value, Allowed) -> throw({refused, {bad_option, Name, Value, Allowed}}).

value(port, Port) when is_integer(Port), Port >= 0, Port =< 65535 -> Port;
value(port, Port) ->
    bad(port, Port, "0..65535");
value(ip, Text) when is_list(Text) ->
    case parse_address(Text) of
        {ok, IP} -> IP;
        error -> bad(ip, Text, ip())
    end;
value(ip, undefined) ->
    bad(ip, undefined, ip());
value(ip, IP) ->
    case not is_map(IP) andalso weir_address:is_valid(IP) of
        true -> IP;
        false -> bad(ip, IP, ip())
    end;
value(fd, Fd) when is_integer(Fd), Fd >= 0, Fd =< 16#7fffffff -> Fd;
value(fd, Fd) ->
    bad(fd, Fd, "the number of an open descriptor");
value(shared, Value) when is_boolean(Value) -> Value;
value(shared, Value) ->
    bad(shared, Value, "true or false");
value(mode, Mode) when is_integer(Mode), Mode >= 0, Mode =< 8#777 -> Mode;
value(mode, Mode) ->
    bad(mode, Mode, "permissions, 0..8#777");
value(socket_opts, Options) ->
    is_proper(Options) orelse bad(socket_opts, Options, "a list of options of gen_tcp:listen/2"),
    case [Option || Option <- Options, is_reserved(Option) orelse weir_options:listen([Option]) =:= {error, badarg}] of
        [] -> Options;
        [Option | _] -> bad(socket_opts, Option, "options of gen_tcp:listen/2 except ip, port, fd and tcp_module")
    end;
value(Name, Value) ->
    of_connections(Name, Value).

%% What happens to connections before their process has them.
of_connections(tls, undefined) ->
    undefined;
of_connections(tls, Options) ->
    is_proper(Options) orelse bad(tls, Options, "a list of options of ssl:handshake/3"),
    Options;
of_connections(handshake_timeout, Time) ->
    timeout(handshake_timeout, Time, "");
of_connections(proxy_protocol, Value) when is_boolean(Value) -> Value;
of_connections(proxy_protocol, Value) ->
    bad(proxy_protocol, Value, "true or false");
of_connections(max_connections, infinity) ->
    infinity;
of_connections(max_connections, Max) when is_integer(Max), Max >= 0, Max =< 16#ffffffff -> Max;
of_connections(max_connections, Max) ->
    bad(max_connections, Max, "0..4294967295 or infinity");
of_connections(overload, Value) when Value =:= pause; Value =:= reset -> Value;
of_connections(overload, Value) ->
    bad(overload, Value, "pause or reset");
of_connections(Name, infinity) when Name =:= max_rate; Name =:= per_address -> infinity;
of_connections(Name, Limit) when
    Name =:= max_rate orelse Name =:= per_address, is_integer(Limit), Limit > 0, Limit =< 16#ffffffff
->
    Limit;
of_connections(Name, Limit) when Name =:= max_rate; Name =:= per_address ->
    bad(Name, Limit, "1..4294967295 or infinity");
of_connections(Name, Prefixes) when Name =:= allow; Name =:= deny ->
    is_proper(Prefixes) orelse bad(Name, Prefixes, "a list of addresses with prefixes"),
    [prefix(Name, Prefix) || Prefix <- Prefixes];
of_connections(Name, Value) ->
    of_processes(Name, Value).

%% Processes and reactors: where they run, what they measure, how they end.
of_processes(placement, Value) when Value =:= local; Value =:= least_loaded -> Value;
of_processes(placement, Value) ->
    bad(placement, Value, "local or least_loaded");
of_processes(measure, Value) when is_boolean(Value) -> Value;
of_processes(measure, Value) ->
    bad(measure, Value, "true or false");
of_processes(affinity, Value) when Value =:= soft; Value =:= bound -> Value;
of_processes(affinity, Value) ->
    bad(affinity, Value, "soft or bound");
of_processes(shutdown, brutal_kill) ->
    brutal_kill;
of_processes(shutdown, Time) ->
    timeout(shutdown, Time, " or brutal_kill");
of_processes(balance, off) ->
    off;
of_processes(balance, Balance = #{interval := Interval, threshold := Threshold}) when
    map_size(Balance) =:= 2,
    is_integer(Interval),
    Interval > 0,
    Interval =< 16#ffffffff,
    is_integer(Threshold),
    Threshold > 0
->
    Balance;
of_processes(balance, Balance) ->
    bad(balance, Balance, "off or #{interval => Milliseconds, threshold => Percent}");
of_processes(reactor, Options) when is_map(Options) -> Options;
of_processes(reactor, Options) ->
    bad(reactor, Options, "a map of options of weir_reactor:start_link/1");
of_processes(Name, Value) ->
    bad(Name, Value, weir_checked_options:unknown(maps:keys(?DEFAULTS))).

ip() -> "an address such as {127, 0, 0, 1} or \"127.0.0.1\", any, loopback or {local, Path}".

is_proper(Options) -> is_list(Options) andalso length_of(Options) >= 0.

length_of(Options) ->
    try
        length(Options)
    catch
        error:badarg -> -1
    end.

%% `Others' names allowed values that are not times.
timeout(Name, Time, Others) ->
    case weir_checked_options:time(0, Time) of
        true -> Time;
        Allowed -> bad(Name, Time, Allowed ++ Others)
    end.

is_reserved({Name, _}) -> lists:member(Name, [ip, ifaddr, port, fd, tcp_module, inet_backend]);
is_reserved(_) -> false.

parse_address(Text) ->
    case io_lib:latin1_char_list(Text) andalso inet:parse_strict_address(Text) of
        {ok, IP} -> {ok, IP};
        _ -> error
    end.

prefix(Name, Text) when is_list(Text) ->
    {Address, Bits} =
        case io_lib:latin1_char_list(Text) andalso string:split(Text, "/") of
            [Front, Length] -> {Front, string:to_integer(Length)};
            _ -> {Text, undefined}
        end,
    case {parse_address(Address), Bits} of
        {{ok, IP}, undefined} -> prefix(Name, IP);
        {{ok, IP}, {Number, []}} -> prefix(Name, {IP, Number});
        _ -> bad(Name, Text, "an address, or one with a prefix such as \"10.0.0.0/8\"")
    end;
prefix(Name, {IP, Bits} = Prefix) ->
    Most =
        case is_tuple(IP) andalso weir_address:is_valid(IP) andalso weir_address:family(IP) of
            inet -> 32;
            inet6 -> 128;
            _ -> -1
        end,
    case is_integer(Bits) andalso Bits >= 0 andalso Bits =< Most of
        true -> Prefix;
        false -> bad(Name, Prefix, "{Address, Bits}, with at most 32 bits for IPv4 and 128 for IPv6")
    end;
prefix(Name, IP) when tuple_size(IP) =:= 4 -> prefix(Name, {IP, 32});
prefix(Name, IP) when tuple_size(IP) =:= 8 -> prefix(Name, {IP, 128});
prefix(Name, Other) -> bad(Name, Other, "an address, or one with a prefix such as \"10.0.0.0/8\"").

%% Defaults come first: the last of equal names counts.
defaults(#{handler := {protocol, _}, tls := undefined}) -> ?SOCKET_OPTS ++ ?PROTOCOL_SOCKET_OPTS;
defaults(_Options) -> ?SOCKET_OPTS.

handler(Function) when is_function(Function, 2) ->
    {function, Function};
handler(Module) when is_atom(Module) ->
    _ = code:ensure_loaded(Module),
    case {weir_reactor_options:is_reactor(Module), erlang:function_exported(Module, start_link, 3)} of
        {true, _} -> {reactor, Module};
        {_, true} -> {protocol, Module};
        _ -> bad(handler, Module, handlers())
    end;
handler(Other) ->
    bad(handler, Other, handlers()).

handlers() ->
    "a fun of two arguments, or a module that exports start_link/3, or init/2, handle_data/3 and handle_close/3".

tls(#{tls := undefined}) ->
    ok;
tls(#{tls := Options}) ->
    case weir_listener_tls:check(Options) of
        ok -> ok;
        {error, {not_started, ssl} = NotStarted} -> throw({refused, NotStarted});
        {error, {Option, Allowed}} -> bad(tls, Option, Allowed)
    end.

%% Combinations that are not allowed.
together(Options = #{handler := {reactor, _}}) ->
    for_reactor(Options),
    apart(Options);
together(#{reactor := Reactor}) when map_size(Reactor) > 0 ->
    bad(reactor, Reactor, "only for a handler that is a reactor");
together(Options = #{proxy_protocol := Proxy, tls := Tls, socket_opts := Socket}) when Proxy; Tls =/= undefined ->
    case [Option || {Name, Value} = Option <- Socket, Name =:= active orelse Name =:= packet, Value =/= false] of
        [] -> apart(Options);
        [Option | _] -> bad(socket_opts, Option, "only after the PROXY header or the handshake: call setopts then")
    end;
together(Options) ->
    apart(Options).

%% Options that a reactor would ignore are refused.
for_reactor(#{tls := Tls}) when Tls =/= undefined ->
    bad(tls, Tls, "undefined for reactors: a handshake needs a process for each connection");
for_reactor(#{placement := least_loaded}) ->
    bad(placement, least_loaded, "local for reactors: each takes the connections of its own listening socket");
for_reactor(#{balance := Balance}) when Balance =/= off ->
    bad(balance, Balance, "off for reactors: a connection's state may hold timers and monitors of its process");
for_reactor(#{affinity := bound}) ->
    bad(affinity, bound, "soft; to bind reactors set reactor => #{affinity => bound}");
for_reactor(#{handler := {reactor, Module}, reactor := Reactor, socket_opts := Socket}) ->
    case
        maps:to_list(
            maps:with([module, args, listen, scheduler, name, proxy_protocol, handshake_timeout, measure], Reactor)
        )
    of
        [] -> ok;
        [Ours | _] -> bad(reactor, Ours, "no such option: the listener sets it")
    end,
    case weir_reactor_options:new(Reactor#{module => Module}) of
        {ok, _} -> ok;
        {error, {bad_option, Option, Value, Allowed}} -> bad(reactor, {Option, Value}, Allowed)
    end,
    case [Option || {active, Value} = Option <- Socket, not is_boolean(Value)] of
        [] -> ok;
        [Bad | _] -> bad(socket_opts, Bad, "true or false for reactors, whose connections begin active")
    end.

apart(#{affinity := bound, handler := {Kind, _}}) when Kind =/= function ->
    bad(affinity, bound, "soft: a module starts its processes itself; only those of a fun can be bound");
apart(#{fd := Fd, ip := IP}) when Fd =/= undefined, IP =/= any ->
    bad(ip, IP, "not with fd: a descriptor is bound already");
apart(#{fd := Fd, port := Port}) when Fd =/= undefined, Port =/= 0 ->
    bad(port, Port, "not with fd: a descriptor is bound already");
apart(#{ip := {local, _}, port := Port}) when Port =/= 0 ->
    bad(port, Port, "not with {local, Path}");
apart(#{ip := IP, mode := Mode}) ->
    Mode =:= undefined orelse is_path(IP) orelse bad(mode, Mode, "only with ip => {local, Path}"),
    ok.

%% Abstract names, and names that the kernel chooses, have no file.
is_path({local, Path}) -> Path =/= <<>> andalso Path =/= [] andalso not is_abstract(Path);
is_path(_) -> false.

is_abstract(<<0, _/binary>>) -> true;
is_abstract([0 | _]) -> true;
is_abstract(_) -> false.
