%% Rules of weir_proxy written in Erlang.
-module(weir_example_route_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([
    a_line_says_who/1,
    a_wrong_line_is_refused/1,
    postgres_by_database/1,
    postgres_that_asks_for_tls/1,
    no_such_database/1
]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [a_line_says_who, a_wrong_line_is_refused, postgres_by_database, postgres_that_asks_for_tls, no_such_database].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_proxy),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(Application) || Application <- lists:reverse(proplists:get_value(started, Config))],
    ok.

end_per_testcase(_Case, _Config) ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    [ok = weir:stop_listener(Name) || Name <- [<<"one">>, <<"two">>]],
    ok.

a_line_says_who(_Config) ->
    Port = by_line(),
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, <<"two sesame\nhello">>),
    ?assertEqual(<<"welcome\ntwo:hello">>, said(Socket, 17)).

a_wrong_line_is_refused(_Config) ->
    Port = by_line(),
    [
        begin
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, Line),
            ?assertEqual({Line, {ok, <<"no\n">>}}, {Line, gen_tcp:recv(Socket, 3, weir_test_wait:patience())}),
            ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience()))
        end
     || Line <- [<<"two open\nhello">>, <<"nobody sesame\n">>, <<"two\n">>, <<"\n">>]
    ],
    Long = connect(Port),
    ok = gen_tcp:send(Long, binary:copy(<<"x">>, 300)),
    ?assertMatch({error, _}, gen_tcp:recv(Long, 0, weir_test_wait:patience())).

by_line() ->
    ok = weir_example_route_line:start(#{
        name => line, listen => "127.0.0.1:0", passwords => #{<<"one">> => <<"open">>, <<"two">> => <<"sesame">>},
        servers => maps:from_list([{Name, [server(Name)]} || Name <- [<<"one">>, <<"two">>]])
    }),
    port(line).

postgres_by_database(_Config) ->
    Port = by_database(),
    [
        ?assertEqual(Answer, asked(Port, <<>>, Pairs))
     || {Answer, Pairs} <- [
            {<<"one:">>, ["user", "joe", "database", "one"]},
            {<<"two:">>, ["database", "two", "user", "one"]},
            {<<"one:">>, ["user", "one"]}
        ]
    ].

%% psql asks for TLS first, then connects without.
postgres_that_asks_for_tls(_Config) ->
    Port = by_database(),
    [
        ?assertEqual(<<"two:">>, asked(Port, <<8:32, Code:32>>, ["user", "joe", "database", "two"]))
     || Code <- [80877103, 80877104]
    ].

no_such_database(_Config) ->
    Socket = connect(by_database()),
    ok = gen_tcp:send(Socket, startup(["user", "joe"])),
    {ok, <<"E", Size:32>>} = gen_tcp:recv(Socket, 5, weir_test_wait:patience()),
    {ok, Fields} = gen_tcp:recv(Socket, Size - 4, weir_test_wait:patience()),
    ?assertMatch(
        [<<"SFATAL">>, <<"C3D000">>, <<"Mno server has the database \"joe\"">>, <<>>, <<>>],
        binary:split(Fields, <<0>>, [global])
    ),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())).

by_database() ->
    ok = weir_example_route_postgres:start(#{
        name => postgres,
        listen => "127.0.0.1:0",
        databases => #{<<"one">> => server(<<"one">>), <<"two">> => server(<<"two">>)}
    }),
    port(postgres).

asked(Port, Request, Pairs) ->
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, Request),
    _ = Request =:= <<>> orelse ?assertEqual({ok, <<"N">>}, gen_tcp:recv(Socket, 1, weir_test_wait:patience())),
    Message = startup(Pairs),
    ok = gen_tcp:send(Socket, Message),
    Answer = said(Socket, 4 + byte_size(Message)),
    ?assertEqual(Message, binary:part(Answer, 4, byte_size(Message))),
    binary:part(Answer, 0, 4).

startup(Pairs) ->
    Body = <<(iolist_to_binary([[Text, 0] || Text <- Pairs]))/binary, 0>>,
    <<(byte_size(Body) + 8):32, 3:16, 0:16, Body/binary>>.

%% Sends its name, then echoes.
server(Name) ->
    {ok, _} = weir:start_listener(
        Name,
        #{ip => "127.0.0.1"},
        fun(Socket, _) ->
            ok = gen_tcp:send(Socket, [Name, ":"]),
            echo(Socket)
        end,
        none
    ),
    iolist_to_binary(["127.0.0.1:", integer_to_binary(weir:get_port(Name))]).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> _ = gen_tcp:send(Socket, Data), echo(Socket);
        {error, _} -> ok
    end.

port(Name) ->
    {ok, #{frontends := Frontends}} = weir_proxy:info(Name),
    [#{listen := [<<"127.0.0.1:", Port/binary>>]}] = maps:values(Frontends),
    binary_to_integer(Port).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], weir_test_wait:patience()),
    Socket.

said(Socket, Size) ->
    {ok, Said} = gen_tcp:recv(Socket, Size, weir_test_wait:patience()),
    Said.
