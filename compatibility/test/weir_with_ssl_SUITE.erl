%% TLS of OTP's ssl, with its default callback, on OTP's sockets and on Weir's: both ends, and against OpenSSL.
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
    a_listener_that_closes_ends_its_acceptors/1,
    openssl_is_served/1,
    openssl_resumes_its_session/1,
    openssl_shows_its_certificate/1,
    openssl_serves/1
]).

-define(LOCALHOST, {127, 0, 0, 1}).
-define(PATIENCE, 30000).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [{group, stock}, {group, weir}].

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
        a_listener_that_closes_ends_its_acceptors,
        openssl_is_served,
        openssl_resumes_its_session,
        openssl_shows_its_certificate,
        openssl_serves
    ],
    [
        {stock, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {weir, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {'tlsv1.2', [], [a_connection_goes_back_to_plain | Cases]},
        {'tlsv1.3', [], Cases}
    ].

init_per_suite(Config) ->
    case weir_with:needs([ssl, "openssl"], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            {ok, _} = application:ensure_all_started(ssl),
            Certificates = weir_compatibility_certificates:make(),
            Files = weir_compatibility_certificates:write(Certificates, ?config(priv_dir, Config)),
            [{certificates, Certificates}, {files, Files} | Config]
    end.

end_per_suite(_Config) ->
    ok.

init_per_group(Backend, Config) when Backend =:= stock; Backend =:= weir ->
    weir_with:init_group(Backend, Config);
init_per_group(Version, Config) ->
    [{version, Version} | Config].

end_per_group(_Group, _Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    weir_with:nothing_left().

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
        [receive {ssl, Server, <<N>>} -> ok after ?PATIENCE -> ct:fail({missing, N}) end || N <- [1, 2, 3]],
        receive {ssl_passive, Server} -> ok after ?PATIENCE -> ct:fail(not_passive) end,
        ?assertEqual({ok, <<4>>}, ssl:recv(Server, 0, ?PATIENCE)),
        ok = ssl:setopts(Server, [{active, 1}]),
        receive {ssl, Server, <<5>>} -> ok after ?PATIENCE -> ct:fail(missing) end,
        receive {ssl_passive, Server} -> ok after ?PATIENCE -> ct:fail(not_passive) end
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
        ?assertEqual({ok, <<"one\n">>}, ssl:recv(Server, 0, ?PATIENCE)),
        ?assertEqual({ok, <<"two\n">>}, ssl:recv(Server, 0, ?PATIENCE)),
        ok = ssl:send(Client, <<"ee\nGET / HTTP/1.1\r\nHost: a\r\n\r\nbody">>),
        ?assertEqual({ok, <<"three\n">>}, ssl:recv(Server, 0, ?PATIENCE)),
        ok = ssl:setopts(Server, [{packet, http_bin}]),
        ?assertEqual({ok, {http_request, 'GET', {abs_path, <<"/">>}, {1, 1}}}, ssl:recv(Server, 0, ?PATIENCE)),
        ?assertMatch({ok, {http_header, _, 'Host', _, <<"a">>}}, ssl:recv(Server, 0, ?PATIENCE)),
        ?assertEqual({ok, http_eoh}, ssl:recv(Server, 0, ?PATIENCE)),
        ok = ssl:setopts(Server, [{packet, raw}]),
        ?assertEqual({ok, <<"body">>}, ssl:recv(Server, 4, ?PATIENCE))
    end).

a_timeout_of_recv_leaves_the_data(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        ?assertEqual({error, timeout}, ssl:recv(Server, 10, 50)),
        ok = ssl:send(Client, <<"01234">>),
        ?assertEqual({error, timeout}, ssl:recv(Server, 10, 50)),
        ok = ssl:send(Client, <<"56789">>),
        ?assertEqual({ok, <<"0123456789">>}, ssl:recv(Server, 10, ?PATIENCE))
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
        ?assertEqual({ok, <<"echo">>}, ssl:recv(Client, 4, ?PATIENCE)),
        receive done -> ok end,
        unlink(Owner),
        exit(Owner, kill),
        ok = ssl:send(Client, <<"mine">>),
        ?assertEqual({ok, <<"mine">>}, ssl:recv(Server, 4, ?PATIENCE))
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

%% What tells a resumed session: that it is the same, or, as TLS 1.3 knows no such identity, a flag.
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
    %% TLS 1.3 tells the client later than the end of its handshake, if the end of the connection is not faster.
    Answer =
        case ssl:connect(?LOCALHOST, Port, anonymous(Config), ?PATIENCE) of
            {ok, Client} -> ssl:recv(Client, 1, ?PATIENCE);
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
    {ok, PlainServer} = gen_tcp:accept(Listener, ?PATIENCE),
    ok = gen_tcp:send(PlainClient, <<"STARTTLS\r\n">>),
    ?assertEqual({ok, <<"STARTTLS\r\n">>}, gen_tcp:recv(PlainServer, 10, ?PATIENCE)),
    ok = gen_tcp:send(PlainServer, <<"OK\r\n">>),
    ?assertEqual({ok, <<"OK\r\n">>}, gen_tcp:recv(PlainClient, 4, ?PATIENCE)),
    Accepting = async(
        fun() -> ssl:handshake(PlainServer, tls(server, Config), ?PATIENCE) end,
        fun(Pid) -> ok = gen_tcp:controlling_process(PlainServer, Pid) end
    ),
    {ok, Client} = ssl:connect(PlainClient, tls(client, Config), ?PATIENCE),
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
        {ok, Plain} = ssl:close(Client, {self(), ?PATIENCE}),
        ok = gen_tcp:controlling_process(Plain, Self),
        Plain
    end, fun(Pid) -> ok = ssl:controlling_process(Client, Pid) end),
    {ok, PlainServer} = ssl:close(Server, {self(), ?PATIENCE}),
    PlainClient = await(Closing),
    ok = gen_tcp:send(PlainClient, <<"plain again">>),
    ?assertEqual({ok, <<"plain again">>}, gen_tcp:recv(PlainServer, 11, ?PATIENCE)),
    ok = gen_tcp:close(PlainClient),
    ok = gen_tcp:close(PlainServer),
    close([Listener]).

the_end_of_writing_arrives(Config) ->
    with_pair(Config, [], fun(Server, Client) ->
        ok = ssl:send(Client, <<"the last">>),
        ok = ssl:shutdown(Client, write),
        ?assertEqual({ok, <<"the last">>}, ssl:recv(Server, 8, ?PATIENCE)),
        ?assertEqual({error, closed}, ssl:recv(Server, 1, ?PATIENCE)),
        ?assertMatch({error, _}, ssl:send(Client, <<"too late">>))
    end).

a_close_arrives_in_every_mode(Config) ->
    [
        with_pair(Config, [], fun(Server, Client) ->
            ok = ssl:setopts(Server, [{active, Mode}]),
            ok = ssl:close(Client),
            case Mode of
                false -> ?assertEqual({error, closed}, ssl:recv(Server, 0, ?PATIENCE));
                _ -> receive {ssl_closed, Server} -> ok after ?PATIENCE -> ct:fail({not_told, Mode}) end
            end
        end)
     || Mode <- [false, once, true, 5]
    ].

%% A peer that dies without close_notify: here a plain one behind which the TLS client is.
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
    {ok, Client} = ssl:connect(?LOCALHOST, Number, tls(client, Config), ?PATIENCE),
    {ok, Server} = await(Accepting),
    exchange(Client, Server),
    ok = ssl:setopts(Server, [{active, true}]),
    Proxy ! reset,
    receive
        {ssl_closed, Server} -> ok;
        {ssl_error, Server, _} -> ok
    after ?PATIENCE -> ct:fail(not_told)
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

%% OpenSSL

openssl_is_served(Config) ->
    {Listener, Port} = listen(Config, []),
    Data = base64:encode(weir_with:bytes(300_000)),
    Serving = async(fun() ->
        {ok, Handshaking} = ssl:transport_accept(Listener, ?PATIENCE),
        {ok, Server} = ssl:handshake(Handshaking, ?PATIENCE),
        Received = receive_bytes(Server, false, byte_size(Data)),
        ok = ssl:send(Server, Received),
        ok = ssl:close(Server),
        Received =:= Data
    end),
    {0, Output} = s_client(Config, Port, ["-quiet"], Data),
    ?assert(Output =:= Data),
    ?assert(await(Serving)),
    close([Listener]).

openssl_resumes_its_session(Config) ->
    Tickets = [{session_tickets, stateless} || ?config(version, Config) =:= 'tlsv1.3'],
    {Listener, Port} = listen(Config, Tickets),
    Serving = async(fun() -> [say_hello(Listener) || _ <- [1, 2]] end),
    Session = filename:join(?config(priv_dir, Config), "session"),
    {_, First} = s_client(Config, Port, ["-ign_eof", "-sess_out", Session], <<>>),
    {_, Second} = s_client(Config, Port, ["-ign_eof", "-sess_in", Session], <<>>),
    [?assertNotEqual(nomatch, binary:match(Output, <<"hello">>)) || Output <- [First, Second]],
    ?assertEqual(nomatch, binary:match(First, <<"Reused, TLS">>)),
    ?assertNotEqual(nomatch, binary:match(Second, <<"Reused, TLS">>)),
    [ok, ok] = await(Serving),
    close([Listener]).

openssl_shows_its_certificate(Config) ->
    {Listener, Port} = listen(Config, [{verify, verify_peer}, {fail_if_no_peer_cert, true}]),
    Serving = async(fun() ->
        {ok, Handshaking} = ssl:transport_accept(Listener, ?PATIENCE),
        {ok, Server} = ssl:handshake(Handshaking, ?PATIENCE),
        Certificate = ssl:peercert(Server),
        ok = ssl:close(Server),
        Certificate
    end),
    #{client := #{certfile := Certificate, keyfile := Key}} = ?config(files, Config),
    _ = s_client(Config, Port, ["-quiet", "-cert", Certificate, "-key", Key], <<>>),
    ?assertEqual({ok, certificate(client, Config)}, await(Serving)),
    close([Listener]).

openssl_serves(Config) ->
    #{server := #{certfile := Certificate, keyfile := Key}} = ?config(files, Config),
    Program = open_port({spawn_executable, os:find_executable("openssl")}, [
        {args, ["s_server", "-accept", "127.0.0.1:0", "-cert", Certificate, "-key", Key, "-rev", version(Config)]},
        exit_status, {line, 1000}, stderr_to_stdout
    ]),
    {os_pid, Pid} = erlang:port_info(Program, os_pid),
    try
        {ok, Client} = ssl:connect(?LOCALHOST, accepting_port(Program), anonymous(Config), ?PATIENCE),
        ok = ssl:send(Client, <<"stressed\n">>),
        ?assertEqual({ok, <<"desserts\n">>}, ssl:recv(Client, 9, ?PATIENCE)),
        close([Client])
    after
        %% It may have ended by itself.
        os:cmd("kill " ++ integer_to_list(Pid))
    end.

accepting_port(Program) ->
    receive
        {Program, {data, {eol, "ACCEPT " ++ Address}}} -> list_to_integer(lists:last(string:lexemes(Address, ":")));
        {Program, {data, _}} -> accepting_port(Program);
        {Program, {exit_status, Status}} -> ct:fail({s_server, Status})
    after ?PATIENCE -> ct:fail(no_port)
    end.

say_hello(Listener) ->
    {ok, Handshaking} = ssl:transport_accept(Listener, ?PATIENCE),
    {ok, Server} = ssl:handshake(Handshaking, ?PATIENCE),
    ok = ssl:send(Server, <<"hello\n">>),
    ok = ssl:close(Server).

s_client(Config, Port, Arguments, Input) ->
    File = filename:join(?config(priv_dir, Config), "input"),
    ok = file:write_file(File, Input),
    Command = ["openssl s_client -connect 127.0.0.1:", integer_to_list(Port), " ", version(Config),
        [[" '", Argument, "'"] || Argument <- Arguments], " < '", File, "' 2> /dev/null"],
    weir_with:program("sh", ["-c", lists:flatten(Command)]).

version(Config) ->
    case ?config(version, Config) of
        'tlsv1.2' -> "-tls1_2";
        'tlsv1.3' -> "-tls1_3"
    end.

%% Connections

tls(Side, Config) ->
    Certificates = maps:get(Side, ?config(certificates, Config)),
    Verify = [{verify, verify_none} || Side =:= client],
    Verify ++ [{versions, [?config(version, Config)]}, binary, {active, false} | Certificates].

anonymous(Config) ->
    [{verify, verify_none}, {versions, [?config(version, Config)]}, binary, {active, false} | ?config(backend, Config)].

listen(Config, Options) ->
    {ok, Listener} = ssl:listen(0, ?config(backend, Config) ++ [{ip, ?LOCALHOST} | Options ++ tls(server, Config)]),
    {ok, {_, Port}} = ssl:sockname(Listener),
    {Listener, Port}.

pair(Config, At) ->
    pair(Config, At, []).

pair(Config, {Listener, Port}, Options) ->
    Accepting = handshake(Listener),
    {ok, Client} = ssl:connect(?LOCALHOST, Port, ?config(backend, Config) ++ Options ++ tls(client, Config), ?PATIENCE),
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
        {ok, Handshaking} = ssl:transport_accept(Listener, ?PATIENCE),
        case ssl:handshake(Handshaking, ?PATIENCE) of
            {ok, Server} -> ok = ssl:controlling_process(Server, Self), {ok, Server};
            Error -> Error
        end
    end).

%% Runs a function in a process of its own, which lives until its result is asked for.
async(Fun) ->
    async(Fun, fun(_) -> ok end).

async(Fun, Before) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        receive go -> ok end,
        Result = Fun(),
        hand_back(Result, Self),
        Self ! {self(), Result}
    end),
    ok = Before(Pid),
    Pid ! go,
    {Pid, Monitor}.

hand_back({ok, Socket}, To) when element(1, Socket) =:= sslsocket -> _ = ssl:controlling_process(Socket, To);
hand_back(_Result, _To) -> ok.

await({Pid, Monitor}) ->
    receive
        {Pid, Result} -> demonitor(Monitor, [flush]), Result;
        {'DOWN', Monitor, process, Pid, Reason} -> ct:fail(Reason)
    after 2 * ?PATIENCE -> ct:fail({no_result, process_info(Pid, current_stacktrace)})
    end.

close(Sockets) ->
    [_ = ssl:close(Socket) || Socket <- Sockets],
    ok.

exchange(From, To) ->
    Data = weir_with:bytes(20000),
    ok = ssl:send(From, Data),
    ?assertEqual({ok, Data}, ssl:recv(To, byte_size(Data), ?PATIENCE)).

receive_bytes(Socket, false, Size) ->
    {ok, Data} = ssl:recv(Socket, Size, ?PATIENCE),
    Data;
receive_bytes(Socket, Mode, Size) ->
    receive_bytes(Socket, Mode, Size, []).

receive_bytes(_Socket, _Mode, 0, Data) ->
    iolist_to_binary(Data);
receive_bytes(Socket, Mode, Size, Data) ->
    receive
        {ssl, Socket, Part} ->
            [ok = ssl:setopts(Socket, [{active, once}]) || Mode =:= once],
            receive_bytes(Socket, Mode, Size - byte_size(Part), [Data | Part]);
        {ssl_passive, Socket} ->
            ok = ssl:setopts(Socket, [{active, Mode}]),
            receive_bytes(Socket, Mode, Size, Data)
    after ?PATIENCE -> ct:fail({missing, Size})
    end.

flush_passive(Socket) ->
    receive {ssl_passive, Socket} -> ok after 0 -> ok end.

certificate(Side, Config) ->
    proplists:get_value(cert, maps:get(Side, ?config(certificates, Config))).
