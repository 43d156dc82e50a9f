%% @private
%% @doc From a request to its response: finds the route, calls the handler, and acts on its result.
-module(weir_http_answer).

-export([target/2]).
-export([max_body/2]).
-export([answer/4]).
-export([enter/4]).

-include("weir_http.hrl").

%% @doc Finds the target of a request. Returns it with the request, to which it adds the id and the fields that every
%% response gets.
-spec target(weir_http_request:request(), #http{}) -> {weir_http_routes:found(), weir_http_request:request()}.
target(Request, Http = #http{routes = Routes, request_ids = off}) ->
    Found = weir_http_routes:find(weir_http_request:method(Request), Request, Routes),
    shared(Found, weir_http_request:with_gzip(gzip(Found, Http), Request), Routes);
target(Request, Http = #http{request_ids = Ids}) ->
    target(weir_http_request:identify(weir_http_id:of_request(Request, Ids), Request), Http#http{request_ids = off}).

gzip({ok, #{gzip := default}, _}, #http{gzip = Gzip}) -> Gzip;
gzip({ok, #{gzip := Gzip}, _}, _Http) -> Gzip;
gzip(_Found, _Http) -> off.

shared(Found = {ok, #{cors := off}, _}, Request, _Routes) ->
    {Found, Request};
shared(Found = {ok, #{cors := Cors}, _}, Request, Routes) ->
    preflight(Found, weir_http_request:add(weir_http_cors:fields(Request, Cors), Request), Request, Routes);
shared(Found = {allow, 204, _}, Request, Routes) ->
    preflight(Found, Request, Request, Routes);
shared(Found, Request, _Routes) ->
    {Found, Request}.

%% A preflight request is answered by the route of the method that it asks for.
preflight(Found, Shared, Request, Routes) ->
    case weir_http_cors:is_preflight(Request) of
        {true, Method} ->
            case weir_http_routes:find(Method, Request, Routes) of
                {ok, #{cors := Cors}, _} when Cors =/= off ->
                    {{preflight, weir_http_cors:preflight(Request, Cors)}, Request};
                _ ->
                    {Found, Shared}
            end;
        false ->
            {Found, Shared}
    end.

%% @doc Returns the most bytes that the body of the request may have.
-spec max_body(weir_http_routes:found(), #http{}) -> non_neg_integer().
max_body({ok, #{max_body := Bytes}, _}, _Http) when is_integer(Bytes) -> Bytes;
max_body(_Found, #http{max_body = Bytes}) -> Bytes.

%% @doc Answers a complete request. Returns the response and what happens to the connection: a handler may close one
%% that was to stay open. `process': a process has to serve the request, since it may wait for a disk.
-spec answer(weir_http_routes:found(), weir_http_request:request(), weir_http_response:wanted(), #http{}) ->
    weir_http_upgrade:entered().
answer(Found, Request, Wanted, Http) ->
    Answer = made_of(Found, Request, Wanted, Http),
    case weir_http_request:begun(Request) of
        undefined ->
            ok;
        _ ->
            weir_http_observation:answered(Request, Answer, Http)
    end,
    Answer.

made_of({ok, #{handler := Handler, state := State}, Bindings}, Request, Wanted, Http) ->
    Bound = weir_http_request:bind(Bindings, Request),
    try
        result(Handler(Bound, State), Bound, Wanted, Http)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Request, Wanted, Http)
    end;
made_of({failed, {Class, Reason, Stack}}, Request, Wanted, Http) ->
    crashed(Class, Reason, Stack, Request, Wanted, Http);
made_of({status, Status}, Request, Wanted, _Http) ->
    weir_http_response:without_body(Status, [], Request, Wanted);
made_of({preflight, Fields}, Request, Wanted, _Http) ->
    weir_http_response:without_body(204, Fields, Request, Wanted);
made_of({allow, Status, Allow}, Request, Wanted, _Http) ->
    weir_http_response:without_body(Status, [{<<"allow">>, Allow}], Request, Wanted).

result(Result, Request, Wanted, Http) when element(1, Result) =:= events ->
    weir_http_stream:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, Http) when element(1, Result) =:= hold ->
    weir_http_parked:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, Http) when element(1, Result) =:= websocket ->
    weir_http_websocket_connection:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, _Http) ->
    weir_http_response:respond(Result, Request, Wanted).

%% @doc Acts on the result of a process that becomes an event stream, a held request or a WebSocket.
-spec enter(weir_http_direct:result(), weir_http_request:request(), weir_http_response:wanted(), #http{}) ->
    weir_http_upgrade:entered().
enter(Result, Request, Wanted, Http) ->
    try
        result(Result, Request, Wanted, Http)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Request, Wanted, Http)
    end.

crashed(Class, Reason, Stack, Request, Wanted, #http{name = Name, counters = Counters, reports = Reports}) ->
    weir_http_crash:response(Class, Reason, Stack, Request, Wanted, {Name, Counters, Reports}).
