%% OTP's ssl with its default callback, on OTP's sockets and on Weir's, on both ends.
-module(weir_with_ssl_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    the_sockets_are_those_under_test/1,
    bytes_arrive_in_every_mode/1,
    active_n_counts_down/1,
    megabytes_go_both_ways/1,
    packets_are_cut/1,
    a_timeout_of_recv_leaves_the_data/1,
    the_owner_changes/1,
    options_and_addresses/1,
    a_session_is_resumed/1,
    the_client_shows_its_certificate/1,
    a_client_without_certificate_is_refused/1,
    plain_sockets_are_upgraded/1,
    a_connection_goes_back_to_plain/1,
    the_end_of_writing_arrives/1,
    a_close_arrives_in_every_mode/1,
    a_reset_arrives/1,
    plain_text_is_refused/1,
    a_listener_that_closes_ends_its_acceptors/1
]).

-import(weir_with_tls, [
    anonymous/1, async/1, async/2, await/1, certificate/2, close/1, listen/2, receive_bytes/3, tls/2
]).

-include("tls_suite.hrl").

-define(LOCALHOST, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

groups() ->
    Cases = [
        the_sockets_are_those_under_test,
        bytes_arrive_in_every_mode,
        active_n_counts_down,
        megabytes_go_both_ways,
        packets_are_cut,
        a_timeout_of_recv_leaves_the_data,
        the_owner_changes,
        options_and_addresses,
        a_session_is_resumed,
        the_client_shows_its_certificate,
        a_client_without_certificate_is_refused,
        plain_sockets_are_upgraded,
        the_end_of_writing_arrives,
        a_close_arrives_in_every_mode,
        a_reset_arrives,
        plain_text_is_refused,
        a_listener_that_closes_ends_its_acceptors
    ],
    [
        {stock, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {weir, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {'tlsv1.2', [], [a_connection_goes_back_to_plain | Cases]},
        {'tlsv1.3', [], Cases}
    ].

%% Cases

the_sockets_are_those_under_test(Config) ->
    {Listener, Port} = listen(Config, []),
    {Server, Client} = pair(Config, {Listener, Port}),
    {on, Backend} = lists:keyfind(on, 1, Config),
    ?assertEqual({Backend, Backend =:= weir}, {Backend, weir_with:on_weir(Port)}),
    ?assertEqual(case Backend of weir -> 3; stock -> 0 end, length(weir:sockets())),
    [?assertEqual(Backend =:= weir, weir:is_weir(Socket)) || Socket <- [Listener, Server, Client]],
    ?assertEqual({ok, [{protocol, ?config(version, Config)}]}, ssl:connection_information(Client, [protocol])),
    close([Server, Client, Listener]).

bytes_arrive_in_every_mode(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        [
            begin
                Data = weir_with:bytes(Size),
                ok = ssl:setopts(To, [{active, Mode}]),
                ok = ssl:send(From, Data),
                ?assertEqual({Mode, Data}, {Mode, receive_bytes(To, Mode, Size)}),
                ok = ssl:setopts(To, [{active, false}]),
                flush_passive(To)
            end
         || {From, To} <- [{Server, Client}, {Client, Server}], Mode <- [false, once, true, 2], Size <- [1, 100, 50000]
        ]
    end).

active_n_counts_down(Config) ->
    with_pair(Config, [{packet, 4}], fun(Server, Client) ->
        ok = ssl:setopts(Server, [{active, 3}]),
        [ok = ssl:send(Client, <<N>>) || N <- [1, 2, 3, 4, 5]],
        [
            receive
                {ssl, Server, <<N>>} -> ok
            after weir_test_wait:patience() -> ct:fail({missing, N})
            end
         || N <- [1, 2, 3]
        ],
        receive
            {ssl_passive, Server} -> ok
        after weir_test_wait:patience() -> ct:fail(not_passive)
        end,
        ?assertEqual({ok, <<4>>}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ok = ssl:setopts(Server, [{active, 1}]),
        receive
            {ssl, Server, <<5>>} -> ok
        after weir_test_wait:patience() -> ct:fail(missing)
        end,
        receive
            {ssl_passive, Server} -> ok
        after weir_test_wait:patience() -> ct:fail(not_passive)
        end
    end).

megabytes_go_both_ways(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        Data = weir_with:bytes(4_000_000),
        Senders = [spawn_monitor(fun() -> ok = ssl:send(From, Data) end) || From <- [Server, Client]],
        [?assert(Data =:= receive_bytes(To, false, byte_size(Data))) || To <- [Client, Server]],
        [receive {'DOWN', Monitor, process, Pid, Reason} -> normal = Reason end || {Pid, Monitor} <- Senders]
    end).

packets_are_cut(Config) ->
    with_pair(Config, [{packet, line}], fun(Server, Client) ->
        ok = ssl:send(Client, <<"one\ntwo\nthr">>),
        ?assertEqual({ok, <<"one\n">>}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ?assertEqual({ok, <<"two\n">>}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ok = ssl:send(Client, <<"ee\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody">>),
        ?assertEqual({ok, <<"three\n">>}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ok = ssl:setopts(Server, [{packet, http_bin}]),
        ?assertEqual(
            {ok, {http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}}, ssl:recv(Server, 0, weir_test_wait:patience())
        ),
        ?assertMatch({ok, {http_header, _, 'Host', _, <<"a">>}}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ?assertEqual({ok, http_eoh}, ssl:recv(Server, 0, weir_test_wait:patience())),
        ok = ssl:setopts(Server, [{packet, raw}]),
        ?assertEqual({ok, <<"body">>}, ssl:recv(Server, 4, weir_test_wait:patience()))
    end).

a_timeout_of_recv_leaves_the_data(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        ?assertEqual({error, timeout}, ssl:recv(Server, 10, 50)),
        ok = ssl:send(Client, <<"01234">>),
        ?assertEqual({error, timeout}, ssl:recv(Server, 10, 50)),
        ok = ssl:send(Client, <<"56789">>),
        ?assertEqual({ok, <<"0123456789">>}, ssl:recv(Server, 10, weir_test_wait:patience()))
    end).

the_owner_changes(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        Self = self(),
        Owner = spawn_link(fun() ->
            receive go -> ok end,
            ok = ssl:setopts(Server, [{active, once}]),
            receive {ssl, Server, Data} -> ok = ssl:send(Server, Data) end,
            ok = ssl:controlling_process(Server, Self),
            Self ! done,
            receive stop -> ok end
        end),
        ok = ssl:controlling_process(Server, Owner),
        Owner ! go,
        ok = ssl:send(Client, <<"echo">>),
        ?assertEqual({ok, <<"echo">>}, ssl:recv(Client, 4, weir_test_wait:patience())),
        receive done -> ok end,
        unlink(Owner),
        exit(Owner, kill),
        ok = ssl:send(Client, <<"mine">>),
        ?assertEqual({ok, <<"mine">>}, ssl:recv(Server, 4, weir_test_wait:patience()))
    end).

options_and_addresses(Config) ->
    with_pair(Config, [{nodelay, true}], fun(Server, Client) ->
        ?assertEqual({ok, [{nodelay, true}]}, ssl:getopts(Server, [nodelay])),
        ok = ssl:setopts(Server, [{nodelay, false}, {keepalive, true}]),
        {ok, Changed} = ssl:getopts(Server, [nodelay, keepalive]),
        ?assertEqual([{keepalive, true}, {nodelay, false}], lists:sort(Changed)),
        ?assertEqual(ssl:sockname(Server), ssl:peername(Client)),
        ?assertEqual(ssl:peername(Server), ssl:sockname(Client)),
        {ok, [{recv_oct, Received}, {send_oct, Sent}]} = ssl:getstat(Server, [recv_oct, send_oct]),
        ?assertMatch({true, true}, {Received > 0, Sent > 0})
    end).

a_session_is_resumed(Config) ->
    Version = ?config(version, Config),
    {ServerOptions, ClientOptions} =
        case Version of
            'tlsv1.2' -> {[], [{reuse_sessions, save}]};
            'tlsv1.3' -> {[{session_tickets, stateless}], [{session_tickets, manual}]}
        end,
    {Listener, _} = At = listen(Config, ServerOptions),
    {Server, Client} = pair(Config, At, ClientOptions),
    {ok, Session} = ssl:connection_information(Client, [session_id, session_data]),
    Id = proplists:get_value(session_id, Session),
    Again =
        case Version of
            'tlsv1.2' -> [{reuse_session, {Id, proplists:get_value(session_data, Session)}}];
            'tlsv1.3' -> receive {ssl, session_ticket, Ticket} -> [{use_ticket, [Ticket]} | ClientOptions] end
        end,
    close([Server, Client]),
    {ServerAgain, ClientAgain} = pair(Config, At, Again),
    exchange(ClientAgain, ServerAgain),
    Resumed = [ssl:connection_information(Side, resumption(Version)) || Side <- [ClientAgain, ServerAgain]],
    Expected = case Version of 'tlsv1.2' -> {session_id, Id}; 'tlsv1.3' -> {session_resumption, true} end,
    ?assertEqual([{ok, [Expected]}, {ok, [Expected]}], Resumed),
    close([ServerAgain, ClientAgain, Listener]).

%% How a resumed session is recognised: by its id, or in TLS 1.3, which has no such id, by a flag.
resumption('tlsv1.2') -> [session_id];
resumption('tlsv1.3') -> [session_resumption].

the_client_shows_its_certificate(Config) ->
    {Listener, _} = At = listen(Config, [{verify, verify_peer}, {fail_if_no_peer_cert, true}]),
    {Server, Client} = pair(Config, At),
    ?assertEqual({ok, certificate(client, Config)}, ssl:peercert(Server)),
    ?assertEqual({ok, certificate(server, Config)}, ssl:peercert(Client)),
    close([Server, Client, Listener]).

a_client_without_certificate_is_refused(Config) ->
    {Listener, Port} = listen(Config, [{verify, verify_peer}, {fail_if_no_peer_cert, true}]),
    Accepting = handshake(Listener),
    %% With TLS 1.3 the client learns it only after its handshake, or sees the connection close first.
    Answer =
        case ssl:connect(?LOCALHOST, Port, anonymous(Config), weir_test_wait:patience()) of
            {ok, Client} -> ssl:recv(Client, 1, weir_test_wait:patience());
            Error -> Error
        end,
    ?assertMatch({error, _}, Answer),
    ?assertMatch({error, {tls_alert, {_, _}}}, await(Accepting)),
    close([Listener]).

plain_sockets_are_upgraded(Config) ->
    Backend = ?config(backend, Config),
    Plain = [binary, {active, false}, {packet, raw} | Backend],
    {ok, Listener} = gen_tcp:listen(0, [{ip, ?LOCALHOST} | Plain]),
    {ok, Port} = inet:port(Listener),
    {ok, PlainClient} = gen_tcp:connect(?LOCALHOST, Port, Plain),
    {ok, PlainServer} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:send(PlainClient, <<"STARTTLS\r\n">>),
    ?assertEqual({ok, <<"STARTTLS\r\n">>}, gen_tcp:recv(PlainServer, 10, weir_test_wait:patience())),
    ok = gen_tcp:send(PlainServer, <<"OK\r\n">>),
    ?assertEqual({ok, <<"OK\r\n">>}, gen_tcp:recv(PlainClient, 4, weir_test_wait:patience())),
    Accepting = async(
        fun() -> ssl:handshake(PlainServer, tls(server, Config), weir_test_wait:patience()) end,
        fun(Pid) -> ok = gen_tcp:controlling_process(PlainServer, Pid) end
    ),
    {ok, Client} = ssl:connect(PlainClient, tls(client, Config), weir_test_wait:patience()),
    {ok, Server} = await(Accepting),
    exchange(Server, Client),
    exchange(Client, Server),
    close([Server, Client]),
    ok = gen_tcp:close(Listener).

a_connection_goes_back_to_plain(Config) ->
    {Listener, _} = At = listen(Config, []),
    {Server, Client} = pair(Config, At),
    exchange(Server, Client),
    Self = self(),
    Closing = async(fun() ->
        {ok, Plain} = ssl:close(Client, {self(), weir_test_wait:patience()}),
        ok = gen_tcp:controlling_process(Plain, Self),
        Plain
    end, fun(Pid) -> ok = ssl:controlling_process(Client, Pid) end),
    {ok, PlainServer} = ssl:close(Server, {self(), weir_test_wait:patience()}),
    PlainClient = await(Closing),
    ok = gen_tcp:send(PlainClient, <<"plain again">>),
    ?assertEqual({ok, <<"plain again">>}, gen_tcp:recv(PlainServer, 11, weir_test_wait:patience())),
    ok = gen_tcp:close(PlainClient),
    ok = gen_tcp:close(PlainServer),
    close([Listener]).

the_end_of_writing_arrives(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        ok = ssl:send(Client, <<"the last">>),
        ok = ssl:shutdown(Client, write),
        ?assertEqual({ok, <<"the last">>}, ssl:recv(Server, 8, weir_test_wait:patience())),
        ?assertEqual({error, closed}, ssl:recv(Server, 1, weir_test_wait:patience())),
        ?assertMatch({error, _}, ssl:send(Client, <<"too late">>))
    end).

a_close_arrives_in_every_mode(Config) ->
    [
        with_pair(Config, [], fun(Server, Client) ->
            ok = ssl:setopts(Server, [{active, Mode}]),
            ok = ssl:close(Client),
            case Mode of
                false -> ?assertEqual({error, closed}, ssl:recv(Server, 0, weir_test_wait:patience()));
                _ -> receive {ssl_closed, Server} -> ok after weir_test_wait:patience() -> ct:fail({not_told, Mode}) end
            end
        end)
     || Mode <- [false, once, true, 5]
    ].

%% A peer that disappears without close_notify: a plain proxy in front of the TLS client is reset.
a_reset_arrives(Config) ->
    {Listener, Port} = listen(Config, []),
    {ok, Before} = gen_tcp:listen(0, [binary, {ip, ?LOCALHOST}, {active, false}]),
    {ok, Number} = inet:port(Before),
    Accepting = handshake(Listener),
    Proxy = spawn_link(fun() ->
        {ok, In} = gen_tcp:accept(Before),
        {ok, Out} = gen_tcp:connect(?LOCALHOST, Port, [binary, {active, true}]),
        ok = inet:setopts(In, [{active, true}]),
        proxy(In, Out)
    end),
    {ok, Client} = ssl:connect(?LOCALHOST, Number, tls(client, Config), weir_test_wait:patience()),
    {ok, Server} = await(Accepting),
    exchange(Client, Server),
    ok = ssl:setopts(Server, [{active, true}]),
    Proxy ! reset,
    receive
        {ssl_closed, Server} -> ok;
        {ssl_error, Server, _} -> ok
    after weir_test_wait:patience() -> ct:fail(not_told)
    end,
    ?assertMatch({error, _}, ssl:send(Server, <<"to nobody">>)),
    ok = gen_tcp:close(Before),
    close([Server, Client, Listener]).

proxy(In, Out) ->
    receive
        {tcp, In, Data} -> ok = gen_tcp:send(Out, Data), proxy(In, Out);
        {tcp, Out, Data} -> ok = gen_tcp:send(In, Data), proxy(In, Out);
        reset -> [begin ok = inet:setopts(S, [{linger, {true, 0}}]), ok = gen_tcp:close(S) end || S <- [In, Out]]
    end.

plain_text_is_refused(Config) ->
    {Listener, Port} = listen(Config, []),
    Accepting = handshake(Listener),
    {ok, Client} = gen_tcp:connect(?LOCALHOST, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Client, <<"GET / HTTP/1.1\r\n\r\n">>),
    ?assertMatch({error, {tls_alert, {_, _}}}, await(Accepting)),
    ok = gen_tcp:close(Client),
    close([Listener]).

a_listener_that_closes_ends_its_acceptors(Config) ->
    {Listener, _} = listen(Config, []),
    Accepting = async(fun() -> ssl:transport_accept(Listener) end),
    {error, timeout} = ssl:transport_accept(Listener, 50),
    close([Listener]),
    ?assertEqual({error, closed}, await(Accepting)).

pair(Config, At) ->
    pair(Config, At, []).

pair(Config, {Listener, Port}, Options) ->
    Accepting = handshake(Listener),
    {ok, Client} = ssl:connect(
        ?LOCALHOST, Port, ?config(backend, Config) ++ Options ++ tls(client, Config), weir_test_wait:patience()
    ),
    {ok, Server} = await(Accepting),
    {Server, Client}.

with_pair(Config, Options, Fun) ->
    {Listener, Port} = listen(Config, Options),
    {Server, Client} = pair(Config, {Listener, Port}, [Option || {packet, 4} = Option <- Options]),
    Fun(Server, Client),
    close([Server, Client, Listener]).

handshake(Listener) ->
    Self = self(),
    async(fun() ->
        {ok, Handshaking} = ssl:transport_accept(Listener, weir_test_wait:patience()),
        case ssl:handshake(Handshaking, weir_test_wait:patience()) of
            {ok, Server} -> ok = ssl:controlling_process(Server, Self), {ok, Server};
            Error -> Error
        end
    end).

exchange(From, To) ->
    Data = weir_with:bytes(20000),
    ok = ssl:send(From, Data),
    ?assertEqual({ok, Data}, ssl:recv(To, byte_size(Data), weir_test_wait:patience())).

flush_passive(Socket) ->
    receive {ssl_passive, Socket} -> ok after 0 -> ok end.
