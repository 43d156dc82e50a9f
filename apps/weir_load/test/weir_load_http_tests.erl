-module(weir_load_http_tests).

-include_lib("eunit/include/eunit.hrl").

start(Options) ->
    All = maps:merge(#{host => "localhost", port => 8080, method => "GET", header => [], body => ""}, Options),
    {ok, Config} = weir_load_http:init(All),
    {ok, Connection} = weir_load_http:connect(1, Config),
    Connection.

request(Options) ->
    {ok, Bytes, _} = weir_load_http:request(1, start(Options)),
    iolist_to_binary(Bytes).

requests_test_() ->
    [
        ?_assertEqual(<<"GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n">>, request(#{})),
        ?_assertEqual(
            <<"GET /a HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\r\n">>,
            request(#{path => "/a", port => 80, header => [{"X", "y"}]})
        ),
        ?_assertEqual(
            <<"POST / HTTP/1.1\r\nContent-Length: 3\r\nhost: other\r\n\r\nabc">>,
            request(#{method => "POST", header => [{"host", "other"}], body => "abc"})
        )
    ].

%% Returns the events of a response, which must be the same wherever it is cut.
events(Bytes, Options) ->
    Whole = pieces([Bytes], start(Options)),
    [
        ?assertEqual(
            Whole, pieces([binary:part(Bytes, 0, At), binary:part(Bytes, At, byte_size(Bytes) - At)], start(Options))
        )
     || At <- lists:seq(1, byte_size(Bytes) - 1)
    ],
    ?assertEqual(Whole, pieces([<<Byte>> || <<Byte>> <= Bytes], start(Options))),
    Whole.

pieces([], _Connection) -> [];
pieces([Piece | Pieces], Connection) ->
    case weir_load_http:response(Piece, Connection) of
        {ok, Events, Later} -> Events ++ pieces(Pieces, Later);
        {error, Kind} -> [{error, Kind}]
    end.

responses_test_() ->
    Length = <<"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello">>,
    Chunks = <<"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n">>,
    [
        ?_assertEqual(Events, events(Bytes, Options))
     || {Events, Bytes, Options} <- [
            {[answered], Length, #{}},
            {[answered, answered], <<Length/binary, Length/binary>>, #{}},
            {[answered], Chunks, #{}},
            {[answered, answered], <<Chunks/binary, Length/binary>>, #{}},
            {[answered], <<"HTTP/1.1 204 No Content\r\n\r\n">>, #{}},
            {[answered], <<"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n">>, #{method => "HEAD"}},
            {[answered], <<"HTTP/1.1 100 Continue\r\n\r\n", Length/binary>>, #{}},
            {[{failed, http_404}], <<"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno">>, #{}},
            {[answered, close], <<"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n">>, #{}},
            {[answered, close], <<"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx">>, #{}},
            {[{error, no_length}], <<"HTTP/1.1 200 OK\r\n\r\n">>, #{}},
            {[{error, bad_response}], <<"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n">>, #{}},
            {[{error, bad_response}], <<"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n">>, #{}}
        ]
    ] ++ [?_assertEqual([{error, bad_response}], pieces([<<"SSH-2.0-OpenSSH\r\n">>], start(#{})))].
