%% OTP's ssl with OpenSSL, on OTP's sockets and on Weir's.
-module(weir_with_openssl_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    openssl_is_served/1,
    openssl_resumes_its_session/1,
    openssl_shows_its_certificate/1,
    openssl_serves/1
]).

-import(weir_with_tls, [anonymous/1, async/1, await/1, certificate/2, close/1, listen/2, receive_bytes/3]).

-include("tls_suite.hrl").

-define(LOCALHOST, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

groups() ->
    Cases = [
        openssl_is_served,
        openssl_resumes_its_session,
        openssl_shows_its_certificate,
        openssl_serves
    ],
    [
        {stock, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {weir, [], [{group, 'tlsv1.2'}, {group, 'tlsv1.3'}]},
        {'tlsv1.2', [], Cases},
        {'tlsv1.3', [], Cases}
    ].

openssl_is_served(Config) ->
    {Listener, Port} = listen(Config, []),
    Data = base64:encode(weir_with:bytes(300_000)),
    Serving = async(fun() ->
        {ok, Handshaking} = ssl:transport_accept(Listener, weir_test_wait:patience()),
        {ok, Server} = ssl:handshake(Handshaking, weir_test_wait:patience()),
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
        {ok, Handshaking} = ssl:transport_accept(Listener, weir_test_wait:patience()),
        {ok, Server} = ssl:handshake(Handshaking, weir_test_wait:patience()),
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
        {ok, Client} = ssl:connect(?LOCALHOST, accepting_port(Program), anonymous(Config), weir_test_wait:patience()),
        ok = ssl:send(Client, <<"stressed\n">>),
        ?assertEqual({ok, <<"desserts\n">>}, ssl:recv(Client, 9, weir_test_wait:patience())),
        close([Client])
    after
        %% The program may have ended already.
        os:cmd("kill " ++ integer_to_list(Pid))
    end.

accepting_port(Program) ->
    receive
        {Program, {data, {eol, "ACCEPT " ++ Address}}} -> list_to_integer(lists:last(string:lexemes(Address, ":")));
        {Program, {data, _}} -> accepting_port(Program);
        {Program, {exit_status, Status}} -> ct:fail({s_server, Status})
    after weir_test_wait:patience() -> ct:fail(no_port)
    end.

say_hello(Listener) ->
    {ok, Handshaking} = ssl:transport_accept(Listener, weir_test_wait:patience()),
    {ok, Server} = ssl:handshake(Handshaking, weir_test_wait:patience()),
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
