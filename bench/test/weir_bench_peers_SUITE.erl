%% The installed peers serve a connection each, and are gone after they are stopped.
-module(weir_bench_peers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    haproxy_listens/1,
    envoy_listens/1,
    weir_proxy_listens/1,
    nginx_listens_as_proxy/1,
    nginx_answers/1,
    go_echoes/1,
    go_answers/1,
    go_sends_messages_back/1,
    pushpin_subscribes/1
]).
-export([tokio_echoes/1, tokio_answers/1, tokio_sends_messages_back/1, cowboy_sends_messages_back/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [
        haproxy_listens,
        envoy_listens,
        weir_proxy_listens,
        nginx_listens_as_proxy,
        nginx_answers,
        pushpin_subscribes,
        go_echoes,
        go_answers,
        go_sends_messages_back,
        tokio_echoes,
        tokio_answers,
        tokio_sends_messages_back,
        cowboy_sends_messages_back
    ].

%% Tests bin/weir with the code that this suite was compiled with.
init_per_suite(Config) ->
    ok = weir_bench_record:in_tree(),
    Profile = filename:dirname(filename:dirname(filename:dirname(filename:dirname(code:which(weir))))),
    Environment = [{"REBAR_BASE_DIR", filename:dirname(Profile)}, {"REBAR_PROFILE", filename:basename(Profile)}],
    Before = [{Name, os:getenv(Name)} || {Name, _} <- Environment],
    lists:foreach(fun({Name, Value}) -> os:putenv(Name, Value) end, Environment),
    [{before, Before} | Config].

end_per_suite(Config) ->
    lists:foreach(
        fun
            ({Name, false}) -> os:unsetenv(Name);
            ({Name, Value}) -> os:putenv(Name, Value)
        end,
        proplists:get_value(before, Config)
    ).

haproxy_listens(_Config) -> serves(haproxy, [haproxy], proxy, none).
envoy_listens(_Config) -> serves(envoy, [envoy], proxy, none).
weir_proxy_listens(_Config) -> serves(weir, [], weir_proxy, none).
nginx_listens_as_proxy(_Config) -> serves(nginx, [nginx_stream], proxy, none).
nginx_answers(_Config) -> serves(nginx, [nginx], ehttpd, http).
pushpin_subscribes(_Config) -> serves(pushpin, [pushpin], push, events).
go_echoes(_Config) -> serves(go, [go], echo, echo).
go_answers(_Config) -> serves(go, [go], ehttpd, http).
go_sends_messages_back(_Config) -> serves(go, [go], ws_echo, websocket).
tokio_echoes(_Config) -> serves(tokio, [tokio], echo, echo).
tokio_answers(_Config) -> serves(tokio, [tokio], http_hello, http).
tokio_sends_messages_back(_Config) -> serves(tokio, [tokio], ws_echo, websocket).
cowboy_sends_messages_back(_Config) -> serves(inet, [cowboy], cowboy_ws_echo, websocket).

serves(Backend, Needs, Example, Asked) ->
    case weir_bench_peers:missing(Needs) of
        [] ->
            [
                ?assertNotEqual(<<"unknown">>, maps:get(Peer, weir_bench_peers:versions(), none))
             || [Peer | _] <- [Needs]
            ],
            Run = #{
                name => peer,
                title => <<"peer">>,
                needs => Needs,
                backend => Backend,
                server => Example,
                load => echo,
                connections => 1,
                warmup => 1,
                duration => 1
            },
            {ok, #{port := Port} = Server} = weir_bench_server:start(Run, [], weir_bench_machine:free_port()),
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
            ok = ask(Asked, Socket),
            ok = gen_tcp:close(Socket),
            ok = weir_bench_daemon:stop(Server),
            ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, []));
        [What | _] ->
            {skip, atom_to_list(What) ++ " is not here"}
    end.

ask(none, _Socket) ->
    ok;
ask(echo, Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    <<"hello">> = weir_test_wait:recv_exactly(Socket, 5),
    ok;
ask(websocket, Socket) ->
    ok = gen_tcp:send(Socket, [
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n",
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ]),
    <<"HTTP/1.1 101 ", _/binary>> = until(Socket, <<"\r\n\r\n">>, <<>>),
    %% A frame in one piece, with a mask of zeros.
    ok = gen_tcp:send(Socket, <<16#82, 16#85, 0:32, "hello">>),
    <<16#82, 5, "hello">> = until(Socket, <<"hello">>, <<>>),
    ok;
%% Subscribes on one connection and publishes on another.
ask(events, Socket) ->
    ok = gen_tcp:send(Socket, <<"GET /sub/a HTTP/1.1\r\nhost: localhost\r\n\r\n">>),
    <<"HTTP/1.1 200 ", _/binary>> = until(Socket, <<"\r\n\r\n">>, <<>>),
    {ok, {Address, Port}} = inet:peername(Socket),
    {ok, Publisher} = gen_tcp:connect(Address, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Publisher, <<"POST /pub/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhello">>),
    <<"HTTP/1.1 200 ", _/binary>> = until(Publisher, <<"\r\n\r\n">>, <<>>),
    _ = until(Socket, <<"data: hello\n\n">>, <<>>),
    gen_tcp:close(Publisher);
ask(http, Socket) ->
    ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n">>),
    {Answer, closed} = weir_test_wait:recv_all(Socket),
    ?assertMatch(<<"HTTP/1.1 200 ", _/binary>>, Answer),
    ?assertNotEqual(nomatch, binary:match(Answer, <<"\r\n\r\nhello world!">>)).

until(Socket, Last, Got) ->
    case binary:match(Got, Last) of
        {_, _} ->
            Got;
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            until(Socket, Last, <<Got/binary, More/binary>>)
    end.
