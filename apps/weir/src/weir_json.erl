%% @doc JSON (RFC 8259), both ways. OTP has a module for it from 27 on; we serve OTP 25.
%%
%% Objects are maps, strings are UTF-8 binaries, `null' is the atom. Made for reports of some kilobytes.
-module(weir_json).

-export([encode/1]).
-export([compact/1]).
-export([decode/1]).

-export_type([value/0]).

%% Arrays and objects in each other, at most: what comes from a stranger must not grow without end.
-define(DEPTH, 100).

-type value() :: null | boolean() | number() | binary() | [value()] | #{binary() => value()}.

%% What is encoded may have atoms for strings and keys.
-type encodable() :: atom() | number() | binary() | [encodable()] | #{atom() | binary() => encodable()}.

%% @doc A document for people and for `diff': two spaces of indentation, keys in order, a line feed at the end.
-spec encode(encodable()) -> iodata().
encode(Value) ->
    [encode(Value, <<"\n">>), $\n].

%% @doc A document in one line, without an end of line.
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

string(String) ->
    [$", [escape(Character) || <<Character/utf8>> <= String], $"].

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape($\n) -> "\\n";
escape($\r) -> "\\r";
escape($\t) -> "\\t";
escape(Control) when Control < 16#20 -> io_lib:format("\\u~4.16.0b", [Control]);
escape(Character) -> <<Character/utf8>>.

%% @doc The value of a document. The error is the byte where it stops being JSON, from 0; or where arrays and objects are more than 100
%% deep.
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

string(<<$", Rest/binary>>, Parts) ->
    {iolist_to_binary(lists:reverse(Parts)), Rest};
string(<<$\\, Escaped/binary>> = At, Parts) ->
    case Escaped of
        <<$n, Rest/binary>> -> string(Rest, [$\n | Parts]);
        <<$r, Rest/binary>> -> string(Rest, [$\r | Parts]);
        <<$t, Rest/binary>> -> string(Rest, [$\t | Parts]);
        <<$b, Rest/binary>> -> string(Rest, [$\b | Parts]);
        <<$f, Rest/binary>> -> string(Rest, [$\f | Parts]);
        <<Self, Rest/binary>> when Self =:= $"; Self =:= $\\; Self =:= $/ -> string(Rest, [Self | Parts]);
        <<$u, Hex:4/binary, Rest/binary>> -> unicode(hex(Hex, At), Rest, At, Parts);
        _ -> stop(At)
    end;
string(<<Character/utf8, Rest/binary>>, Parts) when Character >= 16#20 ->
    string(Rest, [<<Character/utf8>> | Parts]);
string(At, _Parts) ->
    stop(At).

%% Characters past 16#FFFF are written as two escapes, a high and a low surrogate.
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

hex(Digits, At) ->
    case re:run(Digits, "^[0-9a-fA-F]{4}$", [{capture, none}]) of
        match -> binary_to_integer(Digits, 16);
        nomatch -> stop(At)
    end.

number(At) ->
    case re:run(At, "^(-?(?:0|[1-9][0-9]*))(\\.[0-9]+)?([eE][+-]?[0-9]+)?", [{capture, all_but_first, binary}]) of
        {match, [Integer]} -> {binary_to_integer(Integer), after_prefix(At, [Integer])};
        {match, [Integer, Fraction]} ->
            {binary_to_float(<<Integer/binary, Fraction/binary>>), after_prefix(At, [Integer, Fraction])};
        {match, [Integer, Fraction, Exponent]} ->
            %% Erlang wants a fraction before an exponent.
            Written = case Fraction of <<>> -> <<".0">>; _ -> Fraction end,
            try binary_to_float(<<Integer/binary, Written/binary, Exponent/binary>>) of
                Float -> {Float, after_prefix(At, [Integer, Fraction, Exponent])}
            catch
                error:badarg -> stop(At)
            end;
        nomatch -> stop(At)
    end.

after_prefix(At, Prefix) ->
    Size = iolist_size(Prefix),
    <<_:Size/binary, Rest/binary>> = At,
    Rest.

space(<<Space, Rest/binary>>) when Space =:= $\s; Space =:= $\n; Space =:= $\r; Space =:= $\t -> space(Rest);
space(Rest) -> Rest.
