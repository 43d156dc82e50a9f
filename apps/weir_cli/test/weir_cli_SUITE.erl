%% Runs bin/weir as a user would.
-module(weir_cli_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([
    help_names_every_command/1,
    help_of_run_names_examples_and_options/1,
    help_and_a_command_is_the_commands_help/1,
    every_command_refuses_an_unknown_option/1,
    version_names_weir_and_otp/1,
    a_wrong_argument_is_one_line_and_exit_code_2/1,
    a_tree_that_is_not_built_says_so/1,
    it_runs_through_a_symbolic_link/1,
    emulator_flags_come_from_the_environment/1,
    a_signal_stops_it_with_exit_code_0/1,
    it_outlives_a_hangup_that_its_parent_ignores/1,
    a_signal_while_it_boots_stops_it/1,
    the_emulator_dies_with_its_shell/1,
    scenarios_are_listed/1,
    programs_die_with_the_measurer/1
]).
-export([
    a_port_in_use_is_one_line_and_exit_code_1/1,
    echo_sends_back_in_every_mode/1,
    proxy_carries_both_ways_in_every_mode/1,
    proxy_closes_the_client_when_the_backend_closes/1,
    proxy_closes_the_client_when_there_is_no_backend/1,
    relay_lets_in_whom_it_knows/1,
    ehttpd_answers_in_every_mode/1,
    ehttpd_refuses_an_endless_head/1,
    accept_answers_once_and_closes/1,
    game_sends_the_state_of_the_world/1,
    echo_sends_back_packets_in_every_mode/1,
    tls_echo_sends_back_in_every_mode/1,
    tls_echo_outlives_a_client_that_speaks_no_tls/1,
    file_httpd_answers_with_the_file/1,
    discard_takes_all_in_every_mode/1,
    chargen_sends_until_the_client_goes/1,
    fanout_tells_everybody/1,
    cowboy_hello_answers_or_says_that_cowboy_is_missing/1,
    simple_servers_answer_each_request/1,
    ranch_servers_answer_or_say_that_ranch_is_missing/1
]).
-export([
    echo_listener_sends_back/1,
    accept_listener_answers_once_and_closes/1,
    echo_reactor_sends_back/1,
    game_reactor_sends_the_state_of_the_world/1,
    relay_carries_both_ways/1
]).

-import(weir_cli_program, [
    start/2, run/2, line/1, later_lines/1, exit_status/1, stop/1, shell/1, kill/2, mentions/2, ancestor/2
]).

-define(TIMEOUT, 10000).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [
        help_names_every_command,
        help_of_run_names_examples_and_options,
        help_and_a_command_is_the_commands_help,
        every_command_refuses_an_unknown_option,
        version_names_weir_and_otp,
        a_wrong_argument_is_one_line_and_exit_code_2,
        a_tree_that_is_not_built_says_so,
        it_runs_through_a_symbolic_link,
        emulator_flags_come_from_the_environment,
        a_signal_stops_it_with_exit_code_0,
        it_outlives_a_hangup_that_its_parent_ignores,
        a_signal_while_it_boots_stops_it,
        the_emulator_dies_with_its_shell,
        scenarios_are_listed,
        programs_die_with_the_measurer,
        {group, inet},
        {group, socket},
        {group, weir}
    ].

groups() ->
    Serving = [
        a_port_in_use_is_one_line_and_exit_code_1,
        echo_sends_back_in_every_mode,
        proxy_carries_both_ways_in_every_mode,
        proxy_closes_the_client_when_the_backend_closes,
        proxy_closes_the_client_when_there_is_no_backend,
        ehttpd_answers_in_every_mode,
        ehttpd_refuses_an_endless_head,
        accept_answers_once_and_closes,
        game_sends_the_state_of_the_world,
        echo_sends_back_packets_in_every_mode,
        tls_echo_sends_back_in_every_mode,
        tls_echo_outlives_a_client_that_speaks_no_tls,
        file_httpd_answers_with_the_file,
        discard_takes_all_in_every_mode,
        chargen_sends_until_the_client_goes,
        fanout_tells_everybody,
        cowboy_hello_answers_or_says_that_cowboy_is_missing,
        simple_servers_answer_each_request,
        ranch_servers_answer_or_say_that_ranch_is_missing
    ],
    OfWeir = [
        echo_listener_sends_back,
        accept_listener_answers_once_and_closes,
        echo_reactor_sends_back,
        game_reactor_sends_the_state_of_the_world,
        relay_carries_both_ways,
        relay_lets_in_whom_it_knows
    ],
    [{inet, [], Serving}, {socket, [], Serving}, {weir, [], Serving ++ OfWeir}].

init_per_suite(Config) ->
    weir_cli_program:find(Config).

end_per_suite(_Config) ->
    ok.

init_per_group(Backend, Config) ->
    [{backend, Backend} | Config].

end_per_group(_Backend, _Config) ->
    ok.

%% Commands

help_names_every_command(Config) ->
    {0, Lines} = run(Config, ["--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["run", "serve", "demo", "bench", "--version"]],
    {2, [Line]} = run(Config, []),
    ?assert(mentions("--help", [Line])).

help_of_run_names_examples_and_options(Config) ->
    {0, Lines} = run(Config, ["run", "--help"]),
    Examples = [
        "echo", "proxy", "ehttpd", "accept", "game", "tls_echo", "file_httpd", "discard", "chargen", "cowboy_hello",
        "fanout_processes", "fanout", "echo_listener", "accept_listener", "echo_reactor", "game_reactor", "relay",
        "ranch_echo", "ranch_simple", "simple", "simple_readers", "simple_responders"
    ],
    Options = [
        "--port", "--backend", "--active", "--packet", "--file", "--to", "--schedulers", "--ip", "--size",
        "--per-second", "--sndbuf", "--acceptors", "--sleep"
    ],
    [?assert(mentions(Word, Lines)) || Word <- Examples ++ Options],
    [{0, [_ | _]} = run(Config, [Command, "--help"]) || Command <- ["demo", "bench"]].

help_and_a_command_is_the_commands_help(Config) ->
    [
        ?assertEqual({Command, run(Config, Command ++ ["--help"])}, {Command, run(Config, ["help" | Command])})
     || Command <- [["run"], ["serve"], ["exec"], ["load"], ["load", "echo"], ["load", "compare"], ["demo"], ["bench"]]
    ],
    ?assertEqual(run(Config, ["--help"]), run(Config, ["help"])).

every_command_refuses_an_unknown_option(Config) ->
    [
        begin
            {Status, Lines} = run(Config, Command ++ ["--frob"]),
            ?assertMatch({Command, 2, [<<"weir: ", _/binary>>]}, {Command, Status, Lines}),
            ?assert(mentions("--frob", Lines))
        end
     || Command <- [
            [], ["help"], ["--version"], ["run"], ["run", "echo"], ["serve"], ["exec"], ["load"], ["load", "echo", "127.0.0.1:1"],
            ["load", "compare"], ["demo"], ["bench"]
        ]
    ].

version_names_weir_and_otp(Config) ->
    {0, [Line]} = run(Config, ["--version"]),
    ?assert(mentions("OTP " ++ erlang:system_info(otp_release), [Line])).

a_wrong_argument_is_one_line_and_exit_code_2(Config) ->
    [
        begin
            {Status, Lines} = run(Config, string:lexemes(Arguments, " ")),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {"frob", "frob"},
            {"--frob", "--frob"},
            {"run", "example"},
            {"run frob", "frob"},
            {"run echo more", "more"},
            {"run echo --port 65536", "65536"},
            {"run echo --backend quic", "quic"},
            {"run echo --active 0", "--active 0"},
            {"run echo --schedulers 1025", "1025"},
            {"run echo --ip localhost", "localhost"},
            {"run proxy", "--to"},
            {"run proxy --to nowhere", "nowhere"},
            {"run relay", "--to"},
            {"run relay --to 127.0.0.1:1 --backend inet", "--backend inet"},
            {"run echo --to 127.0.0.1:1", "--to"},
            {"run echo --packet 3", "--packet 3"},
            {"run proxy --to 127.0.0.1:1 --packet 4", "--packet is for echo"},
            {"run file_httpd", "--file"},
            {"run chargen --active once", "--active"},
            {"run echo_reactor --backend inet", "echo_reactor is Weir's own"},
            {"run relay --to 127.0.0.1:1 --backend socket", "--backend socket"},
            {"run fanout --size 7", "--size 7"},
            {"run fanout --per-second -1", "--per-second -1"},
            {"run echo --size 64", "--size is for fanout_processes, ws_broadcast, sse_broadcast, fanout"},
            {"run echo --sndbuf 0", "--sndbuf 0"},
            {"run echo_listener --active true", "--active is for"},
            {"run accept_listener --active once", "--active is for"},
            {"help frob", "frob"},
            {"--help run", "weir help COMMAND"},
            {"demo now", "now"},
            {"demo --json /no/such/directory/file", "/no/such/directory/file"},
            {"bench --only frob", "frob"},
            {"bench --repeat 0", "--repeat 0"},
            {"bench frob", "frob"},
            {"bench document", "RESULTS"},
            {"bench page", "RESULTS"},
            {"run echo --sleep 20", "--sleep is for ranch_simple, simple"},
            {"run simple --acceptors 0", "--acceptors 0"}
        ]
    ].

a_tree_that_is_not_built_says_so(Config) ->
    Nowhere = ?config(priv_dir, Config),
    {1, [Line]} = run([{environment, [{"REBAR_BASE_DIR", Nowhere}]} | Config], ["--help"]),
    ?assert(mentions("make build", [Line])).

it_runs_through_a_symbolic_link(Config) ->
    Link = filename:join(?config(priv_dir, Config), "a link"),
    ok = file:make_symlink(?config(weir, Config), Link),
    {0, [_]} = run([{weir, Link} | Config], ["--version"]).

emulator_flags_come_from_the_environment(Config) ->
    Environment = [{"ERL_FLAGS", "+S 3:3"} | ?config(environment, Config)],
    Program = serve([{environment, Environment} | Config], echo, ["--backend", "inet"]),
    {ok, CommandLine} = file:read_file(proc(pid(Program), "cmdline")),
    ?assertNotEqual(nomatch, binary:match(CommandLine, <<0, "3:3", 0>>)),
    0 = stop(Program).

a_signal_stops_it_with_exit_code_0(Config) ->
    [
        begin
            #{port := Port} = Program = serve(under("--default-signal=HUP", Config), echo, ["--backend", "inet"]),
            {ok, Client} = connect(Port),
            kill(Signal, shell(Program)),
            ?assertEqual({Signal, 0, []}, {Signal, exit_status(Program), later_lines(Program)}),
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?TIMEOUT)),
            ?assertEqual({error, econnrefused}, connect(Port))
        end
     || Signal <- ["TERM", "INT", "HUP"]
    ].

