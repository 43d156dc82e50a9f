%% Channels over HTTP: who may publish and subscribe, and what is refused.
-module(weir_pubsub_http_access_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [publish/3, request/4, request/5, begin_request/4, answer/1]).
-import(weir_pubsub_http_test, [field/2]).

-include("pubsub_http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, ours}].

groups() ->
    [
        {ours, [], [
            local_publishers_only, who_may, who_may_is_said_later, tokens, limits, messages_that_are_too_large,
            options_that_are_wrong
        ]}
    ].

local_publishers_only(_Config) ->
    set(#{}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    Origin = [{"Origin", "http://x.y"}],
    [
        {403, _, <<>>} = request(port(), Method, "/pub/a", Origin, <<"x">>)
     || Method <- [<<"POST">>, <<"PUT">>, <<"DELETE">>]
    ],
    {403, _, <<>>} = request(port(), <<"GET">>, "/pub/a", Origin),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", Origin).

who_may(_Config) ->
    May = fun(Name) ->
        fun(Request, Channel) -> {weir_http_request:field(<<"x-who">>, Request), Channel} =:= {Name, <<"a">>} end
    end,
    set(#{publishers => May(<<"writer">>), subscribers => May(<<"reader">>)}),
    Who = fun(Name) -> [{"X-Who", Name}] end,
    {202, _, _} = request(port(), <<"POST">>, "/pub/a", Who("writer"), <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/b", Who("writer"), <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/a", Who("reader"), <<"x">>),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", Who("reader")),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", Who("writer")).

%% A fun that waits is run in a process, and everything after it is as usual.
who_may_is_said_later(_Config) ->
    Later = fun(_Request, Channel) -> {wait, fun() -> Channel =:= <<"a">> end} end,
    set(#{publishers => Later, subscribers => Later}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    {403, _, _} = publish(port(), "b", <<"x">>),
    {403, _, _} = publish(port(), "a,b", <<"x">>),
    {200, _, <<"x">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    {403, _, _} = request(port(), <<"GET">>, "/sub/b", []),
    Held = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [
        {"If-Modified-Since", field(<<"last-modified">>, First)}, {"If-None-Match", field(<<"etag">>, First)}
    ]),
    {_, _, _} = publish(port(), "a", <<"y">>),
    {200, _, <<"y">>} = weir_pubsub_nchan:answer(Held),
    Stream = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    {200, _, _} = weir_pubsub_nchan:read_stream(Stream, <<"data: y">>),
    {{101, _}, Socket} = weir_pubsub_nchan:websocket(port(), "/pubsub/a", none),
    ok = weir_pubsub_nchan:send_frame(Socket, 1, <<"z">>),
    Chunks = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [{"TE", "chunked"}]),
    {200, _, _} = weir_pubsub_nchan:read_stream(Chunks, <<"z">>),
    {200, _, _} = request(port(), <<"DELETE">>, "/pub/a", []).

%% A token in a field or in the query, as in the README of another server.
tokens(_Config) ->
    Secret = binary:copy(<<"secret">>, 6),
    File = filename:join("/tmp", "weir_secret_" ++ os:getpid()),
    ok = file:write_file(File, Secret),
    ok = weir_pubsub_keys:load(?MODULE, [{secret, File}]),
    ok = file:delete(File),
    By = fun(Right) -> weir_pubsub_access:by_token(Right, ?MODULE, #{require_exp => false}) end,
    set(#{publishers => By(publish), subscribers => By(subscribe)}),
    Url = fun(Bytes) ->
        <<
            <<
                (case C of
                    $+ -> $-;
                    $/ -> $_;
                    _ -> C
                end)
            >>
         || <<C>> <= base64:encode(Bytes), C =/= $=
        >>
    end,
    Signed = <<
        (Url(<<"{\"alg\":\"HS256\"}">>))/binary,
        ".",
        (Url(<<"{\"weir\":{\"publish\":[\"a\"],\"subscribe\":[\"*\"]}}">>))/binary
    >>,
    Token = <<Signed/binary, ".", (Url(crypto:mac(hmac, sha256, Secret, Signed)))/binary>>,
    Bearer = [{"Authorization", ["Bearer ", Token]}],
    {202, _, _} = request(port(), <<"POST">>, "/pub/a", Bearer, <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/b", Bearer, <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/a", [], <<"x">>),
    {403, _, _} = request(
        port(), <<"POST">>, "/pub/a", [{"Authorization", [<<255, 254, 253, 252, 251, 250>>, " x"]}], <<"x">>
    ),
    {200, _, <<"x">>} = request(port(), <<"GET">>, ["/sub/a?access_token=", Token], []),
    {403, _, _} = request(port(), <<"GET">>, ["/sub/a?access_token=", Token, "x"], []),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", [{"Authorization", ["Basic ", Token]}]).

limits(_Config) ->
    ok = weir_pubsub:configure(#{total => #{channels => 1, subscribers => 0}}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    {403, _, _} = publish(port(), "b", <<"x">>),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", []),
    {200, _, Text} = answer(begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}])),
    ?assertEqual(<<": 403: 403 Forbidden\n\n">>, Text).

messages_that_are_too_large(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_message => 10}}]}),
    {413, _, _} = publish(port(), "a", <<"12345678901">>),
    {202, _, _} = publish(port(), "a", <<"1234567890">>).

options_that_are_wrong(_Config) ->
    [
        ?assertError({bad_option, Name, Value, _}, weir_pubsub_http:routes(#{Name => Value}))
     || {Name, Value} <- [
            {publishers, nobody},
            {subscribers, local},
            {poll_timeout, 0},
            {stream_timeout, 0},
            {deflate, 1},
            {deflate, #{context => true}},
            {plain, poll},
            {max_body, 0},
            {other, 1}
        ]
    ].
