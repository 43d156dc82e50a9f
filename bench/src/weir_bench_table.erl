%% @doc Formats tables for the terminal and in Markdown.
-module(weir_bench_table).

-export([text/2]).
-export([markdown/2]).
-export([number/1]).

%% @doc Formats columns with two spaces between them: the first two are words and left-aligned, the others are figures
%% and right-aligned.
-spec text([unicode:chardata()], [[unicode:chardata()]]) -> unicode:chardata().
text(Header, Rows) ->
    Widths = lists:foldl(fun wider/2, [0 || _ <- Header], [Header | Rows]),
    Rule = [lists:duplicate(Width, $-) || Width <- Widths],
    [line(Row, Widths) || Row <- [Header, Rule | Rows]].

wider(Row, Widths) ->
    lists:zipwith(fun(Cell, Width) -> max(string:length(Cell), Width) end, Row, Widths).

line(Row, Widths) ->
    Cells = [
        string:pad(Cell, Width, side(Column))
     || {Column, Cell, Width} <- lists:zip3(lists:seq(1, length(Row)), Row, Widths)
    ],
    [string:trim(lists:join("  ", Cells), trailing), "\n"].

side(Column) when Column =< 2 -> trailing;
side(_Figure) -> leading.

%% @doc The same in Markdown; only the first column is left-aligned.
-spec markdown([unicode:chardata()], [[unicode:chardata()]]) -> unicode:chardata().
markdown([_ | Figures] = Header, Rows) ->
    Rule = ["---" | ["---:" || _ <- Figures]],
    [["| ", lists:join(" | ", Row), " |\n"] || Row <- [Header, Rule | Rows]].

%% @doc Formats an integer with a comma between thousands.
-spec number(integer()) -> string().
number(Integer) when Integer < 0 -> [$- | number(-Integer)];
number(Integer) when Integer < 1000 -> integer_to_list(Integer);
number(Integer) ->
    number(Integer div 1000) ++ io_lib:format(",~3..0b", [Integer rem 1000]).
