%% Common servers and clients through weir_proxy: PostgreSQL (psql, pgbench), Redis (redis-cli, redis-benchmark),
%% nginx with TLS by server name (curl, OpenSSL, Chromium), ssh and WebSocket. A case is skipped if its programs are
%% not installed.
-module(weir_proxy_servers_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([postgres/1, redis/1, nginx_with_tls/1, hellos_in_pieces/1, ssh/1, websocket/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [postgres, redis, nginx_with_tls, hellos_in_pieces, ssh, websocket].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_proxy),
    browser(Config) ++ [{started, Started} | Config].

browser(Config) ->
    case weir_compatibility_chromium:find() of
        error ->
            [];
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(?config(priv_dir, Config), "browser"), [
                    "--disable-quic", "--ignore-certificate-errors", "--host-resolver-rules=MAP * 127.0.0.1"
                ]
            ),
            [{browser, Browser}]
    end.

end_per_suite(Config) ->
    [ok = weir_compatibility_chromium:stop(Browser) || {browser, Browser} <- Config],
    [ok = application:stop(Application) || Application <- lists:reverse(?config(started, Config))],
    ok.

%% Runs also after a failed case.
end_per_testcase(_Case, _Config) ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    weir_program:stop_all().

%%% PostgreSQL: two clusters, by database and by user.

postgres(Config) ->
    needs(["postgres", "initdb", "psql", "pgbench"], fun() -> postgres_by_rule(Config) end).

postgres_by_rule(_Config) ->
    Directory = weir_program:directory("postgres"),
    ok = weir_program:as("postgres", "initdb", [
        "-D", Directory ++ "/one", "-A", "trust", "-U", "joe", "--no-sync", "--no-instructions"
    ]),
    "" = os:cmd("cp -a " ++ Directory ++ "/one " ++ Directory ++ "/two"),
    [One, Two] = [
        start_postgres(Directory ++ Name)
     || Name <- ["/one", "/two"]
    ],
    Port = proxy(
        #{
            rules => [#{database => "sales", backend => one}, #{user => "ann", backend => one}],
            backend => two
        },
        #{
            one => #{
                servers => [address(One)],
                health => #{kind => postgres, user => "joe", interval => 100, timeout => weir_test_wait:patience()}
            },
            two => #{servers => [address(Two)]}
        }
    ),
    weir_test_wait:wait_until(fun() -> os:cmd(psql(Two, "joe", "postgres", "select 1")) =:= "1\n" end),
    weir_test_wait:wait_until(fun() ->
        os:cmd(psql(One, "joe", "postgres", "create role ann login superuser")) =:= "CREATE ROLE\n"
    end),
    "CREATE DATABASE\n" = os:cmd(psql(One, "joe", "postgres", "create database sales")),
    weir_test_wait:wait_until(fun() -> [up] =:= states(one) end),
    Asked = fun(User, Database) -> string:trim(os:cmd(psql(Port, User, Database, "show port"))) end,
    ?assertEqual(integer_to_list(One), Asked("joe", "sales")),
    ?assertEqual(integer_to_list(One), Asked("ann", "postgres")),
    ?assertEqual(integer_to_list(Two), Asked("joe", "postgres")),
    _ = pgbench(Port, ["-i", "-q", "-s", "1"]),
    Output = pgbench(Port, ["-c", "8", "-t", "25", "-C"]),
    ?assertMatch({match, _}, re:run(Output, "processed: 200/200\n.*failed transactions: 0 ", [dotall]), Output),
    %% A result of four megabytes.
    ?assertEqual(
        "4000000\n", os:cmd(psql(Port, "joe", "sales", "select repeat('x', 4000000)") ++ " | tr -d '\\n' | wc -c")
    ),
    %% A stopped server is down.
    ok = weir_program:stop(One),
    weir_test_wait:wait_until(fun() -> [down] =:= states(one) end).

start_postgres(Directory) ->
    weir_program:start_as("postgres", "postgres", fun(Port) ->
        [
            "-D",
            Directory,
            "-p",
            Port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "fsync=off"
        ]
    end).

pgbench(Port, Arguments) ->
    Command =
        ["PGSSLMODE=disable", "pgbench", "-h", "127.0.0.1", "-U", "joe", "-p", integer_to_list(Port) | Arguments] ++
            ["sales", "2>&1"],
    os:cmd(string:join(Command, " ")).

