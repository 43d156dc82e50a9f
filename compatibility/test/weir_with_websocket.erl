%% A WebSocket client on OTP's sockets.
-module(weir_with_websocket).

-export([connect/2, frame/2, receive_frame/1]).

%% Opens a WebSocket to a path of a server on this machine.
-spec connect(inet:port_number(), string()) -> gen_tcp:socket().
connect(Port, Path) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:send(Socket, [
        "GET ", Path, " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ", base64:encode(weir_with:bytes(16)), "\r\n\r\n"
    ]),
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    {ok, {http_response, _, 101, _}} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    skip_headers(Socket),
    ok = inet:setopts(Socket, [{packet, raw}]),
    Socket.

skip_headers(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, http_eoh} -> ok;
        {ok, {http_header, _, _, _, _}} -> skip_headers(Socket)
    end.

%% Clients must mask; a mask of zeros leaves the data unchanged.
-spec frame(0..15, binary()) -> iodata().
frame(Opcode, Data) ->
    [<<1:1, 0:3, Opcode:4>>, mask_and_length(byte_size(Data)), <<0:32>>, Data].

mask_and_length(Size) when Size < 126 -> <<1:1, Size:7>>;
mask_and_length(Size) when Size < 65536 -> <<1:1, 126:7, Size:16>>;
mask_and_length(Size) -> <<1:1, 127:7, Size:64>>.

-spec receive_frame(gen_tcp:socket()) -> {0..15, binary()}.
receive_frame(Socket) ->
    {ok, <<1:1, 0:3, Opcode:4, 0:1, Length:7>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
    {Opcode, receive_bytes(Socket, frame_size(Socket, Length))}.

frame_size(Socket, 126) -> {ok, <<Size:16>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()), Size;
frame_size(Socket, 127) -> {ok, <<Size:64>>} = gen_tcp:recv(Socket, 8, weir_test_wait:patience()), Size;
frame_size(_Socket, Size) -> Size.

receive_bytes(_Socket, 0) ->
    <<>>;
receive_bytes(Socket, Size) ->
    {ok, Data} = gen_tcp:recv(Socket, Size, weir_test_wait:patience()),
    Data.
