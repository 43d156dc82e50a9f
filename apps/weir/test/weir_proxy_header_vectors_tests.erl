%% Headers from the tests of HAProxy, nginx, go-proxyproto and the crate ppp. Where they disagree, the specification
%% decides, and the reason is quoted at the header.
-module(weir_proxy_header_vectors_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SIGNATURE, "\r\n\r\n\0\r\nQUIT\n").
-define(LONGEST, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").
%% The address of ?LONGEST.
-define(ONES, {16#ffff, 16#ffff, 16#ffff, 16#ffff, 16#ffff, 16#ffff, 16#ffff, 16#ffff}).

taken_test_() ->
    [{Name, ?_assertMatch({ok, #{}, _}, same(Bytes, Ends, Rest))} || {Name, Bytes, Ends, Rest} <- taken()].

%% The whole header is parsed, and every prefix returns `more'.
same(Bytes, Ends, Rest) ->
    Header = binary:part(Bytes, 0, byte_size(Bytes) - byte_size(Rest)),
    [
        ?assertEqual(more, weir_proxy_protocol:parse(binary:part(Header, 0, Size)))
     || Size <- lists:seq(0, byte_size(Header) - 1)
    ],
    {ok, Parsed, Rest} = weir_proxy_protocol:parse(Bytes),
    ?assertEqual(Ends, ends(Parsed)),
    {ok, Parsed, Rest}.

ends(#{command := local}) -> local;
ends(#{transport_family := undefined}) -> unknown;
ends(#{transport_family := unix, src_address := Source, dest_address := Destination}) -> {Source, Destination};
ends(#{src_address := Source, src_port := SourcePort, dest_address := Destination, dest_port := DestinationPort}) ->
    {Source, SourcePort, Destination, DestinationPort}.

taken() ->
    %% Bytes after the end that look like another value belong to the connection.
    [
        {Name ++ ": " ++ Line, iolist_to_binary(["PROXY ", Line, "\r\n", Rest]), Ends, Rest}
     || {Name, Line, Ends} <- lines(), Rest <- [<<>>, <<"GET /">>]
    ] ++
        [
            {Name, <<?SIGNATURE, Bytes/binary, Rest/binary>>, Ends, Rest}
         || {Name, Bytes, Ends} <- binaries(), Rest <- [<<>>, <<2, 5:16, "12345">>]
        ].

%% Version 1.
lines() ->
    Four = {192, 0, 2, 1},
    Most = {255, 255, 255, 255},
    [
        {"nginx", "TCP4 192.0.2.1 192.0.2.2 123 5678", {Four, 123, {192, 0, 2, 2}, 5678}},
        {"nginx", "TCP6 2001:Db8::1 2001:Db8::2 123 5678", {
            {16#2001, 16#db8, 0, 0, 0, 0, 0, 1}, 123, {16#2001, 16#db8, 0, 0, 0, 0, 0, 2}, 5678
        }},
        {"nginx", "UNKNOWN", unknown},
        {"nginx", "UNKNOWN 1 2 3 4 5 6", unknown},
        {"go-proxyproto", "UNKNOWN 127.0.0.1 127.0.0.1 99999 99999", unknown},
        {"go-proxyproto", "TCP4 127.0.0.1 127.0.0.1 65533 65533", {{127, 0, 0, 1}, 65533, {127, 0, 0, 1}, 65533}},
        {"go-proxyproto", "TCP6 ::ffff:127.0.0.1 ::1 65533 1", {
            {0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}, 65533, {0, 0, 0, 0, 0, 0, 0, 1}, 1
        }},
        {"ppp", "TCP4 255.255.255.255 255.255.255.255 65535 65535", {Most, 65535, Most, 65535}},
        {"ppp", "TCP6 " ?LONGEST " " ?LONGEST " 65535 65535", {?ONES, 65535, ?ONES, 65535}},
        {"ppp", "TCP6 ::1 " ?LONGEST " 65535 65535", {{0, 0, 0, 0, 0, 0, 0, 1}, 65535, ?ONES, 65535}},
        {"ppp", "TCP6 ffff::ffff " ?LONGEST " 65535 65535", {
            {16#ffff, 0, 0, 0, 0, 0, 0, 16#ffff}, 65535, ?ONES, 65535
        }},
        {"ppp", "TCP6 ffff:ffff:ffff:ffff::ffff:ffff:ffff " ?LONGEST " 65535 65535", {
            setelement(5, ?ONES, 0), 65535, ?ONES, 65535
        }},
        {"ppp", "TCP6 :: " ?LONGEST " 65535 65535", {{0, 0, 0, 0, 0, 0, 0, 0}, 65535, ?ONES, 65535}},
        {"ppp", "TCP6 ffff:: " ?LONGEST " 65535 65535", {{16#ffff, 0, 0, 0, 0, 0, 0, 0}, 65535, ?ONES, 65535}},
        %% The longest header: 107 bytes.
        {"ppp", "UNKNOWN " ?LONGEST " " ?LONGEST " 65535 65535", unknown}
    ].

%% Version 2.
binaries() ->
    Four = {192, 0, 2, 1},
    Addresses = <<127, 0, 0, 1, 127, 0, 0, 2, 80:16, 443:16>>,
    Known = {{127, 0, 0, 1}, 80, {127, 0, 0, 2}, 443},
    Authority = <<2, 5:16, "12345">>,
    SixAddresses = <<-1:124, 2:4, -1:124, 1:4, 80:16, 443:16>>,
    Values = <<1, 1:16, 5, 2, 2:16, 5, 5>>,
    [
        {"nginx", <<16#21, 16#11, 12:16, 192, 0, 2, 1, 192, 0, 2, 2, 123:16, 5678:16>>,
            {Four, 123, {192, 0, 2, 2}, 5678}},
        {"nginx", <<16#21, 16#21, 36:16, 16#20010db8:32, 1:96, 16#20010db8:32, 2:96, 123:16, 5678:16>>, {
            {16#2001, 16#db8, 0, 0, 0, 0, 0, 1}, 123, {16#2001, 16#db8, 0, 0, 0, 0, 0, 2}, 5678
        }},
        %% Three empty values of type 0.
        {"nginx", <<16#21, 16#11, 21:16, 192, 0, 2, 1, 192, 0, 2, 2, 123:16, 5678:16, 0:72>>,
            {Four, 123, {192, 0, 2, 2}, 5678}},
        {"nginx", <<16#21, 16#01, 0:16>>, unknown},
        {"HAProxy", <<16#21, 16#11, 20:16, Addresses/binary, Authority/binary>>, Known},
        {"ppp", <<16#21, 16#11, 12:16, Addresses/binary>>, Known},
        {"ppp", <<16#21, 16#00, 12:16, Addresses/binary>>, unknown},
        {"ppp", <<16#21, 16#01, 8:16, 127, 0, 0, 1, 127, 0, 0, 2>>, unknown},
        {"ppp", <<16#21, 16#10, 8:16, 127, 0, 0, 1, 127, 0, 0, 2>>, unknown},
        {"ppp", <<16#21, 16#21, 45:16, SixAddresses/binary, Values/binary>>, {
            setelement(8, ?ONES, 16#fff2), 80, setelement(8, ?ONES, 16#fff1), 443
        }},
        {"ppp", <<16#21, 16#30, 225:16, -1:864, 0:864, Values/binary>>, unknown},
        {"ppp", <<16#20, 16#02, 0:16>>, local},
        {"ppp", <<16#20, 16#02, 12:16, Addresses/binary>>, local},
        {"go-proxyproto", <<16#20, 16#11, 12:16, Addresses/binary>>, local},
        {"go-proxyproto", <<16#20, 16#00, 0:16>>, local},
        {"go-proxyproto", <<16#20, 16#00, 9:16, Values/binary>>, local},
        {"go-proxyproto", <<16#21, 16#12, 12:16, Addresses/binary>>, Known},
        {"go-proxyproto", <<16#21, 16#31, 216:16, "socket", 0:816, "socket", 0:816>>, {<<"socket">>, <<"socket">>}},
        {"go-proxyproto", <<16#21, 16#32, 216:16, "socket", 0:816, "socket", 0:816>>, {<<"socket">>, <<"socket">>}},
        %% Refused by go-proxyproto. "The receiver must accept this value [unspecified] and ignore the address."
        {"specification", <<16#21, 16#00, 0:16>>, unknown}
    ].

refused_test_() ->
    [
        {
            lists:flatten(io_lib:format("~s: ~0p", [Name, Bytes])),
            ?_assertMatch({error, _}, weir_proxy_protocol:parse(iolist_to_binary(Bytes)))
        }
     || {Name, Bytes} <- refused()
    ].

refused() ->
    Addresses = <<127, 0, 0, 1, 127, 0, 0, 1, 42:16, 1337:16>>,
    [
        {"go-proxyproto", "there is no spoon"},
        {"go-proxyproto", "PROXY\r\n"},
        {"go-proxyproto", "PROXY \r\n"},
        {"go-proxyproto", "PROXY SOMETHING\r\n"},
        {"go-proxyproto", "PROXY TCP4 invalid invalid 65533 65533\r\n"},
        {"go-proxyproto", "PROXY TCP6 127.0.0.1 127.0.0.1 65533 65533\r\n"},
        {"go-proxyproto", "PROXY TCP4 ::1 ::1 65533 65533\r\n"},
        {"go-proxyproto", "PROXY TCP4 ::ffff:127.0.0.1 ::ffff:127.0.0.1 65533 65533\r\n"},
        {"go-proxyproto", "PROXY TCP4 127.0.0.1 127.0.0.1 99999 99999\r\n"},
        {"go-proxyproto", <<"\r\n\0\r\nQUIT\n">>},
        {"go-proxyproto", <<?SIGNATURE, 16#99>>},
        {"go-proxyproto", [<<?SIGNATURE, 16#21, 16#11, 0:16>>, Addresses]},
        {"go-proxyproto", [<<?SIGNATURE, 16#21, 16#21, 12:16>>, Addresses]},
        {"ppp", "PROX\r\n"},
        {"ppp", "proxy UNKNOWN\r\n"},
        {"ppp", "PROXY tcp4\r\n"},
        {"ppp", "PROXY UNKNOWN " ?LONGEST " " ?LONGEST " 65535 65535  \r\n"},
        {"ppp", <<"Hello ", 240, 144, 128, "World\r\n">>},
        {"ppp", "PROXY TCP4 255.255.255.255 256.255.255.255 65535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.0255.255.255 255.255.255.255 65535 65535\r\n"},
        {"ppp", "PROXY TCP6 ffff:gggg:ffff:ffff:ffff:ffff:ffff:ffff ::1 65535 65535\r\n"},
        {"ppp", "PROXY TCP6 ::1 ffff:ffff:0ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"},
        {"ppp", "PROXY TCP6 ffff::ffff:ffff:ffff:ffff::ffff ::1 65535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255 255.255.255.255 05535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 05535\r\n"},
        {"ppp", "PROXY TCP6 ::1 ::1 65536 65535\r\n"},
        {"ppp", "PROXY TCP6 ::1 ::1 65535 65536\r\n"},
        {"ppp", "PROXY  TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"},
        {"ppp", "PROXY TCP4  255.255.255.255 255.255.255.255 65535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255  255.255.255.255 65535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255 255.255.255.255  65535 65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255 255.255.255.255 65535  65535\r\n"},
        {"ppp", "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535 \r\n"},
        {"ppp", <<"\r\n\r\n", 1, "\r\nQUIT\n">>},
        {"ppp", [<<?SIGNATURE, 16#11, 16#11, 12:16>>, Addresses]},
        {"ppp", [<<?SIGNATURE, 16#21, 16#51, 12:16>>, Addresses]},
        {"ppp", [<<?SIGNATURE, 16#23, 16#11, 12:16>>, Addresses]},
        {"ppp", [<<?SIGNATURE, 16#21, 16#17, 12:16>>, Addresses]},
        {"ppp", [<<?SIGNATURE, 16#21, 16#11, 15:16>>, Addresses, <<1, 0, 1>>]},
        {"HAProxy", [<<?SIGNATURE, 16#21, 16#11, 20:16>>, Addresses, <<2, 10:16, "1234512345">>]},
        {"HAProxy", [<<?SIGNATURE, 16#21, 16#11, 20:16>>, Addresses, <<2, 4:16, "1234", 0>>]},
        %% nginx accepts an unknown family. "Receivers must drop connections presenting unexpected values here."
        {"specification", [<<?SIGNATURE, 16#21, 16#41, 4:16>>, <<1, 2, 3, 4>>]},
        %% An address has no zone.
        {"specification", "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n"},
        {"specification", "PROXY TCP6 ::1 fe80::1%eth0 1 2\r\n"}
    ].
