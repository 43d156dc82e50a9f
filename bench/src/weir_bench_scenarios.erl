%% @doc What is measured: data only.
%%
%% A scenario is a server, the load on it, and the contestants that serve it in turn. A contestant may replace any
%% setting of its scenario. Times are for the driver: it connects, warms up, measures.
-module(weir_bench_scenarios).

-export([all/0]).
-export([demo/0]).
-export([select/1]).
-export([quick/1]).
-export([seconds/1]).

-export_type([name/0, scenario/0, contestant/0, run/0, backend/0]).

-type name() :: atom().
-type backend() :: inet | socket | weir | reference | haproxy.
-type server() ::
    echo
    | proxy
    | ehttpd
    | accept
    | game
    | tls_echo
    | file_httpd
    | chargen
    | discard
    | cowboy_hello
    | echo_listener
    | accept_listener
    | echo_reactor
    | game_reactor
    | relay
    | fanout
    | fanout_processes.

-type scenario() :: #{
    name := name(),
    title := binary(),
    %% The example, and the command of the driver.
    server := server(),
    load := echo | proxy | http | accept | game | idle | fanout | download | upload,
    %% Of echo: messages are packets.
    packet => 4 | line,
    %% Of echo: through TLS.
    tls => boolean(),
    %% Of echo: messages a second over all connections, at random; as fast as replies come unless given.
    rate => pos_integer(),
    %% Of echo, proxy (64) and fanout (128): bytes of a message.
    size => pos_integer(),
    %% Of fanout: connections that never read, and the send buffer of all.
    slow => pos_integer(),
    sndbuf => pos_integer(),
    %% Of download: the window ends after so many bytes, if its duration has not ended it before.
    bytes => pos_integer(),
    %% An application that is no part of OTP, or HAProxy. What needs it is skipped where it is not installed.
    needs => atom(),
    %% Schedulers of the server's emulator (1), and whether they share their cores with two drivers.
    schedulers => 1 | 2,
    together => boolean(),
    %% For the load `accept': how many connections are in the making at a time.
    connections := pos_integer(),
    %% Connections opened a second, so that what happens at intervals is spread over them.
    connect_rate => pos_integer(),
    %% Milliseconds.
    warmup := pos_integer(),
    duration := pos_integer(),
    %% Processes that compute for ever beside the server.
    busy => pos_integer(),
    metrics := [weir_bench_sample:metric()],
    contestants := [contestant()]
}.

-type contestant() :: #{
    title := binary(),
    backend := backend(),
    server => server(),
    active => once | true | false | pos_integer(),
    connections => pos_integer(),
    slow => pos_integer(),
    schedulers => 1 | 2,
    %% Of HAProxy: it moves bytes within the kernel.
    splice => boolean(),
    needs => atom()
}.

%% A scenario with the settings of one of its contestants.
-type run() :: #{
    name := name(),
    title := binary(),
    backend := backend(),
    server := atom(),
    load := atom(),
    connections := pos_integer(),
    warmup := pos_integer(),
    duration := pos_integer(),
    atom() => term()
}.

-define(REQUESTS, [requests_per_s, p50_us, p99_us, cpu_us_per_request]).
-define(BYTES, [bytes_per_s, bytes_per_cpu_s]).

%% @doc The full matrix.
-spec all() -> [scenario()].
all() ->
    [echo(Connections) || Connections <- [1, 8, 100, 1000, 10000]] ++
        [
            #{
                name => busy,
                title => <<"echo, 8 connections, beside 200 processes that compute">>,
                server => echo,
                load => echo,
                connections => 8,
                busy => 200,
                warmup => 1000,
                duration => 3000,
                metrics => [p50_us, p99_us, requests_per_s],
                contestants => otp_and_weir(once)
            },
            packets(4, <<"echo, packets of 64 bytes, {packet, 4}, 100 connections">>),
            packets(line, <<"echo, lines of 64 bytes, {packet, line}, 100 connections">>),
            (requests(tls_echo, echo, 100))#{
                name => 'tls-100',
                title => <<"echo through TLS 1.3, 64 bytes, 100 connections">>,
                tls => true,
                contestants => otp_and_weir(once)
            },
            (requests(echo, echo, 10000))#{
                name => 'random-10000',
                title => <<"echo, 64 bytes, 10,000 connections that send at random, 20,000 messages a second in all">>,
                rate => 20000,
                contestants => otp_and_weir(once) ++ [reference()]
            },
            serving(proxy, 100),
            serving(ehttpd, 100),
            serving(ehttpd, 1000),
            cowboy(100),
            cowboy(1000),
            (requests(file_httpd, http, 8))#{
                name => sendfile,
                title => <<"1 MiB by file:sendfile, 8 connections">>,
                contestants => [plainly(Backend) || Backend <- [inet, socket, weir]] ++ [reference()]
            },
            bulk(download, chargen, <<"one connection, the server sends 64 KiB at a time">>,
                [plainly(Backend) || Backend <- [inet, socket, weir]]),
            bulk(upload, discard, <<"one connection, the server receives with default options">>,
                otp_and_weir(once) ++ otp_and_weir(false)),
            #{
                name => accept,
                title => <<"connect, one request, one reply, close; 50 at a time">>,
                server => accept,
                load => accept,
                connections => 50,
                warmup => 1000,
                duration => 3000,
                metrics => ?REQUESTS,
                contestants => otp_and_weir(false) ++ [listener(accept_listener, false), reference()]
            },
            #{
                name => game,
                title => <<"game, 10,000 connections, 512 bytes to each and an answer every 500 ms">>,
                server => game,
                load => game,
                connections => 10000,
                connect_rate => 5000,
                warmup => 2000,
                duration => 10000,
                metrics => [cpu_s_per_minute, ticks_per_s, bytes_per_connection],
                contestants => otp_and_weir(true) ++ [reactor(game_reactor), reference()]
            },
            #{
                name => idle,
                title => <<"10,000 idle connections">>,
                server => echo,
                load => idle,
                connections => 10000,
                warmup => 2000,
                duration => 10000,
                metrics => [bytes_per_connection, core_percent],
                contestants =>
                    otp_and_weir(once) ++
                        %% What a node uses that has nothing to do: the driver needs one connection.
                        [reference(), #{title => <<"inet, 1 connection">>, backend => inet, connections => 1}]
            }
        ] ++ fast_paths().

%% What a program gains that is written for Weir: listeners, reactors, relays and groups.
fast_paths() ->
    [reactor_scenario(Connections) || Connections <- [100, 1000, 10000]] ++
        [
            idle_reactor(),
            schedulers(),
            (requests(echo, echo, 1000))#{
                name => 'listener-1000',
                title => <<"echo behind a listener, 64 bytes, 1,000 connections">>,
                contestants => [listener(echo_listener, once) | otp_and_weir(once)] ++ [reference()]
            },
            relay_scenario(100),
            relay_scenario(500),
            #{
                name => 'relay-bulk',
                title => <<"1 GiB through a proxy in one connection, from the backend to the client">>,
                server => proxy,
                load => download,
                connections => 1,
                bytes => 1 bsl 30,
                warmup => 500,
                duration => 10000,
                metrics => ?BYTES,
                contestants => relays() ++ [(haproxy())#{title => <<"haproxy splicing">>, splice => true}]
            },
            broadcast(1000),
            broadcast(10000),
            slow_members()
        ].

reactor_scenario(Connections) ->
    (requests(echo, echo, Connections))#{
        name => list_to_atom("reactor-" ++ integer_to_list(Connections)),
        title => iolist_to_binary(["echo by a reactor, 64 bytes, ", count(Connections)]),
        contestants =>
            [reactor(echo_reactor), contestant(weir, once)] ++
                [contestant(inet, Active) || Active <- [once, 100, true]] ++
                [contestant(socket, once), reference()]
    }.

idle_reactor() ->
    Connections = weir_bench_machine:connections(100000),
    #{
        name => 'idle-most',
        title => iolist_to_binary(["idle, ", count(Connections), ": 100,000 or what the limit of descriptors allows"]),
        server => echo,
        load => idle,
        connections => Connections,
        warmup => 3000,
        duration => 3000,
        metrics => [bytes_per_connection, connections],
        contestants => [reactor(echo_reactor), contestant(weir, once), contestant(inet, once), reference()]
    }.

%% What a second scheduler costs is the server's CPU time for a request when nothing else differs. Both servers have the
%% same two drivers, one on each of two cores, with 500 connections each, as fast as replies come; one scheduler has the
%% first core, two have both. So in both cases half of the connections come from the scheduler's own core and half from
%% the other, which is dearer, and the two drivers have more to say than either server can answer.
%%
%% What was tried and measures something else: one driver for both servers does not fill two schedulers, and a poller
%% that has little to do asks its kernel in vain before it sleeps. At a fixed rate it does so with all that is left of
%% its core, and a request costs a core divided by the rate, whatever it costs. And one scheduler alone with one driver
%% on one core never meets a connection from another.
schedulers() ->
    (requests(echo, echo, 500))#{
        name => schedulers,
        title => <<"echo, 64 bytes, 500 connections from each of two cores, a server on one of them and on both">>,
        together => true,
        metrics => [cpu_us_per_request, requests_per_s, p50_us, p99_us],
        contestants => [
            Contestant#{title => <<Title/binary, ", ", (schedulers(Count))/binary>>, schedulers => Count}
         || #{title := Title} = Contestant <- [
                reactor(echo_reactor), contestant(weir, once), contestant(inet, once)
            ],
            Count <- [1, 2]
        ]
    }.

schedulers(1) -> <<"1 scheduler">>;
schedulers(2) -> <<"2 schedulers">>.

relay_scenario(Connections) ->
    (requests(proxy, proxy, Connections))#{
        name => list_to_atom("relay-" ++ integer_to_list(Connections)),
        title => iolist_to_binary(["64 bytes through a proxy and back, ", count(Connections)]),
        contestants => relays()
    }.

relays() ->
    [#{title => <<"weir relay">>, backend => weir, server => relay} | otp_and_weir(once)] ++
        [haproxy(), reference()].

haproxy() ->
    #{title => <<"haproxy">>, backend => haproxy, needs => haproxy}.

%% As fast as the server delivers: a request is a message to one member.
broadcast(Members) ->
    (requests(fanout_processes, fanout, Members))#{
        name => list_to_atom("broadcast-" ++ integer_to_list(Members)),
        title => iolist_to_binary([
            "128 bytes to each of ", weir_bench_table:number(Members), " connections, again and again; deliveries"
        ]),
        contestants =>
            [#{title => <<"weir group">>, backend => weir, server => fanout}] ++
                [
                    #{title => <<(atom_to_binary(Backend))/binary, " processes">>, backend => Backend}
                 || Backend <- [weir, inet, socket]
                ] ++ [reference()]
    }.

%% Those who never read are full within the warm-up because all send buffers are bounded, and messages larger: with
%% buffers of their natural size, some megabytes, it would take a quarter of an hour.
slow_members() ->
    (broadcast(9000))#{
        name => 'broadcast-slow',
        title => <<"1 KiB to each of 9,000 connections, again and again, beside 1,000 that never read; deliveries">>,
        size => 1024,
        sndbuf => 4096,
        warmup => 3000,
        metrics => [requests_per_s, cpu_us_per_request, memory_kib],
        contestants => lists:append([
            [Contestant#{title => <<Title/binary, ", 9,000">>},
                Contestant#{title => <<Title/binary, ", 1,000 slow">>, connections => 10000, slow => 1000}]
         || #{title := Title} = Contestant <- [
                #{title => <<"weir group">>, backend => weir, server => fanout},
                #{title => <<"inet processes">>, backend => inet},
                reference()
            ]
        ])
    }.

%% @doc The scenarios of the demo: stock as most servers use it, Weir, and the limit.
-spec demo() -> [scenario()].
demo() ->
    [
        (short(Scenario))#{contestants => [
            #{title => <<"gen_tcp">>, backend => inet, active => once},
            #{title => <<"Weir">>, backend => weir, active => once},
            #{title => <<"native">>, backend => reference}
        ]}
     || Scenario <- [echo(100), serving(proxy, 100), serving(ehttpd, 100)]
    ].

short(Scenario) ->
    Scenario#{warmup => 500, duration => 1500}.

%% @doc The scenarios of these names, in the order of the matrix; a wrong name is told with the right ones.
-spec select([string()]) -> {ok, [name()]} | {error, Needed :: iodata()}.
select(Texts) ->
    Names = [Name || #{name := Name} <- all()],
    case Texts -- [atom_to_list(Name) || Name <- Names] of
        [] when Texts =/= [] ->
            {ok, [Name || Name <- Names, lists:member(atom_to_list(Name), Texts)]};
        _ ->
            {error, ["names of these are needed: ", lists:join(", ", [atom_to_list(Name) || Name <- Names])]}
    end.

%% @doc The same in a third of the time.
-spec quick(scenario()) -> scenario().
quick(#{bytes := Bytes} = Scenario) ->
    (quick(maps:remove(bytes, Scenario)))#{bytes => Bytes div 3};
quick(#{warmup := Warmup, duration := Duration} = Scenario) ->
    Scenario#{warmup => Warmup div 3, duration => Duration div 3}.

%% @doc About how long one round of a scenario takes: start, connect, warm up, measure, stop; for each contestant.
-spec seconds(scenario()) -> float().
seconds(#{warmup := Warmup, duration := Duration, connections := Connections, contestants := Contestants}) ->
    length(Contestants) * (1 + Connections / 5000 + (Warmup + Duration) / 1000).

echo(Connections) ->
    (requests(echo, echo, Connections))#{
        title => iolist_to_binary(["echo, 64 bytes, ", count(Connections)]),
        contestants =>
            [
                contestant(Backend, Active)
             || Backend <- [inet, socket, weir], Active <- [once, 100, true, false]
            ] ++ [reference()]
    }.

serving(Server, Connections) ->
    Load = case Server of ehttpd -> http; proxy -> proxy end,
    (requests(Server, Load, Connections))#{
        title => iolist_to_binary([atom_to_list(Server), ", ", count(Connections)]),
        contestants => otp_and_weir(once) ++ [reference()]
    }.

packets(Type, Title) ->
    (requests(echo, echo, 100))#{
        name => list_to_atom(lists:concat(["packet-", Type])),
        title => Title,
        packet => Type,
        contestants => otp_and_weir(once) ++ [reference()]
    }.

%% ranch wants its own options first, where the `socket' backend would have to be chosen.
cowboy(Connections) ->
    (requests(cowboy_hello, http, Connections))#{
        name => list_to_atom("cowboy-" ++ integer_to_list(Connections)),
        title => iolist_to_binary(["Cowboy's hello world, ", count(Connections)]),
        needs => cowboy,
        contestants => [plainly(inet), plainly(weir), reference()]
    }.

