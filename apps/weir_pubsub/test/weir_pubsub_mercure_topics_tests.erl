%% Selectors of topics: examples of RFC 6570, and what does not fit.
-module(weir_pubsub_mercure_topics_tests).

-include_lib("eunit/include/eunit.hrl").

fits(Selector, Topic) -> weir_pubsub_mercure_topics:fits(Topic, weir_pubsub_mercure_topics:new(Selector)).

a_topic_fits_itself_test() ->
    ?assert(fits(<<"https://a.example/books/1">>, <<"https://a.example/books/1">>)),
    ?assertNot(fits(<<"https://a.example/books/1">>, <<"https://a.example/books/10">>)),
    ?assert(fits(<<"*">>, <<"anything">>)).

templates_test() ->
    [
        ?assertEqual({Selector, Topic, Fits}, {Selector, Topic, fits(Selector, Topic)})
     || {Selector, Topic, Fits} <- [
            {<<"https://a.example/books/{id}">>, <<"https://a.example/books/1">>, true},
            {<<"https://a.example/books/{id}">>, <<"https://a.example/books/">>, true},
            {<<"https://a.example/books/{id}">>, <<"https://a.example/books/1/2">>, false},
            {<<"https://a.example/books/{id}">>, <<"https://b.example/books/1">>, false},
            {<<"https://a.example/books/{id}">>, <<"https://a.example/books/{id}">>, true},
            {<<"https://a.example/{kind}/{id}.json">>, <<"https://a.example/books/1.json">>, true},
            {<<"https://a.example/{kind}/{id}.json">>, <<"https://a.example/books/1.xml">>, false},
            {<<"{a}{b}{c}x">>, <<"aaaaaaaaaaax">>, true},
            {<<"{a}{b}{c}x">>, <<"aaaaaaaaaaay">>, false},
            {<<"https://a.example{/path*}">>, <<"https://a.example/one/two">>, true},
            {<<"https://a.example{/path*}">>, <<"https://a.example">>, true},
            {<<"https://a.example{/path*}">>, <<"https://a.example/one?two">>, false},
            {<<"https://a.example/{+path}">>, <<"https://a.example/one/two?three">>, true},
            {<<"https://a.example/{+path}">>, <<"https://a.example/one two">>, false},
            {<<"https://a.example/file{.type}">>, <<"https://a.example/file.txt">>, true},
            {<<"https://a.example/file{.type}">>, <<"https://a.example/filetxt">>, false},
            {<<"page{#part}">>, <<"page#top">>, true},
            {<<"page{#part}">>, <<"page">>, true},
            %% What is no template, or one that is not known, is a topic.
            {<<"page{">>, <<"page{">>, true},
            {<<"page{">>, <<"page1">>, false},
            {<<"page}">>, <<"page}">>, true},
            {<<"page{}">>, <<"page{}">>, true},
            {<<"page{?a}">>, <<"page?a=1">>, false},
            {<<"page{?a}">>, <<"page{?a}">>, true},
            {<<"page{a b}">>, <<"pagex">>, false}
        ]
    ].

%% Many expressions on a long topic: nothing is gone over twice.
a_template_that_others_would_go_over_for_ever_test() ->
    Template = iolist_to_binary([lists:duplicate(200, <<"{a}">>), <<"!">>]),
    Topic = binary:copy(<<"a">>, 2048),
    ?assertNot(fits(Template, Topic)).
