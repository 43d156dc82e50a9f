%% @doc The PROXY protocol, versions 1 and 2: the header by which a proxy names both ends of a connection. Pure
%% functions.
%%
%% Headers are maps as in ranch, so that code for ranch can read them. See the <a
%% href="https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt">specification</a>.
-module(weir_proxy_protocol).

-export([parse/1]).
-export([build/1]).

-export_type([header/0, reason/0]).

-type header() :: #{
    version := 1 | 2,
    command := local | proxy,
    transport_family => undefined | ipv4 | ipv6 | unix,
    transport_protocol => undefined | stream | dgram,
    src_address => inet:ip_address() | binary(),
    src_port => inet:port_number(),
    dest_address => inet:ip_address() | binary(),
    dest_port => inet:port_number(),
    alpn => binary(),
    authority => binary(),
    unique_id => binary(),
    netns => binary(),
    ssl => #{
        client := [ssl | cert_conn | cert_sess],
        verified := boolean(),
        version => binary(),
        cipher => binary(),
        sig_alg => binary(),
        key_alg => binary(),
        cn => binary()
    },
    raw_tlvs => [{0..255, binary()}]
}.
%% `local': a connection of the proxy itself, such as a health check; the addresses are those of the socket.
%% `raw_tlvs' has the values without a key of their own.

-type reason() :: not_proxy | bad_header.
%% `not_proxy': the data is no header. `bad_header': the header breaks the specification, or its checksum is wrong.

-define(SIGNATURE, "\r\n\r\n\0\r\nQUIT\n").

%% The longest line of version 1, including its end.
-define(LINE_SIZE, 107).

