%% permessage-deflate: negotiation, and compression in both directions. The client uses OTP's zlib.
-module(weir_http_websocket_deflate_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1]).
-import(weir_http_websocket_client, [upgrade/2, send/2, send/3, frame/2, text/1, recv/1, recv_frame/1, closes/1]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

-define(NO_CONTEXT, "; server_no_context_takeover; client_no_context_takeover").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        negotiation,
        messages_there_and_back,
        fragments,
        short_messages_are_plain,
        contexts,
        a_context_that_is_forgotten,
        large_messages,
        bombs,
        what_cannot_be_inflated,
        a_compressed_text_is_looked_at,
        it_is_not_used_unless_agreed_upon,
        a_frame_for_many
    ].

start(Options) -> weir_http_websocket_handler:start(?LISTENER, #{options => Options}).

deflate(Options) -> start(#{deflate => Options}).

%% Returns a client, and the negotiated extension.
open(Port, Offer) ->
    Client = connect(Port),
    {101, Fields} = upgrade(Client, ["Sec-WebSocket-Extensions: ", Offer, "\r\n"]),
    {Client, maps:get(<<"sec-websocket-extensions">>, Fields, none)}.

%%% Both ends of zlib.

deflater(Bits) ->
    Z = zlib:open(),
    ok = zlib:deflateInit(Z, default, deflated, -Bits, 8, default),
    Z.

inflater(Bits) ->
    Z = zlib:open(),
    ok = zlib:inflateInit(Z, -Bits),
    Z.

compressed(Z, Plain) ->
    Bytes = iolist_to_binary(zlib:deflate(Z, Plain, sync)),
    binary:part(Bytes, 0, byte_size(Bytes) - 4).

alone(Plain) ->
    Z = deflater(15),
    Bytes = compressed(Z, Plain),
    ok = zlib:close(Z),
    Bytes.

plain(Z, Bytes) -> iolist_to_binary(zlib:inflate(Z, [Bytes, <<0, 0, 255, 255>>])).

plain(Bytes) ->
    Z = inflater(15),
    Plain = plain(Z, Bytes),
    ok = zlib:close(Z),
    Plain.

words(N) -> iolist_to_binary([[integer_to_binary(I * 7919), " words to compress; "] || I <- lists:seq(1, N)]).

%%% Cases.

%% Clients with the same negotiation get the same bytes; others get the frame uncompressed.
a_frame_for_many(_Config) ->
    Port = weir_http_websocket_handler:start(?LISTENER, #{handle => fun(Request) ->
        Shared = weir_http_websocket:shared(Request, true),
        Say = fun({text, Text}, Funs) -> {send, {framed, weir_http_websocket:frame({text, Text}, Shared)}, Funs} end,
        {websocket, weir_http_websocket_handler, #{message => Say}, #{deflate => true}}
    end}),
    Words = words(100),
    [One, Two, Plain] = [
        begin
            {Client, _} = open(Port, Offer),
            ok = send(Client, 16#81, Words),
            recv_frame(Client)
        end
     || Offer <- ["permessage-deflate", "permessage-deflate; client_max_window_bits", "none"]
    ],
    ?assertEqual({16#81, Words}, Plain),
    ?assertEqual(One, Two),
    {First, Bytes} = One,
    ?assertEqual({16#C1, Words}, {First, plain(Bytes)}),
    ?assertError({bad_option, context, true, _}, weir_http_websocket:shared(none, #{context => true})),
    ?assertError({bad_option, deflate, 7, _}, weir_http_websocket:shared(none, 7)).

negotiation(_Config) ->
    [
        begin
            Port = deflate(Options),
            {_Client, Agreed} = open(Port, Offer),
            Expected =
                case Answer of
                    none -> none;
                    _ -> iolist_to_binary(["permessage-deflate" | Answer])
                end,
            ?assertEqual(Expected, Agreed, {Options, Offer}),
            ok = weir_http:stop_listener(?LISTENER)
        end
     || {Options, Offer, Answer} <- negotiations()
    ].

%% {Options, what a client offers, the answer to it}.
negotiations() ->
    [
        {false, "permessage-deflate", none},
        {true, "permessage-deflate", ?NO_CONTEXT ++ "; server_max_window_bits=12"},
        {#{window_bits => 15}, "permessage-deflate; client_max_window_bits", ?NO_CONTEXT},
        {
            #{window_bits => 15},
            "permessage-deflate; server_max_window_bits=10",
            ?NO_CONTEXT ++ "; server_max_window_bits=10"
        },
        {
            #{window_bits => 15},
            "permessage-deflate; server_max_window_bits=\"10\"",
            ?NO_CONTEXT ++ "; server_max_window_bits=10"
        },
        {true,
            "other, permessage-deflate; server_max_window_bits=8, permessage-deflate; client_no_context_takeover",
            ?NO_CONTEXT ++ "; server_max_window_bits=12"},
        {true, "permessage-deflate; server_max_window_bits=8", none},
        {true, "permessage-deflate; server_max_window_bits", none},
        {true, "permessage-deflate; server_max_window_bits=16", none},
        {true, "permessage-deflate; server_max_window_bits=09", none},
        {true, "permessage-deflate; server_max_window_bits=:", none},
        {true, "permessage-deflate; server_max_window_bits=\"", none},
        {true, "permessage-deflate; client_max_window_bits=7", none},
        {true, "permessage-deflate; client_max_window_bits=a", none},
        {true, "permessage-deflate; server_no_context_takeover=1", none},
        {true, "permessage-deflate; client_no_context_takeover; client_no_context_takeover", none},
        {true, "permessage-deflate; unknown", none},
        {true, "x-webkit-deflate-frame", none},
        {
            #{context => true},
            "permessage-deflate; client_max_window_bits",
            "; server_max_window_bits=12; client_max_window_bits=12"
        },
        {
            #{context => true},
            "permessage-deflate; client_max_window_bits=9; server_max_window_bits=11",
            "; server_max_window_bits=11; client_max_window_bits=9"
        },
        {#{context => true}, "permessage-deflate", "; client_no_context_takeover; server_max_window_bits=12"},
        {#{context => true, window_bits => 15}, "permessage-deflate", ""},
        {
            #{context => true, window_bits => 15},
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            ?NO_CONTEXT
        }
    ].

messages_there_and_back(_Config) ->
    {Client, _} = open(deflate(#{min_size => 0}), "permessage-deflate"),
    [
        begin
            ok = send(Client, First bor 16#40, alone(Plain)),
            {Answer, Bytes} = recv_frame(Client),
            ?assertEqual({First bor 16#40, Plain}, {Answer, plain(Bytes)})
        end
     || First <- [16#81, 16#82], Plain <- [<<>>, <<"Hello">>, words(50), words(4000)]
    ],
    %% Uncompressed messages are valid at any time.
    ok = send(Client, text("plain")),
    {16#c1, Plain} = recv_frame(Client),
    <<"plain">> = plain(Plain).

fragments(_Config) ->
    {Client, _} = open(deflate(#{}), "permessage-deflate"),
    Text = words(100),
    Bytes = alone(Text),
    Frames =
        [frame(16#41, <<>>)] ++ [frame(0, <<Byte>>) || <<Byte>> <= Bytes] ++ [frame(16#89, "ping"), frame(16#80, <<>>)],
    ok = send(Client, Frames),
    {pong, <<"ping">>} = recv(Client),
    {16#c1, Answer} = recv_frame(Client),
    ?assertEqual(Text, plain(Answer)).

short_messages_are_plain(_Config) ->
    {Client, _} = open(deflate(#{min_size => 100}), "permessage-deflate"),
    ok = send(Client, [frame(16#c1, alone(binary:copy(<<"a">>, Size))) || Size <- [99, 100]]),
    {16#81, Short} = recv_frame(Client),
    {16#c1, Long} = recv_frame(Client),
    {99, 100} = {byte_size(Short), byte_size(plain(Long))}.

contexts(_Config) ->
    [
        begin
            {Client, _} = open(
                deflate(#{context => true, window_bits => Bits}), "permessage-deflate; client_max_window_bits"
            ),
            {Deflater, Inflater} = {deflater(Bits), inflater(Bits)},
            Texts = [words(N rem 60 + 10) || N <- lists:seq(1, 60)],
            Sizes = [
                begin
                    ok = send(Client, 16#c1, compressed(Deflater, Text)),
                    {16#c1, Bytes} = recv_frame(Client),
                    ?assertEqual(Text, plain(Inflater, Bytes)),
                    byte_size(Bytes)
                end
             || Text <- Texts
            ],
            %% Earlier messages serve as context.
            ?assert(lists:last(Sizes) * 2 < byte_size(alone(lists:last(Texts)))),
            ok = weir_http:stop_listener(?LISTENER)
        end
     || Bits <- [11, 12, 15]
    ].

a_context_that_is_forgotten(_Config) ->
    Port = weir_http_websocket_handler:start(
        ?LISTENER, #{options => #{deflate => #{context => true}, ping_interval => 200}}, #{idle_timeout => 100}
    ),
    {Client, _} = open(Port, "permessage-deflate; client_max_window_bits"),
    {Deflater, Inflater} = {deflater(12), inflater(12)},
    Text = words(20),
    Exchange = fun() ->
        ok = send(Client, 16#c1, compressed(Deflater, Text)),
        {First, Bytes} = without_pings(Client),
        ?assertEqual({16#c1, Text}, {First, plain(Inflater, Bytes)}),
        byte_size(Bytes)
    end,
    Alone = Exchange(),
    %% A ping in between drops the context, so try again.
    ok = wait_until(fun() -> Exchange() < Alone end),
    {16#89, <<>>} = recv_frame(Client),
    ?assertEqual(Alone, Exchange()).

without_pings(Client) ->
    case recv_frame(Client) of
        {16#89, _} -> without_pings(Client);
        Frame -> Frame
    end.

%% They are inflated and deflated on dirty schedulers.
large_messages(_Config) ->
    {Client, _} = open(deflate(#{}), "permessage-deflate"),
    Text = words(30000),
    ?assert(byte_size(Text) > 500000),
    ok = send(Client, 16#c1, alone(Text)),
    {16#c1, Answer} = recv_frame(Client),
    ?assertEqual(Text, plain(Answer)).

bombs(_Config) ->
    Port = start(#{deflate => true, max_message => 100000}),
    [
        begin
            {Client, _} = open(Port, "permessage-deflate"),
            ok = send(Client, 16#c2, alone(binary:copy(<<0>>, Size))),
            case Size of
                100000 -> {16#c2, _} = recv_frame(Client);
                _ -> 1009 = closes(Client)
            end
        end
     || Size <- [100000, 100001, 50000000]
    ].

what_cannot_be_inflated(_Config) ->
    Port = deflate(true),
    [
        begin
            {Client, _} = open(Port, "permessage-deflate"),
            ok = send(Client, 16#c2, Bytes),
            ?assertEqual(1007, closes(Client))
        end
     || Bytes <- [<<6>>, <<255, 255, 255>>, binary:copy(<<3, 0>>, 20)]
    ],
    %% The second message refers to the first, but the server keeps no context.
    {Client, _} = open(Port, "permessage-deflate"),
    Deflater = deflater(15),
    Text = words(10),
    ok = send(Client, 16#c1, compressed(Deflater, Text)),
    {16#c1, _} = recv_frame(Client),
    ok = send(Client, 16#c1, compressed(Deflater, Text)),
    1007 = closes(Client).

a_compressed_text_is_looked_at(_Config) ->
    Port = deflate(true),
    [
        begin
            {Client, _} = open(Port, "permessage-deflate"),
            ok = send(Client, 16#c1, alone(Text)),
            ?assertEqual(1007, closes(Client))
        end
     || Text <- [<<255>>, <<"abc", 16#ce>>, <<(words(10000))/binary, 255>>]
    ].

it_is_not_used_unless_agreed_upon(_Config) ->
    {Client, none} = open(deflate(true), "permessage-deflate; unknown"),
    ok = send(Client, text(words(100))),
    {16#81, _} = recv_frame(Client),
    ok = send(Client, 16#c1, alone(<<"Hello">>)),
    1002 = closes(Client).
