%% @doc Reads configuration files in TOML 1.1 and finds the lines of their values.
%%
%% ```
%% Text = <<"port = 8000\n[limits]\nbytes = 'many'\n">>,
%% {ok, #{<<"limits">> := #{<<"bytes">> := <<"many">>}}} = weir_toml:decode(Text),
%% 3 = weir_toml:line(Text, [<<"limits">>, <<"bytes">>]).
%% '''
-module(weir_toml).

-export([decode/1]).
-export([line/2]).

-export_type([table/0, value/0, path/0, fault/0]).

-type table() :: #{Key :: binary() => value()}.

-type value() :: binary() | integer() | float() | boolean() | {moment, binary()} | [value()] | table().
%% A string, a number, a boolean, a date or time (`moment', as in the file, with `T' and `Z' in upper case and `T'
%% between date and time), an array, or a table. Integers have 64 bits. Erlang has no infinite floats and no NaN: `inf'
%% and `nan' are faults.

-type path() :: [Key :: binary() | Index :: pos_integer()].
%% The way to a value: keys of tables, and indexes of arrays, which start at 1.

-type fault() :: {line, pos_integer(), Text :: binary()} | {too_large, Most :: pos_integer()}.
%% The line and what is wrong there; or the document has more than `Most' bytes.

-define(MOST, 1048576).

%% @doc Parses a document of at most 1 MiB that nests at most 80 deep.
-spec decode(binary()) -> {ok, table()} | {error, fault()}.
decode(Bytes) when is_binary(Bytes), byte_size(Bytes) > ?MOST ->
    {error, {too_large, ?MOST}};
decode(Bytes) when is_binary(Bytes) ->
    case parse(Bytes) of
        {ok, Table} -> {ok, weir_toml_table:term(Table)};
        {error, _} = Error -> Error
    end;
decode(_) ->
    error(badarg).

%% @doc Returns the line of a value in a document that {@link decode/1} accepts. If there is no such value, returns the
%% line of the last step of the path that exists: for a missing key, the line where its table begins.
-spec line(binary(), path()) -> pos_integer().
line(Bytes, Path) when byte_size(Bytes) =< ?MOST ->
    is_path(Path) orelse error(badarg),
    case parse(Bytes) of
        {ok, Table} -> weir_toml_table:line(Path, 1, Table);
        {error, {line, Line, _Text}} -> Line
    end.

is_path([Step | Path]) when is_binary(Step); is_integer(Step), Step >= 0 -> is_path(Path);
is_path(Path) -> Path =:= [].

parse(Bytes) ->
    try
        {ok, weir_toml_parser:parse(without_mark(utf8(Bytes)))}
    catch
        throw:{line, _, _} = Fault -> {error, Fault}
    end.

utf8(Bytes) ->
    case unicode:characters_to_binary(Bytes) of
        Bytes -> Bytes;
        {_, Valid, _} -> weir_toml_fault:stop(1 + length(binary:matches(Valid, <<"\n">>)), "not UTF-8")
    end.

%% Some editors begin a file with a byte order mark.
without_mark(<<16#FEFF/utf8, Text/binary>>) -> Text;
without_mark(Text) -> Text.
