%% What a node shows over HTTP, and to whom.
-module(weir_scope_web_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    no_token/1,
    another_token/1,
    a_name_of_somebody_else/1,
    a_name_of_ours/1,
    without_a_token_where_that_is_said/1,
    wrong_options/1
]).
-export([
    the_token_is_in_no_report/1,
    metrics/1,
    every_tab_as_json/1,
    history_as_json/1,
    what_is_not_there/1,
    a_stream_has_a_row_a_second/1,
    streams_are_limited/1
]).
-export([by_configuration/1, a_sampler_that_ends/1, a_node_that_ends_and_comes_back/1, a_recording/1]).

-import(weir_scope_served, [start/1, start/2, replay/1, stop/1, recording/1, ask/2, bearer/1, host/0]).
-import(weir_test_wait, [wait_until/1]).

-include("served_suite.hrl").

-define(TOKEN, (weir_scope_served:token())).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        no_token,
        another_token,
        a_name_of_somebody_else,
        a_name_of_ours,
        without_a_token_where_that_is_said,
        wrong_options,
        the_token_is_in_no_report,
        metrics,
        every_tab_as_json,
        history_as_json,
        what_is_not_there,
        a_stream_has_a_row_a_second,
        streams_are_limited,
        by_configuration,
        a_sampler_that_ends,
        a_node_that_ends_and_comes_back,
        a_recording
    ].

init_per_suite(Config) -> weir_scope_served:with([weir_http, weir_scope], Config).

data() -> ["/metrics", "/about", "/history/second", "/history/minute", "/look/overview", "/look/processes", "/stream"].

