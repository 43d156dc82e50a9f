%% @private
%% @doc The native boundary: heads, chunks, responses, and the frames of WebSocket. A wrong argument is a `badarg'. Nothing here keeps anything or
%% waits; each call takes time in proportion to the bytes that it is given.
-module(weir_http_nif).

-on_load(load/0).

%% From bytes to terms.
-export([head/3]).
-export([field/2]).
-export([fields/1]).
-export([chunks/4]).
-export([trailers/3]).
-export([part_head/3]).

%% And back.
-export([response/5]).
-export([trailer_fields/1]).

%% What files are sent with.
-export([format_date/1]).
-export([parse_date/1]).
-export([media_type/1]).

%% What is logged.
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
%% A head, in pieces of the bytes that it was read from. A method of RFC 9110 is a number, see {@link
%% weir_http_request:method/1}. `Fields' are lines. The flags are those of `weir_http.hrl'. `Length' is that of the body, -1 for
%% chunks. `End' is where the body begins.

-type refused() :: {refused, Status :: 400..599, Reason :: atom()}.
%% The request is wrong, and nobody knows where the next one would begin.

-type progress() :: {0..13, non_neg_integer(), non_neg_integer(), non_neg_integer()}.
%% How far a chunked body is read: `{0, 0, 0, 0}' at its beginning.

-type begun() :: none | {0..15, non_neg_integer(), non_neg_integer(), non_neg_integer(), non_neg_integer()}.
%% What a WebSocket has begun to get: a message, and a frame of it.

-type item() ::
    {text | binary, binary()}
    | {compressed, text | binary, binary()}
    | {piece, binary()}
    | {ping | pong, binary()}
    | {close, Code :: 1000..4999 | none, Reason :: binary()}
    | {failed, Code :: 1002..1009, What :: atom()}.
%% What frames have come to. A piece stands before what is next of its message: another one, or the end, which has the bytes that
%% are left.

-define(NOT_LOADED, erlang:nif_error({not_loaded, ?MODULE})).

load() ->
    case weir_library:file(weir_http, ?MODULE) of
        {ok, File} -> erlang:load_nif(File, 0);
        {error, _} = Error -> Error
    end.

%% @doc The head of a request that begins at that offset. `more': it goes on behind the data.
-spec head(binary(), Offset :: non_neg_integer(), limits()) -> head() | more | refused().
head(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc The value of a field, by a name in any case. Several are joined by commas, cookies by semicolons.
-spec field(Fields :: binary(), Name :: binary()) -> binary() | undefined.
field(_Fields, _Name) -> ?NOT_LOADED.

%% @doc All fields in their order, with names in lower case.
-spec fields(Fields :: binary()) -> [{binary(), binary()}].
fields(_Fields) -> ?NOT_LOADED.

%% @doc Goes on with a chunked body of at most so many bytes. After the last chunk come the trailers, at End.
-spec chunks(progress(), binary(), Offset :: non_neg_integer(), Most :: non_neg_integer()) ->
    {more, Body :: binary(), progress()}
    | {trailers, Body :: binary(), Total :: non_neg_integer(), End :: non_neg_integer()}
    | refused().
chunks(_Progress, _Data, _Offset, _Most) -> ?NOT_LOADED.

%% @doc The trailers that begin at that offset.
-spec trailers(binary(), Offset :: non_neg_integer(), limits()) ->
    {Fields :: binary(), End :: non_neg_integer()} | more | refused().
trailers(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc The fields of a part of a form that begin at that offset.
-spec part_head(binary(), Offset :: non_neg_integer(), limits()) ->
    {Fields :: binary(), End :: non_neg_integer()} | more | refused().
part_head(_Data, _Offset, _Limits) -> ?NOT_LOADED.

%% @doc The head of a response, and what is given of the body behind it; and whether the connection is closed then. The
%% flags are those of `weir_http.hrl'. `forbidden': a field of that name and value may not be sent, since it would end a line,
%% or is ours to say.
-spec response(Status :: 100..999, [{binary(), iodata()}], Flags :: non_neg_integer(), Length :: non_neg_integer(), binary()) ->
    {keep | close, binary()} | {forbidden, Name :: binary(), Value :: binary()}.
response(_Status, _Fields, _Flags, _Length, _Body) -> ?NOT_LOADED.

%% @doc The lines of fields behind a body in chunks. `forbidden' as of {@link response/5}, or it says how the message is to be read.
-spec trailer_fields([{binary(), iodata()}]) -> binary() | {forbidden, Name :: binary(), Value :: binary()}.
trailer_fields(_Fields) -> ?NOT_LOADED.

%% @doc A time in seconds since 1970 as a date of HTTP: `<<"Sun, 06 Nov 1994 08:49:37 GMT">>'.
-spec format_date(non_neg_integer()) -> binary().
format_date(_Second) -> ?NOT_LOADED.

%% @doc The time that a date in one of the three forms of HTTP means, in seconds since 1970.
-spec parse_date(binary()) -> non_neg_integer() | undefined.
parse_date(_Text) -> ?NOT_LOADED.

%% @doc The media type of files with such an extension, in any case and without its dot: `<<"text/html">>' for `<<"html">>'.
-spec media_type(Extension :: binary()) -> binary() | undefined.
media_type(_Extension) -> ?NOT_LOADED.

%% @doc A line of the access log, in JSON or in the combined format, with its end. The time is now. `undefined' is not known.
%% Nothing that a client has sent can end the line or a field.
-spec log_line(IsJson :: boolean(), Peer, Request, {Status, Bytes, Microseconds}, Id :: binary() | undefined) -> binary() when
    Peer :: {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined,
    Request :: {Method :: binary(), Path :: binary(), Query :: binary() | undefined, Is11 :: boolean(), Fields :: binary()} | undefined,
    Status :: 100..999,
    Bytes :: non_neg_integer(),
    Microseconds :: non_neg_integer().
log_line(_IsJson, _Peer, _Request, _Numbers, _Id) -> ?NOT_LOADED.

%% @doc What a server answers to the key of a client that opens a WebSocket.
-spec accept(Key :: binary()) -> binary() | bad_key.
accept(_Key) -> ?NOT_LOADED.

%% @doc Goes on with the frames of a client, whose messages have so many bytes at most. A list: all bytes were taken, and nothing
%% has begun; or its last item says what was wrong, and what code the client has to be told. Else End says how many bytes were
%% taken. `more': those that are left have to come again, with what follows; they are fewer than 132. `again': it was enough for
%% one call. `closed': the last item is a close frame.
-spec frames(binary(), begun(), Most :: non_neg_integer(), MayCompress :: boolean()) ->
    [item()] | {more | again | closed, [item()], begun(), End :: non_neg_integer()}.
frames(_Data, _Begun, _Most, _MayCompress) -> ?NOT_LOADED.

%% @doc A frame of a server, which begins with that byte. A whole text that is not compressed has to be UTF-8.
-spec frame(First :: byte(), Payload :: binary()) -> binary() | not_text.
frame(_First, _Payload) -> ?NOT_LOADED.

%% @doc Whether bytes are UTF-8.
-spec is_text(binary()) -> boolean().
is_text(_Bytes) -> ?NOT_LOADED.

%% @doc The plain bytes of a compressed message. `Window' is what the messages before have ended with, where that is to be
%% remembered. For messages that take less than a millisecond; {@link inflate_large/4} runs on a dirty scheduler.
-spec inflate(Window :: binary(), Message :: binary(), Most :: non_neg_integer(), IsText :: boolean()) ->
    binary() | too_long | {failed, Code :: 1007, Reason :: atom()}.
inflate(_Window, _Message, _Most, _IsText) -> ?NOT_LOADED.

-spec inflate_large(Window :: binary(), Message :: binary(), Most :: non_neg_integer(), IsText :: boolean()) ->
    binary() | too_long | {failed, Code :: 1007, Reason :: atom()}.
inflate_large(_Window, _Message, _Most, _IsText) -> ?NOT_LOADED.

%% @doc A message compressed, by a level and with a window of 2^Bits bytes. For messages that take less than a millisecond;
%% {@link deflate_large/4} runs on a dirty scheduler.
-spec deflate(Window :: binary(), Message :: binary(), Level :: 1..9, Bits :: 9..15) -> binary().
deflate(_Window, _Message, _Level, _Bits) -> ?NOT_LOADED.

-spec deflate_large(Window :: binary(), Message :: binary(), Level :: 1..9, Bits :: 9..15) -> binary().
deflate_large(_Window, _Message, _Level, _Bits) -> ?NOT_LOADED.