-define(ALPN, 16#01).
-define(AUTHORITY, 16#02).
-define(CRC32C, 16#03).
-define(NOOP, 16#04).
-define(UNIQUE_ID, 16#05).
-define(SSL, 16#20).
-define(NETNS, 16#30).

-define(SSL_VERSION, 16#21).
-define(SSL_CN, 16#22).
-define(SSL_CIPHER, 16#23).
-define(SSL_SIG_ALG, 16#24).
-define(SSL_KEY_ALG, 16#25).

%% @doc Parses the header at the beginning of data, and returns it with the bytes after it; `more' if it is incomplete.
-spec parse(binary()) -> {ok, header(), Rest :: binary()} | more | {error, reason()}.
parse(<<?SIGNATURE, 2:4, Command:4, Family:4, Protocol:4, Size:16, Data/binary>>) ->
    case Data of
        <<_:Size/binary, Rest/binary>> when Command =:= 0 ->
            %% The receiver must ignore its body.
            {ok, #{version => 2, command => local}, Rest};
        <<Body:Size/binary, Rest/binary>> when Command =:= 1, Family =< 3, Protocol =< 2 ->
            Whole = <<?SIGNATURE, 2:4, Command:4, Family:4, Protocol:4, Size:16, Body/binary>>,
            v2(Family, Protocol, Body, Whole, Rest);
        _ when Command > 1; Family > 3; Protocol > 2 ->
            {error, bad_header};
        _ ->
            more
    end;
parse(<<?SIGNATURE, 2:4, _:4, _/binary>> = Data) when byte_size(Data) < 16 ->
    more;
parse(<<?SIGNATURE, _, _/binary>>) ->
    {error, bad_header};
parse(<<"PROXY ", _/binary>> = Data) ->
    case binary:split(Data, <<"\n">>) of
        [Front, Rest] when byte_size(Front) < ?LINE_SIZE -> ended_line(Front, Rest);
        [Whole] when byte_size(Whole) < ?LINE_SIZE -> more;
        _ -> {error, bad_header}
    end;
parse(Data) ->
    case is_beginning(Data, <<?SIGNATURE>>) orelse is_beginning(Data, <<"PROXY ">>) of
        true -> more;
        false -> {error, not_proxy}
    end.

is_beginning(Data, Whole) ->
    byte_size(Data) =< byte_size(Whole) andalso Data =:= binary:part(Whole, 0, byte_size(Data)).

%%% Version 1.

%% A line feed alone is an error. Waiting for more would consume the client's bytes.
ended_line(Front, Rest) ->
    Size = byte_size(Front) - 1,
    case Front of
        <<Line:Size/binary, "\r">> -> line(binary:split(Line, <<" ">>, [global]), Rest);
        _ -> {error, bad_header}
    end.

line([_, <<"UNKNOWN">> | _], Rest) ->
    {ok, #{version => 1, command => proxy, transport_family => undefined, transport_protocol => undefined}, Rest};
line([_, <<"TCP4">>, Source, Destination, SourcePort, DestinationPort], Rest) ->
    line(ipv4, fun inet:parse_ipv4strict_address/1, Source, Destination, SourcePort, DestinationPort, Rest);
line([_, <<"TCP6">>, Source, Destination, SourcePort, DestinationPort], Rest) ->
    line(ipv6, fun ipv6/1, Source, Destination, SourcePort, DestinationPort, Rest);
line(_, _Rest) ->
    {error, bad_header}.

line(Family, Parse, Source, Destination, SourcePort, DestinationPort, Rest) ->
    Parsed = {
        Parse(binary_to_list(Source)), Parse(binary_to_list(Destination)), port(SourcePort), port(DestinationPort)
    },
    case Parsed of
        {{ok, SourceIP}, {ok, DestinationIP}, {ok, SourceNumber}, {ok, DestinationNumber}} ->
            Header = #{
                version => 1,
                command => proxy,
                transport_family => Family,
                transport_protocol => stream,
                src_address => SourceIP,
                src_port => SourceNumber,
                dest_address => DestinationIP,
                dest_port => DestinationNumber
            },
            {ok, Header, Rest};
        _ ->
            {error, bad_header}
    end.

%% No zone: it names an interface of the sender's machine, and inet would ignore it.
ipv6(Text) ->
    case lists:member($%, Text) of
        true -> {error, einval};
        false -> inet:parse_ipv6strict_address(Text)
    end.

%% Only digits: no sign, no leading zeros.
port(Text) ->
    try binary_to_integer(Text) of
        Port when Port >= 0, Port =< 65535 ->
            case integer_to_binary(Port) of
                Text -> {ok, Port};
                _ -> error
            end;
        _ ->
            error
    catch
        error:badarg -> error
    end.

%%% Version 2.

v2(Family, Protocol, _Body, _Whole, Rest) when Family =:= 0; Protocol =:= 0 ->
    {ok, #{version => 2, command => proxy, transport_family => undefined, transport_protocol => undefined}, Rest};
v2(1, Protocol, <<S:4/binary, D:4/binary, SourcePort:16, DestinationPort:16, Tlvs/binary>>, Whole, Rest) ->
    internet(ipv4, Protocol, ip(S), SourcePort, ip(D), DestinationPort, Tlvs, Whole, Rest);
v2(2, Protocol, <<S:16/binary, D:16/binary, SourcePort:16, DestinationPort:16, Tlvs/binary>>, Whole, Rest) ->
    internet(ipv6, Protocol, ip(S), SourcePort, ip(D), DestinationPort, Tlvs, Whole, Rest);
v2(3, Protocol, <<Source:108/binary, Destination:108/binary, Tlvs/binary>>, Whole, Rest) ->
    Header = #{
        version => 2,
        command => proxy,
        transport_family => unix,
        transport_protocol => protocol(Protocol),
        src_address => path(Source),
        dest_address => path(Destination)
    },
    tlvs(Tlvs, Header, Whole, Rest);
v2(_Family, _Protocol, _Body, _Whole, _Rest) ->
    {error, bad_header}.

internet(Family, Protocol, Source, SourcePort, Destination, DestinationPort, Tlvs, Whole, Rest) ->
    Header = #{
        version => 2,
        command => proxy,
        transport_family => Family,
        transport_protocol => protocol(Protocol),
        src_address => Source,
        src_port => SourcePort,
        dest_address => Destination,
        dest_port => DestinationPort
    },
    tlvs(Tlvs, Header, Whole, Rest).

protocol(1) -> stream;
protocol(2) -> dgram.

ip(<<A, B, C, D>>) -> {A, B, C, D};
ip(<<A:16, B:16, C:16, D:16, E:16, F:16, G:16, H:16>>) -> {A, B, C, D, E, F, G, H}.

%% A path ends with its first null byte. An abstract name begins with one.
path(<<0, _/binary>> = Name) -> Name;
path(Padded) -> hd(binary:split(Padded, <<0>>)).

tlvs(Data, Header, Whole, Rest) ->
    case pairs(Data, []) of
        {ok, Pairs} ->
            case has_good_checksum(Pairs, Whole) of
                true -> tlvs_into(Pairs, Header, Rest);
                false -> {error, bad_header}
            end;
        error ->
            {error, bad_header}
    end.

pairs(<<>>, Pairs) -> {ok, lists:reverse(Pairs)};
pairs(<<Type, Size:16, Value:Size/binary, More/binary>>, Pairs) -> pairs(More, [{Type, Value} | Pairs]);
pairs(_, _) -> error.

tlvs_into(Pairs, Header, Rest) ->
    try lists:foldl(fun tlv/2, Header, Pairs) of
        Full = #{raw_tlvs := Raw} -> {ok, Full#{raw_tlvs := lists:reverse(Raw)}, Rest};
        Full -> {ok, Full, Rest}
    catch
        throw:bad_header -> {error, bad_header}
    end.

tlv({?ALPN, Value}, Header) -> Header#{alpn => Value};
tlv({?AUTHORITY, Value}, Header) -> Header#{authority => Value};
tlv({?UNIQUE_ID, Value}, Header) when byte_size(Value) =< 128 -> Header#{unique_id => Value};
tlv({?UNIQUE_ID, _}, _Header) -> throw(bad_header);
tlv({?NETNS, Value}, Header) -> Header#{netns => Value};
tlv({?CRC32C, _}, Header) -> Header;
tlv({?NOOP, _}, Header) -> Header;
tlv({?SSL, Value}, Header) -> Header#{ssl => ssl(Value)};
tlv(Other, Header) -> Header#{raw_tlvs => [Other | maps:get(raw_tlvs, Header, [])]}.

ssl(<<_:5, Session:1, Connection:1, Ssl:1, Verify:32, Data/binary>>) ->
    Client = [Name || {Name, 1} <- [{ssl, Ssl}, {cert_conn, Connection}, {cert_sess, Session}]],
    case pairs(Data, []) of
        {ok, Pairs} -> lists:foldl(fun ssl_tlv/2, #{client => Client, verified => Verify =:= 0}, Pairs);
        error -> throw(bad_header)
    end;
ssl(_) ->
    throw(bad_header).

ssl_tlv({?SSL_VERSION, Value}, Ssl) -> Ssl#{version => Value};
ssl_tlv({?SSL_CN, Value}, Ssl) -> Ssl#{cn => Value};
ssl_tlv({?SSL_CIPHER, Value}, Ssl) -> Ssl#{cipher => Value};
ssl_tlv({?SSL_SIG_ALG, Value}, Ssl) -> Ssl#{sig_alg => Value};
ssl_tlv({?SSL_KEY_ALG, Value}, Ssl) -> Ssl#{key_alg => Value};
ssl_tlv(_Other, Ssl) -> Ssl.

%% The checksum covers the whole header, with zeros in place of itself.
has_good_checksum(Pairs, Whole) ->
    case [Value || {?CRC32C, Value} <- Pairs] of
        [] ->
            true;
        [<<Sum:32>>] ->
            {ok, At} = checksum_position(Whole, byte_size(Whole) - tlv_size(Pairs)),
            <<Front:At/binary, _:32, Back/binary>> = Whole,
            crc32c(<<Front/binary, 0:32, Back/binary>>) =:= Sum;
        _ ->
            false
    end.

tlv_size(Pairs) -> lists:sum([3 + byte_size(Value) || {_, Value} <- Pairs]).

checksum_position(Whole, At) ->
    case Whole of
        <<_:At/binary, ?CRC32C, 4:16, _/binary>> -> {ok, At + 3};
        <<_:At/binary, _, Size:16, _/binary>> -> checksum_position(Whole, At + 3 + Size)
    end.

%% Castagnoli's polynomial, reflected. Headers are short, and few carry a checksum.
crc32c(Data) -> crc32c(Data, 16#ffffffff).

crc32c(<<Byte, Rest/binary>>, Sum) -> crc32c(Rest, crc32c_bits(Sum bxor Byte, 8));
crc32c(<<>>, Sum) -> Sum bxor 16#ffffffff.

crc32c_bits(Sum, 0) -> Sum;
crc32c_bits(Sum, Bits) when Sum band 1 =:= 1 -> crc32c_bits((Sum bsr 1) bxor 16#82f63b78, Bits - 1);
crc32c_bits(Sum, Bits) -> crc32c_bits(Sum bsr 1, Bits - 1).

%%% Building.

%% @doc Builds a header, for clients of a server behind a proxy. A header of version 2 has a checksum if it has values
%% after its addresses.
-spec build(header()) -> binary().
build(#{version := 1, transport_family := undefined}) ->
    <<"PROXY UNKNOWN\r\n">>;
build(#{
    version := 1,
    transport_family := Family,
    src_address := Source,
    src_port := SourcePort,
    dest_address := Destination,
    dest_port := DestinationPort
}) ->
    Name =
        case Family of
            ipv4 -> "TCP4";
            ipv6 -> "TCP6"
        end,
    Parts = [
        Name, inet:ntoa(Source), inet:ntoa(Destination), integer_to_list(SourcePort), integer_to_list(DestinationPort)
    ],
    iolist_to_binary(["PROXY ", lists:join(" ", Parts), "\r\n"]);
build(#{version := 2, command := local}) ->
    <<?SIGNATURE, 2:4, 0:4, 0:8, 0:16>>;
build(#{version := 2, transport_family := undefined}) ->
    <<?SIGNATURE, 2:4, 1:4, 0:8, 0:16>>;
build(Header = #{version := 2, transport_family := Family, transport_protocol := Protocol}) ->
    Addresses = addresses(Header),
    Tlvs = built_tlvs(Header),
    Front = fun(Size) ->
        <<?SIGNATURE, 2:4, 1:4, (family_number(Family)):4, (protocol_number(Protocol)):4, Size:16>>
    end,
    case Tlvs of
        <<>> ->
            <<(Front(byte_size(Addresses)))/binary, Addresses/binary>>;
        _ ->
            Size = byte_size(Addresses) + byte_size(Tlvs) + 7,
            Before = <<(Front(Size))/binary, Addresses/binary, Tlvs/binary, ?CRC32C, 4:16>>,
            <<Before/binary, (crc32c(<<Before/binary, 0:32>>)):32>>
    end.

family_number(ipv4) -> 1;
family_number(ipv6) -> 2;
family_number(unix) -> 3.

protocol_number(stream) -> 1;
protocol_number(dgram) -> 2.

addresses(#{transport_family := unix, src_address := Source, dest_address := Destination}) ->
    <<(padded(Source))/binary, (padded(Destination))/binary>>;
addresses(#{
    src_address := Source, src_port := SourcePort, dest_address := Destination, dest_port := DestinationPort
}) ->
    <<(ip_bytes(Source))/binary, (ip_bytes(Destination))/binary, SourcePort:16, DestinationPort:16>>.

padded(Path) -> <<Path/binary, 0:(108 - byte_size(Path))/unit:8>>.

ip_bytes({A, B, C, D}) -> <<A, B, C, D>>;
ip_bytes({A, B, C, D, E, F, G, H}) -> <<A:16, B:16, C:16, D:16, E:16, F:16, G:16, H:16>>.

built_tlvs(Header) ->
    Named = [{alpn, ?ALPN}, {authority, ?AUTHORITY}, {unique_id, ?UNIQUE_ID}, {netns, ?NETNS}],
    Ssl = [{?SSL, built_ssl(Value)} || {ssl, Value} <- maps:to_list(Header)],
    joined(named(Named, Header) ++ Ssl ++ maps:get(raw_tlvs, Header, [])).

built_ssl(Ssl = #{client := Client, verified := Verified}) ->
    [Encrypted, Connection, Session] = [bit(lists:member(Name, Client)) || Name <- [ssl, cert_conn, cert_sess]],
    Named = [
        {version, ?SSL_VERSION},
        {cn, ?SSL_CN},
        {cipher, ?SSL_CIPHER},
        {sig_alg, ?SSL_SIG_ALG},
        {key_alg, ?SSL_KEY_ALG}
    ],
    Verify = bit(not Verified),
    <<0:5, Session:1, Connection:1, Encrypted:1, Verify:32, (joined(named(Named, Ssl)))/binary>>.

bit(true) -> 1;
bit(false) -> 0.

named(Names, Map) -> [{Type, maps:get(Name, Map)} || {Name, Type} <- Names, is_map_key(Name, Map)].

joined(Pairs) -> iolist_to_binary([<<Type, (byte_size(Value)):16, Value/binary>> || {Type, Value} <- Pairs]).
