%% @private
%% @doc The native boundary: heads, chunks, responses, and the frames of WebSocket. A wrong argument is a `badarg'. The
%% functions keep no state and never wait; each call takes time in proportion to the bytes that it is given.
-module(weir_http_nif).

-on_load(load/0).

%% From bytes to terms.
-export([head/3]).
-export([field/2]).
-export([fields/1]).
-export([chunks/4]).
-export([trailers/3]).
-export([part_head/3]).

%% From terms to bytes.
-export([response/5]).
-export([trailer_fields/1]).

%% For files.
-export([format_date/1]).
-export([parse_date/1]).
-export([media_type/1]).

%% For the access log.
-export([log_line/5]).

%% WebSocket.
-export([accept/1]).
-export([frames/4]).
-export([frame/2]).
-export([is_text/1]).
-export([inflate/4, inflate_large/4]).
-export([deflate/4, deflate_large/4]).

-export_type([head/0, limits/0, refused/0, progress/0, begun/0, item/0]).

-type limits() :: {LineBytes :: pos_integer(), HeadBytes :: pos_integer(), Fields :: pos_integer()}.

-type head() ::
    {
        Method :: 1..7 | binary(),
        Path :: binary() | undefined,
        Query :: binary() | undefined,
        Fields :: binary(),
        Flags :: non_neg_integer(),
        Length :: -1 | non_neg_integer(),
        End :: non_neg_integer()
    }.
%% A parsed head, as parts of the bytes that it was read from. A method of RFC 9110 is a number, see
%% {@link weir_http_request:method/1}. `Fields' are lines. The flags are those of `weir_http.hrl'. `Length' is that of
%% the body, -1 for chunks. `End' is the offset of the body.

-type refused() :: {refused, Status :: 400..599, Reason :: atom()}.
%% The request is invalid, and the start of the next one is unknown.

