%% How files are sent: large and small, to slow clients, and while they change.
-module(weir_http_files_sent_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, connect/2, send/2, close/1, response/1, request/2, is_closed/1, get/1, get/2]).
-import(weir_http_site, [write/3]).
-import(weir_test_wait, [wait_until/1]).

-include("site_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        values_need_not_be_utf8,
        an_empty_file,
        a_large_file_and_the_next_request,
        a_large_file_for_an_old_client,
        a_file_waits_for_its_client,
        a_file_that_becomes_shorter_closes_the_connection,
        a_replaced_file_is_seen_after_a_second,
        more_files_than_are_kept_open,
        requests_behind_a_file_wait,
        a_file_that_is_not_in_memory,
        the_files_of_a_listener_that_is_stopped_are_sent,
        a_client_that_goes_away_leaves_no_file_open
    ].

%%% Bytes.

values_need_not_be_utf8(Config) ->
    write(Config, "a.txt", <<"hello">>),
    Port = serve(Config),
    [
        {200, _, <<"hello">>} = request(Port, get("/a.txt", [Name, <<": ", 255, ", x", 165, "=\r\n">>]))
     || Name <- ["Accept-Encoding", "Range", "If-None-Match", "If-Range", "If-Modified-Since"]
    ].

an_empty_file(Config) ->
    write(Config, "file", <<>>),
    Port = serve(Config),
    {200, #{<<"content-length">> := <<"0">>}, <<>>} = request(Port, get("/file")),
    {416, #{<<"content-range">> := <<"bytes */0">>}, <<>>} = request(Port, get("/file", "Range: bytes=0-\r\n")).

a_large_file_and_the_next_request(Config) ->
    Large = rand:bytes(3000001),
    write(Config, "large", Large),
    write(Config, "small", <<"small">>),
    Port = serve(Config),
    Socket = connect(Port),
    ok = send(Socket, [get("/large"), get("/small"), get("/large", "Range: bytes=1000-2999999\r\n"), get("/small")]),
    {200, #{<<"content-length">> := <<"3000001">>}, Body} = response(Socket),
    ?assert(Large =:= Body),
    {200, _, <<"small">>} = response(Socket),
    {206, _, Part} = response(Socket),
    ?assert(binary:part(Large, 1000, 2999000) =:= Part),
    {200, _, <<"small">>} = response(Socket),
    ?waitMatch(#{requests := 4, crashes := 0}, weir_http:info(?LISTENER)).

a_large_file_for_an_old_client(Config) ->
    Large = rand:bytes(300000),
    write(Config, "large", Large),
    Port = serve(Config),
    Socket = connect(Port),
    ok = send(Socket, "GET /large HTTP/1.0\r\n\r\n"),
    [Head, Body] = binary:split(weir_http_client:recv_all(Socket), <<"\r\n\r\n">>),
    ?assert(Large =:= Body),
    ?assertMatch({match, _}, re:run(Head, "\r\ncontent-length: 300000\r\n")),
    %% It stays open on request.
    Kept = connect(Port),
    ok = send(Kept, lists:duplicate(2, "GET /large HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")),
    [?assertMatch({200, #{<<"connection">> := <<"keep-alive">>}, Large}, response(Kept)) || _ <- [1, 2]].

a_file_waits_for_its_client(Config) ->
    Path = write(Config, "large", <<>>),
    sparse(Path, 20000000),
    Port = serve(Config),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/large")),
    {ok, Begin} = weir_http_client:recv(Socket, weir_test_wait:patience()),
    [{Connection, _}] = weir:connections(?LISTENER),
    %% Bytes that the kernels do not take stay in the file and use no memory.
    Before = erlang:memory(binary),
    timer:sleep(40),
    {ok, [{send_pend, Pending}]} = inet:getstat(Connection, [send_pend]),
    ?assert(Pending > 10000000),
    ?assert(erlang:memory(binary) < Before + 1000000),
    ok = close(Socket),
    ?assert(byte_size(Begin) > 0).

sparse(Path, Size) ->
    {ok, File} = file:open(Path, [write, raw]),
    {ok, _} = file:position(File, Size),
    ok = file:truncate(File),
    ok = file:close(File).

a_file_that_becomes_shorter_closes_the_connection(Config) ->
    Path = write(Config, "large", <<>>),
    sparse(Path, 20000000),
    Port = serve(Config),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/large")),
    {ok, Begin} = weir_http_client:recv(Socket, weir_test_wait:patience()),
    sparse(Path, 10),
    Text = <<Begin/binary, (weir_http_client:recv_all(Socket))/binary>>,
    ?assert(byte_size(Text) < 20000000),
    ?waitEqual(1, map_get(cut_off, weir_http:info(?LISTENER))),
    ?assertMatch(#{crashes := 0}, weir_http:info(?LISTENER)).

a_replaced_file_is_seen_after_a_second(Config) ->
    Path = write(Config, "file", <<"before">>),
    Port = serve(Config),
    {200, _, <<"before">>} = request(Port, get("/file")),
    ok = file:rename(write(Config, "new", <<"behind it">>), Path),
    ?waitEqual(<<"behind it">>, element(3, request(Port, get("/file")))),
    ok = file:delete(Path),
    ?waitEqual(404, element(1, request(Port, get("/file")))),
    %% It is closed without further requests.
    ?waitEqual(0, open_files(Path ++ " (deleted)")).

%% Files beyond the limit of the cache are served too, and no descriptor stays open.
more_files_than_are_kept_open(Config) ->
    Names = [integer_to_list(N) || N <- lists:seq(1, 400)],
    [write(Config, ["many/", Name], Name) || Name <- Names],
    Port = serve(Config),
    Socket = connect(Port),
    Directory = filename:join(?config(www, Config), "many"),
    [
        begin
            ok = send(Socket, get(["/many/", Name])),
            ?assertMatch({200, _, _}, response(Socket))
        end
     || Name <- Names ++ Names
    ],
    %% A file that is not cached is closed when the reactor collects its garbage.
    ?assert(ets:info(weir_http_open_files, size) =< 256),
    ?waitEqual([], open_files_in(Directory)).

%% Requests after a file are answered only when the client has read it.
requests_behind_a_file_wait(Config) ->
    Path = write(Config, "large", <<>>),
    sparse(Path, 12000000),
    write(Config, "small", <<"small">>),
    Port = serve(Config),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, [get("/large"), get("/small")]),
    ok = wait_until(fun() -> open_files(Path) > 0 end),
    timer:sleep(40),
    ?assertMatch(#{requests := 1}, weir_http:info(?LISTENER)),
    ok = weir_http_client:take_more(Socket),
    {200, _, Body} = response(Socket),
    ?assertEqual(12000000, byte_size(Body)),
    {200, _, <<"small">>} = response(Socket).

%% Other connections do not wait, and the file is sent.
a_file_that_is_not_in_memory(Config) ->
    Bytes = rand:bytes(3000000),
    Path = write(Config, "file", Bytes),
    [] = os:cmd("dd of='" ++ Path ++ "' oflag=nocache conv=notrunc,fdatasync count=0 status=none"),
    Port = serve(Config),
    {200, _, Body} = request(Port, get("/file")),
    ?assert(Bytes =:= Body).

the_files_of_a_listener_that_is_stopped_are_sent(Config) ->
    Bytes = rand:bytes(8000000),
    write(Config, "file", Bytes),
    Port = serve(Config),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/file")),
    {ok, Begin} = weir_http_client:recv(Socket, weir_test_wait:patience()),
    spawn_link(fun() -> ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()) end),
    put({rest, Socket}, Begin),
    ok = weir_http_client:take_more(Socket),
    {200, _, Body} = response(Socket),
    ?assert(Bytes =:= Body),
    ?assert(is_closed(Socket)).

a_client_that_goes_away_leaves_no_file_open(Config) ->
    Path = write(Config, "large", <<>>),
    sparse(Path, 20000000),
    Port = serve(Config),
    Sockets = [connect(Port, [{recbuf, 4096}]) || _ <- lists:seq(1, 5)],
    [
        begin
            ok = send(Socket, get("/large")),
            {ok, _} = weir_http_client:recv(Socket, weir_test_wait:patience())
        end
     || Socket <- Sockets
    ],
    %% Opened once, or several times by requests before it was cached.
    ?assert(lists:member(open_files(Path), [1, 2, 3, 4, 5])),
    %% Until it is no longer in the cache, which has got all it was sent.
    _ = sys:get_state(weir_http_open_files),
    ?waitEqual(0, ets:info(weir_http_open_files, size)),
    ?assert(open_files(Path) > 0),
    [ok = close(Socket) || Socket <- Sockets],
    ?waitEqual(0, open_files(Path)),
    ?assertMatch(#{crashes := 0}, weir_http:info(?LISTENER)).

open_files(Path) ->
    length([Open || Open <- open_files(), Open =:= Path]).

open_files_in(Directory) -> [Open || Open <- open_files(), filename:dirname(Open) =:= Directory].

open_files() ->
    {ok, Descriptors} = file:list_dir("/proc/self/fd"),
    [Path || Descriptor <- Descriptors, {ok, Path} <- [file:read_link("/proc/self/fd/" ++ Descriptor)]].
