%% The examples on weir_http: JSON, and a REST service from its clients' side.
-module(weir_example_http_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    json_is_echoed/1,
    what_is_no_json_is_refused/1,
    json_of_any_kind/1,
    a_note_lives/1,
    notes_that_are_wrong/1,
    the_faster_one_wins/1
]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        json_is_echoed,
        what_is_no_json_is_refused,
        json_of_any_kind,
        a_note_lives,
        notes_that_are_wrong,
        the_faster_one_wins
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    {ok, _} = application:ensure_all_started(inets),
    Config.

end_per_suite(_Config) -> ok.

with_server(Module, Fun) ->
    {ok, #{port := Port, stop := Stop}} = Module:start(#{port => 0, listen => [{ip, {127, 0, 0, 1}}]}),
    try
        Fun(Port)
    after
        ok = Stop()
    end.

request(Method, Port, Path) -> request(Method, Port, Path, [], none).

request(Method, Port, Path, Fields, Body) ->
    Url = "http://127.0.0.1:" ++ integer_to_list(Port) ++ Path,
    Request =
        case Body of
            none -> {Url, Fields};
            {Type, Text} -> {Url, Fields, Type, Text}
        end,
    {ok, {{_, Status, _}, Given, Answer}} = httpc:request(Method, Request, [], [{body_format, binary}]),
    {Status, maps:from_list(Given), Answer}.

json(Text) -> {"application/json", Text}.

json_is_echoed(_Config) ->
    with_server(weir_example_http_json, fun(Port) ->
        ?assertMatch({200, #{"content-type" := "application/json"}, <<"{\"a\":[1,true,null]}">>},
            request(post, Port, "/", [], json(<<" { \"a\" : [1, true, null] } ">>))),
        ?assertMatch({405, #{"allow" := "POST, OPTIONS"}, _}, request(get, Port, "/"))
    end).

what_is_no_json_is_refused(_Config) ->
    with_server(weir_example_http_json, fun(Port) ->
        [
            ?assertMatch({400, _, _}, request(post, Port, "/", [], json(Text)), Text)
         || Text <- [
                <<>>,
                <<"{">>,
                <<"[1,]">>,
                <<"{\"a\"}">>,
                <<"{a:1}">>,
                <<"01">>,
                <<"1.">>,
                <<".5">>,
                <<"+1">>,
                <<"nul">>,
                <<"\"\n\"">>,
                <<"\"\\x\"">>,
                <<"\"\\ud800\"">>,
                <<"\"", 255, "\"">>,
                <<"1 2">>,
                <<"1e999">>,
                <<"\"a">>,
                binary:copy(<<"[">>, 60000)
            ]
        ]
    end).

json_of_any_kind(_Config) ->
    [
        begin
            {ok, Same} = weir_example_json:decode(Text),
            ?assert(Value =:= Same, {Text, Same}),
            ?assertEqual({ok, Value}, weir_example_json:decode(iolist_to_binary(weir_example_json:encode(Value))))
        end
     || {Text, Value} <- [
            {<<"[]">>, []},
            {<<" {} ">>, #{}},
            {<<"-0.5e+3">>, -500.0},
            {<<"1E2">>, 100.0},
            {<<"[-12, 0 ,3.25]">>, [-12, 0, 3.25]},
            {<<"{\"a\":{\"b\":[]},\"c\":false}">>, #{<<"a">> => #{<<"b">> => []}, <<"c">> => false}},
            {<<"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"">>, <<"\"\\/\b\f\n\r\t", 233/utf8, 128512/utf8>>},
            {<<"\"", 233/utf8, "\"">>, <<233/utf8>>}
        ]
    ].

a_note_lives(_Config) ->
    with_server(weir_example_notes, fun(Port) ->
        {200, _, <<"[]", _/binary>>} = request(get, Port, "/notes"),
        {201, #{"location" := Location, "etag" := "\"1\""}, _} = request(
            post, Port, "/notes", [], json(<<"{\"text\":\"a\"}">>)
        ),
        {200, #{"etag" := "\"1\""}, Note} = request(get, Port, Location),
        {ok, #{<<"text">> := <<"a">>}} = weir_example_json:decode(Note),
        {304, _, <<>>} = request(get, Port, Location, [{"if-none-match", "\"1\""}], none),
        {200, #{"etag" := "\"2\""}, _} = request(
            put, Port, Location, [{"if-match", "\"1\""}], json(<<"{\"text\":\"b\"}">>)
        ),
        {412, _, _} = request(put, Port, Location, [{"if-match", "\"1\""}], json(<<"{\"text\":\"c\"}">>)),
        {412, _, _} = request(delete, Port, Location, [{"if-match", "\"1\""}], none),
        {412, _, _} = request(put, Port, Location, [{"if-none-match", "*"}], json(<<"{\"text\":\"c\"}">>)),
        {204, _, <<>>} = request(delete, Port, Location, [{"if-match", "\"2\""}], none),
        {404, _, _} = request(get, Port, Location),
        {404, _, _} = request(delete, Port, Location)
    end).

notes_that_are_wrong(_Config) ->
    with_server(weir_example_notes, fun(Port) ->
        {201, #{"location" := "/notes/a%20b"}, _} = request(
            post, Port, "/notes", [], json(<<"{\"id\":\"a b\",\"text\":\"\"}">>)
        ),
        {409, _, _} = request(post, Port, "/notes", [], json(<<"{\"id\":\"a b\",\"text\":\"\"}">>)),
        [
            {400, _, _} = request(post, Port, "/notes", [], json(Text))
         || Text <- [<<"{">>, <<"[]">>, <<"{\"text\":1}">>, <<"{\"id\":1,\"text\":\"\"}">>]
        ],
        {415, _, _} = request(post, Port, "/notes", [], {"text/plain", <<"{\"text\":\"\"}">>}),
        {405, #{"allow" := "GET, HEAD, PUT, DELETE, OPTIONS"}, _} = request(
            post, Port, "/notes/a%20b", [], json(<<"{}">>)
        ),
        {405, #{"allow" := "GET, HEAD, POST, OPTIONS"}, _} = request(delete, Port, "/notes")
    end).

%% Of many clients that change the version they have seen, one succeeds.
the_faster_one_wins(_Config) ->
    with_server(weir_example_notes, fun(Port) ->
        {201, #{"location" := Location}, _} = request(post, Port, "/notes", [], json(<<"{\"text\":\"a\"}">>)),
        Self = self(),
        [
            spawn_link(fun() ->
                {Status, _, _} = request(put, Port, Location, [{"if-match", "\"1\""}], json(<<"{\"text\":\"b\"}">>)),
                Self ! {status, Status}
            end)
         || _ <- lists:seq(1, 20)
        ],
        Statuses = [receive {status, Status} -> Status end || _ <- lists:seq(1, 20)],
        ?assertEqual([200], [Status || Status <- Statuses, Status =/= 412])
    end).
