%% The same bytes to weir_http, nginx, Node's http and h11: valid requests and random mutations of them. Each request
%% that we accept and another server refuses, or ends elsewhere, needs an explanation in weir_http_differential. All
%% runs have the same cases; `make soak' has more.
-module(weir_http_differential_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([differences_are_found/1, no_difference_is_unexplained/1]).

-define(CASES, 2000).
-define(SEED, 1).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [differences_are_found, no_difference_is_unexplained].

init_per_suite(Config) ->
    case weir_http_differential:start() of
        {ok, Servers} -> [{servers, Servers} | Config];
        {skip, _} = Skip -> Skip
    end.

end_per_suite(Config) -> weir_http_differential:stop(?config(servers, Config)).

differences_are_found(_Config) ->
    Get = {<<"GET">>, <<"/">>, 0},
    Post = {<<"POST">>, <<"/">>, 5},
    Found = fun(Ours, Theirs) -> weir_http_differential:findings({Ours, closed}, [{nginx, Theirs}]) end,
    ?assertEqual([], Found([Get, Post], {[Get, Post], closed})),
    ?assertEqual([], Found([Get], {[Get, Post], refused})),
    ?assertEqual([], Found([Get, Post], {[Get], closed})),
    ?assertEqual([{accepts, Post, nginx}], Found([Get, Post], {[Get], refused})),
    ?assertEqual([{accepts, any, nginx}], Found([any], {[], refused})),
    ?assertEqual([{otherwise, Post, nginx, nothing}], Found([Get, Post], {[Get], waits})),
    ?assertEqual([{otherwise, Post, nginx, Get}], Found([Post], {[Get], closed})),
    ?assertEqual(
        none, weir_http_differential:explained({accepts, Get, nginx}, <<"GET / HTTP/1.1\r\nHost: a\r\n\r\n">>)
    ).

no_difference_is_unexplained(Config) ->
    Cases = weir_http_mutations:cases(?CASES, ?SEED),
    Seen = weir_http_differential:run(Cases, ?config(servers, Config)),
    %% Enough cases are accepted, and enough refused: so the servers really were asked.
    Taken = length([taken || {_, {[_, _ | _], _}, _} <- Seen]),
    Refused = length([refused || {_, {_, refused}, _} <- Seen]),
    ?assert(Taken > ?CASES div 10, Taken),
    ?assert(Refused > ?CASES div 10, Refused),
    ?assertEqual([], weir_http_differential:unexplained(Seen)).
