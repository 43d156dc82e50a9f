%% Valid requests to a listener, observed by a raw client.
-module(weir_http_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, send/2, response/1, response/2, request/2, request/3, responses/2, is_closed/1,
    is_closed/2, get/1, get/2]).

-compile({no_auto_import, [get/1]}).

-define(LISTENER, ?MODULE).
-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, requests}, {group, bodies}, {group, responses}, {group, failures}].

groups() ->
    [
        {requests, [], [
            a_request_is_described,
            bindings_are_decoded,
            methods_are_chosen,
            head_is_get_without_a_body,
            options_say_what_is_allowed,
            connections_stay_open,
            old_clients_are_served,
            pipelined_requests_are_answered_in_order,
            nothing_follows_a_close,
            an_empty_line_is_no_request,
            many_fields_of_a_name_are_one_value,
            values_need_not_be_utf8
        ]},
        {bodies, [], [
            a_body_of_a_length,
            a_body_in_chunks,
            trailers_are_apart,
            continue_is_said_once_and_only_if_asked,
            continue_is_not_said_for_what_is_not_there,
            the_body_of_a_request_without_a_route_is_skipped,
            a_form_is_decoded
        ]},
        {responses, [], [
            every_form_of_body,
            a_large_body,
            statuses_without_a_body,
            a_handler_closes_the_connection,
            redirects,
            there_is_one_date
        ]},
        {failures, [], [
            a_handler_that_raises_is_a_500,
            a_bad_result_is_a_500,
            a_constraint_that_fails_is_a_500,
            nothing_can_be_injected,
            a_report_names_the_request_and_not_its_secrets
        ]}
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    {ok, _} = weir_http:start_listener(?LISTENER, weir_http_client:options(#{ip => ?LOOPBACK}), routes()),
    [{port, weir:get_port(?LISTENER)} | Config].

end_per_testcase(_Case, _Config) ->
    _ = logger:remove_handler(?MODULE),
    _ = weir_http:stop_listener(?LISTENER),
    ok.

routes() ->
    [
        {"/", weir_http_echo, {reply, 200, [{<<"content-type">>, <<"text/plain">>}], <<"hello">>}, #{
            methods => [<<"GET">>]
        }},
        {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>, <<"PUT">>]}},
        {"/describe", weir_http_echo, describe},
        {"/users/:id", weir_http_echo, describe, #{constraints => #{id => integer}}},
        {"/files/*path", weir_http_echo, describe},
        {"/call", weir_http_echo, {call, fun(Request) -> call(weir_http_request:query(Request)) end}}
    ].

%% The responses of the route /call.
call(<<"iodata">>) -> {reply, 200, [], [<<"a">>, ["b", $c], <<>> | <<"d">>]};
call(<<"large">>) -> {reply, 200, [], large()};
call(<<"parts">>) -> {reply, 200, [], [large(), "end"]};
call(<<"204">>) -> {reply, 204, [], <<"nobody sees this">>};
call(<<"304">>) -> {reply, 304, [{<<"etag">>, <<"\"a\"">>}], <<"nobody sees this">>};
call(<<"close">>) -> {reply, 200, [{<<"connection">>, <<"close">>}], <<"bye">>};
call(<<"redirect">>) -> {redirect, 303, ["/else", $?, <<"where">>]};
call(<<"date">>) -> {reply, 200, [{<<"Date">>, <<"Sun, 06 Nov 1994 08:49:37 GMT">>}], <<>>};
call(<<"crlf">>) -> {reply, 200, [{<<"x">>, <<"a\r\nset-cookie: b=c">>}], <<>>};
call(<<"name">>) -> {reply, 200, [{<<"x: y\r\nz">>, <<"a">>}], <<>>};
call(<<"nul">>) -> {reply, 200, [{<<"x">>, [<<"a">>, 0]}], <<>>};
call(<<"length">>) -> {reply, 200, [{<<"Content-Length">>, <<"3">>}], <<"hello">>};
call(<<"coding">>) -> {reply, 200, [{<<"transfer-encoding">>, <<"chunked">>}], <<"hello">>};
call(<<"location">>) -> {redirect, 302, <<"/a\r\nb: c">>};
call(<<"raise">>) -> error(on_purpose);
call(<<"throw">>) -> throw(on_purpose);
call(<<"exit">>) -> exit(on_purpose);
call(<<"status">>) -> {reply, 99, [], <<>>};
call(<<"body">>) -> {reply, 200, [], not_iodata};
call(<<"fields">>) -> {reply, 200, [{name, value}], <<>>};
call(<<"improper">>) -> {reply, 200, [{<<"name">>, <<"value">>} | improper], <<>>};
call(<<"nothing">>) -> nothing.

large() -> binary:copy(<<"0123456789abcdef">>, 20000).

port(Config) -> proplists:get_value(port, Config).

described({200, _, Body}) -> binary_to_term(Body).

%%% Requests.

a_request_is_described(Config) ->
    Request =
        "GET /describe?a=b+c&d=%C3%A9&e HTTP/1.1\r\nHost: localhost\r\nX-Test:  some value \r\nCookie: k=v; l=\r\n\r\n",
    ?assertMatch(
        #{
            method := <<"GET">>,
            path := <<"/describe">>,
            query := [{<<"a">>, <<"b c">>}, {<<"d">>, <<"é"/utf8>>}, {<<"e">>, <<>>}],
            version := {1, 1},
            fields := [{<<"host">>, <<"localhost">>}, {<<"x-test">>, <<"some value">>}, {<<"cookie">>, _}],
            cookies := [{<<"k">>, <<"v">>}, {<<"l">>, <<>>}],
            bindings := Bindings,
            body := <<>>,
            peer := {ok, {?LOOPBACK, _}}
        } when map_size(Bindings) =:= 0,
        described(request(port(Config), Request))
    ).

