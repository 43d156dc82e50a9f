%% @private
%% @doc Ends the reading of a document because of a fault, and quotes the document in texts of faults.
-module(weir_toml_fault).

-export([stop/2]).
-export([found/1]).
-export([quote/1]).
-export([cut/1]).

%% The longest quotation in a text, in characters.
-define(QUOTED, 40).

%% @doc Throws `{line, Line, Text}'.
-spec stop(pos_integer(), iodata()) -> no_return().
stop(Line, Text) -> throw({line, Line, iolist_to_binary(Text)}).

%% @doc Describes the beginning of the rest of a document: its first word, or the end of the line or file.
-spec found(Rest :: binary()) -> iodata().
found(<<>>) -> "the end of the file";
found(<<$\n, _/binary>>) -> "the end of the line";
found(<<$\r, $\n, _/binary>>) -> "the end of the line";
found(<<$\r, _/binary>>) -> "a carriage return without a line feed";
found(<<Control, _/binary>>) when Control < $\s; Control =:= 16#7F -> control(Control);
found(Rest) -> quote(word(Rest, 0)).

control(Control) -> io_lib:format("the control character U+~4.16.0B", [Control]).

%% Longer words are cut by quote/1.
word(Rest, Size) ->
    case Rest of
        <<Word:Size/binary, Byte, _/binary>> when Byte =< $\s; Byte =:= 16#7F; Size > 4 * ?QUOTED -> Word;
        <<_:Size/binary, _, _/binary>> -> word(Rest, Size + 1);
        Word -> Word
    end.

%% @doc Quotes text of the document as {@link cut/1} returns it.
-spec quote(binary()) -> iodata().
quote(Text) -> [$", cut(Text), $"].

%% @doc Returns the first 40 characters of a text, with `?' for control characters, and `...' if there are more.
-spec cut(binary()) -> iodata().
cut(Text) -> cut(Text, ?QUOTED).

cut(<<>>, _Left) -> [];
cut(_Text, 0) -> "...";
cut(<<Character/utf8, Rest/binary>>, Left) when Character >= $\s, Character =/= 16#7F ->
    [<<Character/utf8>> | cut(Rest, Left - 1)];
%% A control character of a quoted key, or a character that word/2 has cut.
cut(<<_, Rest/binary>>, Left) ->
    [$? | cut(Rest, Left - 1)].