%% As `nohup bin/weir run echo' does.
it_outlives_a_hangup_that_its_parent_ignores(Config) ->
    #{port := Port} = Program = serve(under("--ignore-signal=HUP", Config), echo, ["--backend", "inet"]),
    kill("HUP", shell(Program)),
    kill("HUP", binary_to_list(pid(Program))),
    {ok, Client} = connect(Port),
    exchange(Client, <<"still there">>),
    0 = stop(Program).

%% Whether these tests themselves were started with SIGHUP ignored (`nohup make test') must not matter.
under(Disposition, Config) ->
    [{disposition, Disposition} | Config].

%% When it begins the emulator has no handler yet.
a_signal_while_it_boots_stops_it(Config) ->
    [
        begin
            Program = start(Config, ["run", "echo", "--backend", "inet"]),
            timer:sleep(Delay),
            kill("TERM", shell(Program)),
            _ = exit_status(Program)
        end
     || Delay <- [20, 60, 100, 150]
    ].

the_emulator_dies_with_its_shell(Config) ->
    case os:find_executable("setpriv") of
        false ->
            {skip, "without setpriv the emulator stays"};
        _ ->
            Program = serve(Config, echo, ["--backend", "inet"]),
            kill("KILL", shell(Program)),
            gone(pid(Program))
    end.

