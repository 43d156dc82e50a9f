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
%% A string, a number, a boolean, a date or time as written in the file (`moment'), an array, or a table. Integers have
%% 64 bits.

-type path() :: [Key :: binary() | Index :: pos_integer()].
%% The way to a value: keys of tables, and indexes of arrays, which start at 1.

-type fault() :: {line, pos_integer(), Text :: binary()} | {too_large, Most :: pos_integer()}.
%% The line and what is wrong there; or the document has more than `Most' bytes.

-define(MOST, 1048576).

%% @doc Parses a document of at most 1 MiB that nests at most 80 deep.
-spec decode(binary()) -> {ok, table()} | {error, fault()}.
decode(Bytes) when byte_size(Bytes) > ?MOST -> {error, {too_large, ?MOST}};
decode(Bytes) -> weir_toml_nif:decode(Bytes).

%% @doc Returns the line of a value in a document that {@link decode/1} accepts. If there is no such value, returns the
%% line of the last step of the path that exists: for a missing key, the line where its table begins.
-spec line(binary(), path()) -> pos_integer().
line(Bytes, Path) when byte_size(Bytes) =< ?MOST -> weir_toml_nif:line(Bytes, Path).
