%% @private
%% @doc An incremental parser of forms in parts (RFC 7578, RFC 2046): a value that takes bytes and returns what they
%% contain.
%%
%% Boundaries are searched with `binary:match/2', which is native code (Boyer-Moore, and counts reductions): a scanner
%% of our own would not be faster. Fields of parts are parsed like heads.
%%
%% Stricter than some: lines end in CRLF, only white space may follow a boundary on its line, and the last boundary is
%% required.
-module(weir_http_multipart_parser).

-export([new/2]).
-export([feed/2]).
-export([next/1]).

-export_type([parser/0, limits/0, reason/0]).

-type limits() :: {MaxParts :: pos_integer(), MaxPartHead :: pos_integer()}.

-type reason() :: {bad_multipart, preamble | boundary | fields | disposition} | {too_large, parts | part_head}.

-record(parser, {
    pattern :: binary:cp(),
    %% Bytes that stay buffered because a delimiter may have begun in them.
    kept :: pos_integer(),
    phase = preamble :: preamble | boundary | head | data,
    bytes = <<"\r\n">> :: binary(),
    limits :: limits(),
    parts = 0 :: non_neg_integer()
}).

-opaque parser() :: #parser{}.

%% Bytes allowed before the first boundary, and after each on its line.
-define(PREAMBLE, 4096).
-define(PADDING, 256).

-define(PART_FIELDS, 16).

%% @doc Returns a parser at the start of a form.
-spec new(Boundary :: binary(), limits()) -> parser().
new(Boundary, Limits) ->
    Delimiter = <<"\r\n--", Boundary/binary>>,
    #parser{pattern = binary:compile_pattern(Delimiter), kept = byte_size(Delimiter) - 1, limits = Limits}.

%% @doc Adds bytes.
-spec feed(binary(), parser()) -> parser().
feed(More, Parser = #parser{bytes = <<>>}) -> Parser#parser{bytes = More};
feed(More, Parser = #parser{bytes = Bytes}) -> Parser#parser{bytes = <<Bytes/binary, More/binary>>}.

%% @doc Returns the next element: a part, with its fields as lines; data of the part; its end; the end of the form.
%% `more': feed more bytes first.
-spec next(parser()) ->
    {part, Fields :: binary(), parser()}
    | {data, binary(), parser()}
    | {end_of_part, parser()}
    | done
    | more
    | {error, reason()}.
next(Parser = #parser{phase = preamble, bytes = Bytes, pattern = Pattern}) ->
    case binary:match(Bytes, Pattern) of
        {At, Length} -> next(Parser#parser{phase = boundary, bytes = behind(Bytes, At + Length)});
        nomatch when byte_size(Bytes) > ?PREAMBLE -> {error, {bad_multipart, preamble}};
        nomatch -> more
    end;
next(Parser = #parser{phase = boundary, bytes = Bytes}) ->
    case Bytes of
        <<"--", _/binary>> -> done;
        <<"-">> -> more;
        _ -> line(Bytes, 0, Parser)
    end;
next(Parser = #parser{phase = head, bytes = Bytes, limits = {_, Most}}) ->
    case weir_http_nif:part_head(Bytes, 0, {Most, Most, ?PART_FIELDS}) of
        more -> more;
        {refused, 431, _} -> {error, {too_large, part_head}};
        {refused, _, _} -> {error, {bad_multipart, fields}};
        %% If the data is empty, the boundary begins with the line end of the head.
        {Fields, End} -> {part, binary:copy(Fields), Parser#parser{phase = data, bytes = behind(Bytes, End)}}
    end;
next(Parser = #parser{phase = data, bytes = Bytes, pattern = Pattern, kept = Kept}) ->
    case binary:match(Bytes, Pattern) of
        {0, Length} -> {end_of_part, Parser#parser{phase = boundary, bytes = behind(Bytes, Length)}};
        {At, _} -> {data, binary:part(Bytes, 0, At), Parser#parser{bytes = behind(Bytes, At)}};
        nomatch when byte_size(Bytes) > Kept ->
            Length = byte_size(Bytes) - Kept,
            {data, binary:part(Bytes, 0, Length), Parser#parser{bytes = behind(Bytes, Length)}};
        nomatch -> more
    end.

line(Bytes, At, Parser = #parser{parts = Parts, limits = {MaxParts, _}}) ->
    case Bytes of
        <<_:At/binary, "\r\n", _/binary>> when Parts >= MaxParts -> {error, {too_large, parts}};
        <<_:At/binary, "\r\n", _/binary>> ->
            next(Parser#parser{phase = head, bytes = behind(Bytes, At + 2), parts = Parts + 1});
        <<_:At/binary, Space, _/binary>> when (Space =:= $\s orelse Space =:= $\t) andalso At < ?PADDING ->
            line(Bytes, At + 1, Parser);
        <<_:At/binary, "\r">> ->
            more;
        <<_:At/binary>> ->
            more;
        _ ->
            {error, {bad_multipart, boundary}}
    end.

behind(Bytes, At) -> binary:part(Bytes, At, byte_size(Bytes) - At).
