%% @private
%% @doc Scans the four kinds of strings: basic (`"') and literal (`` ' ''), each in one line or in several. The document
%% must be valid UTF-8.
-module(weir_toml_string).

-export([string/2]).
-export([single_line/2]).

-import(weir_toml_fault, [stop/2, found/1, quote/1]).

%% @doc Scans a string. Returns its text, the rest behind it, and the line of the rest.
-spec string(binary(), pos_integer()) -> {binary(), binary(), pos_integer()}.
string(<<"\"\"\"", Rest/binary>>, Line) -> several_lines(Rest, $", $\\, Line);
%% A literal string has no escapes: its second stop is its quote again.
string(<<"'''", Rest/binary>>, Line) -> several_lines(Rest, $', $', Line);
string(Text, Line) ->
    {String, Rest} = single_line(Text, Line),
    {String, Rest, Line}.

%% @doc Scans a string in one line, as keys have them. Returns its text and the rest.
-spec single_line(binary(), pos_integer()) -> {binary(), binary()}.
single_line(<<$", Rest/binary>>, Line) -> basic(Rest, Line, <<>>);
single_line(<<$', Rest/binary>>, Line) ->
    Size = plain(Rest, $', $', 0),
    case Rest of
        <<String:Size/binary, $', Behind/binary>> -> {binary:copy(String), Behind};
        <<_:Size/binary, Wrong/binary>> -> not_closed(Wrong, $', Line)
    end.

basic(Text, Line, String) ->
    Size = plain(Text, $", $\\, 0),
    case Text of
        <<Part:Size/binary, $", Rest/binary>> ->
            {binary:copy(<<String/binary, Part/binary>>), Rest};
        <<Part:Size/binary, $\\, Escaped/binary>> ->
            {Character, Rest} = escape(Escaped, Line),
            basic(Rest, Line, <<String/binary, Part/binary, Character/utf8>>);
        <<_:Size/binary, Wrong/binary>> ->
            not_closed(Wrong, $", Line)
    end.

%% Counts the bytes before the first that may not stand in a string or has a meaning there. Bytes from 128 on belong to
%% characters of several bytes.
plain(<<Byte, Rest/binary>>, Quote, Escape, Size) when
    Byte >= $\s, Byte =/= 16#7F, Byte =/= Quote, Byte =/= Escape; Byte =:= $\t
->
    plain(Rest, Quote, Escape, Size + 1);
plain(_Rest, _Quote, _Escape, Size) ->
    Size.

-spec not_closed(binary(), char(), pos_integer()) -> no_return().
not_closed(Wrong, Quote, Line) ->
    case Wrong of
        <<Byte, _/binary>> when Byte =/= $\n, Byte =/= $\r -> stop(Line, ["a string contains ", found(Wrong)]);
        _ -> stop(Line, ["expected the closing ", Quote, " of a string, found ", found(Wrong)])
    end.

%% The end of the line behind the opening quotes does not belong to the string.
several_lines(<<$\n, Rest/binary>>, Quote, Escape, First) ->
    several_lines(Rest, Quote, Escape, First, First + 1, <<>>);
several_lines(<<$\r, $\n, Rest/binary>>, Quote, Escape, First) ->
    several_lines(Rest, Quote, Escape, First, First + 1, <<>>);
several_lines(Text, Quote, Escape, First) ->
    several_lines(Text, Quote, Escape, First, First, <<>>).

several_lines(Text, Quote, Escape, First, Line, Before) ->
    Size = plain(Text, Quote, Escape, 0),
    <<Part:Size/binary, Rest/binary>> = Text,
    String = <<Before/binary, Part/binary>>,
    case Rest of
        <<Quote, _/binary>> ->
            quotes(Rest, Quote, Escape, First, Line, String);
        <<$\n, More/binary>> ->
            several_lines(More, Quote, Escape, First, Line + 1, <<String/binary, $\n>>);
        <<$\r, $\n, More/binary>> ->
            several_lines(More, Quote, Escape, First, Line + 1, <<String/binary, $\r, $\n>>);
        <<$\\, Escaped/binary>> ->
            backslash(Escaped, Quote, Escape, First, Line, String);
        <<>> ->
            stop(First, ["the string that begins in this line has no closing ", [Quote, Quote, Quote]]);
        _ ->
            stop(Line, ["a string contains ", found(Rest)])
    end.

%% One or two quotes belong to the string. Of four or five, the last three close it.
quotes(Text, Quote, Escape, First, Line, String) ->
    case count(Text, Quote, 0) of
        Count when Count < 3 ->
            <<Quotes:Count/binary, Rest/binary>> = Text,
            several_lines(Rest, Quote, Escape, First, Line, <<String/binary, Quotes/binary>>);
        Count ->
            Inside = Count - 3,
            <<Quotes:Inside/binary, _Closing:3/binary, Rest/binary>> = Text,
            {binary:copy(<<String/binary, Quotes/binary>>), Rest, Line}
    end.

count(<<Quote, Rest/binary>>, Quote, Count) when Count < 5 -> count(Rest, Quote, Count + 1);
count(_Rest, _Quote, Count) -> Count.

%% A backslash at the end of a line removes the white space up to the next character.
backslash(Text, Quote, Escape, First, Line, String) ->
    case white_space(Text, Line) of
        {Rest, Next} when Next > Line ->
            several_lines(Rest, Quote, Escape, First, Next, String);
        {_, Line} ->
            {Character, Rest} = escape(Text, Line),
            several_lines(Rest, Quote, Escape, First, Line, <<String/binary, Character/utf8>>)
    end.

white_space(<<Blank, Rest/binary>>, Line) when Blank =:= $\s; Blank =:= $\t -> white_space(Rest, Line);
white_space(<<$\n, Rest/binary>>, Line) -> white_space(Rest, Line + 1);
white_space(<<$\r, $\n, Rest/binary>>, Line) -> white_space(Rest, Line + 1);
white_space(Rest, Line) -> {Rest, Line}.

escape(<<$b, Rest/binary>>, _Line) -> {$\b, Rest};
escape(<<$t, Rest/binary>>, _Line) -> {$\t, Rest};
escape(<<$n, Rest/binary>>, _Line) -> {$\n, Rest};
escape(<<$f, Rest/binary>>, _Line) -> {$\f, Rest};
escape(<<$r, Rest/binary>>, _Line) -> {$\r, Rest};
escape(<<$e, Rest/binary>>, _Line) -> {$\e, Rest};
escape(<<$", Rest/binary>>, _Line) -> {$", Rest};
escape(<<$\\, Rest/binary>>, _Line) -> {$\\, Rest};
escape(<<$x, Digits:2/binary, Rest/binary>>, Line) -> {character(<<$x, Digits/binary>>, Line), Rest};
escape(<<$u, Digits:4/binary, Rest/binary>>, Line) -> {character(<<$u, Digits/binary>>, Line), Rest};
escape(<<$U, Digits:8/binary, Rest/binary>>, Line) -> {character(<<$U, Digits/binary>>, Line), Rest};
escape(Wrong, Line) ->
    Allowed = "\\b \\t \\n \\f \\r \\e \\\" \\\\ \\xHH \\uHHHH \\UHHHHHHHH",
    stop(Line, ["expected an escape, one of ", Allowed, ", found ", found(<<$\\, Wrong/binary>>)]).

%% Surrogates are no characters.
character(<<_Letter, Digits/binary>> = Escape, Line) ->
    case hex(Digits, 0) of
        Character when Character < 16#D800; Character > 16#DFFF, Character =< 16#10FFFF -> Character;
        _ -> stop(Line, ["no character: ", quote(<<$\\, Escape/binary>>)])
    end.

hex(<<>>, Value) -> Value;
hex(<<Digit, Rest/binary>>, Value) when Digit >= $0, Digit =< $9 -> hex(Rest, Value * 16 + Digit - $0);
hex(<<Digit, Rest/binary>>, Value) when Digit >= $a, Digit =< $f -> hex(Rest, Value * 16 + Digit - $a + 10);
hex(<<Digit, Rest/binary>>, Value) when Digit >= $A, Digit =< $F -> hex(Rest, Value * 16 + Digit - $A + 10);
hex(_Wrong, _Value) -> wrong.
