%% Active subscriptions of Mercure, as updates and by the web API.
-module(weir_pubsub_mercure_subscriptions_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4]).
-import(weir_pubsub_mercure_test, [start/1, port/0, bearer/1, publish/1, subscribe/2, hears/2, until_closed/1]).

-include("mercure_suite.hrl").

-define(HUB, "/.well-known/mercure").
-define(SUBSCRIPTIONS, ?HUB "/subscriptions").
-define(ANY_SUBSCRIPTION, ?SUBSCRIPTIONS "{/topic}{/subscriber}").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        subscriptions_are_told,
        the_web_api,
        paths_that_are_no_text,
        who_may_see_subscriptions,
        one_that_is_refused_is_not_told,
        subscriptions_end_with_their_reactor,
        subscriptions_outlive_who_tells_them
    ].

%% Subscriptions -----------------------------------------------------------------------

with_subscriptions() ->
    ok = weir_pubsub:configure(#{channels => [{weir_pubsub_mercure:channel(), #{max_messages => 100}}]}),
    start(#{subscriptions => true}).

%% Requests to the web API, of a client that may see everything.
tells(Path) -> tells(Path, []).

tells(Path, Fields) ->
    request(port(), <<"GET">>, Path, [bearer(#{subscribe => [<<?SUBSCRIPTIONS>>, <<?ANY_SUBSCRIPTION>>]}) | Fields]).

document({200, Fields, Body}) ->
    <<"application/ld+json">> = proplists:get_value(<<"content-type">>, Fields),
    {ok, #{<<"@context">> := <<"https://mercure.rocks/">>} = Document} = weir_json:decode(Body),
    Document.

active() -> maps:get(<<"subscriptions">>, document(tells(?SUBSCRIPTIONS))).

until_active(Count) ->
    ?waitEqual(Count, length(active())),
    ok.

%% Returns the updates from the first one to the end of a subscription to that topic.
told_up_to_the_end_of(Topic) ->
    Last = iolist_to_binary(["\"active\":false,\"id\":\"", ?SUBSCRIPTIONS, $/, uri_string:quote(Topic), $/]),
    {_, Data, _} = hears(
        subscribe([?ANY_SUBSCRIPTION], [
            bearer(#{subscribe => [<<?ANY_SUBSCRIPTION>>]}), {"Last-Event-ID", "earliest"}
        ]),
        Last
    ),
    [
        begin
            {ok, Document} = weir_json:decode(Text),
            Document
        end
     || Text <- Data
    ].

%% No client subscribes to them.
paths_that_are_no_text(_Config) ->
    with_subscriptions(),
    #{<<"id">> := Id, <<"subscriptions">> := []} = document(tells(?SUBSCRIPTIONS "/%FF")),
    ?assertEqual(<<?SUBSCRIPTIONS "/%FF">>, Id),
    {404, _, _} = tells(?SUBSCRIPTIONS "/%FF/%FE").

%% An update for each selector, to clients that may have it.
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
            {Topic, Quoted} <- [
                {<<"b">>, <<"b">>}, {<<"https://a.example/{id}">>, <<"https%3A%2F%2Fa.example%2F%7Bid%7D">>}
            ]
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
    {ok, #{<<"id">> := <<?SUBSCRIPTIONS>>, <<"type">> := <<"Subscriptions">>, <<"lastEventID">> := Latest}} =
        weir_json:decode(Body),
    ?assertMatch({match, _}, re:run(Latest, "^#[0-9]+:[0-9]+$")),
    Path = ?SUBSCRIPTIONS "/https%3A%2F%2Fa.example%2F%7Bid%7D",
    #{<<"id">> := OfTopic, <<"subscriptions">> := [#{<<"id">> := Id} = One]} = document(tells(Path)),
    ?assertEqual(list_to_binary(Path), OfTopic),
    ?assertEqual([<<"b">>, <<"b">>], [
        Topic
     || #{<<"topic">> := Topic} <- maps:get(<<"subscriptions">>, document(tells(?SUBSCRIPTIONS "/b")))
    ]),
    ?assertMatch(#{<<"subscriptions">> := []}, document(tells(?SUBSCRIPTIONS "/c"))),
    ?assertEqual(One, maps:without([<<"@context">>, <<"lastEventID">>], document(tells(Id)))),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS "/c/" ++ lists:last(string:split(Id, "/", all)))),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS "/b/nobody")),
    %% The document is the same until the next update.
    Tag = proplists:get_value(<<"etag">>, Fields),
    ?assertEqual(<<$", Latest/binary, $">>, Tag),
    [?assertMatch({304, _, <<>>}, tells(?SUBSCRIPTIONS, [{"If-None-Match", Said}])) || Said <- [Tag, Latest]],
    {200, _} = publish([{"topic", "b"}, {"data", "x"}]),
    ?assertMatch({200, _, _}, tells(?SUBSCRIPTIONS, [{"If-None-Match", Tag}])),
    ?assertMatch({200, _, <<>>}, request(port(), <<"HEAD">>, ?SUBSCRIPTIONS, [bearer(#{subscribe => [<<"*">>]})])).

who_may_see_subscriptions(_Config) ->
    %% Off by default.
    _ = subscribe(["b"], [{"Last-Event-ID", "earliest"}]),
    ?assertMatch({404, _, _}, tells(?SUBSCRIPTIONS)),
    with_subscriptions(),
    _ = subscribe(["b"], []),
    ok = until_active(1),
    [#{<<"id">> := Id}] = active(),
    ?assertMatch({401, _, _}, request(port(), <<"GET">>, ?SUBSCRIPTIONS, [])),
    [
        ?assertMatch(
            {Path, Selector, Status},
            {Path, Selector, element(1, request(port(), <<"GET">>, Path, [bearer(#{subscribe => [Selector]})]))}
        )
     || {Status, Path, Selector} <- [
            {200, ?SUBSCRIPTIONS, <<"*">>},
            {200, ?SUBSCRIPTIONS, <<?SUBSCRIPTIONS>>},
            {403, ?SUBSCRIPTIONS, <<?SUBSCRIPTIONS "/b">>},
            {200, ?SUBSCRIPTIONS "/b", <<?SUBSCRIPTIONS "{/topic}">>},
            {403, ?SUBSCRIPTIONS "/c", <<?SUBSCRIPTIONS "/b">>},
            {403, Id, <<?SUBSCRIPTIONS "{/topic}">>},
            {200, Id, <<?SUBSCRIPTIONS "/b{/subscriber}">>},
            {403, Id, <<?SUBSCRIPTIONS "/c{/subscriber}">>}
        ]
    ],
    start(#{subscriptions => true, origins => [<<"https://site.example">>]}),
    ?assertMatch({403, _, _}, tells(?SUBSCRIPTIONS, [{"Origin", "https://other.example"}])),
    {200, Allowed, _} = request(port(), <<"OPTIONS">>, ?SUBSCRIPTIONS, [{"Origin", "https://site.example"}]),
    ?assertEqual(<<"GET">>, proplists:get_value(<<"access-control-allow-methods">>, Allowed)).

one_that_is_refused_is_not_told(_Config) ->
    ok = weir_pubsub:configure(#{
        channels => [{weir_pubsub_mercure:channel(), #{max_messages => 100, max_subscribers => 1}}]
    }),
    start(#{subscriptions => true}),
    _ = subscribe(["a"], []),
    ok = until_active(1),
    _ = until_closed(subscribe(["b"], [])),
    ?assertMatch(
        #{<<"lastEventID">> := <<"#", _/binary>>, <<"subscriptions">> := [#{<<"topic">> := <<"a">>}]},
        document(tells(?SUBSCRIPTIONS))
    ),
    ?assertMatch({match, _}, re:run(maps:get(<<"lastEventID">>, document(tells(?SUBSCRIPTIONS))), ":1$")).

%% A reactor that is killed cannot announce the end of its streams.
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
    weir_test_wait:wait_until(fun() ->
        Now = whereis(weir_pubsub_mercure_subscriptions),
        is_pid(Now) andalso Now =/= Before
    end),
    ok = until_active(1),
    ok = gen_tcp:close(Socket),
    ok = until_active(0),
    [#{<<"active">> := true}, #{<<"active">> := false} | _] = told_up_to_the_end_of("a").
