%% Properties of the reader of TOML: it reads what was written, no input crashes it, and its work grows as the document
%% does.
-module(weir_toml_properties_tests).

-include_lib("proper/include/proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-export([table/1]).

%% What is written is read ----------------------------------------------------------------

what_is_written_is_read_test_() -> {timeout, 120, fun() -> weir_test_property:shrink(prop_written(), 200) end}.

prop_written() ->
    ?FORALL(
        {Table, Seed},
        {resize(4, table(8)), range(0, 1000)},
        weir_test_property:holds(fun() ->
            Text = iolist_to_binary(section([], Table, Seed)),
            weir_toml:decode(Text) =:= {ok, Table} orelse {Text, weir_toml:decode(Text)}
        end)
    ).

table(Size) -> ?LET(Entries, list({key(), value(Size div 2)}), maps:from_list(Entries)).

key() -> oneof([text(), oneof([<<"a">>, <<"b">>, <<"1">>, <<"a-b">>, <<>>, <<"a.b">>])]).

value(Size) when Size < 2 ->
    oneof([boolean(), range(-(1 bsl 63), 1 bsl 63 - 1), float(), text(), moment()]);
value(Size) ->
    frequency([
        {3, value(1)},
        {1, ?LAZY(list(value(Size div 3)))},
        {2, ?LAZY(table(Size div 3))},
        {1, ?LAZY(list(table(Size div 3)))}
    ]).

text() ->
    Character = oneof([range(0, 127), range(0, 16#D7FF), range(16#E000, 16#10FFFF)]),
    ?LET(Characters, list(Character), unicode:characters_to_binary(Characters)).

moment() ->
    {moment, oneof([<<"1979-05-27">>, <<"07:32">>, <<"1979-05-27T07:32:00.5Z">>, <<"0000-02-29T23:59:60+23:59">>])}.

%% Writes a table below its header: first what needs no header of its own. The seed chooses among the notations.
section(Path, Table, Seed) ->
    {Headers, Here} = lists:partition(
        fun({Key, Value}) -> notation(Path ++ [Key], Value, Seed) =:= header end, maps:to_list(Table)
    ),
    [
        [entry([Key], Path ++ [Key], Value, Seed) || {Key, Value} <- Here],
        [below_header(Path ++ [Key], Value, Seed) || {Key, Value} <- Headers]
    ].

notation(Path, Value, Seed) ->
    Choice = erlang:phash2({Path, Seed}, 3),
    case Value of
        #{} when Choice =:= 0 -> header;
        #{} when Choice =:= 1, map_size(Value) > 0 -> dotted;
        [_ | _] when Choice > 0 ->
            case lists:all(fun is_map/1, Value) of true -> header; false -> inline end;
        _ -> inline
    end.

below_header(Path, #{} = Table, Seed) -> ["[", dotted(Path, Seed), "]\n", section(Path, Table, Seed)];
below_header(Path, Tables, Seed) ->
    [["[[", dotted(Path, Seed), "]] # element\n", section(Path, Table, Seed)] || Table <- Tables].

%% Keys of a dotted table may have inline values only: a header would leave the section.
entry(Keys, Path, Value, Seed) ->
    case notation(Path, Value, Seed) of
        dotted -> [entry(Keys ++ [Key], Path ++ [Key], Inner, Seed) || {Key, Inner} <- maps:to_list(Value)];
        _ -> [dotted(Keys, Seed), " = ", inline(Value, Seed), "\r\n"]
    end.

dotted(Keys, Seed) -> lists:join(" . ", [quoted(Key, Seed) || Key <- Keys]).

quoted(Key, Seed) ->
    case re:run(Key, "^[A-Za-z0-9_-]+$", [dollar_endonly, {capture, none}]) of
        match when Seed rem 2 =:= 0 -> Key;
        _ -> string(Key, Seed)
    end.

inline({moment, Text}, _Seed) -> Text;
inline(Boolean, _Seed) when is_boolean(Boolean) -> atom_to_binary(Boolean);
inline(Integer, Seed) when is_integer(Integer), Integer >= 0, Seed rem 3 =:= 0 ->
    ["0x", integer_to_binary(Integer, 16)];
inline(Integer, _Seed) when is_integer(Integer) -> integer_to_binary(Integer);
inline(Float, _Seed) when is_float(Float) -> float_to_binary(Float, [{scientific, 20}]);
inline(Text, Seed) when is_binary(Text), Seed rem 5 =:= 0 -> ["\"\"", string(Text, 1), "\"\""];
inline(Text, Seed) when is_binary(Text) -> string(Text, Seed);
inline(Values, Seed) when is_list(Values) -> ["[\n", [[inline(Value, Seed), " ,\n"] || Value <- Values], "# end\n]"];
inline(Table, Seed) ->
    Entries = [[string(Key, Seed), "=", inline(Value, Seed)] || {Key, Value} <- maps:to_list(Table)],
    ["{ ", lists:join(",\n\t", Entries), " }"].

string(Text, Seed) ->
    case Seed rem 2 =:= 0 andalso re:run(Text, "^[^'[:cntrl:]]*$", [dollar_endonly, unicode, {capture, none}]) of
        match -> ["'", Text, "'"];
        _ -> ["\"", [escaped(Character) || <<Character/utf8>> <= Text], "\""]
    end.

escaped(Character) when Character < $\s; Character =:= 16#7F; Character =:= $"; Character =:= $\\ ->
    io_lib:format("\\u~4.16.0b", [Character]);
escaped(Character) ->
    <<Character/utf8>>.

%% No input crashes it --------------------------------------------------------------------

any_input_test_() -> {timeout, 60, fun() -> weir_test_property:shrink(prop_any_input(), 10000) end}.

prop_any_input() ->
    ?FORALL(
        Pieces,
        list(oneof([piece(), piece(), piece(), binary()])),
        weir_test_property:holds(fun() -> is_read_or_refused(iolist_to_binary(Pieces)) end)
    ).

changed_document_test_() -> {timeout, 120, fun() -> weir_test_property:shrink(prop_changed_document(), 300) end}.

%% A valid document in which a few bytes are replaced.
prop_changed_document() ->
    ?FORALL(
        {Table, Seed, Changes},
        {resize(3, table(8)), range(0, 1000), list(change())},
        weir_test_property:holds(fun() ->
            is_read_or_refused(lists:foldl(fun change/2, iolist_to_binary(section([], Table, Seed)), Changes))
        end)
    ).

change() -> {non_neg_integer(), range(0, 3), oneof([<<>>, piece(), binary()])}.

change({Place, Length, Piece}, Text) ->
    Start = erlang:phash2(Place, byte_size(Text) + 1),
    End = min(Start + Length, byte_size(Text)),
    <<Before:Start/binary, _:(End - Start)/binary, Behind/binary>> = Text,
    <<Before/binary, Piece/binary, Behind/binary>>.

is_read_or_refused(Text) ->
    is_answer(weir_toml:decode(Text), Text) andalso is_line(weir_toml:line(Text, [<<"a">>, 1, <<"b">>]), Text).

piece() ->
    oneof([
        <<"\n">>, <<"\r\n">>, <<" ">>, <<"# comment">>, <<"[">>, <<"]">>, <<"[a]\n">>, <<"[a.b]\n">>, <<"[[a]]\n">>,
        <<"[[a.b]]\n">>, <<"a = 1\n">>, <<"b = 2\n">>, <<"a.b = 3\n">>, <<"b = {a = 1, b.a = 2}\n">>,
        <<"a = [1, [2], ">>, <<"a = {">>, <<"}">>, <<",">>, <<"=">>, <<".">>, <<"\"">>, <<"\"\"\"">>, <<"'">>,
        <<"'''">>, <<"\\">>, <<"\\u00">>, <<"e9">>, <<"0x">>, <<"_">>, <<"-">>, <<"1e5">>, <<"1979-05-27">>,
        <<" 07:32:00">>, <<"inf">>, <<"true">>, <<16#FEFF/utf8>>, <<"é"/utf8>>
    ]).

is_answer({ok, Table}, _Text) -> is_map(Table);
is_answer({error, {line, Line, Why}}, Text) -> is_line(Line, Text) andalso is_list(unicode:characters_to_list(Why)).

is_line(Line, Text) -> Line >= 1 andalso Line =< length(binary:split(Text, <<"\n">>, [global])).

%% The work grows as the document ---------------------------------------------------------

%% Counts reductions: they do not depend on how busy the machine is. Eight times the text may take 24 times the work;
%% quadratic work would be 64 times as much.
linear_test_() ->
    [
        {timeout, 60, ?_assertMatch({Few, Many} when Many < 24 * Few, {work(Make(2000)), work(Make(16000))})}
     || Make <- [
            fun(Count) -> binary:copy(<<"[[a]]\n">>, Count) end,
            fun(Count) -> binary:copy(<<"[[a.b.c]]\n[a.b.c.d]\n">>, Count) end,
            fun(Count) -> numbered(Count, fun(Number) -> [Number, " = 1\n"] end) end,
            fun(Count) -> numbered(Count, fun(Number) -> ["[a.", Number, "]\n"] end) end,
            fun(Count) -> numbered(Count, fun(Number) -> ["a.b.", Number, " = 1\n"] end) end,
            fun(Count) -> ["a = [", binary:copy(<<"1, ">>, Count), "]"] end,
            fun(Count) -> ["a = {", numbered(Count, fun(Number) -> [Number, " = 1, "] end), "}"] end,
            fun(Count) -> ["a = \"", binary:copy(<<"b\\n">>, Count), "\""] end,
            fun(Count) -> ["a = \"\"\"", binary:copy(<<"\"\"b\n\\\n">>, Count), "\"\"\""] end,
            fun(Count) -> ["a = 1", binary:copy(<<"_0">>, Count), ".0"] end,
            fun(Count) -> ["a = ", binary:copy(<<"b">>, Count)] end,
            fun(Count) -> ["a = ", binary:copy(<<"[">>, Count)] end,
            fun(Count) -> ["a", binary:copy(<<".a">>, Count)] end
        ]
    ].

numbered(Count, Make) -> [Make(integer_to_binary(Number)) || Number <- lists:seq(1, Count)].

work(Document) ->
    Text = iolist_to_binary(Document),
    Test = self(),
    _ = spawn_link(fun() ->
        {reductions, Before} = process_info(self(), reductions),
        _ = weir_toml:decode(Text),
        {reductions, After} = process_info(self(), reductions),
        Test ! {work, After - Before}
    end),
    receive
        {work, Work} -> Work
    end.
