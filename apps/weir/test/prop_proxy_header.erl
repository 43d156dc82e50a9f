%% Every built header is parsed from any pieces, and bytes after it are left.
-module(prop_proxy_header).

-export([prop_proxy_header/0, prop_nonsense/0]).

-include_lib("proper/include/proper.hrl").

prop_proxy_header() ->
    ?FORALL({Header, Rest, Cut}, {header(), binary(), non_neg_integer()}, weir_test_property:holds(fun() ->
        Built = weir_proxy_protocol:build(Header),
        %% Every prefix of a header is incomplete.
        Front = binary:part(Built, 0, Cut rem byte_size(Built)),
        more = weir_proxy_protocol:parse(Front),
        {ok, Header, Rest} = weir_proxy_protocol:parse(<<Built/binary, Rest/binary>>),
        true
    end)).

%% Any bytes get an answer; a header with one changed byte is a header or an error.
prop_nonsense() ->
    ?FORALL({Header, At, Byte, Data}, {header(), non_neg_integer(), byte(), binary()}, weir_test_property:holds(fun() ->
        Built = weir_proxy_protocol:build(Header),
        Position = At rem byte_size(Built),
        <<Front:Position/binary, _, Back/binary>> = Built,
        is_answer(weir_proxy_protocol:parse(<<Front/binary, Byte, Back/binary>>)) andalso
            is_answer(weir_proxy_protocol:parse(Data)) andalso
            is_answer(weir_proxy_protocol:parse(<<"PROXY ", Data/binary>>)) andalso
            is_answer(weir_proxy_protocol:parse(<<"\r\n\r\n\0\r\nQUIT\n", Data/binary>>))
    end)).

is_answer({ok, #{version := _}, Rest}) -> is_binary(Rest);
is_answer(more) -> true;
is_answer({error, Reason}) -> Reason =:= not_proxy orelse Reason =:= bad_header.

header() ->
    oneof([
        #{version => 1, command => proxy, transport_family => undefined, transport_protocol => undefined},
        #{version => 2, command => local},
        #{version => 2, command => proxy, transport_family => undefined, transport_protocol => undefined},
        ?LET({Family, S, D, SP, DP}, internet(), #{
            version => 1, command => proxy, transport_family => Family, transport_protocol => stream,
            src_address => S, src_port => SP, dest_address => D, dest_port => DP
        }),
        ?LET({{Family, S, D, SP, DP}, Protocol, Tlvs}, {internet(), protocol(), tlvs()}, Tlvs#{
            version => 2, command => proxy, transport_family => Family, transport_protocol => Protocol,
            src_address => S, src_port => SP, dest_address => D, dest_port => DP
        }),
        ?LET({S, D, Protocol, Tlvs}, {path(), path(), protocol(), tlvs()}, Tlvs#{
            version => 2, command => proxy, transport_family => unix, transport_protocol => Protocol,
            src_address => S, dest_address => D
        })
    ]).

internet() ->
    Port = range(0, 65535),
    V4 = {byte(), byte(), byte(), byte()},
    V6 = list_to_tuple(lists:duplicate(8, range(0, 65535))),
    oneof([{ipv4, V4, V4, Port, Port}, {ipv6, V6, V6, Port, Port}]).

protocol() -> oneof([stream, dgram]).

path() -> ?LET(Bytes, ?SUCHTHAT(L, non_empty(list(range(1, 255))), length(L) =< 107), list_to_binary(Bytes)).

tlvs() ->
    ?LET(
        {Named, Ssl, Raw},
        {named([alpn, authority, netns, unique_id]), ssl(), raw()},
        maps:merge(maps:merge(Named, Ssl), Raw)
    ).

named(Names) ->
    ?LET(Values, [oneof([none, binary()]) || _ <- Names],
        maps:from_list([{Name, Value} || {Name, Value} <- lists:zip(Names, Values), Value =/= none])).

ssl() ->
    Known = ?LET({Client, Verified, Named}, {client(), boolean(), named([version, cn, cipher, sig_alg, key_alg])},
        #{ssl => Named#{client => Client, verified => Verified}}),
    oneof([#{}, Known]).

client() ->
    ?LET(Bits, vector(3, boolean()), [Name || {Name, true} <- lists:zip([ssl, cert_conn, cert_sess], Bits)]).

raw() ->
    Tlv = {oneof([0, 16#e0, 16#ef, 16#31]), binary()},
    oneof([#{}, ?LET(List, non_empty(list(Tlv)), #{raw_tlvs => List})]).
