%% Runs bin/weir proxy as a user would.
-module(weir_cli_proxy_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([help_says_how/1, a_wrong_argument_is_one_line/1, a_file_is_checked/1, an_address_in_use/1]).
-export([one_route_balances_until_a_signal/1, connections_end_with_the_drain/1, a_changed_file_is_taken/1]).
-export([who_reads_no_more_ends_nothing/1, names_of_any_letters/1]).
-export([commands_show_and_change/1, wrong_commands_say_why/1, a_new_version_takes_over/1, another_user/1]).

-import(weir_cli_program, [
    start/2, run/2, answer/1, line/1, exit_status/1, later_lines/1, shell/1, kill/2, mentions/2
]).
-import(weir_test_wait, [wait_until/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        help_says_how,
        a_wrong_argument_is_one_line,
        a_file_is_checked,
        an_address_in_use,
        one_route_balances_until_a_signal,
        connections_end_with_the_drain,
        a_changed_file_is_taken,
        who_reads_no_more_ends_nothing,
        names_of_any_letters,
        commands_show_and_change,
        wrong_commands_say_why,
        a_new_version_takes_over,
        another_user
    ].

init_per_suite(Config) -> weir_cli_program:find(Config).

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> [{servers, [server(Name) || Name <- ["a", "b"]]} | Config].

end_per_testcase(_Case, Config) ->
    [exit(Pid, kill) || {Pid, _} <- proplists:get_value(servers, Config)],
    ok.

help_says_how(_Config) ->
    {0, Lines} = answer(["proxy", "--help"]),
    [
        ?assert(mentions(Word, Lines))
     || Word <- ["weir proxy", "--listen", "--to", "--config", "--check", "set-weight BACKEND SERVER WEIGHT"]
    ],
    %% The effects of signals.
    [
        ?assert(mentions(Sentence, Lines))
     || Sentence <- [
            "SIGTERM, SIGINT: new clients are refused", "after --drain seconds", "SIGHUP: it reads its file again"
        ]
    ].

a_wrong_argument_is_one_line(_Config) ->
    [
        begin
            {Status, Lines} = answer(["proxy" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {[], "--config FILE, or --listen"},
            {["--listen", ":0"], "--to"},
            {["more"], "more"},
            {["--listen", ":0", "--to", ":1", "--balance", "best"], "best"},
            {["--config", "a", "--to", ":1"], "--to"},
            {["status"], "--control"},
            {["--config", "a", "--control", "b"], "--control"},
            {["--config", "a", "--balance", "hash"], "--balance"},
            {["--listen", ":0", "--to", ":1", "--check"], "--check"},
            {["--check"], "--check"},
            {["--listen", ":0", "--to", ","], "--to"}
        ]
    ].

%% The error names the key, its line, its value and what is allowed. Nothing is served.
a_file_is_checked(Config) ->
    Check = fun(Text) -> run(Config, ["proxy", "--config", file(Config, Text), "--check"]) end,
    {0, [Right]} = Check(text(Config, "")),
    ?assertMatch({_, _}, binary:match(Right, <<"proxy.toml is valid">>)),
    [
        begin
            {1, [Fault]} = Check(Text),
            ?assertMatch({_, _}, binary:match(Fault, iolist_to_binary(["weir: ", path(Config), $:, Said])))
        end
     || {Text, Said} <- [
            {text(Config, "retries = -1\n"), "7: backends.web.retries is -1; allowed: a number from 0 to 100"},
            {
                text(Config, "send_proxi = 'v1'\n"),
                "7: backends.web.send_proxi is \"v1\"; allowed: unknown option; valid: servers, "
            },
            {
                text(Config, "[backends.web.health]\nkind = 'gopher'\n"),
                "8: backends.web.health.kind is \"gopher\"; allowed: "
            },
            {"[frontends.a]\nlisten = 'x:1'\n[backends]\n",
                "2: frontends.a.listen is \"x:1\"; allowed: an address of this machine"},
            {"[frontends.a]\nlisten = ':1'\nbackend = 'w'\n[backends]\n", "3: frontends.a.backend is \"w\"; allowed: "},
            {"[frontends\n", "1: "}
        ]
    ],
    ?assertMatch({1, [_]}, run(Config, ["proxy", "--config", path(Config) ++ ".none", "--check"])).

an_address_in_use(Config) ->
    {_, Port} = hd(proplists:get_value(servers, Config)),
    Address = "127.0.0.1:" ++ integer_to_list(Port),
    ?assertEqual(
        {1, [iolist_to_binary(["weir: cannot listen on ", Address, ": address already in use"])]},
        run(Config, ["proxy", "--listen", Address, "--to", ":1"])
    ).

%% After the signal it serves existing connections until they end, and no new ones.
one_route_balances_until_a_signal(Config) ->
    Unix = socket_path("listen"),
    Program = start(Config, ["proxy", "--listen", "127.0.0.1:0,unix:" ++ Unix, "--to", to(Config)]),
    [<<"ready">>, First, Second] = binary:split(line(Program), <<" ">>, [global]),
    <<"pid ", _/binary>> = line(Program),
    [Port] = [binary_to_integer(Word) || Word <- [First, Second], Word =/= list_to_binary(Unix)],
    ?assertEqual(["a", "a", "b", "b"], lists:sort([asked(Port) || _ <- lists:seq(1, 4)])),
    Old = connect({local, Unix}, 0),
    _ = name(Old),
    _ = kill("TERM", shell(Program)),
    wait_until(fun() -> is_refused(Port) end),
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ok = gen_tcp:close(Old),
    ?assertEqual(0, exit_status(Program)),
    ?assertEqual([], later_lines(Program)).

connections_end_with_the_drain(Config) ->
    Program = start(Config, ["proxy", "--listen", "127.0.0.1:0", "--to", to(Config), "--drain", "1"]),
    Socket = connect(ready(Program)),
    _ = name(Socket),
    _ = kill("TERM", shell(Program)),
    ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())),
    ?assertEqual(0, exit_status(Program)),
    ?assert(mentions("closed 1 connections that were still open", later_lines(Program))).

%% The signal goes to the process that the user has started: the shell.
a_changed_file_is_taken(Config) ->
    File = file(Config, text(Config, "")),
    [_, {_, B}] = proplists:get_value(servers, Config),
    Program = start(Config, ["proxy", "--config", File]),
    Port = ready(Program),
    <<"pid ", _/binary>> = line(Program),
    Old = connect(Port),
    ?assertEqual("a", name(Old)),
    File = file(Config, text([B], "")),
    _ = kill("HUP", shell(Program)),
    ?assertEqual(<<"reloaded">>, line(Program)),
    ?assertEqual(["b", "b"], [asked(Port) || _ <- [1, 2]]),
    File = file(Config, text([B], "retries = 1000\n")),
    _ = kill("HUP", shell(Program)),
    ?assertMatch({_, _}, binary:match(line(Program), <<"proxy.toml:7: backends.web.retries is 1000; allowed: ">>)),
    ?assertEqual(<<"weir: the configuration is unchanged">>, line(Program)),
    ?assertEqual("b", asked(Port)),
    ?assertEqual(<<"kept">>, echo(Old, <<"kept">>)),
    ok = gen_tcp:close(Old),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

%% As behind `| head'. Standard error stays open: if both are closed, OTP 27 and later end the emulator.
who_reads_no_more_ends_nothing(Config) ->
    [{_, A}, {_, B}] = proplists:get_value(servers, Config),
    File = file(Config, text([A], "")),
    Quiet = lists:keystore(weir, 1, Config, {weir, os:find_executable("sh")}),
    Arguments = ["-c", "exec \"$0\" \"$@\" 2>/dev/null", proplists:get_value(weir, Config), "proxy", "--config", File],
    #{program := Reader} = Program = start(Quiet, Arguments),
    Port = ready(Program),
    <<"pid ", Pid/binary>> = line(Program),
    Shell = shell(Program),
    true = port_close(Reader),
    Reload = fun() -> kill("HUP", binary_to_list(Pid)) end,
    Old = connect(Port),
    ?assertEqual("a", name(Old)),
    [
        begin
            File = file(Config, Text),
            _ = Reload(),
            wait_until(fun() -> asked(Port) =:= Name end)
        end
     || {Text, Name} <- [{text([B], ""), "b"}, {text([A], ""), "a"}]
    ],
    %% An error in the file cannot be printed either.
    File = file(Config, text([B], "retries = 1000\n")),
    _ = Reload(),
    File = file(Config, text([B], "")),
    _ = Reload(),
    wait_until(fun() -> asked(Port) =:= "b" end),
    ?assertEqual(<<"kept">>, echo(Old, <<"kept">>)),
    ok = gen_tcp:close(Old),
    _ = kill("TERM", Shell),
    wait_until(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, []) =:= {error, econnrefused} end).

names_of_any_letters(Config) ->
    Control = socket_path("control"),
    Server = first(Config),
    Text = [
        "control = '",
        Control,
        "'\n[frontends.front]\nlisten = '127.0.0.1:0'\nbackend = 'my web'\n[backends.'my web']\n",
        "servers = [{ address = '",
        Server,
        "', name = 'one two' }, { address = '",
        Server,
        "', name = 'größe €' }]\n"
    ],
    Program = start(Config, ["proxy", "--config", file(Config, unicode:characters_to_binary(Text))]),
    _ = ready(Program),
    Ask = fun(Words) -> run(Config, ["proxy" | Words] ++ ["--control", Control]) end,
    ?assertEqual({0, []}, Ask(["drain", "my web", "one two"])),
    ?assertEqual({0, []}, Ask(["set-weight", "my web", "größe €", "0"])),
    ?assertMatch({1, [<<"weir: no such server: €"/utf8>>]}, Ask(["drain", "my web", "€"])),
    {0, [_ | Servers]} = Ask(["servers"]),
    ?assert(mentions("one two  drain", [re:replace(Line, "  +", "  ", [global, {return, binary}]) || Line <- Servers])),
    %% Without the program, as a person or a script does.
    {ok, Socket} = gen_tcp:connect({local, Control}, 0, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"status \xff\n">>),
    {ok, Answer} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    ?assertMatch({ok, #{<<"error">> := _}}, weir_json:decode(Answer)),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

commands_show_and_change(Config) ->
    [{_, A}, {_, B}] = proplists:get_value(servers, Config),
    [NameA, NameB] = ["127.0.0.1:" ++ integer_to_list(Port) || Port <- [A, B]],
    Control = socket_path("control"),
    Ask = fun(Words) -> run(Config, ["proxy" | Words] ++ ["--control", Control]) end,
    Names = fun(Port) -> lists:usort([asked(Port) || _ <- lists:seq(1, 6)]) end,
    Program = start(Config, ["proxy", "--listen", "127.0.0.1:0", "--to", to(Config), "--control", Control]),
    Port = ready(Program),
    {Old, Other} = two(Port),
    ok = gen_tcp:close(Other),
    {0, [Header, Session]} = Ask(["sessions"]),
    ?assertMatch([<<"client">>, <<"frontend">>, <<"backend">>, <<"server">> | _], words(Header)),
    ?assertMatch([_, <<"main">>, <<"main">>, _ | _], words(Session)),
    ?assert(mentions(NameA, [Session])),

    ?assertEqual({0, []}, Ask(["drain", "main", NameA])),
    ?assertEqual(["b"], Names(Port)),
    {0, [_ | Servers]} = Ask(["servers"]),
    ?assertEqual(
        lists:sort([[<<"main">>, list_to_binary(NameA), <<"drain">>], [<<"main">>, list_to_binary(NameB), <<"up">>]]),
        lists:sort([lists:sublist(words(Server), 3) || Server <- Servers])
    ),
    ?assertEqual({0, []}, Ask(["enable", "main", NameA])),
    ?assertEqual(["a", "b"], Names(Port)),
    ?assertEqual({0, []}, Ask(["set-weight", "main", NameB, "0"])),
    ?assertEqual(["a"], Names(Port)),
    ?assertEqual({0, []}, Ask(["disable", "main", NameA])),
    ?assertEqual({0, []}, Ask(["set-weight", "main", NameB, "7"])),
    ?assertEqual(["b"], Names(Port)),

    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ?assertEqual({0, [<<"1">>]}, Ask(["close-sessions", "main", NameA])),
    ?assertMatch({error, _}, gen_tcp:recv(Old, 0, weir_test_wait:patience())),

    {0, Status} = Ask(["status"]),
    ?assert(mentions("127.0.0.1:" ++ integer_to_list(Port), Status)),
    {0, Json} = Ask(["status", "--json"]),
    ?assertMatch({match, _}, re:run(Json, "\"weight\": ?7")),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

wrong_commands_say_why(Config) ->
    Control = socket_path("control"),
    Ask = fun(Words) -> run(Config, ["proxy" | Words] ++ ["--control", Control]) end,
    ?assertMatch({1, [_]}, Ask(["status"])),
    Program = start(Config, ["proxy", "--listen", "127.0.0.1:0", "--to", to(Config), "--control", Control]),
    _ = ready(Program),
    [
        begin
            {1, [Fault]} = Ask(Words),
            ?assertMatch({Words, {_, _}}, {Words, binary:match(Fault, Said)})
        end
     || {Words, Said} <- [
            {["drain", "main", "nobody"], <<"no such server: nobody">>},
            {["drain", "nowhere", "nobody"], <<"no such backend: nowhere">>},
            {["close-sessions", "main", "nobody"], <<"no such server: nobody">>},
            {["close-sessions", "nowhere", "nobody"], <<"no such backend: nowhere">>},
            {["set-weight", "main", "nobody", "1"], <<"no such server: nobody">>},
            {["set-weight", "main", "nobody", "x"], <<"0 to 256">>},
            {["set-weight", "main", first(Config), "257"], <<"0 to 256">>},
            {["drain", "main"], <<"drain B S">>},
            {["reload"], <<"not started from a file">>}
        ]
    ],
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

%% The old proxy ends when its connections have ended.
a_new_version_takes_over(Config) ->
    Port = weir_test_port:claim(),
    Arguments = [
        "proxy", "--listen", address(Port), "--to", first(Config), "--control", socket_path("successor"), "--take-over"
    ],
    Before = start(Config, Arguments),
    ?assertEqual(Port, ready(Before)),
    <<"pid ", _/binary>> = line(Before),
    Old = connect(Port),
    "a" = name(Old),
    New = start(Config, Arguments),
    ?assertEqual(Port, ready(New)),
    ?assertEqual(<<"another proxy has taken over">>, line(Before)),
    ?assertEqual(["a", "a"], [asked(Port) || _ <- [1, 2]]),
    ?assertEqual(<<"still">>, echo(Old, <<"still">>)),
    ok = gen_tcp:close(Old),
    ?assertEqual(0, exit_status(Before)),
    ?assertEqual("a", asked(Port)),
    _ = kill("TERM", shell(New)),
    ?assertEqual(0, exit_status(New)),
    ?assertMatch({1, [_]}, run(Config, ["proxy", "--listen", ":0", "--to", first(Config), "--take-over"])).

%% Other users may have no access to the tree, so the user is root itself.
another_user(Config) ->
    Arguments = ["proxy", "--listen", "127.0.0.1:0", "--to", first(Config), "--user"],
    ?assertMatch(
        {2, [<<"weir: --user nobody_of_that_name: no such user">>]}, run(Config, Arguments ++ ["nobody_of_that_name"])
    ),
    ?assertMatch({2, [<<"weir: --user a b: no such user">>]}, run(Config, Arguments ++ ["a b"])),
    case {os:cmd("id -u"), os:find_executable("setpriv")} of
        {"0\n", Path} when Path =/= false ->
            Program = start(Config, Arguments ++ ["root"]),
            Port = ready(Program),
            <<"pid ", Pid/binary>> = line(Program),
            {ok, Status} = file:read_file(["/proc/", binary_to_list(Pid), "/status"]),
            %% Only CAP_NET_BIND_SERVICE, which is bit 10.
            ?assertMatch({_, _}, binary:match(Status, <<"CapBnd:\t0000000000000400">>)),
            ?assertEqual("a", asked(Port)),
            _ = kill("TERM", shell(Program)),
            ?assertEqual(0, exit_status(Program));
        _ ->
            ok
    end.

%%% Shared by the cases.

%% A server that sends its name to each connection, and then echoes.
server(Name) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Pid = spawn(fun() -> receive go -> accept(Listen, Name) end end),
    ok = gen_tcp:controlling_process(Listen, Pid),
    Pid ! go,
    {Pid, Port}.

accept(Listen, Name) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn_link(fun() -> receive go -> _ = gen_tcp:send(Socket, [Name, "\n"]), serve(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Name).

serve(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> _ = gen_tcp:send(Socket, Data), serve(Socket);
        {error, _} -> gen_tcp:close(Socket)
    end.

to(Config) -> lists:flatten(lists:join(",", [address(Port) || {_, Port} <- proplists:get_value(servers, Config)])).

first(Config) -> address(element(2, hd(proplists:get_value(servers, Config)))).

address(Port) -> "127.0.0.1:" ++ integer_to_list(Port).

%% One route to the first server; more options of the backend from line 7 on.
text([Port], More) ->
    [
        "[frontends.front]\nlisten = '127.0.0.1:0'\nbackend = 'web'\n\n[backends.web]\nservers = ['",
        address(Port),
        "']\n",
        More
    ];
text(Config, More) ->
    text([element(2, hd(proplists:get_value(servers, Config)))], More).

path(Config) -> filename:join(proplists:get_value(priv_dir, Config), "proxy.toml").

file(Config, Text) ->
    ok = file:write_file(path(Config), Text),
    path(Config).

%% The path of a unix socket must be short.
socket_path(Name) ->
    Path = lists:concat(["/tmp/weir-proxy-", Name, "-", os:getpid()]),
    _ = file:delete(Path),
    Path.

ready(Program) ->
    <<"ready ", Port/binary>> = line(Program),
    binary_to_integer(Port).

words(Line) -> string:lexemes(Line, " ").

connect(Port) -> connect({127, 0, 0, 1}, Port).

connect(Address, Port) ->
    {ok, Socket} = gen_tcp:connect(Address, Port, [binary, {active, false}], weir_test_wait:patience()),
    Socket.

name(Socket) ->
    {ok, <<Name, "\n">>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
    [Name].

%% A connection to each server.
two(Port) ->
    Sockets = [connect(Port), connect(Port)],
    [{_, A}, {_, B}] = lists:sort([{name(Socket), Socket} || Socket <- Sockets]),
    {A, B}.

is_refused(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {ok, Socket} -> ok =:= gen_tcp:close(Socket) andalso false;
        {error, Reason} -> Reason =:= econnrefused
    end.

%% Returns the name of the server that a new connection gets, and closes it.
asked(Port) ->
    Socket = connect(Port),
    try name(Socket) after gen_tcp:close(Socket) end.

echo(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    {ok, Back} = gen_tcp:recv(Socket, byte_size(Data), weir_test_wait:patience()),
    Back.
