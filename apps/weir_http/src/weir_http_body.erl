%% @private
%% @doc The body of a request on its way: a value that takes bytes until there is all of it.
%%
%% Its memory is what has come, and not what was announced.
-module(weir_http_body).

-export([new/2]).
-export([feed/4]).
-export([received/1]).

-export_type([body/0]).

%% `done' has come. A body that nobody wants is read and not kept.
-record(sized, {left :: non_neg_integer(), done = <<>> :: binary()}).
-record(chunked, {progress = {0, 0, 0, 0} :: weir_http_nif:progress(), most :: non_neg_integer(), done = <<>> :: binary()}).
-record(trailing, {lines = <<>> :: binary(), done :: binary()}).

-opaque body() :: #sized{} | #chunked{} | #trailing{}.

%% @doc A body of that length, -1 for one in chunks, and of so many bytes at most.
-spec new(Length :: -1 | non_neg_integer(), Most :: non_neg_integer()) -> {ok, body()} | weir_http_nif:refused().
new(-1, Most) -> {ok, #chunked{most = Most}};
new(Length, Most) when Length =< Most -> {ok, #sized{left = Length}};
new(_Length, _Most) -> {refused, 413, body_too_large}.

%% @doc Takes bytes from an offset on. `done': there is all of it, and at End begins what is next.
-spec feed(binary(), Offset :: non_neg_integer(), body(), weir_http_nif:limits()) ->
    {more, body()} | {done, Body :: binary(), Trailers :: binary(), End :: non_neg_integer()} | weir_http_nif:refused().
feed(Data, Offset, Body = #sized{left = Left, done = Done}, _Limits) ->
    case byte_size(Data) - Offset of
        Here when Here >= Left ->
            {done, join(Done, binary:part(Data, Offset, Left)), <<>>, Offset + Left};
        Here ->
            {more, Body#sized{left = Left - Here, done = append(Done, binary:part(Data, Offset, Here))}}
    end;
feed(Data, Offset, Body = #chunked{progress = Progress, most = Most, done = Done}, Limits) ->
    case weir_http_nif:chunks(Progress, Data, Offset, Most) of
        {more, Piece, NewProgress} ->
            {more, Body#chunked{progress = NewProgress, done = append(Done, Piece)}};
        {trailers, Piece, _Total, End} ->
            feed(Data, End, #trailing{done = join(Done, Piece)}, Limits);
        {refused, _, _} = Refused ->
            Refused
    end;
feed(Data, Offset, Body = #trailing{lines = Lines, done = Done}, Limits) ->
    Known = byte_size(Lines),
    All = join(Lines, binary:part(Data, Offset, byte_size(Data) - Offset)),
    case weir_http_nif:trailers(All, 0, Limits) of
        {Trailers, End} -> {done, Done, Trailers, End - Known + Offset};
        more -> {more, Body#trailing{lines = append(<<>>, All)}};
        {refused, _, _} = Refused -> Refused
    end.

%% What comes whole is not copied.
join(<<>>, Piece) -> Piece;
join(Done, Piece) -> <<Done/binary, Piece/binary>>.

%% What stays is: a part would keep all that came with it.
append(<<>>, Piece) -> binary:copy(Piece);
append(Done, Piece) -> <<Done/binary, Piece/binary>>.

%% @doc How many bytes of it have come.
-spec received(body()) -> non_neg_integer().
received(#sized{done = Done}) -> byte_size(Done);
received(#chunked{done = Done}) -> byte_size(Done);
received(#trailing{done = Done}) -> byte_size(Done).
