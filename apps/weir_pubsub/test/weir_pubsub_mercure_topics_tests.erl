%% Selectors of topics: examples of RFC 6570, and what does not match.
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
            {<<"https://a.example{/path}">>, <<"https://a.example/one/two">>, false},
            {<<"https://a.example/books{?author,year}">>, <<"https://a.example/books?year=1999">>, true},
            {<<"https://a.example/books?sort=new{&page}">>, <<"https://a.example/books?sort=new&page=2">>, true},
            {<<"https://a.example/{+path}">>, <<"https://a.example/one/two?three">>, true},
            {<<"https://a.example/{+path}">>, <<"https://a.example/one two">>, false},
            {<<"https://a.example/file{.type}">>, <<"https://a.example/file.txt">>, true},
            {<<"https://a.example/file{.type}">>, <<"https://a.example/filetxt">>, false},
            {<<"page{#part}">>, <<"page#top">>, true},
            {<<"page{#part}">>, <<"page">>, true},
            %% A template that is invalid or not supported is a topic.
            {<<"page{">>, <<"page{">>, true},
            {<<"page{">>, <<"page1">>, false},
            {<<"page}">>, <<"page}">>, true},
            {<<"page{}">>, <<"page{}">>, true},
            {<<"page{?a">>, <<"page?a=1">>, false},
            {<<"page{?a}">>, <<"page{?a}">>, true},
            {<<"page{|a}">>, <<"page1">>, false},
            {<<"page{a:0}">>, <<"page1">>, false},
            {<<"page{a:10000}">>, <<"page1">>, false},
            {<<"page{a,}">>, <<"page1">>, false},
            {<<"page{a b}">>, <<"pagex">>, false}
        ]
    ].

%% The expansions that RFC 6570 has as examples, in the sections 3.2.2 to 3.2.9. Each matches its template.
examples_of_the_standard_test() ->
    [
        ?assertEqual({Selector, Topic, true}, {Selector, Topic, fits(Selector, Topic)})
     || {Selector, Topic} <- examples()
    ].

examples() ->
    [
        {<<"{var}">>, <<"value">>},
        {<<"{hello}">>, <<"Hello%20World%21">>},
        {<<"{half}">>, <<"50%25">>},
        {<<"O{empty}X">>, <<"OX">>},
        {<<"O{undef}X">>, <<"OX">>},
        {<<"{x,y}">>, <<"1024,768">>},
        {<<"{x,hello,y}">>, <<"1024,Hello%20World%21,768">>},
        {<<"?{x,empty}">>, <<"?1024,">>},
        {<<"?{x,undef}">>, <<"?1024">>},
        {<<"?{undef,y}">>, <<"?768">>},
        {<<"{var:3}">>, <<"val">>},
        {<<"{var:30}">>, <<"value">>},
        {<<"{list}">>, <<"red,green,blue">>},
        {<<"{list*}">>, <<"red,green,blue">>},
        {<<"{keys}">>, <<"semi,%3B,dot,.,comma,%2C">>},
        {<<"{keys*}">>, <<"semi=%3B,dot=.,comma=%2C">>},
        {<<"{+hello}">>, <<"Hello%20World!">>},
        {<<"{+half}">>, <<"50%25">>},
        {<<"{base}index">>, <<"http%3A%2F%2Fexample.com%2Fhome%2Findex">>},
        {<<"{+base}index">>, <<"http://example.com/home/index">>},
        {<<"up{+path}{var}/here">>, <<"up/foo/barvalue/here">>},
        {<<"{+x,hello,y}">>, <<"1024,Hello%20World!,768">>},
        {<<"{+path:6}/here">>, <<"/foo/b/here">>},
        {<<"{+list*}">>, <<"red,green,blue">>},
        {<<"{+keys*}">>, <<"semi=;,dot=.,comma=,">>},
        {<<"{#hello}">>, <<"#Hello%20World!">>},
        {<<"foo{#empty}">>, <<"foo#">>},
        {<<"foo{#undef}">>, <<"foo">>},
        {<<"{#path,x}/here">>, <<"#/foo/bar,1024/here">>},
        {<<"{#path:6}/here">>, <<"#/foo/b/here">>},
        {<<"{.who}">>, <<".fred">>},
        {<<"{.half,who}">>, <<".50%25.fred">>},
        {<<"www{.dom*}">>, <<"www.example.com">>},
        {<<"X{.empty}">>, <<"X.">>},
        {<<"X{.undef}">>, <<"X">>},
        {<<"X{.var:3}">>, <<"X.val">>},
        {<<"X{.list}">>, <<"X.red,green,blue">>},
        {<<"X{.keys*}">>, <<"X.semi=%3B.dot=..comma=%2C">>},
        {<<"{/who,who}">>, <<"/fred/fred">>},
        {<<"{/var,empty}">>, <<"/value/">>},
        {<<"{/var,undef}">>, <<"/value">>},
        {<<"{/var,x}/here">>, <<"/value/1024/here">>},
        {<<"{/var:1,var}">>, <<"/v/value">>},
        {<<"{/list*,path:4}">>, <<"/red/green/blue/%2Ffoo">>},
        {<<"{/keys*}">>, <<"/semi=%3B/dot=./comma=%2C">>},
        {<<"{;who}">>, <<";who=fred">>},
        {<<"{;half}">>, <<";half=50%25">>},
        {<<"{;empty}">>, <<";empty">>},
        {<<"{;v,empty,who}">>, <<";v=6;empty;who=fred">>},
        {<<"{;v,bar,who}">>, <<";v=6;who=fred">>},
        {<<"{;x,y,undef}">>, <<";x=1024;y=768">>},
        {<<"{;hello:5}">>, <<";hello=Hello">>},
        {<<"{;list}">>, <<";list=red,green,blue">>},
        {<<"{;list*}">>, <<";list=red;list=green;list=blue">>},
        {<<"{;keys*}">>, <<";semi=%3B;dot=.;comma=%2C">>},
        {<<"{?who}">>, <<"?who=fred">>},
        {<<"{?x,y,empty}">>, <<"?x=1024&y=768&empty=">>},
        {<<"{?x,y,undef}">>, <<"?x=1024&y=768">>},
        {<<"{?var:3}">>, <<"?var=val">>},
        {<<"{?list}">>, <<"?list=red,green,blue">>},
        {<<"{?list*}">>, <<"?list=red&list=green&list=blue">>},
        {<<"{?keys}">>, <<"?keys=semi,%3B,dot,.,comma,%2C">>},
        {<<"{?keys*}">>, <<"?semi=%3B&dot=.&comma=%2C">>},
        {<<"{&who}">>, <<"&who=fred">>},
        {<<"?fixed=yes{&x}">>, <<"?fixed=yes&x=1024">>},
        {<<"{&x,y,empty}">>, <<"&x=1024&y=768&empty=">>},
        {<<"{&var:3}">>, <<"&var=val">>},
        {<<"{&list*}">>, <<"&list=red&list=green&list=blue">>},
        {<<"{&keys*}">>, <<"&semi=%3B&dot=.&comma=%2C">>}
    ].

