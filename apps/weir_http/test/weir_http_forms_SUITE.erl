%% Forms in parts in requests: whole in a direct handler, and in pieces in a process.
-module(weir_http_forms_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    parts_at_once/1,
    parts_as_they_come/1,
    a_part_is_skipped/1,
    a_large_file_is_not_kept/1,
    what_is_wrong_has_a_status/1,
    limits/1,
    a_form_ends_before_its_body/1,
    pairs_of_a_form/1,
    curl_sends_a_form/1
]).

-import(weir_http_client, [connect/1, send/2, response/1, request/2]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        parts_at_once,
        parts_as_they_come,
        a_part_is_skipped,
        a_large_file_is_not_kept,
        what_is_wrong_has_a_status,
        limits,
        a_form_ends_before_its_body,
        pairs_of_a_form,
        curl_sends_a_form
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Stream = #{body => stream, max_body => 100000000},
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => {127, 0, 0, 1}}, [
        {"/whole", weir_http_echo, {call, fun whole/1}},
        {"/pairs", weir_http_echo, {call, fun pairs/1}},
        {"/stream", weir_http_serving, fun(Request) -> stream(Request, #{max_parts => 3, max_part => 1000000}) end,
            Stream},
        {"/sizes", weir_http_serving, fun(Request) -> sizes(Request) end, Stream},
        {"/names", weir_http_serving, fun(Request) -> names(Request) end, Stream}
    ]),
    [{port, weir:get_port(?LISTENER)} | Config].

end_per_suite(_Config) -> weir_http:stop_listener(?LISTENER).

%%% Handlers.

