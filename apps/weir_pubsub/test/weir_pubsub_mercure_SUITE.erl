%% Mercure 0.x: publishing, subscribing, private updates, reconnecting; with sockets, and with the EventSource of a
%% browser.
-module(weir_pubsub_mercure_SUITE).
-behaviour(weir_http_direct).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4, request/5]).
-import(weir_pubsub_mercure_test, [
    start/1, port/0, token/1, bearer/1, publish/1, publish/2, subscribe/2, subscribed/1, hears/2, until_closed/1
]).

-include("mercure_suite.hrl").

-define(HUB, "/.well-known/mercure").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        publish_and_subscribe,
        who_may_publish,
        what_is_malformed,
        private_updates,
        topics_that_are_selected,
        coming_back,
        an_id_that_is_not_known,
        topics_are_bytes,
        a_token_that_ends,
        nobody_without_a_token,
        tokens_in_three_places,
        cookies_of_other_sites,
        a_cookie_that_no_client_has,
        other_ways_to_the_channel,
        head,
        kept_in_redis,
        a_browser
    ].

publish_and_subscribe(_Config) ->
    Before = maps:get(subscribed, weir_pubsub:counters()),
    Socket = subscribe(["https://a.example/1"], []),
    ok = subscribed(Before + 1),
    {200, <<"#", _/binary>> = Id} = publish([
        {"topic", "https://a.example/1"}, {"data", "one\ntwo"}, {"type", "news"}, {"retry", "300"}
    ]),
    {200, _} = publish([{"topic", "https://a.example/other"}, {"data", "unheard"}]),
    {200, _} = publish([{"topic", "https://a.example/x"}, {"topic", "https://a.example/1"}, {"data", "last"}]),
    {Fields, Data, Body} = hears(Socket, <<"last">>),
    ?assertEqual([<<"one">>, <<"two">>, <<"last">>], Data),
    ?assertEqual(<<"text/event-stream">>, proplists:get_value(<<"content-type">>, Fields)),
    [
        ?assertMatch({_, _}, binary:match(Body, Line))
     || Line <- [<<"id: ", Id/binary, "\n">>, <<"event: news\n">>, <<"retry: 300\n">>]
    ].