-type progress() :: {0..13, non_neg_integer(), non_neg_integer(), non_neg_integer()}.
%% The progress in a chunked body; `{0, 0, 0, 0}' at its beginning.

-type begun() :: none | {0..15, non_neg_integer(), non_neg_integer(), non_neg_integer(), non_neg_integer()}.
%% The unfinished message and frame of a WebSocket.

-type item() ::
    {text | binary, binary()}
    | {compressed, text | binary, binary()}
    | {piece, binary()}
    | {ping | pong, binary()}
    | {close, Code :: 1000..4999 | none, Reason :: binary()}
    | {failed, Code :: 1002..1009, What :: atom()}.
%% The decoded items of frames. A piece belongs to the message of the items after it: further pieces, or the end of the
%% message with the remaining bytes.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

load() ->
    case weir_library:file(weir_http, ?MODULE) of
        {ok, File} -> erlang:load_nif(File, 0);
        {error, _} = Error -> Error
    end.

%% @doc Parses the head of a request that begins at that offset. `more': it is incomplete.
-spec head(binary(), Offset :: non_neg_integer(), limits()) -> head() | more | refused().
head(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc Returns the value of a field; the case of the name does not matter. Several are joined with `, ', those of
%% cookie with `; '.
-spec field(Fields :: binary(), Name :: binary()) -> binary() | undefined.
field(_Fields, _Name) -> ?NOT_LOADED.

%% @doc Returns all fields in their order, with names in lower case.
-spec fields(Fields :: binary()) -> [{binary(), binary()}].
fields(_Fields) -> ?NOT_LOADED.

%% @doc Decodes more of a chunked body of at most Most bytes. After the last chunk come the trailers, at End.
-spec chunks(progress(), binary(), Offset :: non_neg_integer(), Most :: non_neg_integer()) ->
    {more, Body :: binary(), progress()}
    | {trailers, Body :: binary(), Total :: non_neg_integer(), End :: non_neg_integer()}
    | refused().
chunks(_Progress, _Data, _Offset, _Most) -> ?NOT_LOADED.

%% @doc Parses the trailers that begin at that offset.
-spec trailers(binary(), Offset :: non_neg_integer(), limits()) ->
    {Fields :: binary(), End :: non_neg_integer()} | more | refused().
trailers(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc Parses the fields of a part of a form that begin at that offset.
-spec part_head(binary(), Offset :: non_neg_integer(), limits()) ->
    {Fields :: binary(), End :: non_neg_integer()} | more | refused().
part_head(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc Encodes the head of a response, and the given body behind it. Returns it, and whether the connection is closed
%% after it. The flags are those of `weir_http.hrl'. `forbidden': a field with that name and value may not be sent,
%% since it would end a line, or only the server may set it.
-spec response(
    Status :: 100..999, [{binary(), iodata()}], Flags :: non_neg_integer(), Length :: non_neg_integer(), binary()
) ->
    {keep | close, binary()} | {forbidden, Name :: binary(), Value :: binary()}.
response(_Status, _Fields, _Flags, _Length, _Body) -> ?NOT_LOADED.

%% @doc Encodes trailer fields as lines. `forbidden' as in {@link response/5}, or because the field changes how the
%% message is read.
-spec trailer_fields([{binary(), iodata()}]) -> binary() | {forbidden, Name :: binary(), Value :: binary()}.
trailer_fields(_Fields) -> ?NOT_LOADED.

%% @doc Formats seconds since 1970 as a date of HTTP: `<<"Sun, 06 Nov 1994 08:49:37 GMT">>'.
-spec format_date(non_neg_integer()) -> binary().
format_date(_Second) -> ?NOT_LOADED.

%% @doc Parses a date in one of the three forms of HTTP. Returns seconds since 1970.
-spec parse_date(binary()) -> non_neg_integer() | undefined.
parse_date(_Text) -> ?NOT_LOADED.

%% @doc Returns the media type for a file extension without its dot, in any case: `<<"text/html">>' for `<<"html">>'.
-spec media_type(Extension :: binary()) -> binary() | undefined.
media_type(_Extension) -> ?NOT_LOADED.

%% @doc Encodes a line of the access log, in JSON or in the combined format, with its line end and the current time.
%% `undefined' means unknown. Bytes of the client cannot end the line or a field.
-spec log_line(IsJson :: boolean(), Peer, Request, {Status, Bytes, Microseconds}, Id :: binary() | undefined) ->
    binary()
when
    Peer :: {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined,
    Request ::
        {Method :: binary(), Path :: binary(), Query :: binary() | undefined, Is11 :: boolean(), Fields :: binary()}
        | undefined,
    Status :: 100..999,
    Bytes :: non_neg_integer(),
    Microseconds :: non_neg_integer().
log_line(_IsJson, _Peer, _Request, _Numbers, _Id) -> ?NOT_LOADED.

%% @doc Returns the Sec-WebSocket-Accept value for the key of a client.
-spec accept(Key :: binary()) -> binary() | bad_key.
accept(_Key) -> ?NOT_LOADED.

%% @doc Decodes frames of a client, whose messages have at most Most bytes. Returns a list if all bytes were taken and
%% no frame is unfinished, or if its last item is `failed', with the code for the close frame. Otherwise End is the
%% number of bytes taken. `more': pass the remaining bytes (fewer than 132) again, together with those that follow.
%% `again': call again, this call has done enough work. `closed': the last item is a close frame.
-spec frames(binary(), begun(), Most :: non_neg_integer(), MayCompress :: boolean()) ->
    [item()] | {more | again | closed, [item()], begun(), End :: non_neg_integer()}.
frames(_Data, _Begun, _Most, _MayCompress) -> ?NOT_LOADED.

%% @doc Encodes a frame of a server with that first byte. `not_text': a whole, uncompressed text message is not UTF-8.
-spec frame(First :: byte(), Payload :: binary()) -> binary() | not_text.
frame(_First, _Payload) -> ?NOT_LOADED.

%% @doc Whether bytes are valid UTF-8.
-spec is_text(binary()) -> boolean().
is_text(_Bytes) -> ?NOT_LOADED.

%% @doc Inflates a compressed message. `Window' is the end of the previous messages, if context is kept.
%% For messages that take less than a millisecond; {@link inflate_large/4} runs on a dirty scheduler.
-spec inflate(Window :: binary(), Message :: binary(), Most :: non_neg_integer(), IsText :: boolean()) ->
    binary() | too_long | {failed, Code :: 1007, Reason :: atom()}.
inflate(_Window, _Message, _Most, _IsText) -> ?NOT_LOADED.

-spec inflate_large(Window :: binary(), Message :: binary(), Most :: non_neg_integer(), IsText :: boolean()) ->
    binary() | too_long | {failed, Code :: 1007, Reason :: atom()}.
inflate_large(_Window, _Message, _Most, _IsText) -> ?NOT_LOADED.

%% @doc Compresses a message with a level and a window of 2^Bits bytes. For messages that take less than a millisecond;
%% {@link deflate_large/4} runs on a dirty scheduler.
-spec deflate(Window :: binary(), Message :: binary(), Level :: 1..9, Bits :: 9..15) -> binary().
deflate(_Window, _Message, _Level, _Bits) -> ?NOT_LOADED.

-spec deflate_large(Window :: binary(), Message :: binary(), Level :: 1..9, Bits :: 9..15) -> binary().
deflate_large(_Window, _Message, _Level, _Bits) -> ?NOT_LOADED.