scenarios_are_listed(Config) ->
    {0, Lines} = run(Config, ["bench", "--list"]),
    Names = [
        "echo-10000", "busy", "ehttpd-100", "accept", "game", "idle", "packet-4", "packet-line", "tls-100",
        "random-10000", "cowboy-100", "cowboy-1000", "sendfile", "download", "upload", "listener-1000", "relay-500",
        "relay-bulk", "broadcast-1000", "broadcast-slow", "idle-100000", "schedulers", "fast-connect", "fast-receive",
        "fanout-delay", "seed-acceptors", "seed-active-500mbit", "quick"
    ],
    [?assert(mentions(Name, Lines)) || Name <- Names].

programs_die_with_the_measurer(Config) ->
    Leash = filename:join([ancestor(?config(weir, Config), 2), "bench", "leash"]),
    Port = open_port({spawn_executable, Leash}, [{args, ["sleep", "600"]}, {line, 1000}, binary]),
    Pid = receive {Port, {data, {eol, <<"pid ", Number/binary>>}}} -> Number after ?TIMEOUT -> error(no_pid) end,
    ?assert(filelib:is_regular(proc(Pid, "status"))),
    true = port_close(Port),
    gone(Pid).

%% Examples, by backend

a_port_in_use_is_one_line_and_exit_code_1(Config) ->
    #{port := Port} = Program = serve(Config, echo, []),
    {1, [Line]} = run(Config, ["run", "echo", "--port", integer_to_list(Port) | backend(Config)]),
    ?assert(mentions("address already in use", [Line])),
    0 = stop(Program).

