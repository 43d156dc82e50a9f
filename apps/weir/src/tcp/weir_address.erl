%% @private
%% @doc Socket addresses: validation, family, and conversion for the native side.
-module(weir_address).

-export([family/1]).
-export([is_valid/1]).
-export([native/3]).

-export_type([family/0, address/0, native/0]).

-type family() :: inet | inet6 | local.
%% The address family of a socket.

-type native() ::
    {inet:ip4_address(), inet:port_number()}
    | {inet:ip6_address(), inet:port_number(), FlowInfo :: 0..16#ffffffff, ScopeId :: 0..16#ffffffff}
    | {local, binary()}.
%% An address to bind or to connect to, as the native part takes it.

-type address() ::
    undefined
    | any
    | loopback
    | inet:ip_address()
    | inet:local_address()
    | #{
        family := inet | inet6, addr := any | loopback | inet:ip_address(), port := inet:port_number(), atom() => term()
    }.
%% An address that a socket is bound or connected to. The maps are those of `socket:sockaddr_in()' and
%% `socket:sockaddr_in6()' with all fields.

%% @doc Returns the family of an address; `undefined' if several fit.
-spec family(address()) -> family() | undefined.
family(#{family := Family}) -> Family;
family({local, _Path}) -> local;
family(IP) when tuple_size(IP) =:= 4 -> inet;
family(IP) when tuple_size(IP) =:= 8 -> inet6;
family(_) -> undefined.

%% @doc Whether a term is an address. As in gen_tcp, a local path is only checked by bind and connect.
-spec is_valid(term()) -> boolean().
is_valid(undefined) -> true;
is_valid(any) -> true;
is_valid(loopback) -> true;
is_valid({local, _Path}) -> true;
is_valid(#{family := inet, addr := IP, port := Port}) -> is_ip(IP, 4) andalso is_within(Port, 16#ffff);
is_valid(#{family := inet6, addr := IP, port := Port, flowinfo := Flow, scope_id := Scope}) ->
    is_ip(IP, 8) andalso is_within(Port, 16#ffff) andalso is_within(Flow, 16#ffffffff) andalso
        is_within(Scope, 16#ffffffff);
is_valid(IP) when tuple_size(IP) =:= 4; tuple_size(IP) =:= 8 -> is_ip(IP, tuple_size(IP));
is_valid(_) -> false.

is_ip(any, _Size) -> true;
is_ip(loopback, _Size) -> true;
is_ip(IP, 4) when tuple_size(IP) =:= 4 -> lists:all(fun(Part) -> is_within(Part, 16#ff) end, tuple_to_list(IP));
is_ip(IP, 8) when tuple_size(IP) =:= 8 -> lists:all(fun(Part) -> is_within(Part, 16#ffff) end, tuple_to_list(IP));
is_ip(_, _Size) -> false.

is_within(Value, Max) -> is_integer(Value) andalso Value >= 0 andalso Value =< Max.

%% @doc Converts an address for the native side. The port of a map takes precedence over the argument. `einval': a
%% local path is not text.
-spec native(family(), address(), inet:port_number()) -> {ok, native()} | {error, einval}.
native(_Family, #{family := inet, addr := IP, port := Port}, _) -> native(inet, IP, Port);
native(_Family, #{family := inet6, addr := IP, port := Port, flowinfo := Flow, scope_id := Scope}, _) ->
    {ok, {inet6_tcp:translate_ip(IP), Port, Flow, Scope}};
native(_Family, {local, Path}, _Port) when is_binary(Path) ->
    {ok, {local, Path}};
native(_Family, {local, Path}, _Port) ->
    try unicode:characters_to_binary(Path, unicode, file:native_name_encoding()) of
        Binary when is_binary(Binary) -> {ok, {local, Binary}};
        _ -> {error, einval}
    catch
        error:badarg -> {error, einval}
    end;
native(inet, IP, Port) ->
    {ok, {inet_tcp:translate_ip(IP), Port}};
native(inet6, IP, Port) ->
    {ok, {inet6_tcp:translate_ip(IP), Port, 0, 0}}.
