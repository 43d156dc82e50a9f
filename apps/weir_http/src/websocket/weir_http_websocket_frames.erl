%% @private
%% @doc Checks and encodes frames to send.
-module(weir_http_websocket_frames).

-export([check/1]).
-export([frame/1]).
-export([encode/2]).
-export([close/2]).

-define(FINAL, 16#80).
-define(COMPRESSED, 16#40).
-define(MOST_CONTROL, 125).

%% Payloads up to this many bytes are copied behind their headers; larger ones go to the kernel as separate buffers.
-define(COPIED, 4096).

%% @doc Checks frames and returns them as a list. Fails with `{bad_frame, Frame}'.
-spec check(weir_http_websocket:frame() | [weir_http_websocket:frame()]) -> [weir_http_websocket:frame()].
check(Frames) when is_list(Frames) -> [checked(Frame) || Frame <- Frames];
check(Frame) -> [checked(Frame)].

checked({framed, Bytes} = Frame) when is_binary(Bytes) ->
    Frame;
checked({Kind, Payload} = Frame) ->
    Bytes = bytes(Payload, Frame),
    is_binary(made(Kind, Bytes)) orelse error({bad_frame, Frame}),
    {Kind, Bytes};
checked(Frame) ->
    error({bad_frame, Frame}).

%% @doc Encodes a frame. Fails like check/1.
-spec frame(weir_http_websocket:frame()) -> binary().
frame({framed, Bytes}) when is_binary(Bytes) ->
    Bytes;
frame({Kind, Payload} = Frame) ->
    case made(Kind, bytes(Payload, Frame)) of
        Bytes when is_binary(Bytes) -> Bytes;
        _ -> error({bad_frame, Frame})
    end;
frame(Frame) ->
    error({bad_frame, Frame}).

bytes(Payload, _Frame) when is_binary(Payload) ->
    Payload;
bytes(Payload, Frame) ->
    try
        iolist_to_binary(Payload)
    catch
        error:badarg -> error({bad_frame, Frame})
    end.

made(text, Bytes) -> weir_http_nif:frame(?FINAL bor 1, Bytes);
made(binary, Bytes) -> weir_http_nif:frame(?FINAL bor 2, Bytes);
made(ping, Bytes) when byte_size(Bytes) =< ?MOST_CONTROL -> weir_http_nif:frame(?FINAL bor 9, Bytes);
made(pong, Bytes) when byte_size(Bytes) =< ?MOST_CONTROL -> weir_http_nif:frame(?FINAL bor 10, Bytes);
made(_, _) -> bad.

%% @doc Encodes frames for a WebSocket, compressed if that was negotiated. Fails like check/1.
-spec encode(weir_http_websocket:frame() | [weir_http_websocket:frame()], Deflate) -> {iodata(), Deflate} when
    Deflate :: none | weir_http_websocket_deflate:deflate().
encode(Frames, Deflate) when is_list(Frames) -> lists:mapfoldl(fun encode/2, Deflate, Frames);
encode(Frame, none) -> {frame(Frame), none};
encode({Kind, Payload} = Frame, Deflate) when Kind =:= text; Kind =:= binary ->
    Bytes = bytes(Payload, Frame),
    case weir_http_websocket_deflate:deflate(Bytes, Deflate) of
        plain ->
            {frame({Kind, Bytes}), Deflate};
        {Compressed, NewDeflate} ->
            Kind =:= binary orelse weir_http_nif:is_text(Bytes) orelse error({bad_frame, Frame}),
            {weir_http_nif:frame(?FINAL bor ?COMPRESSED bor opcode(Kind), Compressed), NewDeflate}
    end;
encode(Frame, Deflate) ->
    {frame(Frame), Deflate}.

opcode(text) -> 1;
opcode(binary) -> 2.

%% @doc Encodes a close frame. Fails with `{bad_close, Code, Text}' for a code that may not be sent, or a text that is
%% not UTF-8 or longer than 123 bytes.
-spec close(Code :: 1000..4999 | none, Text :: binary()) -> binary().
close(none, <<>>) ->
    weir_http_nif:frame(?FINAL bor 8, <<>>);
close(Code, Text) ->
    MayBeSent = may_close(Code) andalso byte_size(Text) =< ?MOST_CONTROL - 2 andalso weir_http_nif:is_text(Text),
    MayBeSent orelse error({bad_close, Code, Text}),
    weir_http_nif:frame(?FINAL bor 8, <<Code:16, Text/binary>>).

may_close(Code) when Code >= 1000, Code =< 1003; Code >= 1007, Code =< 1014; Code >= 3000, Code =< 4999 -> true;
may_close(_) -> false.
