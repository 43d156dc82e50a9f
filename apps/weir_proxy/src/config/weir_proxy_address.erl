%% @doc Addresses to listen on and to connect to: parsing, checks and formatting.
-module(weir_proxy_address).

-export([endpoint/2]).
-export([path/2]).
-export([ip/2]).
-export([prefix/2]).
-export([is_within/2]).
-export([to_text/1]).

-export_type([endpoint/0, prefix/0]).

%% The longest path of a unix socket, see unix(7).
-define(PATH_MAX, 107).

-type endpoint() :: {inet:ip_address(), inet:port_number()} | {local, binary()} | {name, binary(), inet:port_number()}.
%% An IP address and a port, a unix socket, or a name to resolve and a port.

-type prefix() :: {inet:ip_address(), Bits :: 0..128}.

%% @doc Parses an endpoint: `"10.0.0.1:80"', `"[::1]:80"', `":80"' (all IPv4 addresses of this machine),
%% `"unix:/run/x.sock"', `"name:80"', `{Address, Port}', or `{local, Path}'.
-spec endpoint(weir_proxy_schema:path(), term()) -> endpoint().
endpoint(Path, {local, Local}) when is_binary(Local), Local =/= <<>> -> local(Path, {local, Local}, Local);
endpoint(_Path, {name, Name, Port}) when is_binary(Name), is_integer(Port), Port >= 0, Port =< 65535 ->
    {name, Name, Port};
endpoint(Path, {Address, Port}) when is_integer(Port), Port >= 0, Port =< 65535 ->
    case inet:is_ip_address(Address) of
        true -> {Address, Port};
        false -> refuse(Path, {Address, Port})
    end;
endpoint(Path, Value) ->
    case text(Value) of
        <<"unix:", Local/binary>> when Local =/= <<>> -> local(Path, Value, Local);
        error ->
            refuse(Path, Value);
        Text ->
            case
                re:run(Text, "^(?:\\[([^]]+)\\]|([^:]*)):([0-9]{1,5})$", [
                    {capture, all_but_first, binary}, dollar_endonly
                ])
            of
                {match, [V6, V4, Port]} -> host(Path, Value, V6, V4, binary_to_integer(Port));
                nomatch -> refuse(Path, Value)
            end
    end.

local(_Path, _Value, Local) when byte_size(Local) =< ?PATH_MAX -> {local, Local};
local(Path, Value, _Local) ->
    weir_proxy_schema:refuse(Path, Value, io_lib:format("a path of at most ~b bytes", [?PATH_MAX])).

host(Path, Value, _V6, _V4, Port) when Port > 65535 -> refuse(Path, Value);
host(_Path, _Value, <<>>, <<>>, Port) -> {{0, 0, 0, 0}, Port};
host(Path, Value, <<>>, V4, Port) ->
    case inet:parse_ipv4strict_address(binary_to_list(V4)) of
        {ok, Address} ->
            {Address, Port};
        {error, einval} ->
            case re:run(V4, "^(?=.*[A-Za-z])[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$") of
                {match, _} -> {name, V4, Port};
                nomatch -> refuse(Path, Value)
            end
    end;
host(Path, Value, V6, _V4, Port) ->
    case inet:parse_ipv6strict_address(binary_to_list(V6)) of
        {ok, Address} -> {Address, Port};
        {error, einval} -> refuse(Path, Value)
    end.

-spec refuse(weir_proxy_schema:path(), term()) -> no_return().
refuse(Path, Value) ->
    weir_proxy_schema:refuse(
        Path, Value, "\"ADDRESS:PORT\", \"[IPV6]:PORT\", \":PORT\", \"NAME:PORT\" or \"unix:PATH\""
    ).

%% @doc Checks the path of a unix socket.
-spec path(weir_proxy_schema:path(), term()) -> binary().
path(Path, Value) ->
    {local, Local} = local(Path, Value, (weir_proxy_schema:text())(Path, Value)),
    Local.

%% @doc Parses an IP address without a port.
-spec ip(weir_proxy_schema:path(), term()) -> inet:ip_address().
ip(Path, Value) ->
    case inet:is_ip_address(Value) orelse parse(text(Value)) of
        true -> Value;
        {ok, Address} -> Address;
        _ -> weir_proxy_schema:refuse(Path, Value, "an address such as \"10.0.0.1\"")
    end.

parse(error) -> error;
parse(Text) -> inet:parse_strict_address(binary_to_list(Text)).

%% @doc Parses an address with or without a prefix length: `"10.0.0.0/8"', `"::1"'.
-spec prefix(weir_proxy_schema:path(), term()) -> prefix().
prefix(Path, {Address, Bits} = Value) ->
    case inet:is_ip_address(Address) of
        true -> bits(Path, Value, Address, Bits);
        false -> refuse_prefix(Path, Value)
    end;
