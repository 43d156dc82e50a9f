%% A permessage-deflate client for `weir_http_websocket_cases': sends compressed messages and expects them
%% back. Uses OTP's zlib in both directions.
-module(weir_http_websocket_zlib).

-export([exchange/3]).

-import(weir_http_websocket_client, [recv_frame/1, frame/2]).

-record(side, {z :: zlib:zstream(), is_reset :: boolean()}).

%% Returns the wrong echoes.
exchange(Socket, Agreed, {Kind, Bytes, Fragment, Count}) ->
    Parameters = [string:trim(Part) || Part <- tl(string:split(binary_to_list(Agreed), ";", all))],
    {Deflate, Inflate} = {zlib:open(), zlib:open()},
    ok = zlib:deflateInit(Deflate, default, deflated, -max(9, bits("client_max_window_bits", Parameters)), 8, default),
    ok = zlib:inflateInit(Inflate, -15),
    Sends = #side{z = Deflate, is_reset = lists:member("client_no_context_takeover", Parameters)},
    Receives = #side{z = Inflate, is_reset = lists:member("server_no_context_takeover", Parameters)},
    Data = data(Kind),
    First = first(Kind),
    Wrong = [
        N
     || N <- lists:seq(0, Count - 1),
        not exchanged(Socket, First, slice(Data, N * Bytes, Bytes), Fragment, Sends, Receives)
    ],
    ok = zlib:close(Deflate),
    ok = zlib:close(Inflate),
    Wrong.

bits(Name, Parameters) ->
    case
        [list_to_integer(Value) || Parameter <- Parameters, [N, Value] <- [string:split(Parameter, "=")], N =:= Name]
    of
        [Bits] -> Bits;
        [] -> 15
    end.

exchanged(Socket, First, Plain, Fragment, #side{z = Deflate} = Sends, Receives) ->
    Flushed = iolist_to_binary(zlib:deflate(Deflate, Plain, sync)),
    _ = Sends#side.is_reset andalso zlib:deflateReset(Deflate),
    Compressed = binary:part(Flushed, 0, byte_size(Flushed) - 4),
    ok = gen_tcp:send(Socket, frames(First bor 16#40, Compressed, Fragment)),
    received(Socket, First, Receives) =:= Plain.

frames(First, Payload, Fragment) when Fragment =:= 0; byte_size(Payload) =< Fragment -> frame(First, Payload);
frames(First, Payload, Fragment) ->
    <<Piece:Fragment/binary, Rest/binary>> = Payload,
    [frame(First band 16#7f, Piece) | frames(First band 16#80, Rest, Fragment)].

%% A server may fragment the message, or send it uncompressed.
received(Socket, First, Receives) ->
    {Head, Payload} = recv_frame(Socket),
    true = Head band 16#0f =:= First band 16#0f,
    Bytes = iolist_to_binary([Payload | rest(Socket, Head)]),
    case Head band 16#40 of
        0 -> Bytes;
        _ -> plain(Bytes, Receives)
    end.

rest(_Socket, Head) when Head band 16#80 =/= 0 -> [];
rest(Socket, _Head) ->
    {Head, Payload} = recv_frame(Socket),
    0 = Head band 16#0f,
    [Payload | rest(Socket, Head)].

plain(Bytes, #side{z = Inflate, is_reset = IsReset}) ->
    Plain = iolist_to_binary(zlib:inflate(Inflate, [Bytes, <<0, 0, 255, 255>>])),
    _ = IsReset andalso zlib:inflateReset(Inflate),
    Plain.

first(json) -> 16#81;
first(html) -> 16#81;
first(_) -> 16#82.

slice(Data, From, Bytes) ->
    Begin = From rem (byte_size(Data) - Bytes),
    binary:part(Data, Begin, Bytes).

%% Replaces the files of the suite: equally compressible, and the same every time.
data(Kind) ->
    case get({?MODULE, Kind}) of
        undefined ->
            Made = iolist_to_binary(made(Kind)),
            put({?MODULE, Kind}, Made),
            Made;
        Made ->
            Made
    end.

made(json) ->
    [
        io_lib:format(
            "{\"id\":~b,\"name\":\"user ~b\",\"balance\":\"$~b.~2..0b\",\"tags\":[\"a~b\",\"b~b\"],\"active\":~p}\n",
            [N, N * 7919 rem 997, N * 104729 rem 5000, N rem 100, N rem 7, N rem 11, N rem 3 =:= 0]
        )
     || N <- lists:seq(1, 3000)
    ];
made(html) ->
    [
        io_lib:format("<tr class=\"row~b\"><td><a href=\"/item/~b\">Item ~b</a></td><td>~b</td></tr>\n", [
            N rem 2, N, N, N * N rem 65521
        ])
     || N <- lists:seq(1, 4000)
    ];
made(prose) ->
    Words =
        {"Habe", "nun", "ach", "Philosophie", "Juristerei", "und", "Medizin", "leider", "auch", "Theologie", "durchaus",
            "studiert", "mit", "heissem", "Bemuehn"},
    [[element(1 + (N * N * 31 + N * 17) rem 8191 rem tuple_size(Words), Words), " "] || N <- lists:seq(1, 40000)];
made(image) ->
    <<<<((X * Y) div 128 + noise(X * 512 + Y) rem 8)>> || X <- lists:seq(1, 512), Y <- lists:seq(1, 512)>>;
made(document) ->
    [[<<(noise(N)):32>>, "obj<</Type/Page>>"] || N <- lists:seq(1, 12000)].

noise(N) -> erlang:phash2(N).
