%% TLS of listeners: options that cannot work are refused at the start, and failed handshakes are counted and
%% reported.
-module(weir_listener_tls_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        what_cannot_work_is_refused,
        a_key_of_another_certificate_is_refused,
        what_can_work_is_started,
        ssl_has_to_be_started,
        a_failed_handshake_is_told,
        a_failed_handshake_of_a_protocol_is_told,
        a_missing_header_is_told,
        a_handshake_that_succeeds_is_told,
        a_storm_of_failures_is_a_few_lines,
        a_paused_handshake_is_told_when_it_ends,
        transports_listen
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    Directory = ?config(priv_dir, Config),
    File = fun(Name, Contents) ->
        Path = filename:join(Directory, Name),
        ok = file:write_file(Path, Contents),
        Path
    end,
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Certificate = proplists:get_value(cert, Server),
    {KeyType, KeyDer} = proplists:get_value(key, Server),
    CertificateEntry = {'Certificate', Certificate, not_encrypted},
    KeyEntry = {KeyType, KeyDer, not_encrypted},
    Cipher = {"AES-256-CBC", crypto:strong_rand_bytes(16)},
    Decoded = public_key:der_decode(KeyType, KeyDer),
    Locked = public_key:pem_entry_encode(KeyType, Decoded, {Cipher, "secret"}),
    Files = #{
        certificate => File("certificate.pem", public_key:pem_encode([CertificateEntry])),
        key => File("key.pem", public_key:pem_encode([KeyEntry])),
        both => File("both.pem", public_key:pem_encode([CertificateEntry, KeyEntry])),
        locked => File("locked.pem", public_key:pem_encode([Locked])),
        text => File("text.pem", "this is no PEM")
    },
    Inline = [Option || Option = {Name, _} <- Server, Name =:= cert orelse Name =:= key],
    weir_test_peer:init_group(weir, [{files, Files}, {inline, Inline} | Config]).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    _ = weir_event:detach(?MODULE),
    _ = logger:remove_primary_filter(?MODULE),
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    weir_test_peer:end_case(Config).

hold(_Socket, _Args) ->
    receive never -> ok end.

start(Tls) -> start(Tls, fun ?MODULE:hold/2).