prefix(Path, Value) ->
    case text(Value) of
        error ->
            refuse_prefix(Path, Value);
        Text ->
            case {parse(hd(binary:split(Text, <<"/">>))), binary:split(Text, <<"/">>)} of
                {{ok, Address}, [_]} -> {Address, bit_size(bytes(Address))};
                {{ok, Address}, [_, Bits]} ->
                    bits(Path, Value, Address, try binary_to_integer(Bits) catch error:badarg -> none end);
                _ -> refuse_prefix(Path, Value)
            end
    end.

bits(Path, Value, Address, Bits) ->
    case is_integer(Bits) andalso Bits >= 0 andalso Bits =< bit_size(bytes(Address)) of
        true -> {Address, Bits};
        false -> refuse_prefix(Path, Value)
    end.

-spec refuse_prefix(weir_proxy_schema:path(), term()) -> no_return().
refuse_prefix(Path, Value) ->
    weir_proxy_schema:refuse(Path, Value, "an address with or without a prefix, such as \"10.0.0.0/8\"").

%% @doc Returns whether an address is within a prefix.
-spec is_within(inet:ip_address(), prefix()) -> boolean().
is_within(Address, {Prefix, Bits}) when tuple_size(Address) =:= tuple_size(Prefix) ->
    <<A:Bits/bitstring, _/bitstring>> = bytes(Address),
    <<B:Bits/bitstring, _/bitstring>> = bytes(Prefix),
    A =:= B;
%% An IPv4-mapped address, as it may come in the PROXY header of another proxy.
is_within({0, 0, 0, 0, 0, 16#ffff, High, Low}, {{_, _, _, _}, _} = Prefix) ->
    is_within({High bsr 8, High band 255, Low bsr 8, Low band 255}, Prefix);
is_within(_Address, _Prefix) ->
    false.

bytes({A, B, C, D}) -> <<A, B, C, D>>;
bytes({A, B, C, D, E, F, G, H}) -> <<A:16, B:16, C:16, D:16, E:16, F:16, G:16, H:16>>.

%% @doc Formats an endpoint as {@link endpoint/2} reads it; `-' if it is unknown.
-spec to_text(endpoint() | weir_tcp:name() | undefined) -> binary().
to_text({local, Path}) -> <<"unix:", (iolist_to_binary([Path]))/binary>>;
to_text({name, Name, Port}) -> iolist_to_binary([Name, $:, integer_to_binary(Port)]);
to_text({{_, _, _, _} = Address, Port}) -> iolist_to_binary([inet:ntoa(Address), $:, integer_to_binary(Port)]);
to_text({Address, Port}) when tuple_size(Address) =:= 8 ->
    iolist_to_binary([$[, inet:ntoa(Address), $], $:, integer_to_binary(Port)]);
to_text(_Unknown) -> <<"-">>.

text(Value) when is_binary(Value) -> Value;
text(Value) ->
    try unicode:characters_to_binary(Value) of
        Text when is_binary(Text) -> Text;
        _ -> error
    catch
        error:_ -> error
    end.
