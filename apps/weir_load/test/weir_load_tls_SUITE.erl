%% Scenarios over TLS, against OTP's ssl.
-module(weir_load_tls_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    a_server_that_is_trusted_is_loaded/1,
    a_server_of_an_older_version_is_loaded/1,
    any_server_will_do_if_told_so/1,
    every_request_may_have_a_handshake/1,
    long_messages_come_whole/1,
    the_protocol_is_told/1,
    who_signs_is_checked/1,
    the_name_is_checked/1,
    what_speaks_no_tls_is_an_error/1,
    a_refusal_is_an_error/1,
    certificates_have_to_be_there/1,
    a_close_is_counted_and_the_load_goes_on/1
]).

-import(weir_test_wait, [patience/0]).

-define(SECOND, 1_000_000_000).
%% The duration of a load: 200, 50 or 20 requests.
-define(DURATION, (?SECOND div 4)).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        a_server_that_is_trusted_is_loaded,
        a_server_of_an_older_version_is_loaded,
        any_server_will_do_if_told_so,
        every_request_may_have_a_handshake,
        long_messages_come_whole,
        the_protocol_is_told,
        who_signs_is_checked,
        the_name_is_checked,
        what_speaks_no_tls_is_an_error,
        a_refusal_is_an_error,
        certificates_have_to_be_there,
        a_close_is_counted_and_the_load_goes_on
    ].

init_per_suite(Config) ->
    case os:find_executable("openssl") of
        false ->
            {skip, "no openssl here"};
        _ ->
            {ok, _} = application:ensure_all_started(weir),
            {ok, _} = application:ensure_all_started(ssl),
            Roots = authority("roots", Config),
            Others = authority("others", Config),
            Certificate = certificate("localhost", "roots", Config),
            [{roots, Roots}, {others, Others}, {certificate, Certificate} | Config]
    end.

end_per_suite(_Config) ->
    ok.

%% Not the test certificates of public_key: some releases of OTP encode them in a way that violates the standard.
authority(Name, Config) ->
    openssl(["req -x509 -nodes -days 2 -subj '/CN=", Name, "'", key(Name), " -out ", Name, ".pem"], Config),
    file(Name ++ ".pem", Config).

certificate(Name, Authority, Config) ->
    ok = file:write_file(file("extensions", Config), ["subjectAltName=DNS:", Name, "\n"]),
    openssl(["req -nodes -subj '/CN=", Name, "'", key(Name), " -out request.pem"], Config),
    openssl(
        [
            "x509 -req -days 2 -in request.pem -extfile extensions -set_serial 1 -CA ",
            Authority,
            ".pem -CAkey ",
            Authority,
            ".key -out ",
            Name,
            ".pem"
        ],
        Config
    ),
    [{certfile, file(Name ++ ".pem", Config)}, {keyfile, file(Name ++ ".key", Config)}].

key(Name) -> [" -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -keyout ", Name, ".key"].

openssl(Arguments, Config) ->
    Command = ["cd '", ?config(priv_dir, Config), "' && openssl ", Arguments, " 2>&1 && echo done"],
    Output = os:cmd(unicode:characters_to_list(Command)),
    ?assertMatch({match, _}, re:run(Output, "done\n$"), Output).

file(Name, Config) -> filename:join(?config(priv_dir, Config), Name).

