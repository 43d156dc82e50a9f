%% @private
%% @doc An incomplete body of a request: a value that takes bytes until it is complete.
%%
%% It uses memory for the bytes received, not for the length announced.
-module(weir_http_body).

-export([new/2]).
-export([feed/4]).
-export([take/1]).
-export([held/1]).
-export([received/1]).

-export_type([body/0]).

%% `done' holds the bytes received but not taken; `taken' counts those taken before.
-record(sized, {left :: non_neg_integer(), done = <<>> :: binary(), taken = 0 :: non_neg_integer()}).
-record(chunked, {
    progress = {0, 0, 0, 0} :: weir_http_nif:progress(),
    most :: non_neg_integer(),
    done = <<>> :: binary(),
    taken = 0 :: non_neg_integer()
}).
-record(trailing, {lines = <<>> :: binary(), done :: binary(), taken = 0 :: non_neg_integer()}).

-opaque body() :: #sized{} | #chunked{} | #trailing{}.

%% @doc Returns an empty body of that length (-1: in chunks) and of at most Most bytes.
-spec new(Length :: -1 | non_neg_integer(), Most :: non_neg_integer()) -> {ok, body()} | weir_http_nif:refused().
new(-1, Most) -> {ok, #chunked{most = Most}};
new(Length, Most) when Length =< Most -> {ok, #sized{left = Length}};
new(_Length, _Most) -> {refused, 413, body_too_large}.

%% @doc Adds the bytes from an offset on. `done': the body is complete, and the next request begins at End.
-spec feed(binary(), Offset :: non_neg_integer(), body(), weir_http_nif:limits()) ->
    {more, body()} | {done, Body :: binary(), Trailers :: binary(), End :: non_neg_integer()} | weir_http_nif:refused().
feed(Data, Offset, Body = #sized{left = Left, done = Done}, _Limits) ->
    case byte_size(Data) - Offset of
        Here when Here >= Left ->
            {done, join(Done, binary:part(Data, Offset, Left)), <<>>, Offset + Left};
        Here ->
            {more, Body#sized{left = Left - Here, done = append(Done, binary:part(Data, Offset, Here))}}
    end;
feed(Data, Offset, Body = #chunked{progress = Progress, most = Most, done = Done, taken = Taken}, Limits) ->
    case weir_http_nif:chunks(Progress, Data, Offset, Most) of
        {more, Piece, NewProgress} ->
            {more, Body#chunked{progress = NewProgress, done = append(Done, Piece)}};
        {trailers, Piece, _Total, End} ->
            feed(Data, End, #trailing{done = join(Done, Piece), taken = Taken}, Limits);
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

%% A piece that arrives whole is not copied.
join(<<>>, Piece) -> Piece;
join(Done, Piece) -> <<Done/binary, Piece/binary>>.

%% A piece that is kept is copied: a sub-binary would keep the whole read alive.
append(<<>>, Piece) -> binary:copy(Piece);
append(Done, Piece) -> <<Done/binary, Piece/binary>>.

%% @doc Takes the bytes received so far of an incomplete body.
-spec take(body()) -> {binary(), body()}.
take(Body = #sized{done = Done, taken = Taken}) ->
    {Done, Body#sized{done = <<>>, taken = Taken + byte_size(Done)}};
take(Body = #chunked{done = Done, taken = Taken}) ->
    {Done, Body#chunked{done = <<>>, taken = Taken + byte_size(Done)}};
take(Body = #trailing{done = Done, taken = Taken}) ->
    {Done, Body#trailing{done = <<>>, taken = Taken + byte_size(Done)}}.

%% @doc Returns how many bytes wait to be taken.
-spec held(body()) -> non_neg_integer().
held(#sized{done = Done}) -> byte_size(Done);
held(#chunked{done = Done}) -> byte_size(Done);
held(#trailing{done = Done}) -> byte_size(Done).

%% @doc Returns how many bytes have been received.
-spec received(body()) -> non_neg_integer().
received(Body = #sized{taken = Taken}) -> Taken + held(Body);
received(Body = #chunked{taken = Taken}) -> Taken + held(Body);
received(Body = #trailing{taken = Taken}) -> Taken + held(Body).
