-module(weir_proxy_protocol_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SIGNATURE, "\r\n\r\n\0\r\nQUIT\n").

a_line_of_version_1_test() ->
    ?assertEqual(
        {ok,
            #{
                version => 1,
                command => proxy,
                transport_family => ipv4,
                transport_protocol => stream,
                src_address => {192, 168, 0, 1},
                src_port => 56324,
                dest_address => {192, 168, 0, 11},
                dest_port => 443
            },
            <<"GET /">>},
        weir_proxy_protocol:parse(<<"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET /">>)
    ),
    ?assertMatch(
        {ok, #{src_address := {8193, 3512, 0, 0, 0, 0, 0, 1}, dest_port := 65535}, <<>>},
        weir_proxy_protocol:parse(<<"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n">>)
    ),
    ?assertMatch(
        {ok, #{transport_family := undefined}, <<"x">>}, weir_proxy_protocol:parse(<<"PROXY UNKNOWN a b c\r\nx">>)
    ).

bad_lines_test_() ->
    [
        ?_assertEqual({error, bad_header}, weir_proxy_protocol:parse(iolist_to_binary(["PROXY ", Line, "\r\n"])))
     || Line <- [
            "TCP4 1.2.3.4 1.2.3.4 1", "TCP4 1.2.3.4 1.2.3.4 1 65536", "TCP4 1.2.3.4 1.2.3.4 +1 2",
            "TCP4 1.2.3.4 1.2.3.4 01 2", "TCP4 1.2.3.999 1.2.3.4 1 2", "TCP4 ::1 ::1 1 2", "TCP6 1.2.3.4 1.2.3.4 1 2",
            "TCP4  1.2.3.4 1.2.3.4 1 2", "UDP4 1.2.3.4 1.2.3.4 1 2", "", lists:duplicate(101, $x)
        ]
    ].

a_line_that_does_not_end_test() ->
    ?assertEqual(more, weir_proxy_protocol:parse(<<"PROXY TCP4 ">>)),
    ?assertEqual({error, bad_header}, weir_proxy_protocol:parse(<<"PROXY ", 0:(101 * 8)>>)).

%% No further bytes can make it a header.
a_line_that_ends_with_a_line_feed_alone_test_() ->
    [
        ?_assertEqual({error, bad_header}, weir_proxy_protocol:parse(iolist_to_binary(["PROXY ", Line, $\n, Rest])))
     || Line <- ["TCP4 1.2.3.4 1.2.3.4 1 2", "UNKNOWN", "", "nothing", "TCP4 1.2.3.4\r1.2.3.4 1 2"],
        Rest <- ["", "GET /", "GET / HTTP/1.1\r\n"]
    ].

no_header_test() ->
    ?assertEqual({error, not_proxy}, weir_proxy_protocol:parse(<<"GET / HTTP/1.1\r\n">>)),
    ?assertEqual(more, weir_proxy_protocol:parse(<<>>)),
    ?assertEqual(more, weir_proxy_protocol:parse(<<"PRO">>)),
    ?assertEqual(more, weir_proxy_protocol:parse(<<"\r\n\r\n">>)),
    ?assertEqual(more, weir_proxy_protocol:parse(<<?SIGNATURE>>)),
    ?assertEqual(more, weir_proxy_protocol:parse(<<?SIGNATURE, 16#21>>)).

bad_binaries_test_() ->
    [
        ?_assertEqual({error, bad_header}, weir_proxy_protocol:parse(<<?SIGNATURE, Data/binary>>))
     || Data <- [
            %% Version, command, family, protocol, and too few bytes for the addresses.
            <<16#11, 16#11, 0:16>>, <<16#22, 16#11, 0:16>>, <<16#21, 16#41, 0:16>>, <<16#21, 16#13, 0:16>>,
            <<16#21, 16#11, 11:16, 0:88>>,
            %% A value that is longer than the header.
            <<16#21, 16#11, 16:16, 0:96, 1, 2:16, 0>>
        ]
    ].

a_checksum_test() ->
    Header = #{
        version => 2, command => proxy, transport_family => ipv4, transport_protocol => stream,
        src_address => {127, 0, 0, 1}, src_port => 1, dest_address => {127, 0, 0, 1}, dest_port => 2, alpn => <<"h2">>
    },
    Built = weir_proxy_protocol:build(Header),
    ?assertEqual({ok, Header, <<>>}, weir_proxy_protocol:parse(Built)),
    Size = byte_size(Built) - 1,
    <<Front:Size/binary, Last>> = Built,
    ?assertEqual({error, bad_header}, weir_proxy_protocol:parse(<<Front/binary, (Last bxor 1)>>)).
