%% Conditional requests to handlers of resources other than files: strong and weak entity tags (RFC 9110, 8.8.3.2).
-module(weir_http_conditions_tests).

-include_lib("eunit/include/eunit.hrl").

request(Field) ->
    Bytes = iolist_to_binary(["GET / HTTP/1.1\r\nHost: a\r\n", Field, "\r\n\r\n"]),
    weir_http_request:new(weir_http_nif:head(Bytes, 0, {8192, 16384, 100}), socket, undefined, undefined).

tags_test() ->
    [
        ?assertEqual(Outcome, weir_http_conditions:check(request(Field), Tag, 0), {Field, Tag})
     || {Field, Tag, Outcome} <- [
            {"If-None-Match: \"a\"", <<"\"a\"">>, not_modified},
            {"If-None-Match: W/\"a\"", <<"\"a\"">>, not_modified},
            {"If-None-Match: \"b\", \"a\"", <<"W/\"a\"">>, not_modified},
            {"If-None-Match: W/\"a\"", <<"W/\"a\"">>, not_modified},
            {"If-None-Match: W/\"b\"", <<"W/\"a\"">>, proceed},
            {"If-Match: \"a\"", <<"\"a\"">>, proceed},
            {"If-Match: W/\"a\"", <<"\"a\"">>, failed},
            {"If-Match: \"a\"", <<"W/\"a\"">>, failed},
            {"If-Match: W/\"a\"", <<"W/\"a\"">>, failed},
            {"If-Match: *", <<"W/\"a\"">>, proceed}
        ]
    ].

parts_test() ->
    [
        ?assertEqual(Outcome, weir_http_conditions:may_be_in_parts(request(["If-Range: ", Tag]), Tag, 0), Tag)
     || {Tag, Outcome} <- [{<<"\"a\"">>, true}, {<<"W/\"a\"">>, false}]
    ].