no_token(_Config) ->
    Pid = start(#{}),
    [?assertMatch({Path, {401, _, _}}, {Path, ask(Path, [host()])}) || Path <- data()],
    ?assertMatch({200, _, <<"<!DOCTYPE html>", _/binary>>}, ask("/", [host()])),
    stop(Pid).

another_token(_Config) ->
    Pid = start(#{}),
    Wrong = ["", "another token, as long as it", binary:part(?TOKEN, 0, 10), [?TOKEN, "x"], string:uppercase(?TOKEN)],
    [?assertMatch({Token, {401, _, _}}, {Token, ask("/metrics", [host(), bearer(Token)])}) || Token <- Wrong],
    ?assertMatch({401, _, _}, ask("/metrics", [host(), {"authorization", ["Basic ", base64:encode(?TOKEN)]}])),
    ?assertMatch({401, _, _}, ask(["/metrics?token=", base64:encode(?TOKEN)], [host()])),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    stop(Pid).

%% A page of another site whose name resolves to this machine has no access, with or without a token.
a_name_of_somebody_else(_Config) ->
    Pid = start(#{token => none}),
    [
        ?assertMatch({Host, {421, _, _}}, {Host, ask(Path, [{"host", Host}])})
     || Path <- ["/", "/metrics", "/look/overview"],
        Host <- [
            "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "0x7f.1", "[evil]"
        ]
    ],
    stop(Pid).

a_name_of_ours(_Config) ->
    Pid = start(#{hosts => [<<"scope.Example">>]}),
    [
        ?assertMatch({Host, {200, _, _}}, {Host, ask("/metrics", [{"host", Host}, bearer(?TOKEN)])})
     || Host <- ["localhost", "LOCALHOST:99", "127.0.0.1:1234", "[::1]:99", "192.0.2.1", "Scope.example:80"]
    ],
    stop(Pid).

without_a_token_where_that_is_said(_Config) ->
    Pid = start(#{token => none}),
    ?assertMatch({200, _, _}, ask("/metrics", [host()])),
    stop(Pid).

wrong_options(_Config) ->
    [
        ?assertMatch(
            {Key, {error, {bad_option, Key, _, Allowed}}} when is_list(Allowed), {Key, weir_scope_web:check(Options)}
        )
     || {Key, Options} <- [
            {token, #{}},
            {token, #{token => <<"too short">>}},
            {token, #{token => "a string that is long"}},
            {port, #{token => none, port => 65536}},
            {ip, #{token => none, ip => "127.0.0.1"}},
            {hosts, #{token => none, hosts => "all"}},
            {max_streams, #{token => none, max_streams => 0}},
            {tls, #{token => none, tls => []}},
            {http, on}
        ]
    ],
    %% Errors are logged. A token may also be in options that are not a map, or under an unknown key.
    [
        ?assertMatch(
            {Options, nomatch}, {Options, string:find(io_lib:format("~p", [weir_scope_web:check(Options)]), "secret")}
        )
     || Options <- [
            #{token => <<"my secret">>},
            [{token, <<"my secret of many characters">>}],
            #{token => none, tokn => <<"my secret of many characters">>}
        ]
    ].

%% Child specifications and states, which supervisors and crashes would report, do not contain the token.
the_token_is_in_no_report(_Config) ->
    Pid = start(#{}),
    Children = [supervisor:get_childspec(Pid, Id) || {Id, _, _, _} <- supervisor:which_children(Pid)],
    States = [sys:get_state(Pid), sys:get_state(weir_scope_feed)],
    [
        ?assertEqual(nomatch, binary:match(iolist_to_binary(io_lib:format("~p", [Told])), ?TOKEN))
     || Told <- [Children | States]
    ],
    stop(Pid).

metrics(_Config) ->
    Pid = start(#{}),
    {200, Head, Text} = ask("/metrics", [host(), bearer(?TOKEN)]),
    ?assertNotEqual(nomatch, string:find(Head, "application/openmetrics-text; version=1.0.0")),
    ?assertNotEqual(nomatch, string:find(Text, "beam_reductions_total ")),
    %% The listener of the page itself has metrics too.
    ?assertNotEqual(nomatch, string:find(Text, "weir_http_requests_total{listener=\"weir_scope_http\"} ")),
    ?assertEqual(<<"# EOF\n">>, binary:part(Text, byte_size(Text), -6)),
    stop(Pid).

every_tab_as_json(_Config) ->
    Pid = start(#{}),
    {200, _, About} = ask("/about", [host(), bearer(?TOKEN)]),
    {ok, #{<<"node">> := Node, <<"tabs">> := Tabs}} = weir_json:decode(About),
    ?assertEqual(atom_to_binary(node()), Node),
    [
        begin
            {200, _, Body} = ask(["/look/", Tab, "?sort=", Sort], [host(), bearer(?TOKEN)]),
            ?assertMatch({Tab, {ok, #{<<"at">> := _, <<"blocks">> := [_ | _]}}}, {Tab, weir_json:decode(Body)})
        end
     || #{<<"name">> := Tab, <<"sorts">> := Sorts} <- Tabs, Sort <- lists:sublist(Sorts, 2)
    ],
    stop(Pid).

history_as_json(_Config) ->
    Pid = start(#{}),
    {200, _, Body} = ask("/history/second", [host(), bearer(?TOKEN)]),
    {ok, [#{<<"columns">> := Columns, <<"rows">> := [[At | Values] | _]} | _]} = weir_json:decode(Body),
    ?assertEqual(length(Columns), length(Values)),
    ?assert(lists:member(<<"scheduler.normal.1.utilisation">>, Columns)),
    ?assert(abs(erlang:system_time(millisecond) - At) < 700_000),
    {200, _, Later} = ask(["/history/second?after=", integer_to_list(At)], [host(), bearer(?TOKEN)]),
    {ok, Rest} = weir_json:decode(Later),
    ?assertEqual([], [Same || #{<<"rows">> := Rows} <- Rest, [Same | _] <- Rows, Same =< At]),
    stop(Pid).

what_is_not_there(_Config) ->
    Pid = start(#{}),
    [
        ?assertMatch({Path, {Status, _, _}}, {Path, ask(Path, [host(), bearer(?TOKEN)])})
     || {Status, Path} <- [
            {404, "/look/nothing"},
            {404, "/look/overview?sort=nothing"},
            {400, "/look/overview?at=now"},
            {404, "/history/hour"},
            {400, "/history/second?after=x"},
            {404, "/page/nothing.js"},
            {404, "/page/..%2f..%2fsrc%2fweir_scope.erl"}
        ]
    ],
    stop(Pid).

a_stream_has_a_row_a_second(_Config) ->
    Pid = start(#{}),
    Socket = stream(),
    [First, Second] = lists:sublist(rows(Socket, <<>>, 2), 2),
    {ok, History} = weir_json:decode(element(3, ask("/history/second", [host(), bearer(?TOKEN)]))),
    %% A reactor may have come and gone, so the same columns may appear twice.
    [Columns] = lists:usort([
        Columns
     || #{<<"set">> := Set, <<"columns">> := Columns} <- History, Set =:= maps:get(<<"set">>, First)
    ]),
    [At | Values] = maps:get(<<"row">>, First),
    [Then | _] = maps:get(<<"row">>, Second),
    ?assertEqual(length(Columns), length(Values)),
    ?assert(Then > At),
    ok = gen_tcp:close(Socket),
    stop(Pid).

stream() ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, weir_scope_web:port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [
        "GET /stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ", ?TOKEN, "\r\n\r\n"
    ]),
    {ok, <<"HTTP/1.1 200", _/binary>>} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    Socket.

rows(Socket, Bytes, Count) ->
    case re:run(Bytes, "event: row\ndata: ([^\n]+)\n", [global, {capture, all_but_first, binary}]) of
        {match, Found} when length(Found) >= Count -> [element(2, weir_json:decode(Row)) || [Row] <- Found];
        _ ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            rows(Socket, <<Bytes/binary, More/binary>>, Count)
    end.

streams_are_limited(_Config) ->
    Pid = start(#{max_streams => 2}),
    [One, Two] = [stream(), stream()],
    wait_until(fun() -> begins("HTTP/1.1 503") end),
    ok = gen_tcp:close(One),
    wait_until(fun() -> {ok, Some} = weir_scope_feed_stream(), weir_group:size(Some) < 2 end),
    Three = stream(),
    [ok = gen_tcp:close(Socket) || Socket <- [Two, Three]],
    stop(Pid).

%% An accepted stream does not end, so this only reads the first bytes.
begins(Status) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, weir_scope_web:port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [
        "GET /stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ", ?TOKEN, "\r\n\r\n"
    ]),
    {ok, First} = gen_tcp:recv(Socket, length(Status), weir_test_wait:patience()),
    ok = gen_tcp:close(Socket),
    First =:= list_to_binary(Status).

weir_scope_feed_stream() -> ?waitMatch({ok, _}, weir_scope_feed:stream()).

%% The configuration of a release starts the page.
by_configuration(_Config) ->
    ok = application:stop(weir_scope),
    ok = application:set_env(weir_scope, http, #{token => <<"short">>}),
    ?assertMatch({error, {{bad_option, token, hidden, _}, _}}, application:start(weir_scope)),
    ok = application:set_env(weir_scope, http, #{token => ?TOKEN}),
    ok = application:start(weir_scope),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    ok = application:stop(weir_scope),
    ok = application:unset_env(weir_scope, http),
    ok = application:start(weir_scope).

%% The feed notices it also if no page is open.
a_sampler_that_ends(_Config) ->
    Pid = start(#{}),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    Sampler = whereis(weir_scope_sampler),
    exit(Sampler, kill),
    wait_until(fun() -> is_pid(whereis(weir_scope_sampler)) andalso whereis(weir_scope_sampler) =/= Sampler end),
    wait_until(fun() -> element(1, ask("/metrics", [host(), bearer(?TOKEN)])) =:= 200 end),
    ?assertMatch({200, _, _}, ask("/look/overview", [host(), bearer(?TOKEN)])),
    stop(Pid).

a_node_that_ends_and_comes_back(_Config) ->
    Started = weir_scope_distribution:start("weir_scope_web"),
    Name = peer:random_name(),
    {Peer, Node} = peer(Name),
    Pid = start(Node, #{}),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    Socket = stream(),
    _ = rows(Socket, <<>>, 1),
    ok = peer:stop(Peer),
    wait_until(fun() -> element(1, ask("/look/overview", [host(), bearer(?TOKEN)])) =:= 503 end),
    {Again, Node} = peer(Name),
    wait_until(fun() -> element(1, ask("/metrics", [host(), bearer(?TOKEN)])) =:= 200 end),
    [_ | _] = rows(Socket, <<>>, 1),
    ok = gen_tcp:close(Socket),
    stop(Pid),
    ok = peer:stop(Again),
    ok = weir_scope_distribution:stop(Started).

%% Pages get from the file what was recorded.
a_recording(Config) ->
    File = recording(Config),
    {ok, Recording} = weir_scope_recording:read(File),
    ?assertEqual(atom_to_binary(node()), weir_scope_recording:node(Recording)),
    ?assertEqual(
        [{atom_to_binary(Tab), [atom_to_binary(Sort) || Sort <- Sorts]} || {Tab, Sorts} <- weir_scope_tabs:all()],
        weir_scope_recording:tabs(Recording)
    ),
    Pid = replay(File),
    {200, _, About} = ask("/about", [host(), bearer(?TOKEN)]),
    ?assertMatch({ok, #{<<"recorded">> := true}}, weir_json:decode(About)),
    {200, _, History} = ask("/history/second", [host(), bearer(?TOKEN)]),
    {ok, Series} = weir_json:decode(History),
    ?assertEqual(2, lists:sum([length(Rows) || #{<<"rows">> := Rows} <- Series])),
    [
        begin
            {200, _, Look} = ask(["/look/", Tab], [host(), bearer(?TOKEN)]),
            ?assertMatch({Tab, {ok, #{<<"blocks">> := [_ | _]}}}, {Tab, weir_json:decode(Look)})
        end
     || {Tab, _} <- weir_scope_recording:tabs(Recording)
    ],
    [?assertMatch({503, _, _}, ask(Path, [host(), bearer(?TOKEN)])) || Path <- ["/metrics", "/stream"]],
    stop(Pid).

peer(Name) ->
    weir_scope_distribution:node([], #{name => Name}).