echo_sends_back_in_every_mode(Config) ->
    in_every_mode(Config, echo, [], fun(Socket) ->
        [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]]
    end).

proxy_carries_both_ways_in_every_mode(Config) ->
    #{port := Backend} = Echo = serve(Config, echo, []),
    in_every_mode(Config, proxy, to(Backend), fun(Socket) ->
        [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]]
    end),
    0 = stop(Echo).

proxy_closes_the_client_when_the_backend_closes(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Backend} = inet:port(Listen),
    [
        begin
            #{port := Port} = Proxy = serve(Config, proxy, ["--active", Mode | to(Backend)]),
            {ok, Client} = connect(Port),
            {ok, Behind} = gen_tcp:accept(Listen, ?TIMEOUT),
            ok = gen_tcp:send(Behind, <<"last words">>),
            ok = gen_tcp:close(Behind),
            ?assertEqual({ok, <<"last words">>}, gen_tcp:recv(Client, 10, ?TIMEOUT)),
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?TIMEOUT)),
            0 = stop(Proxy)
        end
     || Mode <- ["once", "false"]
    ].

proxy_closes_the_client_when_there_is_no_backend(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Nobody} = inet:port(Listen),
    ok = gen_tcp:close(Listen),
    #{port := Port} = Proxy = serve(Config, proxy, to(Nobody)),
    {ok, Client} = connect(Port),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?TIMEOUT)),
    0 = stop(Proxy).

relay_carries_both_ways(Config) ->
    #{port := Backend} = Echo = serve(Config, echo, []),
    #{port := Port} = Relay = serve(Config, relay, to(Backend)),
    {ok, Client} = connect(Port),
    [exchange(Client, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]],
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?TIMEOUT)),
    0 = stop(Relay),
    0 = stop(Echo).

