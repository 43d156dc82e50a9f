%% @doc Reasons why a case may be worse on Weir: `priv/differences.terms' names for each such case the row of
%% `docs/differences.md' that explains it, by the row's first cell. A missing row is an error, so that the two files
%% stay consistent.
-module(weir_conformance_reasons).

-export([read/2]).
-export([rows/1]).

-export_type([reasons/0]).

-type reasons() :: #{{Suite :: module(), Case :: atom()} => Row :: string()}.

%% @doc Reads the reasons and checks them against the rows of the document.
-spec read(Terms :: file:filename(), Document :: file:filename()) -> reasons().
read(Terms, Document) ->
    {ok, Entries} = file:consult(Terms),
    {ok, Text} = file:read_file(Document),
    Rows = rows(Text),
    case [Entry || Entry = {_, _, Row} <- Entries, not lists:member(Row, Rows)] of
        [] -> maps:from_list([{{Suite, Case}, Row} || {Suite, Case, Row} <- Entries]);
        Unknown -> error({no_such_row, Document, Unknown})
    end.

%% @doc Returns the first cells of all table rows in a Markdown document.
-spec rows(binary()) -> [string()].
rows(Text) ->
    Lines = string:split(unicode:characters_to_list(Text), "\n", all),
    [string:trim(hd(string:split(Cells, "|"))) || [$| | Cells] <- Lines].
