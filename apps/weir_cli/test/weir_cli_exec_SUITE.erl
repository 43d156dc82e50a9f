%% `weir exec': the program that it starts uses Weir's sockets, and otherwise behaves as without it.
-module(weir_cli_exec_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    help_tells_what_it_does/1,
    a_wrong_argument_is_one_line/1,
    a_command_that_is_not_there_is_exit_code_127/1,
    sockets_of_erl_are_of_weir/1,
    arguments_and_exit_status_are_the_commands/1,
    the_command_takes_the_place_of_the_process/1,
    an_escript_runs_on_weir/1,
    a_release_in_embedded_mode_listens_on_weir_while_it_boots/1,
    an_inetrc_of_the_user_is_kept/1,
    an_inetrc_that_cannot_be_read_is_one_line/1,
    a_configured_inetrc_is_told_and_weir_comes_after_the_boot/1,
    flags_in_the_environment_are_kept/1,
    a_bare_family_is_otps/1,
    an_address_of_ipv6_is_weirs/1,
    a_bare_family_is_weirs_with_families/1,
    blanks_and_quotes_in_the_path/1,
    an_application_that_will_not_work_is_named/1,
    reports_are_seen_in_a_plain_node/1,
    nodes_connect/1
]).

-import(weir_cli_program, [start/2, run/2, line/1, exit_status/1, shell/1, kill/2, mentions/2]).

%% Opens a listening socket and prints it.
-define(LISTEN(Options), "{ok, L} = gen_tcp:listen(0, " Options "), io:format(\"~0p~n\", [L]), ").

-define(WEIR, <<"{'$inet',weir_tcp,", _/binary>>).
-define(OTP, <<"#Port<", _/binary>>).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        help_tells_what_it_does,
        a_wrong_argument_is_one_line,
        a_command_that_is_not_there_is_exit_code_127,
        sockets_of_erl_are_of_weir,
        arguments_and_exit_status_are_the_commands,
        the_command_takes_the_place_of_the_process,
        an_escript_runs_on_weir,
        a_release_in_embedded_mode_listens_on_weir_while_it_boots,
        an_inetrc_of_the_user_is_kept,
        an_inetrc_that_cannot_be_read_is_one_line,
        a_configured_inetrc_is_told_and_weir_comes_after_the_boot,
        flags_in_the_environment_are_kept,
        a_bare_family_is_otps,
        an_address_of_ipv6_is_weirs,
        a_bare_family_is_weirs_with_families,
        blanks_and_quotes_in_the_path,
        an_application_that_will_not_work_is_named,
        reports_are_seen_in_a_plain_node,
        nodes_connect
    ].

init_per_suite(Config) ->
    weir_cli_program:find(Config).

end_per_suite(_Config) ->
    ok.

%% Arguments

help_tells_what_it_does(Config) ->
    {0, Lines} = run(Config, ["exec", "--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["COMMAND", "--families", "ERL_AFLAGS", "ERL_INETRC", "RabbitMQ"]],
    {0, Commands} = run(Config, ["--help"]),
    ?assert(mentions("exec COMMAND", Commands)).

a_wrong_argument_is_one_line(Config) ->
    [
        begin
            {Status, Lines} = run(Config, ["exec" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [{[], "is missing"}, {["--"], "is missing"}, {["--frob", "x"], "--frob"}]
    ].

a_command_that_is_not_there_is_exit_code_127(Config) ->
    ?assertMatch({127, [<<"weir: command not found: frob">>]}, run(Config, ["exec", "--", "frob", "erl"])).

%% Programs

sockets_of_erl_are_of_weir(Config) ->
    ?assertMatch({0, [?WEIR]}, erl(Config, [], ?LISTEN("[]") "halt().")),
    ?assertMatch({0, [?WEIR, <<"{ok,<<\"hello\">>}">>]}, erl(Config, [],
        "{ok, L} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}]), {ok, Port} = inet:port(L),"
        "{ok, C} = gen_tcp:connect({127, 0, 0, 1}, Port, []), {ok, S} = gen_tcp:accept(L),"
        "ok = gen_tcp:send(C, \"hello\"), io:format(\"~0p~n~0p~n\", [C, gen_tcp:recv(S, 5)]), halt()."
    )).

arguments_and_exit_status_are_the_commands(Config) ->
    Print = "io:format(\"~0p\", [init:get_plain_arguments()]), halt(7).",
    Plain = ["-extra", "--families", "a b", "*", "--"],
    {7, [Line]} = run(Config, ["exec", "--", "erl", "-noshell", "-eval", Print | Plain]),
    ?assertEqual(<<"[\"--families\",\"a b\",\"*\",\"--\"]">>, Line).

the_command_takes_the_place_of_the_process(Config) ->
    Program = start(Config, ["exec", "--", "erl", "-noshell", "-eval", "io:format(\"~s~n\", [os:getpid()])."]),
    ?assertEqual(shell(Program), binary_to_list(line(Program))),
    kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

an_escript_runs_on_weir(Config) ->
    File = filename:join(?config(priv_dir, Config), "an_escript"),
    ok = file:write_file(File, "#!/usr/bin/env escript\nmain(Arguments) ->\n" ?LISTEN("[]")
        "io:format(\"~0p~n\", [Arguments]).\n"),
    ok = file:change_mode(File, 8#755),
    ?assertMatch({0, [?WEIR, <<"[\"-a\",\"b\"]">>]}, run(Config, ["exec", File, "-a", "b"])).

%% The release's application listens when it starts, before the end of the boot. In embedded mode only the modules in
%% the boot script are loaded.
a_release_in_embedded_mode_listens_on_weir_while_it_boots(Config) ->
    Boot = make_release(?config(priv_dir, Config)),
    Started = run(Config, ["exec", "--", "erl", "-mode", "embedded", "-noshell", "-boot", Boot, "-s", "init", "stop"]),
    ?assertMatch({0, _}, Started),
    ?assertMatch([?WEIR], [Line || {0, Lines} <- [Started], <<"{'$inet'", _/binary>> = Line <- Lines]).

make_release(Directory) ->
    Name = "early_listener",
    Source = filename:join(Directory, Name ++ ".erl"),
    ok = file:write_file(Source, [
        "-module(early_listener).\n"
        "-export([start/2, stop/1]).\n"
        "start(_, _) -> " ?LISTEN("[]") "{ok, self()}.\n"
        "stop(_) -> ok.\n"
    ]),
    {ok, early_listener} = compile:file(Source, [{outdir, Directory}]),
    Application = {application, early_listener, [
        {description, ""}, {vsn, "1"}, {modules, [early_listener]}, {registered, []}, {applications, [kernel, stdlib]},
        {mod, {early_listener, []}}
    ]},
    Applications = [{Known, Version} || {Known, _, Version} <- application:which_applications(),
                                        lists:member(Known, [kernel, stdlib])],
    Release = {release, {Name, "1"}, {erts, erlang:system_info(version)}, [{early_listener, "1"} | Applications]},
    [
        ok = file:write_file(filename:join(Directory, Name ++ Extension), io_lib:format("~p.~n", [Term]))
     || {Extension, Term} <- [{".app", Application}, {".rel", Release}]
    ],
    Boot = filename:join(Directory, Name),
    {ok, _, _} = systools:make_script(Boot, [silent, local, {path, [Directory]}, {outdir, Directory}]),
    Boot.

%% The user's configuration

an_inetrc_of_the_user_is_kept(Config) ->
    File = an_inetrc(Config),
    Environment = [{"ERL_INETRC", File}, {"XDG_CACHE_HOME", ?config(priv_dir, Config)}],
    Expression = ?LISTEN("[]") "io:format(\"~0p~n\", [inet:getaddr(\"frobnitz\", inet)]), halt().",
    ?assertMatch({0, [?WEIR, <<"{ok,{127,1,2,3}}">>]}, erl(with(Environment, Config), [], Expression)),
    %% Nested, and a second time.
    ?assertMatch({0, [?WEIR, <<"{ok,{127,1,2,3}}">>]}, run(with(Environment, Config), [
        "exec", "--", ?config(weir, Config), "exec", "--", "erl", "-noshell", "-eval", Expression
    ])).

an_inetrc_that_cannot_be_read_is_one_line(Config) ->
    {1, [Line]} = erl(with([{"ERL_INETRC", "/nowhere/inetrc"}], Config), [], "halt()."),
    ?assert(mentions("/nowhere/inetrc", [Line])).

a_configured_inetrc_is_told_and_weir_comes_after_the_boot(Config) ->
    Flags = ["-kernel", "inetrc", [$", an_inetrc(Config), $"]],
    {0, Lines} = erl(Config, Flags, ?LISTEN("[]") "io:format(\"~0p~n\", [inet:getaddr(\"frobnitz\", inet)]), halt()."),
    ?assert(mentions("Add {tcp, weir_tcp}.", Lines)),
    ?assertMatch([?WEIR, <<"{ok,{127,1,2,3}}">>], [Line || <<"{", _/binary>> = Line <- Lines]).

an_inetrc(Config) ->
    File = filename:join(?config(priv_dir, Config), "an inetrc"),
    ok = file:write_file(File, "{lookup, [file]}. {host, {127, 1, 2, 3}, [\"frobnitz\"]}."),
    File.

flags_in_the_environment_are_kept(Config) ->
    Environment = [{"ERL_AFLAGS", "-first 1"}, {"ERL_FLAGS", "-second 2"}],
    Expression = ?LISTEN("[]") "[io:format(\"~0p~n\", [init:get_argument(F)]) || F <- [first, second]], halt().",
    ?assertMatch(
        {0, [?WEIR, <<"{ok,[[\"1\"]]}">>, <<"{ok,[[\"2\"]]}">>]}, erl(with(Environment, Config), [], Expression)
    ).

%% Sockets with a family, and other programs

a_bare_family_is_otps(Config) ->
    ?assertMatch({0, [?OTP]}, erl(Config, [], ?LISTEN("[inet]") "halt().")).

%% gen_tcp takes the family from the address.
an_address_of_ipv6_is_weirs(Config) ->
    ?assertMatch({0, [?WEIR]}, erl(Config, [], ?LISTEN("[{ip, {0, 0, 0, 0, 0, 0, 0, 1}}]") "halt().")).

a_bare_family_is_weirs_with_families(Config) ->
    %% An abstract address, because the path of the test's directory is too long for a unix socket.
    Name = "weir_cli_exec_" ++ os:getpid(),
    {0, Lines} = run(Config, ["exec", "--families", "--", "erl", "-noshell", "-eval",
        "[begin {ok, L} = gen_tcp:listen(0, O), io:format(\"~0p~n\", [L]) end || O <- [[inet], [inet6], [local,"
        "{ifaddr, {local, <<0, \"" ++ Name ++ "\">>}}]]],"
        "{ok, U} = gen_udp:open(0, [inet]), io:format(\"~0p~n\", [U]), halt()."]),
    ?assertMatch([?WEIR, ?WEIR, ?WEIR, ?OTP], Lines).

blanks_and_quotes_in_the_path(Config) ->
    {_, Build} = lists:keyfind("REBAR_BASE_DIR", 1, ?config(environment, Config)),
    Link = filename:join(?config(priv_dir, Config), "it's \"a\" $build\\"),
    ok = file:make_symlink(Build, Link),
    ?assertMatch({0, [?WEIR]}, erl(with([{"REBAR_BASE_DIR", Link}], Config), [], ?LISTEN("[]") "halt().")).

an_application_that_will_not_work_is_named(Config) ->
    Directory = filename:join(?config(priv_dir, Config), "rabbit"),
    Source = filename:join(Directory, "rabbit_net.erl"),
    ok = filelib:ensure_dir(Source),
    ok = file:write_file(Source, "-module(rabbit_net)."),
    {ok, rabbit_net} = compile:file(Source, [{outdir, Directory}]),
    {0, Lines} = erl(Config, ["-pa", Directory], ?LISTEN("[]") "halt()."),
    ?assert(mentions("RabbitMQ will not work", Lines)),
    ?assert(mentions("rabbit_net", Lines)),
    {0, Others} = erl(Config, [], ?LISTEN("[]") "halt()."),
    ?assertNot(mentions("will not work", Others)).

%% Erlang's default handler drops reports with a domain that is not OTP's.
reports_are_seen_in_a_plain_node(Config) ->
    Ebin = filename:dirname(code:which(weir)),
    Erl = os:find_executable("erl"),
    Expression =
        "{ok, _} = application:ensure_all_started(weir), "
        "weir_reports:log(warning, #{what => \"something happened\", listener => a_name}), "
        "ok = logger_std_h:filesync(default), halt().",
    {0, Lines} = run([{weir, Erl} | Config], ["-noshell", "-pa", Ebin, "-eval", Expression]),
    ?assert(mentions("weir: something happened; listener=a_name", Lines)).

%% Distribution uses its own sockets. This test has its own port mapper.
nodes_connect(Config) ->
    Number = weir_test_port:claim(),
    {Program, Arguments} = weir_cli_program:bound(os:find_executable("epmd"), ["-port", integer_to_list(Number)]),
    Epmd = open_port({spawn_executable, Program}, [{args, Arguments}]),
    %% A node that finds no port mapper would start one that stays.
    {ok, Mapper} = ?waitMatch({ok, _}, gen_tcp:connect({127, 0, 0, 1}, Number, [])),
    %% A names request, so that epmd does not log the connection as invalid.
    ok = gen_tcp:send(Mapper, <<1:16, $n>>),
    ok = gen_tcp:close(Mapper),
    Environment = [{"ERL_EPMD_PORT", integer_to_list(Number)}],
    Cookie = ["-setcookie", "weir_cli_exec"],
    try
        One = start(with(Environment, Config), [
            "exec",
            "--",
            "erl",
            "-noshell",
            "-sname",
            "weir_exec_one@localhost",
            "-eval",
            "io:format(\"ready~n\")."
            | Cookie
        ]),
        <<"ready">> = line(One),
        Expression =
            "pong = net_adm:ping(weir_exec_one@localhost), "
            ?LISTEN("[]")
            "io:format(\"~0p~n\", [erpc:call(weir_exec_one@localhost, erlang, node, [])]), "
            "{ok, T} = erpc:call(weir_exec_one@localhost, gen_tcp, listen, [0, []]), io:format(\"~0p~n\", [T]), "
            "true = monitor_node(weir_exec_one@localhost, true), "
            "erpc:cast(weir_exec_one@localhost, erlang, halt, [0]), "
            "receive {nodedown, _} -> halt() end.",
        {0, Lines} = erl(with(Environment, Config), ["-sname", "weir_exec_two@localhost" | Cookie], Expression),
        ?assertMatch([?WEIR, <<"weir_exec_one@localhost">>, ?WEIR], Lines),
        ?assertEqual(0, exit_status(One))
    after
        {os_pid, Pid} = erlang:port_info(Epmd, os_pid),
        kill("TERM", integer_to_list(Pid))
    end.

erl(Config, Flags, Expression) ->
    run(Config, ["exec", "--", "erl", "-noshell" | Flags] ++ ["-eval", Expression]).

with(Environment, Config) ->
    {environment, Before} = lists:keyfind(environment, 1, Config),
    lists:keystore(environment, 1, Config, {environment, Environment ++ Before}).
