%% weir_http with common clients: curl, httpx of Python, fetch of Node (undici), net/http of Go, wrk, h2load, ab and
%% Chromium. Each gets a page, sends many requests on a connection, uploads with a length and in chunks, reads a
%% stream, uses gzip, and sends Expect: 100-continue. A client that is not installed is skipped.
-module(weir_http_clients_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([curl/1, httpx/1, node_fetch/1, go_net_http/1, wrk/1, h2load/1, ab/1, chromium/1]).
-export([serve/2]).

-define(LISTENER, ?MODULE).
-define(SIZE, 3000000).

suite() -> [{timetrap, {minutes, 3}}].

%% The case of Go compiles for half a minute, so only `make soak' runs it.
all() -> [curl, httpx, node_fetch, wrk, h2load, ab, chromium].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Text = [{<<"content-type">>, <<"text/plain">>}],
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => {127, 0, 0, 1}}, [
        {"/hello", weir_http_page, {reply, 200, Text, <<"hello">>}},
        {"/gzip", weir_http_page, {reply, 200, Text, binary:copy(<<"hello ">>, 1000)}, #{gzip => #{}}},
        {"/page", weir_http_page, {reply, 200, [{<<"content-type">>, <<"text/html">>}], page()}},
        {"/events", weir_http_page, events},
        {"/websocket", weir_http_page, websocket},
        {"/sum", ?MODULE, sum, #{body => stream, max_body => 10 * ?SIZE}},
        {"/stream", ?MODULE, stream}
    ]),
    File = filename:join(?config(priv_dir, Config), "upload.bin"),
    Data = weir_with:bytes(?SIZE),
    ok = file:write_file(File, Data),
    [{port, weir:get_port(?LISTENER)}, {file, File}, {sum, binary_to_list(hex(crypto:hash(sha256, Data)))} | Config].

end_per_suite(_Config) -> weir_http:stop_listener(?LISTENER).

%%% Handlers that block.

serve(_Request, sum) -> {reply, 200, [], sum(weir_http_process:read_body(), crypto:hash_init(sha256))};
serve(Request, stream) ->
    ok = weir_http_process:stream(Request, 200, [{<<"content-type">>, <<"text/plain">>}]),
    [ok = weir_http_process:send([integer_to_binary(N), $\n]) || N <- lists:seq(1, 1000)],
    streamed.

sum({more, Bytes}, Sum) -> sum(weir_http_process:read_body(), crypto:hash_update(Sum, Bytes));
sum({done, Bytes, _}, Sum) -> hex(crypto:hash_final(crypto:hash_update(Sum, Bytes))).

hex(Bytes) -> string:lowercase(binary:encode_hex(Bytes)).

%% The page shows what it received, in alphabetical order.
page() ->
    <<
        "<!doctype html><title>page</title><p id=p></p><script>\n"
        "const seen = [], say = (what) => { seen.push(what); document.getElementById('p').textContent = "
        "seen.sort().join(' ') }\n"
        "const source = new EventSource('/events')\n"
        "source.onmessage = (event) => { say('event' + event.data); if (event.data === '3') source.close() }\n"
        "const socket = new WebSocket('ws://' + location.host + '/websocket')\n"
        "socket.onmessage = (event) => {\n"
        "  say('socket:' + event.data)\n"
        "  if (event.data === 'welcome') socket.send('echoed')\n"
        "}\n"
        "fetch('/stream').then(async (response) => {\n"
        "  let size = 0\n"
        "  for (const reader = response.body.getReader(); ;) {\n"
        "    const { done, value } = await reader.read()\n"
        "    if (done) break\n"
        "    size += value.length\n"
        "  }\n"
        "  say('stream:' + size)\n"
        "})\n"
        "fetch('/gzip').then((response) => response.text()).then((text) => say('gzip:' + text.length))\n"
        "</script>"
    >>.

%%% Cases.

url(Path, Config) -> "http://127.0.0.1:" ++ integer_to_list(?config(port, Config)) ++ Path.

has(Program, Fun) ->
    case os:find_executable(Program) of
        false -> {skip, "not here: " ++ Program};
        _ -> Fun()
    end.

%% Time limit of a program in seconds.
patience() -> integer_to_list(weir_test_wait:patience() div 1000).

run(Program, Arguments) ->
    {Status, Output} = weir_with:program(Program, Arguments),
    ?assertEqual({0, Program}, {Status, Program}, Output),
    binary_to_list(Output).

curl(Config) ->
    has("curl", fun() ->
        Curl = fun(Arguments) -> run("curl", ["-sS", "--max-time", patience() | Arguments]) end,
        Sum = ?config(sum, Config),
        ?assertEqual(
            "hello 1 hello 0 ", Curl(["-w", " %{num_connects} ", url("/hello", Config), url("/hello", Config)])
        ),
        ?assertEqual(Sum, Curl(["--data-binary", "@" ++ ?config(file, Config), url("/sum", Config)])),
        ?assertEqual(
            Sum, Curl(["-H", "Expect: 100-continue", "-T", ?config(file, Config), "-X", "POST", url("/sum", Config)])
        ),
        ?assertEqual(
            Sum,
            Curl(["-H", "Transfer-Encoding: chunked", "-T", ?config(file, Config), "-X", "POST", url("/sum", Config)])
        ),
        ?assertEqual(6000, length(Curl(["--compressed", url("/gzip", Config)]))),
        ?assertEqual("1000", lists:last(string:lexemes(Curl([url("/stream", Config)]), "\n"))),
        ?assertEqual("hello", Curl(["-0", url("/hello", Config)])),
        ?assertMatch("HTTP/1.1 200 OK\r\n" ++ _, Curl(["-I", url("/hello", Config)]))
    end).

httpx(Config) ->
    Pythons = [
        Python
     || Python <- ["python3", "/usr/bin/python3"],
        os:cmd(Python ++ " -c 'import httpx; print(1)' 2>/dev/null") =:= "1\n"
    ],
    case Pythons of
        [] ->
            {skip, "not here: python3-httpx"};
        [Python | _] ->
            ?assertEqual(expected(Config), run(Python, ["-c", httpx_program(), url("", Config), ?config(file, Config)]))
    end.

httpx_program() ->
    "import sys, httpx\n"
    "url, name = sys.argv[1:]\n"
    "data = open(name, 'rb').read()\n"
    "with httpx.Client(trust_env=False, timeout=" ++ patience() ++ ") as client:\n"
    "    assert all(client.get(url + '/hello').text == 'hello' for _ in range(100))\n"
    "    print(client.post(url + '/sum', content=data).text)\n"
    "    print(client.post(url + '/sum', content=(data[at:at + 9999] for at in range(0, len(data), 9999))).text)\n"
    "    with client.stream('GET', url + '/stream') as response:\n"
    "        print(sum(1 for _ in response.iter_lines()))\n"
    "    response = client.get(url + '/gzip')\n"
    "    print(response.headers['content-encoding'], len(response.text))\n".

%% The expected output of each program.
expected(Config) ->
    Sum = ?config(sum, Config),
    lists:flatten([Sum, "\n", Sum, "\n1000\ngzip 6000\n"]).

node_fetch(Config) ->
    has("node", fun() ->
        ?assertEqual(expected(Config), run("node", ["-e", node_program(), url("", Config), ?config(file, Config)]))
    end).

node_program() ->
    "const [url, name] = process.argv.slice(1), data = require('fs').readFileSync(name)\n"
    "async function * pieces () { for (let at = 0; at < data.length; at += 9999) yield data.subarray(at, at + 9999) }\n"
    "async function main () {\n"
    "  const many = await Promise.all(Array.from({ length: 100 }, () => fetch(url + '/hello').then((r) => r.text())))\n"
    "  if (!many.every((text) => text === 'hello')) throw new Error('not hello')\n"
    "  console.log(await (await fetch(url + '/sum', { method: 'POST', body: data })).text())\n"
    "  console.log(await (await fetch(url + '/sum', { method: 'POST', body: pieces(), duplex: 'half' })).text())\n"
    "  console.log((await (await fetch(url + '/stream')).text()).trim().split('\\n').length)\n"
    "  const response = await fetch(url + '/gzip')\n"
    "  console.log(response.headers.get('content-encoding'), (await response.text()).length)\n"
    "}\n"
    "main().then(() => process.exit(0), (error) => { console.log(error); process.exit(1) })\n".

go_net_http(Config) ->
    has("go", fun() ->
        Source = filename:join(?config(priv_dir, Config), "client.go"),
        ok = file:write_file(Source, go_program()),
        Program = filename:join(?config(priv_dir, Config), "client"),
        ?assertEqual("", os:cmd("go build -o '" ++ Program ++ "' '" ++ Source ++ "'")),
        ?assertEqual(expected(Config), run(Program, [url("", Config), ?config(file, Config)]))
    end).

go_program() ->
    "package main\n"
    "import (\"bytes\"; \"fmt\"; \"io\"; \"net/http\"; \"os\"; \"strings\")\n"
    "func all(response *http.Response, err error) string {\n"
    "	if err != nil { panic(err) }\n"
    "	defer response.Body.Close()\n"
    "	text, err := io.ReadAll(response.Body)\n"
    "	if err != nil { panic(err) }\n"
    "	return string(text)\n"
    "}\n"
    "func main() {\n"
    "	url := os.Args[1]\n"
    "	data, err := os.ReadFile(os.Args[2])\n"
    "	if err != nil { panic(err) }\n"
    "	for n := 0; n < 100; n++ {\n"
    "		if all(http.Get(url + \"/hello\")) != \"hello\" { panic(\"not hello\") }\n"
    "	}\n"
    "	fmt.Println(all(http.Post(url + \"/sum\", \"x/y\", bytes.NewReader(data))))\n"
    "	fmt.Println(all(http.Post(url + \"/sum\", \"x/y\", io.MultiReader(bytes.NewReader(data)))))\n"
    "	fmt.Println(strings.Count(all(http.Get(url + \"/stream\")), \"\\n\"))\n"
    "	response, err := http.Get(url + \"/gzip\")\n"
    "	coding := map[bool]string{true: \"gzip\", false: \"\"}[response != nil && response.Uncompressed]\n"
    "	fmt.Println(coding, len(all(response, err)))\n"
    "}\n".

wrk(Config) ->
    has("wrk", fun() ->
        Output = run("wrk", ["-c", "50", "-t", "1", "-d", "1", "--timeout", patience() ++ "s", url("/hello", Config)]),
        ?assertEqual(nomatch, re:run(Output, "Socket errors|Non-2xx"), Output)
    end).

h2load(Config) ->
    has("h2load", fun() ->
        Output = run("h2load", ["--h1", "-n", "5000", "-c", "50", "-m", "4", url("/hello", Config)]),
        ?assertMatch({match, _}, re:run(Output, "5000 succeeded, 0 failed, 0 errored, 0 timeout"), Output)
    end).

ab(Config) ->
    has("ab", fun() ->
        Output = run("ab", ["-k", "-n", "5000", "-c", "50", "-s", patience(), url("/hello", Config)]),
        ?assertMatch(
            {match, _},
            re:run(Output, "Complete requests: +5000\nFailed requests: +0\nKeep-Alive requests: +5000"),
            Output
        )
    end).

chromium(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            {skip, "no Chromium here"};
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser")
            ),
            try
                Page = weir_compatibility_chromium:open(Browser, url("/page", Config), #{}),
                ok = weir_compatibility_chromium:wait_until(
                    Page,
                    "document.getElementById('p').textContent === "
                    "'event1 event2 event3 gzip:6000 socket:echoed socket:welcome stream:3893'"
                )
            after
                ok = weir_compatibility_chromium:stop(Browser)
            end
    end.
