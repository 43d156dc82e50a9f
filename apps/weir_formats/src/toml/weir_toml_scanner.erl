%% @private
%% @doc Scans what stands between the values of a document: white space, comments, ends of lines, and keys.
-module(weir_toml_scanner).

-export([blank/1]).
-export([lines/2]).
-export([line_end/2]).
-export([key/2]).

-import(weir_toml_fault, [stop/2, found/1]).

%% @doc Skips spaces and tabs.
-spec blank(binary()) -> binary().
blank(<<Blank, Rest/binary>>) when Blank =:= $\s; Blank =:= $\t -> blank(Rest);
blank(Rest) -> Rest.

%% @doc Skips white space, comments and ends of lines. Returns the rest and its line.
-spec lines(binary(), pos_integer()) -> {binary(), pos_integer()}.
lines(<<Blank, Rest/binary>>, Line) when Blank =:= $\s; Blank =:= $\t -> lines(Rest, Line);
lines(<<$\n, Rest/binary>>, Line) -> lines(Rest, Line + 1);
lines(<<$\r, $\n, Rest/binary>>, Line) -> lines(Rest, Line + 1);
lines(<<$#, Rest/binary>>, Line) -> lines(comment(Rest, Line), Line);
lines(Rest, Line) -> {Rest, Line}.

%% @doc Skips the end of a line behind a statement, with a comment. Returns the rest and its line.
-spec line_end(binary(), pos_integer()) -> {binary(), pos_integer()}.
line_end(Text, Line) ->
    case blank(Text) of
        <<$#, Comment/binary>> -> line_end(comment(Comment, Line), Line);
        <<$\n, Rest/binary>> -> {Rest, Line + 1};
        <<$\r, $\n, Rest/binary>> -> {Rest, Line + 1};
        <<>> -> {<<>>, Line};
        Wrong -> stop(Line, ["expected the end of the line, found ", found(Wrong)])
    end.

%% Skips a comment up to the end of its line.
comment(<<Byte, Rest/binary>>, Line) when Byte >= $\s, Byte =/= 16#7F; Byte =:= $\t -> comment(Rest, Line);
comment(<<$\n, _/binary>> = Rest, _Line) -> Rest;
comment(<<$\r, $\n, _/binary>> = Rest, _Line) -> Rest;
comment(<<>>, _Line) -> <<>>;
comment(Wrong, Line) -> stop(Line, ["a comment contains ", found(Wrong)]).

%% @doc Scans a key: parts between dots, with spaces around them. Returns the parts, and the rest from the first
%% character that is not a space.
-spec key(binary(), pos_integer()) -> {[binary(), ...], binary()}.
key(Text, Line) -> key(Text, Line, []).

key(Text, Line, Before) ->
    {Part, Rest} = part(Text, Line),
    case blank(Rest) of
        <<$., More/binary>> -> key(blank(More), Line, [Part | Before]);
        Behind -> {lists:reverse(Before, [Part]), Behind}
    end.

part(<<Quote, _/binary>> = Text, Line) when Quote =:= $"; Quote =:= $' -> weir_toml_string:single_line(Text, Line);
part(Text, Line) ->
    case bare(Text, 0) of
        0 ->
            stop(Line, ["expected a key, found ", found(Text)]);
        Size ->
            <<Part:Size/binary, Rest/binary>> = Text,
            {binary:copy(Part), Rest}
    end.

bare(<<Byte, Rest/binary>>, Size) when
    Byte >= $a, Byte =< $z; Byte >= $A, Byte =< $Z; Byte >= $0, Byte =< $9; Byte =:= $-; Byte =:= $_
->
    bare(Rest, Size + 1);
bare(_Rest, Size) ->
    Size.
