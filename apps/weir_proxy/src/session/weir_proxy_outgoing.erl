%% @private
%% @doc The PROXY header that a server gets before the bytes of a connection or a check.
-module(weir_proxy_outgoing).

-export([header/4]).
-export([of_check/1]).

%% @doc Returns the header, or an empty binary if the backend sends none. Version 2 carries the known TLS facts and a
%% checksum.
-spec header(weir_proxy_config:backend(), weir_tcp:socket(), weir_tcp:name(), weir_proxy_rules:facts()) -> binary().
header(#{send_proxy := off}, _Client, _Address, _Facts) ->
    <<>>;
header(#{send_proxy := Version, unique_id := Unique}, Client, Address, Facts) ->
    Ends = ends(Address, destination(Client)),
    weir_proxy_protocol:build(contents(Version, Ends, Unique, Facts)).

%% @doc Returns the header of a check: LOCAL in version 2, UNKNOWN in version 1, which has no LOCAL.
-spec of_check(off | v1 | v2) -> binary().
of_check(off) -> <<>>;
of_check(v1) -> weir_proxy_protocol:build(#{version => 1, command => local, transport_family => undefined});
of_check(v2) -> weir_proxy_protocol:build(#{version => 2, command => local}).

%% The address that the client connected to, from the PROXY header if another proxy is in front of this one.
destination(Client) ->
    case weir:proxy_header() of
        {ok, #{dest_address := Address, dest_port := Port}} -> {Address, Port};
        _ ->
            case inet:sockname(Client) of
                {ok, Name} -> Name;
                {error, _} -> undefined
            end
    end.

ends({{_, _, _, _} = Source, SourcePort}, {{_, _, _, _} = Destination, DestinationPort}) ->
    ends(ipv4, Source, SourcePort, Destination, DestinationPort);
ends({Source, SourcePort}, {Destination, DestinationPort}) when
    tuple_size(Source) =:= 8, tuple_size(Destination) =:= 8
->
    ends(ipv6, Source, SourcePort, Destination, DestinationPort);
ends(_, _) ->
    #{transport_family => undefined, transport_protocol => undefined}.

ends(Family, Source, SourcePort, Destination, DestinationPort) ->
    #{
        transport_family => Family,
        transport_protocol => stream,
        src_address => Source,
        src_port => SourcePort,
        dest_address => Destination,
        dest_port => DestinationPort
    }.

contents(v1, Ends, _Unique, _Facts) ->
    Ends#{version => 1, command => proxy};
contents(v2, Ends, Unique, Facts) ->
    Values = maps:from_list(
        [{authority, Name} || {sni, Name} <- maps:to_list(Facts)] ++
        [{alpn, Protocol} || {alpn, [Protocol]} <- maps:to_list(Facts)] ++
        [{unique_id, unique()} || Unique]
    ),
    maps:merge(Ends#{version => 2, command => proxy}, Values).

unique() -> binary:encode_hex(crypto:strong_rand_bytes(16)).