bulk(Load, Server, Title, Contestants) ->
    #{
        name => Load,
        title => Title,
        server => Server,
        load => Load,
        connections => 1,
        warmup => 500,
        duration => 3000,
        metrics => ?BYTES,
        contestants => Contestants ++ [reference()]
    }.

requests(Server, Load, Connections) ->
    #{
        name => list_to_atom(atom_to_list(Server) ++ "-" ++ integer_to_list(Connections)),
        title => <<>>,
        server => Server,
        load => Load,
        connections => Connections,
        warmup => 1000,
        duration => 3000,
        metrics => ?REQUESTS,
        contestants => []
    }.

count(1) -> "1 connection";
count(N) -> [weir_bench_table:number(N), " connections"].

otp_and_weir(Active) ->
    [contestant(Backend, Active) || Backend <- [inet, socket, weir]].

contestant(Backend, Active) ->
    Mode = case Active of false -> "passive"; _ -> io_lib:format("~p", [Active]) end,
    #{title => iolist_to_binary([atom_to_list(Backend), " ", Mode]), backend => Backend, active => Active}.

%% A server that has its own way to receive, or does not.
plainly(Backend) ->
    #{title => atom_to_binary(Backend), backend => Backend}.

%% Weir's own ways to serve.
reactor(Server) ->
    #{title => <<"weir reactor">>, backend => weir, server => Server}.

listener(Server, Active) ->
    #{title => <<"weir listener">>, backend => weir, server => Server, active => Active}.

reference() ->
    #{title => <<"native">>, backend => reference}.