whole(Request) -> answered(weir_http_multipart:parts(Request, #{})).

pairs(Request) ->
    case weir_http_request:form(Request) of
        {ok, Pairs} -> {reply, 200, [], integer_to_binary(length(Pairs))};
        error -> {reply, 400, [], <<>>}
    end.

answered({ok, Parts}) -> {reply, 200, [], term_to_binary(Parts)};
answered({error, Reason}) -> {reply, weir_http_multipart:status(Reason), [], io_lib:format("~p", [Reason])}.

stream(Request, Options) -> answered(weir_http_multipart:parts(Request, Options)).

%% Skips the data of all parts.
names(Request) ->
    {ok, Form} = weir_http_multipart:new(Request, #{}),
    answered(names(weir_http_multipart:read_part(Form), [])).

names({part, #{name := Name}, Form}, Names) -> names(weir_http_multipart:read_part(Form), [Name | Names]);
names(done, Names) -> {ok, lists:reverse(Names)};
names({error, _} = Error, _Names) -> Error.

%% Also returns the most memory used.
sizes(Request) ->
    {ok, Form} = weir_http_multipart:new(Request, #{}),
    {part, _, Part} = weir_http_multipart:read_part(Form),
    {Size, Most} = size_of(weir_http_multipart:read(Part), 0, 0),
    {reply, 200, [], term_to_binary({Size, Most})}.

size_of({more, Bytes, Form}, Size, Most) ->
    %% Garbage does not count: when it is collected depends on the release.
    true = erlang:garbage_collect(),
    {binary, Binaries} = process_info(self(), binary),
    Held = lists:sum([Length || {_, Length, _} <- lists:usort(Binaries)]),
    size_of(weir_http_multipart:read(Form), Size + byte_size(Bytes), max(Most, Held));
size_of({done, _}, Size, Most) ->
    {Size, Most}.

%%% Cases.

post(Path, Type, Body) ->
    [
        "POST ",
        Path,
        " HTTP/1.1\r\nHost: a\r\nContent-Type: ",
        Type,
        "\r\nContent-Length: ",
        integer_to_list(iolist_size(Body)),
        "\r\n\r\n",
        Body
    ].

form(Path, Parts) -> post(Path, "multipart/form-data; boundary=\"a b\"", body(Parts)).

body(Parts) ->
    [[["--a b\r\nContent-Disposition: ", Head, "\r\n\r\n", Data, "\r\n"] || {Head, Data} <- Parts], "--a b--\r\n"].

port(Config) -> proplists:get_value(port, Config).

two() ->
    [
        {"form-data; name=\"x\"", "1"},
        {
            <<"form-data; name=\"caf", 195, 169,
                "\"; filename=\"C:\\a \\\"b\\\".txt\"\r\nContent-Type: text/x; y=z\r\nContent-Length: 5">>,
            "a\r\n\r\nb"
        }
    ].

seen() ->
    [
        {
            #{
                name => <<"x">>,
                type => <<"text/plain">>,
                fields => [{<<"content-disposition">>, <<"form-data; name=\"x\"">>}]
            },
            <<"1">>
        },
        {
            #{
                name => <<"caf", 195, 169>>,
                filename => <<"C:\\a \"b\".txt">>,
                type => <<"text/x; y=z">>,
                fields => [
                    {<<"content-disposition">>,
                        <<"form-data; name=\"caf", 195, 169, "\"; filename=\"C:\\a \\\"b\\\".txt\"">>},
                    {<<"content-type">>, <<"text/x; y=z">>},
                    {<<"content-length">>, <<"5">>}
                ]
            },
            <<"a\r\n\r\nb">>
        }
    ].

parts_at_once(Config) ->
    {200, _, Body} = request(port(Config), form("/whole", two())),
    ?assertEqual(seen(), binary_to_term(Body)).

parts_as_they_come(Config) ->
    Socket = connect(port(Config)),
    [
        begin
            ok = send(Socket, Piece),
            timer:sleep(1)
        end
     || <<Piece:7/binary>> <= <<(iolist_to_binary(form("/stream", two())))/binary, "\r\n\r\n\r\n">>
    ],
    {200, _, Body} = response(Socket),
    ?assertEqual(seen(), binary_to_term(Body)).

a_part_is_skipped(Config) ->
    {200, _, Body} = request(
        port(Config), form("/names", [{"form-data; name=a", binary:copy(<<"x">>, 300000)}, {"form-data; name=b", ""}])
    ),
    ?assertEqual([<<"a">>, <<"b">>], binary_to_term(Body)).

a_large_file_is_not_kept(Config) ->
    {200, _, Body} = request(
        port(Config), form("/sizes", [{"form-data; name=a; filename=b", binary:copy(<<"\r\n--a">>, 4000000)}])
    ),
    {Size, Most} = binary_to_term(Body),
    ?assertEqual(20000000, Size),
    %% A few pieces, not the whole file. Pieces are larger on a busy machine.
    ?assert(Most < 5000000, Most).

what_is_wrong_has_a_status(Config) ->
    [
        ?assertMatch({Status, _, Reason}, request(port(Config), Request))
     || Path <- ["/whole", "/stream"],
        {Status, Reason, Request} <- [
            {415, <<"not_multipart">>, post(Path, "text/plain", "")},
            {415, <<"not_multipart">>, post(Path, "multipart/form-data", "--a--")},
            {415, <<"not_multipart">>, post(Path, ["multipart/form-data; boundary=", lists:duplicate(71, $a)], "")},
            {400, <<"{bad_multipart,incomplete}">>,
                post(
                    Path,
                    "multipart/form-data; boundary=a",
                    "--a\r\nContent-Disposition: form-data; name=a\r\n\r\nb"
                )},
            {400, <<"{bad_multipart,incomplete}">>, post(Path, "multipart/form-data; boundary=a", "")},
            {400, <<"{bad_multipart,boundary}">>, post(Path, "multipart/form-data; boundary=a", "--ab\r\n")},
            {400, <<"{bad_multipart,disposition}">>, form(Path, [{"form-data", ""}])},
            {400, <<"{bad_multipart,disposition}">>, form(Path, [{"attachment; name=a", ""}])},
            {400, <<"{bad_multipart,disposition}">>,
                form(Path, [{"form-data; name=a\r\nContent-Disposition: form-data; name=b", ""}])},
            {400, <<"{bad_multipart,fields}">>, form(Path, [{"form-data; name=a\r\n b", ""}])}
        ]
    ].

limits(Config) ->
    Part = {"form-data; name=a", "b"},
    {200, _, _} = request(port(Config), form("/stream", [Part, Part, Part])),
    {413, _, <<"{too_large,parts}">>} = request(port(Config), form("/stream", [Part, Part, Part, Part])),
    {200, _, _} = request(port(Config), form("/stream", [{"form-data; name=a", binary:copy(<<"x">>, 1000000)}])),
    {413, _, <<"{too_large,part}">>} = request(
        port(Config), form("/stream", [{"form-data; name=a", binary:copy(<<"x">>, 1000001)}])
    ),
    {413, _, <<"{too_large,part_head}">>} = request(
        port(Config), form("/stream", [{["form-data; name=", binary:copy(<<"x">>, 4096)], ""}])
    ),
    ?assertError({bad_option, max_parts, 0, _}, weir_http_multipart:new(none, #{max_parts => 0})),
    ?assertError({bad_option, other, 1, _}, weir_http_multipart:new(none, #{other => 1})).

%% Bytes after the last boundary are not awaited: the connection is closed after the response.
a_form_ends_before_its_body(Config) ->
    Socket = connect(port(Config)),
    ok = send(Socket, [
        "POST /stream HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=a\r\n"
        "Content-Length: 1000\r\n\r\n--a--"
    ]),
    {200, #{<<"connection">> := <<"close">>}, Body} = response(Socket),
    ?assertEqual([], binary_to_term(Body)).

pairs_of_a_form(Config) ->
    Pairs = fun(N) ->
        post("/pairs", "application/x-www-form-urlencoded", lists:join($&, lists:duplicate(N, "a=b")))
    end,
    {200, _, <<"1000">>} = request(port(Config), Pairs(1000)),
    {400, _, _} = request(port(Config), Pairs(1001)).

curl_sends_a_form(Config) ->
    case os:find_executable("curl") of
        false ->
            {skip, "not here: curl"};
        _ ->
            File = filename:join(proplists:get_value(priv_dir, Config), "up load.bin"),
            Data = rand:bytes(200000),
            ok = file:write_file(File, Data),
            Out = filename:join(proplists:get_value(priv_dir, Config), "out"),
            Url = " http://127.0.0.1:" ++ integer_to_list(port(Config)) ++ "/stream",
            "200" = os:cmd("curl -s -o '" ++ Out ++ "' -w '%{http_code}' -F a=b -F 'file=@" ++ File ++ "'" ++ Url),
            {ok, Body} = file:read_file(Out),
            ?assertMatch(
                [
                    {#{name := <<"a">>}, <<"b">>},
                    {#{name := <<"file">>, filename := <<"up load.bin">>, type := <<"application/octet-stream">>}, Data}
                ],
                binary_to_term(Body)
            )
    end.