psql(Port, User, Database, Command) ->
    lists:concat([
        "PGSSLMODE=disable PGCONNECT_TIMEOUT=",
        patience(),
        " psql -h 127.0.0.1 -p ",
        Port,
        " -U ",
        User,
        " -d ",
        Database,
        " -Atc \"",
        Command,
        "\" 2>&1"
    ]).

%%% Redis.

redis(Config) ->
    needs(["redis-server", "redis-cli", "redis-benchmark"], fun() ->
        Start = fun() ->
            weir_program:start("redis-server", fun(Port) ->
                ["--port", Port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
            end)
        end,
        [One, Other] = [Start(), Start()],
        Port = proxy(#{rules => [#{protocol => redis, backend => redis}]}, #{
            redis => #{
                servers => [address(One), #{address => address(Other), name => spare, priority => 1}],
                health => #{kind => redis, interval => 100, fall => 1, timeout => weir_test_wait:patience()}
            }
        }),
        weir_test_wait:wait_until(fun() -> [up, up] =:= states(redis) end),
        Cli = fun(Arguments) -> lists:concat(["redis-cli -h 127.0.0.1 -p ", Port, " ", Arguments]) end,
        ?assertEqual("PONG\n", os:cmd(Cli("ping"))),
        Value = lists:duplicate(3_000_000, $v),
        File = filename:join(?config(priv_dir, Config), "value"),
        ok = file:write_file(File, Value),
        ?assertEqual("OK\n", os:cmd(Cli("-x set key < " ++ File))),
        ?assertEqual("3000000\n", os:cmd(Cli("strlen key"))),
        Output = os:cmd(
            lists:concat([
                "redis-benchmark -h 127.0.0.1 -p ", Port, " -n 5000 -c 50 -P 4 -q -t ping_mbulk,set,get 2>&1"
            ])
        ),
        ?assertEqual(3, length(re:split(Output, "requests per second")) - 1, Output),
        ok = weir_program:stop(One),
        weir_test_wait:wait_until(fun() -> os:cmd(Cli("strlen key")) =:= "0\n" end)
    end).

%%% TLS, by the name that the client asks for.

nginx_with_tls(Config) ->
    needs(["nginx", "curl", "openssl"], fun() ->
        Port = tls_proxy(?config(priv_dir, Config)),
        Curl = fun(Name, More) ->
            os:cmd(
                lists:concat([
                    "curl -sk ", More, " --resolve ", Name, ":", Port, ":127.0.0.1 https://", Name, ":", Port, "/"
                ])
            )
        end,
        ?assertEqual("one", Curl("one.example.org", "")),
        ?assertEqual("one", Curl("one.example.org", "--http1.1 --tls-max 1.2")),
        ?assertEqual("other", Curl("other.example.org", "")),
        OpenSsl = os:cmd(
            lists:concat([
                "printf 'GET / HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n' | "
                "openssl s_client -quiet -ign_eof -connect 127.0.0.1:",
                Port,
                " -servername a.one.example.org 2>/dev/null"
            ])
        ),
        ?assertEqual("one", lists:last(string:split(OpenSsl, "\r\n\r\n"))),
        Pages = [{"one.example.org", "one"}, {"other.example.org", "other"}],
        [ok = shows(Browser, Port, Name, Text) || {browser, Browser} <- Config, {Name, Text} <- Pages],
        ok
    end).

%% Chromium sends key shares for ML-KEM: its ClientHello is larger than a segment.
shows(Browser, Port, Name, Text) ->
    Page = weir_compatibility_chromium:open(Browser, url(Name, Port), #{apart => true}),
    ok = weir_compatibility_chromium:wait_until(Page, ["document.body.textContent.trim() === '", Text, "'"]),
    weir_compatibility_chromium:close(Page).

url(Name, Port) -> lists:concat(["https://", Name, ":", Port, "/"]).

tls_proxy(Directory) ->
    Files = weir_compatibility_certificates:write(weir_compatibility_certificates:make(), Directory),
    #{server := #{certfile := Certificate, keyfile := Key}} = Files,
    Server = fun(Port, Body) ->
        [
            "server { listen 127.0.0.1:",
            Port,
            " ssl http2; ssl_certificate ",
            Certificate,
            "; ssl_certificate_key ",
            Key,
            "; location / { default_type text/html; return 200 ",
            Body,
            "; } }\n"
        ]
    end,
    Other = weir_test_port:claim(),
    One = weir_program:start("nginx", fun(Port) ->
        File = filename:join(Directory, "nginx.conf"),
        ok = file:write_file(File, [
            "daemon off; master_process off; pid ",
            Directory,
            "/nginx.pid; error_log ",
            Directory,
            "/nginx-error.log;\nevents {}\n"
            "http { access_log off;\n",
            Server(Port, "one"),
            Server(integer_to_list(Other), "other"),
            "}\n"
        ]),
        ["-c", File, "-e", filename:join(Directory, "nginx-error.log")]
    end),
    proxy(
        #{
            rules => [
                #{sni => ["one.example.org", "*.one.example.org"], backend => one}, #{protocol => tls, backend => other}
            ]
        },
        #{
            one => #{servers => [address(One)]}, other => #{servers => [address(Other)]}
        }
    ).

