%% Example servers of `weir run' that answer requests, on stock sockets and on Weir.
-module(weir_cli_run_requests_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([
    ehttpd_answers_in_every_mode/1,
    ehttpd_refuses_an_endless_head/1,
    accept_answers_once_and_closes/1,
    file_httpd_answers_with_the_file/1,
    cowboy_hello_answers_or_says_that_cowboy_is_missing/1,
    simple_servers_answer_each_request/1,
    ranch_servers_answer_or_say_that_ranch_is_missing/1
]).
-export([accept_listener_answers_once_and_closes/1]).

-import(weir_cli_program, [mentions/2]).
-import(weir_cli_examples, [backend/1, in_every_mode/4, run/2, serve/3, stop/1]).
-import(weir_cli_test, [connect/1]).

-include("run_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    Serving = [
        ehttpd_answers_in_every_mode,
        ehttpd_refuses_an_endless_head,
        accept_answers_once_and_closes,
        file_httpd_answers_with_the_file,
        cowboy_hello_answers_or_says_that_cowboy_is_missing,
        simple_servers_answer_each_request,
        ranch_servers_answer_or_say_that_ranch_is_missing
    ],
    OfWeir = [accept_listener_answers_once_and_closes],
    [{inet, [], Serving}, {socket, [], Serving}, {weir, [], Serving ++ OfWeir}].

ehttpd_answers_in_every_mode(Config) ->
    Request = <<"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n">>,
    <<Half:20/binary, OtherHalf/binary>> = Request,
    in_every_mode(Config, ehttpd, [], fun(Socket) ->
        ok = gen_tcp:send(Socket, Request),
        hello(Socket),
        ok = gen_tcp:send(Socket, Half),
        %% The server reads half of a request alone, and does not answer.
        ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 40)),
        ok = gen_tcp:send(Socket, OtherHalf),
        hello(Socket),
        ok = gen_tcp:send(Socket, [Request, Request, Half]),
        hello(Socket),
        hello(Socket),
        ok = gen_tcp:send(Socket, OtherHalf),
        hello(Socket)
    end).

ehttpd_refuses_an_endless_head(Config) ->
    #{port := Port} = Program = serve(Config, ehttpd, []),
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, ["GET / HTTP/1.1\r\n", lists:duplicate(9000, $x)]),
    ?assertMatch({ok, <<"HTTP/1.1 431 ">>}, gen_tcp:recv(Socket, 13, weir_test_wait:patience())),
    0 = stop(Program).

accept_answers_once_and_closes(Config) ->
    [
        begin
            #{port := Port} = Program = serve(Config, accept, ["--active", Mode]),
            [
                begin
                    {ok, Socket} = connect(Port),
                    ok = gen_tcp:send(Socket, <<"hello">>),
                    ?assertEqual({ok, <<"ok">>}, gen_tcp:recv(Socket, 2, weir_test_wait:patience())),
                    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience()))
                end
             || _ <- lists:seq(1, 20)
            ],
            0 = stop(Program)
        end
     || Mode <- ["false", "once"]
    ].

file_httpd_answers_with_the_file(Config) ->
    File = filename:join(?config(priv_dir, Config), "a file"),
    %% More than the buffers of two sockets hold.
    Content = rand:bytes(8000000),
    ok = file:write_file(File, Content),
    #{port := Port} = Program = serve(Config, file_httpd, ["--file", File]),
    {ok, Socket} = connect(Port),
    [
        begin
            ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n">>),
            Head = <<"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n">>,
            ?assertEqual({ok, Head}, gen_tcp:recv(Socket, byte_size(Head), weir_test_wait:patience())),
            {ok, Received} = gen_tcp:recv(Socket, byte_size(Content), weir_test_wait:patience()),
            ?assert(Received =:= Content)
        end
     || _ <- [1, 2, 3]
    ],
    ok = gen_tcp:send(Socket, <<"rubbish\r\n\r\n">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())),
    0 = stop(Program),
    {1, [Line]} = run(Config, ["run", "file_httpd", "--file", "/no/such file" | backend(Config)]),
    ?assert(mentions("/no/such file", [Line])).

cowboy_hello_answers_or_says_that_cowboy_is_missing(Config) ->
    case {code:where_is_file("cowboy.app"), ?config(backend, Config)} of
        {non_existing, _} ->
            {1, [Line]} = run(Config, ["run", "cowboy_hello" | backend(Config)]),
            ?assert(mentions("cowboy, which is not installed", [Line]));
        {_, socket} ->
            {skip, "ranch puts options before the one that chooses this backend"};
        _ ->
            #{port := Port} = Program = serve(Config, cowboy_hello, []),
            {ok, Socket} = connect(Port),
            [
                begin
                    ok = gen_tcp:send(Socket, <<"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n">>),
                    {ok, Response} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
                    ?assertMatch(<<"HTTP/1.1 200 OK\r\n", _/binary>>, Response),
                    ?assertMatch({_, 12}, binary:match(Response, <<"Hello world!">>))
                end
             || _ <- lists:seq(1, 3)
            ],
            0 = stop(Program)
    end.

simple_servers_answer_each_request(Config) ->
    [
        answers_each_request(Config, Example, Options, fun(_Request) -> <<"ok">> end)
     || {Example, Options} <- [
            {simple, []}, {simple, ["--acceptors", "3", "--sleep", "20"]}, {simple_readers, []}, {simple_responders, []}
        ]
    ].

ranch_servers_answer_or_say_that_ranch_is_missing(Config) ->
    case {code:where_is_file("ranch.app"), ?config(backend, Config)} of
        {non_existing, _} ->
            [
                begin
                    {1, [Line]} = run(Config, ["run", Example | backend(Config)]),
                    ?assert(mentions("ranch, which is not installed", [Line]))
                end
             || Example <- ["ranch_echo", "ranch_simple"]
            ];
        {_, socket} ->
            {skip, "ranch puts options before the one that chooses this backend"};
        _ ->
            Ok = fun(_Request) -> <<"ok">> end,
            answers_each_request(Config, ranch_simple, [], Ok),
            answers_each_request(Config, ranch_simple, ["--acceptors", "2", "--sleep", "20"], Ok),
            [
                answers_each_request(Config, ranch_echo, ["--active", Mode], fun(Request) -> Request end)
             || Mode <- ["once", "true", "2", "false"]
            ]
    end.

answers_each_request(Config, Example, Options, Answer) ->
    #{port := Port} = Program = serve(Config, Example, Options),
    Sockets = [Socket || _ <- [1, 2, 3], {ok, Socket} <- [connect(Port)]],
    [
        begin
            ok = gen_tcp:send(Socket, Request),
            Expected = Answer(Request),
            ?assertEqual(
                {Example, {ok, Expected}},
                {Example, gen_tcp:recv(Socket, byte_size(Expected), weir_test_wait:patience())}
            )
        end
     || Request <- [<<"one">>, <<"two">>, <<"three">>], Socket <- Sockets
    ],
    0 = stop(Program).

accept_listener_answers_once_and_closes(Config) ->
    #{port := Port} = Program = serve(Config, accept_listener, []),
    [
        begin
            {ok, Socket} = connect(Port),
            ok = gen_tcp:send(Socket, <<"a request">>),
            ?assertEqual({ok, <<"ok">>}, gen_tcp:recv(Socket, 2, weir_test_wait:patience())),
            ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience()))
        end
     || _ <- lists:seq(1, 20)
    ],
    0 = stop(Program).

hello(Socket) ->
    Answer = <<"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\nhello world!">>,
    ?assertEqual({ok, Answer}, gen_tcp:recv(Socket, byte_size(Answer), weir_test_wait:patience())).
