%% Malicious clients: silence, single bytes, garbage, floods. They hold no more than the limits allow, and other
%% clients are served as before.
-module(weir_proxy_attack_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [port/0, echo/2]).
-import(weir_test_wait, [patience/0, wait_until/1]).

-define(SERVER, weir_proxy_backend_double).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        first_bytes_that_never_end,
        drops_do_not_extend_the_time,
        silence_ends,
        garbage_goes_to_the_default,
        a_line_without_end,
        more_than_may_come,
        more_of_one_address,
        a_flood_of_short_ones,
        refused_configurations_change_nothing,
        idle_ones_cost_no_process
    ].

init_per_suite(Config) ->
    Server = ?SERVER:start("a", [of_suite]),
    weir_proxy_test:begin_suite([], [{server, Server} | Config]).

end_per_suite(Config) ->
    ok = ?SERVER:stop(proplists:get_value(server, Config)),
    weir_proxy_test:end_suite(Config).

end_per_testcase(_Case, _Config) -> weir_proxy_test:end_case().

%% More bytes than are looked at: the rest goes to a server.
first_bytes_that_never_end(Config) ->
    Port = proxy(Config, #{rules => [#{host => "x.org", reject => true}], first_bytes_timeout => patience()}),
    Socket = connect(Port),
    Head = [<<"GET / HTTP/1.1\r\n">>, binary:copy(<<"X-Long: and longer\r\n">>, 2000)],
    ok = gen_tcp:send(Socket, Head),
    ?assertEqual({ok, <<"a\n">>}, gen_tcp:recv(Socket, 2, patience())),
    ?assertEqual({ok, iolist_to_binary(Head)}, gen_tcp:recv(Socket, iolist_size(Head), patience())).

%% One byte at a time: the timeout is for all of them together.
drops_do_not_extend_the_time(Config) ->
    %% A complete head would be rejected. It never comes, and an incomplete one is `unknown'.
    Rules = [#{protocol => http, reject => true}, #{protocol => [unknown, none], backend => web}],
    Port = proxy(Config, #{rules => Rules, first_bytes_timeout => 300, backend => none}),
    Slow = [connect(Port) || _ <- lists:seq(1, 20)],
    Drip = spawn_link(fun() -> drip(Slow, <<"GET / HTTP/1.1\r\nX: ">>) end),
    [?assertEqual({ok, <<"a\n">>}, gen_tcp:recv(Socket, 2, patience())) || Socket <- Slow],
    ?assert(is_process_alive(Drip)),
    unlink(Drip),
    exit(Drip, kill).

drip(Sockets, <<Byte, Rest/binary>>) ->
    [gen_tcp:send(Socket, <<Byte>>) || Socket <- Sockets],
    receive after 20 -> drip(Sockets, case Rest of <<>> -> <<"x">>; _ -> Rest end) end.

silence_ends(Config) ->
    Port = proxy(Config, #{rules => [#{protocol => tls, backend => web}], backend => none, first_bytes_timeout => 300}),
    Silent = [connect(Port) || _ <- lists:seq(1, 100)],
    [?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, patience())) || Socket <- Silent],
    ?waitEqual(0, number(current_sessions)),
    ?assertEqual(100, number(rejected)).

%% Every byte of the garbage arrives.
garbage_goes_to_the_default(Config) ->
    Port = proxy(Config, #{
        rules => [
            #{sni => "x.org", reject => true}, #{host => "x.org", reject => true}, #{database => "x", reject => true}
        ],
        first_bytes_timeout => 200
    }),
    rand:seed(exsss, {1, 2, 3}),
    [
        begin
            Garbage = <<Start/binary, (rand:bytes(rand:uniform(5000)))/binary>>,
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, Garbage),
            ?assertEqual({ok, <<"a\n">>}, gen_tcp:recv(Socket, 2, patience())),
            ?assertEqual({ok, Garbage}, gen_tcp:recv(Socket, byte_size(Garbage), patience())),
            ok = gen_tcp:close(Socket)
        end
     || _ <- lists:seq(1, 3),
        Start <- [
            <<>>,
            <<22, 3, 1>>,
            <<22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3>>,
            <<"GET ">>,
            <<0, 0, 0, 20, 0, 3, 0, 0>>,
            <<"*3\r\n$">>,
            <<"SSH-">>
        ]
    ].

%% Without a complete PROXY header, no connection to a server is opened.
a_line_without_end(Config) ->
    Port = proxy(Config, #{proxy_protocol => true}),
    Before = ?SERVER:connections(proplists:get_value(server, Config)),
    [
        begin
            Socket = connect(Port),
            ok = gen_tcp:send(Socket, Bytes),
            ?assertMatch({Bytes, {error, _}}, {Bytes, gen_tcp:recv(Socket, 0, patience())})
        end
     || Bytes <- [
            <<"GET / HTTP/1.0\r\n\r\n">>,
            <<"PROXY ", (binary:copy(<<"x">>, 200))/binary>>,
            <<"\r\n\r\n", 0, "\r\nQUIT\n", 16#31, 16#11, 0, 0>>
        ]
    ],
    ?assertEqual(Before, ?SERVER:connections(proplists:get_value(server, Config))).

%% Existing connections are not affected. As many waiting connections are served as others leave. They are not the
%% first ones, because each pollset has its own backlog. The server counts them: the proxy still counts a session for a
%% moment after it has ended.
more_than_may_come(Config) ->
    Come = fun() -> ?SERVER:connections(proplists:get_value(server, Config)) end,
    Before = Come(),
    Port = proxy(Config, #{max_connections => 10}),
    [Mine | Others] = [connect(Port) || _ <- lists:seq(1, 10)],
    [{ok, <<"a\n">>} = gen_tcp:recv(Socket, 2, patience()) || Socket <- [Mine | Others]],
    Flood = [connect(Port) || _ <- lists:seq(1, 100)],
    ?assertEqual(<<"still">>, echo(Mine, <<"still">>)),
    ?assertEqual(Before + 10, Come()),
    [ok = inet:setopts(Socket, [{active, once}]) || Socket <- Flood],
    [ok = gen_tcp:close(Socket) || Socket <- Others],
    [receive {tcp, _, <<"a\n">>} -> ok after patience() -> ct:fail(not_served) end || _ <- Others],
    ?assertEqual(Before + 10 + length(Others), Come()),
    ?assertEqual(<<"still">>, echo(Mine, <<"still">>)),
    [ok = gen_tcp:close(Socket) || Socket <- [Mine | Flood]].

more_of_one_address(Config) ->
    Port = proxy(Config, #{per_address => 5}),
    Mine = connect(Port, {127, 0, 0, 9}),
    {ok, <<"a\n">>} = gen_tcp:recv(Mine, 2, patience()),
    %% A connection above the limit may be reset before connect returns.
    Flood = [
        Socket
     || _ <- lists:seq(1, 50),
        {ok, Socket} <- [gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], patience())]
    ],
    Served = [ok || Socket <- Flood, {ok, <<"a\n">>} =:= gen_tcp:recv(Socket, 2, patience())],
    ?assertEqual(5, length(Served)),
    ?assertEqual(<<"still">>, echo(Mine, <<"still">>)).

%% Clients that connect and reset at once leave nothing behind.
a_flood_of_short_ones(Config) ->
    Port = proxy(Config, #{
        rules => [#{protocol => [http, none, unknown], backend => web}], first_bytes_timeout => 200
    }),
    Mine = connect(Port),
    ok = gen_tcp:send(Mine, <<"xyz">>),
    {ok, <<"a\nxyz">>} = gen_tcp:recv(Mine, 5, patience()),
    Processes = length(processes()),
    Come = fun(N) ->
        Socket = connect(Port),
        _ = N rem 3 =:= 0 orelse gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\n">>),
        ok = inet:setopts(Socket, [{linger, {true, 0}}]),
        ok = gen_tcp:close(Socket)
    end,
    [Come(N) || N <- lists:seq(1, 1000)],
    ?assertEqual(<<"still">>, echo(Mine, <<"still">>)),
    ?waitEqual(1, number(current_sessions)),
    wait_until(fun() ->
        length(processes()) < Processes + 20 orelse {processes, length(processes()), before, Processes}
    end).

refused_configurations_change_nothing(Config) ->
    Port = proxy(Config, #{}),
    Mine = connect(Port),
    {ok, <<"a\n">>} = gen_tcp:recv(Mine, 2, patience()),
    {ok, #{frontends := Frontends}} = weir_proxy:info(proxy),
    Wrong = [
        #{}, [], nonsense, #{frontends => #{}, backends => #{}, surplus => 1},
        #{frontends => #{front => #{listen => "127.0.0.1:99999"}}, backends => #{}},
        #{frontends => #{front => #{listen => "127.0.0.1:1", backend => nobody}}, backends => #{}},
        #{frontends => #{}, backends => #{web => #{servers => ["a:1", "a:1"]}}},
        #{frontends => #{}, backends => #{web => #{servers => [], retries => lists:duplicate(1000, x)}}},
        #{frontends => #{front => #{listen => "192.0.2.1:80"}}, backends => #{}}
    ],
    [?assertMatch({Each, {error, _}}, {Each, weir_proxy:change(proxy, Each)}) || Each <- Wrong],
    ?assertMatch({ok, #{frontends := Frontends}}, weir_proxy:info(proxy)),
    ?assertEqual(<<"still">>, echo(Mine, <<"still">>)),
    {ok, <<"a\n">>} = gen_tcp:recv(connect(Port), 2, patience()).

%% `make soak' has 10,000 connections.
idle_ones_cost_no_process(Config) ->
    Port = proxy(Config, #{}),
    Server = ?SERVER:start("b", [silent]),
    ok = weir_proxy:change(proxy, #{
        frontends => #{
            front => #{listen => "127.0.0.1:0", backend => web}, other => #{listen => "127.0.0.2:0", backend => idle}
        },
        backends => #{
            web => #{servers => [?SERVER:address(proplists:get_value(server, Config))]},
            idle => #{servers => [?SERVER:address(Server)]}
        }
    }),
    _ = Port,
    {ok, #{frontends := #{<<"other">> := #{listen := [<<"127.0.0.2:", Text/binary>>]}}}} = weir_proxy:info(proxy),
    Other = binary_to_integer(Text),
    %% The test's server has a process for each connection.
    Idle = [
        begin
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 2}, Other, [binary, {active, false}]),
            Socket
        end
     || _ <- lists:seq(1, 200)
    ],
    ?waitEqual(200, length(weir_proxy:sessions(proxy))),
    wait_until(fun() ->
        Of = length([Pid || Pid <- processes(), is_of_the_proxy(Pid)]),
        Of < 20 orelse {processes, Of}
    end),
    ?assertEqual(<<"x">>, echo(lists:last(Idle), <<"x">>)),
    [ok = gen_tcp:close(Socket) || Socket <- Idle],
    ?waitEqual([], weir_proxy:sessions(proxy)),
    ok = ?SERVER:stop(Server).

is_of_the_proxy(Pid) ->
    case process_info(Pid, initial_call) of
        {initial_call, {weir_connection, _, _}} -> true;
        {initial_call, {weir_proxy_connection, _, _}} -> true;
        _ -> false
    end.

%%% Helpers.

proxy(Config, Frontend) ->
    Given = maps:merge(#{listen => "127.0.0.1:0", backend => web}, Frontend),
    Server = ?SERVER:address(proplists:get_value(server, Config)),
    ok = weir_proxy:start(proxy, #{
        frontends => #{front => without_none(Given)}, backends => #{web => #{servers => [Server]}}
    }),
    port().

without_none(#{backend := none} = Frontend) -> maps:remove(backend, Frontend);
without_none(Frontend) -> Frontend.

number(Name) ->
    {ok, #{frontends := #{<<"front">> := #{Name := Number}}}} = weir_proxy:info(proxy),
    Number.

connect(Port) -> connect(Port, {127, 0, 0, 1}).

connect(Port, From) ->
    {ok, Socket} = gen_tcp:connect(
        {127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}, {ip, From}], patience()
    ),
    Socket.

