%% Unchanged third-party HTTP servers with real clients: the bytes are the same on OTP's sockets and on Weir's. Each
%% server runs in its own VM.
-module(weir_with_http_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([
    the_listening_socket_is_the_one_under_test/1,
    curl_gets_a_page/1,
    curl_keeps_the_connection/1,
    curl_uploads_megabytes/1,
    curl_uploads_in_chunks/1,
    curl_downloads_a_file/1,
    httpc_gets_a_page/1,
    requests_come_in_pieces/1,
    requests_come_together/1,
    a_client_goes_away_within_its_request/1,
    wrk_finds_no_error/1,
    a_browser_shows_a_page/1,
    all_sockets_are_gone_afterwards/1
]).

-define(LOCALHOST, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [{group, weir_with_mochiweb}, {group, weir_with_yaws}, {group, weir_with_httpd}, {group, weir_with_cowboy}].

groups() ->
    Cases = [
        the_listening_socket_is_the_one_under_test,
        curl_gets_a_page,
        curl_keeps_the_connection,
        curl_uploads_megabytes,
        curl_uploads_in_chunks,
        curl_downloads_a_file,
        httpc_gets_a_page,
        requests_come_in_pieces,
        requests_come_together,
        a_client_goes_away_within_its_request,
        wrk_finds_no_error,
        a_browser_shows_a_page,
        all_sockets_are_gone_afterwards
    ],
    Servers = [{Server, [], [{group, stock}, {group, weir}]} || {group, Server} <- all()],
    [{stock, [], Cases}, {weir, [], Cases} | Servers].

init_per_suite(Config) ->
    Directory = filename:join(?config(priv_dir, Config), "files"),
    ok = filelib:ensure_path(Directory),
    Data = weir_with:bytes(3_000_000),
    ok = file:write_file(filename:join(Directory, "data.bin"), Data),
    ok = file:write_file(filename:join(Directory, "page.html"),
        "<!doctype html><title>page</title><p id=p>before</p>"
        "<script>document.getElementById('p').textContent = 'after ' + (6 * 7)</script>"),
    Sum = base64:encode(crypto:hash(sha256, Data)),
    case weir_with:needs(["curl"], Config) of
        {skip, _} = Skip -> Skip;
        _ -> browser(Config) ++ [{directory, Directory}, {sum, Sum} | Config]
    end.

end_per_suite(Config) ->
    [ok = weir_compatibility_chromium:stop(Browser) || {browser, Browser} <- Config],
    ok.

browser(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            [];
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser")
            ),
            [{browser, Browser}]
    end.

init_per_group(Backend, Config) when Backend =:= stock; Backend =:= weir ->
    Server = ?config(server, Config),
    Node = weir_with:start_node(),
    Port = weir_with:call(Node, weir_with, hold, [Server, start, [Backend, ?config(directory, Config)]]),
    true = unlink(Node),
    [{on, Backend}, {node, Node}, {port, Port} | Config];
init_per_group(Server, Config) ->
    weir_with:needs(Server:needs(), [{server, Server} | Config]).

end_per_group(Backend, Config) when Backend =:= stock; Backend =:= weir ->
    peer:stop(?config(node, Config));
end_per_group(_Server, _Config) ->
    ok.

%% Cases

the_listening_socket_is_the_one_under_test(Config) ->
    ?assertEqual(?config(on, Config) =:= weir, weir_with:on_weir(?config(node, Config), ?config(port, Config))).

curl_gets_a_page(Config) ->
    ?assertEqual({0, <<"hello world">>}, curl(Config, [url(hello, Config)])).

curl_keeps_the_connection(Config) ->
    Count = ["-w", " %{num_connects}\n"],
    {0, Output} = curl(Config, Count ++ [url(hello, Config), url(hello, Config), url(hello, Config)]),
    ?assertEqual(<<"hello world 1\nhello world 0\nhello world 0\n">>, Output).

curl_uploads_megabytes(Config) ->
    ?assertEqual({0, sum(Config)}, curl(Config, ["--data-binary", [$@ | file(Config)], url(sum, Config)])).

curl_uploads_in_chunks(Config) ->
    Chunked = ["-X", "POST", "-H", "Transfer-Encoding: chunked", "-T", file(Config)],
    ?assertEqual({0, sum(Config)}, curl(Config, Chunked ++ [url(sum, Config)])).

curl_downloads_a_file(Config) ->
    Copy = filename:join(?config(priv_dir, Config), "copy"),
    ?assertEqual({0, <<>>}, curl(Config, ["--output", Copy, url({file, "data.bin"}, Config)])),
    {ok, Data} = file:read_file(Copy),
    ?assertEqual(sum(Config), base64:encode(crypto:hash(sha256, Data))).

%% httpc uses the same kind of sockets as the server.
httpc_gets_a_page(Config) ->
    {ok, _} = application:ensure_all_started(inets),
    Backend = [{socket_opts, [{tcp_module, weir_tcp}]} || ?config(on, Config) =:= weir],
    [
        ?assertMatch({ok, {{_, 200, _}, _, "hello world"}}, httpc:request(get, {url(hello, Config), []}, [], Backend))
     || _ <- [1, 2, 3]
    ].

requests_come_in_pieces(Config) ->
    Socket = connect(Config),
    [
        begin
            ok = gen_tcp:send(Socket, Piece),
            %% Pieces should arrive one by one. On a busy machine some arrive together, which is fine.
            timer:sleep(2)
        end
     || <<Piece:7/binary>> <= request_in_units(7, Config)
    ],
    _ = hello(Socket, <<>>),
    ok = gen_tcp:close(Socket).

request_in_units(Unit, Config) ->
    Missing = (Unit - byte_size(request("", Config)) rem Unit) rem Unit,
    request(lists:duplicate(Missing, $x), Config).

requests_come_together(Config) ->
    case (?config(server, Config)):pipelines() of
        true ->
            Socket = connect(Config),
            Request = request("", Config),
            ok = gen_tcp:send(Socket, [Request, Request, Request]),
            <<>> = hello(Socket, hello(Socket, hello(Socket, <<>>))),
            ok = gen_tcp:close(Socket);
        false ->
            {skip, "this server does not answer requests that come together"}
    end.

a_client_goes_away_within_its_request(Config) ->
    [
        begin
            Socket = connect(Config),
            Begun = ["POST ", path(sum, Config), " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx"],
            ok = gen_tcp:send(Socket, Begun),
            ok = inet:setopts(Socket, [{linger, {Reset, 0}}]),
            ok = gen_tcp:close(Socket)
        end
     || Reset <- [true, false]
    ],
    curl_gets_a_page(Config).

wrk_finds_no_error(Config) ->
    case weir_with:needs(["wrk"], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            %% On a busy machine a second may pass before the first answer.
            weir_test_wait:wait_until(fun() -> wrk(Config) > 0 end)
    end.

%% Returns the requests in a second.
wrk(Config) ->
    Arguments = ["-t", "1", "-c", "20", "-d", "1s", "--timeout", patience() ++ "s", url(hello, Config)],
    {0, Output} = weir_with:program("wrk", Arguments),
    ct:log("~ts", [Output]),
    ?assertEqual(nomatch, re:run(Output, "Non-2xx|Socket errors")),
    {match, [Requests]} = re:run(Output, "([0-9]+) requests in", [{capture, all_but_first, list}]),
    list_to_integer(Requests).

%% Time limit of a program in seconds.
patience() -> integer_to_list(weir_test_wait:patience() div 1000).

a_browser_shows_a_page(Config) ->
    case ?config(browser, Config) of
        undefined ->
            {skip, "no Chromium here"};
        Browser ->
            Page = weir_compatibility_chromium:open(Browser, url({file, "page.html"}, Config), #{apart => true}),
            ok = weir_compatibility_chromium:wait_until(
                Page, "document.getElementById('p').textContent === 'after 42'"
            ),
            ok = weir_compatibility_chromium:close(Page)
    end.

all_sockets_are_gone_afterwards(Config) ->
    Node = ?config(node, Config),
    Server = ?config(server, Config),
    ok = httpc:set_options([{max_keep_alive_length, 0}]),
    ok = weir_with:call(Node, Server, stop, []),
    ok = weir_with:call(Node, weir_with, release, []),
    ok = stop_httpc(),
    weir_with:nothing_left(Node),
    weir_with:nothing_left().

%% httpc keeps its connections for some minutes.
stop_httpc() ->
    ok = application:stop(inets).

%% Clients

curl(_Config, Arguments) ->
    weir_with:program("curl", ["--silent", "--show-error", "--max-time", patience() | Arguments]).

connect(Config) ->
    {ok, Socket} = gen_tcp:connect(?LOCALHOST, ?config(port, Config), [binary, {active, false}, {nodelay, true}]),
    Socket.

request(Agent, Config) ->
    iolist_to_binary(["GET ", path(hello, Config), " HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a", Agent, "\r\n\r\n"]).

%% Reads a response up to the end of its page, with a length or in chunks, and returns the rest.
hello(Socket, Data) ->
    case re:run(Data, "^HTTP/1.1 200.*?\r\n\r\n(?:b\r\n)?hello world(?:\r\n0\r\n\r\n)?", [dotall, caseless]) of
        {match, [{0, Length}]} ->
            <<Response:Length/binary, Rest/binary>> = Data,
            case {re:run(Response, "chunked", [caseless]), binary:longest_common_suffix([Response, <<"0\r\n\r\n">>])} of
                {{match, _}, Common} when Common < 5 -> more(Socket, Data);
                _ -> Rest
            end;
        nomatch ->
            more(Socket, Data)
    end.

more(Socket, Data) ->
    {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    hello(Socket, <<Data/binary, More/binary>>).

url(Page, Config) ->
    "http://127.0.0.1:" ++ integer_to_list(?config(port, Config)) ++ path(Page, Config).

path(Page, Config) ->
    (?config(server, Config)):path(Page).

file(Config) ->
    filename:join(?config(directory, Config), "data.bin").

sum(Config) ->
    ?config(sum, Config).
