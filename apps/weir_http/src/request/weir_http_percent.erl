%% @private
%% @doc Percent-encoding (RFC 3986, 2.1), and the encoding of forms.
-module(weir_http_percent).

-export([decode/1]).
-export([encode/1]).
-export([pairs/1]).

%% @doc Decodes a text. A percent sign without two hexadecimal digits stays as it is.
-spec decode(binary()) -> binary().
decode(Text) ->
    case binary:match(Text, <<"%">>) of
        nomatch -> Text;
        _ -> decode(Text, <<>>)
    end.

decode(<<$%, High, Low, Rest/binary>>, Done) ->
    case {digit(High), digit(Low)} of
        {H, L} when is_integer(H), is_integer(L) -> decode(Rest, <<Done/binary, (H * 16 + L)>>);
        _ -> decode(<<High, Low, Rest/binary>>, <<Done/binary, $%>>)
    end;
decode(<<Byte, Rest/binary>>, Done) ->
    decode(Rest, <<Done/binary, Byte>>);
decode(<<>>, Done) ->
    Done.

digit(C) when C >= $0, C =< $9 -> C - $0;
digit(C) when C >= $a, C =< $f -> C - $a + 10;
digit(C) when C >= $A, C =< $F -> C - $A + 10;
digit(_) -> none.

%% @doc Encodes any bytes for a path or a query. (`uri_string:quote/1' accepts only UTF-8.)
-spec encode(binary()) -> binary().
encode(Bytes) -> <<<<(encoded(Byte))/binary>> || <<Byte>> <= Bytes>>.

encoded(Byte) when
    Byte >= $a, Byte =< $z;
    Byte >= $A, Byte =< $Z;
    Byte >= $0, Byte =< $9;
    Byte =:= $-;
    Byte =:= $.;
    Byte =:= $_;
    Byte =:= $~
->
    <<Byte>>;
encoded(Byte) ->
    <<$%, (binary:encode_hex(<<Byte>>))/binary>>.

%% @doc Returns the names and values of a query or a form, decoded. A name without `=' has an empty value.
-spec pairs(binary()) -> [{binary(), binary()}].
pairs(Text) ->
    [pair(binary:split(Pair, <<"=">>)) || Pair <- binary:split(Text, <<"&">>, [global]), Pair =/= <<>>].

pair([Name]) -> {word(Name), <<>>};
pair([Name, Value]) -> {word(Name), word(Value)}.

word(Text) ->
    case binary:match(Text, <<"+">>) of
        nomatch -> decode(Text);
        _ -> decode(binary:replace(Text, <<"+">>, <<" ">>, [global]))
    end.