%% The step before the relay is a fun, so that the example is started here.
relay_lets_in_whom_it_knows(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listen} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Backend} = inet:port(Listen),
    {ok, #{port := Port, stop := Stop}} = weir_example_relay:start(#{
        to => {{127, 0, 0, 1}, Backend},
        listen => [{tcp_module, weir_tcp}],
        connect => [{tcp_module, weir_tcp}],
        authenticate => fun(Line) -> Line =:= <<"open sesame">> end
    }),
    {ok, Stranger} = connect(Port),
    ok = gen_tcp:send(Stranger, <<"hello\r\nhello">>),
    ?assertEqual({ok, <<"denied\n">>}, gen_tcp:recv(Stranger, 7, ?TIMEOUT)),
    ?assertMatch({error, _}, gen_tcp:recv(Stranger, 0, ?TIMEOUT)),
    {ok, Friend} = connect(Port),
    ok = gen_tcp:send(Friend, <<"open sesame\r\nand the first request">>),
    ?assertEqual({ok, <<"ok\n">>}, gen_tcp:recv(Friend, 3, ?TIMEOUT)),
    {ok, Behind} = gen_tcp:accept(Listen, ?TIMEOUT),
    ?assertEqual({ok, <<"and the first request">>}, gen_tcp:recv(Behind, 21, ?TIMEOUT)),
    ok = gen_tcp:send(Behind, <<"reply">>),
    ?assertEqual({ok, <<"reply">>}, gen_tcp:recv(Friend, 5, ?TIMEOUT)),
    [ok = gen_tcp:close(Socket) || Socket <- [Friend, Behind, Listen]],
    ok = Stop().

ehttpd_answers_in_every_mode(Config) ->
    Request = <<"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n">>,
    <<Half:20/binary, OtherHalf/binary>> = Request,
    in_every_mode(Config, ehttpd, [], fun(Socket) ->
        ok = gen_tcp:send(Socket, Request),
        hello(Socket),
        ok = gen_tcp:send(Socket, Half),
        timer:sleep(50),
        ok = gen_tcp:send(Socket, OtherHalf),
        hello(Socket),
        ok = gen_tcp:send(Socket, [Request, Request, Half]),
        hello(Socket),
        hello(Socket),
        ok = gen_tcp:send(Socket, OtherHalf),
        hello(Socket)
    end).

ehttpd_refuses_an_endless_head(Config) ->
    #{port := Port} = Program = serve(Config, ehttpd, []),
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, ["GET / HTTP/1.1\r\n", lists:duplicate(9000, $x)]),
    ?assertMatch({ok, <<"HTTP/1.1 431 ">>}, gen_tcp:recv(Socket, 13, ?TIMEOUT)),
    0 = stop(Program).

accept_answers_once_and_closes(Config) ->
    [
        begin
            #{port := Port} = Program = serve(Config, accept, ["--active", Mode]),
            [
                begin
                    {ok, Socket} = connect(Port),
                    ok = gen_tcp:send(Socket, <<"hello">>),
                    ?assertEqual({ok, <<"ok">>}, gen_tcp:recv(Socket, 2, ?TIMEOUT)),
                    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, ?TIMEOUT))
                end
             || _ <- lists:seq(1, 20)
            ],
            0 = stop(Program)
        end
     || Mode <- ["false", "once"]
    ].

game_sends_the_state_of_the_world(Config) ->
    in_every_mode(Config, game, [], fun(Socket) ->
        [
            begin
                {ok, <<_:512/binary>>} = gen_tcp:recv(Socket, 512, ?TIMEOUT),
                ok = gen_tcp:send(Socket, <<"an answer">>)
            end
         || _ <- lists:seq(1, 3)
        ]
    end).

