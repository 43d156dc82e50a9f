%% Probes of requirements for every server; see weir_http_probes.
-module(weir_http_probes_compliance).

-export([all/0]).

-define(HOST, "Host: localhost\r\n").

all() ->
    capabilities() ++ compliance() ++ lines() ++ upgrades() ++ cookies().

ask(Fields) -> ask("/", Fields).

ask(Path, Fields) -> ["GET ", Path, " HTTP/1.1\r\n" ?HOST, Fields, "\r\n"].

post(Fields, Body) -> ["POST / HTTP/1.1\r\n" ?HOST, Fields, "\r\n", Body].

chunked(Body) -> post("Transfer-Encoding: chunked\r\n", Body).

refused() -> [400, close].

has(Pattern) ->
    fun
        (#{statuses := [Status | _], text := Text}) ->
            Status < 300 andalso re:run(Text, Pattern, [caseless]) =/= nomatch;
        (_) ->
            false
    end.

has_not(Pattern) ->
    fun
        (#{statuses := [Status | _], text := Text}) ->
            Status < 300 andalso re:run(Text, Pattern, [caseless]) =:= nomatch;
        (_) ->
            false
    end.

%% The test handlers have no validators, so no condition applies.
capabilities() ->
    [{Name, none, ask(Fields), [304, ok]} || {Name, Fields} <- [
        {"CAP-ETAG-304", "If-None-Match: \"a\"\r\n"},
        {"CAP-ETAG-IN-304", "If-None-Match: \"a\"\r\n"},
        {"CAP-ETAG-WEAK", "If-None-Match: W/\"a\"\r\n"},
        {"CAP-IMS-FUTURE", "If-Modified-Since: Thu, 01 Jan 2099 00:00:00 GMT\r\n"},
        {"CAP-IMS-INVALID", "If-Modified-Since: not-a-date\r\n"},
        {"CAP-INM-PRECEDENCE", "If-None-Match: \"a\"\r\nIf-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"},
        {"CAP-INM-UNQUOTED", "If-None-Match: a\r\n"},
        {"CAP-INM-WILDCARD", "If-None-Match: *\r\n"},
        {"CAP-LAST-MODIFIED-304", "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n"}
    ]].

compliance() ->
    [
        {"COMP-405-ALLOW", must, ["PATCH / HTTP/1.1\r\n" ?HOST "\r\n"], [
            fun
                (#{statuses := [405], text := Text}) -> re:run(Text, "\r\nallow: ") =/= nomatch;
                (_) -> false
            end
        ]},
        {"COMP-ABSOLUTE-FORM", must, "GET http://localhost/ HTTP/1.1\r\n" ?HOST "\r\n", [ok, warn, 400]},
        {"COMP-ACCEPT-NONSENSE", none, ask("Accept: application/x-nonsense\r\n"), [406, ok]},
        {"COMP-ASTERISK-WITH-GET", must, "GET * HTTP/1.1\r\n" ?HOST "\r\n", refused()},
        {"COMP-BASELINE", must, ask(""), [ok]},
        {"COMP-CHUNKED-BODY", must, chunked("5\r\nhello\r\n0\r\n\r\n"), [ok]},
        {"COMP-CHUNKED-EMPTY", must, chunked("0\r\n\r\n"), [ok, close]},
        {"COMP-CHUNKED-EXTENSION", must, chunked("5;ext=value\r\nhello\r\n0\r\n\r\n"), [ok, warn, 400]},
        {"COMP-CHUNKED-HEX-UPPERCASE", must, chunked("A\r\n0123456789\r\n0\r\n\r\n"), [ok]},
        {"COMP-CHUNKED-MULTI", must, chunked("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), [ok]},
        {"COMP-CHUNKED-NO-FINAL", must, chunked("5\r\nhello\r\n"), [400, close, silence]},
        {"COMP-CHUNKED-TRAILER-VALID", must, chunked("5\r\nhello\r\n0\r\nX-Sum: abc\r\n\r\n"), [ok]},
        {"COMP-CONNECTION-CLOSE", must, ask("Connection: close\r\n"), [{ok, closed}]},
        {"COMP-CONTENT-TYPE", should, ask(""), [has("\r\ncontent-type: ")]},
        {"COMP-DATE-FORMAT", none, ask(""), [
            has("\r\ndate: \\w{3}, \\d\\d \\w{3} \\d{4} \\d\\d:\\d\\d:\\d\\d GMT\r\n")
        ]},
        {"COMP-DATE-HEADER", must, ask(""), [has("\r\ndate: ")]},
        {"COMP-DUPLICATE-CT", should,
            post("Content-Type: text/plain\r\nContent-Type: text/html\r\nContent-Length: 5\r\n", "hello"), [400, ok]},
        {"COMP-DUPLICATE-HOST-SAME", must, ask(?HOST), [400]},
        {"COMP-EXPECT-UNKNOWN", may, ask("Expect: 200-ok\r\n"), [417, warn, ok]},
        {"COMP-GET-WITH-CL-BODY", may, get_with("Content-Length: 5\r\n", "hello"), [400, warn, ok]},
        {"COMP-HEAD-NO-BODY", must, "HEAD / HTTP/1.1\r\n" ?HOST "\r\n", [has("\r\n\r\n$")]},
        {"COMP-HOST-EMPTY-VALUE", must, "GET / HTTP/1.1\r\nHost: \r\n\r\n", refused()},
        {"COMP-HOST-WITH-PATH", must, "GET / HTTP/1.1\r\nHost: localhost/path\r\n\r\n", refused()},
        {"COMP-HOST-WITH-USERINFO", must, "GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n", refused()},
        {"COMP-HTTP10-DEFAULT-CLOSE", should, "GET / HTTP/1.0\r\n" ?HOST "\r\n", [{ok, closed}]},
        {"COMP-HTTP10-NO-HOST", none, "GET / HTTP/1.0\r\n\r\n", [400, warn, ok]},
        {"COMP-HTTP12-VERSION", none, "GET / HTTP/1.2\r\n" ?HOST "\r\n", [ok, 505]},
        {"COMP-LEADING-CRLF", should, ["\r\n\r\n", ask("")], [400, ok]},
        {"COMP-LONG-URL-OK", should, ["GET /", lists:duplicate(7900, $a), " HTTP/1.1\r\n" ?HOST "\r\n"], [
            fun
                (#{statuses := [Status | _]}) -> Status =/= 414;
                (_) -> false
            end
        ]},
        {"COMP-METHOD-CASE", none, "get / HTTP/1.1\r\n" ?HOST "\r\n", [400, 405, 501, ok]},
        {"COMP-METHOD-CONNECT", should, "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n", [
            400, 405, 501, close
        ]},
        {"COMP-METHOD-TRACE", should, "TRACE / HTTP/1.1\r\n" ?HOST "\r\n", [405, 501, warn, 200]},
        {"COMP-NO-1XX-HTTP10", must,
            "POST / HTTP/1.0\r\n" ?HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", [
                fun(#{statuses := Statuses}) -> lists:all(fun(Status) -> Status >= 200 end, Statuses) end
            ]},
        {"COMP-NO-CL-IN-204", must, "OPTIONS / HTTP/1.1\r\n" ?HOST "\r\n", [has_not("\r\ncontent-length: ")]},
        {"COMP-OPTIONS-ALLOW", should, "OPTIONS / HTTP/1.1\r\n" ?HOST "\r\n", [has("\r\nallow: ")]},
        {"COMP-OPTIONS-STAR", must, "OPTIONS * HTTP/1.1\r\n" ?HOST "\r\n", [ok]},
        {"COMP-POST-CL-BODY", must, post("Content-Length: 5\r\n", "hello"), [ok]},
        {"COMP-POST-CL-UNDERSEND", must, post("Content-Length: 10\r\n", "hello"), [400, close, silence]},
        {"COMP-POST-CL-ZERO", must, post("Content-Length: 0\r\n", ""), [ok, close]},
        {"COMP-POST-NO-CL-NO-TE", must, post("", ""), [ok, close]},
        {"COMP-POST-UNSUPPORTED-CT", none,
            post("Content-Type: application/x-nonsense\r\nContent-Length: 5\r\n", "hello"), [415, ok]},
        {"COMP-RANGE-INVALID", none, ask("Range: bytes=abc-xyz\r\n"), [ok, 416]},
        {"COMP-RANGE-POST", must, post("Range: bytes=0-1\r\nContent-Length: 5\r\n", "hello"), [has("hello")]},
        {"COMP-TRACE-SENSITIVE", none, "TRACE / HTTP/1.1\r\n" ?HOST "Authorization: Bearer secret\r\n\r\n", [
            fun(#{text := Text}) -> binary:match(Text, <<"secret">>) =:= nomatch end
        ]},
        {"COMP-TRACE-WITH-BODY", none, "TRACE / HTTP/1.1\r\n" ?HOST "Content-Length: 5\r\n\r\nhello", [
            400, 405, 501, warn, 200
        ]},
        {"COMP-UNKNOWN-METHOD", should, "FOOBAR / HTTP/1.1\r\n" ?HOST "\r\n", [501, 405, 400]},
        {"COMP-UNKNOWN-TE-501", should, post("Transfer-Encoding: gzip\r\n", ""), [400, 501, close]}
    ].

get_with(Fields, Body) -> ["GET / HTTP/1.1\r\n" ?HOST, Fields, "\r\n", Body].

lines() ->
    [
        {"COMP-REQUEST-LINE-TAB", should, "GET\t/\tHTTP/1.1\r\n" ?HOST "\r\n", [400, ok]},
        {"COMP-SPACE-IN-TARGET", must, "GET /a b HTTP/1.1\r\n" ?HOST "\r\n", refused()},
        {"COMP-VERSION-CASE", must, "GET / http/1.1\r\n" ?HOST "\r\n", refused()},
        {"COMP-VERSION-LEADING-ZEROS", must, "GET / HTTP/01.01\r\n" ?HOST "\r\n", refused()},
        {"COMP-VERSION-MISSING-MINOR", must, "GET / HTTP/1\r\n" ?HOST "\r\n", refused()},
        {"COMP-VERSION-WHITESPACE", must, "GET / HTTP/ 1.1\r\n" ?HOST "\r\n", refused()},
        {"COMP-WHITESPACE-BEFORE-HEADERS", must, "GET / HTTP/1.1\r\n " ?HOST "\r\n", refused()},
        {"RFC9110-5.4-DUPLICATE-HOST", must, ask("Host: other\r\n"), [400]},
        {"RFC9110-5.6.2-SP-BEFORE-COLON", must, ask("X-Test : a\r\n"), [400]},
        {"RFC9112-2.2-BARE-LF-HEADER", may, "GET / HTTP/1.1\r\nHost: localhost\n\r\n", [400, close, warn, ok]},
        {"RFC9112-2.2-BARE-LF-REQUEST-LINE", may, "GET / HTTP/1.1\n" ?HOST "\r\n", [400, close, warn, ok]},
        {"RFC9112-2.3-HTTP09-REQUEST", should, "GET /\r\n\r\n", [400, close, silence]},
        {"RFC9112-2.3-INVALID-VERSION", none, "GET / HTTP/9.9\r\n" ?HOST "\r\n", [400, 505, close]},
        {"RFC9112-3-CR-ONLY-LINE-ENDING", must, "GET / HTTP/1.1\rHost: localhost\r\r", [400]},
        {"RFC9112-3-MISSING-TARGET", must, "GET HTTP/1.1\r\n" ?HOST "\r\n", refused()},
        {"RFC9112-3-MULTI-SP-REQUEST-LINE", should, "GET  / HTTP/1.1\r\n" ?HOST "\r\n", [400, ok]},
        {"RFC9112-3.2-FRAGMENT-IN-TARGET", should, "GET /#a HTTP/1.1\r\n" ?HOST "\r\n", [400, warn, ok]},
        {"RFC9112-5-EMPTY-HEADER-NAME", must, ask(": a\r\n"), refused()},
        {"RFC9112-5-HEADER-NO-COLON", must, ask("NoColon\r\n"), refused()},
        {"RFC9112-5-INVALID-HEADER-NAME", must, ask("Bad[Name]: a\r\n"), refused()},
        {"RFC9112-5.1-OBS-FOLD", must, ask("X-Test: a\r\n b\r\n"), [400]},
        {"RFC9112-6.1-CL-NON-NUMERIC", must, post("Content-Length: abc\r\n", ""), refused()},
        {"RFC9112-6.1-CL-PLUS-SIGN", must, post("Content-Length: +5\r\n", "hello"), refused()},
        {"RFC9112-7.1-MISSING-HOST", must, "GET / HTTP/1.1\r\n\r\n", [400]}
    ].

upgrades() ->
    NoSwitch = [
        fun
            (#{statuses := [Status | _]}) -> Status =/= 101;
            (_) -> false
        end
    ],
    Key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    [
        {"COMP-UPGRADE-HTTP10", must,
            [
                "GET / HTTP/1.0\r\n"
                ?HOST
                "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\n",
                Key,
                "\r\n"
            ],
            NoSwitch},
        {"COMP-UPGRADE-INVALID-VER", must,
            ask(["Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 99\r\n", Key]), NoSwitch},
        {"COMP-UPGRADE-MISSING-CONN", must, ask(["Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", Key]),
            NoSwitch},
        {"COMP-UPGRADE-POST", must,
            post(["Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", Key], ""), NoSwitch},
        {"COMP-UPGRADE-UNKNOWN", must, ask("Connection: Upgrade\r\nUpgrade: totally-made-up/1.0\r\n"), NoSwitch}
    ].

cookies() ->
    Many = lists:join("; ", [["k", integer_to_list(N), "=v"] || N <- lists:seq(1, 500)]),
    [
        {"COOK-CONTROL-CHARS", none, ask("/fields", "Cookie: a=\x01b\r\n"), [400, ok]},
        {"COOK-ECHO", none, ask("/fields", "Cookie: foo=bar\r\n"), [has("cookie: foo=bar")]},
        {"COOK-EMPTY", none, ask("/fields", "Cookie: \r\n"), [ok, 400]},
        {"COOK-MALFORMED", none, ask("/fields", "Cookie: ===;;;\r\n"), [ok, 400]},
        {"COOK-MANY-PAIRS", none, ask("/fields", ["Cookie: ", Many, "\r\n"]), [ok, 400, 431]},
        {"COOK-MULTI-HEADER", none, ask("/cookies", "Cookie: a=1\r\nCookie: b=2\r\n"), [has("a=1\nb=2")]},
        {"COOK-NUL", none, ask("/fields", "Cookie: a=\0b\r\n"), [400]},
        {"COOK-OVERSIZED", none, ask("/fields", ["Cookie: a=", lists:duplicate(65536, $b), "\r\n"]), [400, 431, ok]},
        {"COOK-PARSED-BASIC", none, ask("/cookies", "Cookie: foo=bar\r\n"), [has("foo=bar")]},
        {"COOK-PARSED-EMPTY-VAL", none, ask("/cookies", "Cookie: foo=\r\n"), [ok]},
        {"COOK-PARSED-MULTI", none, ask("/cookies", "Cookie: a=1; b=2; c=3\r\n"), [has("a=1\nb=2\nc=3")]},
        {"COOK-PARSED-SPECIAL", none, ask("/cookies", "Cookie: a=\"b c\"; d=e=f\r\n"), [ok]}
    ].
