%% Responses in gzip: which are compressed, for whom, and with which fields.
-module(weir_http_gzip_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    for_a_client_that_takes_it/1,
    head_says_what_get_says/1,
    what_is_left_alone/1,
    a_route_has_its_own/1,
    etags_become_weak_and_vary_is_said_once/1,
    a_long_body_is_compressed_by_a_process/1,
    in_a_process/1,
    options/1
]).

-import(weir_http_client, [request/2, request/3, get/2]).

-compile({no_auto_import, [get/1]}).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        for_a_client_that_takes_it,
        head_says_what_get_says,
        what_is_left_alone,
        a_route_has_its_own,
        etags_become_weak_and_vary_is_said_once,
        a_long_body_is_compressed_by_a_process,
        in_a_process,
        options
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Route = fun(Path, Fields, Body) -> {Path, weir_http_echo, {reply, 200, Fields, Body}} end,
    Html = {<<"Content-Type">>, <<"Text/HTML; charset=utf-8">>},
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => {127, 0, 0, 1}, gzip => #{}}, [
        Route("/html", [Html], text()),
        Route("/json", [{<<"content-type">>, <<"application/problem+json">>}], text()),
        Route("/short", [Html], <<"short">>),
        Route("/image", [{<<"content-type">>, <<"image/png">>}], text()),
        Route("/untyped", [], text()),
        Route("/encoded", [Html, {<<"Content-Encoding">>, <<"br">>}], text()),
        Route("/as-it-is", [Html, {<<"Cache-Control">>, <<"public, No-Transform">>}], text()),
        Route("/random", [Html], rand:bytes(2000)),
        Route("/tagged", [Html, {<<"ETag">>, <<"\"a\"">>}, {<<"Vary">>, <<"Cookie, Accept-Encoding">>}], text()),
        Route("/weak", [Html, {<<"etag">>, <<"W/\"a\"">>}], text()),
        {"/off", weir_http_echo, {reply, 200, [Html], text()}, #{gzip => off}},
        {"/own", weir_http_echo,
            {reply, 200, [{<<"content-type">>, <<"image/x">>}], <<"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa">>}, #{
                gzip => #{types => [<<"image/x">>], min_size => 1, level => 9}
            }},
        {"/who", weir_http_echo,
            {call, fun(_) -> {reply, 200, [Html], [binary:copy(text(), 20), pid_to_list(self())]} end}},
        {"/process", weir_http_serving, fun(_) -> {reply, 201, [Html], text()} end},
        {"/partial", weir_http_echo, {reply, 206, [Html, {<<"content-range">>, <<"bytes 0-1999/4000">>}], text()}}
    ]),
    [{port, weir:get_port(?LISTENER)} | Config].

end_per_suite(_Config) -> weir_http:stop_listener(?LISTENER).

text() -> binary:copy(<<"hello, world ">>, 200).

gzip(Path, Config) -> gzip(Path, "gzip", Config).

gzip(Path, Accept, Config) ->
    request(proplists:get_value(port, Config), get(Path, ["Accept-Encoding: ", Accept, "\r\n"])).

for_a_client_that_takes_it(Config) ->
    [
        begin
            {200, Fields, Body} = gzip(Path, Accept, Config),
            ?assertMatch(#{<<"content-encoding">> := <<"gzip">>, <<"vary">> := <<"accept-encoding">>}, Fields),
            ?assert(byte_size(Body) < 200),
            ?assertEqual(text(), zlib:gunzip(Body))
        end
     || Path <- ["/html", "/json"], Accept <- ["gzip", "br, GZIP;q=0.1", "*", "identity;q=0.5, gzip"]
    ],
    [
        begin
            {200, Fields, Body} = gzip("/html", Accept, Config),
            ?assertMatch(#{<<"vary">> := <<"accept-encoding">>}, Fields),
            ?assertNot(is_map_key(<<"content-encoding">>, Fields)),
            ?assertEqual(text(), Body)
        end
     || Accept <- ["", "br", "gzip;q=0", "*;q=0", "gzip;q=0.000", <<255>>]
    ].

head_says_what_get_says(Config) ->
    {200, Get, _} = gzip("/html", Config),
    Head = "HEAD /html HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n",
    {200, Same, <<>>} = request(proplists:get_value(port, Config), Head, #{is_head => true}),
    ?assertEqual(maps:remove(<<"date">>, Get), maps:remove(<<"date">>, Same)).

what_is_left_alone(Config) ->
    [
        begin
            {_, Fields, Body} = gzip(Path, Config),
            ?assert(lists:member(maps:get(<<"content-encoding">>, Fields, none), [none, <<"br">>]), Path),
            ?assertEqual(IsVaried, is_map_key(<<"vary">>, Fields), Path),
            ?assert(lists:member(Body, [text(), <<"short">>]) orelse Path =:= "/random")
        end
     || {Path, IsVaried} <- [
            {"/short", false},
            {"/image", false},
            {"/untyped", false},
            {"/encoded", false},
            {"/as-it-is", false},
            {"/random", true},
            {"/partial", false}
        ]
    ].

a_route_has_its_own(Config) ->
    {200, Off, _} = gzip("/off", Config),
    ?assertNot(is_map_key(<<"content-encoding">>, Off)),
    {200, Own, _} = gzip("/own", Config),
    ?assertMatch(#{<<"content-encoding">> := <<"gzip">>}, Own).

etags_become_weak_and_vary_is_said_once(Config) ->
    {200, #{<<"etag">> := <<"W/\"a\"">>, <<"vary">> := <<"Cookie, Accept-Encoding">>}, _} = gzip("/tagged", Config),
    {200, #{<<"etag">> := <<"\"a\"">>}, _} = gzip("/tagged", "br", Config),
    {200, #{<<"etag">> := <<"W/\"a\"">>}, _} = gzip("/weak", Config).

%% The handler itself still runs in the reactor.
a_long_body_is_compressed_by_a_process(Config) ->
    {200, #{<<"content-encoding">> := <<"gzip">>}, Body} = gzip("/who", Config),
    Text = zlib:gunzip(Body),
    ?assertEqual(binary:copy(text(), 20), binary:part(Text, 0, 20 * byte_size(text()))),
    {200, _, Plain} = gzip("/who", "br", Config),
    ?assertEqual(byte_size(Text), byte_size(Plain)).

in_a_process(Config) ->
    {201, #{<<"content-encoding">> := <<"gzip">>}, Body} = gzip("/process", Config),
    ?assertEqual(text(), zlib:gunzip(Body)).

options(_Config) ->
    [
        ?assertMatch({error, {bad_option, gzip, _, _}}, weir_http:start_listener(other, #{gzip => Wrong}, []))
     || Wrong <- [on, #{level => 10}, #{min_size => 0}, #{types => "text/html"}, #{other => 1}]
    ],
    ?assertMatch(
        {error, {bad_option, routes, {gzip, _}, _}},
        weir_http:start_listener(other, #{}, [{"/", weir_http_echo, echo, #{gzip => #{level => 0}}}])
    ).
