%% @doc Configuration files in TOML 1.1, with the lines of what they say.
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
%% A string, a number, a boolean, a date or time as it is written, an array, or a table. Integers have 64 bits.

-type path() :: [Key :: binary() | Index :: pos_integer()].
%% Where a value is: keys of tables, and positions in arrays, from 1 on.

-type fault() :: {line, pos_integer(), Text :: binary()} | {too_large, Most :: pos_integer()}.
%% What is wrong, and in which line; or there are more bytes than may be.

-define(MOST, 1048576).

%% @doc Reads a document of at most 1 MiB. It may nest to a depth of 80.
-spec decode(binary()) -> {ok, table()} | {error, fault()}.
decode(Bytes) when byte_size(Bytes) > ?MOST -> {error, {too_large, ?MOST}};
decode(Bytes) -> weir_toml_nif:decode(Bytes).

%% @doc The line of a value in a document that {@link decode/1} has taken. If there is no such value: the line of the last step that
%% is there, which for a key that is missing is where its table begins.
-spec line(binary(), path()) -> pos_integer().
line(Bytes, Path) when byte_size(Bytes) =< ?MOST -> weir_toml_nif:line(Bytes, Path).
