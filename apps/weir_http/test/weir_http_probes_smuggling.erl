%% Probes with requests whose end two servers may find in different places; see weir_http_probes.
-module(weir_http_probes_smuggling).

-export([all/0]).

-define(HOST, "Host: localhost\r\n").
-define(SMUGGLED, "GET /smuggled HTTP/1.1\r\n" ?HOST "\r\n").

all() -> chunks() ++ lengths() ++ both() ++ codings() ++ others().

post(Fields, Body) -> ["POST / HTTP/1.1\r\n" ?HOST, Fields, "\r\n", Body].

chunked(Body) -> post("Transfer-Encoding: chunked\r\n", Body).

coded(Coding) -> post(["Transfer-Encoding:", Coding, "\r\n"], "5\r\nhello\r\n0\r\n\r\n").

sized(Length) -> post(["Content-Length:", Length, "\r\n"], "hello").

refused() -> [400, close].

%% The request hidden in the body is not answered.
is_alone(#{statuses := Statuses}) -> length(Statuses) =< 1.

chunks() ->
    [{Name, Level, chunked(Body), Expected} || {Name, Level, Body, Expected} <- [
        {"SMUG-CHUNK-BARE-CR-TERM", must, "5\rhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-BARE-SEMICOLON", must, "5;\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-EXT-CR", must, "5;a\rb\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-EXT-CTRL", must, "5;a\x01\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-EXT-INVALID-TOKEN", must, "5;@bad[]=x\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-EXT-LF", may, "5;a\nhello\r\n0\r\n\r\n", [400, ok]},
        {"SMUG-CHUNK-HEX-PREFIX", must, "0x5\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-INVALID-SIZE-DESYNC", must, ["+0\r\n\r\n", ?SMUGGLED], refused()},
        {"SMUG-CHUNK-LEADING-SP", must, " 5\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-LF-TERM", may, "5\r\nhello\n0\r\n\r\n", [400, ok]},
        {"SMUG-CHUNK-LF-TRAILER", may, "5\r\nhello\r\n0\r\nX: a\n\r\n", [400, ok]},
        {"SMUG-CHUNK-MISSING-TRAILING-CRLF", must, "5\r\nhello0\r\n\r\n", refused()},
        {"SMUG-CHUNK-NEGATIVE", must, "-5\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-SIZE-PLUS", must, "+5\r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-SIZE-TRAILING-OWS", must, "5 \r\nhello\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-SPILL", must, "5\r\nhello world\r\n0\r\n\r\n", refused()},
        {"SMUG-CHUNK-UNDERSCORE", must, "1_0\r\n0123456789abcdef\r\n0\r\n\r\n", refused()},
        {"SMUG-TRAILER-AUTH", none, "5\r\nhello\r\n0\r\nAuthorization: Bearer x\r\n\r\n", [400, ok]},
        {"SMUG-TRAILER-CL", none, "5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n", [400, ok]},
        {"SMUG-TRAILER-CONTENT-TYPE", none, "5\r\nhello\r\n0\r\nContent-Type: text/evil\r\n\r\n", [400, ok]},
        {"SMUG-TRAILER-HOST", none, "5\r\nhello\r\n0\r\nHost: evil\r\n\r\n", [400, ok]},
        {"SMUG-TRAILER-TE", none, "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", [400, ok]}
    ]].

lengths() ->
    [
        {Name, Level, sized(Length), Expected}
     || {Name, Level, Length, Expected} <- [
            {"SMUG-CL-COMMA-DIFFERENT", must, " 5, 10", refused()},
            {"SMUG-CL-COMMA-SAME", none, " 5, 5", [400, ok]},
            {"SMUG-CL-COMMA-TRIPLE", none, " 5, 5, 5", [400, ok]},
            {"SMUG-CL-DOUBLE-ZERO", should, " 00", [400, ok]},
            {"SMUG-CL-EXTRA-LEADING-SP", should, "   5", [400, ok]},
            {"SMUG-CL-HEX-PREFIX", must, " 0x5", refused()},
            {"SMUG-CL-INTERNAL-SPACE", must, " 1 0", refused()},
            {"SMUG-CL-LEADING-ZEROS", should, " 005", [400, ok]},
            {"SMUG-CL-LEADING-ZEROS-OCTAL", should, " 0005", [400, ok]},
            {"SMUG-CL-NEGATIVE", must, " -5", refused()},
            {"SMUG-CL-NEGATIVE-ZERO", must, " -0", refused()},
            {"SMUG-CL-OCTAL", must, " 0o5", refused()},
            {"SMUG-CL-TRAILING-SPACE", should, " 5 ", [400, ok]},
            {"SMUG-CL-UNDERSCORE", must, " 0_5", refused()}
        ]
    ] ++
        [
            {"SMUG-DUPLICATE-CL", must, post("Content-Length: 5\r\nContent-Length: 10\r\n", "hello"), refused()},
            {"SMUG-DUPLICATE-CL-SMUGGLED-GET", must, post("Content-Length: 0\r\nContent-Length: 44\r\n", ?SMUGGLED),
                refused()},
            {"SMUG-CL0-BODY-POISON", none, post("Content-Length: 0\r\n", "hello"), [400, close, warn, ok]},
            {"SMUG-EXPECT-100-CL", none, post("Expect: 100-continue\r\nContent-Length: 5\r\n", "hello"), [400, ok]},
            {"SMUG-EXPECT-100-CL-DESYNC", none,
                post("Expect: 100-continue\r\nContent-Length: 5\r\n", ["hello", ?SMUGGLED]), [
                    417, 400, close, warn, ok
                ]},
            {"SMUG-GET-CL-BODY-DESYNC", none, ["GET / HTTP/1.1\r\n" ?HOST "Content-Length: 5\r\n\r\nhello", ?SMUGGLED],
                [400, close, ok]},
            {"SMUG-GET-CL-PREFIX-DESYNC", none, ["GET / HTTP/1.1\r\n" ?HOST "Content-Length: 44\r\n\r\n", ?SMUGGLED], [
                400, close, fun is_alone/1
            ]},
            {"SMUG-HEAD-CL-BODY", none, "HEAD / HTTP/1.1\r\n" ?HOST "Content-Length: 5\r\n\r\nhello", [400, ok]},
            {"SMUG-OPTIONS-CL-BODY", none, "OPTIONS / HTTP/1.1\r\n" ?HOST "Content-Length: 5\r\n\r\nhello", [400, ok]},
            {"SMUG-OPTIONS-CL-BODY-DESYNC", none,
                ["OPTIONS / HTTP/1.1\r\n" ?HOST "Content-Length: 5\r\n\r\nhello", ?SMUGGLED], [400, close, ok]}
        ].

%% Content-Length and Transfer-Encoding, in both orders and with many disguises.
both() ->
    Hidden = ["0\r\n\r\n", ?SMUGGLED],
    [
        {Name, must, post(Fields, Hidden), [400, close]}
     || {Name, Fields} <- [
            {"SMUG-CLTE-DESYNC", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET", "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-CL-NON-NUMERIC", "Content-Length: N\r\nTransfer-Encoding: chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-CL-PLUS", "Content-Length: +50\r\nTransfer-Encoding: chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-TE-CASE-MISMATCH", "Content-Length: 50\r\nTransfer-Encoding: Chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-TE-LEADING-COMMA", "Content-Length: 50\r\nTransfer-Encoding: , chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-TE-OBS-FOLD", "Content-Length: 50\r\nTransfer-Encoding:\r\n chunked\r\n"},
            {"SMUG-CLTE-SMUGGLED-GET-TE-TRAILING-SPACE", "Content-Length: 50\r\nTransfer-Encoding: chunked \r\n"},
            {"SMUG-TE-DUPLICATE-HEADERS-SMUGGLED-GET", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"},
            {"SMUG-TECL-DESYNC", "Transfer-Encoding: chunked\r\nContent-Length: 30\r\n"},
            {"SMUG-TECL-SMUGGLED-GET", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"}
        ]
    ] ++
        [
            {"SMUG-CL-TE-BOTH", should, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), [
                400, ok
            ]},
            {"SMUG-CLTE-CONN-CLOSE", must, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), [
                400, {ok, closed}
            ]},
            {"SMUG-CLTE-PIPELINE", may, post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Hidden), [
                400, close, ok
            ]},
            {"SMUG-CLTE-SMUGGLED-HEAD", must,
                post(
                    "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n",
                    ["0\r\n\r\nHEAD /smuggled HTTP/1.1\r\n" ?HOST "\r\n"]
                ),
                [400, close]},
            {"SMUG-TECL-CONN-CLOSE", must, post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), [
                400, {ok, closed}
            ]},
            {"SMUG-TECL-PIPELINE", may, post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Hidden), [
                400, close, ok
            ]}
        ].

