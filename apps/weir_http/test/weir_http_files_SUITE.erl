%% Files of a directory and of handlers: which are served, with which fields, and which are not.
-module(weir_http_files_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, response/2, request/2, is_closed/1, get/1, get/2]).
-import(weir_http_site, [write/3]).

-include("site_suite.hrl").

%% The modification time of the files of weir_http_site.
-define(DATE, "Sun, 06 Nov 1994 08:49:37 GMT").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_file_with_its_type_and_validators,
        types_follow_from_names,
        head_is_get_without_the_body,
        other_methods_are_refused,
        an_index_and_a_redirect_to_it,
        nothing_outside_the_directory,
        hidden_names_are_not_served,
        symbolic_links_by_option,
        what_is_no_file_is_not_found,
        a_file_that_may_not_be_read,
        files_of_handlers,
        fields_of_a_handler_count,
        wrong_options
    ].

%%% The directory.

a_file_with_its_type_and_validators(Config) ->
    write(Config, "a/page.html", <<"<p>Hello">>),
    Port = serve(Config, #{fields => [{<<"cache-control">>, <<"no-cache">>}]}),
    {200, Fields, <<"<p>Hello">>} = request(Port, get("/a/page.html")),
    ?assertMatch(
        #{
            <<"content-type">> := <<"text/html; charset=utf-8">>,
            <<"content-length">> := <<"8">>,
            <<"last-modified">> := <<?DATE>>,
            <<"etag">> := <<"\"2EBC98A1-8\"">>,
            <<"accept-ranges">> := <<"bytes">>,
            <<"vary">> := <<"accept-encoding">>,
            <<"cache-control">> := <<"no-cache">>,
            <<"date">> := _
        },
        Fields
    ),
    %% However it is encoded.
    {200, _, <<"<p>Hello">>} = request(Port, get("/b/../%61/./page%2Ehtml?query")).