%% Handshakes have no time limit.
start(Tls, Handler) ->
    weir:start_listener(?MODULE, #{ip => ?LOOPBACK, tls => Tls, handshake_timeout => infinity}, Handler, args).

what_cannot_work_is_refused(Config) ->
    #{certificate := Certificate, key := Key, locked := Locked, text := Text} = ?config(files, Config),
    [{cert, Der}] = [Option || Option = {cert, _} <- ?config(inline, Config)],
    [
        ?assertMatch({Tls, {error, {bad_option, tls, Culprit, [_ | _]}}}, {Tls, start(Tls)})
     || {Tls, Culprit} <- [
            {[], []},
            {[{verify, verify_none}], [{verify, verify_none}]},
            {[{certfile, "/none"}, {keyfile, "/none"}], {certfile, "/none"}},
            {[{certfile, Certificate}, {keyfile, "/none"}], {keyfile, "/none"}},
            {[{certfile, Text}, {keyfile, Key}], {certfile, Text}},
            {[{certfile, Certificate}, {keyfile, Text}], {keyfile, Text}},
            {[{certfile, Certificate}], {certfile, Certificate}},
            {[{certfile, Key}, {keyfile, Key}], {certfile, Key}},
            {[{certfile, Certificate}, {keyfile, Locked}], {keyfile, Locked}},
            {[{certfile, Certificate}, {keyfile, Locked}, {password, "wrong"}], {keyfile, Locked}},
            {[{cert, Der}], {cert, Der}},
            {[{certs_keys, [#{certfile => Certificate, keyfile => "/none"}]}], {keyfile, "/none"}},
            {[{certs_keys, no_list}], {certs_keys, no_list}},
            {[{certs_keys, [#{} | no_list]}], {certs_keys, [#{} | no_list]}},
            {[{certfile, Certificate}, {keyfile, Locked}, {password, fun() -> error(none) end}], {keyfile, Locked}},
            {[{nonsense, 1} | ?config(inline, Config)], {nonsense, 1}},
            {[{versions, ['tlsv9.9']} | ?config(inline, Config)], {versions, ['tlsv9.9']}},
            {[{verify, perhaps} | ?config(inline, Config)], {verify, perhaps}},
            {[{certfile, "/none"} | no_list], [{certfile, "/none"} | no_list]}
        ]
    ],
    ?assertEqual([], weir:listeners()).

%% Keys of each kind, two of some kinds.
a_key_of_another_certificate_is_refused(_Config) ->
    Kinds = [
        {namedCurve, secp256r1}, {namedCurve, secp256r1}, {namedCurve, secp384r1}, {namedCurve, ed25519},
        %% Short, because they are created for each run and protect nothing.
        {rsa, 1024, 17}, {rsa, 1024, 17}
    ],
    Pairs = lists:enumerate([made(Kind) || Kind <- Kinds]),
    [
        begin
            Result = start([{cert, Certificate}, {key, Key}]),
            case Of =:= With of
                true ->
                    ?assertMatch({_, _, {ok, _}}, {Of, With, Result}),
                    ok = weir:stop_listener(?MODULE);
                false ->
                    ?assertMatch({_, _, {error, {bad_option, tls, {key, Key}, [_ | _]}}}, {Of, With, Result})
            end
        end
     || {Of, {Certificate, _}} <- Pairs, {With, {_, Key}} <- Pairs
    ].

made(Kind) ->
    Key = [{key, Kind}],
    Chain = #{root => [{key, {namedCurve, secp256r1}}], intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    {proplists:get_value(cert, Server), proplists:get_value(key, Server)}.

what_can_work_is_started(Config) ->
    #{certificate := Certificate, key := Key, both := Both, locked := Locked} = ?config(files, Config),
    Files = [{certfile, Certificate}, {keyfile, Key}],
    [
        begin
            {ok, _} = start(Tls),
            {ok, Socket} = ssl:connect(?LOOPBACK, weir:get_port(?MODULE), [{verify, verify_none}], patience()),
            ok = ssl:close(Socket),
            ok = weir:stop_listener(?MODULE)
        end
     || Tls <- [
            Files,
            [{certfile, Both}],
            [{certfile, Certificate}, {keyfile, Locked}, {password, "secret"}],
            [{certs_keys, [#{certfile => Certificate, keyfile => Key}]}],
            [{alpn_preferred_protocols, [<<"h2">>]}, {log_level, none} | ?config(inline, Config)]
        ]
    ],
    %% The certificate may be chosen during the handshake.
    {ok, _} = start([{sni_fun, fun(_Name) -> Files end}]).

%% On another node, without ssl.
ssl_has_to_be_started(_Config) ->
    weir_test_node:on_node(?MODULE, without_ssl, "", ["+S", "2"]).

without_ssl(Config) ->
    _ = application:stop(ssl),
    {error, {not_started, ssl}} = start([]),
    Config.

%% Forwards the log messages and events of failures.
observe() ->
    Self = self(),
    Told = fun(Event, Measurements, Metadata, _) -> Self ! {told, Event, Measurements, Metadata} end,
    ok = weir_event:attach(?MODULE, [weir, handshake, stop], Told, []),
    Logged = fun
        (#{level := Level, msg := {report, Report = #{what := _}}, meta := Meta = #{domain := [weir]}}, _) ->
            Self ! {logged, Level, Report, Meta},
            stop;
        (_, _) ->
            ignore
    end,
    ok = logger:add_primary_filter(?MODULE, {Logged, []}).

%% A client that does not speak TLS.
intrude() ->
    Socket = weir_test_peer:connect_raw(weir:get_port(?MODULE)),
    ok = gen_tcp:send(Socket, "this is no handshake at all\r\n\r\n"),
    {ok, Address} = inet:sockname(Socket),
    _ = weir_test_wait:recv_all(Socket),
    Address.

is_told(Kind, Peer) ->
    receive
        {told, [weir, handshake, stop], #{duration := Duration, monotonic_time := _}, #{
            name := ?MODULE, kind := Kind, peer := Peer, reason := Reason, pid := Pid
        }} when is_integer(Duration), is_pid(Pid) ->
            receive
                {logged, warning, #{listener := ?MODULE, peer := Peer, reason := Reason} = Report, #{
                    report_cb := Format
                }} ->
                    {Text, Values} = Format(Report),
                    Line = lists:flatten(io_lib:format(Text, Values)),
                    ?assertMatch("weir: " ++ _, Line),
                    ?assertNotEqual(nomatch, string:find(Line, "peer=127.0.0.1:")),
                    Reason
            after patience() -> ct:fail(not_logged)
            end
    after patience() -> ct:fail(not_told)
    end.

%% It is also counted.
has_failed(Count) ->
    wait_until(fun() -> maps:get(failed_handshakes, weir:info(?MODULE)) =:= Count end).

a_failed_handshake_is_told(Config) ->
    {ok, _} = start([{log_level, none} | ?config(inline, Config)]),
    observe(),
    Peer = intrude(),
    ?assertMatch({tls_alert, _}, is_told(tls, Peer)),
    has_failed(1),
    ?assertMatch(#{accepted := 1}, weir:info(?MODULE)).

a_failed_handshake_of_a_protocol_is_told(Config) ->
    {ok, _} = start([{log_level, none} | ?config(inline, Config)], weir_listener_protocol),
    observe(),
    Peer = intrude(),
    ?assertMatch({tls_alert, _}, is_told(tls, Peer)),
    has_failed(1).

a_missing_header_is_told(_Config) ->
    {ok, _} = weir:start_listener(
        ?MODULE, #{ip => ?LOOPBACK, proxy_protocol => true, handshake_timeout => infinity}, fun ?MODULE:hold/2, args
    ),
    observe(),
    Peer = intrude(),
    ?assertEqual(not_proxy, is_told(proxy, Peer)),
    has_failed(1).

a_handshake_that_succeeds_is_told(Config) ->
    {ok, _} = start(?config(inline, Config)),
    observe(),
    {ok, Socket} = ssl:connect(?LOOPBACK, weir:get_port(?MODULE), [{verify, verify_none}], patience()),
    {ok, Address} = ssl:sockname(Socket),
    receive
        {told, _, #{duration := _}, #{kind := tls, peer := Address, reason := normal}} -> ok
    after patience() -> ct:fail(not_told)
    end,
    ?assertMatch(#{failed_handshakes := 0}, weir:info(?MODULE)),
    ok = ssl:close(Socket).

a_storm_of_failures_is_a_few_lines(Config) ->
    {ok, _} = start([{log_level, none} | ?config(inline, Config)]),
    observe(),
    Before = erlang:monotonic_time(millisecond),
    Clients = [weir_test_peer:async(fun() -> [intrude() || _ <- lists:seq(1, 20)] end) || _ <- lists:seq(1, 5)],
    [weir_test_peer:await(Client) || Client <- Clients],
    has_failed(100),
    Events = [
        receive
            {told, _, _, _} = Event -> Event
        after patience() -> ct:fail(not_told)
        end
     || _ <- lists:seq(1, 100)
    ],
    ?assertEqual(100, length(Events)),
    Periods = (erlang:monotonic_time(millisecond) - Before) div 1000 + 2,
    Messages = weir_test_wait:messages(),
    ?assertEqual([], [Event || Event <- Messages, element(1, Event) =:= told]),
    Lines = [Line || Line <- Messages, element(1, Line) =:= logged],
    ?assert(length(Lines) =< 10 * Periods),
    ?assert(length(Lines) >= 1).

%% A protocol that inspects the ClientHello first.
a_paused_handshake_is_told_when_it_ends(Config) ->
    {ok, _} = start([{handshake, hello}, {log_level, none} | ?config(inline, Config)], ?MODULE),
    observe(),
    {ok, Socket} = ssl:connect(?LOOPBACK, weir:get_port(?MODULE), [{verify, verify_none}], patience()),
    {ok, Address} = ssl:sockname(Socket),
    receive
        {told, _, _, #{kind := tls, peer := Address, reason := normal}} -> ok
    after patience() -> ct:fail(not_told)
    end,
    ok = ssl:close(Socket).

start_link(Name, Transport, args) ->
    {ok, proc_lib:spawn_link(?MODULE, look_first, [Name, Transport])}.

look_first(Name, Transport) ->
    {continue, #{}} = weir:handshake(Name),
    receive
        {handshake_continue, Name, Transport, Hello, Timeout} ->
            {ok, Socket} = Transport:handshake_continue(Hello, Timeout),
            _ = Transport:recv(Socket, 0, infinity),
            Transport:close(Socket)
    end.

%% The transports also work with ranch's own listeners.
transports_listen(Config) ->
    #{certificate := Certificate, key := Key} = ?config(files, Config),
    Options = #{socket_opts => [{ip, ?LOOPBACK}, {nodelay, false}]},
    {ok, Plain} = weir_transport:listen(Options),
    ?assertMatch({'$inet', weir_tcp, _}, Plain),
    ?assertEqual({ok, [{nodelay, false}]}, weir_transport:getopts(Plain, [nodelay])),
    {ok, {_, Port}} = weir_transport:sockname(Plain),
    {ok, Client} = weir_transport:connect(?LOOPBACK, Port, []),
    {ok, Server} = weir_transport:accept(Plain, patience()),
    File = filename:join(?config(priv_dir, Config), "file"),
    Data = crypto:strong_rand_bytes(50_000),
    ok = file:write_file(File, Data),
    ?assertEqual({ok, 50_000}, weir_transport:sendfile(Server, File)),
    ?assertEqual({ok, Data}, weir_transport:recv(Client, 50_000, patience())),
    [ok = weir_transport:close(Socket) || Socket <- [Plain, Client, Server]],
    Tls = Options#{socket_opts => [{ip, ?LOOPBACK}, {certfile, Certificate}, {keyfile, Key}]},
    {ok, Secure} = weir_transport_tls:listen(Tls),
    {ok, {_, SecurePort}} = weir_transport_tls:sockname(Secure),
    Connect = weir_test_peer:async(fun() ->
        {ok, Connected} = weir_transport_tls:connect(?LOOPBACK, SecurePort, [{verify, verify_none}]),
        {ok, Received} = weir_transport_tls:recv(Connected, 1000, patience()),
        ok = weir_transport_tls:close(Connected),
        Received
    end),
    {ok, Accepted} = weir_transport_tls:accept(Secure, patience()),
    {ok, Shaken} = weir_transport_tls:handshake(Accepted, patience()),
    ?assertEqual({ok, 1000}, weir_transport_tls:sendfile(Shaken, File, 10, 1000, [{chunk_size, 300}])),
    ?assertEqual(binary:part(Data, 10, 1000), weir_test_peer:await(Connect)),
    ?assertEqual({error, enoent}, weir_transport_tls:sendfile(Shaken, "/none")),
    [ok = weir_transport_tls:close(Socket) || Socket <- [Shaken, Secure]].
