%% Probes with malformed requests, and with requests that a proxy may normalise; see weir_http_probes.
-module(weir_http_probes_malformed).

-export([all/0]).

-define(HOST, "Host: localhost\r\n").

all() -> malformed() ++ normalization().

ask(Target, Fields) -> ["GET ", Target, " HTTP/1.1\r\n" ?HOST, Fields, "\r\n"].

post(Fields, Body) -> ["POST / HTTP/1.1\r\n" ?HOST, Fields, "\r\n", Body].

chunked(Body) -> post("Transfer-Encoding: chunked\r\n", Body).

refused() -> [400, close].

long(Length) -> lists:duplicate(Length, $a).

malformed() ->
    [
        {"MAL-BINARY-GARBAGE", none, <<0, 255, 1, 254, 2, 253, 3, 252, 127, 128, 10, 13, 10>>, [400, close, silence]},
        {"MAL-CHUNK-EXT-64K", none, chunked(["5;ext=", long(65536), "\r\nhello\r\n0\r\n\r\n"]), [
            400, 431, close, warn, ok
        ]},
        {"MAL-CHUNK-SIZE-OVERFLOW", none, chunked("FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), [400, 413, close]},
        {"MAL-CL-EMPTY", must, post("Content-Length: \r\n", ""), refused()},
        {"MAL-CL-OVERFLOW", none, post("Content-Length: 99999999999999999999\r\n", ""), refused()},
        {"MAL-CL-TAB-BEFORE-VALUE", none, post("Content-Length:\t5\r\n", "hello"), [400, warn, ok]},
        {"MAL-CONTROL-CHARS-HEADER", none, ask("/", "X-Test: a\x01\x02b\r\n"), refused()},
        {"MAL-EMPTY-REQUEST", none, "", [400, close, silence]},
        {"MAL-H2-PREFACE", none, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400, 505, close, silence]},
        {"MAL-INCOMPLETE-REQUEST", none, "GET / HTTP/1.1\r\nHost: loc", [400, close, silence]},
        {"MAL-LONG-HEADER-NAME", none, ask("/", [long(65536), ": a\r\n"]), [400, 431, close]},
        {"MAL-LONG-HEADER-VALUE", none, ask("/", ["X-Test: ", long(65536), "\r\n"]), [400, 431, close]},
        {"MAL-LONG-METHOD", none, [long(100000), " / HTTP/1.1\r\n" ?HOST "\r\n"], [400, 414, close]},
        {"MAL-LONG-URL", none, ask(["/", long(65536)], ""), [400, 414, 431, close]},
        {"MAL-MANY-HEADERS", none, ask("/", [["X-", integer_to_list(N), ": a\r\n"] || N <- lists:seq(1, 10000)]), [
            400, 431, close
        ]},
        {"MAL-NON-ASCII-HEADER-NAME", none, ask("/", <<"X-T", 195, 169, "st: a\r\n">>), refused()},
        {"MAL-NON-ASCII-URL", none, ask(<<"/caf", 195, 169>>, ""), refused()},
        {"MAL-NUL-IN-HEADER-VALUE", none, ask("/", "X-Test: a\0b\r\n"), refused()},
        {"MAL-NUL-IN-URL", none, ask("/\0", ""), refused()},
        {"MAL-POST-CL-HUGE-NO-BODY", none, post("Content-Length: 999999999\r\n", ""), [400, 413, close, silence]},
        {"MAL-RANGE-OVERLAPPING", none, ask("/", "Range: bytes=0-9,5-14,0-0\r\n"), [206, 416, warn, ok]},
        {"MAL-URL-BACKSLASH", none, ask("/a\\b", ""), [400, warn, ok, 404]},
        {"MAL-URL-OVERLONG-UTF8", none, ask(<<"/", 192, 175, "etc">>, ""), refused()},
        {"MAL-URL-PERCENT-CRLF", none, ask("/%0d%0aX-Injected:a", ""), [400, warn, ok, 404]},
        {"MAL-URL-PERCENT-NULL", none, ask("/%00", ""), [400, warn, ok, 404]},
        {"MAL-WHITESPACE-ONLY-LINE", none, "   \r\n\r\n", [400, close, silence]}
    ].

normalization() ->
    [
        {"NORM-CASE-TE", none, asked("TRANSFER-ENCODING: chunked\r\n", "0\r\n\r\n"), [400, close, warn, ok]},
        {"NORM-SP-BEFORE-COLON-CL", must, asked("Content-Length : 0\r\n", ""), [400, close]},
        {"NORM-TAB-IN-NAME", must, asked("Content\t-Length: 0\r\n", ""), [400, close]},
        {"NORM-UNDERSCORE-CL", none, asked("Content_Length: 0\r\n", ""), [400, close]},
        {"NORM-UNDERSCORE-TE", none, asked("Transfer_Encoding: chunked\r\n", ""), [400, close]}
    ].

asked(Fields, Body) -> ["POST /fields HTTP/1.1\r\n" ?HOST, Fields, "\r\n", Body].