bindings_are_decoded(Config) ->
    Of = fun(Path) ->
        case request(port(Config), get(Path)) of
            {200, _, _} = Response -> maps:get(bindings, described(Response));
            {Status, _, _} -> Status
        end
    end,
    ?assertEqual(#{id => 42}, Of("/users/42")),
    ?assertEqual(#{id => 42}, Of("/users/%34%32")),
    [
        ?assertEqual(404, Of(Path))
     || Path <- ["/users/x", "/users/-1", "/users/", "/users/1/", "/users/1234567890123456789"]
    ],
    ?assertEqual(#{path => [<<"a">>, <<"b c">>]}, Of("/files/a/b%20c")),
    ?assertEqual(#{path => [<<"a/b">>]}, Of("/files/a%2Fb")),
    ?assertEqual(#{path => [<<"b">>, <<>>]}, Of("/files/a/../b/")),
    ?assertEqual(#{path => [<<"b">>]}, Of("/x/../files/%2e/b")),
    ?assertEqual(404, Of("/files/../b")),
    [?assertEqual(400, Of(Path)) || Path <- ["/..", "/../users/1", "/files/../../b", "/%2e%2e/users/1"]].

methods_are_chosen(Config) ->
    {405, #{<<"allow">> := <<"POST, PUT, OPTIONS">>}, <<>>} = request(port(Config), get("/echo")),
    {405, #{<<"allow">> := <<"GET, HEAD, OPTIONS">>}, <<>>} =
        request(port(Config), "DELETE / HTTP/1.1\r\nHost: a\r\n\r\n"),
    {501, _, <<"method\n">>} = request(port(Config), "get / HTTP/1.1\r\nHost: a\r\n\r\n"),
    {404, _, <<>>} = request(port(Config), get("/nowhere")).

head_is_get_without_a_body(Config) ->
    Head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    {200, Fields, <<>>} = request(port(Config), Head, #{is_head => true}),
    {200, Same, <<"hello">>} = request(port(Config), get("/")),
    ?assertEqual(maps:remove(<<"date">>, Same), maps:remove(<<"date">>, Fields)),
    %% No part of a body is sent: the next response follows the head.
    Socket = connect(port(Config)),
    ok = send(Socket, [Head, get("/")]),
    {200, _, <<>>} = response(Socket, #{is_head => true}),
    {200, _, <<"hello">>} = response(Socket).

options_say_what_is_allowed(Config) ->
    {204, #{<<"allow">> := <<"POST, PUT, OPTIONS">>} = Fields, <<>>} =
        request(port(Config), "OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    ?assertNot(is_map_key(<<"content-length">>, Fields)),
    {200, #{<<"allow">> := _}, <<>>} = request(port(Config), "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    {404, _, <<>>} = request(port(Config), "OPTIONS /nowhere HTTP/1.1\r\nHost: a\r\n\r\n").

connections_stay_open(Config) ->
    Socket = connect(port(Config)),
    lists:foreach(
        fun(_) ->
            ok = send(Socket, get("/")),
            {200, Fields, <<"hello">>} = response(Socket),
            ?assertNot(is_map_key(<<"connection">>, Fields))
        end,
        lists:seq(1, 100)
    ),
    ok = send(Socket, get("/", "Connection: close\r\n")),
    {200, #{<<"connection">> := <<"close">>}, <<"hello">>} = response(Socket),
    ?assert(is_closed(Socket)).

old_clients_are_served(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    {200, #{<<"connection">> := <<"keep-alive">>}, <<"hello">>} = response(Socket),
    ok = send(Socket, "GET /describe HTTP/1.0\r\n\r\n"),
    Response = {_, #{<<"connection">> := <<"close">>}, _} = response(Socket),
    ?assertMatch(#{version := {1, 0}, fields := []}, described(Response)),
    ?assert(is_closed(Socket)).

pipelined_requests_are_answered_in_order(Config) ->
    Socket = connect(port(Config)),
    Numbers = [integer_to_binary(N) || N <- lists:seq(1, 1000)],
    %% Bodies of a known length, in chunks, and none.
    Request = fun
        (N) when byte_size(N) =:= 1 -> get(["/files/", N]);
        (N) when byte_size(N) =:= 2 -> ["PUT /files/", N, " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"];
        (N) -> ["PUT /files/", N, " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    end,
    ok = send(Socket, [Request(N) || N <- Numbers]),
    ?assertEqual(Numbers, [
        N
     || Response <- responses(Socket, 1000), #{bindings := #{path := [N]}} <- [described(Response)]
    ]).

nothing_follows_a_close(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, [get("/", "Connection: close\r\n"), get("/")]),
    {200, _, <<"hello">>} = response(Socket),
    ?assert(is_closed(Socket)).

an_empty_line_is_no_request(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, ["\r\n", get("/"), "\r\n"]),
    {200, _, <<"hello">>} = response(Socket),
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    ?waitMatch(#{requests := 2, refused := 0}, weir_http:info(?LISTENER)).

many_fields_of_a_name_are_one_value(Config) ->
    Self = self(),
    ok = weir_http:set_routes(?LISTENER, [{"/", weir_http_echo, {call, fun(Request) ->
        Self ! [weir_http_request:field(Name, Request, none) || Name <- [<<"ACCEPT">>, <<"cookie">>, <<"none">>]],
        {reply, 200, [], <<>>}
    end}}]),
    {200, _, <<>>} = request(port(Config), get("/", "Accept: a\r\nCookie: b=c\r\naccept: d\r\ncookie: e=f\r\n")),
    receive Values -> ?assertEqual([<<"a, d">>, <<"b=c; e=f">>, none], Values) end.

values_need_not_be_utf8(Config) ->
    Request =
        <<"GET /describe?", 37, "ff=a HTTP/1.1\r\nHost: a\r\nContent-Type: a", 255, "\r\nCookie: ", 255, "=b", 254,
            " ; c = ", 165, "\r\n\r\n">>,
    #{cookies := Cookies, query := Query} = described(request(port(Config), Request)),
    ?assertEqual([{<<255>>, <<"b", 254>>}, {<<"c">>, <<165>>}], Cookies),
    ?assertEqual([{<<255>>, <<"a">>}], Query).

%%% Bodies.

a_body_of_a_length(Config) ->
    {200, _, <<"hello">>} = request(port(Config), "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
    Large = large(),
    Socket = connect(port(Config)),
    ok = send(Socket, [
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: ", integer_to_list(byte_size(Large)), "\r\n\r\n", Large
    ]),
    {200, _, Large} = response(Socket),
    %% The bytes after the body are the next request.
    ok = send(Socket, ["POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", get("/")]),
    {200, _, <<"abc">>} = response(Socket),
    {200, _, <<"hello">>} = response(Socket).

a_body_in_chunks(Config) ->
    Socket = connect(port(Config)),
    Chunks = [["1f40;n=\"", integer_to_list(N), "\"\r\n", binary:copy(<<N>>, 8000), "\r\n"] || N <- lists:seq($a, $z)],
    ok = send(Socket, [
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Chunks, "0\r\n\r\n", get("/")
    ]),
    Body = <<<<(binary:copy(<<N>>, 8000))/binary>> || N <- lists:seq($a, $z)>>,
    ?assertMatch({200, _, Body}, response(Socket)),
    {200, _, <<"hello">>} = response(Socket).

trailers_are_apart(Config) ->
    Request =
        "POST /describe HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\nCookie: a=b\r\n\r\n",
    #{fields := Fields, trailers := Trailers} = described(request(port(Config), Request)),
    ?assertEqual([{<<"x-sum">>, <<"1">>}, {<<"cookie">>, <<"a=b">>}], Trailers),
    ?assertEqual([<<"host">>, <<"transfer-encoding">>], [Name || {Name, _} <- Fields]).

continue_is_said_once_and_only_if_asked(Config) ->
    Socket = connect(port(Config)),
    Head = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    ok = send(Socket, Head),
    {100, Fields, <<>>} = response(Socket),
    ?assertEqual(#{}, Fields),
    ok = send(Socket, "hel"),
    ok = send(Socket, "lo"),
    {200, _, <<"hello">>} = response(Socket),
    %% The body arrives with the head.
    ok = send(Socket, [Head, "hello"]),
    {200, _, <<"hello">>} = response(Socket),
    ok = send(Socket, "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
    ?assertNot(is_closed(Socket, 40)),
    ok = send(Socket, "hello"),
    {200, _, <<"hello">>} = response(Socket).

continue_is_not_said_for_what_is_not_there(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, "POST /nowhere HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
    {404, #{<<"connection">> := <<"close">>}, <<>>} = response(Socket),
    ?assert(is_closed(Socket)).

the_body_of_a_request_without_a_route_is_skipped(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, ["POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", get("/")]),
    {404, _, <<>>} = response(Socket),
    {200, _, <<"hello">>} = response(Socket).

a_form_is_decoded(Config) ->
    Request = fun(Type) ->
        ["POST /describe HTTP/1.1\r\nHost: a\r\nContent-Type: ", Type, "\r\nContent-Length: 11\r\n\r\na=b+c&d=%26"]
    end,
    #{form := Form} = described(request(port(Config), Request("application/x-www-form-urlencoded; charset=utf-8"))),
    ?assertEqual({ok, [{<<"a">>, <<"b c">>}, {<<"d">>, <<"&">>}]}, Form),
    ?assertMatch(#{form := error}, described(request(port(Config), Request("text/plain")))).

%%% Responses.

every_form_of_body(Config) ->
    {200, #{<<"content-length">> := <<"4">>}, <<"abcd">>} = request(port(Config), get("/call?iodata")).

a_large_body(Config) ->
    Large = large(),
    {200, _, Large} = request(port(Config), get("/call?large")),
    Parts = <<Large/binary, "end">>,
    {200, _, Parts} = request(port(Config), get("/call?parts")).

statuses_without_a_body(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, [get("/call?204"), get("/call?304"), get("/")]),
    {204, Fields204, <<>>} = response(Socket),
    {304, Fields304 = #{<<"etag">> := <<"\"a\"">>}, <<>>} = response(Socket),
    {200, _, <<"hello">>} = response(Socket),
    [?assertNot(is_map_key(<<"content-length">>, Fields)) || Fields <- [Fields204, Fields304]].

a_handler_closes_the_connection(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, [get("/call?close"), get("/")]),
    {200, #{<<"connection">> := <<"close">>}, <<"bye">>} = response(Socket),
    ?assert(is_closed(Socket)).

redirects(Config) ->
    {303, #{<<"location">> := <<"/else?where">>}, <<>>} = request(port(Config), get("/call?redirect")).

there_is_one_date(Config) ->
    {200, #{<<"date">> := <<"Sun, 06 Nov 1994 08:49:37 GMT">>}, <<>>} = request(port(Config), get("/call?date")),
    {200, #{<<"date">> := Now}, _} = request(port(Config), get("/")),
    %% OTP can parse it, and it is the current time in GMT.
    Then = calendar:datetime_to_gregorian_seconds(httpd_util:convert_request_date(binary_to_list(Now))),
    ?assert(abs(calendar:datetime_to_gregorian_seconds(calendar:universal_time()) - Then) < 1800).

%%% Failures.

a_handler_that_raises_is_a_500(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, [get(["/call?", What]) || What <- ["raise", "throw", "exit"]]),
    [{500, _, <<>>} = Response || Response <- responses(Socket, 3)],
    %% The connection stays usable.
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    ?waitMatch(#{crashes := 3, requests := 4}, weir_http:info(?LISTENER)).

a_bad_result_is_a_500(Config) ->
    [?assertMatch({500, _, <<>>}, request(port(Config), get(["/call?", What])), What)
     || What <- ["status", "body", "fields", "improper", "nothing"]],
    ?assertError(badarg, weir_http_nif:response(200, [{<<"name">>, <<"value">>} | improper], 0, 0, <<>>)).

a_constraint_that_fails_is_a_500(Config) ->
    Constraint = fun
        (<<"raise">>) -> error(on_purpose);
        (<<"odd">>) -> nothing;
        (Id) -> {ok, Id}
    end,
    ok = weir_http:set_routes(?LISTENER, [
        {"/:id", weir_http_echo, {reply, 200, [], <<"hello">>}, #{constraints => #{id => Constraint}}}
    ]),
    Socket = connect(port(Config)),
    ok = send(Socket, [get(["/", Id]) || Id <- ["raise", "odd", "right"]]),
    ?assertMatch([{500, _, <<>>}, {500, _, <<>>}, {200, _, <<"hello">>}], responses(Socket, 3)),
    ?waitMatch(#{crashes := 2}, weir_http:info(?LISTENER)).

nothing_can_be_injected(Config) ->
    [?assertMatch({500, Fields, <<>>} when map_size(Fields) =:= 2, request(port(Config), get(["/call?", What])), What)
     || What <- ["crlf", "name", "nul", "length", "coding", "location"]].

a_report_names_the_request_and_not_its_secrets(Config) ->
    Self = self(),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{pid => Self}}),
    %% The report must not contain the arguments of a function without a matching clause.
    ok = weir_http:set_routes(?LISTENER, [{"/call", weir_http_echo, {call, fun(on_purpose) -> nothing end}}]),
    {500, _, _} = request(port(Config), get("/call?raise", "Authorization: hunter2\r\n")),
    receive
        {log, Text} ->
            ?assertMatch({match, _}, re:run(Text, "listener=weir_http_SUITE, method=<<\"GET\">>, path=<<\"/call\">>")),
            ?assertMatch({match, _}, re:run(Text, "function_clause")),
            ?assertEqual(nomatch, re:run(Text, "hunter2"), Text)
    after weir_test_wait:patience() -> error(no_report)
    end.

log(#{msg := {report, Report}, meta := #{report_cb := Format}}, #{config := #{pid := Pid}}) ->
    {Text, Arguments} = Format(Report),
    Pid ! {log, lists:flatten(io_lib:format(Text, Arguments))};
log(_Event, _Config) -> ok.
