%% Mercure 0.x: publishing, subscribing, private updates, coming back; with sockets, and with the EventSource of a browser.
-module(weir_pubsub_mercure_SUITE).
-behaviour(weir_http_direct).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4, request/5, read_stream/2]).

-define(PATIENCE, 10000).
-define(SECRET, <<"a secret of thirty-two bytes or more">>).
-define(HUB, "/.well-known/mercure").
-define(SUBSCRIPTIONS, ?HUB "/subscriptions").
-define(ANY_SUBSCRIPTION, ?SUBSCRIPTIONS "{/topic}{/subscriber}").

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        publish_and_subscribe, who_may_publish, what_is_malformed, private_updates, topics_that_are_selected, coming_back,
        an_id_that_is_not_known, a_token_that_ends, nobody_without_a_token, tokens_in_three_places, cookies_of_other_sites,
        other_ways_to_the_channel, head, subscriptions_are_told, the_web_api, who_may_see_subscriptions, one_that_is_refused_is_not_told,
        subscriptions_end_with_their_reactor, subscriptions_outlive_who_tells_them, kept_in_redis, a_browser
    ].

init_per_suite(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "secret"),
    ok = file:write_file(File, ?SECRET),
    [{secret, File} | Config].

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{channels => [{weir_pubsub_mercure:channel(), #{max_messages => 3}}]}),
    ok = weir_pubsub_keys:load(?MODULE, [{secret, proplists:get_value(secret, Config)}]),
    start(#{}),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?MODULE),
    ok = weir_pubsub_keys:forget(?MODULE),
    ok = application:stop(weir_pubsub).

start(Options) ->
    _ = weir_http:stop_listener(?MODULE),
    Hub = weir_pubsub_mercure:routes(maps:merge(#{keys => ?MODULE, tokens => #{require_exp => false}}, Options)),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, Hub ++ weir_pubsub_http:routes(#{})).

port() -> weir:get_port(?MODULE).

token(Claims) ->
    Url = fun(Bytes) -> <<<<(case C of $+ -> $-; $/ -> $_; _ -> C end)>> || <<C>> <= base64:encode(iolist_to_binary(Bytes)), C =/= $=>> end,
    Signed = <<(Url("{\"alg\":\"HS256\"}"))/binary, $., (Url(weir_json:compact(Claims)))/binary>>,
    <<Signed/binary, $., (Url(crypto:mac(hmac, sha256, ?SECRET, Signed)))/binary>>.

bearer(Mercure) -> {"Authorization", ["Bearer ", token(#{mercure => Mercure})]}.

%% A publisher of everything.
publish(Form) -> publish(Form, [bearer(#{publish => [<<"*">>]})]).

publish(Form, Fields) ->
    Body = unicode:characters_to_binary(uri_string:compose_query(Form)),
    {Status, _, Answer} = request(port(), <<"POST">>, ?HUB, [{"Content-Type", "application/x-www-form-urlencoded"} | Fields], Body),
    {Status, Answer}.

%% A stream whose head has come.
subscribe(Topics, Fields) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    Query = uri_string:compose_query([{"topic", Topic} || Topic <- Topics]),
    ok = gen_tcp:send(Socket, [
        "GET ", ?HUB, "?", Query, " HTTP/1.1\r\nHost: localhost\r\n", [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields], "\r\n"
    ]),
    Socket.

subscribed(Count) ->
    case weir_pubsub:counters() of
        #{subscribed := Count} -> ok;
        _ -> timer:sleep(10), subscribed(Count)
    end.

%% What a stream has said up to a last word, and its fields.
hears(Socket, Last) ->
    {200, Fields, Body} = read_stream(Socket, Last),
    {Fields, [Data || <<"data: ", Data/binary>> <- binary:split(Body, <<"\n">>, [global])], Body}.

publish_and_subscribe(_Config) ->
    Before = maps:get(subscribed, weir_pubsub:counters()),
    Socket = subscribe(["https://a.example/1"], []),
    ok = subscribed(Before + 1),
    {200, <<"#", _/binary>> = Id} = publish([{"topic", "https://a.example/1"}, {"data", "one\ntwo"}, {"type", "news"}, {"retry", "300"}]),
    {200, _} = publish([{"topic", "https://a.example/other"}, {"data", "unheard"}]),
    {200, _} = publish([{"topic", "https://a.example/x"}, {"topic", "https://a.example/1"}, {"data", "last"}]),
    {Fields, Data, Body} = hears(Socket, <<"last">>),
    ?assertEqual([<<"one">>, <<"two">>, <<"last">>], Data),
    ?assertEqual(<<"text/event-stream">>, proplists:get_value(<<"content-type">>, Fields)),
    [?assertMatch({_, _}, binary:match(Body, Line)) || Line <- [<<"id: ", Id/binary, "\n">>, <<"event: news\n">>, <<"retry: 300\n">>]].

who_may_publish(_Config) ->
    Form = [{"topic", "https://a.example/1"}, {"data", "x"}],
    ?assertMatch({401, _}, publish(Form, [])),
    ?assertMatch({401, _}, publish(Form, [{"Authorization", "Bearer nonsense"}])),
    ?assertMatch({403, _}, publish(Form, [bearer(#{subscribe => [<<"*">>]})])),
    ?assertMatch({403, _}, publish(Form, [bearer(#{publish => []})])),
    ?assertMatch({200, _}, publish(Form, [bearer(#{publish => [<<"https://a.example/{id}">>]})])),
    %% All of its topics.
    ?assertMatch({403, _}, publish([{"topic", "https://b.example"} | Form], [bearer(#{publish => [<<"https://a.example/{id}">>]})])),
    ?assertMatch({403, _}, publish([{"topic", "https://a.example/.well-known/mercure/subscriptions/x"}])).

what_is_malformed(_Config) ->
    [
        ?assertMatch({Form, {400, _}}, {Form, publish(Form)})
     || Form <- [
            [{"data", "x"}], [{"topic", ""}], [{"topic", "a\nb"}], [{"topic", "a"}, {"type", "a\nb"}], [{"topic", "a"}, {"retry", "soon"}],
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
    [{200, _} = publish([{"topic", Topic}, {"data", Topic}]) || Topic <- ["https://a.example/books/1", "https://a.example/films/1", "end"]],
    ?assertMatch({_, [<<"https://a.example/books/1">>, <<"end">>], _}, hears(Socket, <<"data: end">>)).

%% By the field, and by the query. What is gone is seen by the field of the answer.
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

an_id_that_is_not_known(_Config) ->
    {200, _} = publish([{"topic", "a"}, {"data", "1"}]),
    {Fields, Data, _} = hears(subscribe(["a"], [{"Last-Event-ID", "urn:uuid:e1ee88e2-532a-4d6f-ba70-f0f8bd584022"}]), <<"data: 1">>),
    ?assertEqual([<<"1">>], Data),
    ?assertEqual(<<"earliest">>, proplists:get_value(<<"last-event-id">>, Fields)).

a_token_that_ends(_Config) ->
    Socket = subscribe(["a"], [{"Authorization", ["Bearer ", token(#{exp => os:system_time(second) + 1, mercure => #{subscribe => []}})]}]),
    ?assertMatch({_, _}, binary:match(until_closed(Socket), <<"200 OK">>)).

until_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, Data} -> <<Data/binary, (until_closed(Socket))/binary>>;
        {error, closed} -> <<>>
    end.

nobody_without_a_token(_Config) ->
    start(#{anonymous => false}),
    {401, Fields, _} = request(port(), <<"GET">>, ?HUB ++ "?topic=a", []),
    ?assertEqual(<<"Bearer">>, proplists:get_value(<<"www-authenticate">>, Fields)),
    _ = publish([{"topic", "a"}, {"data", "1"}]),
    ?assertMatch({_, [<<"1">>], _}, hears(subscribe(["a"], [bearer(#{subscribe => []}), {"Last-Event-ID", "earliest"}]), <<"data: 1">>)).

tokens_in_three_places(_Config) ->
    start(#{anonymous => false}),
    _ = publish([{"topic", "a"}, {"data", "1"}]),
    Token = token(#{mercure => #{subscribe => []}}),
    Early = {"Last-Event-ID", "earliest"},
    ?assertMatch({_, [<<"1">>], _}, hears(subscribe(["a"], [Early, {"Cookie", ["mercureAuthorization=", Token]}]), <<"data: 1">>)),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, ["GET ", ?HUB, "?topic=a&lastEventID=earliest&authorization=", Token, " HTTP/1.1\r\nHost: localhost\r\n\r\n"]),
    ?assertMatch({_, [<<"1">>], _}, hears(Socket, <<"data: 1">>)).

%% A browser sends a cookie whichever page asks it to.
cookies_of_other_sites(_Config) ->
    Cookie = {"Cookie", ["mercureAuthorization=", token(#{mercure => #{publish => [<<"*">>]}})]},
    Form = [{"topic", "a"}, {"data", "1"}],
    ?assertMatch({401, _}, publish(Form, [Cookie])),
    ?assertMatch({401, _}, publish(Form, [Cookie, {"Origin", "https://site.example"}])),
    start(#{origins => [<<"https://site.example">>]}),
    ?assertMatch({401, _}, publish(Form, [Cookie])),
    ?assertMatch({200, _}, publish(Form, [Cookie, {"Origin", "https://site.example"}])),
    ?assertMatch({403, _}, publish(Form, [Cookie, {"Origin", "https://other.example"}])).

%% Private updates are not for those who guess the name of the channel.
other_ways_to_the_channel(_Config) ->
    _ = publish([{"topic", "a"}, {"data", "1"}, {"private", "on"}]),
    %% A path has no zero byte, but a frame of the push protocol may.
    {400, _, _} = request(port(), <<"GET">>, "/sub/%00mercure", []),
    Frame = fun(Channel) -> weir_pubsub_ws_frames:request(iolist_to_binary(weir_json:compact(#{type => subscribe, channel => Channel}))) end,
    ?assertMatch({ok, _, _}, Frame(<<"mercure">>)),
    ?assertMatch({error, _, _}, Frame(weir_pubsub_mercure:channel())),
    ?assertMatch({error, {bad_option, channel, _, _}}, weir_pubsub:subscribe(weir_pubsub_mercure:channel(), #{})).

head(_Config) ->
    {200, Fields, <<>>} = request(port(), <<"HEAD">>, ?HUB ++ "?topic=a", []),
    ?assertEqual(<<"text/event-stream">>, proplists:get_value(<<"content-type">>, Fields)),
    {400, _, <<>>} = request(port(), <<"HEAD">>, ?HUB, []).

%% Subscriptions -----------------------------------------------------------------------

with_subscriptions() ->
    ok = weir_pubsub:configure(#{channels => [{weir_pubsub_mercure:channel(), #{max_messages => 100}}]}),
    start(#{subscriptions => true}).

%% The web API as somebody who may see all.
tells(Path) -> tells(Path, []).

tells(Path, Fields) -> request(port(), <<"GET">>, Path, [bearer(#{subscribe => [<<?SUBSCRIPTIONS>>, <<?ANY_SUBSCRIPTION>>]}) | Fields]).

document({200, Fields, Body}) ->
    <<"application/ld+json">> = proplists:get_value(<<"content-type">>, Fields),
    {ok, #{<<"@context">> := <<"https://mercure.rocks/">>} = Document} = weir_json:decode(Body),
    Document.

active() -> maps:get(<<"subscriptions">>, document(tells(?SUBSCRIPTIONS))).

until_active(Count) ->
    case length(active()) of
        Count -> ok;
        _ -> timer:sleep(10), until_active(Count)
    end.

%% What has been told from the beginning up to the end of a subscription to that topic.
told_up_to_the_end_of(Topic) ->
    Last = iolist_to_binary(["\"active\":false,\"id\":\"", ?SUBSCRIPTIONS, $/, uri_string:quote(Topic), $/]),
    {_, Data, _} = hears(
        subscribe([?ANY_SUBSCRIPTION], [bearer(#{subscribe => [<<?ANY_SUBSCRIPTION>>]}), {"Last-Event-ID", "earliest"}]), Last
    ),
    [begin {ok, Document} = weir_json:decode(Text), Document end || Text <- Data].

%% Of each selector, to those who may have it.
subscriptions_are_told(_Config) ->
    with_subscriptions(),
    Ann = subscribe(["https://a.example/{id}", "b", "b"], [bearer(#{subscribe => [], payload => #{name => ann}})]),
    ok = until_active(2),
    ok = gen_tcp:close(Ann),
    ok = until_active(0),
    {Told, _} = lists:split(4, told_up_to_the_end_of("https://a.example/{id}")),
    [#{<<"subscriber">> := <<"urn:uuid:", Uuid/binary>> = Subscriber} | _] = Told,
    ?assertMatch({match, _}, re:run(Uuid, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")),
    ?assertEqual(
        [
            #{
                <<"@context">> => <<"https://mercure.rocks/">>,
                <<"id">> => <<?SUBSCRIPTIONS, $/, Quoted/binary, "/urn%3Auuid%3A", Uuid/binary>>,
                <<"type">> => <<"Subscription">>,
                <<"topic">> => Topic,
                <<"subscriber">> => Subscriber,
                <<"active">> => IsActive,
                <<"payload">> => #{<<"name">> => <<"ann">>}
            }
         || IsActive <- [true, false],
            {Topic, Quoted} <- [{<<"b">>, <<"b">>}, {<<"https://a.example/{id}">>, <<"https%3A%2F%2Fa.example%2F%7Bid%7D">>}]
        ],
        Told
    ),
    {200, _} = publish([{"topic", "b"}, {"data", "last"}]),
    ?assertMatch({_, [<<"last">>], _}, hears(subscribe(["*"], [{"Last-Event-ID", "earliest"}]), <<"last">>)).

the_web_api(_Config) ->
    with_subscriptions(),
    ?assertMatch(#{<<"lastEventID">> := <<"earliest">>, <<"subscriptions">> := []}, document(tells(?SUBSCRIPTIONS))),
    _ = [subscribe(Topics, []) || Topics <- [["https://a.example/{id}", "b"], ["b"]]],
    ok = until_active(3),
    {200, Fields, Body} = tells(?SUBSCRIPTIONS),
    {ok, #{<<"id">> := <<?SUBSCRIPTIONS>>, <<"type">> := <<"Subscriptions">>, <<"lastEventID">> := Latest}} = weir_json:decode(Body),
    ?assertMatch({match, _}, re:run(Latest, "^#[0-9]+:[0-9]+$")),
    Path = ?SUBSCRIPTIONS "/https%3A%2F%2Fa.example%2F%7Bid%7D",
    #{<<"id">> := OfTopic, <<"subscriptions">> := [#{<<"id">> := Id} = One]} = document(tells(Path)),
    ?assertEqual(list_to_binary(Path), OfTopic),
    ?assertEqual([<<"b">>, <<"b">>], [Topic || #{<<"topic">> := Topic} <- maps:get(<<"subscriptions">>, document(tells(?SUBSCRIPTIONS "/b")))]),
    ?assertMatch(#{<<"subscriptions">> := []}, document(tells(?SUBSCRIPTIONS "/c"))),
    ?assertEqual(One, maps:without([<<"@context">>, <<"lastEventID">>], document(tells(Id)))),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS "/c/" ++ lists:last(string:split(Id, "/", all)))),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS "/b/nobody")),
    %% It stays as it is until the next update.
    Tag = proplists:get_value(<<"etag">>, Fields),
    ?assertEqual(<<$", Latest/binary, $">>, Tag),
    [?assertMatch({304, _, <<>>}, tells(?SUBSCRIPTIONS, [{"If-None-Match", Said}])) || Said <- [Tag, Latest]],
    {200, _} = publish([{"topic", "b"}, {"data", "x"}]),
    ?assertMatch({200, _, _}, tells(?SUBSCRIPTIONS, [{"If-None-Match", Tag}])),
    ?assertMatch({200, _, <<>>}, request(port(), <<"HEAD">>, ?SUBSCRIPTIONS, [bearer(#{subscribe => [<<"*">>]})])).

who_may_see_subscriptions(_Config) ->
    %% Off unless asked for.
    _ = subscribe(["b"], [{"Last-Event-ID", "earliest"}]),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS)),
    with_subscriptions(),
    _ = subscribe(["b"], []),
    ok = until_active(1),
    [#{<<"id">> := Id}] = active(),
    ?assertMatch({401, _, _}, request(port(), <<"GET">>, ?SUBSCRIPTIONS, [])),
    [
        ?assertMatch({Path, Selector, Status}, {Path, Selector, element(1, request(port(), <<"GET">>, Path, [bearer(#{subscribe => [Selector]})]))})
     || {Status, Path, Selector} <- [
            {200, ?SUBSCRIPTIONS, <<"*">>}, {200, ?SUBSCRIPTIONS, <<?SUBSCRIPTIONS>>}, {403, ?SUBSCRIPTIONS, <<?SUBSCRIPTIONS "/b">>},
            {200, ?SUBSCRIPTIONS "/b", <<?SUBSCRIPTIONS "{/topic}">>}, {403, ?SUBSCRIPTIONS "/c", <<?SUBSCRIPTIONS "/b">>},
            {403, Id, <<?SUBSCRIPTIONS "{/topic}">>}, {200, Id, <<?SUBSCRIPTIONS "/b{/subscriber}">>}, {403, Id, <<?SUBSCRIPTIONS "/c{/subscriber}">>}
        ]
    ],
    start(#{subscriptions => true, origins => [<<"https://site.example">>]}),
    ?assertMatch({403, _, _}, tells(?SUBSCRIPTIONS, [{"Origin", "https://other.example"}])),
    {200, Allowed, _} = request(port(), <<"OPTIONS">>, ?SUBSCRIPTIONS, [{"Origin", "https://site.example"}]),
    ?assertEqual(<<"GET">>, proplists:get_value(<<"access-control-allow-methods">>, Allowed)).

one_that_is_refused_is_not_told(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{weir_pubsub_mercure:channel(), #{max_messages => 100, max_subscribers => 1}}]}),
    start(#{subscriptions => true}),
    _ = subscribe(["a"], []),
    ok = until_active(1),
    _ = until_closed(subscribe(["b"], [])),
    ?assertMatch(#{<<"lastEventID">> := <<"#", _/binary>>, <<"subscriptions">> := [#{<<"topic">> := <<"a">>}]}, document(tells(?SUBSCRIPTIONS))),
    ?assertMatch({match, _}, re:run(maps:get(<<"lastEventID">>, document(tells(?SUBSCRIPTIONS))), ":1$")).

%% It can say nothing about its streams.
subscriptions_end_with_their_reactor(_Config) ->
    with_subscriptions(),
    Socket = subscribe(["a"], []),
    ok = until_active(1),
    [{{Reactor, _}, _, _}] = ets:tab2list(weir_pubsub_mercure_subscriptions),
    true = exit(Reactor, kill),
    _ = until_closed(Socket),
    ok = until_active(0),
    [#{<<"active">> := true}, #{<<"active">> := false} | _] = told_up_to_the_end_of("a").

subscriptions_outlive_who_tells_them(_Config) ->
    with_subscriptions(),
    Socket = subscribe(["a"], []),
    ok = until_active(1),
    Before = whereis(weir_pubsub_mercure_subscriptions),
    true = exit(Before, kill),
    ok = until_another(Before),
    ok = until_active(1),
    ok = gen_tcp:close(Socket),
    ok = until_active(0),
    [#{<<"active">> := true}, #{<<"active">> := false} | _] = told_up_to_the_end_of("a").

until_another(Before) ->
    case whereis(weir_pubsub_mercure_subscriptions) of
        Now when is_pid(Now), Now =/= Before -> ok;
        _ -> timer:sleep(10), until_another(Before)
    end.

%% What an update says of itself outlives the node.
kept_in_redis(_Config) ->
    case weir_pubsub_test_redis:is_there() of
        true ->
            Port = weir_pubsub_test_redis:free_port(),
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
    case publish(Form) of
        {200, _} -> ok;
        {503, _} -> timer:sleep(20), until_published(Form)
    end.

%% A page of another site with the EventSource of its browser, which comes back by itself.
a_browser(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            {skip, "chromium is missing (scripts/setup test)"};
        {ok, Program} ->
            {ok, _} = weir_http:start_listener(mercure_page, #{ip => {127, 0, 0, 1}}, [{"/", ?MODULE, []}]),
            {ok, Browser} = weir_compatibility_chromium:start(Program, filename:join(proplists:get_value(priv_dir, Config), "browser")),
            try
                in_browser(Browser)
            after
                weir_compatibility_chromium:stop(Browser),
                weir_http:stop_listener(mercure_page)
            end
    end.

in_browser(Browser) ->
    Page = weir_compatibility_chromium:open(Browser, ["http://localhost:", integer_to_list(weir:get_port(mercure_page)), "/"], #{}),
    Url = ["http://127.0.0.1:", integer_to_list(port()), ?HUB, "?topic=a&authorization=", token(#{mercure => #{subscribe => [<<"a">>]}})],
    ok = weir_compatibility_chromium:wait_until(Page, "document.title === 'Mercure'"),
    Before = maps:get(subscribed, weir_pubsub:counters()),
    _ = weir_compatibility_chromium:evaluate(Page, [
        "globalThis.heard = []; globalThis.source = new EventSource('", Url, "'); source.onmessage = ({ data }) => heard.push(data)"
    ]),
    ok = subscribed(Before + 1),
    {200, _} = publish([{"topic", "a"}, {"data", "one"}, {"private", "on"}, {"retry", "10"}]),
    ok = weir_compatibility_chromium:wait_until(Page, "heard.length === 1"),
    %% The server cuts the stream; what is published meanwhile comes once.
    Port = port(),
    ok = weir_http:stop_listener(?MODULE),
    Hub = weir_pubsub_mercure:routes(#{keys => ?MODULE, tokens => #{require_exp => false}}),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}, port => Port}, Hub),
    {200, _} = publish([{"topic", "a"}, {"data", "two"}]),
    ok = weir_compatibility_chromium:wait_until(Page, "heard.length === 2"),
    ?assertEqual([<<"one">>, <<"two">>], weir_compatibility_chromium:evaluate(Page, "heard")).

handle(_Request, []) -> {reply, 200, [{<<"content-type">>, <<"text/html">>}], <<"<!DOCTYPE html><title>Mercure</title>">>}.