%% Texts that look like expansions but are not: a match would show updates to clients that must not see them.
what_is_no_expansion_test() ->
    [
        ?assertEqual({Selector, Topic, false}, {Selector, Topic, fits(Selector, Topic)})
     || {Selector, Topic} <- [
            {<<"/a{/id}">>, <<"/a/1/2">>},
            {<<"/a{/id,part}">>, <<"/a/1/2/3">>},
            {<<"/a{/id:2}">>, <<"/a/123">>},
            {<<"{a:3}x">>, <<"1234x">>},
            {<<"{a:2}">>, <<"a,">>},
            {<<"{a:1}">>, <<"%C3%A9%C3%A9">>},
            {<<"{a}">>, <<"%C">>},
            {<<"{a}">>, <<"%zz">>},
            {<<"{a}">>, <<"a=b">>},
            {<<"{a}Z">>, <<"%4Z">>},
            {<<"/a{?id}">>, <<"/a?other=1">>},
            {<<"/a{?id}">>, <<"/a?id">>},
            {<<"/a{?id}">>, <<"/a?id=1&id=2">>},
            {<<"/a{?x,y}">>, <<"/a?y=1&x=2">>},
            {<<"/a{?x,y}">>, <<"/a&x=1">>},
            {<<"/a{;x}">>, <<"/a;y=1">>},
            {<<"/a{;x}">>, <<"/a;xy">>},
            {<<"/a{&x}">>, <<"/a?x=1">>},
            {<<"/a{?x}">>, <<"/a?x=1/2">>},
            {<<"/a{?x*}">>, <<"/a?x">>},
            {<<"/a{#x}">>, <<"/ax">>}
        ]
    ].

%% A character of several bytes counts as one.
characters_that_are_counted_test() ->
    ?assert(fits(<<"{a:2}">>, <<"%C3%A9%C3%A9">>)),
    ?assert(fits(<<"{a:2}{b:2}">>, <<"1234">>)),
    ?assertNot(fits(<<"{a:2}{b:2}">>, <<"12345">>)).

%% Many expressions on a long topic: no part is matched twice. With more expressions it is a topic.
a_template_that_others_would_go_over_for_ever_test() ->
    Topic = binary:copy(<<"a">>, 2048),
    [
        begin
            Template = iolist_to_binary([lists:duplicate(Count, Expression), <<"!">>]),
            ?assertNot(fits(Template, Topic)),
            ?assertEqual(Count =< 16, fits(Template, <<Topic/binary, "!">>))
        end
     || Expression <- [<<"{a}">>, <<"{a:2000}">>, <<"{+a*}">>], Count <- [16, 17]
    ],
    Dots = binary:copy(<<".a">>, 1024),
    ?assertNot(fits(iolist_to_binary([lists:duplicate(16, <<"{.a*}">>), <<"!">>]), Dots)).
