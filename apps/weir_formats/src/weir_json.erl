%% @doc JSON (RFC 8259), encoder and decoder. OTP has a module for it from 27 on; Weir supports OTP 25.
%%
%% Objects are maps, strings are UTF-8 binaries, `null' is the atom. Made for reports of some kilobytes.
-module(weir_json).

-export([encode/1]).
-export([compact/1]).
-export([decode/1]).

-export_type([value/0]).

%% The limit of nested arrays and objects: input of strangers must not use unbounded memory.
-define(DEPTH, 100).

%% The limit of characters in a number: converting takes quadratic time and blocks the scheduler.
-define(LONGEST_NUMBER, 1000).

-type value() :: null | boolean() | number() | binary() | [value()] | #{binary() => value()}.

%% Strings and keys may be atoms.
-type encodable() :: atom() | number() | binary() | [encodable()] | #{atom() | binary() => encodable()}.

%% @doc Encodes a value for people and for `diff': indented by two spaces, keys sorted, ending with a line feed. A
%% byte of a string that is not UTF-8 becomes U+FFFD.
-spec encode(encodable()) -> iodata().
encode(Value) ->
    [encode(Value, <<"\n">>), $\n].

%% @doc Encodes a value in one line, without a line feed.
-spec compact(encodable()) -> iodata().
compact(Value) -> encode(Value, <<>>).

encode(Atom, _Indent) when Atom =:= null; is_boolean(Atom) -> atom_to_binary(Atom);
encode(Atom, _Indent) when is_atom(Atom) -> string(atom_to_binary(Atom));
encode(Integer, _Indent) when is_integer(Integer) -> integer_to_binary(Integer);
encode(Float, _Indent) when is_float(Float) -> float_to_binary(Float, [short]);
encode(String, _Indent) when is_binary(String) -> string(String);
encode([], _Indent) -> "[]";
encode(List, Indent) when is_list(List) ->
    Inner = inner(Indent),
    [$[, lists:join($,, [[Inner, encode(Value, Inner)] || Value <- List]), Indent, $]];
encode(Map, _Indent) when map_size(Map) =:= 0 -> "{}";
encode(Map, Indent) when is_map(Map) ->
    Inner = inner(Indent),
    Members = lists:sort([{key(Key), Value} || {Key, Value} <- maps:to_list(Map)]),
    [
        ${,
        lists:join($,, [[Inner, string(Key), colon(Indent), encode(Value, Inner)] || {Key, Value} <- Members]),
        Indent,
        $}
    ].

inner(<<>>) -> <<>>;
inner(Indent) -> <<Indent/binary, "  ">>.

colon(<<>>) -> ":";
colon(_Indent) -> ": ".

key(Key) when is_atom(Key) -> atom_to_binary(Key);
key(Key) when is_binary(Key) -> Key.

string(String) -> [$", escaped(String), $"].