%% ClientHellos of real clients, cut at every byte, and in records of every size.
hellos_in_pieces(Config) ->
    Hellos = [{Program, hello(Client)} || {Program, Client} <- clients(Config), weir_program:find(Program) =/= false],
    Sizes = [{Program, byte_size(Hello)} || {Program, Hello} <- Hellos],
    ct:log("~p", [Sizes]),
    [
        begin
            {ok, #{sni := <<"one.example.org">>} = Known} = weir_proxy_client_hello:parse(Hello),
            [
                ?assertEqual(
                    {Program, Size, more}, {Program, Size, weir_proxy_client_hello:parse(binary:part(Hello, 0, Size))}
                )
             || Size <- lists:seq(0, byte_size(Hello) - 1)
            ],
            <<22, 3, Minor, Length:16, Message:Length/binary>> = Hello,
            [
                ?assertEqual({ok, Known}, weir_proxy_client_hello:parse(in_records(Size, Minor, Message)))
             || Size <- lists:seq(1, Length)
            ]
        end
     || {Program, Hello} <- Hellos
    ],
    %% With post-quantum key shares, Chromium's ClientHello is larger than a segment.
    [?assert(Size > 1460) || {"chromium", Size} <- Sizes].

%% Each connects to a port, and ends some time after that connection is lost.
clients(Config) ->
    [
        {"curl", fun(Port) ->
            program([
                "curl -sk -m ",
                patience(),
                " --resolve one.example.org:",
                Port,
                ":127.0.0.1 ",
                url("one.example.org", Port)
            ])
        end},
        {"openssl", fun(Port) ->
            program([
                "timeout ",
                patience(),
                " openssl s_client -connect 127.0.0.1:",
                Port,
                " -servername one.example.org -alpn h2,http/1.1 </dev/null"
            ])
        end}
    ] ++
        [
            {"chromium", fun(Port) ->
                Page = weir_compatibility_chromium:open(Browser, url("one.example.org", Port), #{apart => true}),
                fun() -> weir_compatibility_chromium:close(Page) end
            end}
         || {browser, Browser} <- Config
        ].

%% Waits until the program ends.
program(Command) ->
    {_, Monitor} = spawn_monitor(fun() -> os:cmd(lists:concat(Command)) end),
    fun() -> receive {'DOWN', Monitor, process, _, Reason} -> normal = Reason, ok end end.

%% Returns the first ClientHello of a client. A browser may open connections that it does not use.
hello(Client) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Self = self(),
    Acceptor = spawn_link(fun() -> read_hellos(Listen, Self) end),
    End = Client(Port),
    Hello = receive {hello, Bytes} -> Bytes after weir_test_wait:patience() -> error(no_hello) end,
    %% Without an answer from now on, the client ends.
    unlink(Acceptor),
    exit(Acceptor, kill),
    ok = gen_tcp:close(Listen),
    ok = End(),
    Hello.

%% Each connection is read by its own process.
read_hellos(Listen, Asker) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Reader = spawn_link(fun() -> receive go -> read_hello(Socket, Asker) end end),
    ok = gen_tcp:controlling_process(Socket, Reader),
    Reader ! go,
    read_hellos(Listen, Asker).

read_hello(Socket, Asker) ->
    case gen_tcp:recv(Socket, 5) of
        {ok, <<22, 3, _, Length:16>> = Header} ->
            {ok, Message} = gen_tcp:recv(Socket, Length),
            Asker ! {hello, <<Header/binary, Message/binary>>},
            ok;
        _ ->
            ok
    end.

in_records(Size, Minor, Message) when byte_size(Message) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Message,
    <<22, 3, Minor, Size:16, Piece/binary, (in_records(Size, Minor, Rest))/binary>>;
in_records(_Size, Minor, Message) ->
    <<22, 3, Minor, (byte_size(Message)):16, Message/binary>>.

%%% ssh and WebSocket.

ssh(Config) ->
    needs(["ssh", "ssh-keygen"], fun() ->
        {ok, Started} = application:ensure_all_started(ssh),
        Directory = filename:join(?config(priv_dir, Config), "ssh"),
        ok = filelib:ensure_dir(Directory ++ "/x"),
        "" = os:cmd(
            "ssh-keygen -q -t ecdsa -N '' -m PEM -f " ++ Directory ++ "/id_ecdsa && cp " ++ Directory ++
                "/id_ecdsa.pub " ++ Directory ++
                "/authorized_keys && "
                "ssh-keygen -q -t ecdsa -N '' -m PEM -f " ++ Directory ++ "/ssh_host_ecdsa_key"
        ),
        {ok, Daemon} = ssh:daemon({127, 0, 0, 1}, 0, [
            {system_dir, Directory},
            {user_dir, Directory},
            {auth_methods, "publickey"},
            {exec, {direct, fun(_) -> {ok, lists:duplicate(100_000, $s)} end}}
        ]),
        try
            {ok, Info} = ssh:daemon_info(Daemon),
            Port = proxy(#{rules => [#{protocol => ssh, backend => ssh}]}, #{
                ssh => #{servers => [address(proplists:get_value(port, Info))]}
            }),
            %% ssh may print that the server has closed the connection.
            ?assertEqual(
                "100000\n",
                os:cmd(
                    lists:concat([
                        "ssh -F none -p ",
                        Port,
                        " -i ",
                        Directory,
                        "/id_ecdsa -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no"
                        " -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR user@127.0.0.1 question 2>/dev/null"
                        " | tr -d '\\n\"' | wc -c"
                    ])
                )
            )
        after
            ok = ssh:stop_daemon(Daemon),
            [application:stop(Application) || Application <- lists:reverse(Started)]
        end
    end).

websocket(_Config) ->
    needs(["node"], fun() ->
        filelib:is_dir("/usr/share/nodejs/ws") orelse throw({skip, "no module ws of Node"}),
        {ok, Started} = application:ensure_all_started(weir_http),
        {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, [
            {"/websocket", weir_http_page, websocket}
        ]),
        Port = proxy(#{rules => [#{host => "chat.example.org", backend => chat}]}, #{
            chat => #{servers => [address(weir:get_port(?MODULE))]}
        }),
        Output = os:cmd(
            lists:concat([
                "NODE_PATH=/usr/share/nodejs timeout ",
                patience(),
                " node -e \""
                "const WebSocket = require('ws');"
                "const socket = new WebSocket('ws://127.0.0.1:",
                Port,
                "/websocket', { headers: { Host: 'chat.example.org' } });"
                "socket.on('message', (data) => { const text = String(data);"
                "  if (text === 'welcome') socket.send('x'.repeat(300000)); else { console.log(text.length); "
                "socket.close() } });socket.on('error', (error) => console.log(error))\""
            ])
        ),
        ok = weir_http:stop_listener(?MODULE),
        [application:stop(Application) || Application <- lists:reverse(Started), Application =/= weir],
        ?assertEqual("300000\n", Output)
    end).

%%% Shared by cases.

needs(Programs, Fun) ->
    case [Program || Program <- Programs, weir_program:find(Program) =:= false] of
        [] -> Fun();
        [Missing | _] -> {skip, "no " ++ Missing}
    end.

%% Time limit of a program in seconds.
patience() -> integer_to_list(weir_test_wait:patience() div 1000).

proxy(Frontend, Backends) ->
    ok = weir_proxy:start(?MODULE, #{
        frontends => #{front => Frontend#{listen => "127.0.0.1:0"}}, backends => Backends
    }),
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(?MODULE),
    binary_to_integer(Port).

states(Backend) ->
    {ok, Servers} = weir_proxy:servers(?MODULE, Backend),
    [State || #{state := State} <- Servers].

address(Port) -> iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]).