who_may_publish(_Config) ->
    Form = [{"topic", "https://a.example/1"}, {"data", "x"}],
    ?assertMatch({401, _}, publish(Form, [])),
    ?assertMatch({401, _}, publish(Form, [{"Authorization", "Bearer nonsense"}])),
    ?assertMatch({401, _}, publish(Form, [{"Authorization", [<<255, 254, 253, 252, 251, 250>>, " nonsense"]}])),
    ?assertMatch({403, _}, publish(Form, [bearer(#{subscribe => [<<"*">>]})])),
    ?assertMatch({403, _}, publish(Form, [bearer(#{publish => []})])),
    ?assertMatch({200, _}, publish(Form, [bearer(#{publish => [<<"https://a.example/{id}">>]})])),
    %% All of its topics have to be granted.
    ?assertMatch(
        {403, _},
        publish([{"topic", "https://b.example"} | Form], [bearer(#{publish => [<<"https://a.example/{id}">>]})])
    ),
    ?assertMatch({403, _}, publish([{"topic", "https://a.example/.well-known/mercure/subscriptions/x"}])).

what_is_malformed(_Config) ->
    [
        ?assertMatch({Form, {400, _}}, {Form, publish(Form)})
     || Form <- [
            [{"data", "x"}],
            [{"topic", ""}],
            [{"topic", "a\nb"}],
            [{"topic", "a"}, {"type", "a\nb"}],
            [{"topic", "a"}, {"retry", "soon"}],
            [{"topic", "a"} || _ <- lists:seq(1, 101)]
        ]
    ],
    {400, _, _} = request(port(), <<"GET">>, ?HUB, []),
    {400, _, _} = request(port(), <<"POST">>, ?HUB, [bearer(#{publish => [<<"*">>]})], <<"topic=a">>).

private_updates(_Config) ->
    Before = maps:get(subscribed, weir_pubsub:counters()),
    Anybody = subscribe(["*"], []),
    Ann = subscribe(["*"], [bearer(#{subscribe => [<<"https://a.example/users/ann">>]})]),
    Other = subscribe(["https://a.example/other"], [bearer(#{subscribe => [<<"*">>]})]),
    ok = subscribed(Before + 3),
    {200, _} = publish([{"topic", "https://a.example/users/ann"}, {"data", "for Ann"}, {"private", "on"}]),
    {200, _} = publish([{"topic", "https://a.example/users/bob"}, {"data", "for Bob"}, {"private", ""}]),
    {200, _} = publish([{"topic", "https://a.example/other"}, {"data", "last"}]),
    ?assertMatch({_, [<<"last">>], _}, hears(Anybody, <<"last">>)),
    ?assertMatch({_, [<<"for Ann">>, <<"last">>], _}, hears(Ann, <<"last">>)),
    ?assertMatch({_, [<<"last">>], _}, hears(Other, <<"last">>)).

topics_that_are_selected(_Config) ->
    Before = maps:get(subscribed, weir_pubsub:counters()),
    Socket = subscribe(["https://a.example/books/{id}", "end"], []),
    ok = subscribed(Before + 1),
    [
        {200, _} = publish([{"topic", Topic}, {"data", Topic}])
     || Topic <- ["https://a.example/books/1", "https://a.example/films/1", "end"]
    ],
    ?assertMatch({_, [<<"https://a.example/books/1">>, <<"end">>], _}, hears(Socket, <<"data: end">>)).

%% With the field, and with the query. The field of the response shows that updates are gone.
coming_back(_Config) ->
    [{200, First}, {200, Second} | _] = [publish([{"topic", "a"}, {"data", Data}]) || Data <- ["1", "2", "3", "4"]],
    {Fields, Data, _} = hears(subscribe(["a"], [{"Last-Event-ID", Second}]), <<"data: 4">>),
    ?assertEqual([<<"3">>, <<"4">>], Data),
    ?assertEqual(Second, proplists:get_value(<<"last-event-id">>, Fields)),
    {200, _} = publish([{"topic", "a"}, {"data", "5"}]),
    {Later, Rest, Body} = hears(subscribe(["a"], [{"Last-Event-ID", First}]), <<"data: 5">>),
    ?assertEqual([<<"3">>, <<"4">>, <<"5">>], Rest),
    ?assertEqual(Second, proplists:get_value(<<"last-event-id">>, Later)),
    ?assertMatch({_, _}, binary:match(Body, <<": gap">>)),
    {_, All, _} = hears(subscribe(["a"], [{"Last-Event-ID", "earliest"}]), <<"data: 5">>),
    ?assertEqual([<<"3">>, <<"4">>, <<"5">>], All).

%% An update is kept with its topics, which may have a hundred times the bytes of its data.
topics_are_bytes(_Config) ->
    Topics = [{"topic", [Letter | lists:duplicate(499, $t)]} || Letter <- "abcd"],
    {200, _} = publish([{"data", "12345"} | Topics]),
    ?assertMatch({ok, #{messages := 1, bytes := 2005}}, weir_pubsub:info(weir_pubsub_mercure:channel())).

an_id_that_is_not_known(_Config) ->
    {200, _} = publish([{"topic", "a"}, {"data", "1"}]),
    {Fields, Data, _} = hears(
        subscribe(["a"], [{"Last-Event-ID", "urn:uuid:e1ee88e2-532a-4d6f-ba70-f0f8bd584022"}]), <<"data: 1">>
    ),
    ?assertEqual([<<"1">>], Data),
    ?assertEqual(<<"earliest">>, proplists:get_value(<<"last-event-id">>, Fields)).

a_token_that_ends(_Config) -> a_token_that_ends_in(1).

%% If the token has expired before the hub looks at it, the machine is slow and gets more time.
a_token_that_ends_in(Seconds) ->
    Token = token(#{exp => os:system_time(second) + Seconds, mercure => #{subscribe => []}}),
    Socket = subscribe(["a"], [{"Authorization", ["Bearer ", Token]}]),
    case gen_tcp:recv(Socket, 12, weir_test_wait:patience()) of
        {ok, <<"HTTP/1.1 200">>} -> _ = until_closed(Socket);
        {ok, <<"HTTP/1.1 401">>} -> ok = gen_tcp:close(Socket), a_token_that_ends_in(2 * Seconds)
    end.

nobody_without_a_token(_Config) ->
    start(#{anonymous => false}),
    {401, Fields, _} = request(port(), <<"GET">>, ?HUB ++ "?topic=a", []),
    ?assertEqual(<<"Bearer">>, proplists:get_value(<<"www-authenticate">>, Fields)),
    _ = publish([{"topic", "a"}, {"data", "1"}]),
    ?assertMatch(
        {_, [<<"1">>], _},
        hears(subscribe(["a"], [bearer(#{subscribe => []}), {"Last-Event-ID", "earliest"}]), <<"data: 1">>)
    ).

tokens_in_three_places(_Config) ->
    start(#{anonymous => false}),
    _ = publish([{"topic", "a"}, {"data", "1"}]),
    Token = token(#{mercure => #{subscribe => []}}),
    Early = {"Last-Event-ID", "earliest"},
    ?assertMatch(
        {_, [<<"1">>], _}, hears(subscribe(["a"], [Early, {"Cookie", ["mercureAuthorization=", Token]}]), <<"data: 1">>)
    ),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [
        "GET ", ?HUB, "?topic=a&lastEventID=earliest&authorization=", Token, " HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ]),
    ?assertMatch({_, [<<"1">>], _}, hears(Socket, <<"data: 1">>)).

%% A browser sends a cookie with requests of any page.
cookies_of_other_sites(_Config) ->
    Cookie = {"Cookie", ["mercureAuthorization=", token(#{mercure => #{publish => [<<"*">>]}})]},
    Form = [{"topic", "a"}, {"data", "1"}],
    ?assertMatch({401, _}, publish(Form, [Cookie])),
    ?assertMatch({401, _}, publish(Form, [Cookie, {"Origin", "https://site.example"}])),
    start(#{origins => [<<"https://site.example">>]}),
    ?assertMatch({401, _}, publish(Form, [Cookie])),
    ?assertMatch({200, _}, publish(Form, [Cookie, {"Origin", "https://site.example"}])),
    ?assertMatch({403, _}, publish(Form, [Cookie, {"Origin", "https://other.example"}])).

%% Private updates are not for clients that guess the name of the channel.
a_cookie_that_no_client_has(_Config) ->
    Routes = fun(Name) -> weir_pubsub_mercure:routes(#{keys => weir_pubsub_mercure_test, cookie => Name}) end,
    [_] = Routes(<<"__Host-hub">>),
    [
        ?assertError({bad_option, cookie, Name, [_ | _]}, Routes(Name))
     || Name <- [<<>>, <<"my cookie">>, <<"a=b">>, <<"a;b">>, <<"a\0">>, "hub"]
    ].

other_ways_to_the_channel(_Config) ->
    _ = publish([{"topic", "a"}, {"data", "1"}, {"private", "on"}]),
    %% A path has no zero byte, but a frame of the push protocol may.
    {400, _, _} = request(port(), <<"GET">>, "/sub/%00mercure", []),
    Frame = fun(Channel) ->
        weir_pubsub_ws_frames:request(iolist_to_binary(weir_json:compact(#{type => subscribe, channel => Channel})))
    end,
    ?assertMatch({ok, _, _}, Frame(<<"mercure">>)),
    ?assertMatch({error, _, _}, Frame(weir_pubsub_mercure:channel())),
    ?assertMatch({error, {bad_option, channel, _, _}}, weir_pubsub:subscribe(weir_pubsub_mercure:channel(), #{})).

head(_Config) ->
    {200, Fields, <<>>} = request(port(), <<"HEAD">>, ?HUB ++ "?topic=a", []),
    ?assertEqual(<<"text/event-stream">>, proplists:get_value(<<"content-type">>, Fields)),
    {400, _, <<>>} = request(port(), <<"HEAD">>, ?HUB, []).

%% Subscriptions -----------------------------------------------------------------------

%% The metadata of an update outlives the node.
kept_in_redis(_Config) ->
    case weir_pubsub_test_redis:is_there() of
        true ->
            Port = weir_test_port:claim(),
            Redis = weir_pubsub_test_redis:start(Port),
            ok = application:stop(weir_pubsub),
            ok = application:set_env(weir_pubsub, broker, #{kind => redis, port => Port}),
            try
                in_redis()
            after
                application:unset_env(weir_pubsub, broker),
                weir_pubsub_test_redis:kill(Redis)
            end;
        false ->
            {skip, "redis-server is missing (scripts/setup test)"}
    end.

in_redis() ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    %% The connection to it may not be there at once.
    ok = until_published([{"topic", "a"}, {"data", "1"}, {"private", "on"}, {"type", "t"}, {"retry", "10"}]),
    ok = application:stop(weir_pubsub),
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = until_published([{"topic", "b"}, {"data", "2"}]),
    All = ["*"],
    Early = {"Last-Event-ID", "earliest"},
    {_, Heard, _} = hears(subscribe(All, [Early, bearer(#{subscribe => [<<"a">>]})]), <<"data: 2">>),
    ?assertEqual([<<"1">>, <<"2">>], Heard),
    {_, HeardByOthers, _} = hears(subscribe(All, [Early]), <<"data: 2">>),
    ?assertEqual([<<"2">>], HeardByOthers).

until_published(Form) ->
    ?waitMatch({200, _}, publish(Form)),
    ok.

%% A page of another site with the EventSource of its browser, which reconnects itself.
a_browser(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            {skip, "chromium is missing (scripts/setup test)"};
        {ok, Program} ->
            {ok, _} = weir_http:start_listener(mercure_page, #{ip => {127, 0, 0, 1}}, [{"/", ?MODULE, []}]),
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(proplists:get_value(priv_dir, Config), "browser")
            ),
            try
                in_browser(Browser)
            after
                weir_compatibility_chromium:stop(Browser),
                weir_http:stop_listener(mercure_page)
            end
    end.

in_browser(Browser) ->
    Page = weir_compatibility_chromium:open(
        Browser, ["http://localhost:", integer_to_list(weir:get_port(mercure_page)), "/"], #{}
    ),
    Url = [
        "http://127.0.0.1:",
        integer_to_list(port()),
        ?HUB,
        "?topic=a&authorization=",
        token(#{mercure => #{subscribe => [<<"a">>]}})
    ],
    ok = weir_compatibility_chromium:wait_until(Page, "document.title === 'Mercure'"),
    Before = maps:get(subscribed, weir_pubsub:counters()),
    _ = weir_compatibility_chromium:evaluate(Page, [
        "globalThis.heard = []; globalThis.source = new EventSource('",
        Url,
        "'); source.onmessage = ({ data }) => heard.push(data)"
    ]),
    ok = subscribed(Before + 1),
    {200, _} = publish([{"topic", "a"}, {"data", "one"}, {"private", "on"}, {"retry", "10"}]),
    ok = weir_compatibility_chromium:wait_until(Page, "heard.length === 1"),
    %% The server cuts the stream; an update that is published before the browser is back comes once.
    Port = port(),
    ok = weir_http:stop_listener(weir_pubsub_mercure_test),
    Hub = weir_pubsub_mercure:routes(#{keys => weir_pubsub_mercure_test, tokens => #{require_exp => false}}),
    {ok, _} = weir_http:start_listener(weir_pubsub_mercure_test, #{ip => {127, 0, 0, 1}, port => Port}, Hub),
    {200, _} = publish([{"topic", "a"}, {"data", "two"}]),
    ok = weir_compatibility_chromium:wait_until(Page, "heard.length === 2"),
    ?assertEqual([<<"one">>, <<"two">>], weir_compatibility_chromium:evaluate(Page, "heard")).

handle(_Request, []) ->
    {reply, 200, [{<<"content-type">>, <<"text/html">>}], <<"<!DOCTYPE html><title>Mercure</title>">>}.
