%% @doc The tabs of the page as JSON: the pages of the terminal, and the doctor.
-module(weir_scope_tabs).

-export([all/0]).
-export([find/2]).
-export([look/4]).
-export([blocks/1]).
-export([from_json/1]).

-export_type([tab/0, document/0]).

-type tab() :: weir_scope_page:name() | doctor.

-type document() :: map().
%% `#{at, blocks}': the time in milliseconds since 1970, and blocks. A block is `#{text => [Line]}' or `#{columns =>
%% [#{name, title, side}], rows => [[Cell]]}'; a cell is a list of its sort key and its text.

%% @doc Returns all tabs in their order, with their sort columns.
-spec all() -> [{tab(), [atom()]}].
all() ->
    [{Name, weir_scope_page:sorts(Name)} || Name <- weir_scope_page:names()] ++ [{doctor, [none]}].

%% @doc Returns the tab and the sort column with these names, or `error'.
-spec find(binary(), binary() | default) -> {ok, tab(), atom()} | error.
find(Name, Column) ->
    case [{Tab, Sort} || {Tab, Sorts} <- all(), atom_to_binary(Tab) =:= Name, Sort <- wanted(Column, Sorts)] of
        [{Tab, Sort}] -> {ok, Tab, Sort};
        [] -> error
    end.

wanted(default, [First | _]) -> [First];
wanted(Column, Sorts) -> [Sort || Sort <- Sorts, atom_to_binary(Sort) =:= Column].

%% @doc Collects what a tab shows. Takes up to two seconds. `past': the mean utilisations of the last minute, the
%% oldest first.
-spec look(tab(), atom(), weir_scope:view(), Options) -> {ok, document()} | {error, weir_scope:reason()} when
    Options :: #{node := node(), load := boolean(), past := [float()]}.
look(doctor, _Sort, _View, #{node := Node, load := Load}) ->
    case weir_scope_doctor:examine(Node, #{load => Load}) of
        {ok, Report} -> {ok, document([{text, lines(weir_scope_doctor:text(Report))}])};
        {error, _} = Error -> Error
    end;
look(Tab, Sort, View, #{past := Past}) ->
    case weir_scope_page:look(Tab, Sort, View) of
        {ok, Data} -> {ok, document(weir_scope_page:page(Tab, Data, Past))};
        {error, _} = Error -> Error
    end.

lines(Text) -> string:split(unicode:characters_to_binary(Text), "\n", all).

document(Blocks) -> #{at => erlang:system_time(millisecond), blocks => blocks(Blocks)}.

%% @doc Converts blocks of a page for JSON.
-spec blocks([weir_scope_page:block()]) -> [map()].
blocks(Blocks) -> [block(Block) || Block <- Blocks].

block({text, Lines}) ->
    #{text => [unicode:characters_to_binary(Line) || Line <- Lines]};
block({table, Columns, Rows}) ->
    #{
        columns => [#{name => Name, title => list_to_binary(Title), side => Side} || {Name, Title, Side} <- Columns],
        rows => [[[key(Key), unicode:characters_to_binary(Text)] || {Key, Text} <- Row] || Row <- Rows]
    }.

key(Key) when is_number(Key) -> Key;
key(Key) when is_atom(Key) -> atom_to_binary(Key);
key(Key) -> unicode:characters_to_binary(io_lib:format("~0tp", [Key])).

%% @doc Converts blocks from JSON back for a terminal.
-spec from_json([map()]) -> [weir_scope_page:block()].
from_json(Blocks) -> [from_block(Block) || Block <- Blocks].

from_block(#{<<"text">> := Lines}) ->
    {text, Lines};
from_block(#{<<"columns">> := Columns, <<"rows">> := Rows}) ->
    {table,
        [
            {column(Name), unicode:characters_to_list(Title), side(Side)}
         || #{<<"name">> := Name, <<"title">> := Title, <<"side">> := Side} <- Columns
        ],
        [
            [{Key, Text} || [Key, Text] <- Row]
         || Row <- Rows
        ]}.

side(<<"right">>) -> right;
side(_) -> left.

%% `other': no tab of this version has this sort column.
column(Name) ->
    case [Sort || {_, Sorts} <- all(), Sort <- Sorts, atom_to_binary(Sort) =:= Name] of
        [Sort | _] -> Sort;
        [] -> other
    end.
