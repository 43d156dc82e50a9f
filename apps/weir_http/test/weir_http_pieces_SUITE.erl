%% A request gets the same response in any pieces: each request of a corpus is sent in every two pieces, byte by byte,
%% and whole.
-module(weir_http_pieces_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([in_every_two_pieces/1, byte_by_byte/1]).
-export([probes_in_every_two_pieces/1, probes_byte_by_byte/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [in_every_two_pieces, byte_by_byte, probes_in_every_two_pieces, probes_byte_by_byte].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    {ok, _} = weir_http:start_listener(?LISTENER, #{ip => {127, 0, 0, 1}}, [
        {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>]}},
        {"/*path", weir_http_echo, {call, fun describe/1}}
    ]),
    [{port, weir:get_port(?LISTENER)} | Config].

describe(Request) ->
    {reply, 200, [], io_lib:format("~p~n", [
        [
            weir_http_request:Of(Request)
         || Of <- [method, path, query, version, fields, bindings, body, trailers]
        ]
    ])}.

end_per_suite(_Config) -> ok = weir_http:stop_listener(?LISTENER).

%% Each ends with a request that closes the connection, or is refused.
corpus() ->
    Last = <<"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n">>,
    [
        Last,
        <<"GET /a?b=c HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n", Last/binary>>,
        <<"\r\nGET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n\r\n", Last/binary>>,
        <<"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello\r\n\r\nyou", Last/binary>>,
        <<"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            "5;a=\"b;\\\"c\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY: z\r\n\r\n", Last/binary>>,
        <<"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Last/binary>>,
        <<"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n">>,
        <<"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nBad\r\n\r\n">>,
        <<"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n">>,
        <<"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n">>,
        <<"GET / HTTP/1.1\nHost: a\n\n">>,
        <<"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n">>
    ].

in_every_two_pieces(Config) ->
    lists:foreach(
        fun(Request) ->
            Whole = exchange([Request], Config),
            Cuts = [
                {binary_part(Request, 0, At), binary_part(Request, At, byte_size(Request) - At)}
             || At <- lists:seq(1, byte_size(Request) - 1)
            ],
            each(
                fun({First, Second}) -> ?assertEqual(Whole, exchange([First, Second], Config), {First, Second}) end,
                Cuts
            )
        end,
        corpus()
    ).

byte_by_byte(Config) ->
    each(
        fun(Request) ->
            ?assertEqual(exchange([Request], Config), exchange([<<Byte>> || <<Byte>> <= Request], Config), Request)
        end,
        corpus()
    ).

%% The requests of weir_http_probes, most of them followed by one that closes the connection. Long ones are cut at line
%% ends and a few places in between only.
probes_in_every_two_pieces(Config) ->
    each(
        fun(Request) ->
            Whole = exchange([Request], Config),
            [
                ?assertEqual(Whole, exchange([First, Second], Config), {First, Second})
             || {First, Second} <- cuts(Request)
            ]
        end,
        probes()
    ).

probes_byte_by_byte(Config) ->
    each(
        fun(Request) ->
            ?assertEqual(exchange([Request], Config), exchange([<<Byte>> || <<Byte>> <= Request], Config), Request)
        end,
        [Request || Request <- probes(), byte_size(Request) < 1000]
    ).

probes() ->
    Last = <<"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n">>,
    [iolist_to_binary([Bytes, [Last || not closes(Bytes)]]) || {_, _, Bytes, _} <- weir_http_probes:all()].

%% After a request with a close nothing is sent: a closed server would answer with a reset, which overtakes the
%% response.
closes(Bytes) -> re:run(Bytes, "connection: *close|HTTP/1\\.0", [caseless]) =/= nomatch.

cuts(Request) when byte_size(Request) < 400 ->
    [cut(Request, At) || At <- lists:seq(1, byte_size(Request) - 1)];
cuts(Request) ->
    Ends = lists:sublist([At || {At, _} <- binary:matches(Request, <<"\r\n">>)], 20),
    Middle = [byte_size(Request) * N div 10 || N <- lists:seq(1, 9)],
    [
        cut(Request, At)
     || At <- lists:usort([1, 8191, 8193] ++ Middle ++ lists:append([[At, At + 1, At + 2] || At <- Ends])),
        At > 0,
        At < byte_size(Request)
    ].

cut(Request, At) -> {binary_part(Request, 0, At), binary_part(Request, At, byte_size(Request) - At)}.

%% Runs a fun for all elements concurrently.
each(Fun, Elements) ->
    Workers = [spawn_monitor(fun() -> Fun(Element) end) || Element <- Elements],
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end || {Pid, Monitor} <- Workers].

%% Removes dates, and `100 Continue', which only clients that have not sent their body get.
exchange(Pieces, Config) ->
    Answer = answer(Pieces, proplists:get_value(port, Config)),
    re:replace(Answer, "date: [^\r]*\r\n|HTTP/1.1 100 Continue\r\n\r\n", "", [global, {return, binary}]).

%% Reads responses between the pieces. After a refusal the server accepts further bytes for a second or two only. Later
%% it answers with a reset, which would discard a response that was not read yet.
answer(Pieces, Port) ->
    {ok, Socket} = gen_tcp:connect(
        {127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}], weir_test_wait:patience()
    ),
    Answer = send(Socket, Pieces, <<>>),
    ok = gen_tcp:close(Socket),
    Answer.

%% Gives the server time to read a piece before the next. If the time is too short, the pieces arrive as one, with the
%% same result.
send(Socket, [Last], Before) ->
    _ = gen_tcp:send(Socket, Last),
    _ = gen_tcp:shutdown(Socket, write),
    {error, Reason, Answer} = received(Socket, weir_test_wait:patience(), Before),
    ?assertNotEqual(timeout, Reason),
    Answer;
send(Socket, [Piece | Pieces], Before) ->
    Sent = gen_tcp:send(Socket, Piece),
    case received(Socket, 2, Before) of
        {error, timeout, Answer} when Sent =:= ok -> send(Socket, Pieces, Answer);
        %% The server has closed the connection.
        {error, _, Answer} -> Answer
    end.

received(Socket, Time, Before) ->
    case gen_tcp:recv(Socket, 0, Time) of
        {ok, Bytes} -> received(Socket, Time, <<Before/binary, Bytes/binary>>);
        {error, Reason} -> {error, Reason, Before}
    end.
