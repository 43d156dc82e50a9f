%% Recordings as files, and comparisons of two.
-module(weir_scope_recording_tests).

-include_lib("eunit/include/eunit.hrl").

head() ->
    <<"{\"format\":\"weir_scope\",\"version\":1,\"node\":\"a@b\",\"began\":1000,"
        "\"tabs\":[{\"name\":\"overview\",\"sorts\":[\"number\"]}]}">>.

recording(Lines) ->
    File = file(),
    ok = file:write_file(File, [[Line, $\n] || Line <- [head() | Lines]]),
    Read = weir_scope_recording:read(File),
    ok = file:delete(File),
    Read.

file() ->
    filename:join(
        "/tmp", "weir_scope_recording_" ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive]))
    ).

second(At, Values) -> weir_json:compact(#{at => At, values => Values}).
columns(Names) -> weir_json:compact(#{columns => Names}).
look(At, Text) -> weir_json:compact(#{at => At, tab => overview, blocks => [#{text => [Text]}]}).

seconds_test() ->
    {ok, Recording} = recording([
        columns([<<"vm.a">>]),
        second(1000, [1]),
        second(2000, [2]),
        columns([<<"vm.a">>, <<"vm.b">>]),
        second(3000, [3, 30])
    ]),
    ?assertEqual(<<"a@b">>, weir_scope_recording:node(Recording)),
    ?assertEqual([{<<"overview">>, [<<"number">>]}], weir_scope_recording:tabs(Recording)),
    ?assertEqual({1000, 3000}, weir_scope_recording:span(Recording)),
    ?assertEqual(
        [
            #{columns => [<<"vm.a">>], rows => [{2000, [2]}]},
            #{columns => [<<"vm.a">>, <<"vm.b">>], rows => [{3000, [3, 30]}]}
        ],
        weir_scope_recording:series(Recording, 1000)
    ).

compressed_test() ->
    Lines = [[Line, $\n] || Line <- [head(), columns([<<"vm.a">>]), second(1000, [1]), second(2000, [2])]],
    File = file(),
    ok = file:write_file(File, zlib:gzip(Lines)),
    {ok, Recording} = weir_scope_recording:read(File),
    ok = file:delete(File),
    ?assertEqual(
        [#{columns => [<<"vm.a">>], rows => [{1000, [1]}, {2000, [2]}]}], weir_scope_recording:series(Recording, 0)
    ).

%% The record of a tab at a given time.
looks_test() ->
    {ok, Recording} = recording([look(1000, <<"first">>), look(5000, <<"second">>)]),
    [
        ?assertMatch(
            {At, {ok, Then, [#{<<"text">> := [Text]}]}}, {At, weir_scope_recording:look(Recording, <<"overview">>, At)}
        )
     || {At, Then, Text} <- [
            {0, 1000, <<"first">>},
            {1000, 1000, <<"first">>},
            {4999, 1000, <<"first">>},
            {5000, 5000, <<"second">>},
            {9000, 5000, <<"second">>}
        ]
    ],
    ?assertEqual({error, {not_recorded, <<"polls">>}}, weir_scope_recording:look(Recording, <<"polls">>, 1000)),
    ?assertEqual(none, weir_scope_recording:span(Recording)).

%% An incomplete last line, as of a command that was killed.
cut_off_test() ->
    File = file(),
    ok = file:write_file(File, [head(), "\n", columns([<<"vm.a">>]), "\n", second(1000, [1]), "\n{\"at\":2000,\"val"]),
    {ok, Recording} = weir_scope_recording:read(File),
    ok = file:delete(File),
    ?assertEqual({1000, 1000}, weir_scope_recording:span(Recording)).

what_is_none_test() ->
    [
        ?assertMatch({Lines, {error, {no_recording, _}}}, {Lines, recording(Lines)})
     || Lines <- [
            ["{"],
            ["[1]"],
            [second(1000, [1])],
            [columns([<<"vm.a">>]), second(1000, [1, 2])],
            [columns([<<"vm.a">>]), "{}", second(1000, [1])]
        ]
    ],
    File = file(),
    [
        begin
            ok = file:write_file(File, Bytes),
            ?assertMatch({Bytes, {error, {no_recording, File}}}, {Bytes, weir_scope_recording:read(File)})
        end
     || Bytes <- [
            <<>>,
            <<"\n">>,
            <<"{}\n">>,
            <<"a,b\n1,2\n">>,
            head(),
            <<"{\"format\":\"weir_scope\",\"version\":2,\"node\":\"a@b\",\"tabs\":[]}\n">>
        ]
    ],
    ok = file:delete(File),
    ?assertEqual({error, {file, enoent}}, weir_scope_recording:read(File)).

medians_test() ->
    {ok, Before} = recording([
        columns([<<"vm.a">>, <<"vm.gone">>, <<"memory.c">>]),
        second(1, [1, 5, 0]),
        second(2, [9, 5, 0]),
        second(3, [2, 5, 0])
    ]),
    {ok, Later} = recording([
        columns([<<"vm.a">>, <<"vm.come">>, <<"memory.c">>]), second(1, [3, 7, 0]), second(2, [5, 7, 0])
    ]),
    Differences = weir_scope_compare:medians(Before, Later),
    ?assertEqual(
        [
            #{section => <<"memory">>, name => <<"memory.c">>, before => 0, later => 0.0, change => 0.0},
            #{section => <<"vm">>, name => <<"vm.a">>, before => 2, later => 4.0, change => 1.0},
            #{section => <<"vm">>, name => <<"vm.come">>, before => none, later => 7.0, change => none},
            #{section => <<"vm">>, name => <<"vm.gone">>, before => 5, later => none, change => none}
        ],
        Differences
    ),
    Text = unicode:characters_to_list(weir_scope_compare:text(Differences, {"one", "two"}, 0.05)),
    ?assertMatch({match, _}, re:run(Text, "vm\\.a +2 +4 +\\+100\\.0%")),
    ?assertMatch({match, _}, re:run(Text, "vm\\.gone +5 +- *\n")),
    ?assertMatch({match, _}, re:run(Text, "3 of 4 medians differ by 5 %")),
    ?assertEqual(nomatch, re:run(Text, "memory\\.c")).

%% The blocks of a tab are the same after a way through a file.
blocks_test() ->
    Blocks = [
        {text, ["lines ", ["of ", <<"text">>]]},
        {table, [{pid, "process", left}, {reductions, "reds/s", right}], [
            [{self(), "<0.1.0>"}, {1.5, "2"}], [{none, "-"}, {0, "0"}]
        ]}
    ],
    {ok, Read} = weir_json:decode(iolist_to_binary(weir_json:compact(weir_scope_tabs:blocks(Blocks)))),
    Pid = list_to_binary(pid_to_list(self())),
    ?assertEqual(
        [
            {text, [<<"lines ">>, <<"of text">>]},
            {table, [{other, "process", left}, {reductions, "reds/s", right}], [
                [{Pid, <<"<0.1.0>">>}, {1.5, <<"2">>}], [{<<"none">>, <<"-">>}, {0, <<"0">>}]
            ]}
        ],
        weir_scope_tabs:from_json(Read)
    ).