types_follow_from_names(Config) ->
    Types = [
        {"a.css", <<"text/css; charset=utf-8">>},
        {"a.js", <<"text/javascript; charset=utf-8">>},
        {"a.JSON", <<"application/json">>},
        {"a.svg", <<"image/svg+xml">>},
        {"a.wasm", <<"application/wasm">>},
        {"a.woff2", <<"font/woff2">>},
        {"a.tar.gz", <<"application/gzip">>},
        {"a.nobody-knows", <<"application/octet-stream">>},
        {"README", <<"application/octet-stream">>}
    ],
    [write(Config, Name, <<"x">>) || {Name, _} <- Types],
    Port = serve(Config),
    [
        ?assertMatch({Name, {200, #{<<"content-type">> := Type}, _}}, {Name, request(Port, get(["/", Name]))})
     || {Name, Type} <- Types
    ].

head_is_get_without_the_body(Config) ->
    write(Config, "small", <<"small">>),
    write(Config, "large", binary:copy(<<"x">>, 200000)),
    Port = serve(Config),
    Socket = connect(Port),
    [
        begin
            ok = send(Socket, ["HEAD ", Path, " HTTP/1.1\r\nHost: a\r\n\r\n", get(Path)]),
            {200, Head, <<>>} = response(Socket, #{is_head => true}),
            {200, Get, Body} = response(Socket),
            ?assertEqual(maps:remove(<<"date">>, Get), maps:remove(<<"date">>, Head)),
            ?assertEqual(byte_size(Body), binary_to_integer(map_get(<<"content-length">>, Head)))
        end
     || Path <- ["/small", "/large"]
    ].

other_methods_are_refused(Config) ->
    write(Config, "a", <<"x">>),
    Port = serve(Config),
    {405, #{<<"allow">> := <<"GET, HEAD, OPTIONS">>}, _} = request(Port, "DELETE /a HTTP/1.1\r\nHost: a\r\n\r\n").

an_index_and_a_redirect_to_it(Config) ->
    write(Config, "index.html", <<"top">>),
    write(Config, "a b/index.html", <<"below">>),
    write(Config, "empty/file", <<>>),
    Port = serve(Config),
    {200, _, <<"top">>} = request(Port, get("/")),
    {200, _, <<"below">>} = request(Port, get("/a%20b/")),
    {301, #{<<"location">> := <<"./a%20b/">>}, _} = request(Port, get("/a%20b")),
    {301, #{<<"location">> := <<"./a%20b/?x=1">>}, _} = request(Port, get("/a%20b?x=1")),
    {404, _, _} = request(Port, get("/empty/")),
    %% The path cannot redirect to another host.
    {404, _, _} = request(Port, get("//empty")).

nothing_outside_the_directory(Config) ->
    write(Config, "../secret", <<"secret">>),
    write(Config, "a/file", <<"inside">>),
    Port = serve(Config),
    Ways = [
        "/../secret", "/a/../../secret", "/%2e%2e/secret", "/.%2e/secret", "/a/%2E%2E/%2e%2e/secret", "/..%2fsecret",
        "/a/..%2f..%2fsecret", "/%2e%2e%2fsecret", "/..%00/secret", "/a/file%00", "/a/file%00.html", "/%2fetc/passwd",
        "//etc/passwd", "/a//file", "/..%5csecret", "/a%2ffile", "/%252e%252e/secret"
    ],
    [
        begin
            {Status, _, Body} = request(Port, get(Way)),
            ?assert(Status =:= 404 orelse Status =:= 400, Way),
            ?assertEqual(nomatch, binary:match(Body, <<"secret">>))
        end
     || Way <- Ways
    ],
    {200, _, <<"inside">>} = request(Port, get("/a/file")).

hidden_names_are_not_served(Config) ->
    write(Config, ".git/config", <<"secret">>),
    write(Config, "a/.env", <<"secret">>),
    write(Config, ".well-known/security.txt", <<"public">>),
    Port = serve(Config),
    [
        ?assertMatch({404, _, <<>>}, request(Port, get(Path)), Path)
     || Path <- ["/.git/config", "/.git", "/a/.env", "/%2egit/config"]
    ],
    {200, _, <<"public">>} = request(Port, get("/.well-known/security.txt")).

symbolic_links_by_option(Config) ->
    write(Config, "../outside/file", <<"outside">>),
    write(Config, "file", <<"inside">>),
    write(Config, "page", <<"plain">>),
    Www = ?config(www, Config),
    [
        ok = file:make_symlink(To, filename:join(Www, Name))
     || {Name, To} <- [
            {"directory", "../outside"}, {"link", "../outside/file"}, {"near", "file"}, {"page.gz", "../outside/file"}
        ]
    ],
    Paths = ["/directory/file", "/directory", "/link", "/near"],
    Port = serve(Config),
    [?assertMatch({404, _, _}, request(Port, get(Path)), Path) || Path <- Paths],
    %% A link beside the file is not used as a variant either.
    {200, _, <<"plain">>} = request(Port, get("/page", "Accept-Encoding: gzip\r\n")),
    ok = weir_http:set_routes(?LISTENER, [weir_http_directory:route("/", Www, #{symbolic_links => follow})]),
    ?assertMatch(
        [{200, _, <<"outside">>}, {301, _, _}, {200, _, <<"outside">>}, {200, _, <<"inside">>}],
        [request(Port, get(Path)) || Path <- Paths]
    ).

%% Opening a pipe would block until there is a writer.
what_is_no_file_is_not_found(Config) ->
    write(Config, "file", <<"x">>),
    [] = os:cmd("mkfifo '" ++ filename:join(?config(www, Config), "pipe") ++ "'"),
    Port = serve(Config, #{symbolic_links => follow}),
    [
        ?assertMatch({404, _, <<>>}, request(Port, get(Path)), Path)
     || Path <- ["/pipe", "/nothing", "/file/below", ["/", lists:duplicate(300, $a)]]
    ].

a_file_that_may_not_be_read(Config) ->
    Path = write(Config, "file", <<"x">>),
    ok = file:change_mode(Path, 8#000),
    Port = serve(Config),
    case file:read_file(Path) of
        {error, eacces} -> {403, _, <<>>} = request(Port, get("/file"));
        {ok, _} -> {skip, "root may read every file"}
    end.

%%% Handlers.

files_of_handlers(Config) ->
    Path = write(Config, "file.txt", <<"hello">>),
    Missing = filename:join(?config(www, Config), "missing"),
    Port = weir_http_site:start(?LISTENER, [
        {"/direct", weir_http_echo, {file, Path}},
        {"/process", weir_http_serving, fun(_) -> {file, list_to_binary(Path)} end},
        {"/missing", weir_http_echo, {file, Missing}},
        {"/zero", weir_http_echo, {file, <<"a", 0, "b">>}},
        {"/reply", weir_http_echo, {reply, 200, [], <<"reply">>}}
    ]),
    Socket = connect(Port),
    ok = send(Socket, [get(P) || P <- ["/reply", "/direct", "/reply", "/process", "/missing", "/zero", "/reply"]]),
    {200, _, <<"reply">>} = response(Socket),
    {200, #{<<"content-type">> := <<"text/plain; charset=utf-8">>}, <<"hello">>} = response(Socket),
    {200, _, <<"reply">>} = response(Socket),
    {200, _, <<"hello">>} = response(Socket),
    {404, _, <<>>} = response(Socket),
    {404, _, <<>>} = response(Socket),
    {200, _, <<"reply">>} = response(Socket),
    ok = send(Socket, get("/direct", "Range: bytes=1-2\r\nConnection: close\r\n")),
    {206, #{<<"connection">> := <<"close">>}, <<"el">>} = response(Socket),
    ?assert(is_closed(Socket)).

fields_of_a_handler_count(Config) ->
    Path = write(Config, "file.txt", <<"hello">>),
    Fields = [{<<"Content-Type">>, <<"application/pdf">>}, {<<"content-disposition">>, <<"attachment">>}],
    Port = weir_http_site:start(?LISTENER, [
        {"/", weir_http_echo, {file, Path, Fields}},
        {"/bad", weir_http_echo, {file, Path, [{<<"a">>, <<"b\r\nc: d">>}]}}
    ]),
    {200, #{<<"content-type">> := <<"application/pdf">>, <<"content-disposition">> := <<"attachment">>}, _} = request(
        Port, get("/")
    ),
    {500, _, <<>>} = request(Port, get("/bad")).

wrong_options(Config) ->
    Www = ?config(www, Config),
    ?assertError({bad_option, directory, "nowhere", _}, weir_http_directory:route("/", "nowhere", #{})),
    ?assertError({bad_option, symbolic_links, yes, _}, weir_http_directory:route("/", Www, #{symbolic_links => yes})),
    ?assertError({bad_option, fields, none, _}, weir_http_directory:route("/", Www, #{fields => none})),
    ?assertError({bad_option, index, "a", _}, weir_http_directory:route("/", Www, #{index => "a"})).