codings() ->
    [
        {Name, Level, coded(Coding), Expected}
     || {Name, Level, Coding, Expected} <- [
            {"SMUG-CHUNKED-WITH-PARAMS", none, " chunked;ext=1", [400, ok]},
            {"SMUG-TE-CASE-MISMATCH", should, " Chunked", [400, ok]},
            {"SMUG-TE-DOUBLE-CHUNKED", should, " chunked, chunked", [400, ok]},
            {"SMUG-TE-EMPTY-VALUE", must, " ", refused()},
            {"SMUG-TE-FORMFEED", must, " \fchunked", refused()},
            {"SMUG-TE-IDENTITY", must, " identity", [400, 501, close]},
            {"SMUG-TE-LEADING-COMMA", should, " , chunked", [400, ok]},
            {"SMUG-TE-NOT-FINAL-CHUNKED", must, " chunked, identity", refused()},
            {"SMUG-TE-NULL", must, " chunked\0", refused()},
            {"SMUG-TE-OBS-FOLD", must, "\r\n chunked", [400, {ok, closed}]},
            {"SMUG-TE-TAB-BEFORE-VALUE", none, "\tchunked", [400, ok]},
            {"SMUG-TE-TRAILING-COMMA", should, " chunked,", [400, ok]},
            {"SMUG-TE-TRAILING-SPACE", may, " chunked ", [400, 501, fun has_no_length/1]},
            {"SMUG-TE-VTAB", must, " \vchunked", refused()},
            {"SMUG-TE-XCHUNKED", must, " xchunked", [400, 501, close]}
        ]
    ] ++
        [
            {"SMUG-TE-DUPLICATE-HEADERS", must,
                post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), refused()},
            {"SMUG-TE-HTTP10", must, "POST / HTTP/1.0\r\n" ?HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                refused()},
            {"SMUG-TE-SP-BEFORE-COLON", must, post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), refused()},
            {"SMUG-OPTIONS-TE-OBS-FOLD", must,
                "OPTIONS / HTTP/1.1\r\n" ?HOST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", [400, {ok, closed}]},
            {"SMUG-TRANSFER_ENCODING", none, post("Transfer_Encoding: chunked\r\n", ""), [400, ok]}
        ].

%% The request has no Content-Length, so the connection may stay open.
has_no_length(#{statuses := [Status | _]}) -> Status < 300;
has_no_length(_) -> false.

others() ->
    [
        {"SMUG-ABSOLUTE-URI-HOST-MISMATCH", none, "GET http://other/ HTTP/1.1\r\n" ?HOST "\r\n", [400, ok]},
        {"SMUG-BARE-CR-HEADER-VALUE", must, post("X-Test: a\rb\r\n", ""), refused()},
        {"SMUG-MULTIPLE-HOST-COMMA", must, "GET / HTTP/1.1\r\nHost: localhost, other\r\n\r\n", refused()},
        {"SMUG-PIPELINE-SAFE", none, ["GET / HTTP/1.1\r\n" ?HOST "\r\nGET / HTTP/1.1\r\n" ?HOST "\r\n"],
            [fun(#{statuses := Statuses}) -> Statuses =:= [200, 200] end]}
    ].
