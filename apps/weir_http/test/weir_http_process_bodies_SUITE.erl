%% Request bodies for a process: whole and in pieces.
-module(weir_http_process_bodies_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, is_closed/1, recv_all/1, get/1, get/2]).
-import(weir_http_serving, [told/0, watch/1, watched/0, told_down/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_body_is_whole,
        a_body_in_pieces,
        a_body_in_pieces_waits_for_its_process,
        a_body_that_is_not_read_closes_the_connection,
        a_bad_chunk_ends_the_process,
        a_body_that_does_not_come_ends_the_process,
        an_upload_is_asked_for,
        trailers_come_with_the_end,
        trailers_are_sent_behind_a_stream,
        trailers_that_may_not_be_sent_cut_the_response
    ].

serve(Fun) -> serve(Fun, #{}, #{}).

serve(Fun, RouteOptions, Options) -> weir_http_serving:start(?LISTENER, Fun, RouteOptions, Options).

post(Body) ->
    ["POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: ", integer_to_list(iolist_size(Body)), "\r\n\r\n", Body].

a_body_is_whole(_Config) ->
    Port = serve(fun(Request) -> {reply, 200, [], weir_http_request:body(Request)} end),
    Socket = connect(Port),
    Large = binary:copy(<<"0123456789">>, 50000),
    ok = send(Socket, [post(Large), post("two"), get("/direct")]),
    {200, _, Large} = response(Socket),
    {200, _, <<"two">>} = response(Socket),
    {200, _, <<"direct">>} = response(Socket).

%% Reads the whole body, and returns the number of pieces too.
read(Pieces) ->
    case weir_http_process:read_body() of
        {more, Bytes} -> read([Bytes | Pieces]);
        {done, Bytes, Trailers} -> {lists:reverse([Bytes | Pieces]), Trailers};
        {error, closed} = Error -> Error
    end.

a_body_in_pieces(_Config) ->
    Self = self(),
    Port = serve(fun(_) ->
        {more, First} = weir_http_process:read_body(),
        Self ! {told, First},
        {Rest, []} = read([]),
        {done, <<>>, []} = weir_http_process:read_body(),
        {reply, 200, [], [First | Rest]}
    end, #{body => stream, max_body => 10000000}, #{}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: 2000010\r\n\r\nhello"),
    <<"hello">> = told(),
    Large = binary:copy(<<"x">>, 2000000),
    ok = send(Socket, [Large, "world", get("/direct")]),
    Whole = <<"hello", Large/binary, "world">>,
    ?assertMatch({200, _, Whole}, response(Socket)),
    {200, _, <<"direct">>} = response(Socket),
    %% In chunks.
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    <<"hello">> = told(),
    ok = send(Socket, ["5\r\nworld\r\n0\r\n\r\n", get("/direct")]),
    {200, _, <<"helloworld">>} = response(Socket),
    {200, _, <<"direct">>} = response(Socket).

a_body_in_pieces_waits_for_its_process(_Config) ->
    Self = self(),
    Port = serve(fun(_) ->
        Self ! {told, self()},
        receive go -> ok end,
        {Pieces, []} = read([]),
        {reply, 200, [], integer_to_binary(iolist_size(Pieces))}
    end, #{body => stream, max_body => 20000000}, #{}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n"),
    Pid = told(),
    _ = spawn_link(fun() -> ok = send(Socket, binary:copy(<<"x">>, 20000000)) end),
    %% While the process does not read, the connection is not read either.
    [{Connection, _}] = weir:connections(?LISTENER),
    ?waitEqual({ok, [{active, false}]}, inet:getopts(Connection, [active])),
    {ok, [{recv_oct, Read}]} = inet:getstat(Connection, [recv_oct]),
    ?assert(Read < 1000000),
    Pid ! go,
    {200, _, <<"20000000">>} = response(Socket).

a_body_that_is_not_read_closes_the_connection(_Config) ->
    Port = serve(fun(_) -> {reply, 200, [], <<"enough">>} end, #{body => stream}, #{}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhello"),
    {200, #{<<"connection">> := <<"close">>}, <<"enough">>} = response(Socket),
    ?assert(is_closed(Socket)),
    %% A body that arrives with the head is complete.
    Other = connect(Port),
    ok = send(Other, [post("hello"), get("/direct")]),
    {200, _, <<"enough">>} = response(Other),
    {200, _, <<"direct">>} = response(Other).

a_bad_chunk_ends_the_process(_Config) ->
    Self = self(),
    Port = serve(fun(_) -> Self ! {told, self()}, watched(), read([]) end, #{body => stream}, #{}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello"),
    Monitor = watch(told()),
    ok = send(Socket, "nonsense"),
    {400, _, <<"chunk\n">>} = response(Socket),
    ?assert(is_closed(Socket)),
    told_down(Monitor).

a_body_that_does_not_come_ends_the_process(_Config) ->
    Self = self(),
    Port = serve(fun(_) -> Self ! {told, self()}, watched(), read([]) end, #{body => stream}, #{body_timeout => 300}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello"),
    Monitor = watch(told()),
    ?assert(is_closed(Socket)),
    told_down(Monitor).

an_upload_is_asked_for(_Config) ->
    Port = serve(fun(_) -> {Pieces, _} = read([]), {reply, 200, [], Pieces} end, #{body => stream}, #{}),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
    {100, _, <<>>} = response(Socket),
    ok = send(Socket, "hello"),
    {200, _, <<"hello">>} = response(Socket).

trailers_come_with_the_end(_Config) ->
    Self = self(),
    Port = serve(
        fun(_) ->
            Self ! {told, self()},
            Self ! {told, read([])},
            {reply, 200, [], <<>>}
        end,
        #{body => stream},
        #{}
    ),
    Socket = connect(Port),
    ok = send(Socket, "POST /serve HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
    _ = told(),
    ok = send(Socket, "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"),
    {200, _, <<>>} = response(Socket),
    {Pieces, Trailers} = told(),
    ?assertEqual({<<"hello">>, [{<<"x-sum">>, <<"1">>}]}, {iolist_to_binary(Pieces), Trailers}).

trailers_are_sent_behind_a_stream(_Config) ->
    Port = serve(
        fun(Request) -> streamed(Request, [{<<"x-sum">>, [<<"1">>, "2"]}, {<<"x-time">>, <<"3 ms">>}]) end, #{}, #{}
    ),
    Socket = connect(Port),
    ok = send(Socket, get("/serve", "Connection: close\r\n")),
    [_, Body] = binary:split(recv_all(Socket), <<"\r\n\r\n">>),
    ?assertEqual(<<"5\r\nhello\r\n0\r\nx-sum: 12\r\nx-time: 3 ms\r\n\r\n">>, Body),
    %% A client of HTTP/1.0 gets no trailers.
    Old = connect(Port),
    ok = send(Old, "GET /serve HTTP/1.0\r\n\r\n"),
    [_, <<"hello">>] = binary:split(recv_all(Old), <<"\r\n\r\n">>).

trailers_that_may_not_be_sent_cut_the_response(_Config) ->
    [
        begin
            Port = serve(fun(Request) -> streamed(Request, Trailers) end, #{}, #{}),
            Socket = connect(Port),
            ok = send(Socket, get("/serve")),
            Text = recv_all(Socket),
            ?assertEqual({<<"5\r\nhello\r\n">>, nomatch}, {
                binary:part(Text, byte_size(Text), -10), binary:match(Text, <<"evil">>)
            }),
            ok = weir_http:stop_listener(?LISTENER)
        end
     || Trailers <- [
            [{<<"x-sum">>, <<"1\r\nevil: 2">>}],
            [{<<"evil:">>, <<"2">>}],
            [{<<"Content-Length">>, <<"2">>}],
            [{<<"set-cookie">>, <<"evil=2">>}],
            [{<<"x-sum">>, <<"1">>} | evil]
        ]
    ].

streamed(Request, Trailers) ->
    ok = weir_http_process:stream(Request, 200, []),
    ok = weir_http_process:send(<<"hello">>),
    {streamed, Trailers}.
