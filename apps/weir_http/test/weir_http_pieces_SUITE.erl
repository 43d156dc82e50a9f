%% A request is the same in whatever pieces it comes: each of a corpus in every two pieces, and byte by byte, gives the
%% answers that it gives whole.
-module(weir_http_pieces_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([in_every_two_pieces/1, byte_by_byte/1]).

-define(LISTENER, ?MODULE).
-define(PATIENCE, 20000).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [in_every_two_pieces, byte_by_byte].

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

%% Each ends with a request that closes the connection, or with one that is refused.
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
            Cuts = [{binary_part(Request, 0, At), binary_part(Request, At, byte_size(Request) - At)}
                    || At <- lists:seq(1, byte_size(Request) - 1)],
            each(fun({First, Second}) -> ?assertEqual(Whole, exchange([First, Second], Config), {First, Second}) end, Cuts)
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

%% At the same time, so many at once.
each(Fun, Elements) ->
    Workers = [spawn_monitor(fun() -> Fun(Element) end) || Element <- Elements],
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) end || {Pid, Monitor} <- Workers].

%% The responses without their dates.
exchange(Pieces, Config) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, proplists:get_value(port, Config), [binary, {active, false}, {nodelay, true}]),
    ok = send(Socket, Pieces),
    Answer = weir_http_client:recv_all(Socket),
    ok = gen_tcp:close(Socket),
    re:replace(Answer, "date: [^\r]*\r\n", "", [global, {return, binary}]).

%% The server has the time to read a piece before the next comes. Where it does not, there is one piece less, and the answer
%% is the same. The rest of what is refused may have nobody to take it.
send(Socket, [Last]) ->
    _ = gen_tcp:send(Socket, Last),
    ok;
send(Socket, [Piece | Pieces]) ->
    _ = gen_tcp:send(Socket, Piece),
    timer:sleep(2),
    send(Socket, Pieces).
