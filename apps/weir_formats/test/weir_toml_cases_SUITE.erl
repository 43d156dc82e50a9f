%% The cases of toml-test (https://github.com/toml-lang/toml-test), the test suite of the TOML project, for TOML 1.1.
%%
%% The archive has the licence of release 2.2.0 and the cases that its list `tests/files-toml-1.1.0' names, unchanged.
-module(weir_toml_cases_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("stdlib/include/assert.hrl").

suite() -> [{timetrap, {minutes, 5}}].

all() -> [valid, invalid].

init_per_suite(Config) ->
    Archive = filename:join(proplists:get_value(data_dir, Config), "toml-test-2.2.0.tar.gz"),
    {ok, Files} = erl_tar:extract(Archive, [memory, compressed]),
    [{files, maps:from_list(Files)} | Config].

end_per_suite(_Config) -> ok.

%% A valid document has the values of the JSON document beside it.
valid(Config) ->
    Documents = documents("valid/", Config),
    ?assert(length(Documents) > 200),
    [expect(Name, expected(Name, Config), weir_toml:decode(Text)) || {Name, Text} <- Documents].

%% Erlang has no infinite floats and no NaN: documents with them have a fault.
expect(Name, Expected, Decoded) ->
    case is_finite(Expected) of
        true -> ?assertEqual({Name, {ok, Expected}}, {Name, comparable(Decoded)});
        false -> ?assertMatch({_, {error, {line, _, <<"number that is not finite: ", _/binary>>}}}, {Name, Decoded})
    end.

%% An invalid document has a fault in a line that exists, and text that explains it.
invalid(Config) ->
    Documents = documents("invalid/", Config),
    ?assert(length(Documents) > 400),
    [
        begin
            {Name, {error, {line, Line, Why}}} = {Name, weir_toml:decode(Text)},
            Lines = length(binary:split(Text, <<"\n">>, [global])),
            ?assertEqual({Name, true}, {Name, Line >= 1 andalso Line =< Lines}),
            ?assertEqual({Name, true}, {Name, string:length(Why) > 5})
        end
     || {Name, Text} <- Documents
    ].

documents(Kind, Config) ->
    [
        Document
     || {Name, _} = Document <- lists:sort(maps:to_list(proplists:get_value(files, Config))),
        lists:prefix(Kind, Name),
        filename:extension(Name) =:= ".toml"
    ].

%% The JSON documents have a table with a type and a text for each value.
expected(Name, Config) ->
    {ok, Json} = weir_json:decode(maps:get(filename:rootname(Name) ++ ".json", proplists:get_value(files, Config))),
    untagged(Json).

untagged(#{<<"type">> := Type, <<"value">> := Text}) when is_binary(Type), is_binary(Text) -> value(Type, Text);
untagged(#{} = Table) -> maps:map(fun(_Key, Value) -> untagged(Value) end, Table);
untagged(Values) when is_list(Values) -> [untagged(Value) || Value <- Values].

value(<<"string">>, Text) -> Text;
value(<<"integer">>, Text) -> binary_to_integer(Text);
value(<<"bool">>, Text) -> binary_to_existing_atom(Text);
value(<<"float">>, Text) ->
    case weir_json:decode(Text) of
        {ok, Number} -> comparable(float(Number));
        {error, _} -> not_finite
    end;
value(Moment, Text) when
    Moment =:= <<"datetime">>; Moment =:= <<"datetime-local">>; Moment =:= <<"date-local">>; Moment =:= <<"time-local">>
->
    comparable({moment, Text}).

is_finite(not_finite) -> false;
is_finite(#{} = Table) -> lists:all(fun is_finite/1, maps:values(Table));
is_finite(Values) when is_list(Values) -> lists:all(fun is_finite/1, Values);
is_finite(_Value) -> true.

%% Moments with seconds, and without the zeros at the end of a fraction.
comparable({ok, Table}) -> {ok, comparable(Table)};
comparable({moment, Text}) ->
    With = re:replace(Text, "((?:T|^)[0-9]{2}:[0-9]{2})(?!:[0-9]|[0-9])", "\\1:00"),
    {moment, re:replace(With, "(\\.[0-9]*?)0+(?![0-9])", "\\1", [{return, binary}])};
comparable(#{} = Table) -> maps:map(fun(_Key, Value) -> comparable(Value) end, Table);
comparable(Values) when is_list(Values) -> [comparable(Value) || Value <- Values];
%% The cases do not distinguish -0.0 from 0.0.
comparable(Zero) when Zero == 0, is_float(Zero) -> 0.0;
comparable(Value) -> Value.
