%% @doc JSON for the examples: OTP's module `json' where there is one (OTP 27 and later), and the same in a page where not. A
%% program of your own takes `json', or on an older OTP one of the libraries: thoas, jsx, jiffy.
-module(weir_example_json).

-export([decode/1]).
-export([encode/1]).

-export_type([value/0]).

-type value() :: null | boolean() | number() | binary() | [value()] | #{binary() => value()}.

%% Arrays and objects in each other.
-define(DEPTH, 100).

%% @doc The value that a text is.
-spec decode(binary()) -> {ok, value()} | error.
decode(Text) ->
    try
        case has_json() of
            true -> {ok, apply(json, decode, [Text])};
            false -> whole(value(space(Text), ?DEPTH))
        end
    catch
        error:_ -> error
    end.

%% @doc A value as a text.
-spec encode(value()) -> iodata().
encode(Value) ->
    case has_json() of
        true -> apply(json, encode, [Value]);
        false -> written(Value)
    end.

has_json() -> code:ensure_loaded(json) =:= {module, json}.

whole({Value, Rest}) ->
    <<>> = space(Rest),
    {ok, Value}.

space(<<Byte, Rest/binary>>) when Byte =:= $\s; Byte =:= $\t; Byte =:= $\r; Byte =:= $\n -> space(Rest);
space(Text) -> Text.

value(<<"null", Rest/binary>>, _Depth) -> {null, Rest};
value(<<"true", Rest/binary>>, _Depth) -> {true, Rest};
value(<<"false", Rest/binary>>, _Depth) -> {false, Rest};
value(<<$", Rest/binary>>, _Depth) -> string(Rest, <<>>);
value(<<$[, Rest/binary>>, Depth) when Depth > 0 -> array(space(Rest), Depth - 1);
value(<<${, Rest/binary>>, Depth) when Depth > 0 -> object(space(Rest), Depth - 1);
value(Text, _Depth) -> number(Text).

array(<<$], Rest/binary>>, _Depth) -> {[], Rest};
array(Text, Depth) -> elements(Text, Depth, []).

elements(Text, Depth, Before) ->
    {Value, Rest} = value(Text, Depth),
    case space(Rest) of
        <<$,, More/binary>> -> elements(space(More), Depth, [Value | Before]);
        <<$], More/binary>> -> {lists:reverse(Before, [Value]), More}
    end.

object(<<$}, Rest/binary>>, _Depth) -> {#{}, Rest};
object(Text, Depth) -> members(Text, Depth, #{}).

members(<<$", Text/binary>>, Depth, Before) ->
    {Name, Rest} = string(Text, <<>>),
    <<$:, Behind/binary>> = space(Rest),
    {Value, After} = value(space(Behind), Depth),
    Members = Before#{Name => Value},
    case space(After) of
        <<$,, More/binary>> -> members(space(More), Depth, Members);
        <<$}, More/binary>> -> {Members, More}
    end.

string(<<$", Rest/binary>>, Done) -> {Done, Rest};
string(<<"\\u", Hex:4/binary, Rest/binary>>, Done) -> unicode(binary_to_integer(Hex, 16), Rest, Done);
string(<<$\\, Byte, Rest/binary>>, Done) -> string(Rest, <<Done/binary, (unescaped(Byte))>>);
string(<<Character/utf8, Rest/binary>>, Done) when Character >= $\s -> string(Rest, <<Done/binary, Character/utf8>>).

unicode(High, <<"\\u", Hex:4/binary, Rest/binary>>, Done) when High >= 16#D800, High =< 16#DBFF ->
    Low = binary_to_integer(Hex, 16),
    true = Low >= 16#DC00 andalso Low =< 16#DFFF,
    string(Rest, <<Done/binary, (16#10000 + (High - 16#D800) * 16#400 + Low - 16#DC00)/utf8>>);
unicode(Character, Rest, Done) ->
    string(Rest, <<Done/binary, Character/utf8>>).

unescaped(Byte) -> map_get(Byte, #{$" => $", $\\ => $\\, $/ => $/, $b => $\b, $f => $\f, $n => $\n, $r => $\r, $t => $\t}).

number(Text) ->
    {match, [{0, Length} | Parts]} = re:run(Text, "^-?(?:0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?", []),
    <<Digits:Length/binary, Rest/binary>> = Text,
    Number =
        case Parts of
            [] -> binary_to_integer(Digits);
            [{-1, 0}, {At, _}] -> binary_to_float(<<(binary:part(Digits, 0, At))/binary, ".0", (binary:part(Digits, At, Length - At))/binary>>);
            _ -> binary_to_float(Digits)
        end,
    {Number, Rest}.

written(Value) when is_atom(Value) -> atom_to_binary(Value);
written(Value) when is_integer(Value) -> integer_to_binary(Value);
written(Value) when is_float(Value) -> float_to_binary(Value, [short]);
written(Value) when is_binary(Value) -> [$", [escaped(Character) || <<Character/utf8>> <= Value], $"];
written(Value) when is_list(Value) -> [$[, lists:join($,, [written(Element) || Element <- Value]), $]];
written(Value) when is_map(Value) ->
    [${, lists:join($,, [[written(Name), $:, written(Member)] || {Name, Member} <- lists:sort(maps:to_list(Value))]), $}].

escaped($") -> <<"\\\"">>;
escaped($\\) -> <<"\\\\">>;
escaped(Character) when Character < $\s -> io_lib:format("\\u~4.16.0b", [Character]);
escaped(Character) -> <<Character/utf8>>.
