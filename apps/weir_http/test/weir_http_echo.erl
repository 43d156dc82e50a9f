%% A handler for the tests, controlled by its state or by the path.
-module(weir_http_echo).
-behaviour(weir_http_direct).

-export([handle/2]).

handle(Request, echo) ->
    {reply, 200, [{<<"content-type">>, <<"text/plain">>}], weir_http_request:body(Request)};
handle(Request, describe) ->
    Described = #{
        method => weir_http_request:method(Request),
        path => weir_http_request:path(Request),
        query => weir_http_request:query_pairs(Request),
        version => weir_http_request:version(Request),
        fields => weir_http_request:fields(Request),
        bindings => weir_http_request:bindings(Request),
        cookies => weir_http_request:cookies(Request),
        form => weir_http_request:form(Request),
        body => weir_http_request:body(Request),
        trailers => weir_http_request:trailers(Request),
        peer => weir_http_request:peer(Request)
    },
    {reply, 200, [], term_to_binary(Described)};
handle(Request, fields) ->
    {reply, 200, [{<<"content-type">>, <<"text/plain">>}],
        [[Name, ": ", Value, "\n"] || {Name, Value} <- weir_http_request:fields(Request)]};
handle(Request, cookies) ->
    {reply, 200, [{<<"content-type">>, <<"text/plain">>}],
        [[Name, "=", Value, "\n"] || {Name, Value} <- weir_http_request:cookies(Request)]};
handle(_Request, {reply, _, _, _} = Reply) ->
    Reply;
handle(_Request, {redirect, _, _} = Redirect) ->
    Redirect;
handle(_Request, {file, _} = File) ->
    File;
handle(_Request, {file, _, _} = File) ->
    File;
handle(Request, {call, Fun}) ->
    Fun(Request).