%% What comes back is whole packets, however the client has cut them.
echo_sends_back_packets_in_every_mode(Config) ->
    [
        in_every_mode(Config, echo, ["--packet", Type], fun(Socket) ->
            [
                begin
                    <<Half:(byte_size(Packet) div 2)/binary, OtherHalf/binary>> = Packet,
                    ok = gen_tcp:send(Socket, Half),
                    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 100)),
                    ok = gen_tcp:send(Socket, [OtherHalf, Packet, Half]),
                    ?assertEqual({ok, <<Packet/binary, Packet/binary>>}, gen_tcp:recv(Socket, 2 * byte_size(Packet))),
                    ok = gen_tcp:send(Socket, OtherHalf),
                    ?assertEqual({ok, Packet}, gen_tcp:recv(Socket, byte_size(Packet)))
                end
             || Packet <- Packets
            ]
        end)
     || {Type, Packets} <- [
            {"4", [<<9:32, "\na packet">>, <<64:32, (rand:bytes(64))/binary>>, <<0:32>>]},
            {"line", [<<"one line of some\n">>, <<0, 0, 0, 1, "line\n">>]}
        ]
    ].

tls_echo_sends_back_in_every_mode(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    in_every_mode(Config, tls_echo, [], fun(Socket) ->
        {ok, Secure} = ssl:connect(Socket, [{verify, verify_none}], ?TIMEOUT),
        {ok, [{protocol, 'tlsv1.3'}]} = ssl:connection_information(Secure, [protocol]),
        [
            begin
                Data = rand:bytes(Size),
                ok = ssl:send(Secure, Data),
                ?assertEqual({ok, Data}, ssl:recv(Secure, Size, ?TIMEOUT))
            end
         || Size <- [1, 64, 3, 100000, 1]
        ]
    end).

tls_echo_outlives_a_client_that_speaks_no_tls(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    #{port := Port} = Program = serve(Config, tls_echo, []),
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\n\r\n">>),
    closed(Socket),
    {ok, Secure} = ssl:connect({127, 0, 0, 1}, Port, [{verify, verify_none}], ?TIMEOUT),
    ok = ssl:close(Secure),
    0 = stop(Program).

%% It may have an alert to send first.
closed(Socket) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, _} -> closed(Socket);
        {error, Reason} -> ?assertEqual(closed, Reason)
    end.

file_httpd_answers_with_the_file(Config) ->
    File = filename:join(?config(priv_dir, Config), "a file"),
    %% More than the buffers of two sockets take at once.
    Content = rand:bytes(8000000),
    ok = file:write_file(File, Content),
    #{port := Port} = Program = serve(Config, file_httpd, ["--file", File]),
    {ok, Socket} = connect(Port),
    [
        begin
            ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n">>),
            Head = <<"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n">>,
            ?assertEqual({ok, Head}, gen_tcp:recv(Socket, byte_size(Head), ?TIMEOUT)),
            {ok, Received} = gen_tcp:recv(Socket, byte_size(Content), ?TIMEOUT),
            ?assert(Received =:= Content)
        end
     || _ <- [1, 2, 3]
    ],
    ok = gen_tcp:send(Socket, <<"rubbish\r\n\r\n">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, ?TIMEOUT)),
    0 = stop(Program),
    {1, [Line]} = run(Config, ["run", "file_httpd", "--file", "/no/such file" | backend(Config)]),
    ?assert(mentions("/no/such file", [Line])).

discard_takes_all_in_every_mode(Config) ->
    in_every_mode(Config, discard, [], fun(Socket) ->
        ok = gen_tcp:send(Socket, binary:copy(<<"d">>, 3000000)),
        ok = gen_tcp:shutdown(Socket, write),
        ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, ?TIMEOUT))
    end).

chargen_sends_until_the_client_goes(Config) ->
    #{port := Port} = Program = serve(Config, chargen, []),
    {ok, Stuck} = connect(Port),
    [
        begin
            {ok, Socket} = connect(Port),
            {ok, Received} = gen_tcp:recv(Socket, 3000000, ?TIMEOUT),
            ?assert(Received =:= binary:copy(<<"c">>, 3000000)),
            ok = gen_tcp:close(Socket)
        end
     || _ <- [1, 2]
    ],
    %% The emulator does not halt before ports have sent what they hold.
    ok = gen_tcp:close(Stuck),
    0 = stop(Program).

