%% @private
%% @doc RESP 3, the protocol of Redis and Valkey: encodes commands, decodes replies and pushes.
-module(weir_pubsub_resp).

-export([command/1]).
-export([decode/1]).

-export_type([value/0]).

-type value() :: binary() | integer() | null | boolean() | [value()] | {error, binary()} | {push, [value()]}.
%% Maps are lists in which keys and values alternate; doubles are text.

%% Limits of what is decoded: longer or deeper values are errors.
-define(MOST_BYTES, 512 * 1024 * 1024).
-define(MOST_ELEMENTS, 1 bsl 24).
-define(DEEPEST, 8).

%% @doc Encodes a command.
-spec command([iodata() | integer(), ...]) -> iodata().
command(Words) ->
    [$*, integer_to_binary(length(Words)), "\r\n" | [bulk(Word) || Word <- Words]].

bulk(Word) when is_integer(Word) -> bulk(integer_to_binary(Word));
bulk(Word) -> [$$, integer_to_binary(iolist_size(Word)), "\r\n", Word, "\r\n"].

%% @doc Decodes the first value, and returns the bytes after it. `{more, Size}': the value is incomplete, and needs at
%% least `Size' bytes.
-spec decode(binary()) -> {ok, value(), Rest :: binary()} | {more, Size :: pos_integer()} | {error, bad_reply}.
decode(Bytes) ->
    try value(Bytes, ?DEEPEST) of
        {Value, Rest} -> {ok, Value, Rest}
    catch
        %% Missing is what has to come after all these bytes.
        throw:{more, Missing} -> {more, byte_size(Bytes) + Missing};
        throw:bad_reply -> {error, bad_reply}
    end.

value(_Bytes, 0) ->
    throw(bad_reply);
value(<<Type, Bytes/binary>>, Depth) ->
    {Line, Rest} = line(Bytes),
    value(Type, Line, Rest, Depth);
value(<<>>, _Depth) ->
    throw({more, 1}).

value($+, Line, Rest, _Depth) -> {Line, Rest};
value($,, Line, Rest, _Depth) -> {Line, Rest};
value($-, Line, Rest, _Depth) -> {{error, Line}, Rest};
value($:, Line, Rest, _Depth) -> {number(Line), Rest};
value($_, <<>>, Rest, _Depth) -> {null, Rest};
value($#, <<"t">>, Rest, _Depth) -> {true, Rest};
value($#, <<"f">>, Rest, _Depth) -> {false, Rest};
value(_Type, <<"-1">>, Rest, _Depth) -> {null, Rest};
value($$, Line, Rest, _Depth) -> bytes(size(Line, ?MOST_BYTES), Rest);
value($=, Line, Rest, _Depth) -> verbatim(bytes(size(Line, ?MOST_BYTES), Rest));
value($*, Line, Rest, Depth) -> values(size(Line, ?MOST_ELEMENTS), Rest, Depth - 1, []);
value($~, Line, Rest, Depth) -> values(size(Line, ?MOST_ELEMENTS), Rest, Depth - 1, []);
value($%, Line, Rest, Depth) -> values(2 * size(Line, ?MOST_ELEMENTS), Rest, Depth - 1, []);
value($>, Line, Rest, Depth) -> push(values(size(Line, ?MOST_ELEMENTS), Rest, Depth - 1, []));
value(_Type, _Line, _Rest, _Depth) -> throw(bad_reply).

push({Values, Rest}) -> {{push, Values}, Rest}.

verbatim({<<_Format:3/binary, $:, Text/binary>>, Rest}) -> {Text, Rest};
verbatim(_) -> throw(bad_reply).

values(0, Rest, _Depth, Values) ->
    {lists:reverse(Values), Rest};
values(Left, Bytes, Depth, Values) ->
    {Value, Rest} = value(Bytes, Depth),
    values(Left - 1, Rest, Depth, [Value | Values]).

bytes(Size, Bytes) ->
    case Bytes of
        <<Value:Size/binary, "\r\n", Rest/binary>> -> {Value, Rest};
        _ when byte_size(Bytes) < Size + 2 -> throw({more, Size + 2 - byte_size(Bytes)});
        _ -> throw(bad_reply)
    end.

line(Bytes) ->
    case binary:split(Bytes, <<"\r\n">>) of
        [Line, Rest] -> {Line, Rest};
        [_] -> throw({more, 1})
    end.

size(Line, Most) ->
    case number(Line) of
        Size when Size >= 0, Size =< Most -> Size;
        _ -> throw(bad_reply)
    end.

number(Line) ->
    try
        binary_to_integer(Line)
    catch
        error:badarg -> throw(bad_reply)
    end.