a_server_that_is_trusted_is_loaded(Config) ->
    {Port, Stop} = serve(Config, [], fun(_Socket) -> ok end),
    %% Only bytes sent in the window count, so it stays open until all are sent.
    Load = {open, [{constant, 800, ?DURATION}, {constant, 0, 3599 * ?SECOND}], even},
    [
        begin
            Plan = plan(Config, Port, #{sockets => Sockets, load => Load}),
            #{total := Total} = weir_load_measure:run_until_answered(200, #{port => Port}, Plan),
            ?assertMatch(#{offered := 200, answered := 200, error_count := 0, connected := 10}, Total),
            %% TLS sends more bytes than the messages have.
            ?assertMatch(#{bytes_sent := Bytes} when Bytes > 200 * 64, Total)
        end
     || Sockets <- [weir, inet]
    ],
    Stop().

a_server_of_an_older_version_is_loaded(Config) ->
    ?assertMatch(#{answered := 200, error_count := 0}, load(Config, [{versions, ['tlsv1.2']}], #{})).

any_server_will_do_if_told_so(Config) ->
    ?assertMatch(#{answered := 200, error_count := 0}, load(Config, [], #{trust => anybody, host => "127.0.0.1"})).

every_request_may_have_a_handshake(Config) ->
    Plan = #{within_tls => weir_load_short, connections => 0, load => {open, [{constant, 200, ?DURATION}], even}},
    ?assertMatch(#{offered := 50, answered := 50, connected := 50, error_count := 0}, load(Config, [], Plan)).

long_messages_come_whole(Config) ->
    Plan = #{size => 300_000, connections => 2, load => {open, [{constant, 80, ?DURATION}], even}},
    ?assertMatch(#{answered := 20, error_count := 0}, load(Config, [], Plan)).

the_protocol_is_told(Config) ->
    Self = self(),
    Told = fun(Socket) -> Self ! {protocol, ssl:negotiated_protocol(Socket)} end,
    Http = #{within_tls => weir_load_http, method => "GET", header => [], body => ""},
    _ = load(Config, [{alpn_preferred_protocols, [<<"http/1.1">>]}], Http, Told),
    receive
        {protocol, Protocol} -> ?assertEqual({ok, <<"http/1.1">>}, Protocol)
    after patience() -> ct:fail(not_opened)
    end.

who_signs_is_checked(Config) ->
    ?assertMatch(
        {match, _}, re:run(refusal(Config, [], #{trust => {file, ?config(others, Config)}}), "is not trusted.*--cacert")
    ).

the_name_is_checked(Config) ->
    ?assertMatch(
        {match, _},
        re:run(refusal(Config, [], #{host => "example.org"}), "certificate of example.org port .* is not trusted")
    ).

what_speaks_no_tls_is_an_error(Config) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Port} = inet:port(Listener),
    _ = spawn_link(fun() ->
        {ok, Socket} = gen_tcp:accept(Listener, patience()),
        ok = gen_tcp:send(Socket, "220 mail.example.org\r\n"),
        {_, _} = weir_test_wait:recv_all(Socket)
    end),
    {error, Message} = run(Config, Port, #{}),
    ?assertMatch({match, _}, re:run(Message, "no TLS with .* port [0-9]+: ")),
    ?assertEqual(nomatch, re:run(Message, "in time")).

a_refusal_is_an_error(Config) ->
    Old = [
        {versions, ['tlsv1.2']},
        {ciphers, [#{key_exchange => ecdhe_ecdsa, cipher => aes_128_cbc, mac => sha256, prf => sha256}]}
    ],
    ?assertMatch({match, _}, re:run(refusal(Config, Old, #{}), "refuses the TLS handshake")).

certificates_have_to_be_there(Config) ->
    {error, Absent} = run(Config, 1, #{trust => {file, "/no/such/file"}}),
    ?assertMatch({match, _}, re:run(Absent, "cannot read /no/such/file")),
    Empty = file("empty.pem", Config),
    ok = file:write_file(Empty, "nothing"),
    {error, None} = run(Config, 1, #{trust => {file, Empty}}),
    ?assertMatch({match, _}, re:run(None, "contains no PEM certificate")).

a_close_is_counted_and_the_load_goes_on(Config) ->
    %% The first connection is the trial handshake before the load.
    Counter = atomics:new(1, []),
    Closes = fun(Socket) -> atomics:add_get(Counter, 1, 1) =:= 3 andalso ssl:close(Socket) end,
    #{connected := Connected, answered := Answered} = load(Config, [], #{}, Closes),
    ?assert(Connected > 10),
    ?assert(Answered >= 150).

%% Helpers

refusal(Config, Options, Plan) ->
    {Port, Stop} = serve(Config, Options, fun(_Socket) -> ok end),
    {error, Message} = run(Config, Port, Plan),
    Stop(),
    Message.

load(Config, Options, Plan) -> load(Config, Options, Plan, fun(_Socket) -> ok end).

load(Config, Options, Plan, Opened) ->
    {Port, Stop} = serve(Config, Options, Opened),
    {ok, Outcome} = run(Config, Port, Plan),
    Stop(),
    About = #{
        scenario => <<"echo">>, target => <<>>, loop => open, rate => null, arrivals => null, seed => null,
        concurrency => null, connections => 10, depth => 1, sockets => weir, tls => true, observe => null,
        nodes => [node()], duration_ns => ?DURATION, warmup_ns => 0, timeout_ns => ?SECOND, max_lag_ns => ?SECOND,
        started => <<>>, promises => []
    },
    #{total := Total} = weir_load_document:new(About, [Outcome]),
    Total.

run(Config, Port, Plan) -> weir_load_run:run(plan(Config, Port, Plan), fun(_News) -> ok end).

plan(Config, Port, Plan) ->
    OfScenario = maps:merge(
        #{
            within_tls => weir_load_echo,
            trust => {file, ?config(roots, Config)},
            host => "localhost",
            address => {127, 0, 0, 1},
            port => Port,
            size => 64,
            timeout => patience() * 1_000_000,
            tls => true
        },
        maps:with([within_tls, trust, host, size, method, header, body, timeout], Plan)
    ),
    maps:merge(
        #{
            scenario => weir_load_tls,
            options => OfScenario,
            address => {127, 0, 0, 1},
            port => Port,
            sockets => weir,
            load => {open, [{constant, 800, ?DURATION}], even},
            connections => 10,
            connect_rate => unlimited,
            depth => 1,
            duration => ?DURATION,
            warmup => 0,
            timeout => patience() * 1_000_000,
            drivers => 2,
            nodes => [node()],
            observe => none
        },
        maps:with([sockets, load, connections, timeout], Plan)
    ).

%% A TLS echo server.
serve(Config, Options, Opened) ->
    Tcp = [binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {backlog, 128}, {log_level, none}],
    {ok, Listener} = ssl:listen(0, Tcp ++ ?config(certificate, Config) ++ Options),
    {ok, {_, Port}} = ssl:sockname(Listener),
    Acceptor = spawn(fun() -> accept(Listener, Opened) end),
    {Port, fun() -> exit(Acceptor, kill), ssl:close(Listener) end}.

accept(Listener, Opened) ->
    case ssl:transport_accept(Listener) of
        {ok, Accepted} -> accepted(Accepted, Opened), accept(Listener, Opened);
        {error, closed} -> ok
    end.

accepted(Accepted, Opened) ->
    Server = spawn(fun() ->
        receive go -> ok end,
        case ssl:handshake(Accepted, patience()) of
            {ok, Socket} -> Opened(Socket), echo(Socket);
            {error, _} -> ok
        end
    end),
    ok = ssl:controlling_process(Accepted, Server),
    Server ! go.

echo(Socket) ->
    case ssl:recv(Socket, 0) of
        {ok, Data} ->
            case ssl:send(Socket, Data) of
                ok -> echo(Socket);
                {error, _} -> ok
            end;
        {error, _} ->
            ok
    end.