cowboy_hello_answers_or_says_that_cowboy_is_missing(Config) ->
    case {code:where_is_file("cowboy.app"), ?config(backend, Config)} of
        {non_existing, _} ->
            {1, [Line]} = run(Config, ["run", "cowboy_hello" | backend(Config)]),
            ?assert(mentions("cowboy, which is not installed", [Line]));
        {_, socket} ->
            {skip, "ranch puts options before the one that chooses this backend"};
        _ ->
            #{port := Port} = Program = serve(Config, cowboy_hello, []),
            {ok, Socket} = connect(Port),
            [
                begin
                    ok = gen_tcp:send(Socket, <<"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n">>),
                    {ok, Response} = gen_tcp:recv(Socket, 0, ?TIMEOUT),
                    ?assertMatch(<<"HTTP/1.1 200 OK\r\n", _/binary>>, Response),
                    ?assertMatch({_, 12}, binary:match(Response, <<"Hello world!">>))
                end
             || _ <- lists:seq(1, 3)
            ],
            0 = stop(Program)
    end.

simple_servers_answer_each_request(Config) ->
    [
        answers_each_request(Config, Example, Options, fun(_Request) -> <<"ok">> end)
     || {Example, Options} <- [
            {simple, []}, {simple, ["--acceptors", "3", "--sleep", "20"]}, {simple_readers, []}, {simple_responders, []}
        ]
    ].

ranch_servers_answer_or_say_that_ranch_is_missing(Config) ->
    case {code:where_is_file("ranch.app"), ?config(backend, Config)} of
        {non_existing, _} ->
            [
                begin
                    {1, [Line]} = run(Config, ["run", Example | backend(Config)]),
                    ?assert(mentions("ranch, which is not installed", [Line]))
                end
             || Example <- ["ranch_echo", "ranch_simple"]
            ];
        {_, socket} ->
            {skip, "ranch puts options before the one that chooses this backend"};
        _ ->
            Ok = fun(_Request) -> <<"ok">> end,
            answers_each_request(Config, ranch_simple, [], Ok),
            answers_each_request(Config, ranch_simple, ["--acceptors", "2", "--sleep", "20"], Ok),
            [
                answers_each_request(Config, ranch_echo, ["--active", Mode], fun(Request) -> Request end)
             || Mode <- ["once", "true", "2", "false"]
            ]
    end.

answers_each_request(Config, Example, Options, Answer) ->
    #{port := Port} = Program = serve(Config, Example, Options),
    Sockets = [Socket || _ <- [1, 2, 3], {ok, Socket} <- [connect(Port)]],
    [
        begin
            ok = gen_tcp:send(Socket, Request),
            Expected = Answer(Request),
            ?assertEqual({Example, {ok, Expected}}, {Example, gen_tcp:recv(Socket, byte_size(Expected), ?TIMEOUT)})
        end
     || Request <- [<<"one">>, <<"two">>, <<"three">>], Socket <- Sockets
    ],
    0 = stop(Program).

%% A server for each, all of them at the same time.
in_every_mode(Config, Example, Options, Client) ->
    Serve = fun(Mode) ->
        #{port := Port} = Program = serve(Config, Example, ["--active", Mode | Options]),
        Sockets = [Socket || _ <- [1, 2], {ok, Socket} <- [connect(Port)]],
        [_, _] = [Client(Socket) || Socket <- Sockets],
        0 = stop(Program),
        exit({shutdown, served})
    end,
    Modes = [{Mode, spawn_monitor(fun() -> Serve(Mode) end)} || Mode <- ["once", "true", "2", "false"]],
    [
        receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({Mode, {shutdown, served}}, {Mode, Reason}) end
     || {Mode, {Pid, Monitor}} <- Modes
    ].