escaped(String) ->
    Size = plain(String, 0),
    case String of
        <<Plain:Size/binary, Character, Rest/binary>> when Character < 128 ->
            [Plain, escape(Character) | escaped(Rest)];
        <<Plain:Size/binary>> -> [Plain];
        <<Plain:Size/binary, _NotUtf8, Rest/binary>> -> [Plain, <<16#FFFD/utf8>> | escaped(Rest)]
    end.

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape($\n) -> "\\n";
escape($\r) -> "\\r";
escape($\t) -> "\\t";
escape(Control) -> io_lib:format("\\u~4.16.0b", [Control]).

%% Counts the bytes of UTF-8 before the first that needs escaping. They are copied together, because input is often
%% long.
plain(<<Byte, Rest/binary>>, Size) when Byte >= 16#20, Byte < 128, Byte =/= $", Byte =/= $\\ -> plain(Rest, Size + 1);
plain(<<Character/utf8, Rest/binary>>, Size) when Character >= 16#10000 -> plain(Rest, Size + 4);
plain(<<Character/utf8, Rest/binary>>, Size) when Character >= 16#800 -> plain(Rest, Size + 3);
plain(<<Character/utf8, Rest/binary>>, Size) when Character >= 128 -> plain(Rest, Size + 2);
plain(_Rest, Size) -> Size.

%% @doc Decodes a document. The error is the position of the first wrong byte, from 0; or of an array or object nested
%% more than 100 deep, or of a number that has more than 1,000 characters or exceeds the largest float.
-spec decode(binary()) -> {ok, value()} | {error, {not_json, Position :: non_neg_integer()}}.
decode(Document) ->
    try
        {Value, Rest} = value(space(Document), ?DEPTH),
        case space(Rest) of
            <<>> -> {ok, Value};
            More -> stop(More)
        end
    catch
        throw:{not_json, At} -> {error, {not_json, byte_size(Document) - byte_size(At)}}
    end.

-spec stop(binary()) -> no_return().
stop(At) ->
    throw({not_json, At}).

value(<<"null", Rest/binary>>, _Left) -> {null, Rest};
value(<<"true", Rest/binary>>, _Left) -> {true, Rest};
value(<<"false", Rest/binary>>, _Left) -> {false, Rest};
value(<<$", Rest/binary>>, _Left) -> string(Rest, []);
value(<<_, _/binary>> = At, 0) when binary_part(At, 0, 1) =:= <<"[">>; binary_part(At, 0, 1) =:= <<"{">> ->
    stop(At);
value(<<$[, Rest/binary>>, Left) ->
    case space(Rest) of
        <<$], After/binary>> -> {[], After};
        First -> elements(First, [], Left - 1)
    end;
value(<<${, Rest/binary>>, Left) ->
    case space(Rest) of
        <<$}, After/binary>> -> {#{}, After};
        First -> members(First, #{}, Left - 1)
    end;
value(At, _Left) -> number(At).

elements(At, Values, Left) ->
    {Value, Rest} = value(At, Left),
    case space(Rest) of
        <<$,, More/binary>> -> elements(space(More), [Value | Values], Left);
        <<$], After/binary>> -> {lists:reverse(Values, [Value]), After};
        Wrong -> stop(Wrong)
    end.

members(<<$", At/binary>>, Map, Left) ->
    {Key, AfterKey} = string(At, []),
    case space(AfterKey) of
        <<$:, BeforeValue/binary>> ->
            {Value, Rest} = value(space(BeforeValue), Left),
            case space(Rest) of
                <<$,, More/binary>> -> members(space(More), Map#{Key => Value}, Left);
                <<$}, After/binary>> -> {Map#{Key => Value}, After};
                Wrong -> stop(Wrong)
            end;
        Wrong ->
            stop(Wrong)
    end;
members(Wrong, _Map, _Left) ->
    stop(Wrong).

string(At, Parts) ->
    Size = plain(At, 0),
    <<Plain:Size/binary, Behind/binary>> = At,
    case Behind of
        %% Copied even if it is a single part, so that it does not keep the whole document in memory.
        <<$", Rest/binary>> -> {iolist_to_binary(lists:reverse(Parts, [Plain])), Rest};
        <<$\\, Escaped/binary>> -> escaped(Escaped, Behind, [Plain | Parts]);
        _ -> stop(Behind)
    end.

escaped(<<$n, Rest/binary>>, _At, Parts) -> string(Rest, [$\n | Parts]);
escaped(<<$r, Rest/binary>>, _At, Parts) -> string(Rest, [$\r | Parts]);
escaped(<<$t, Rest/binary>>, _At, Parts) -> string(Rest, [$\t | Parts]);
escaped(<<$b, Rest/binary>>, _At, Parts) -> string(Rest, [$\b | Parts]);
escaped(<<$f, Rest/binary>>, _At, Parts) -> string(Rest, [$\f | Parts]);
escaped(<<Self, Rest/binary>>, _At, Parts) when Self =:= $"; Self =:= $\\; Self =:= $/ -> string(Rest, [Self | Parts]);
escaped(<<$u, Hex:4/binary, Rest/binary>>, At, Parts) -> unicode(hex(Hex, At), Rest, At, Parts);
escaped(_Escaped, At, _Parts) -> stop(At).

%% Characters above 16#FFFF are written as two escapes, a high and a low surrogate.
unicode(High, <<"\\u", Hex:4/binary, Rest/binary>>, At, Parts) when High >= 16#D800, High =< 16#DBFF ->
    case hex(Hex, At) of
        Low when Low >= 16#DC00, Low =< 16#DFFF ->
            Character = 16#10000 + ((High - 16#D800) bsl 10) + (Low - 16#DC00),
            string(Rest, [<<Character/utf8>> | Parts]);
        _ ->
            stop(At)
    end;
unicode(Surrogate, _Rest, At, _Parts) when Surrogate >= 16#D800, Surrogate =< 16#DFFF ->
    stop(At);
unicode(Character, Rest, _At, Parts) ->
    string(Rest, [<<Character/utf8>> | Parts]).

hex(Digits, At) -> lists:foldl(fun(Digit, Value) -> Value * 16 + digit(Digit, At) end, 0, binary_to_list(Digits)).

digit(Digit, _At) when Digit >= $0, Digit =< $9 -> Digit - $0;
digit(Digit, _At) when Digit >= $a, Digit =< $f -> Digit - $a + 10;
digit(Digit, _At) when Digit >= $A, Digit =< $F -> Digit - $A + 10;
digit(_Other, At) -> stop(At).

number(At) ->
    {Whole, Behind} = split(At, whole(At)),
    {Fraction, Later} = split(Behind, fraction(Behind)),
    {Exponent, Rest} = split(Later, exponent(Later)),
    (Whole =/= <<>> andalso byte_size(At) - byte_size(Rest) =< ?LONGEST_NUMBER) orelse stop(At),
    try
        {number(Whole, Fraction, Exponent), Rest}
    catch
        %% Larger than any float.
        error:badarg -> stop(At)
    end.

split(At, Size) ->
    <<Part:Size/binary, Rest/binary>> = At,
    {Part, Rest}.

%% The sizes of a number's parts, in bytes.
whole(<<$-, At/binary>>) -> case unsigned(At) of 0 -> 0; Size -> 1 + Size end;
whole(At) -> unsigned(At).

unsigned(<<$0, _/binary>>) -> 1;
unsigned(At) -> digits(At, 0).

fraction(<<$., At/binary>>) -> before_digits(1, At);
fraction(_At) -> 0.

exponent(<<Letter, Sign, At/binary>>) when Letter =:= $e orelse Letter =:= $E, Sign =:= $+ orelse Sign =:= $- ->
    before_digits(2, At);
exponent(<<Letter, At/binary>>) when Letter =:= $e; Letter =:= $E -> before_digits(1, At);
exponent(_At) ->
    0.

before_digits(Before, At) -> case digits(At, 0) of 0 -> 0; Size -> Before + Size end.

digits(<<Digit, At/binary>>, Size) when Digit >= $0, Digit =< $9 -> digits(At, Size + 1);
digits(_At, Size) -> Size.

number(Whole, <<>>, <<>>) -> binary_to_integer(Whole);
%% Erlang requires a fraction before the exponent.
number(Whole, <<>>, Exponent) -> binary_to_float(<<Whole/binary, ".0", Exponent/binary>>);
number(Whole, Fraction, Exponent) -> binary_to_float(<<Whole/binary, Fraction/binary, Exponent/binary>>).

space(<<Space, Rest/binary>>) when Space =:= $\s; Space =:= $\n; Space =:= $\r; Space =:= $\t -> space(Rest);
space(Rest) -> Rest.
