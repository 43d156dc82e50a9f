%% Runs bin/weir push as a user would.
-module(weir_cli_push_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([help_says_how/1, a_wrong_argument_is_one_line/1, it_serves_channels_until_a_signal/1]).
-export([a_file_is_checked/1, a_changed_file_is_taken/1, a_socket_takes_a_changed_file/1, status_is_a_line_a_second/1]).

-import(weir_cli_program, [start/2, run/2, answer/1, line/1, exit_status/1, shell/1, kill/2, mentions/2]).
-import(weir_test_wait, [wait_until/1]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        help_says_how,
        a_wrong_argument_is_one_line,
        it_serves_channels_until_a_signal,
        a_file_is_checked,
        a_changed_file_is_taken,
        a_socket_takes_a_changed_file,
        status_is_a_line_a_second
    ].

init_per_suite(Config) -> weir_cli_program:find(Config).

end_per_suite(_Config) -> ok.

help_says_how(_Config) ->
    {0, Lines} = answer(["push", "--help"]),
    [?assert(mentions(Word, Lines)) || Word <- ["weir push", "--port", "/pub/ID", "/sub/ID"]].

a_wrong_argument_is_one_line(_Config) ->
    [
        begin
            {Status, Lines} = answer(["push" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {["more"], "more"},
            {["--port", "65536"], "65536"},
            {["--publishers", "nobody"], "nobody"},
            {["--check"], "--config"},
            {["--config", "a", "--port", "1"], "--port"}
        ]
    ].

%% An open stream ends with its last chunk.
it_serves_channels_until_a_signal(Config) ->
    Program = start(Config, ["push"]),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", _/binary>> = line(Program),
    Url = "http://127.0.0.1:" ++ binary_to_list(Port),
    ?assertEqual("202", os:cmd("curl -s -o /dev/null -w '%{http_code}' -d hello " ++ Url ++ "/pub/a")),
    ?assertEqual("hello", os:cmd("curl -s " ++ Url ++ "/sub/a")),
    Parent = self(),
    Stream = "curl -sN --max-time 600 -H 'Accept: text/event-stream' " ++ Url ++ "/sub/a; echo $?",
    _ = spawn_link(fun() -> Parent ! {streamed, os:cmd(Stream)} end),
    wait_until(fun() -> string:find(os:cmd("curl -s " ++ Url ++ "/pub/a"), "active subscribers: 1") =/= nomatch end),
    _ = kill("TERM", shell(Program)),
    receive
        {streamed, Text} ->
            ?assertMatch({match, _}, re:run(Text, "^: hi\n.*data: hello\n.*retry: [0-9]+\n.*\n0\n$", [dotall]))
    after weir_test_wait:patience() -> ct:fail(no_end)
    end,
    ?assertEqual(0, exit_status(Program)).

a_file_is_checked(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "checked.toml"),
    ok = file:write_file(File, "drain = 1000\n[[listeners]]\nport = 8000\n"),
    ?assertMatch({0, [_]}, run(Config, ["push", "--config", File, "--check"])),
    ok = file:write_file(File, "drain = 0\n[[listeners]]\nport = 'a'\n"),
    {1, [First, Second]} = run(Config, ["push", "--config", File, "--check"]),
    ?assertEqual(iolist_to_binary(["weir: ", File, ":1: drain: milliseconds from 1 on"]), First),
    ?assertEqual(iolist_to_binary(["weir: ", File, ":3: listeners.1.port: an integer from 0 to 65535"]), Second),
    %% Only the start detects this error.
    ok = file:write_file(File, "[[listeners]]\naccess_log = '/nowhere/access.log'\n"),
    {1, [Third]} = run(Config, ["push", "--config", File]),
    ?assertMatch({_, _}, binary:match(Third, <<" port 0: access_log needs a file that can be written (">>)).

%% The signal goes to the process that the user has started: the shell.
a_changed_file_is_taken(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "push.toml"),
    ok = file:write_file(File, ""),
    Program = start(Config, ["push", "--config", File]),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", _/binary>> = line(Program),
    Publish = ["curl -s -o /dev/null -w '%{http_code}' -d hello http://127.0.0.1:", Port, "/pub/a"],
    ?assertEqual("202", os:cmd(lists:flatten(io_lib:format("~s", [Publish])))),
    ok = file:write_file(File, "[may]\npublish = 'nobody'\n"),
    _ = kill("HUP", shell(Program)),
    <<"reloaded ", _/binary>> = line(Program),
    ?assertEqual("403", os:cmd(lists:flatten(io_lib:format("~s", [Publish])))),
    ok = file:write_file(File, "\n[may]\npublish = 'all'\n"),
    _ = kill("HUP", shell(Program)),
    ?assertMatch({_, _}, binary:match(line(Program), <<"push.toml:3: may.publish: one of">>)),
    ?assertEqual(<<"weir: the configuration is unchanged">>, line(Program)),
    ?assertEqual("403", os:cmd(lists:flatten(io_lib:format("~s", [Publish])))),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)).

%% A request on the control socket reloads the file as the signal does, and returns the errors.
a_socket_takes_a_changed_file(Config) ->
    Directory = "/tmp/weir_push_" ++ os:getpid(),
    ok = filelib:ensure_path(Directory),
    File = filename:join(Directory, "push.toml"),
    Socket = filename:join(Directory, "sock"),
    ok = file:write_file(File, "control = 'sock'\n"),
    Program = start(Config, ["push", "--config", File]),
    <<"ready ", _/binary>> = line(Program),
    <<"pid ", _/binary>> = line(Program),
    ok = file:write_file(File, "control = 'sock'\n[may]\npublish = 'nobody'\n"),
    ?assertEqual({0, []}, run(Config, ["push", "reload", Socket])),
    <<"reloaded ", _/binary>> = line(Program),
    ok = file:write_file(File, "control = 'sock'\n[may]\npublish = 'me'\n"),
    {1, [Fault, Unchanged]} = run(Config, ["push", "reload", Socket]),
    ?assertMatch({_, _}, binary:match(Fault, <<"push.toml:3: may.publish: one of">>)),
    ?assertEqual(<<"weir: the configuration is unchanged">>, Unchanged),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)),
    ?assertMatch({1, [_]}, run(Config, ["push", "reload", Socket])),
    ?assertMatch({2, [_]}, run(Config, ["push", "reload"])),
    ok = file:del_dir_r(Directory).

status_is_a_line_a_second(Config) ->
    Program = start(Config, ["push"]),
    <<"ready ", Port/binary>> = line(Program),
    Url = "http://127.0.0.1:" ++ binary_to_list(Port),
    {0, [Header, _, _]} = run(Config, ["push", "status", "--count", "2", Url]),
    ?assertMatch({_, _}, binary:match(Header, <<"published">>)),
    {2, [Usage]} = run(Config, ["push", "status", "nowhere"]),
    ?assertMatch({_, _}, binary:match(Usage, <<"nowhere is not a URL">>)),
    _ = kill("TERM", shell(Program)),
    ?assertEqual(0, exit_status(Program)),
    {1, [Failure]} = run(Config, ["push", "status", Url]),
    ?assertMatch({_, _}, binary:match(Failure, <<"connection refused">>)).
