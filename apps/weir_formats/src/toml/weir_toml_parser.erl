%% @private
%% @doc Parses the statements and values of a document. Recursion is as deep as values nest, at most 80.
-module(weir_toml_parser).

-export([parse/1]).

-import(weir_toml_fault, [stop/2, found/1, cut/1]).
-import(weir_toml_scanner, [blank/1, lines/2]).

%% The limit of values in values. Input must not decide how deep the code recurses.
-define(DEPTH, 80).

%% The table that the statements are in, the line and keys of its header, and all tables before it.
-record(section, {
    header :: none | {table | element, [binary(), ...], pos_integer()},
    depth :: non_neg_integer(),
    table :: weir_toml_table:table(),
    root :: weir_toml_table:table()
}).

%% @doc Parses a document that is valid UTF-8. Throws a fault (see {@link weir_toml_fault}).
-spec parse(binary()) -> weir_toml_table:table().
parse(Text) ->
    Root = weir_toml_table:new(defined),
    statements(Text, 1, #section{header = none, depth = 0, table = Root, root = Root}).

statements(Text, Line, #section{depth = Depth, table = Table} = Section) ->
    case lines(Text, Line) of
        {<<>>, _} ->
            close(Section);
        {<<"[[", Rest/binary>>, At} ->
            header(element, <<"]]">>, Rest, At, close(Section));
        {<<"[", Rest/binary>>, At} ->
            header(table, <<"]">>, Rest, At, close(Section));
        {Rest, At} ->
            {Changed, Behind, Last} = key_and_value(Rest, At, Depth, Table),
            {More, Next} = weir_toml_scanner:line_end(Behind, Last),
            statements(More, Next, Section#section{table = Changed})
    end.

close(#section{header = none, table = Table}) -> Table;
close(#section{header = {Header, Keys, Line}, table = Table, root = Root}) ->
    weir_toml_table:close(Header, Keys, Line, Table, Root).

header(Header, Closing, Text, Line, Root) ->
    {Keys, Rest} = weir_toml_scanner:key(blank(Text), Line),
    Size = byte_size(Closing),
    case Rest of
        <<Closing:Size/binary, Behind/binary>> ->
            bounded(length(Keys), Line),
            {Table, Depth} = weir_toml_table:open(Header, Keys, Line, Root),
            bounded(Depth, Line),
            {More, Next} = weir_toml_scanner:line_end(Behind, Line),
            statements(More, Next, #section{header = {Header, Keys, Line}, depth = Depth, table = Table, root = Root});
        _ ->
            stop(Line, ["expected ", Closing, " behind the name of a table, found ", found(Rest)])
    end.

bounded(Depth, _Line) when Depth =< ?DEPTH -> ok;
bounded(_Depth, Line) -> stop(Line, ["nested deeper than ", integer_to_list(?DEPTH)]).

key_and_value(Text, Line, Depth, Table) ->
    {Keys, Rest} = weir_toml_scanner:key(Text, Line),
    case Rest of
        <<$=, Behind/binary>> ->
            {Value, More, Next} = value(blank(Behind), Line, Depth + length(Keys)),
            {weir_toml_table:insert(Keys, Value, Line, Table), More, Next};
        _ ->
            stop(Line, ["expected = behind a key, found ", found(Rest)])
    end.

%% Depth is that of the value.
value(Text, Line, Depth) ->
    bounded(Depth, Line),
    case Text of
        <<$[, Rest/binary>> ->
            array(Rest, Line, Line, Depth, []);
        <<${, Rest/binary>> ->
            inline_table(Rest, Line, Line, Depth, weir_toml_table:new(inline));
        <<Quote, _/binary>> when Quote =:= $"; Quote =:= $' ->
            {String, Rest, Next} = weir_toml_string:string(Text, Line),
            {{value, String}, Rest, Next};
        _ ->
            scalar(weir_toml_scalar:split(Text), Line)
    end.

scalar({<<>>, Rest}, Line) ->
    stop(Line, ["expected a value, found ", found(Rest)]);
scalar({Text, Rest}, Line) ->
    case weir_toml_scalar:value(Text) of
        {ok, Value} -> {{value, Value}, Rest, Line};
        {error, Why} -> stop(Line, [Why, ": ", cut(Text)])
    end.

array(Text, First, Line, Depth, Elements) ->
    case lines(Text, Line) of
        {<<$], Rest/binary>>, Next} ->
            {{array, lists:reverse(Elements)}, Rest, Next};
        {<<>>, _} ->
            not_closed("array", "]", First);
        {Element, At} ->
            {Value, Behind, Last} = value(Element, At, Depth + 1),
            {Rest, Next} = comma(lines(Behind, Last), "array", $], First),
            array(Rest, First, Next, Depth, [{At, Value} | Elements])
    end.

inline_table(Text, First, Line, Depth, Table) ->
    case lines(Text, Line) of
        {<<$}, Rest/binary>>, Next} ->
            {Table, Rest, Next};
        {<<>>, _} ->
            not_closed("inline table", "}", First);
        {Key, At} ->
            {Changed, Behind, Last} = key_and_value(Key, At, Depth, Table),
            {Rest, Next} = comma(lines(Behind, Last), "inline table", $}, First),
            inline_table(Rest, First, Next, Depth, Changed)
    end.

%% Skips the comma behind an element. The last element needs none.
comma({<<$,, Rest/binary>>, Line}, _What, _Closing, _First) -> {Rest, Line};
comma({<<Closing, _/binary>> = Rest, Line}, _What, Closing, _First) -> {Rest, Line};
comma({<<>>, _Line}, What, Closing, First) -> not_closed(What, [Closing], First);
comma({Rest, Line}, What, Closing, First) ->
    Begun = [What, " that begins in line ", integer_to_list(First)],
    stop(Line, ["expected , or ", Closing, " in the ", Begun, ", found ", found(Rest)]).

-spec not_closed(string(), iodata(), pos_integer()) -> no_return().
not_closed(What, Closing, First) -> stop(First, ["the ", What, " that begins in this line has no closing ", Closing]).
