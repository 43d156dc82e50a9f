%% @private
%% @doc The tables of a document, with the lines of their keys, and the rules of TOML about keys that are defined twice.
%% Pure functions. They throw a fault for a definition that is not allowed (see {@link weir_toml_fault}).
-module(weir_toml_table).

-export([new/1]).
-export([insert/4]).
-export([open/4]).
-export([close/5]).
-export([term/1]).
-export([line/3]).

-export_type([table/0, entry/0]).

-import(weir_toml_fault, [stop/2, cut/1]).

-type table() :: {table, kind(), #{Key :: binary() => located()}}.

-type kind() :: implicit | dotted | defined | inline.
%% How a table was made: as the parent of a header's table, by the dots of a key, by a header, or with braces.

-type entry() ::
    {value, binary() | integer() | float() | boolean() | {moment, binary()}}
    | {array, [located()]}
    | table()
    | {tables, NewestFirst :: [{Line :: pos_integer(), table()}, ...]}.
%% `tables': an array of tables, from headers with two brackets.

-type located() :: {Line :: pos_integer(), entry()}.
%% The line of the key, or of an element of an array.

-type header() :: table | element.
%% `[key]', or `[[key]]' for an element of an array of tables.

%% @doc Returns an empty table.
-spec new(kind()) -> table().
new(Kind) -> {table, Kind, #{}}.

%% @doc Adds the entry of a dotted key to a table.
-spec insert([binary(), ...], entry(), pos_integer(), table()) -> table().
insert(Keys, Entry, Line, Table) -> insert([], Keys, Entry, Line, Table).

insert(Before, [Key], Entry, Line, {table, Kind, Entries}) ->
    case Entries of
        #{Key := {First, _}} -> duplicate([Key | Before], First, Line);
        #{} -> {table, Kind, Entries#{Key => {Line, Entry}}}
    end;
insert(Before, [Key | Keys], Entry, Line, {table, Kind, Entries}) ->
    {First, Inner} =
        case Entries of
            #{Key := {There, {table, How, Old}}} when How =:= implicit; How =:= dotted -> {There, {table, dotted, Old}};
            #{Key := {There, Old}} -> taken([Key | Before], Old, There, Line);
            #{} -> {Line, new(dotted)}
        end,
    {table, Kind, Entries#{Key => {First, insert([Key | Before], Keys, Entry, Line, Inner)}}}.

%% @doc Returns the table that a header begins, and its depth below the root. {@link close/5} puts it into the root.
-spec open(header(), [binary(), ...], pos_integer(), table()) -> {table(), Depth :: pos_integer()}.
open(Header, Keys, Line, Root) -> open(Header, [], Keys, Line, Root, 1).

open(Header, Before, [Key], Line, {table, _, Entries}, Depth) ->
    case {Header, Entries} of
        {table, #{Key := {_, {table, implicit, Inner}}}} -> {{table, defined, Inner}, Depth};
        {element, #{Key := {_, {tables, _}}}} -> {new(defined), Depth + 1};
        {_, #{Key := {First, _}}} -> duplicate([Key | Before], First, Line);
        {table, #{}} -> {new(defined), Depth};
        {element, #{}} -> {new(defined), Depth + 1}
    end;
open(Header, Before, [Key | Keys], Line, {table, _, Entries}, Depth) ->
    {Inner, Below} =
        case Entries of
            #{Key := {_, {table, Kind, _} = Table}} when Kind =/= inline -> {Table, Depth + 1};
            #{Key := {_, {tables, [{_, Newest} | _]}}} -> {Newest, Depth + 2};
            #{Key := {First, Old}} -> taken([Key | Before], Old, First, Line);
            #{} -> {new(implicit), Depth + 1}
        end,
    open(Header, [Key | Before], Keys, Line, Inner, Below).

%% @doc Puts the table of a header into the root.
-spec close(header(), [binary(), ...], pos_integer(), table(), Root :: table()) -> table().
close(table, [Key], Line, Table, {table, Kind, Entries}) ->
    {table, Kind, Entries#{Key => {Line, Table}}};
close(element, [Key], Line, Table, {table, Kind, Entries}) ->
    {First, Older} =
        case Entries of
            #{Key := {There, {tables, Tables}}} -> {There, Tables};
            #{} -> {Line, []}
        end,
    {table, Kind, Entries#{Key => {First, {tables, [{Line, Table} | Older]}}}};
close(Header, [Key | Keys], Line, Table, {table, Kind, Entries}) ->
    Inner =
        case Entries of
            #{Key := {First, {tables, [{At, Newest} | Older]}}} ->
                {First, {tables, [{At, close(Header, Keys, Line, Table, Newest)} | Older]}};
            #{Key := {First, Old}} ->
                {First, close(Header, Keys, Line, Table, Old)};
            #{} ->
                {Line, close(Header, Keys, Line, Table, new(implicit))}
        end,
    {table, Kind, Entries#{Key => Inner}}.

-spec duplicate([binary(), ...], pos_integer(), pos_integer()) -> no_return().
duplicate(Reversed, First, Line) -> stop(Line, ["duplicate key: ", name(Reversed), first(First)]).

-spec taken([binary(), ...], entry(), pos_integer(), pos_integer()) -> no_return().
taken(Reversed, Entry, First, Line) ->
    stop(Line, ["cannot add a key to ", name(Reversed), ", which is ", described(Entry), first(First)]).

name(Reversed) -> cut(iolist_to_binary(lists:join($., lists:reverse(Reversed)))).

first(Line) -> [" (first in line ", integer_to_list(Line), $)].

described({value, _}) -> "a value";
described({array, _}) -> "an array";
described({tables, _}) -> "an array of tables";
described({table, inline, _}) -> "an inline table";
described({table, _, _}) -> "a table with a header".

%% @doc Returns an entry as Erlang terms.
-spec term(entry()) -> weir_toml:value().
term({value, Value}) -> Value;
term({array, Elements}) -> [term(Element) || {_, Element} <- Elements];
term({tables, Tables}) -> lists:reverse([term(Table) || {_, Table} <- Tables]);
term({table, _, Entries}) -> maps:map(fun(_Key, {_, Entry}) -> term(Entry) end, Entries).

%% @doc Returns the line of the entry at a path, or of the last step that exists. `Line' is that of the given entry.
-spec line(weir_toml:path(), pos_integer(), entry()) -> pos_integer().
line([Key | Path], _Line, {table, _, Entries}) when is_map_key(Key, Entries) ->
    {Next, Entry} = maps:get(Key, Entries),
    line(Path, Next, Entry);
line([Index | Path], _Line, {array, Elements}) when is_integer(Index), Index > 0, Index =< length(Elements) ->
    {Next, Entry} = lists:nth(Index, Elements),
    line(Path, Next, Entry);
line([Index | Path], _Line, {tables, Tables}) when is_integer(Index), Index > 0, Index =< length(Tables) ->
    {Next, Table} = lists:nth(length(Tables) - Index + 1, Tables),
    line(Path, Next, Table);
line(_Path, Line, _Entry) ->
    Line.
