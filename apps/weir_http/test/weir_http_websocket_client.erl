%% A WebSocket client for the tests: it sends frames as given, valid or not, and answers nothing automatically.
-module(weir_http_websocket_client).

-export([open/1, open/2, handshake/1, upgrade/2, upgraded/1]).
-export([frame/2, frame/3, send/2, send/3, text/1, recv/1, recv/2, recv_frame/1, closes/1, close/1]).

-include_lib("stdlib/include/assert.hrl").

-define(KEY, "dGhlIHNhbXBsZSBub25jZQ==").
-define(ACCEPT, <<"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=">>).

handshake(Fields) ->
    [
        "GET /websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " ?KEY "\r\n",
        Fields,
        "\r\n"
    ].

open(Port) -> open(Port, "").

open(Port, Fields) ->
    Socket = weir_http_client:connect(Port),
    {101, _} = upgrade(Socket, Fields),
    Socket.

%% Performs a handshake. Returns the status and the fields of the response.
upgrade(Socket, Fields) ->
    ok = gen_tcp:send(Socket, handshake(Fields)),
    upgraded(Socket).

%% Like upgrade/2, for a handshake already sent.
upgraded(Socket) ->
    {Status, Fields} = weir_http_client:head(Socket),
    _ = Status =:= 101 andalso ?assertMatch(#{<<"sec-websocket-accept">> := ?ACCEPT}, Fields),
    {Status, Fields}.

%% Returns a masked frame with that first byte and payload.
frame(First, Payload) -> frame(First, Payload, <<16#37, 16#fa, 16#21, 16#3d>>).

frame(First, Payload, Mask) ->
    Bytes = iolist_to_binary(Payload),
    Length =
        case byte_size(Bytes) of
            Size when Size < 126 -> <<1:1, Size:7>>;
            Size when Size < 65536 -> <<1:1, 126:7, Size:16>>;
            Size -> <<1:1, 127:7, Size:64>>
        end,
    <<First, Length/binary, Mask/binary, (masked(Bytes, Mask))/binary>>.

masked(Bytes, Mask) ->
    Size = byte_size(Bytes),
    <<Long:Size/binary, _/binary>> = binary:copy(Mask, Size div 4 + 1),
    crypto:exor(Bytes, Long).

send(Socket, First, Payload) -> send(Socket, frame(First, Payload)).

send(Socket, Bytes) -> gen_tcp:send(Socket, Bytes).

text(Text) -> frame(16#81, Text).

%% Returns the next frame: its first byte and its payload.
recv_frame(Socket) ->
    <<First, 0:1, Short:7>> = take(Socket, 2),
    Size =
        case Short of
            126 -> binary:decode_unsigned(take(Socket, 2));
            127 -> binary:decode_unsigned(take(Socket, 8));
            _ -> Short
        end,
    {First, take(Socket, Size)}.

take(Socket, Size) ->
    case get({rest, Socket}) of
        <<Bytes:Size/binary, Rest/binary>> ->
            put({rest, Socket}, Rest),
            Bytes;
        Bytes ->
            case gen_tcp:recv(Socket, Size - byte_size(Bytes), weir_test_wait:patience()) of
                {ok, More} ->
                    put({rest, Socket}, <<>>),
                    <<Bytes/binary, More/binary>>;
                {error, Reason} ->
                    error({nothing, Reason})
            end
    end.

recv(Socket) ->
    case recv_frame(Socket) of
        {16#81, Payload} -> {text, Payload};
        {16#82, Payload} -> {binary, Payload};
        {16#89, Payload} -> {ping, Payload};
        {16#8a, Payload} -> {pong, Payload};
        {16#88, <<>>} -> {close, none, <<>>};
        {16#88, <<Code:16, Text/binary>>} -> {close, Code, Text};
        {First, Payload} -> {First, Payload}
    end.

recv(Socket, N) -> [recv(Socket) || _ <- lists:seq(1, N)].

%% Returns the code with which the server closes. The connection must end after it.
closes(Socket) ->
    {close, Code, _} = recv(Socket),
    true = weir_http_client:is_closed(Socket),
    Code.

close(Socket) -> gen_tcp:close(Socket).
