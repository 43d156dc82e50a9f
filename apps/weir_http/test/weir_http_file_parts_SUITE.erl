%% Files: conditional requests, ranges and codings.
-module(weir_http_file_parts_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [request/2, request/3, get/1, get/2]).
-import(weir_http_site, [write/3]).

-include("site_suite.hrl").

%% The modification time of the files of weir_http_site.
-define(DATE, "Sun, 06 Nov 1994 08:49:37 GMT").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        conditions_on_tags,
        conditions_on_times,
        a_tag_counts_more_than_a_time,
        conditions_of_other_methods,
        one_part,
        several_parts,
        parts_that_make_no_sense,
        parts_of_the_same_file_only,
        encoded_beside_the_file,
        parts_of_an_encoded_file
    ].

%%% Conditional requests.

conditions_on_tags(Config) ->
    write(Config, "file", <<"hello">>),
    Port = serve(Config, #{fields => [{<<"cache-control">>, <<"no-cache">>}]}),
    {200, #{<<"etag">> := Tag}, _} = request(Port, get("/file")),
    Status = fun(Fields) -> element(1, request(Port, get("/file", Fields))) end,
    {304, Fields, <<>>} = request(Port, get("/file", ["If-None-Match: ", Tag, "\r\n"])),
    ?assertMatch(#{<<"etag">> := Tag, <<"last-modified">> := _, <<"vary">> := _, <<"cache-control">> := _}, Fields),
    ?assertNot(is_map_key(<<"content-type">>, Fields)),
    ?assertEqual(304, Status(["If-None-Match: \"other\" , W/", Tag, "\r\n"])),
    ?assertEqual(304, Status("If-None-Match: *\r\n")),
    ?assertEqual(200, Status("If-None-Match: \"other\"\r\n")),
    ?assertEqual(200, Status(["If-Match: \"other\", ", Tag, "\r\n"])),
    ?assertEqual(200, Status("If-Match: *\r\n")),
    ?assertEqual(412, Status("If-Match: \"other\"\r\n")),
    %% If-Match needs a strong tag.
    ?assertEqual(412, Status(["If-Match: W/", Tag, "\r\n"])).

conditions_on_times(Config) ->
    write(Config, "file", <<"hello">>),
    Port = serve(Config),
    Status = fun(Fields) -> element(1, request(Port, get("/file", [Fields, "\r\n"]))) end,
    ?assertEqual(304, Status("If-Modified-Since: " ?DATE)),
    ?assertEqual(304, Status("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT")),
    ?assertEqual(304, Status("If-Modified-Since: Sun Nov  6 08:49:38 1994")),
    ?assertEqual(200, Status("If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT")),
    ?assertEqual(200, Status("If-Modified-Since: yesterday")),
    ?assertEqual(200, Status("If-Unmodified-Since: " ?DATE)),
    ?assertEqual(412, Status("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT")),
    ?assertEqual(200, Status("If-Unmodified-Since: yesterday")).

a_tag_counts_more_than_a_time(Config) ->
    write(Config, "file", <<"hello">>),
    Port = serve(Config),
    Status = fun(Fields) -> element(1, request(Port, get("/file", Fields))) end,
    ?assertEqual(200, Status("If-None-Match: \"other\"\r\nIf-Modified-Since: " ?DATE "\r\n")),
    ?assertEqual(200, Status("If-Match: *\r\nIf-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n")).

%% RFC 9110, 13.1.2 and 13.1.3: other methods never get "not modified", and ignore If-Modified-Since.
conditions_of_other_methods(Config) ->
    Path = write(Config, "file", <<"hello">>),
    Port = weir_http_site:start(?LISTENER, [{"/file", weir_http_echo, {file, Path}}]),
    {200, #{<<"etag">> := Tag}, _} = request(Port, get("/file")),
    Status = fun(Method, Fields) ->
        Head = [Method, " /file HTTP/1.1\r\nHost: a\r\n", Fields, "\r\n\r\n"],
        element(1, request(Port, Head, #{is_head => Method =:= "HEAD"}))
    end,
    [
        ?assertEqual(
            {Fields, [Read, Read, Other, Other]},
            {Fields, [Status(Method, Fields) || Method <- ["GET", "HEAD", "POST", "PUT"]]}
        )
     || {Fields, Read, Other} <- [
            {["If-None-Match: ", Tag], 304, 412},
            {"If-None-Match: *", 304, 412},
            {"If-None-Match: \"other\"", 200, 200},
            {"If-Modified-Since: " ?DATE, 304, 200},
            {["If-Modified-Since: " ?DATE "\r\nIf-None-Match: \"other\""], 200, 200},
            {"If-Match: \"other\"", 412, 412},
            {"If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT", 412, 412}
        ]
    ].

%%% Ranges.

one_part(Config) ->
    write(Config, "file", <<"0123456789">>),
    Port = serve(Config),
    [
        begin
            {206, Fields, Body} = request(Port, get("/file", ["Range: ", Range, "\r\n"])),
            ?assertEqual({Range, Bytes, Where}, {Range, Body, map_get(<<"content-range">>, Fields)})
        end
     || {Range, Bytes, Where} <- [
            {"bytes=0-0", <<"0">>, <<"bytes 0-0/10">>},
            {"bytes=3-5", <<"345">>, <<"bytes 3-5/10">>},
            {"BYTES= 3-5", <<"345">>, <<"bytes 3-5/10">>},
            {"bytes=7-", <<"789">>, <<"bytes 7-9/10">>},
            {"bytes=-2", <<"89">>, <<"bytes 8-9/10">>},
            {"bytes=-20", <<"0123456789">>, <<"bytes 0-9/10">>},
            {"bytes=8-99999999999", <<"89">>, <<"bytes 8-9/10">>},
            {"bytes=20-30,9-9", <<"9">>, <<"bytes 9-9/10">>}
        ]
    ],
    {416, #{<<"content-range">> := <<"bytes */10">>}, <<>>} = request(Port, get("/file", "Range: bytes=10-\r\n")),
    {416, _, _} = request(Port, get("/file", "Range: bytes=-0\r\n")),
    {200, _, <<>>} = request(Port, "HEAD /file HTTP/1.1\r\nHost: a\r\nRange: bytes=3-5\r\n\r\n", #{is_head => true}).

several_parts(Config) ->
    write(Config, "file.txt", <<"0123456789">>),
    Large = << <<(integer_to_binary(N))/binary, $,>> || N <- lists:seq(1, 100000)>>,
    write(Config, "large.txt", Large),
    Port = serve(Config),
    ?assertEqual(
        [{<<"bytes 5-6/10">>, <<"56">>}, {<<"bytes 0-1/10">>, <<"01">>}, {<<"bytes 9-9/10">>, <<"9">>}],
        multipart(request(Port, get("/file.txt", "Range: bytes=5-6, 0-1,-1\r\n")))
    ),
    [{_, First}, {_, Last}] = multipart(request(Port, get("/large.txt", "Range: bytes=0-199999,300000-499999\r\n"))),
    ?assert(First =:= binary:part(Large, 0, 200000)),
    ?assert(Last =:= binary:part(Large, 300000, 200000)).

multipart({206, #{<<"content-type">> := <<"multipart/byteranges; boundary=", Boundary/binary>>}, Body}) ->
    [<<>> | Parts] = binary:split(Body, <<"\r\n--", Boundary/binary>>, [global]),
    ?assertEqual(<<"--\r\n">>, lists:last(Parts)),
    [
        begin
            [<<"\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: ", Range/binary>>, Bytes] =
                binary:split(Part, <<"\r\n\r\n">>),
            {Range, Bytes}
        end
     || Part <- lists:droplast(Parts)
    ].

%% Malformed or wasteful ranges get the whole file.
parts_that_make_no_sense(Config) ->
    write(Config, "file", <<"0123456789">>),
    Port = serve(Config),
    [
        ?assertMatch(
            {Range, {200, _, <<"0123456789">>}}, {Range, request(Port, get("/file", ["Range: ", Range, "\r\n"]))}
        )
     || Range <- [
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5-3",
            "bytes=1",
            "bytes=+1-3",
            "bytes=1-3-5",
            "lines=0-1",
            "bytes=0-1,x",
            "bytes=0-5,5-6",
            "bytes=0-,0-,0-",
            ["bytes=0-0", lists:duplicate(16, ",9-9")],
            ["bytes=", lists:duplicate(30, $1), "-"]
        ]
    ].

parts_of_the_same_file_only(Config) ->
    write(Config, "file", <<"0123456789">>),
    Port = serve(Config),
    {200, #{<<"etag">> := Tag}, _} = request(Port, get("/file")),
    Status = fun(If) -> element(1, request(Port, get("/file", ["Range: bytes=0-1\r\nIf-Range: ", If, "\r\n"]))) end,
    ?assertEqual(206, Status(Tag)),
    ?assertEqual(206, Status(?DATE)),
    ?assertEqual(200, Status("\"other\"")),
    ?assertEqual(200, Status(["W/", Tag])),
    ?assertEqual(200, Status("Sun, 06 Nov 1994 08:49:38 GMT")).

%%% Codings.

encoded_beside_the_file(Config) ->
    write(Config, "page.html", <<"plain">>),
    write(Config, "page.html.gz", <<"gzipped">>),
    write(Config, "page.html.br", <<"by brotli">>),
    write(Config, "alone.gz", <<"gzipped">>),
    write(Config, "none", <<"none">>),
    Port = serve(Config),
    Coding = fun(Accept) ->
        {200, Fields, Body} = request(Port, get("/page.html", ["Accept-Encoding: ", Accept, "\r\n"])),
        ?assertMatch(
            #{<<"content-type">> := <<"text/html; charset=utf-8">>, <<"vary">> := <<"accept-encoding">>}, Fields
        ),
        {maps:get(<<"content-encoding">>, Fields, none), Body}
    end,
    [
        ?assertEqual({Accept, {<<"br">>, <<"by brotli">>}}, {Accept, Coding(Accept)})
     || Accept <- ["gzip, br", "BR", "*", "br;q=0.1"]
    ],
    [
        ?assertEqual({Accept, {<<"gzip">>, <<"gzipped">>}}, {Accept, Coding(Accept)})
     || Accept <- ["gzip", "deflate,gzip;q=1.0", "br;q=0, gzip", "*, br;q=0"]
    ],
    [
        ?assertEqual({Accept, {none, <<"plain">>}}, {Accept, Coding(Accept)})
     || Accept <- ["", "identity", "gzip;q=0", "gzip;q=0.000, br ; q=0", "*;q=0", "deflate"]
    ],
    %% The variant has its own tag.
    {_, #{<<"etag">> := Plain}, _} = request(Port, get("/page.html")),
    {_, #{<<"etag">> := Gzipped}, _} = request(Port, get("/page.html", "Accept-Encoding: gzip\r\n")),
    ?assertNotEqual(Plain, Gzipped),
    {304, _, _} = request(Port, get("/page.html", ["Accept-Encoding: gzip\r\nIf-None-Match: ", Gzipped, "\r\n"])),
    %% Without the original, the variant is not served for its name.
    {404, _, _} = request(Port, get("/alone", "Accept-Encoding: gzip\r\n")),
    {200, #{<<"content-type">> := <<"application/gzip">>}, _} = request(
        Port, get("/alone.gz", "Accept-Encoding: gzip\r\n")
    ),
    {200, _, <<"none">>} = request(Port, get("/none", "Accept-Encoding: gzip\r\n")).

parts_of_an_encoded_file(Config) ->
    write(Config, "page", <<"0123456789">>),
    write(Config, "page.gz", <<"abcde">>),
    Port = serve(Config),
    {206, #{<<"content-range">> := <<"bytes 1-2/5">>, <<"content-encoding">> := <<"gzip">>}, <<"bc">>} =
        request(Port, get("/page", "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n")).