%% Each message begins with the time of its broadcast.
fanout_tells_everybody(Config) ->
    [
        begin
            #{port := Port} = Program = serve(Config, Example, ["--size", "20", "--per-second", "50"]),
            Members = [begin {ok, Member} = connect(Port), Member end || _ <- [1, 2, 3]],
            [
                begin
                    Times = [
                        begin
                            {ok, <<Time:64, _:12/binary>>} = gen_tcp:recv(Member, 20, ?TIMEOUT),
                            Time
                        end
                     || _ <- lists:seq(1, 5)
                    ],
                    ?assertEqual(lists:usort(Times), Times)
                end
             || Member <- Members
            ],
            0 = stop(Program)
        end
     || Example <- [fanout_processes, fanout]
    ].

%% What only Weir has

echo_listener_sends_back(Config) ->
    #{port := Port} = Program = serve(Config, echo_listener, []),
    {ok, Socket} = connect(Port),
    [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1]],
    0 = stop(Program).

accept_listener_answers_once_and_closes(Config) ->
    #{port := Port} = Program = serve(Config, accept_listener, []),
    [
        begin
            {ok, Socket} = connect(Port),
            ok = gen_tcp:send(Socket, <<"a request">>),
            ?assertEqual({ok, <<"ok">>}, gen_tcp:recv(Socket, 2, ?TIMEOUT)),
            ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, ?TIMEOUT))
        end
     || _ <- lists:seq(1, 20)
    ],
    0 = stop(Program).

echo_reactor_sends_back(Config) ->
    #{port := Port} = Program = serve(Config, echo_reactor, []),
    Sockets = [begin {ok, Socket} = connect(Port), Socket end || _ <- lists:seq(1, 20)],
    [exchange(Socket, rand:bytes(Size)) || Size <- [1, 64, 3, 100000, 1], Socket <- Sockets],
    0 = stop(Program).

game_reactor_sends_the_state_of_the_world(Config) ->
    #{port := Port} = Program = serve(Config, game_reactor, []),
    {ok, Socket} = connect(Port),
    [
        begin
            {ok, <<_:512/binary>>} = gen_tcp:recv(Socket, 512, ?TIMEOUT),
            ok = gen_tcp:send(Socket, <<"an answer">>)
        end
     || _ <- lists:seq(1, 3)
    ],
    0 = stop(Program).

exchange(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    ?assertEqual({ok, Data}, gen_tcp:recv(Socket, byte_size(Data), ?TIMEOUT)).

hello(Socket) ->
    Answer = <<"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\nhello world!">>,
    ?assertEqual({ok, Answer}, gen_tcp:recv(Socket, byte_size(Answer), ?TIMEOUT)).

connect(Port) ->
    gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?TIMEOUT).

to(Port) ->
    ["--to", "127.0.0.1:" ++ integer_to_list(Port)].

backend(Config) ->
    case ?config(backend, Config) of
        undefined -> [];
        Backend -> ["--backend", atom_to_list(Backend)]
    end.

%% Programs

serve(Config, Example, Options) ->
    Program = start(Config, ["run", atom_to_list(Example)] ++ backend(Config) ++ Options),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", Pid/binary>> = line(Program),
    Program#{port => binary_to_integer(Port), pid => Pid}.

pid(#{pid := Pid}) ->
    Pid.

gone(Pid) ->
    gone(Pid, 100).

gone(Pid, 0) ->
    ct:fail({still_running, Pid});
gone(Pid, Tries) ->
    case file:read_file(proc(Pid, "status")) of
        {error, enoent} -> ok;
        {error, esrch} -> ok;
        {ok, _} -> timer:sleep(50), gone(Pid, Tries - 1)
    end.

proc(Pid, File) ->
    filename:join(["/proc", binary_to_list(Pid), File]).
