%% Runs bin/weir serve as a user would.
-module(weir_cli_serve_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    help_says_how/1,
    a_wrong_argument_is_one_line/1,
    a_directory_that_is_not_there_is_one_line_and_exit_code_1/1,
    a_port_in_use_is_one_line_and_exit_code_1/1,
    it_serves_files_until_a_signal/1,
    links_are_followed_and_requests_logged_if_asked/1,
    a_download_that_has_begun_is_finished/1
]).

-import(weir_cli_program, [start/2, run/2, answer/1, line/1, exit_status/1, stop/1, shell/1, kill/2, mentions/2]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        help_says_how,
        a_wrong_argument_is_one_line,
        a_directory_that_is_not_there_is_one_line_and_exit_code_1,
        a_port_in_use_is_one_line_and_exit_code_1,
        it_serves_files_until_a_signal,
        links_are_followed_and_requests_logged_if_asked,
        a_download_that_has_begun_is_finished
    ].

init_per_suite(Config) -> weir_cli_program:find(Config).

end_per_suite(_Config) -> ok.

help_says_how(_Config) ->
    {0, Lines} = answer(["serve", "--help"]),
    [
        ?assert(mentions(Word, Lines))
     || Word <- ["weir serve DIR", "--port", "--ip", "--follow-links", "--access-log", "index.html"]
    ].

a_wrong_argument_is_one_line(_Config) ->
    [
        begin
            {Status, Lines} = answer(["serve" | Arguments]),
            ?assertMatch({Arguments, 2, [<<"weir: ", _/binary>>]}, {Arguments, Status, Lines}),
            ?assert(mentions(Wrong, Lines))
        end
     || {Arguments, Wrong} <- [
            {[], "directory"},
            {[".", "more"], "more"},
            {[".", "--port", "65536"], "65536"},
            {[".", "--ip", "localhost"], "localhost"},
            {[".", "--access-log", "/nowhere/log"], "/nowhere/log"}
        ]
    ].

a_directory_that_is_not_there_is_one_line_and_exit_code_1(Config) ->
    {1, [Line]} = run(Config, ["serve", filename:join(?config(priv_dir, Config), "nowhere")]),
    ?assert(mentions("nowhere", [Line])).

a_port_in_use_is_one_line_and_exit_code_1(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Listen),
    {1, [Line]} = run(Config, ["serve", ".", "--port", integer_to_list(Port)]),
    ?assert(mentions(integer_to_list(Port), [Line])),
    ok = gen_tcp:close(Listen).

it_serves_files_until_a_signal(Config) ->
    Directory = directory(Config, "site"),
    ok = file:write_file(filename:join(Directory, "index.html"), "<p>Hello"),
    {Program, Port} = serve(Config, Directory, []),
    Text = asked(Port, "GET / HTTP/1.0\r\n\r\n"),
    ?assertMatch({match, _}, re:run(Text, "^HTTP/1.1 200 OK\r\n.*\r\n\r\n<p>Hello$", [dotall])),
    ?assertEqual(0, stop(Program)).

links_are_followed_and_requests_logged_if_asked(Config) ->
    Directory = directory(Config, "links"),
    Log = filename:join(?config(priv_dir, Config), "access.log"),
    ok = file:write_file(filename:join(?config(priv_dir, Config), "outside"), "from outside"),
    ok = file:make_symlink("../outside", filename:join(Directory, "link")),
    {Strict, StrictPort} = serve(Config, Directory, []),
    ?assertMatch(<<"HTTP/1.1 404 ", _/binary>>, asked(StrictPort, "GET /link HTTP/1.0\r\n\r\n")),
    ?assertEqual(0, stop(Strict)),
    {Program, Port} = serve(Config, Directory, ["--follow-links", "--access-log", Log]),
    ?assertMatch({match, _}, re:run(asked(Port, "GET /link HTTP/1.0\r\n\r\n"), "from outside$")),
    ?assertEqual(0, stop(Program)),
    {ok, Lines} = file:read_file(Log),
    ?assertMatch(
        {match, _}, re:run(Lines, "^127\\.0\\.0\\.1 - - \\[.*\\] \"GET /link HTTP/1\\.0\" 200 12 \"-\" \"-\"\n$")
    ).

%% The client reads the rest after the server got the signal.
a_download_that_has_begun_is_finished(Config) ->
    Directory = directory(Config, "large"),
    Large = binary:copy(<<"0123456789">>, 1000000),
    ok = file:write_file(filename:join(Directory, "large"), Large),
    {Program, Port} = serve(Config, Directory, []),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {recbuf, 4096}]),
    ok = gen_tcp:send(Socket, "GET /large HTTP/1.0\r\n\r\n"),
    {ok, Begin} = gen_tcp:recv(Socket, 0),
    kill("TERM", shell(Program)),
    %% Read the rest fast: the server waits only five seconds for it.
    ok = inet:setopts(Socket, [{recbuf, 1_000_000}, {buffer, 1_000_000}]),
    Text = iolist_to_binary([Begin | until_closed(Socket)]),
    [_, Body] = binary:split(Text, <<"\r\n\r\n">>),
    ?assert(Large =:= Body),
    ?assertEqual(0, exit_status(Program)).

directory(Config, Name) ->
    Directory = filename:join(?config(priv_dir, Config), Name),
    ok = file:make_dir(Directory),
    Directory.

serve(Config, Directory, Options) ->
    Program = start(Config, ["serve", Directory | Options]),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", _/binary>> = line(Program),
    {Program, binary_to_integer(Port)}.

asked(Port, Request) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, Request),
    iolist_to_binary(until_closed(Socket)).

until_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Bytes} -> [Bytes | until_closed(Socket)];
        {error, closed} -> []
    end.
