%% @doc Rules choose the backend of a connection by the facts known about it. The first rule that matches decides. Pure
%% functions.
-module(weir_proxy_rules).

-export([rule/2]).
-export([backends/1]).
-export([has_module/1]).
-export([new/2]).
-export([wants_port/1]).
-export([decide/2]).

-export_type([rule/0, rules/0, facts/0, decision/0]).

-type pattern() :: {exact, binary()} | {suffix, binary()} | {regex, Compiled :: tuple()}.

-type rule() :: #{
    from := [weir_proxy_address:prefix()] | any,
    port := [inet:port_number()] | any,
    sni := [pattern()] | any,
    alpn := [binary()] | any,
    protocol := [weir_proxy_first_bytes:protocol()] | any,
    host := [pattern()] | any,
    user := [binary()] | any,
    database := [binary()] | any,
    backend := binary() | undefined,
    reject := boolean(),
    module := module() | undefined,
    args := term()
}.

-opaque rules() :: {
    [{AtOnce :: [condition()], OfBytes :: [condition()], decision()}], Default :: decision(), WantsPort :: boolean()
}.

-type condition() :: {Fact :: atom(), Wanted :: [term(), ...]}.

-type facts() :: #{
    address => inet:ip_address(),
    port => inet:port_number(),
    protocol => weir_proxy_first_bytes:protocol(),
    sni => binary(),
    alpn => [binary()],
    host => binary(),
    user => binary(),
    database => binary()
}.
%% `protocol' and the facts after it are known only after the first bytes were read.

-type decision() :: {backend, binary()} | reject | {module, module(), Args :: term()}.

%% Most steps of a regular expression for one name: about 2 ms.
-define(STEPS, 100_000).

%% Conditions that need no bytes from the client.
-define(AT_ONCE, [from, port]).
-define(OF_BYTES, [sni, alpn, protocol, host, user, database]).

%% @doc Checks a rule: its conditions, all of which must hold, and one of `backend', `reject' and `module'.
-spec rule(weir_proxy_schema:path(), term()) -> rule().
rule(Path, Map) ->
    Text = weir_proxy_schema:text(),
    Rule = weir_proxy_schema:table(Path, Map, [
        {from, one_or_more(fun weir_proxy_address:prefix/2), any},
        {port, one_or_more(weir_proxy_schema:integer(1, 65535)), any},
        {sni, one_or_more(fun pattern/2), any},
        {alpn, one_or_more(Text), any},
        {protocol, one_or_more(weir_proxy_schema:word([http, tls, ssh, postgres, redis, unknown, none])), any},
        {host, one_or_more(fun pattern/2), any},
        {user, one_or_more(Text), any},
        {database, one_or_more(Text), any},
        {backend, Text, undefined},
        {reject, weir_proxy_schema:boolean(), false},
        {module, fun module/2, undefined},
        {args, weir_proxy_schema:any(), undefined}
    ]),
    case Rule of
        #{backend := undefined, reject := false, module := undefined} ->
            weir_proxy_schema:refuse(Path, Map, "one of backend, reject and module");
        #{backend := Backend, reject := true} when Backend =/= undefined ->
            weir_proxy_schema:refuse(Path, Map, "one of backend, reject and module");
        #{module := Module, backend := Backend, reject := Reject} when
            Module =/= undefined, Backend =/= undefined orelse Reject
        ->
            weir_proxy_schema:refuse(Path, Map, "one of backend, reject and module");
        #{module := undefined, args := Args} when Args =/= undefined ->
            weir_proxy_schema:refuse(Path ++ [args], Args, "no args without module");
        #{} ->
            Rule
    end.

one_or_more(Kind) ->
    fun
        (_Path, any) -> any;
        (Path, [_ | _] = List) when not is_integer(hd(List)) -> weir_proxy_schema:list(Path, List, Kind);
        (Path, [_ | _] = List) ->
            %% Text as a string, or a list of numbers.
            try
                [Kind(Path, List)]
            catch
                throw:Bad ->
                    try weir_proxy_schema:list(Path, List, Kind) catch throw:_ -> throw(Bad) end
            end;
        (Path, Value) -> [Kind(Path, Value)]
    end.

%% `name', `*.name' for all names below it, or `~' followed by a regular expression.
pattern(Path, Value) ->
    case (weir_proxy_schema:text())(Path, Value) of
        <<"~", Expression/binary>> ->
            case re:compile(Expression, [caseless, dollar_endonly]) of
                {ok, Compiled} -> {regex, Compiled};
                {error, {Why, At}} ->
                    weir_proxy_schema:refuse(Path, Value, io_lib:format("a regular expression (~ts at ~b)", [Why, At]))
            end;
        <<"*.", Below/binary>> when Below =/= <<>> -> {suffix, weir_proxy_first_bytes:lower(<<".", Below/binary>>)};
        Name -> {exact, weir_proxy_first_bytes:lower(Name)}
    end.

%% A module that is in the code path may not be loaded yet, and then its atom may not exist. No atom is made for a name
%% without a file.
module(Path, Value) ->
    Name = (weir_proxy_schema:text())(Path, Value),
    case find_module(Name) of
        {ok, Module} ->
            case code:ensure_loaded(Module) =:= {module, Module} andalso erlang:function_exported(Module, route, 3) of
                true -> Module;
                false -> refuse_module(Path, Value)
            end;
        error ->
            refuse_module(Path, Value)
    end.

find_module(Name) ->
    try
        {ok, binary_to_existing_atom(Name)}
    catch
        error:badarg ->
            IsFile =
                byte_size(Name) =< 255 andalso
                    code:where_is_file(binary_to_list(<<Name/binary, ".beam">>)) =/= non_existing,
            case IsFile of
                true -> {ok, binary_to_atom(Name)};
                false -> error
            end
    end.

-spec refuse_module(weir_proxy_schema:path(), term()) -> no_return().
refuse_module(Path, Value) ->
    weir_proxy_schema:refuse(Path, Value, "a module that exports route/3 (see weir_proxy_route)").

%% @doc Returns the backends that a rule names.
-spec backends(rule()) -> [binary()].
backends(#{backend := undefined}) -> [];
backends(#{backend := Backend}) -> [Backend].

%% @doc Returns whether the rule asks a module.
-spec has_module(rule()) -> boolean().
has_module(#{module := Module}) -> Module =/= undefined.

%% @doc Prepares rules for {@link decide/2}. `Backend' is the default if no rule matches; `undefined' rejects then.
-spec new([rule()], binary() | undefined) -> rules().
new(Rules, Backend) ->
    Default =
        case Backend of
            undefined -> reject;
            _ -> {backend, Backend}
        end,
    {
        [{conditions(?AT_ONCE, Rule), conditions(?OF_BYTES, Rule), action(Rule)} || Rule <- Rules],
        Default,
        lists:any(fun asks_port/1, Rules)
    }.

conditions(Names, Rule) -> [{Name, Wanted} || Name <- Names, Wanted <- [map_get(Name, Rule)], Wanted =/= any].

action(#{module := Module, args := Args}) when Module =/= undefined -> {module, Module, Args};
action(#{reject := true}) -> reject;
action(#{backend := Backend}) -> {backend, Backend}.

%% A module may use the port.
asks_port(#{port := Ports, module := Module}) -> Ports =/= any orelse Module =/= undefined.

%% @doc Returns whether the rules need the local port of a connection, which costs a system call.
-spec wants_port(rules()) -> boolean().
wants_port({_, _, WantsPort}) -> WantsPort.

%% @doc Decides about a connection. Returns `first_bytes' if that needs facts of the first bytes, which were not read
%% yet. Rejects a connection if a regular expression takes too many steps for its name: otherwise such a name would get
%% past a rule that rejects it.
-spec decide(facts(), rules()) -> decision() | first_bytes.
decide(Facts, {Rules, Default, _}) ->
    try
        decide(Rules, Facts, Default)
    catch
        throw:too_many_steps -> reject
    end.

decide([], _Facts, Default) ->
    Default;
decide([{AtOnce, OfBytes, Decision} | Rules], Facts, Default) ->
    case all_hold(AtOnce, Facts) of
        true when OfBytes =/= [], not is_map_key(protocol, Facts) ->
            first_bytes;
        true ->
            case all_hold(OfBytes, Facts) of
                true -> Decision;
                false -> decide(Rules, Facts, Default)
            end;
        false ->
            decide(Rules, Facts, Default)
    end.

all_hold([], _Facts) -> true;
all_hold([{Name, Wanted} | Conditions], Facts) -> holds(Name, Wanted, Facts) andalso all_hold(Conditions, Facts).

holds(from, Prefixes, #{address := Address}) ->
    lists:any(fun(Prefix) -> weir_proxy_address:is_within(Address, Prefix) end, Prefixes);
holds(Name, Patterns, Facts) when Name =:= sni; Name =:= host ->
    case Facts of
        #{Name := Text} -> lists:any(fun(Pattern) -> fits(Pattern, Text) end, Patterns);
        #{} -> false
    end;
holds(alpn, Wanted, #{alpn := Offered}) -> lists:any(fun(Protocol) -> lists:member(Protocol, Offered) end, Wanted);
holds(Name, Values, Facts) ->
    case Facts of
        #{Name := Value} -> lists:member(Value, Values);
        #{} -> false
    end.

fits({exact, Name}, Text) -> Name =:= Text;
fits({suffix, Suffix}, Text) ->
    Size = byte_size(Text) - byte_size(Suffix),
    Size > 0 andalso binary:part(Text, Size, byte_size(Suffix)) =:= Suffix;
fits({regex, Expression}, Text) ->
    case re:run(Text, Expression, [{capture, none}, report_errors, {match_limit, ?STEPS}]) of
        match -> true;
        nomatch -> false;
        {error, _} -> throw(too_many_steps)
    end.
